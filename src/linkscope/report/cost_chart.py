"""Charts of the cost of memory kinds over the number of transfers: allocation, n copies, and freeing."""

from collections.abc import Iterable, Mapping, Sequence

from linkscope.model.break_even import Choice, choices
from linkscope.model.curves import Estimate
from linkscope.report.break_even import compared_sizes
from linkscope.report.section import Figure, Legend, Legends
from linkscope.report.svg import SERIES_COLOURS, Series, swatch, uses_chart
from linkscope.runfile import Point
from linkscope.units import format_bytes

COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def cost_charts(points: Iterable[Point], modelled: bool) -> list[Figure]:
    """A chart for the first path of each direction, with all kinds of host memory at the largest compared size.

    Each line is the time of allocating the buffers, of n transfers, and of freeing them, without its interval: the
    table has the intervals.
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
    colours = {name: colour for colour, name in enumerate(list(cheapest)[:SERIES_COLOURS])}
    return [_chart(listed, colours, modelled) for listed in charts]


def _chart(listed: Sequence[Choice], colours: Mapping[str, int], modelled: bool) -> Figure:
    """`colours`: of each kind of memory that is drawn, the same in all charts."""
    order = sorted((one for one in listed if one.name in colours), key=lambda one: colours[one.name])
    series = [
        Series(colours[one.name], False, [(float(count), Estimate(_total(one, count))) for count in COUNTS])
        for one in order
    ]
    first = listed[0]
    what = f"{first.path}, {format_bytes(first.bytes)}"
    legend = Legends(tuple(Legend(swatch(colours[one.name]), one.name) for one in order))
    svg = uses_chart(f"cost of memory over the number of transfers, {what}", series, modelled)
    return Figure(f"memory-{first.path.src}-{first.path.dst}", svg, what, legend=legend)


def _total(one: Choice, count: int) -> float:
    return one.cost.time.value + count * one.transfer.time.value
