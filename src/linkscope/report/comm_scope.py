"""A run as Comm|Scope prints it: mean and standard deviation of the repetitions, by the rule of that tool."""

from collections.abc import Iterator

from linkscope.runfile import Flow, Point, Run
from linkscope.units import format_seconds

_BIDIRECTIONAL = " (bidirectional, from the first start to the last end)"


def text(run: Run) -> str:
    """One line for each flow in the order of the plan, and a total for flows that run together. Empty without means."""
    order = {id: number for number, id in enumerate(run.header.plan.get("points", []))}
    points = sorted(run.points, key=lambda point: order.get(point.id, len(order)))
    lines = [line for point in points for line in _lines(point)]
    width = max((len(name) for name, *_ in lines), default=0)
    head = f"{'':<{width}}  {'mean':>9}  {'stddev':>9}  {'GB/s':>8}"
    shown = (f"{name:<{width}}  {mean:>9}  {deviation:>9}  {rate:>8}" for name, mean, deviation, rate in lines)
    return "\n".join([head, *shown]) if lines else ""


def _lines(point: Point) -> Iterator[tuple[str, str, str, str]]:
    for number, flow in enumerate(point.flows):
        if flow.mean_s is not None:
            name = f"{point.id} ({flow.src} -> {flow.dst})" if len(point.flows) > 1 else point.id
            yield name, format_seconds(flow.mean_s), _deviation(flow), _rate(flow.bytes / flow.mean_s / 1e9)
            if number + 1 == len(point.flows) > 1 and "together_s" in point.guards and point.total_gbps:
                together = format_seconds(point.guards["together_s"])
                yield f"{point.id}{_BIDIRECTIONAL}", together, "", _rate(point.total_gbps)


def _deviation(flow: Flow) -> str:
    return "" if flow.stddev_s is None else format_seconds(flow.stddev_s)


def _rate(gbps: float) -> str:
    return f"{gbps:.4g}" if gbps else ""
