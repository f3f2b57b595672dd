"""The paths of the fake driver, and the environment that makes a program load it (tests/fake_cuda/README.md)."""

import os
from pathlib import Path

import pytest

from linkscope.runfile import Point

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("LINKSCOPE_TEST_BUILD", ROOT / "build" / "dev"))
WORKER = Path(os.environ.get("LINKSCOPE_WORKER", ROOT / "src" / "linkscope" / "_native" / "linkscope-worker"))
DEVICE_CODE = BUILD / "device_code"
LIBRARIES = BUILD / "tests" / "fake_cuda"

needs_fake = pytest.mark.skipif(
    not (LIBRARIES / "driver" / "libcuda.so.1").is_file(),
    reason=f"the fake driver is not built in {LIBRARIES}; 'make build-tests' builds it",
)
needs_worker = pytest.mark.skipif(
    not WORKER.is_file(), reason=f"the worker is not built ({WORKER}); 'make build-tests' builds it"
)


def environment(library: str = "driver", **settings: str | int) -> dict[str, str]:
    """`library` is a folder of the fake's build. Settings that begin with CUDA_ or NVML_ get the prefix `FAKE_`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAKE_", "CUDA_", "NVTX_"))}
    kept["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(LIBRARIES / library), kept.get("LD_LIBRARY_PATH")]))
    return kept | {f"FAKE_{name}": str(value) for name, value in settings.items()}


def too_short(point: Point) -> bool:
    """Whether noise of a busy machine exceeds the point's time: copies of the fake driver take nearly no time."""
    return "too short for the clock" in (point.reason or "")


def calls_between(log: Path, symbol: str, enter_s: float, exit_s: float) -> int:
    """The number of calls of `symbol` between two stamps of the host's clock; `log` is the file FAKE_CUDA_CALLS."""
    lines = (line.split() for line in log.read_text().splitlines())
    return sum(name == symbol and enter_s <= float(at) <= exit_s for name, at in lines)
