"""Benchmarks of Comm|Scope (c3sr/comm_scope 0.12) and the points of suite `comm-scope` that do the same.

`agreement` prints a row for each benchmark of the tool's output: the medians of both, the difference of linkscope from
the tool, and what is allowed: the larger of 5 % and three standard errors of both. The standard error is the standard
deviation of the repetitions by the root of their number. On x86 the tool flushes the variable that holds the address
instead of the buffer, so no buffer is flushed. Its flushed and other copies have one point: they differ by a pause
between the write and the copy (docs/notes/comm-scope.md).
"""

import gzip
import json
import math
import re
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from linkscope.runfile import Point, Run
from linkscope.units import format_bytes, format_seconds

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_LEAST = 0.05
_HOST = "after=wait&bidirectional={both}&cache={cache}&mode=single"
_PEERS = "after=wait&bidirectional={both}&call=memcpy&{cpu}initiator=src&mode=single&peer={peer}"
_SHAPE = "blocks=256&threads=256&width=4"


def _host(memory: str) -> str:
    return f"h2d/ce/numa:{{0}}.{memory}->gpu:{{1}}.device/{{size}}?" + _HOST.format(both="false", cache="written")


def _back(memory: str) -> str:
    return f"d2h/ce/gpu:{{1}}.device->numa:{{0}}.{memory}/{{size}}?after=wait&cache=written&mode=single"


def _both(memory: str) -> str:
    return f"h2d/ce/numa:{{0}}.{memory}->gpu:{{1}}.device/{{size}}?" + _HOST.format(both="true", cache="hot")


def _gpus(both: str, peer: str, cpu: str = "") -> str:
    first = 1 if cpu else 0  # the name of a copy without peer access begins with the NUMA node
    ends = f"d2d/ce/gpu:{{{first}}}.device->gpu:{{{first + 1}}}.device/{{size}}?"
    return ends + _PEERS.format(both=both, peer=peer, cpu=cpu)


# The point of a benchmark; {0}, {1}, {2} are the numbers behind its name, in order: NUMA node, GPU, threads.
POINTS: Mapping[str, str] = {
    "cudaMemcpyAsync_HostToGPU": _host("pageable"),
    "cudaMemcpyAsync_PinnedToGPU": _host("registered"),
    "cudaMemcpyAsync_GPUToHost": _back("pageable"),
    "cudaMemcpyAsync_GPUToPinned": _back("registered"),
    "cudaMemcpyAsync_Duplex_Host": _both("pageable"),
    "cudaMemcpyAsync_Duplex_Pinned": _both("registered"),
    "cudaMemcpyAsync_HostToPinned": (
        "h2h/cpu/numa:{0}.pageable->numa:{1}.pinned/{size}?cache=hot&initiator=src&mode=single"
    ),
    "cudaMemcpyAsync_GPUToGPU": _gpus("false", "off", "cpu=numa:{0}&"),
    "cudaMemcpyAsync_GPUToGPUPeer": _gpus("false", "on"),
    "cudaMemcpyAsync_Duplex_GPUGPUPeer": _gpus("true", "on"),
    "ZeroCopy_HostToGPU": f"read/sm/numa:{{0}}.registered->gpu:{{1}}.device/{{size}}?{_SHAPE}",
    "ZeroCopy_GPUToHost": f"write/sm/gpu:{{1}}.device->numa:{{0}}.registered/{{size}}?{_SHAPE}",
    "ZeroCopy_GPUToGPU_Read": f"read/sm/gpu:{{0}}.device->gpu:{{1}}.device/{{size}}?{_SHAPE}",
    "ZeroCopy_GPUToGPU_Write": f"write/sm/gpu:{{0}}.device->gpu:{{1}}.device/{{size}}?{_SHAPE}",
    "UM_Demand_HostToGPU": "demand/fault/numa:{0}.managed->gpu:{1}.managed/{size}?access=write",
    "UM_Demand_GPUToHost": (
        "demand/fault/gpu:{1}.managed->numa:{0}.managed/{size}?access=write&bidirectional=false&threads=1"
    ),
    "UM_Demand_GPUToHostMt": (
        "demand/fault/gpu:{1}.managed->numa:{0}.managed/{size}?access=write&bidirectional=false&threads={2}"
    ),
    "UM_Demand_GPUToGPU": (
        "demand/fault/gpu:{0}.managed->gpu:{1}.managed/{size}?access=write&bidirectional=false&peer=on"
    ),
    "Demand_Duplex_HostGPU": (
        "demand/fault/gpu:{1}.managed->numa:{0}.managed/{size}?access=write&bidirectional=true&threads=1"
    ),
    "UM_Prefetch_HostToGPU": "prefetch/prefetch/numa:{0}.managed->gpu:{1}.managed/{size}?bidirectional=false",
    "UM_Prefetch_GPUToHost": "prefetch/prefetch/gpu:{1}.managed->numa:{0}.managed/{size}",
    "UM_Prefetch_GPUToGPU": (
        "prefetch/prefetch/gpu:{0}.managed->gpu:{1}.managed/{size}?bidirectional=false&peer=on"
    ),
    "Prefetch_Duplex_HostGPU": "prefetch/prefetch/numa:{0}.managed->gpu:{1}.managed/{size}?bidirectional=true",
}  # fmt: skip
_WITHIN_GPU = re.compile(r"/(gpu:\d+)\.\w+->\1\.")
_NAME = re.compile(r"Comm_(\w+?)(?:_flush)?/((?:\d+/)*)log2\(N\):(\d+)(?:/\w+)?")


@dataclass(frozen=True)
class Measured:
    """A benchmark of the tool: the seconds of its repetitions. `id`: the point that does the same; '' if none does."""

    name: str
    id: str
    seconds: list[float]
    why_not: str = ""


def point_of(name: str) -> str:
    """The id of the point for a benchmark's name; '' if none does the same, as for copies from a GPU to itself."""
    found = _NAME.match(name)
    form = POINTS.get(found[1]) if found else None
    if found is None or form is None:
        return ""
    try:
        id = form.format(*found[2].rstrip("/").split("/"), size=1 << int(found[3]))
    except IndexError:  # a form of the name with fewer numbers
        return ""
    return "" if _WITHIN_GPU.search(id) else id


def measurements(*outputs: Path) -> list[Measured]:
    """The benchmarks of outputs in Google Benchmark's JSON, in their order. Exits for other files.

    An interrupted program leaves a file that ends anywhere. All entries before that place count, except those of a
    benchmark with fewer repetitions than asked, which has no seconds.
    """
    found: dict[str, Measured] = {}
    asked: dict[str, int] = {}
    for row in (row for output in outputs for row in _entries(output)):
        if row.get("run_type", "iteration") != "iteration":  # means and deviations follow the repetitions
            continue
        name = row.get("run_name") or row["name"]
        one = found.setdefault(name, Measured(name, point_of(name), [], row.get("error_message", "")))
        asked[name] = row.get("repetitions", 1)
        if not row.get("error_occurred"):
            one.seconds.append(row["real_time"] * _UNITS[row.get("time_unit", "ns")])
    return [_whole(one, asked[name]) for name, one in found.items()]


def _entries(output: Path) -> Iterator[dict[str, Any]]:
    """The complete entries of list `benchmarks`: `JSONDecoder.raw_decode` reads one by one, until one is cut off."""
    data = output.read_bytes()
    text = (gzip.decompress(data) if output.suffix == ".gz" else data).decode(errors="replace")
    begin = re.search(r'"benchmarks"\s*:\s*\[', text)
    if not begin:
        sys.exit(f"{output} is not Google Benchmark's JSON: give Comm|Scope --benchmark_out_format=json")
    decoder, at = json.JSONDecoder(), begin.end()
    while entry := re.compile(r"[\s,]*(?={)").match(text, at):
        try:
            row, at = decoder.raw_decode(text, entry.end())
        except json.JSONDecodeError:
            return
        yield row


def _whole(one: Measured, asked: int) -> Measured:
    """A benchmark as it is; without its seconds if repetitions are missing that were asked for."""
    if one.why_not or len(one.seconds) >= asked:
        return one
    return replace(one, seconds=[], why_not=f"interrupted after {len(one.seconds)} of {asked} repetitions")


def agreement(run: Run, tool: list[Measured]) -> Iterator[str]:
    """The table of agreement, line by line, and the number of benchmarks that agree."""
    points = {point.id: point for point in run.points}
    yield "| benchmark of Comm\\|Scope | size | its median | here | difference | allowed | |"
    yield "|---|---|---|---|---|---|---|"
    agree = compared = 0
    for one in tool:
        name, _, size = one.name.partition("/log2(N):")
        size = format_bytes(1 << int(re.match(r"\d+", size)[0])) if re.match(r"\d+", size) else ""  # type: ignore[index]
        point = points.get(one.id)
        ours = _seconds(point)
        if not one.seconds or ours is None:
            yield f"| {name} | {size} | {_tool_text(one)} | {_why_not(one, point)} | | | |"
            continue
        its = statistics.median(one.seconds)
        off, allowed = ours[0] / its - 1, max(_LEAST, 3 * math.hypot(_error(one.seconds), ours[1] / ours[0]))
        compared, agree = compared + 1, agree + (abs(off) <= allowed)
        verdict = "" if abs(off) <= allowed else "beyond"
        yield (
            f"| {name} | {size} | {_tool_text(one)} | {format_seconds(ours[0])} | {off:+.1%} | {allowed:.1%} "
            f"| {verdict} |"
        )
    yield f"\n{agree} of {compared} compared benchmarks agree; {len(tool) - compared} could not be compared."


def _seconds(point: Point | None) -> tuple[float, float] | None:
    """Median and standard error of a point by Comm|Scope's rule; of bidirectional ones, first start to last end."""
    if point is None or point.median_s is None:
        return None
    flow = point.flows[0]
    repetitions = sum(map(len, flow.samples_s))
    return point.guards.get("together_s") or point.median_s, (flow.stddev_s or 0.0) / math.sqrt(repetitions)


def _error(seconds: list[float]) -> float:
    """The standard error of the mean, as a fraction of it."""
    if len(seconds) < 2:
        return 0.0
    return statistics.stdev(seconds) / statistics.mean(seconds) / math.sqrt(len(seconds))


def _tool_text(one: Measured) -> str:
    return format_seconds(statistics.median(one.seconds)) if one.seconds else one.why_not or "not measured"


def _why_not(one: Measured, point: Point | None) -> str:
    if not one.id:
        return "no point does the same"
    if point is None:
        return "not in this run"
    return "" if point.median_s is not None else f"{point.status}: {point.reason}"
