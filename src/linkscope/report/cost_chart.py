"""Charts of the cost of memory kinds over the number of transfers: allocation, n copies, and freeing."""

from collections.abc import Iterable, Mapping, Sequence

from linkscope.model.break_even import PAGEABLE, Choice, choices
from linkscope.model.curves import Estimate
from linkscope.report.break_even import compared_sizes
from linkscope.report.family_words import memory_text
from linkscope.report.section import Figure, Legend, Legends
from linkscope.report.svg import SERIES_COLOURS, Series, swatch, uses_chart
from linkscope.runfile import Point
from linkscope.units import format_bytes

COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
ALIKE = 0.1  # kinds whose costs differ by less at every number of transfers share a line


def cost_charts(points: Iterable[Point], modelled: bool) -> list[Figure]:
    """A chart for the first path of each direction, with all kinds of host memory at the largest compared size.

    Each line is the time of allocating the buffers, of n transfers, and of freeing them, without its interval: the
    table has the intervals. Kinds within 10 % at every n share a line.
    """
    found = [one for one in choices(points) if one.side == "host"]
    if not found:
        return []
    largest = max(compared_sizes(found))
    of_path: dict[bool, list[Choice]] = {}
    for one in found:
        listed = of_path.setdefault(one.path.src.rpartition("/")[2].startswith("gpu"), [])
        if one.bytes == largest and (not listed or listed[0].path == one.path):
            listed.append(one)
    charts = [listed for _, listed in sorted(of_path.items()) if len(listed) > 1]
    cheapest = {one.name: None for listed in charts for one in sorted(listed, key=lambda one: _total(one, COUNTS[-1]))}
    kept = sorted(cheapest, key=lambda name: name != str(PAGEABLE))[
        :SERIES_COLOURS
    ]  # with the kind that others replace
    colours = {name: colour for colour, name in enumerate(kept)}
    return [_chart(listed, colours, modelled) for listed in charts]


def _chart(listed: Sequence[Choice], colours: Mapping[str, int], modelled: bool) -> Figure:
    """`colours`: of each kind of memory that is drawn, the same in all charts."""
    groups = _alike(sorted((one for one in listed if one.name in colours), key=lambda one: colours[one.name]))
    series = [
        Series(colours[of[0].name], False, [(float(count), Estimate(_total(of[0], count))) for count in COUNTS])
        for of in groups
    ]
    first = listed[0]
    what = f"{first.path.src} → {first.path.dst}, {format_bytes(first.bytes)}"
    names = [", ".join(_kind_text(one.name) for one in of) for of in groups]
    legend = Legends(tuple(Legend(swatch(colours[of[0].name]), name) for of, name in zip(groups, names, strict=True)))
    svg = uses_chart(f"cost of memory over the number of transfers, {what}", series, modelled)
    return Figure(f"memory-{first.path.src}-{first.path.dst}", svg, what, legend=legend)


def _kind_text(name: str) -> str:
    """'registered huge pages, 2MiB' for 'registered_hugepage 2MiB'."""
    kind, _, param = name.partition(" ")
    return memory_text(kind) + (f" of {param}" if param[:1].isdecimal() else f" {param}" if param else "")


def _alike(order: Sequence[Choice]) -> list[list[Choice]]:
    """Kinds whose lines would lie on each other, as one line of the first of them."""
    groups: list[list[Choice]] = []
    for one in order:
        for of in groups:
            pairs = [(_total(one, count), _total(of[0], count)) for count in COUNTS]
            if all(max(pair) <= min(pair) * (1 + ALIKE) for pair in pairs):
                of.append(one)
                break
        else:
            groups.append([one])
    return groups


def _total(one: Choice, count: int) -> float:
    return one.cost.time.value + count * one.transfer.time.value
