"""All tables of a run in the terminal, the most important first: copies, latencies, joint flows, costs, anomalies,
status.
"""

import itertools
import textwrap
from collections.abc import Iterable, Sequence

from linkscope.advise import worthwhile
from linkscope.advise.text import headline
from linkscope.model.text import count_text, range_share
from linkscope.report.break_even import SHORT_HEADING, break_evens
from linkscope.report.finding import LARGE
from linkscope.report.findings import findings
from linkscope.report.headline import COPIES, ENGINES
from linkscope.report.joint import joint_lines
from linkscope.report.outcome import problems, run_text
from linkscope.report.overview import ALIKE, FamilyRows, Row, overview
from linkscope.report.shared import HEADING, shares, totals_without_single_rates, without_concurrent
from linkscope.report.terminal import BAD, HEAD, NOTABLE, Line, heading, line_width, printable, render, wrap
from linkscope.report.trust import signs_mean
from linkscope.runfile import Run
from linkscope.units import format_bytes

_MOST_ADVICE, _MOST_IDS, _MOST_MISSED = 5, 2, 10
_HEADS = ("path", "", "GB/s", "interval", "% of peak", "at", "half from", "smallest, batched", "single")
_SHARE, _AT = 4, 5
_RIGHT = {2, 4, 5, 6}  # columns of numbers
_DROP = (6, 8, 7, 5, 4)  # columns that a narrow terminal drops, in this order; a rate always keeps its interval
_GAP = 2
_GOOD_PATH, _LEAST_PATH = 34, 16  # longer sets of paths are wrapped


def details(run: Run, *, width: int | None = None, colour: bool | None = None) -> str:
    """All tables as text, without a newline at the end. None: width and colour of standard output."""
    columns = line_width(width)
    return render(list(_lines(run, columns)), columns, colour)


def _lines(run: Run, width: int) -> Iterable[Line]:
    if run.modelled:
        parts = "MODELLED: a machine model gave these numbers, no hardware was measured."
        yield from wrap(parts, width, NOTABLE)
    machine = run.header.machine
    name = ": ".join(str(machine[key]) for key in ("name", "title") if machine.get(key))
    yield from wrap(printable(name) or "a machine without a name", width, HEAD)
    yield from wrap(printable(run_text(run)), width)
    for warning in run.warnings:
        yield from wrap(f"warning: {printable(warning)}", width, NOTABLE)
    single = without_concurrent(run)
    copies, latencies, others = _by_importance(overview(single.points))
    if not (copies or latencies or others or totals_without_single_rates(run.points)):
        yield Line("")
        yield Line("No point has a value.", BAD)
    else:
        yield from _note([*copies, *latencies, *others], width)
    yield from _rates("Plain copies", copies, width)
    yield from _rates("Latencies and costs of calls", latencies, width)
    yield from _joint(single, width)
    yield from _shared(run, width)
    yield from _rates("Other operations", others, width)
    yield from _break_even(run, width)
    yield from _anomalies(single, width)
    yield from _recommendations(single, width)
    yield from _status(run, width)


def _by_importance(found: Sequence[FamilyRows]) -> tuple[list[FamilyRows], list[FamilyRows], list[FamilyRows]]:
    """The families in three groups: plain copies, operations without bytes, all others."""
    copies = [of for of in found if of.family.benchmark in COPIES and of.family.engine in ENGINES]
    timed = [of for of in found if of not in copies and all(row.time is not None for row in of.rows)]
    directions, engines = list(COPIES), list(ENGINES)
    copies.sort(key=lambda of: (directions.index(of.family.benchmark), engines.index(of.family.engine)))
    timed.sort(key=lambda of: of.family.benchmark != "latency")
    return copies, timed, [of for of in found if of not in copies and of not in timed]


def _note(families: Sequence[FamilyRows], width: int) -> Iterable[Line]:
    """An explanation of the tables."""
    if not families:
        return
    text = (
        f"A row holds paths whose best rates agree within {ALIKE:.0%} or within their intervals: the median, and the "
        "range from the lowest to the highest end of their intervals. Brackets hold the interval of one path. "
        "Bidirectional rates are totals; their % of peak is that of the direction named."
    )
    cells = " ".join(cell for family in families for row in family.rows for cell in _cells(row))
    yield Line("")
    yield from wrap(text + "".join(f" {means}." for means in signs_mean(cells)), width)


def _rates(title: str, families: Sequence[FamilyRows], width: int) -> Iterable[Line]:
    if not families:
        return
    yield Line("")
    yield Line(title, HEAD)
    tables = [[_cells(row) for row in family.rows] for family in families]
    widths, shown = _fit([_HEADS, *(cells for table in tables for cells in table)], width)
    if _SHARE not in shown and any(cells[_SHARE] for table in tables for cells in table):
        # On a narrow terminal the method joins the column of the path, so that % of peak still fits.
        tables = [[[", ".join(filter(None, cells[:2])), "", *cells[2:]] for cells in table] for table in tables]
        widths, shown = _fit([_HEADS, *(cells for table in tables for cells in table)], width)
    if _AT not in shown:  # a run that was stopped early may have its best rate at an unexpectedly small size
        for table, family in zip(tables, families, strict=True):
            for cells, row in zip(table, family.rows, strict=True):
                cells[0] += f" (at {row.at_text})" if 0 < row.at_bytes < LARGE else ""
    timed = all(row.time is not None for family in families for row in family.rows)
    heads = [*_HEADS[:2], "time" if timed else _HEADS[2], *_HEADS[3:]]
    yield Line(_joined(heads, widths, shown), HEAD)
    for family, table in zip(families, tables, strict=True):
        parts = [family.minor_params_text] if family.minor_params else []
        parts += [f"unless given: {family.usual}"] if family.usual else []
        minor_params = f" ({'; '.join(parts)})" if parts else ""
        yield from heading(printable(f"{family.family}{minor_params}"), width)
        if family.limits:
            yield from wrap(printable(f"    peak: {family.limits}"), width)
        for row, cells in zip(family.rows, table, strict=True):
            yield from _row_lines(row, cells, widths, shown)
        if family.sweep:
            yield Line(f"    {family.sweep} (other numbers of blocks: see the page)")


def _row_lines(row: Row, cells: Sequence[str], widths: Sequence[int], shown: Sequence[int]) -> Iterable[Line]:
    style = NOTABLE if row.share and row.share[0] < 0.5 else ""
    first, *more = textwrap.wrap(cells[0], widths[0] - 2, break_on_hyphens=False) or [""]
    yield Line(_joined(["  " + first, *cells[1:]], widths, shown), style)
    for rest in more:
        yield Line("    " + rest, style)
    if row.note:
        yield from wrap(f"    {row.note}", sum(widths[column] + _GAP for column in shown), style)


def _cells(row: Row) -> list[str]:
    number, unit, interval = f"{row.best_text} ".split(" ", 2)
    number += f" {unit.rstrip(',')}" if row.time is not None else ""
    if "unresolved" in row.best_text:
        number, interval = row.best_text.split(", ")
    smallest = f"{row.smallest_text}: {row.batched_text}" if row.batched_s else ""
    alone = row.single_text if smallest or not row.single_text else f"{row.smallest_text}: {row.single_text}"
    counts = ", ".join(filter(None, (str(row.path_count) if row.path_count > 1 else "", row.missed_text)))
    return [
        printable(row.paths) + (f" ({counts})" if counts else ""),
        printable(row.params), number, interval.strip() or "no interval", range_share(row.share),
        row.at_text, row.half_text, smallest, alone,
    ]  # fmt: skip


def _joint(run: Run, width: int) -> Iterable[Line]:
    found = joint_lines(run.points)
    if not found:
        return
    yield Line("")
    yield Line("One place and all GPUs at once: totals of all flows", HEAD)
    for pattern, lines in itertools.groupby(found, key=lambda line: line.pattern):
        yield from wrap(printable(pattern), width)
        for line in lines:
            each = f"; {line.each}" if line.each else ""
            text = f"- {line.paths}: {line.total} at {format_bytes(line.bytes)}{each}"
            yield from wrap(printable(text), width)


def _shared(run: Run, width: int) -> Iterable[Line]:
    found = shares(run.points)
    sentences = found.sentences if found else totals_without_single_rates(run.points)
    if not sentences and not found:
        return
    yield Line("")
    yield Line(HEADING, HEAD)
    if found:
        yield from wrap(f"{found.summary}.", width)
    for text in sentences:
        yield from wrap(f"- {printable(text)}", width)


def _break_even(run: Run, width: int) -> Iterable[Line]:
    found = break_evens(run.points)
    if found is None or not found.lines:
        return
    yield Line("")
    yield from heading(SHORT_HEADING, width)
    for line in found.lines:
        yield from wrap(f"- {printable(line)}", width)


def _anomalies(run: Run, width: int) -> Iterable[Line]:
    found = findings(run)
    if not found:
        return
    yield Line("")
    yield Line("Anomalies", HEAD)
    for finding in found:
        yield from wrap(f"- {printable(finding.text)}", width)


def _recommendations(run: Run, width: int) -> Iterable[Line]:
    found = worthwhile(run.points)
    if not found:
        return
    yield Line("")
    yield from heading("Recommendations (how: linkscope advise)", width)
    for one in found[:_MOST_ADVICE]:
        yield from wrap(f"- {printable(headline(one))}", width)


def _status(run: Run, width: int) -> Iterable[Line]:
    found = problems(run.points)
    if not found:
        return
    missed = sorted((one for one in found if one.missed), key=lambda one: -len(one.ids))
    left = missed[_MOST_MISSED:]
    yield Line("")
    yield Line("Status of points", HEAD)
    for problem in found:
        if problem in left:
            continue
        yield from wrap(f"- {printable(problem.text())}", width, BAD if problem.status == "failed" else "")
        if problem.status == "failed":
            for id in problem.ids[:_MOST_IDS]:
                yield Line(f"    {printable(id)}")
            if len(problem.ids) > _MOST_IDS:
                yield Line(f"    and {len(problem.ids) - _MOST_IDS} more")
    if left:
        points = count_text(sum(len(one.ids) for one in left), "point")
        yield Line(f"- missed precision, {points} more of {count_text(len(left), 'other operation')}: see the page")
    if not run.modelled:
        yield Line("`linkscope doctor` lists settings of this machine that disturb measurements.")


def _fit(table: Sequence[Sequence[str]], width: int) -> tuple[list[int], list[int]]:
    """Widths of the columns, and the columns that fit on a line. The first column gets the remaining width."""
    widths = [max(len(cells[column]) for cells in table) for column in range(len(_HEADS))]
    widths[0] += 2
    shown = [column for column in range(len(_HEADS)) if any(cells[column] for cells in table[1:])]
    for column in _DROP:
        wanted = _LEAST_PATH if column == _DROP[-1] else min(widths[0], _GOOD_PATH)
        if column in shown and wanted + _others(widths, shown) > width:
            shown.remove(column)
    widths[0] = max(_LEAST_PATH, min(widths[0], width - _others(widths, shown)))
    return widths, shown


def _others(widths: Sequence[int], shown: Sequence[int]) -> int:
    """The width of a line without its first column."""
    return sum(widths[column] + _GAP for column in shown if column)


def _joined(cells: Sequence[str], widths: Sequence[int], shown: Sequence[int]) -> str:
    aligned = [
        cells[column].rjust(widths[column]) if column in _RIGHT else cells[column].ljust(widths[column])
        for column in shown
    ]
    return (" " * _GAP).join(aligned).rstrip()
