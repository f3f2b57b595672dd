"""Section: who slows whom."""

from collections.abc import Sequence
from dataclasses import replace

from linkscope.report.contention import MISSED, MatrixRow, Times, matrix, others
from linkscope.report.family_words import work_text
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Block,
    Column,
    Grid,
    GridCell,
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
from linkscope.report.trust import signed
from linkscope.runfile import Predicted
from linkscope.stats import geometric_mean
from linkscope.units import format_change, format_fraction, format_rate, format_seconds, format_seconds_interval

_TITLE = "Who slows whom"
_LEAST_SLOWDOWN = 1.005  # a smaller one is shown as ×1
_MOST_DISTURBING, _MOST_SLOWED = 3, 3
_NOTE = (
    "Each row is a kind of work, each column the work beside it on the same GPU and NUMA node. A number is the time of "
    "an operation beside the other work over its time alone, both by the geometric mean of the rounds; 1 is no "
    "slowdown. Page and Markdown add the 95 % interval of the ratio. "
)
_ON_PAGE = (
    "Each number is the time of an operation beside the other work over its time alone; 1 is no slowdown. A cell says "
    "slowed where the interval of the ratio and the drift leave no doubt, and is darker the larger the slowdown. "
)
_CORNER = "Rows: measured work. Columns: the work beside it, on the same GPU and NUMA node."
_GRADES = (1.0, 1.1, 1.25, 1.5, 2.0, 4.0)  # slowdowns from which a cell is darker
_PENALTIES = (
    "Alone, and beside the work that slows it most. A time is the geometric mean of the rounds, whose times are "
    "medians of the mean time of an operation in a few ms; p99 is that of these means. The penalty over the good value "
    "is (beside - alone) / alone, over the bad value (beside - alone) / beside. Drift is the change of the time alone "
    "from before the work at once to after it."
)
_MISSED = (
    Column("Work", strong=True), Column("Beside", label="Beside"), Column("Slowdown", right=True, label="Slowdown"),
    Column("By the model", right=True, label="By the model"), Column("Deviation", right=True, label="Deviation"),
)  # fmt: skip
_TIMES = (
    "Of an operation: the median with its 95 % interval; p99 with the lowest and the highest p99 of a round, of fewer "
    "than 100 samples its slowest. A sample is the mean of a few ms, or one operation where each has its own stamp."
)
_TIME_COLUMNS = (
    Column("Work", strong=True), Column("Beside", label="Beside"), Column("Median", right=True, label="Median"),
    Column("p99", right=True, label="p99"),
)  # fmt: skip
_COLUMNS = (
    Column("Work", strong=True), Column("Alone", right=True, label="Alone"), Column("Beside", label="Beside"),
    Column("Takes", right=True, label="Takes"), Column("Over good", right=True, label="Over good"),
    Column("Over bad", right=True, label="Over bad"), Column("Drift", right=True, label="Drift"),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """The matrix of slowdowns, and the times of each row. None for a run without contention."""
    rows = matrix(view.run)
    if not rows:
        return None
    brief = Output.TERMINAL | Output.MARKDOWN
    penalties = Table(
        "Penalties", _COLUMNS, (Group(tuple(Row(_penalty(row, _several(rows))) for row in rows)),), stacks=True
    )
    times = Table("Median and p99", _TIME_COLUMNS, (Group(tuple(_times(rows))),), stacks=True)
    answers = _answers(rows)
    blocks: tuple[Block, ...] = (
        Items.of(answers, on=Output.PAGE),
        Paragraph((_ON_PAGE, METHOD), on=Output.PAGE),
        _grid(rows),
        more("All slowdowns with their intervals", _table(rows, short=False, on=Output.ALL)),
        more(f"Times and penalties of {len(rows)} kinds of work", Paragraph(_PENALTIES), penalties),
        more("Median and p99 of each pair", Paragraph(_TIMES), times),
        Paragraph(_NOTE.strip(), on=brief),
        _table(rows, short=True, on=Output.TERMINAL),
        _table(rows, short=False, on=Output.MARKDOWN),
        Paragraph(_PENALTIES, on=brief),
        replace(penalties, on=brief),
        Paragraph(_TIMES, on=Output.MARKDOWN),
        replace(times, on=Output.MARKDOWN),
    )
    blocks += _model_blocks(rows, view.run.predicted)
    return Section("contention", _TITLE, blocks, label="Slowdown", answers=answers)


def _answers(rows: Sequence[MatrixRow]) -> tuple[Text, ...]:
    """The kinds of work that slow others most, each with those that it slows most; then those that nothing
    clearly slows, of those that ran beside each kind."""
    slowed: dict[str, dict[str, MatrixRow]] = {}  # by disturbing kind the slowest row of each other kind
    for row in rows:
        for name, found in row.beside.items():
            if name != row.kind and row.slowed_by(name) and found.ratio >= _LEAST_SLOWDOWN:
                by_kind = slowed.setdefault(name, {})
                if row.kind not in by_kind or found.ratio > by_kind[row.kind].beside[name].ratio:
                    by_kind[row.kind] = row
    count = len({row.kind for row in rows})

    def harm(name: str) -> float:
        return geometric_mean([row.beside[name].ratio for row in slowed[name].values()])

    texts: list[Text] = []
    for name in sorted(slowed, key=harm, reverse=True)[:_MOST_DISTURBING]:
        worst = sorted(slowed[name].values(), key=lambda row: -row.beside[name].ratio)
        named = ", ".join(_slowed_text(row, name) for row in worst[:_MOST_SLOWED])
        more = f" and {len(worst) - _MOST_SLOWED} more" if len(worst) > _MOST_SLOWED else ""
        texts.append((Span(f"{_capital(work_text(name))} slow others", "strong"), f": {named}{more}."))
    partly = {row.kind for row in rows if len(row.beside) < len(others(rows))}  # some pairs have no value
    known = dict.fromkeys(row.kind for row in rows if row.kind not in partly)
    calm = [kind for kind in known if not any(kind in of for of in slowed.values())]
    if slowed and calm:
        named = ", ".join(map(work_text, calm))
        texts.append(f"Not clearly slowed by other work: {named} ({len(calm)} of {count} kinds).")
    return tuple(texts) if slowed else ("No kind of work clearly slows another one.",)


def _slowed_text(row: MatrixRow, name: str) -> str:
    """'GPU-CPU round trips ×45.8 (2.724 us → 124.8 us)'."""
    found = row.beside[name]
    times = f"{format_seconds(row.alone_s)} → {format_seconds(found.seconds)}"
    return f"{work_text(row.kind)} {found.sign}×{found.ratio:.3g} ({times})"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _grid(rows: Sequence[MatrixRow]) -> Grid:
    """The matrix as coloured cells."""
    names, several = others(rows), _several(rows)
    cells = tuple(tuple(_grid_cell(row, name) for name in names) for row in rows)
    return Grid(
        _CORNER,
        tuple(f"{_name(row, several)}, {work_text(row.kind)}" for row in rows),
        tuple(names),
        cells,
        corner="work \\ beside",
        on=Output.PAGE,
    )


def _grid_cell(row: MatrixRow, other: str) -> GridCell | None:
    found = row.beside.get(other)
    if found is None:
        return None
    slowed = row.slowed_by(other)
    grade = sum(found.ratio >= limit for limit in _GRADES) if slowed else 0
    return GridCell(f"{found.sign}{found.ratio:.3g}", "slowed" if slowed else "", f"h{grade} t{grade}", "")


def _model_blocks(rows: Sequence[MatrixRow], by: Predicted | None) -> tuple[Block, ...]:
    """How well the model predicts the pairs; nothing without a model."""
    pairs = [(row, name, of) for row in rows for name, of in row.beside.items() if of.deviation is not None]
    if by is None or not pairs:
        return ()
    missed = sorted((pair for pair in pairs if pair[2].missed), key=lambda pair: -abs(pair[2].deviation or 0.0))
    text = (
        f"The model {by.by} predicts {len(pairs) - len(missed)} of {len(pairs)} slowdowns within "
        f"{format_fraction(MISSED)}. A prediction is MODELLED: its deviation is the model's slowdown over the measured "
        f"one, minus 1. {_uncertain_text(sum(of.uncertain for _, _, of in missed))}{_alone_text(rows)}"
    )
    several = _several(rows)
    cells = [
        (_name(row, several), name, f"{of.ratio:.3g}", f"{of.predicted:.3g}", format_change(of.deviation or 0.0))
        for row, name, of in missed
    ]
    table = Table("Slowdowns that the model misses", _MISSED, (Group(tuple(map(Row, cells))),), stacks=True)
    return (Paragraph(text), *([table] if missed else []))


def _uncertain_text(count: int) -> str:
    if not count:
        return ""
    return f"{count} of the missed slowdowns {'lies' if count == 1 else 'lie'} within the measured interval. "


def _alone_text(rows: Sequence[MatrixRow]) -> str:
    """The largest deviation of the times alone."""
    off = [(row.predicted_s / row.alone_s - 1, row.kind) for row in rows if row.predicted_s]
    worst, kind = max(off, key=lambda pair: abs(pair[0]))
    return f"Of the times alone, {kind} is off most: {format_change(worst)}."


def _table(rows: Sequence[MatrixRow], *, short: bool, on: Output) -> Table:
    names = others(rows)
    several = _several(rows)
    columns = [Column("Work", strong=True), Column("Alone", right=True, label="Alone")]
    columns += [Column(name, right=True, label=name) for name in names]
    made = [Row((_name(row, several), _alone(row), *(_cell(row, name, short=short) for name in names))) for row in rows]
    return Table("Slowdown by work beside it", tuple(columns), (Group(tuple(made)),), stacks=True, on=on)


def _several(rows: Sequence[MatrixRow]) -> bool:
    """Whether a kind of work ran on several paths."""
    return len({row.kind for row in rows}) < len(rows)


def _name(row: MatrixRow, several: bool) -> str:
    """The kind of work, with its path where the run has several paths."""
    return f"{row.kind} {row.path}" if several else row.kind


def _alone(row: MatrixRow) -> str:
    """The rate or the time alone, by the geometric mean of the rounds: that is what the slowdowns divide by."""
    gbps = row.alone.total_gbps
    text = format_rate(gbps * row.alone_times.median / row.alone_s) if gbps else format_seconds(row.alone_s)
    return signed(text, [row.alone])


def _cell(row: MatrixRow, other: str, *, short: bool) -> Text:
    found = row.beside.get(other)
    if found is None:
        return "-"
    ends = "" if short or found.interval is None else f" [{found.interval.low:.3g}, {found.interval.high:.3g}]"
    if not short and found.deviation is not None:
        ends += f", model {found.predicted:.3g} ({format_change(found.deviation)})"
    text = f"{found.sign}{found.ratio:.3g}"
    return (Span(text, "strong"), ends) if row.slowed_by(other) else text + ends


def _penalty(row: MatrixRow, several: bool) -> tuple[Text, ...]:
    worst, slow = max(row.beside.items(), key=lambda item: item[1].ratio)
    drift = row.drift
    return (
        _name(row, several), _pair(row.alone_s, row.alone_times.p99), worst, _pair(slow.seconds, slow.times.p99),
        slow.sign + format_fraction(slow.over_good), slow.sign + format_fraction(slow.over_bad),
        "-" if drift is None else f"{100 * drift:+.2f} %",
    )  # fmt: skip


def _times(rows: Sequence[MatrixRow]) -> list[Row]:
    """A row for each kind of work alone, and for each beside another."""
    several = _several(rows)
    return [
        Row((_name(row, several), name, *_with_ends(of)))
        for row in rows
        for name, of in (("-", row.alone_times), *((name, found.times) for name, found in row.beside.items()))
    ]


def _with_ends(of: Times) -> tuple[str, str]:
    median = format_seconds_interval(of.median, *(of.interval or (None, None)))
    return median, "-" if of.p99 is None else format_seconds_interval(of.p99, *(of.p99_ends or (None, None)))


def _pair(median: float, p99: float | None) -> str:
    return f"{format_seconds(median)}, p99 {format_seconds(p99)}" if p99 is not None else format_seconds(median)
