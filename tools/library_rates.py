"""Compares linkscope's computations with the same problems by PyTorch, which calls the vendor's libraries.

Usage: python tools/library_rates.py [-o RUN.jsonl] [--size shoc|small|full] [--budget 60s]

Prints Markdown: seconds of linkscope's row and of PyTorch's call on gpu:0 in one call of this tool, and how much longer
linkscope takes. PyTorch's sort also makes 64-bit positions, where linkscope moves 32-bit values.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.runfile import read_run
from linkscope.stats import median
from linkscope.units import format_change, format_seconds

ALLOWED = 0.05
_REPEATS, _TOGETHER = 12, 10
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


def seconds_by_torch(torch: Any, call: Callable[[], object]) -> float:
    """The median over repeats of a call among several."""
    found = []
    for _ in range(_REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(_TOGETHER):
            call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3 / _TOGETHER)
    return median(found[2:])


def seconds_by_linkscope(path: Path, size: str, budget: str) -> dict[str, float]:
    """By name; a row that could not be measured is missing."""
    only = [word for name in _LENGTHS for word in ("--only", point_of(name, size))]
    words = ["run", *only, "--budget", budget, "-o", str(path), "-q"]
    done = subprocess.run([sys.executable, "-m", "linkscope", *words], capture_output=True, text=True, check=False)
    if not path.exists():
        raise SystemExit(done.stderr)
    points = read_run(path).points
    return {point.benchmark.removeprefix("compute_"): point.median_s for point in points if point.median_s}


def table(ours: Mapping[str, float], theirs: Mapping[str, float]) -> list[str]:
    """A row for each computation of PyTorch. A change above 5 % is marked."""
    lines = ["| computation | linkscope | PyTorch | linkscope takes | within 5 % |", "|---|---|---|---|---|"]
    for name, seconds in theirs.items():
        if name not in ours:
            lines.append(f"| {name} | not measured | {format_seconds(seconds)} | - | - |")
            continue
        change = ours[name] / seconds - 1
        lines.append(
            f"| {name} | {format_seconds(ours[name])} | {format_seconds(seconds)} | {format_change(change)} "
            f"| {'yes' if change <= ALLOWED else 'no'} |"
        )
    return lines


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=Path, dest="path")
    parser.add_argument("--size", choices=("shoc", "small", "full"), default="shoc")
    parser.add_argument("--budget", default="60s")
    given = parser.parse_args(words)
    if importlib.util.find_spec("torch") is None:
        parser.error("PyTorch is not installed")
    with tempfile.TemporaryDirectory() as folder:
        ours = seconds_by_linkscope(given.path or Path(folder) / "run.jsonl", given.size, given.budget)
    import torch

    theirs = {}
    for name, lengths in _LENGTHS.items():
        theirs[name] = seconds_by_torch(torch, calls(torch, name, lengths[given.size]))
        torch.cuda.empty_cache()
    print(f"PyTorch {torch.__version__}, size {given.size}, {torch.cuda.get_device_name()}\n")
    print("\n".join(table(ours, theirs)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
