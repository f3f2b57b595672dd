"""The targets of the transfer library as a table, from the rows of tools/transfer_bench.py and tools/loader_bench.py.

Usage: python tools/issue_table.py FILE.json...
"""

import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_LARGE = 64 * _MIB
# Times the driver's rate, and the share of pinned memory's rate, that pageable copies must reach.
_WHOLE = {"to gpu": (5.5, 0.9), "to warm": (2.8, 0.9)}
_OURS, _PINNED = "linkscope", "pinned copy"


@dataclass(frozen=True)
class Verdict:
    """A measured value beside its target. `met` is None where the target only asks for the value."""

    transfer: str
    measured: str
    target: str
    met: bool | None


def verdicts(rows: list[Row]) -> list[Verdict]:
    """A verdict for each target that the rows can answer; rows may be missing, as after an interruption."""
    found: list[Verdict] = []
    for part in (_whole, _fresh, _tensors, _blocks, _thousand, _loaders, _cold, _small, _gemm):
        found += part(rows)
    return found


def _of(rows: Iterable[Row], **facts: Any) -> dict[str, Row]:
    """The rows with these facts, by method."""
    return {row["method"]: row for row in rows if "method" in row and facts.items() <= row.items()}


def _at_least(transfer: str, value: float, target: float, what: str) -> Verdict:
    return Verdict(transfer, f"{value:.3g} {what}", f"{target:g} {what}", value >= target)


def _at_most(transfer: str, value: float, target: float, what: str) -> Verdict:
    return Verdict(transfer, f"{value:.3g} {what}", f"{target:g} {what}", value <= target)


def _size(nbytes: int) -> str:
    return f"{nbytes / _GIB:g} GiB" if nbytes >= _GIB else f"{nbytes / _MIB:g} MiB"


def _sizes(rows: list[Row], section: str) -> list[int]:
    return sorted({row["bytes"] for row in rows if row.get("section") == section and row["bytes"] >= 16 * _MIB})


def _whole(rows: list[Row]) -> Iterator[Verdict]:
    for section, (times, share) in _WHOLE.items():
        for nbytes in _sizes(rows, section):
            of, name = _of(rows, section=section, bytes=nbytes), f"pageable {section}, {_size(nbytes)}"
            if _OURS not in of:
                continue
            if nbytes < _LARGE:
                yield Verdict(name, f"{of[_OURS]['gbps']:.3g} GB/s", "stated", None)
                continue
            for other, least, what in (("pageable", times, "times the driver"), ("pinned", share, "of pinned")):
                if f"driver, {other}" in of:
                    yield _at_least(name, of[_OURS]["gbps"] / of[f"driver, {other}"]["gbps"], least, what)
            if section == "to gpu":
                yield _at_most(name, of[_OURS]["core_s_per_gb"], 0.2, "core-seconds a GB")


def _fresh(rows: list[Row]) -> Iterator[Verdict]:
    for nbytes in _sizes(rows, "to fresh"):
        of = _of(rows, section="to fresh", bytes=nbytes)
        if nbytes >= _LARGE and _OURS in of:
            yield _at_least(f"to fresh memory, {_size(nbytes)}", of[_OURS]["gbps"], 22, "GB/s")


def _tensors(rows: list[Row]) -> Iterator[Verdict]:
    for nbytes in _sizes(rows, "torch"):
        of, size = _of(rows, section="torch", bytes=nbytes), _size(nbytes)
        if {"linkscope.to_cpu", ".cpu()"} <= of.keys():
            back = of["linkscope.to_cpu"]["gbps"] / of[".cpu()"]["gbps"]
            yield _at_least(f"tensor to new memory, {size}", back, 12, "times .cpu()")
        if nbytes == _GIB and {"linkscope.copy", ".to('cuda')"} <= of.keys():
            there = of["linkscope.copy"]["gbps"] / of[".to('cuda')"]["gbps"]
            yield _at_least(f"tensor to the GPU, {size}", there, 5.5, "times .to('cuda')")


def _blocks(rows: list[Row]) -> Iterator[Verdict]:
    for section in dict.fromkeys(row["section"] for row in rows if " KiB" in row.get("section", "")):
        block = int(section.split(" x ")[1].split()[0]) * _KIB
        of = _of(rows, section=section)
        for end in ("gpu", "host"):
            if not {f"{way}, to {end}" for way in ("auto", "one copy", "batch", "kernel 12")} <= of.keys():
                continue
            auto, name = of[f"auto, to {end}"], f"{section}, to {end}"
            better = max(of[f"{other}, to {end}"]["gbps"] for other in ("batch", "kernel 12"))
            yield _at_least(name, auto["gbps"] / of[f"one copy, to {end}"]["gbps"], 0.9, "of one copy")
            yield _at_least(name, auto["gbps"] / better, 1, "times the better of batch call and 12 SMs")
            if block >= 16 * _KIB and "sms" in auto:
                yield _at_most(name, auto["sms"], 8, "SMs")


def _thousand(rows: list[Row]) -> Iterator[Verdict]:
    for section in ("1000 x 4 KiB", "1000 x 4 KiB from C"):
        for row in _of(rows, section=section, method="auto, to gpu").values():
            yield _at_most(section, statistics.median(row["seconds"]) * 1e6, 110, "µs")


def _loaders(rows: list[Row]) -> Iterator[Verdict]:
    kinds = dict.fromkeys((row["directory"], row["buffers"]) for row in rows if "loader" in row)
    for directory, buffers in kinds:
        where = {"directory": directory, "buffers": buffers}
        rates = {row["loader"]: row["gbps"] for row in rows if where.items() <= row.items()}
        others = {name: rate for name, rate in rates.items() if name not in (_OURS, _PINNED)}
        name = f"safetensors in {directory}, buffers {buffers}"
        if others and _OURS in rates:
            best = max(others, key=lambda one: others[one])
            yield _at_least(name, rates[_OURS] / others[best], 1.15, "times the best other loader")
        if {_OURS, _PINNED} <= rates.keys():
            yield _at_least(name, rates[_OURS] / rates[_PINNED], 0.9, "of pinned")


def _cold(rows: list[Row]) -> Iterator[Verdict]:
    of = _of(rows, section="cold file")
    disk = max((row["gbps"] for name, row in of.items() if name.startswith("disk alone")), default=None)
    if _OURS in of and disk is not None:
        yield _at_least("cold file to the GPU", of[_OURS]["gbps"] / disk, 0.95, "of the disk alone")


def _small(rows: list[Row]) -> Iterator[Verdict]:
    for row in rows:
        if row.get("section") == "small":
            most = max(0.02 * row["driver_ns"], 150.0)
            slower = row["run_ns"] - row["driver_ns"]
            yield _at_most(f"prepared copy, {row['bytes']} B", slower, most, "ns more than the driver")


def _gemm(rows: list[Row]) -> Iterator[Verdict]:
    for name, row in _of(rows, section="gemm").items():
        if "slowdown" in row:
            yield Verdict(f"product {name}", f"{row['slowdown']:.3g} × its time alone", "stated", None)


def table(rows: list[Row]) -> Iterator[str]:
    """Lines of Markdown."""
    yield from lines_of(verdicts(rows))


def lines_of(found: Iterable[Verdict]) -> Iterator[str]:
    """A line of Markdown for each verdict."""
    yield "| transfer | measured | target | met |"
    yield "|---|---|---|---|"
    for one in found:
        met = {True: "yes", False: "no", None: ""}[one.met]
        yield f"| {one.transfer} | {one.measured} | {one.target} | {met} |"


if __name__ == "__main__":
    print(*table([row for path in sys.argv[1:] for row in json.loads(Path(path).read_text())["rows"]]), sep="\n")
