"""Charts of rates over the number of blocks: one for each operation, with a line for each row of its table."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from linkscope.report.section import Legend
from linkscope.report.svg import SERIES_COLOURS, Series, blocks_chart, ring, swatch
from linkscope.report.sweep import BLOCKS, SweepRow, in_order
from linkscope.report.trust import missed


@dataclass(frozen=True)
class SweepChart:
    """A chart and its legend. `not_drawn` rows are only in the table."""

    operation: str
    svg: str
    legend: list[Legend]
    not_drawn: int


def sweep_charts(rows: Sequence[SweepRow], *, modelled: bool) -> list[SweepChart]:
    """A chart for each operation, in the order of the rows."""
    groups = itertools.groupby(rows, key=lambda row: row.family.benchmark)
    return [_chart(operation, list(group), modelled) for operation, group in groups]


def _chart(operation: str, rows: Sequence[SweepRow], modelled: bool) -> SweepChart:
    drawn = rows[:SERIES_COLOURS]
    names = in_order({blocks for row in drawn for blocks, _ in row.drawn.values})
    series = [
        Series(
            colour, False, [(names.index(blocks), rate) for blocks, rate in row.drawn.values],
            frozenset(names.index(point.params[BLOCKS]) for point in row.drawn.points if missed(point)),
        )
        for colour, row in enumerate(drawn)
    ]  # fmt: skip
    limits = sorted({p.limit_gbps for row in drawn for p in row.drawn.points if p.limit_gbps is not None})
    svg = blocks_chart(f"rate over blocks, {operation}", series, names, limits, modelled)
    legend = [Legend(swatch(colour), _line_text(row)) for colour, row in enumerate(drawn)]
    legend += [Legend(ring(), "ringed: missed precision")] if any(one.missed for one in series) else []
    return SweepChart(operation, svg, legend, len(rows) - len(drawn))


def _line_text(row: SweepRow) -> str:
    return f"{row.family}, {row.drawn.path}" + (f" ({row.params})" if row.params else "")
