"""Compares linkscope's computations with the same problems by PyTorch, which calls the vendor's libraries.

Usage: python tools/library_rates.py [-o FOLDER] [--size shoc|small|full] [--budget 90s]

Prints Markdown, a row as soon as it is measured: seconds of linkscope's computation and of PyTorch's call on gpu:0, one
after the other, and how much longer linkscope takes. It ends within the budget: a computation that has no value by then
is said to be not measured. PyTorch's sort also makes 64-bit positions, where linkscope moves 32-bit values.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.runfile import read_run
from linkscope.stats import median
from linkscope.units import format_change, format_seconds, parse_duration

ALLOWED = 0.05
_REPEATS, _LEAST, _TOGETHER = 12, 3, 10
# Of the time of a row: what linkscope measures in, what its process may take with the checks, and what PyTorch has.
_MEASURED, _ALLOWED_IN_ALL, _BY_TORCH = 0.4, 0.75, 0.15
_MIB = 1 << 20
# Rows and columns, or bytes, by size: core/benchmarks/computations.cpp.
_LENGTHS: Mapping[str, Mapping[str, int]] = {
    "sgemm": {"small": 128, "shoc": 4096, "full": 16384},
    "dgemm": {"small": 128, "shoc": 2048, "full": 8192},
    "bf16gemm": {"small": 128, "shoc": 4096, "full": 16384},
    "fft": {"small": _MIB // 16, "shoc": 256 * _MIB, "full": 1024 * _MIB},
    "fft_double": {"small": _MIB // 16, "shoc": 256 * _MIB, "full": 1024 * _MIB},
    "reduction": {"small": _MIB // 16, "shoc": 64 * _MIB, "full": 1024 * _MIB},
    "scan": {"small": _MIB // 16, "shoc": 64 * _MIB, "full": 1024 * _MIB},
    "sort": {"small": _MIB // 16, "shoc": 96 * _MIB, "full": 512 * _MIB},
}


def point_of(name: str, size: str) -> str:
    return f"compute_{name}/sm/gpu:0.device->gpu:0.device/0?size={size}"


def calls(torch: Any, name: str, length: int) -> Callable[[], object]:
    """PyTorch's call for the same problem."""
    if name.endswith("gemm"):
        element = {"sgemm": torch.float32, "dgemm": torch.float64, "bf16gemm": torch.bfloat16}[name]
        one, other = (torch.randn(length, length, dtype=element, device="cuda") for _ in range(2))
        product = torch.empty_like(one)
        return lambda: torch.matmul(one, other, out=product)
    if name.startswith("fft"):
        element, each = (torch.complex128, 16) if name == "fft_double" else (torch.complex64, 8)
        points = torch.randn(length // each // 512, 512, dtype=element, device="cuda")
        made = torch.empty_like(points)
        return lambda: torch.fft.fft(points, out=made)
    words = torch.randint(0, 1 << 30, (length // 4,), dtype=torch.int32, device="cuda")
    if name == "reduction":
        return lambda: torch.sum(words, dtype=torch.int64)
    if name == "scan":
        sums = torch.empty_like(words)
        return lambda: torch.cumsum(words, 0, dtype=torch.int32, out=sums)
    return lambda: torch.sort(words)


def seconds_by_torch(torch: Any, call: Callable[[], object], limit_s: float) -> float:
    """The median over repeats of a call among several; fewer, at least three, where these take too long."""

    def timed(count: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / count

    ends = time.monotonic() + limit_s
    timed(1)  # makes handles and plans
    together = max(1, min(_TOGETHER, int(limit_s / _REPEATS / timed(1))))
    found: list[float] = []
    while len(found) < _REPEATS and (len(found) < _LEAST or time.monotonic() < ends):
        found.append(timed(together))
    return median(found)


def seconds_by_linkscope(path: Path, point: str, share_s: float) -> float | None:
    """None if the point has no value within its share of the time, checks included."""
    words = ["run", "--only", point, "--contexts", "any", "--budget", f"{_MEASURED * share_s:.1f}s"]
    command = [sys.executable, "-m", "linkscope", *words, "-o", str(path), "-q"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ALLOWED_IN_ALL * share_s)
    except subprocess.TimeoutExpired:
        return _value(path)
    if not path.exists():
        raise SystemExit(done.stderr)
    return _value(path)


def _value(path: Path) -> float | None:
    points = read_run(path).points if path.exists() else []
    return points[0].median_s if points else None


def row(name: str, ours: float | None, theirs: float) -> str:
    """A row of the table. A change above 5 % is marked."""
    if ours is None:
        return f"| {name} | not measured | {format_seconds(theirs)} | - | - |"
    change = ours / theirs - 1
    within = "yes" if change <= ALLOWED else "no"
    return f"| {name} | {format_seconds(ours)} | {format_seconds(theirs)} | {format_change(change)} | {within} |"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=Path, dest="folder", help="keeps the run files here, one for each computation")
    parser.add_argument("--size", choices=("shoc", "small", "full"), default="shoc")
    parser.add_argument("--budget", default="90s")
    given = parser.parse_args(words)
    if importlib.util.find_spec("torch") is None:
        parser.error("PyTorch is not installed")
    budget_s = parse_duration(given.budget)
    if not budget_s:
        parser.error(f"--budget {given.budget} is no duration such as 90s")
    ends = time.monotonic() + budget_s
    import torch

    print(f"PyTorch {torch.__version__}, size {given.size}, {torch.cuda.get_device_name()}\n")
    print("| computation | linkscope | PyTorch | linkscope takes | within 5 % |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder = given.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        for at, (name, lengths) in enumerate(_LENGTHS.items()):
            share_s = (ends - time.monotonic()) / (len(_LENGTHS) - at)
            ours = seconds_by_linkscope(folder / f"{name}.jsonl", point_of(name, given.size), share_s)
            call = calls(torch, name, lengths[given.size])
            print(row(name, ours, seconds_by_torch(torch, call, _BY_TORCH * share_s)), flush=True)
            del call
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
