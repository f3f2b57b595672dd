"""What the tests on GPUs share: how many GPUs there are, and whole runs of the command.

They also run on the fake driver (tests/python/test_gpu_tests.py), where rates say nothing.
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
    """Counted by a process that ends: as long as one is open, the driver keeps memory that others made it take."""
    return int(_elsewhere("count_here"))


def _elsewhere(function: str) -> str:
    """What a function of this file returns in a process of its own."""
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
    """The point with this in its id and the fewest others: `a=1` is not `a=1&b=2`, which is measured as well."""
    return min((point for point in run.points if part in point.id), key=lambda point: len(point.id))


def verified(run: Run) -> list[Point]:
    """The points that were measured: what they delivered was compared. Skips where this machine can measure none."""
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
    """Of each GPU, told by who has no context there: on H200 what one takes differs by 110 MiB between processes."""
    if FAKE:
        return [int(word) for word in _elsewhere("free_here").split()]
    command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    if shown := os.environ.get("CUDA_VISIBLE_DEVICES"):
        command.append(f"--id={shown}")
    before: list[int] = []
    for _ in range(20):  # what an ended process had comes back a little later
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
    ]  # each context takes from the others, too
    for gpu in all_gpus:
        free, total = c_size_t(), c_size_t()
        gpu.use()
        driver.ok("cuMemGetInfo", byref(free), byref(total))
        found.append(free.value)
    return " ".join(map(str, found))
