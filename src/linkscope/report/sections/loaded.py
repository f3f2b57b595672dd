"""Section: loaded latency."""

from collections.abc import Sequence

from linkscope.report.family_words import work_text
from linkscope.report.loaded import Level, Loaded, loaded
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Block,
    Column,
    Figure,
    Group,
    Items,
    Legend,
    Legends,
    Output,
    Paragraph,
    Row,
    Section,
    Table,
)
from linkscope.report.svg import Series, load_chart, swatch
from linkscope.units import format_change, format_rate, format_seconds, format_seconds_interval

_TITLE = "Latency under load"
_STATED = ((5, "At half load"), (10, "At full load"))
_NOTE = (
    "The time of small operations, one after the other, while other work runs for 0 to 10 tenths of the time. The "
    "median and the p99 are those of the mean time in 2 ms; brackets are 95 % intervals over the rounds. Model: the "
    "mean time that a model predicts, MODELLED. "
)
_SUMMARY = (
    Column("Operation", strong=True), Column("Beside", label="Beside"), Column("Alone", right=True, label="Alone"),
    Column("p99", right=True, label="p99"), Column("At half load", right=True, label="At half load"),
    Column("At full load", right=True, label="At full load"), Column("p99", right=True, label="p99"),
)  # fmt: skip
_LEVELS = (
    Column("Operation", strong=True), Column("Load", right=True, label="Load"),
    Column("Background", right=True, label="Background"), Column("Median", right=True, label="Median"),
    Column("p99", right=True, label="p99"), Column("Model", right=True, label="Model"),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """A chart for each kind of background, and the levels as a table. None for a run without them."""
    found = loaded(view.run)
    if not found:
        return None
    blocks: list[Block] = [Paragraph((_NOTE, METHOD), note=True, on=Output.PAGE)]
    blocks.append(Paragraph(_NOTE.strip(), on=Output.TERMINAL | Output.MARKDOWN))
    answers = tuple(answer for load, when in _STATED if (answer := _answer(found, load, when)))
    blocks.append(Items.of(answers, on=Output.PAGE))
    rows = tuple(Row(_short(one)) for one in found)
    blocks.append(Table(_TITLE, _SUMMARY, (Group(rows),), stacks=True, on=Output.TERMINAL))
    for beside in dict.fromkeys(one.beside for one in found):
        blocks.append(_figure(beside, [one for one in found if one.beside == beside], modelled=view.run.modelled))
    return Section("loaded", _TITLE, tuple(blocks), label="Loaded", answers=answers)


def _answer(found: Sequence[Loaded], load: int, when: str) -> str:
    """How much longer the operations take at a load, and which of them takes longest; '' if none has both times."""
    ratios = [(at.half.value / alone.half.value, at, alone, one) for one in found
              if (at := one.at(load)) and (alone := one.at(0))]  # fmt: skip
    if not ratios:
        return ""
    worst, at, alone, one = max(ratios, key=lambda of: of[0])
    least, low, before, _ = min(ratios, key=lambda of: of[0])
    return (
        f"{when}, small operations take {low.sign or before.sign}×{least:.3g} to {at.sign or alone.sign}×{worst:.3g} "
        f"their time alone. The largest ratio is that of "
        f"{work_text(one.kind)} beside {work_text(one.beside)}, {_half(alone)} → {_half(at)}."
    )


def _figure(beside: str, curves: Sequence[Loaded], *, modelled: bool) -> Figure:
    """The chart of all operations against one background; Markdown shows its table only."""
    series = []
    for colour, one in enumerate(curves):
        series.append(Series(colour, False, [(level.load, level.half) for level in one.levels]))
        series.append(Series(colour, True, [(level.load, level.tail) for level in one.levels]))
    title = f"latency beside {beside}"
    legend = [Legend(swatch(colour), one.kind) for colour, one in enumerate(curves)]
    rows = [Row(_long(one, level)) for one in curves for level in one.levels]
    table = Table(title, _LEVELS, (Group(tuple(rows)),), stacks=True)
    return Figure(
        f"loaded-{beside}", load_chart(title, series, modelled), f"Beside {beside}.",
        legend=Legends(tuple(legend), "solid: median, dashed: p99"), table=table, on=Output.PAGE | Output.MARKDOWN,
    )  # fmt: skip


def _short(one: Loaded) -> tuple[str, ...]:
    alone, half, full = (one.at(load) for load in (0, 5, 10))
    return (one.kind, one.beside, _half(alone), _tail(alone), _half(half), _half(full), _tail(full))


def _half(level: Level | None) -> str:
    return f"{level.sign}{format_seconds(level.half.value)}" if level else "-"


def _tail(level: Level | None) -> str:
    return f"{level.sign}{format_seconds(level.tail.value)}" if level else "-"


def _long(one: Loaded, level: Level) -> tuple[str, ...]:
    off = level.predicted_s / level.half.value - 1 if level.predicted_s else None
    return (
        one.kind, f"{level.load}/10", format_rate(level.background_gbps) if level.background_gbps else "-",
        format_seconds_interval(level.half.value, level.half.low, level.half.high),
        format_seconds_interval(level.tail.value, level.tail.low, level.tail.high),
        "-" if off is None or level.predicted_s is None
        else f"{format_seconds(level.predicted_s)} ({format_change(off)})",
    )  # fmt: skip
