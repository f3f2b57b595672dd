"""Section: who slows whom."""

from collections.abc import Sequence

from linkscope.report.contention import MatrixRow, Slowdown, matrix, others
from linkscope.report.run_view import RunView
from linkscope.report.section import METHOD, Column, Group, Items, Output, Paragraph, Row, Section, Span, Table, Text
from linkscope.units import format_rate, format_seconds

_TITLE = "Who slows whom"
_NOTE = (
    "Each row is a kind of work, each column the work beside it on the same GPU and NUMA node. A number is the time of "
    "an operation beside the other work over its time alone; 1 is no slowdown. Page and Markdown add the 95 % interval "
    "of the ratio. "
)
_TIMES = "Median and p99 of the mean time of an operation in 10 ms, alone and beside the work that slows it most:"


def section(view: RunView) -> Section | None:
    """The matrix of slowdowns, and the times of each row. None for a run without contention."""
    rows = matrix(view.run)
    if not rows:
        return None
    blocks = (
        Paragraph((_NOTE, METHOD), note=True, on=Output.PAGE),
        Paragraph(_NOTE.strip(), on=Output.TERMINAL | Output.MARKDOWN),
        _table(rows, short=True, on=Output.TERMINAL),
        _table(rows, short=False, on=Output.PAGE | Output.MARKDOWN),
        Paragraph(_TIMES),
        Items.of([_times(row) for row in rows]),
    )
    return Section("contention", _TITLE, blocks)


def _table(rows: Sequence[MatrixRow], *, short: bool, on: Output) -> Table:
    names = others(rows)
    several = len({row.path for row in rows if row.kind == rows[0].kind}) > 1
    columns = [Column("Work", strong=True), Column("Alone", right=True, label="Alone")]
    columns += [Column(name, right=True, label=name) for name in names]
    made = [
        Row((_name(row, several), _alone(row), *(_cell(row.beside.get(name), short=short) for name in names)))
        for row in rows
    ]
    return Table("Slowdown by work beside it", tuple(columns), (Group(tuple(made)),), stacks=True, on=on)


def _name(row: MatrixRow, several: bool) -> str:
    """The kind of work, with its path where the run has several paths."""
    return f"{row.kind} {row.path}" if several else row.kind


def _alone(row: MatrixRow) -> str:
    return format_rate(row.alone.total_gbps) if row.alone.total_gbps else format_seconds(row.alone.median_s or 0.0)


def _cell(found: Slowdown | None, *, short: bool) -> Text:
    if found is None:
        return "-"
    ends = "" if short or found.interval is None else f" [{found.interval.low:.3g}, {found.interval.high:.3g}]"
    text = f"{found.ratio:.3g}"
    return (Span(text, "strong"), ends) if found.slowed else text + ends


def _times(row: MatrixRow) -> str:
    worst, slow = max(row.beside.items(), key=lambda item: item[1].ratio)
    return (
        f"{row.kind}, {row.path}: alone {_pair(row.alone.median_s or 0.0, row.alone_p99)}; "
        f"beside {worst} {_pair(slow.median, slow.p99)}"
    )


def _pair(median: float, p99: float | None) -> str:
    return f"{format_seconds(median)}, p99 {format_seconds(p99)}" if p99 is not None else format_seconds(median)
