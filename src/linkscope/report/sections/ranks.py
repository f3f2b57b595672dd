"""Section: messages between ranks, by MPI, UCX and NIXL."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from linkscope.model.computing import memory_peak_of_gpu
from linkscope.model.curves import Estimate
from linkscope.model.text import count_text
from linkscope.report.family_words import memory_text
from linkscope.report.put_get import time_ratio
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Block,
    Column,
    Figure,
    Figures,
    Group,
    Items,
    Legend,
    Legends,
    Output,
    Paragraph,
    Row,
    Section,
    Table,
    more,
    table,
)
from linkscope.report.svg import SERIES_COLOURS, Series, rate_chart, swatch, time_chart
from linkscope.report.trust import has_warning, sign_of, signed
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_rate, format_seconds, format_seconds_interval

_TITLE = "Ranks"
_TASKS = "rank_tasks"  # their bytes are those of transfers
_NOTE = (
    "Latency is half of a round trip. A rate is that of many messages under way (window), or of one message after the "
    "other if a GPU's end is staged through pinned memory: whole, or double-buffered in chunks, of which the fastest "
    "chunk counts. The rate of one message alone is its bytes in half of a round trip. A message of NIXL is a write "
    "with a notification to the receiver. Brackets are 95 % intervals over rounds. All rounds are in the same "
    "processes, so the intervals leave out how launches differ. "
)
_SMALL_BYTES = 4096  # the largest message whose time is called a latency
_SHORT = "Latency is half of a round trip. A rate is that of many messages under way, or of staged ones."
_RANKS = (
    Column("Rank", right=True, label="Rank"), Column("Host", label="Host"),
    Column("Process", right=True, label="Process"), Column("CPUs", right=True, label="CPUs"),
    Column("NUMA node", label="NUMA node"), Column("GPU", label="GPU"),
)  # fmt: skip
_OF_SIZES = (Column("Size", strong=True), Column("Median [interval]", right=True, label="Median"))
_OF_GPUS = (
    Column("Path and size", strong=True), Column("Staged", right=True, label="Staged"),
    Column("Double-buffered", right=True, label="Double-buffered"), Column("Chunk", right=True, label="Chunk"),
    Column("Speed-up [interval]", right=True, label="Speed-up"), Column("GPU-aware", right=True, label="GPU-aware"),
)  # fmt: skip
_ONE_CPU = "has one CPU, which its threads share: staged rates are lower than with several (mpiexec's --bind-to none)"


def section(view: RunView) -> Section | None:
    """The ranks, latencies and rates by size, and the ways of GPU buffers. None for a run without ranks.

    Message tasks have a section of their own. Of a run with them alone, this one has the ranks only.
    """
    measured = [point for point in view.run.points if point.benchmark.startswith("rank_") and point.median_s]
    points = [point for point in measured if point.benchmark != _TASKS]
    about = view.run.header.machine.get("mpi", {})
    ranks = about.get("ranks", [])
    if not measured:
        return None
    if not points:
        return Section("ranks", _TITLE, tuple(_launch(about, ranks)))
    blocks: list[Block] = [
        Paragraph(_SHORT, on=Output.PAGE),
        more("What latency, rate and intervals mean here", Paragraph((_NOTE, METHOD), note=True)),
        Paragraph(_NOTE.strip(), on=Output.TERMINAL | Output.MARKDOWN),
    ]
    blocks += _launch(about, ranks)
    shared = _shared_gpu(points, view.run.header.machine)
    if shared:
        blocks.append(Paragraph(shared, on=Output.TERMINAL | Output.MARKDOWN))
    staged = any(point.params.get("way") in ("staged", "double") for point in points)
    if staged and (narrow := [f"rank:{one['rank']} {_ONE_CPU}" for one in ranks if len(one.get("cpus", "..")) == 1]):
        blocks.append(Items.of(narrow))
    trips = _by_series(point for point in points if point.benchmark != "rank_rate")
    rates = _by_series(point for point in points if point.benchmark == "rank_rate")
    modelled = view.run.modelled
    drawn: list[Figure | Table] = []
    if trips:
        drawn.append(
            _figure("Latency", trips, _latency, _latency_text, lambda title, of: time_chart(title, of, modelled))
        )
    if rates:
        drawn.append(_figure("Rate", rates, _rate, _rate_text, lambda title, of: rate_chart(title, of, (), modelled)))
    if figures := tuple(one for one in drawn if isinstance(one, Figure)):
        blocks.insert(1, Figures(figures))
    blocks += [one for one in drawn if isinstance(one, Table)]
    if gpus := _of_gpus(points):
        made = Table("Buffers of GPUs", _OF_GPUS, gpus)
        listed = sum(len(group.rows) for group in gpus)
        blocks.append(more(f"Staged and double-buffered copies: {listed} sizes and paths", made))
        blocks.append(replace(made, on=Output.TERMINAL | Output.MARKDOWN))
    answers = (*_answers(points), *((shared,) if shared else ()))
    blocks.insert(0, Items.of(answers, on=Output.PAGE))
    return Section("ranks", _TITLE, tuple(blocks), label="Ranks", answers=answers)


def _answers(points: Sequence[Point]) -> Iterator[str]:
    """The latency of the smallest message and the best rate in one direction of each pair of memories, and what
    double-buffering gains; without warnings. Half of a round trip of a large message is no latency.
    """
    sound = [point for point in points if not has_warning(point) and point.benchmark != "rank_empty"]
    trips, rates = ([point for point in sound if (point.benchmark == "rank_rate") == rate] for rate in (False, True))
    if smallest := _first_of_each(sorted(trips, key=lambda point: (point.bytes, point.median_s or 0.0))):
        times = (("latency of the smallest message", True), ("half of a round trip of the smallest message", False))
        for what, few in times:
            found = [_trip(ends, one) for ends, one in smallest.items() if (one.bytes <= _SMALL_BYTES) == few]
            if found:
                yield f"{what}: {'; '.join(found)}."
    unidirectional = (point for point in rates if not point.bidirectional)
    if best := _first_of_each(sorted(unidirectional, key=lambda point: -_rate(point).value)):
        listed = (
            f"{ends} {signed(format_rate(_rate(point).value), [point])} at {format_bytes(point.bytes)}{_by(point)}"
            for ends, point in best.items()
        )
        yield f"best rates: {'; '.join(listed)}."
    for what, of in (
        ("one double-buffered message of GPU buffers alone", trips),
        ("double-buffered messages of GPU buffers", rates),
    ):
        if gains := [(one.gain, one.sign) for one in _staged(of).values() if one.gain]:
            yield f"{what}: {_over_staging(_gains_text(gains))}."
    for what, of in (("one message alone", trips), ("many messages", rates)):
        if of_ends := [f"{ends} {_gains_text(gains)}" for ends, gains in _of_library(of).items()]:
            yield f"GPU buffers handed to the message library, {what}: {_over_staging('; '.join(of_ends))}."


def _of_library(points: Sequence[Point]) -> dict[str, list[tuple[float, str]]]:
    """The gains of buffers of GPUs that MPI or UCX takes itself over whole staging, with their signs, by memories."""
    found: dict[str, list[tuple[float, str]]] = {}
    for ways in _staged(points).values():
        if ways.aware and ways.whole and ways.aware.gbps and ways.whole.gbps:
            ends = f"{ways.aware.src_memory} → {ways.aware.dst_memory}{_by(ways.aware)}"
            gain = (ways.aware.gbps / ways.whole.gbps, sign_of([ways.aware, ways.whole]))
            found.setdefault(ends, []).append(gain)
    return found


def _trip(ends: str, point: Point) -> str:
    return f"{ends} {signed(format_seconds(_latency(point).value), [point])} ({format_bytes(point.bytes)}{_by(point)})"


def _shared_gpu(points: Sequence[Point], machine: Mapping[str, Any]) -> str:
    """Says that ranks share a GPU, so their messages cross no link; '' where no ranks do."""
    gpu_of = {
        f"rank:{one['rank']}": (one.get("host"), one["gpu"])
        for one in machine.get("mpi", {}).get("ranks", ())
        if one.get("gpu")
    }
    within = [
        point
        for point in points
        if point.src_memory == point.dst_memory == "device"
        and gpu_of.get(point.src, (point.src,)) == gpu_of.get(point.dst, (point.dst,))
    ]
    if not within:
        return ""
    ranks = sorted({end for point in within for end in (point.src, point.dst)})
    who = " and ".join(ranks) if len(ranks) == 2 else count_text(len(ranks), "rank")
    text = f"{who} share a GPU: their messages between GPU buffers cross no link between GPUs."
    peak, _ = memory_peak_of_gpu(machine, gpu_of[ranks[0]][1])
    rates = [_rate(point).value for point in within if point.benchmark == "rank_rate"]
    if peak and max(rates, default=0.0) > peak / 2e9:  # a copy reads and writes
        text += f" Rates above {format_rate(peak / 2e9)} are of its L2 cache: copies in its memory reach no more."
    return text


def _gains_text(gains: Sequence[tuple[float, str]]) -> str:
    """The lowest and the highest gain, each with its sign; one number if both look the same."""
    low, high = (f"{sign}×{gain:.3g}" for gain, sign in (min(gains), max(gains)))
    return low if low == high else f"{low} to {high}"


def _over_staging(gains: str) -> str:
    return f"{gains} the rate of whole staging{', by size' if ' to ' in gains else ''}"


def _first_of_each(points: Iterable[Point]) -> dict[str, Point]:
    """The first point of each pair of memories."""
    found: dict[str, Point] = {}
    for point in points:
        found.setdefault(_ends(point), point)
    return found


def _ends(point: Point) -> str:
    return f"{memory_text(point.src_memory)} → {memory_text(point.dst_memory)}"


def _by(point: Point) -> str:
    """What carried a message, unless it was MPI."""
    return "" if point.engine == "mpi" else f", by {point.engine.upper()}"


def _launch(about: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The MPI library and the places of the ranks, which the page folds."""
    found: list[Block] = []
    if "library" in about:
        found.append(Paragraph(f"{about['library']}, {about['path']}: {about['found']}."))
    elif "why_no_mpi" in about:
        found.append(Paragraph(f"Without MPI: {about['why_no_mpi']}."))
    if nixl := about.get("nixl"):
        there = f"{nixl['path']}: {nixl['found']}" if "path" in nixl else nixl.get("why_not")
        found.append(Paragraph(f"NIXL: {there}."))
    found.append(table("Ranks", _RANKS, [_rank(one) for one in ranks]))
    brief = Output.TERMINAL | Output.MARKDOWN
    return [
        more(f"The MPI library and {count_text(len(ranks), 'rank')}", *found),
        *(replace(one, on=brief) for one in found),
    ]


def _rank(one: Mapping[str, Any]) -> tuple[str, ...]:
    gpu = " ".join(str(one[key]) for key in ("gpu", "gpu_uuid") if one.get(key)) or "-"
    cpus = str(len(one["cpus"])) if "cpus" in one else "-"
    return (str(one["rank"]), str(one.get("host", "-")), str(one.get("process", "-")), cpus, str(one["numa"]), gpu)


def _by_series(points: Iterable[Point]) -> dict[str, list[Point]]:
    """The points of each path, memory and set of parameters, by size."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(_name(point), []).append(point)
    return {name: sorted(of, key=lambda one: one.bytes) for name, of in found.items()}


def _name(point: Point) -> str:
    params = {key: value for key, value in point.params.items() if (key, value) != ("bidirectional", "false")}
    if params.get("way", "aware") != "aware":
        params.pop("window", None)
    words = ["bidirectional" if key == "bidirectional" else f"{key} {value}" for key, value in sorted(params.items())]
    ends = f"{point.src}.{point.src_memory} -> {point.dst}.{point.dst_memory}"
    return ", ".join([ends + (", empty" if point.benchmark == "rank_empty" else "") + _by(point), *words])


def _figure(
    what: str, found: Mapping[str, Sequence[Point]], value: Callable[[Point], Estimate],
    text: Callable[[Point], str], chart: Callable[[str, Sequence[Series]], str],
) -> Figure | Table:  # fmt: skip
    """The curves of one quantity, of which terminal and Markdown show the table; the table alone without a curve."""
    several = sorted((item for item in found.items() if len(item[1]) > 1), key=lambda item: -len(item[1]))
    long = dict(several[:SERIES_COLOURS])
    series = [
        Series(colour % 8, False, [(point.bytes, value(point)) for point in of if point.bytes])
        for colour, of in enumerate(long.values())
    ]
    legend = Legends(tuple(Legend(swatch(colour % 8), name) for colour, name in enumerate(long)))
    groups = tuple(
        Group(tuple(Row((format_bytes(point.bytes), text(point))) for point in of), head=name)
        for name, of in found.items()
    )
    shown = Table(f"{what} of messages", _OF_SIZES, groups)
    if not any(one.points for one in series):
        return shown
    title = f"{what.lower()} of messages between ranks"
    return Figure(
        f"ranks-{what.lower()}",
        chart(title, series),
        f"{what} by size"
        + (f": {len(long)} of {len(several)} curves, the others are in the table." if several[len(long) :] else "."),
        legend=legend,
        table=shown,
    )


def _latency(point: Point) -> Estimate:
    low, high = point.ci95_s or (None, None)
    assert point.median_s is not None
    return Estimate(point.median_s / 2, low and low / 2, high and high / 2)


def _latency_text(point: Point) -> str:
    half = _latency(point)
    return _marked(point, format_seconds_interval(half.value, half.low, half.high))


def _rate(point: Point) -> Estimate:
    gbps = point.total_gbps or point.gbps or 0.0
    low, high = point.ci95_s or (None, None)
    assert point.median_s is not None
    ends = (gbps * point.median_s / high, gbps * point.median_s / low) if low and high else (None, None)
    return Estimate(gbps, *ends)


def _rate_text(point: Point) -> str:
    text = format_rate(_rate(point).value)
    if point.bytes <= _SMALL_BYTES and point.median_s:
        text += f", {1e-6 / point.median_s:.3g} million messages a second ({format_seconds(point.median_s)} each)"
    return _marked(point, text)


def _marked(point: Point, text: str) -> str:
    return f"{text} ~" if point.status == "missed_precision" else text


@dataclass(frozen=True)
class _Ways:
    """Messages of one path and size between buffers of GPUs: the fastest point of each way."""

    whole: Point | None
    double: Point | None
    aware: Point | None

    @property
    def several(self) -> bool:
        """Whether whole staging has another way beside it."""
        return self.double is not None or self.aware is not None

    @property
    def gain(self) -> float | None:
        """The rate of double-buffered messages over that of whole staging."""
        rates = [point.gbps if point else None for point in (self.double, self.whole)]
        return rates[0] / rates[1] if rates[0] and rates[1] else None

    @property
    def sign(self) -> str:
        """The sign of the gain: ~ if one of its two points missed its precision."""
        return sign_of([point for point in (self.double, self.whole) if point])

    @property
    def gain_text(self) -> str:
        """The gain with its interval."""
        if self.gain is None or self.double is None or self.whole is None:
            return "-"
        rounds = [point.flows[0].round_medians_s if point.flows else [] for point in (self.double, self.whole)]
        ends = time_ratio(self.double, self.whole) if all(rounds) else None
        return f"{self.sign}{self.gain:.3g}" + (f" [{ends.low:.3g}, {ends.high:.3g}]" if ends else "")


def _staged(points: Sequence[Point]) -> dict[tuple[str, int], _Ways]:
    """The ways of each path and size with staged messages in one direction, in order."""
    found: dict[tuple[str, int], dict[str, Point]] = {}
    for point in points:
        if "way" not in point.params or point.bidirectional:
            continue
        ends = f"{point.src}.{point.src_memory} -> {point.dst}.{point.dst_memory}{_by(point)}"
        of = found.setdefault((ends, point.bytes), {})
        best = of.get(point.params["way"])
        if best is None or (point.gbps or 0) > (best.gbps or 0):
            of[point.params["way"]] = point
    return {key: _Ways(*(of.get(way) for way in ("staged", "double", "aware"))) for key, of in sorted(found.items())}


def _of_gpus(points: Sequence[Point]) -> tuple[Group, ...]:
    """The ways beside each other, a row for each path and size: of one message alone, and of many."""
    kinds = (("One message alone", "rank_ping_pong"), ("Many messages in one direction", "rank_rate"))
    found = {head: _staged([point for point in points if point.benchmark == name]) for head, name in kinds}
    return tuple(
        Group(tuple(rows), head=head)
        for head, of in found.items()
        if (rows := [_of_ways(f"{ends}, {format_bytes(size)}", one) for (ends, size), one in of.items() if one.several])
    )


def _of_ways(what: str, ways: _Ways) -> Row:
    chunk = ways.double.params.get("chunk", "1MiB") if ways.double else "-"
    return Row((what, _rate_of(ways.whole), _rate_of(ways.double), chunk, ways.gain_text, _rate_of(ways.aware)))


def _rate_of(point: Point | None) -> str:
    """The bytes of a message in the time of one: half of a round trip, in which the run file counts them once."""
    if not point or not point.gbps:
        return "-"
    return format_rate(point.gbps * (2 if point.benchmark == "rank_ping_pong" else 1))
