"""The driver of this machine passes the checks that the fake driver passes (tests/fake_cuda/README.md)."""

import subprocess
import sys

import pytest

import driver_checks
from fake_driver import DEVICE_CODE
from on_gpus import gpus

NEED_TWO = {
    "peer_access_is_enabled_and_disabled_once", "the_driver_knows_which_memory_a_gpu_reaches",
    "devices_do_not_mix", "data_goes_between_devices",
    "shared_memory_of_another_process_is_opened_by_each_gpu",
    "shared_memory_opened_by_one_gpu_is_out_of_reach_of_another",
}  # fmt: skip


@pytest.mark.skipif(not DEVICE_CODE.is_dir(), reason="there is no device code; 'make build-tests' makes it")
@pytest.mark.parametrize("name", [check.__name__ for check in driver_checks.CHECKS])
def test_the_driver_passes_every_check_of_the_fake_driver(name):
    needed, found = 2 if name in NEED_TWO else 1, gpus()
    if found < needed:
        pytest.skip(f"it needs {needed} GPUs; here are {found}")
    done = subprocess.run(
        [sys.executable, driver_checks.__file__, DEVICE_CODE, name], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
