"""The summary of a run in the terminal: at most 30 lines, the verdict first. `details` has all tables."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from linkscope.report.headline import RateRow, Rates, headline_rows
from linkscope.report.managed_peaks import with_nvlink_peaks
from linkscope.report.overview import overview
from linkscope.report.section import MOST_ANSWERS, Output, plain
from linkscope.report.sections import sections
from linkscope.report.shared import without_concurrent
from linkscope.report.summary_lines import (
    half_peak_text,
    heading_lines,
    joint_text,
    latency_text,
    managed_text,
    notes,
    pointers,
    recommendations_text,
    shared_text,
    slowest_text,
)
from linkscope.report.terminal import BAD, HEAD, NOTABLE, Line, line_width, printable, render, wrap
from linkscope.report.trust import SIGN
from linkscope.report.verdict import verdict, warnings
from linkscope.runfile import Run
from linkscope.units import digits3

MOST_LINES = 30
_MOST_WARNINGS, _MOST_OTHERS = 5, 8
_LABEL = 10  # columns of WARNING, NOTE and other labels
_TITLE = "GB/s at the best size"
_HEADS = ("unidir", "% of peak", "bidir", "% of peak", "measured")
_RATES = (0, 2)  # columns of rates; the share of the peak follows each
_LAYOUTS = ((0, 1, 2, 3, 4), (0, 1, 2, 3), (0, 1, 2), (0, 1), (0,))
_GAP = "  "


@dataclass(frozen=True)
class _Section:
    """Lines that belong together. If the lines exceed the limit, sections of a higher `rank` are dropped first."""

    rank: int
    lines: tuple[Line, ...]


def summary(run: Run, *, width: int | None = None, colour: bool | None = None) -> str:
    """The summary as text, without a newline at its end. None: width and colour of standard output."""
    columns = line_width(width)
    return render(_limited(list(_sections(with_nvlink_peaks(run), columns))), columns, colour)


def _limited(sections: list[_Section]) -> list[Line]:
    """Drops the least important sections until the rest fits, then lines at the end."""
    while sum(len(section.lines) for section in sections) > MOST_LINES and len(sections) > 1:
        least = max(section.rank for section in sections)
        if least == 0:
            break
        sections = [section for section in sections if section.rank != least]
    return [line for section in sections for line in section.lines][:MOST_LINES]


def _sections(run: Run, width: int) -> Iterable[_Section]:
    rows = headline_rows(run)
    yield _Section(0, tuple(heading_lines(run, width)))
    yield _Section(0, tuple(wrap(printable(verdict(run, rows)), width, HEAD)))
    if rows:
        yield _Section(0, (Line(""), *_table(rows, width)))
    answers = list(_answers(run, width))
    if not rows and not answers:
        yield _Section(0, tuple(_other_rates(run, width)))
    yield _Section(1, tuple(_labelled("Slowest", slowest_text(run, rows), width)))
    yield _Section(5, tuple(_labelled("Managed", managed_text(run), width)))
    yield _Section(3, tuple(_labelled("Latency", latency_text(run), width)))
    yield _Section(6, tuple(_labelled("Half peak", half_peak_text(run), width)))
    yield _Section(2, tuple(_labelled("All GPUs", joint_text(run), width)))
    yield _Section(3, tuple(_labelled("Shared", shared_text(run), width)))
    yield from answers if rows else (replace(answer, rank=0) for answer in answers)
    warned = warnings(run)
    for text, failed in warned[:_MOST_WARNINGS]:
        yield _Section(1, tuple(_labelled("WARNING", text, width, BAD if failed else NOTABLE)))
    if len(warned) > _MOST_WARNINGS:
        yield _Section(1, (Line(f"{'WARNING':<{_LABEL}}and {len(warned) - _MOST_WARNINGS} more", NOTABLE),))
    shown = any(_is_signed(rates) for row in rows for rates in _both(row))
    for text in notes(run, signed=shown or any(SIGN in line.text for one in answers for line in one.lines)):
        yield _Section(2, tuple(_labelled("NOTE", text, width)))
    yield _Section(4, tuple(_labelled("Faster", recommendations_text(run), width)))
    for text in pointers(run):
        yield _Section(1, tuple(_labelled("More", text, width)))


def _answers(run: Run, width: int) -> Iterable[_Section]:
    """What the other sections found. Beside a table of rates the first answer of each is kept longest."""
    for section in sections(run, Output.TERMINAL):
        for index, text in enumerate(section.answers[:MOST_ANSWERS]):
            label = "" if index else section.label
            yield _Section(4 if index else 3, tuple(_labelled(label, plain(text), width)))


def _labelled(label: str, text: str, width: int, style: str = "") -> Iterable[Line]:
    if text:
        for index, line in enumerate(wrap(printable(text), width - _LABEL, style)):
            yield Line(f"{label if index == 0 else '':<{_LABEL}}{line.text}", line.style)


def _table(rows: Sequence[RateRow], width: int) -> Iterable[Line]:
    """A line for each row, in the widest layout that fits."""
    cells = [_cells(row) for row in rows]
    names = [(row.where, printable(row.memory)) for row in rows]
    first, second = (max(len(name[column]) for name in names) for column in (0, 1))
    left = max(first + len(_GAP) + second, len(_TITLE))
    layouts = [[column for column in layout if any(of[column] for of in cells)] for layout in _LAYOUTS]
    sized = [(layout, _widths(layout, cells)) for layout in layouts]
    fitting = (one for one in sized if left + sum(len(_GAP) + size for size in one[1]) <= width)
    layout, widths = next(fitting, sized[-1])
    left = min(left, width - sum(len(_GAP) + size for size in widths))
    head = "".join(_GAP + _HEADS[column].rjust(size) for column, size in zip(layout, widths, strict=True))
    yield Line(f"{_TITLE:<{left}}{head}", HEAD)
    for (where, memory), of, row in zip(names, cells, rows, strict=True):
        label = f"{where:<{first}}{_GAP}{memory}"[:left].ljust(left)
        style = NOTABLE if any(rates.unstable for rates in _both(row)) else ""
        yield Line(f"{label}{_joined(of, layout, widths)}".rstrip(), style)


def _widths(layout: Sequence[int], cells: Sequence[Sequence[str]]) -> list[int]:
    """Widths of the columns. An unstable rate also fills the column of its share, if the layout has it."""
    widths = []
    for column in layout:
        spans = column in _RATES and column + 1 in layout
        own = [of[column] for of in cells if not spans or of[column + 1]]
        widths.append(max(len(text) for text in [_HEADS[column], *own]))
    for place, column in enumerate(layout):
        if column in _RATES and column + 1 in layout:
            needed = max((len(of[column]) for of in cells if not of[column + 1]), default=0)
            widths[place] = max(widths[place], needed - widths[place + 1] - len(_GAP))
    return widths


def _joined(cells: Sequence[str], layout: Sequence[int], widths: Sequence[int]) -> str:
    text, place = "", 0
    while place < len(layout):
        column, size = layout[place], widths[place]
        spans = column in _RATES and column + 1 in layout and cells[column].startswith("unstable")
        if spans:
            size += len(_GAP) + widths[place + 1]
        text += _GAP + cells[column].rjust(size)
        place += 2 if spans else 1
    return text


def _cells(row: RateRow) -> list[str]:
    rates, count = row.first, len(row.first.points)
    measured = f"{rates.measured} of {count}" if count > 1 else "yes" if rates.measured else "inherited"
    return [*_rate_cells(row.unidirectional), *_rate_cells(row.bidirectional), measured]


def _rate_cells(rates: Rates | None) -> list[str]:
    if rates is None:
        return ["", ""]
    if rates.unstable:
        return [f"unstable, {_span(*rates.unstable)}", ""]
    low, high = min(rates.values), max(rates.values)
    text = _exact(rates.median) if rates.alike else _span(low, high)
    shares = rates.shares
    percent = ""
    if shares is not None:
        least, most = (f"{100 * share:.0f}" for share in shares)
        percent = least if least == most else f"{least} to {most}"
        if rates.alike:  # as on the page, the share of the number that is shown
            peak = statistics.median(peak for peak in rates.peaks if peak)
            percent = f"{100 * float(_exact(rates.median)) / peak:.0f}"
    return [(SIGN if _is_signed(rates) else "") + text, percent]


def _is_signed(rates: Rates) -> bool:
    return rates.missed and not rates.unstable


def _both(row: RateRow) -> list[Rates]:
    return [rates for rates in (row.unidirectional, row.bidirectional) if rates is not None]


def _span(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys((digits3(low), digits3(high))))


def _exact(rate: float) -> str:
    """Three digits, with trailing zeros: '9.00'."""
    return f"{rate:.0f}" if rate >= 1000 else f"{rate:#.3g}".removesuffix(".")


def _other_rates(run: Run, width: int) -> Iterable[Line]:
    """The best rates of a run without plain copies."""
    rows = [(family.family, row) for family in overview(without_concurrent(run).points) for row in family.rows]
    if not rows:
        return
    yield Line("")
    yield Line("Best rates", HEAD)
    for family, row in rows[:_MOST_OTHERS]:
        text = f"- {family}, {row.paths}{f' ({row.params})' if row.params else ''}: {row.best_text}"
        yield from list(wrap(printable(text.replace("->", "→")), width))[:2]
    if len(rows) > _MOST_OTHERS:
        yield Line(f"- and {len(rows) - _MOST_OTHERS} more rows: --summary=full")
