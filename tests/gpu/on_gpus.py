"""Shared parts of the tests on GPUs: the number of GPUs, and complete runs of the command.

They also run on the fake driver (tests/python/test_gpu_tests.py), where rates have no meaning.
"""

import os
import subprocess
import sys
import time
from ctypes import byref, c_int, c_size_t
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

from driver_by_ctypes import Driver, Gpu  # noqa: E402
from fake_driver import too_short  # noqa: E402
from linkscope.runfile import Point, Run, read_run  # noqa: E402

FAKE = any(name.startswith("FAKE_CUDA_") for name in os.environ)
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}


@cache
def gpus() -> int:
    """The number of GPUs, counted by a process that ends: an open process makes the driver keep memory of others."""
    return int(_in_new_process("count_here"))


def _in_new_process(function: str) -> str:
    """The return value of a function of this file, run in a separate process."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import on_gpus; print(on_gpus.{function}())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def count_here() -> int:
    try:
        driver = Driver()
    except (OSError, AttributeError, AssertionError):
        return 0
    count = c_int()
    driver.ok("cuDeviceGetCount", byref(count))
    return count.value


def needs(count: int) -> pytest.MarkDecorator:
    found = gpus()
    return pytest.mark.skipif(found < count, reason=f"it needs {count} GPUs; here are {found}")


def measured(path: Path, *arguments: str, timeout_s: float = 300, **variables: str) -> Run:
    command = [sys.executable, "-m", "linkscope", "run", "-o", str(path), *arguments]
    if FAKE:
        command += ["--precision", "50%"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env={**ENVIRONMENT, **variables})
    assert done.returncode in ((0, 1) if FAKE else (0,)), done.stdout + done.stderr  # 1: a point failed (verified)
    return read_run(path)


def only(*globs: str) -> list[str]:
    return [word for glob in globs for word in ("--only", glob)]


def value(run: Run, part: str) -> Point:
    """The point with `part` in its id and the fewest other parameters: `a=1` also matches `a=1&b=2`."""
    return min((point for point in run.points if part in point.id), key=lambda point: len(point.id))


def verified(run: Run) -> list[Point]:
    """The measured points, whose data was verified. Skips if this machine can measure none of the points."""
    assert run.points
    hidden = {point.id for point in run.points if FAKE and too_short(point)}
    here = [point for point in run.points if point.status != "unsupported" or point.id in hidden]
    if not here:
        pytest.skip(run.points[0].reason)
    failed = [point for point in here if point.status not in ("ok", "missed_precision") and point.id not in hidden]
    assert not failed, [(point.id, point.reason) for point in failed]
    unverified = [point.id for point in here if not point.verified]
    assert not unverified, unverified
    return here


def free_bytes() -> list[int]:
    """The free bytes of each GPU, seen by a process without a context there: contexts differ by 110 MiB on H200."""
    if FAKE:
        return [int(word) for word in _in_new_process("free_here").split()]
    command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    if shown := os.environ.get("CUDA_VISIBLE_DEVICES"):
        command.append(f"--id={shown}")
    before: list[int] = []
    for _ in range(20):  # memory of an ended process is released with a delay
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        found = [int(word) << 20 for word in done.stdout.split()]
        if found == before:
            break
        before = found
        time.sleep(0.5)
    return found


def free_here() -> str:
    driver, found = Driver(), []
    all_gpus = [
        Gpu(driver, Path(), ordinal) for ordinal in range(count_here())
    ]  # a context also takes memory of the other GPUs
    for gpu in all_gpus:
        free, total = c_size_t(), c_size_t()
        gpu.use()
        driver.ok("cuMemGetInfo", byref(free), byref(total))
        found.append(free.value)
    return " ".join(map(str, found))
