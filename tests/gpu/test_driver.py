"""What the fake driver is built to behave like holds of the real one on this machine (tests/fake_cuda/README.md)."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = ROOT / "tests" / "python" / "driver_checks.py"
DEVICE_CODE = ROOT / "build" / "dev" / "device_code"
sys.path.insert(0, str(CHECKS.parent))

import driver_checks  # noqa: E402

NEED_TWO = {"peers_are_kept_in_books", "devices_do_not_mix", "data_goes_between_devices"}


def gpus() -> int:
    try:
        driver = driver_checks.Driver()
    except (OSError, AttributeError, AssertionError):
        return 0
    count = driver_checks.c_int()
    driver.ok("cuDeviceGetCount", driver_checks.byref(count))
    return count.value


@pytest.mark.skipif(not DEVICE_CODE.is_dir(), reason="there is no device code; 'make build-tests' makes it")
@pytest.mark.parametrize("name", [check.__name__ for check in driver_checks.CHECKS])
def test_the_driver_keeps_what_the_fake_promises(name):
    needed, found = 2 if name in NEED_TWO else 1, gpus()
    if found < needed:
        pytest.skip(f"it needs {needed} GPUs; here are {found}")
    done = subprocess.run([sys.executable, CHECKS, DEVICE_CODE, name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
