"""The results so far, as lines that fit the terminal during a run."""

import math
from collections.abc import Iterable, Sequence

from linkscope.model.text import paths_text
from linkscope.report.partial import Limit, Partial, Row
from linkscope.report.terminal import printable
from linkscope.report.trust import ABOVE
from linkscope.runfile import Point, Round
from linkscope.units import format_bytes, format_fraction, format_seconds, with_signs

_HEADS = ("", "", "so far", "% of peak", "at", "rounds", "done")
_NAME, _PATHS, _VALUE, _SHARE, _AT, _ROUNDS, _DONE = range(len(_HEADS))
_LEAST = (_NAME, _VALUE)
# Columns that a narrow terminal drops, in this order. Then names are shortened and cut, and the share is dropped last.
# 40 columns hold a name, a value and its share.
_DROP = (_ROUNDS, _AT, _PATHS, _DONE)
_GAP = 2
_MOST_PATHS, _LEAST_NAME = 36, 12
_LEAST_WIDTH, _MOST_LINES = 20, 24
_HEAD, _LATEST = "bold", "bold cyan"


class LiveTable:
    """Collects the records of a run and shows their best rates."""

    def __init__(self, ids: Iterable[str], limit: Limit, *, modelled: bool) -> None:
        self._found = Partial(ids, limit)
        self._modelled = modelled

    def add(self, record: Round | Point) -> None:
        """Adds a record. `table` evaluates it later, so that `add` is cheap."""
        self._found.add(record)

    def table(self, width: int, height: int) -> list[tuple[str, str]]:
        """At most `height` lines of at most `width` columns, with their styles: a head, then the rows.

        Empty where the terminal is too narrow for a name and a value.
        """
        if height < 1 or width < _LEAST_WIDTH:
            return []
        room = min(height, _MOST_LINES) - 1
        rows = self._found.rows()
        if len(rows) > room:
            rows = self._found.rows(merged=True)
        kept = rows if len(rows) <= room else _largest(rows, room - 1)
        title = "MODELLED, best rates" if self._modelled else "Best rates"
        lines = _fitted(title, kept, width)
        if len(kept) < len(rows) and room > 0:
            lines.append((f"and {len(rows) - len(kept)} more"[:width], ""))
        return lines

    def best(self) -> str:
        """The best rate of each benchmark in one line: 'best so far: h2d 55.4 GB/s at 64 MiB (95 % of peak)'."""
        best: dict[str, Row] = {}
        for row in self._found.rows(merged=True):
            name = row.group.family.benchmark
            if name not in best or _rank(row) > _rank(best[name]):
                best[name] = row
        if not best:
            return ""
        parts = [
            f"{name}{' bidirectional' if row.group.bidirectional else ''} {_value(row)}"
            + (f" at {format_bytes(row.at_bytes)}" if row.at_bytes else "")
            + (f" ({_share(row.share)} of peak)" if row.share is not None else "")
            for name, row in best.items()
        ]
        return f"{'MODELLED, ' if self._modelled else ''}best so far: {', '.join(parts)}"


def _share(share: float) -> str:
    """'95 %'; '120 % (!)' above the peak, which fails the point when its rounds are done."""
    return format_fraction(share) + (ABOVE if share > 1 else "")


def _rank(row: Row) -> tuple[bool, bool, float]:
    """Unidirectional ranks before bidirectional, then the higher rate or the shorter time."""
    return (
        not row.group.bidirectional,
        row.rate is not None,
        row.rate if row.rate is not None else -(row.seconds or 0.0),
    )


def _largest(rows: Sequence[Row], count: int) -> list[Row]:
    """The rows with the highest rates, in their original order."""
    order = sorted(range(len(rows)), key=lambda at: rows[at].rate or 0.0, reverse=True)
    return [rows[at] for at in sorted(order[: max(count, 0)])]


def _fitted(title: str, rows: Sequence[Row], width: int) -> list[tuple[str, str]]:
    """The head and one line for each row, in as many columns as fit."""
    heads = [title, *_HEADS[1:]]
    for cells in ([_cells(row) for row in rows], [_cells(row, short=True) for row in rows]):
        shown = list(range(len(_HEADS)))
        for drop in (None, *_DROP):
            shown = [column for column in shown if column != drop]
            widths = _widths([heads, *cells])
            if _width(widths, shown) <= width:
                return _lines([heads, *cells], rows, widths, shown)
    heads[_SHARE] = "peak"  # all columns that can be dropped are gone: shorten the names
    widths = _widths([heads, *cells])
    room = width - _width(widths, shown) + widths[_NAME]
    if room < _LEAST_NAME:
        shown = list(_LEAST)
        room = width - _width(widths, shown) + widths[_NAME]
    if room < len(title):
        heads[_NAME] = title.partition(",")[0]
    widths[_NAME] = max(0, room)
    return [(line[:width], style) for line, style in _lines([heads, *cells], rows, widths, shown)]


def _lines(
    table: Sequence[Sequence[str]], rows: Sequence[Row], widths: Sequence[int], shown: Sequence[int]
) -> list[tuple[str, str]]:
    styles = [_HEAD, *(_LATEST if row.latest else "" for row in rows)]
    return [(_joined(cells, widths, shown), style) for cells, style in zip(table, styles, strict=True)]


def _joined(cells: Sequence[str], widths: Sequence[int], shown: Sequence[int]) -> str:
    aligned = [
        _cut(cells[column], widths[column]).ljust(widths[column])
        if column in (_NAME, _PATHS)
        else cells[column].rjust(widths[column])
        for column in shown
    ]
    return (" " * _GAP).join(aligned).rstrip()


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(cells[column]) for cells in table) for column in range(len(_HEADS))]


def _width(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[column] for column in shown) + _GAP * (len(shown) - 1)


def _cells(row: Row, *, short: bool = False) -> list[str]:
    name = str(row.group)
    if short:  # 'h2d ce pinned->device'
        name = name.replace(" by ", " ").replace(",", "").replace(" <-> ", "<->").replace(" -> ", "->")
    low, high = row.rounds
    count = f" ({len(row.paths)})" if len(row.paths) > 1 else ""
    return [
        with_signs(name), _cut(printable(paths_text(row.paths)), _MOST_PATHS - len(count)) + count, _value(row),
        _share(row.share) if row.share is not None else "", format_bytes(row.at_bytes) if row.at_bytes else "",
        f"{low}" if low == high else f"{low}-{high}", f"{row.done}/{row.points}",
    ]  # fmt: skip


def _value(row: Row) -> str:
    """Three digits, because a value without an interval does not support more."""
    if row.rate is None:
        return with_signs(format_seconds(float(f"{row.seconds or 0.0:.3g}")))
    decimals = 2 - math.floor(math.log10(row.rate)) if row.rate > 0 else 0
    return f"{round(row.rate, decimals):.{max(0, min(decimals, 4))}f} GB/s"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 2, 0)] + ".."[: max(width, 0)]
