"""The tests on GPUs, run on the fake driver: with two GPUs they pass, with fewer they skip with the reason."""

import os
import re
import subprocess
import sys

import pytest

from campaign import only_long, sample
from fake_driver import LIBRARIES, ROOT, environment, needs_fake, needs_worker

pytestmark = [needs_fake, needs_worker]


def outcome(files: str, **settings: int) -> tuple[str, str]:
    """The last line of pytest's output, and all of it. `files`: names of files and options of pytest."""
    found = [str(ROOT / "tests" / "gpu" / word) if word.endswith(".py") else word for word in files.split()]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *found]
    variables = environment(**settings) | {"PYTHONPATH": os.environ["PYTHONPATH"]}
    variables["LD_LIBRARY_PATH"] += f":{LIBRARIES / 'libraries'}"
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=900)
    return done.stdout.strip().splitlines()[-1], done.stdout + done.stderr


# A few of each file, and `make test-long` runs all: each measures whole runs.
@pytest.mark.parametrize(
    "files",
    [
        sample("test_shared.py -k another_gpu", "test_shared.py"),
        sample("test_copies.py -k written-pinned", "test_copies.py"),
        sample("test_leaks.py -k repeated", "test_leaks.py"),
        sample("test_driver.py -k streams", "test_driver.py"),  # test_fake_cuda.py runs all of these checks
        pytest.param("test_lu.py -k on_2", marks=only_long),
        pytest.param("test_computations.py", marks=only_long),
        "test_put_get.py -k exact",
        sample("test_transfer.py -k background", "test_transfer.py"),
    ],
)
def test_gpu_tests_pass_on_two_fake_gpus(files) -> None:
    last, everything = outcome(files, CUDA_GPUS=2)
    assert re.search(r"^\d+ passed", last) and "failed" not in last and "skipped" not in last, everything


@pytest.mark.parametrize(
    "gpus, files, words",
    [
        (0, "test_leaks.py test_run.py test_driver.py", "it needs 1 GPUs; here are 0"),
        (1, "test_shared.py -k another_gpu", "it needs 2 GPUs; here are 1"),
    ],
)
def test_gpu_tests_skip_with_the_reason(gpus, files, words) -> None:
    last, everything = outcome(files, CUDA_GPUS=gpus)
    assert "skipped" in last and "failed" not in last and "error" not in last and words in everything, everything


def test_gpu_tests_of_shared_memory_skip_with_the_drivers_reason() -> None:
    last, everything = outcome("test_shared.py -k ping_pong", CUDA_GPUS=2, CUDA_NO_POSIX_FD=1)
    assert "failed" not in last and "passed" in last, everything
    assert "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED is 0" in everything
