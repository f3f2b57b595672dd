"""Loaded latency: the time of small operations against background traffic in ten steps (suite `loaded-latency`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from linkscope.model.curves import Estimate
from linkscope.report.trust import sign_of
from linkscope.runfile import Point, Run
from linkscope.stats import median, median_interval

_PREFIX = "loaded_"


@dataclass(frozen=True)
class Level:
    """One step. `load`: tenths of the time in which the background works. `background_gbps`: its rate, if it has bytes.

    `half`, `tail`: the median and the p99 of the samples of a round, as medians over the rounds, in seconds.
    `predicted_s`: by the model, if there is one. `sign`: of a value that missed its precision.
    """

    id: str
    load: int
    background_gbps: float | None
    half: Estimate
    tail: Estimate
    predicted_s: float | None
    sign: str


@dataclass(frozen=True)
class Loaded:
    """A small operation against one kind of background traffic; the levels by their load."""

    kind: str
    path: str
    beside: str
    levels: tuple[Level, ...]

    def at(self, load: int) -> Level | None:
        """The level of a load."""
        return next((level for level in self.levels if level.load == load), None)


def loaded(run: Run) -> list[Loaded]:
    """All curves with two levels or more, in the order of the plan."""
    order = {id: at for at, id in enumerate(run.header.plan.get("points", ()))}
    groups: dict[tuple[str, str, str], list[Level]] = {}
    for point in sorted(run.points, key=lambda one: order.get(one.id, len(order))):
        if point.benchmark.startswith(_PREFIX) and point.median_s and "load" in point.params:
            path = point.src if point.src == point.dst else f"{point.src} -> {point.dst}"
            key = (point.benchmark.removeprefix(_PREFIX), path, point.params["beside"])
            groups.setdefault(key, []).append(_level(run, point))
    return [
        Loaded(*key, tuple(sorted(levels, key=lambda level: level.load)))
        for key, levels in groups.items()
        if len(levels) > 1
    ]


def _level(run: Run, point: Point) -> Level:
    rounds = [sorted(samples) for samples in point.flows[0].samples_s if samples]
    rates = [flow.gbps for flow in point.flows if flow.role == "background" and flow.gbps]
    seconds = run.predicted.seconds.get(point.id) if run.predicted else None
    return Level(
        point.id,
        int(point.params["load"]),
        sum(rates) if rates else None,
        _over_rounds([median(of) for of in rounds]),
        _over_rounds([of[-(len(of) // 100) - 1] for of in rounds]),
        seconds[0] if seconds else None,
        sign_of([point]),
    )


def _over_rounds(values: Sequence[float]) -> Estimate:
    ends = median_interval(values)
    return Estimate(median(values), ends.low if ends else None, ends.high if ends else None)
