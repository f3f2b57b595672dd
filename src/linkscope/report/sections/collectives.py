"""Section: collectives of NCCL and of MPI."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from linkscope.model.text import count_text
from linkscope.report.collectives import Copies, from_copies, is_collective, rates_of, stragglers
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Block,
    Column,
    Group,
    Items,
    Output,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    Text,
    more,
)
from linkscope.report.trust import has_warning, signed
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_fraction, format_rate, format_seconds, format_seconds_interval

_NOTE = (
    "Algorithm bandwidth is the bytes of the collective over the time until its slowest rank has ended. Bus bandwidth "
    "is the bytes that each rank must send over the same time, so that it compares with the rate of a link: algorithm "
    "bandwidth times 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter and all-to-all, and 1 for the "
    "others. 'From copies' is the time of the same steps as copies between these GPUs in this run: blocks around a "
    "ring, or all bytes directly, whichever is faster. One rank has no bandwidth: its data stay within the GPU. "
    "Brackets are 95 % intervals of the slowest rank. "
)
_ONE_RANK = "there is no other rank, so no data crosses a link, and there is no bandwidth."
_COLUMNS = (
    Column("Size", strong=True), Column("Batched [interval]", right=True, label="Batched"),
    Column("Single call [interval]", right=True, label="Single call", drop=2),
    Column("Algorithm", right=True, label="Algorithm"), Column("Bus", right=True, strong=True, label="Bus"),
    Column("From copies", right=True, label="From copies", drop=1),
)  # fmt: skip

_Key = tuple[str, str, str, str]  # collective and library, memory, ranks, parameters


def section(view: RunView) -> Section | None:
    """A table for each collective, and the ranks that are slower than the others. None for a run without any."""
    points = [point for point in view.run.points if is_collective(point)]
    if not points:
        return None
    copies, gpus = Copies(view.run.points), _gpus_of_ranks(view.run.header.machine)
    answers = tuple(_findings(points))
    blocks: list[Block] = [
        Items.of(answers, on=Output.PAGE),
        Paragraph(_NOTE.strip(), on=Output.TERMINAL | Output.MARKDOWN),
    ]
    if (about := view.run.header.tool.get("nccl")) and not about.get("why_not"):
        blocks.append(Paragraph(f"NCCL {about['version']}, {about['path']}: {about['found']}; {about['nvls']}."))
    groups: dict[_Key, dict[int, dict[str, Point]]] = {}
    for point in points:
        sizes = groups.setdefault(_key(point), {})
        sizes.setdefault(point.bytes, {})[_mode(point)] = point
    tables = tuple(
        Group(tuple(_row(size, modes, gpus, copies) for size, modes in sorted(sizes.items())), head=", ".join(key))
        for key, sizes in sorted(groups.items())
    )
    table = Table("Collectives", _COLUMNS, tables, stacks=True)
    blocks.append(more(f"All {len(points)} points as a table", Paragraph((_NOTE, METHOD), note=True), table))
    blocks.append(replace(table, on=Output.TERMINAL | Output.MARKDOWN))
    blocks.append(Items.of([line for point in points for line in _slow_ranks(point)]))
    kept = (block for block in blocks if not isinstance(block, Items) or block.items)
    return Section("collectives", "Collectives", tuple(kept), label="Ranks", answers=answers)


def _findings(points: Sequence[Point]) -> list[Text]:
    """For each library, of the most ranks: bus bandwidths at the largest size of each collective, and times of one call
    at the smallest. Points with warnings do not count.
    """
    libraries: dict[str, list[Point]] = {}
    for point in points:
        if not has_warning(point):
            libraries.setdefault(_library(point), []).append(point)
    texts: list[Text] = []
    for library, of in libraries.items():
        ranks = max(len(point.flows) for point in of)
        who = f"by {library}, {count_text(ranks, 'rank')}"
        most = [point for point in of if len(point.flows) == ranks]
        batched = [point for point in most if _mode(point) == "batched"]
        single = [point for point in most if _mode(point) == "single"]
        if ranks == 1:
            texts.append((Span(f"Collectives {who}: ", "strong"), _ONE_RANK))
        for size, found in _ends(batched, largest=True) if ranks > 1 else ():
            rates = (f"{one.benchmark} {signed(format_rate(rates_of(one).bus), [one])}" for one in found)
            texts.append((Span(f"Bus bandwidth {who}, at {format_bytes(size)}: ", "strong"), f"{', '.join(rates)}."))
        for size, found in _ends(single, largest=False):
            times = (f"{one.benchmark} {signed(format_seconds(rates_of(one).seconds), [one])}" for one in found)
            texts.append((Span(f"Single calls {who}, at {format_bytes(size)}: ", "strong"), f"{', '.join(times)}."))
    return texts


def _ends(points: Sequence[Point], *, largest: bool) -> list[tuple[int, list[Point]]]:
    """The points of each collective at its largest or smallest size, with the fewest parameters; by size."""
    usual: dict[str, Point] = {}
    for point in sorted(points, key=lambda one: (one.benchmark, -one.bytes if largest else one.bytes, len(one.params))):
        usual.setdefault(point.benchmark, point)
    sizes: dict[int, list[Point]] = {}
    for point in usual.values():
        sizes.setdefault(point.bytes, []).append(point)
    return sorted(sizes.items(), reverse=largest)


def _library(point: Point) -> str:
    return "NCCL" if point.engine == "nccl" else "MPI"


def _mode(point: Point) -> str:
    return point.params.get("mode", "batched")


def _key(point: Point) -> _Key:
    place = " in place" if point.params.get("place") == "in" else ""
    element = f" of {point.params['element']}" if "element" in point.params else ""
    ranks = len(point.flows)
    return (
        f"{point.benchmark} by {_library(point)}{place}{element}", f"{point.src_memory} memory",
        f"{ranks} rank{'s' if ranks > 1 else ''} from {point.src}",
        "one process" if "gpu" in point.src else "a process each",
    )  # fmt: skip


def _row(size: int, modes: Mapping[str, Point], gpus: Mapping[str, str], copies: Copies) -> Row:
    batched, single = modes.get("batched"), modes.get("single")
    cells = [format_bytes(size), _time(batched), _time(single), "-", "-", "-"]
    if batched:
        rates = rates_of(batched)
        if rates.bus is not None:
            cells[3], cells[4] = format_rate(rates.algorithm), format_rate(rates.bus)
        known = from_copies(batched, [gpus.get(flow.src, flow.src) for flow in batched.flows], copies)
        if known and batched.engine == "nccl":
            seconds, way = known
            cells[5] = f"{format_seconds(seconds)} ({way}), {format_fraction(seconds / rates.seconds)}"
    return Row(tuple(cells))


def _time(point: Point | None) -> str:
    if point is None:
        return "-"
    rates = rates_of(point)
    text = format_seconds_interval(rates.seconds, *(rates.ci95_s or (None, None)))
    return f"{text} ~" if point.status == "missed_precision" else text


def _slow_ranks(point: Point) -> list[str]:
    what = ", ".join([*_key(point), format_bytes(point.bytes), _mode(point)])
    return [
        f"{what}: rank {of.rank} ({of.flow.src}) takes {format_seconds(of.flow.median_s or 0.0)}, "
        f"{format_fraction(of.excess)} more than the median of all ranks, {format_seconds(of.median_s)}"
        for of in stragglers(point)
    ]


def _gpus_of_ranks(machine: Mapping[str, object]) -> dict[str, str]:
    about = machine.get("mpi")
    ranks: Sequence[Mapping[str, object]] = about.get("ranks", ()) if isinstance(about, dict) else ()
    return {f"rank:{one['rank']}": str(one["gpu"]) for one in ranks if one.get("gpu")}
