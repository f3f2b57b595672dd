"""Tables of a run as plain text for a terminal: break-even of memory kinds, and the transfers of a trace."""

from collections.abc import Iterable, Sequence

from linkscope.report.break_even import NOTE, PHASES, break_evens
from linkscope.report.replay import Bar, cells
from linkscope.report.terminal import line_width, printable, wrap
from linkscope.report.trust import signs_mean
from linkscope.runfile import Run
from linkscope.units import format_bytes

_GAP = "  "


def break_even_to_text(run: Run, *, width: int | None = None) -> str:
    """Memory costs and break-even tables, with the ids of their points; '' if the run has no such data."""
    found = break_evens(run.points)
    if found is None:
        return ""
    columns = line_width(width)
    costs = [(row.where, row.kind, format_bytes(row.bytes), *row.phases, row.total) for row in found.costs]
    table = aligned(("memory", "kind", "size", *PHASES, "total [interval]"), costs)
    for one in found.tables:
        head = ("path", "size", one.end, "total [interval]", "one transfer [interval]")
        than = tuple(f"cheaper than {name}" for name in one.than)
        rows = [(row.paths, format_bytes(row.bytes), row.kind, row.cost, row.transfer, *row.than) for row in one.rows]
        table += ["", *aligned((*head, *than), rows)]
    notes = [NOTE, *(f"{means}." for means in signs_mean("\n".join(table)))]
    lines = ["MODELLED", ""] if run.modelled else []
    lines += [line.text for note in notes for line in wrap(note, columns)]
    ids = dict.fromkeys(id for one in found.tables for row in one.rows for id in row.ids)
    return "\n".join([*lines, "", *table, "", "Points:", *(f"  {printable(id)}" for id in ids)]) + "\n"


def replay_to_text(bars: Sequence[Bar], modelled: bool) -> str:
    """The time of the transfers of a trace, by kind of transfer."""
    head = ("part", "transfers", "count", "bytes", "time [interval]", "share")
    table = aligned(head, cells(bars))
    means = [f"{text}." for text in signs_mean("\n".join(table))]
    return "\n".join([*(["MODELLED", ""] if modelled else []), *table, *means]) + "\n"


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]], *, to_the_right: bool = False) -> list[str]:
    """The rows in columns as wide as their longest cell; columns without any cell are left out. Empty without rows.

    `to_the_right`: all columns but the first end below each other, for numbers.
    """
    listed = [[printable(cell) for cell in row] for row in rows]
    if not listed:
        return []
    shown = [column for column in range(len(head)) if any(row[column] for row in listed)]
    widths = {column: max(len(row[column]) for row in (head, *listed)) for column in shown}

    def placed(cell: str, column: int) -> str:
        return cell.rjust(widths[column]) if to_the_right and column else cell.ljust(widths[column])

    return [_GAP.join(placed(row[column], column) for column in shown).rstrip() for row in (head, *listed)]
