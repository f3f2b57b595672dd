"""The tests on GPUs, run on the fake driver: with two GPUs they pass, with fewer they skip with the reason."""

import os
import re
import subprocess
import sys

import pytest

from fake_driver import ROOT, environment, needs_fake, needs_worker

pytestmark = [needs_fake, needs_worker]


def outcome(file: str, **settings: int) -> tuple[str, str]:
    """The last line of pytest's output, and all of it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", str(ROOT / "tests" / "gpu" / file)]
    variables = environment(**settings) | {"PYTHONPATH": os.environ["PYTHONPATH"]}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=900)
    return done.stdout.strip().splitlines()[-1], done.stdout + done.stderr


@pytest.mark.parametrize("file", ["test_shared.py", "test_copies.py", "test_leaks.py", "test_driver.py"])
def test_gpu_tests_pass_on_two_fake_gpus(file) -> None:
    last, everything = outcome(file, CUDA_GPUS=2)
    assert re.search(r"^\d+ passed", last) and "failed" not in last and "skipped" not in last, everything


@pytest.mark.parametrize(
    "gpus, file, words",
    [
        (0, "test_leaks.py", "it needs 1 GPUs; here are 0"),
        (0, "test_run.py", "it needs 1 GPUs; here are 0"),
        (0, "test_driver.py", "it needs 1 GPUs; here are 0"),
        (1, "test_shared.py", "it needs 2 GPUs; here are 1"),
    ],
)
def test_gpu_tests_skip_with_the_reason(gpus, file, words) -> None:
    last, everything = outcome(file, CUDA_GPUS=gpus)
    assert "skipped" in last and "failed" not in last and "error" not in last and words in everything, everything


def test_gpu_tests_of_shared_memory_skip_with_the_drivers_reason() -> None:
    last, everything = outcome("test_shared.py", CUDA_GPUS=2, CUDA_NO_POSIX_FD=1)
    assert "failed" not in last and "passed" in last, everything
    assert "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED is 0" in everything
