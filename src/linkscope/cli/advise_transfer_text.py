"""The answer on one transfer as text: a table by rank, then what each method needs and the code that does it."""

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from linkscope.cli.runs import measures_all, title
from linkscope.cli.screen import columns, filled
from linkscope.flow import kind_of
from linkscope.units import (
    format_bytes,
    format_rate,
    format_seconds,
    format_seconds_interval,
    with_interval,
    with_signs,
)

if TYPE_CHECKING:
    from linkscope.advise.methods import TransferMethod
    from linkscope.advise.ranking import Ranked
    from linkscope.advise.recipes import Recipe
    from linkscope.cli.advise_answer import Answer
    from linkscope.model.curves import Estimate

_BEST_METHODS = 3  # that are shown without --all
_BY_HOST = "^"
_INTERPOLATED = "*"  # "~" marks values that missed their precision
_MODELLED = "MODELLED"


def print_answer(found: "Answer", written: str | None, *, everything: bool) -> None:
    """Prints the answer. `written`: the run file as the user wrote it. `everything`: all methods."""
    from linkscope.model.text import count_text

    if found.run is not None:
        print(title(found.run, written))
    if found.model is not None:
        print(f"{_MODELLED} {found.model.machine.name}" + (": the predicted times" if found.run is not None else ""))
    print(filled(_subject(found), "", "  "))
    shown = found.methods if everything else _shown(found)
    rows = _columns(found, shown)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    # On a narrow terminal, the numbers of a method stand below its name.
    between = f"\n{' ' * (widths[0] + 4)}" if sum(widths) + 2 * len(widths) > columns() else ""
    first_in_place = _first_in_place(shown)
    for at, (rank, name, *others) in enumerate(rows):
        if first_in_place and at == first_in_place:
            print(filled(_in_place_text(found), "  ", "  "))
        cells = [cell.rjust(width) for cell, width in zip(others, widths[2:], strict=True)]
        method = name if between else name.ljust(widths[1])
        print(f"  {rank.rjust(widths[0])}  {method}{between}  {'  '.join(cells)}".rstrip())
    if len(found.methods) > len(shown):
        print(f"  and {count_text(len(found.methods) - len(shown), 'more method')}; --all shows all, --json lists them")
    _print_legend(found, shown, rows)
    _print_recipes(found, shown)


def _shown(found: "Answer") -> "list[Ranked]":
    """The methods with the shortest times, the present one, the fastest for the memory that the present one copies
    without other GPUs, and the fastest that copies nothing."""
    from linkscope.advise.methods import RELAYED

    now = found.now
    others = [
        one
        for one in found.methods
        if now and not one.is_present and one.candidate.method.family.benchmark != RELAYED
        if one.candidate.host_kinds == now.host_kinds
    ]
    in_place = [one for one in found.methods if one.candidate.in_place]
    chosen = [*found.methods[:_BEST_METHODS], *others[:1], *in_place[:1]]
    return [one for one in found.methods if one.is_present or one in chosen]


def _first_in_place(shown: "Sequence[Ranked]") -> int | None:
    """The row of the table, after its head, with the first method that copies nothing; None without any."""
    return next((at for at, one in enumerate(shown, start=1) if one.candidate.in_place), None)


def _in_place_text(found: "Answer") -> str:
    """What the methods do that copy nothing, and what their time means."""
    asked, ends = found.asked, {kind_of(found.asked.src), kind_of(found.asked.dst)}
    where = "in host memory" if "numa" in ends else "where they are"
    again = "" if asked.src == asked.dst else ", and each access crosses the link"
    return (
        f"no copy: a kernel accesses the data, which stay {where}{again}; the time is that of one access to all bytes"
    )


def _subject(found: "Answer") -> str:
    asked = found.asked
    size = format_bytes(asked.bytes)
    if asked.piece:
        size = f"{size} in {asked.pieces} pieces of {format_bytes(asked.piece)}"
    mode = "single copies" if asked.alone else "batched copies"
    beside = f", beside {'; '.join(map(str, asked.others))}" if asked.others else ""
    reuse = f", {asked.reuse} copies of the same memory" if asked.reuse else ""
    state = " to untouched memory" if asked.untouched else ""
    return f"{asked.src} -> {asked.dst}, {size}, {mode}{state}{reuse}{beside}, fastest first:"


def _columns(found: "Answer", shown: "Sequence[Ranked]") -> list[tuple[str, ...]]:
    """The head and the rows of the table."""
    from linkscope.advise.transfer_text import names

    listed = names([one.candidate.reading for one in shown], alone=found.asked.alone)
    named = [name + _sign_between(one, found.asked.bytes) for name, one in zip(listed, shown, strict=True)]
    columns = [
        ("rank", *(str(one.rank) if one.rank else "-" for one in shown)),
        ("method", *named),
    ]
    if any(one.candidate.measured for one in shown):
        columns.append(("time [95 % CI]", *(_measured_cell(one.candidate.measured) for one in shown)))
    if any(one.candidate.predicted for one in shown):
        columns.append(("predicted", *(_predicted_cell(one.candidate.predicted) for one in shown)))
    if found.asked.reuse:
        columns += _reuse_columns(found.asked.reuse, shown)
    else:
        columns.append(("rate", *(format_rate(found.asked.bytes / one.candidate.time.value / 1e9) for one in shown)))
    columns.append(("gain", *(_gain_cell(one) for one in shown)))
    columns.append(("pays off", *(_pays_cell(one) for one in shown)))
    return [tuple(map(with_signs, row)) for row in zip(*columns, strict=True)]


def _reuse_columns(copies: int, shown: "Sequence[Ranked]") -> list[tuple[str, ...]]:
    return [
        ("once", *(_plain_cell(one.once.time) for one in shown)),
        (f"{copies} copies", *(_time_cell(one.total) for one in shown)),
        ("per copy", *(format_seconds(one.total.value / copies) if one.total else "-" for one in shown)),
    ]


def _sign_between(one: "Ranked", size: int) -> str:
    """The mark of a time that no point has: of the host's calls, between sizes, or of another number of pieces."""
    if one.candidate.reading.by_host:
        return f" {_BY_HOST}"
    measured = one.candidate.measured
    return "" if measured is None or [point.bytes for point in measured.points] == [size] else f" {_INTERPOLATED}"


def _measured_cell(one: "TransferMethod | None") -> str:
    from linkscope.report.trust import inherited, sign_of

    if one is None:
        return "-"
    sign = sign_of(one.points) or sign_of(filter(inherited, one.points))
    return sign + _time_cell(one.time)


def _predicted_cell(one: "TransferMethod | None") -> str:
    return "-" if one is None else _time_cell(one.time)


def _time_cell(time: "Estimate | None") -> str:
    return "-" if time is None else format_seconds_interval(time.value, time.low, time.high)


def _plain_cell(time: "Estimate | None") -> str:
    return "-" if time is None else format_seconds(time.value) if time.value else "0"


def _gain_cell(one: "Ranked") -> str:
    if one.is_present:
        return "present"
    if one.gain is None:
        return "-"
    number, interval = with_interval(one.gain.value, one.gain.low, one.gain.high)
    return f"×{number} {interval}".rstrip()


def _pays_cell(one: "Ranked") -> str:
    from linkscope.report.break_even import break_even_text

    return "" if one.is_present else break_even_text(one.pays) if one.pays else "-"


def _print_legend(found: "Answer", shown: "Sequence[Ranked]", rows: Sequence[tuple[str, ...]]) -> None:
    from linkscope.advise.calls import call_text
    from linkscope.advise.ranking import ASSUMED_ERROR
    from linkscope.advise.transfer_text import unlisted_text
    from linkscope.report.glossary import terms_in
    from linkscope.report.trust import signs_mean
    from linkscope.units import format_fraction

    lines = []
    if found.methods:
        fastest = found.methods[0].candidate.reading.curve.method
        lines.append(f"fastest: {call_text(fastest, found.asked.src, found.asked.dst)}")
    lines += [unlisted_text(count, reason) for count, reason in found.unlisted]
    if found.asked.alone and found.unlisted:
        lines.append("without --alone, batched copies of all methods are compared")
    lines += found.notes
    if any(one.pays for one in shown):
        lines.append(
            "pays off: the number of copies from which the method is faster in all than the present one. It has then "
            "earned back what it costs once, such as pinning"
        )
    if any(count > 1 for rank, count in Counter(one.rank for one in shown).items() if rank):
        lines.append("methods share a rank where no interval shows that one of them is faster")
    if any(None in (one.candidate.time.low, one.candidate.time.high) for one in shown):
        lines.append(f"times without an interval count as +-{format_fraction(ASSUMED_ERROR)} in the ranks")
    predicted = [point for one in shown if one.candidate.predicted for point in one.candidate.predicted.points]
    if any(point.ci95_s and point.ci_level for point in predicted):
        lines.append("predicted: the interval is the error that 90 % of the model's points do not exceed")
    elif any(point.ci95_s for point in predicted):
        lines.append("predicted: the interval is what the machine file knows of the disk's rate")
    missing = dict.fromkeys(
        one.once.missing for one in shown if one.once.missing and (found.asked.reuse or not one.pays)
    )
    if missing:
        cure = "; linkscope run --suite full measures them" if found.run and not measures_all(found.run) else ""
        lines.append(f"methods without a break-even need costs that are not known: {', '.join(missing)}{cure}")
    signs = {_sign_between(one, found.asked.bytes).strip() for one in shown}
    if _BY_HOST in signs:
        lines.append(f"{_BY_HOST} the calls of the host take longer than the GPU's copies, and this is their time")
    if _INTERPOLATED in signs:
        how = ", or proportional to the number of pieces" if found.asked.piece else ""
        lines.append(f"{_INTERPOLATED} interpolated between the two neighbouring sizes{how}")
    lines += signs_mean(" ".join(" ".join(row[2:4]) for row in rows))
    lines += [f"{term}: {meaning}" for term, meaning in terms_in(" ".join(row[1] for row in rows))]
    for line in lines:
        print(filled(line, "  ", "    "))


def _print_recipes(found: "Answer", shown: "Sequence[Ranked]") -> None:
    """Prints needs and code: first those of each memory, then those that methods have in common."""
    from linkscope.advise.recipes import recipe
    from linkscope.advise.transfer_text import names

    listed = names([one.candidate.reading for one in shown], alone=found.asked.alone)
    recipes = [recipe(one.candidate.method, found.asked, several_nodes=found.several_nodes) for one in shown]
    print("\nWhat the methods need, and their code:")
    for what, lines in dict.fromkeys(part for how in recipes for part in how.memory):
        print(f"  {what}:" + ("" if lines else " it holds the data now"))
        if lines:
            print(textwrap.indent(lines, "    "))
    groups: dict[Recipe, list[str]] = {}
    for how, name in zip(recipes, listed, strict=True):
        groups.setdefault(dataclasses.replace(how, memory=()), []).append(name)
    for how, of_recipe in groups.items():
        print(filled("; ".join(of_recipe), "  ", "    "))
        if how.needs:
            print(filled(f"needs: {'; '.join(how.needs)}", "    ", "      "))
        print(textwrap.indent(how.call, "    "))
