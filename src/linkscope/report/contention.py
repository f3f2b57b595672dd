"""Who slows whom: the matrix of the suite `contention`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.report.trust import sign_of
from linkscope.runfile import Flow, Point, Run
from linkscope.stats import Interval, geometric_mean, median, median_interval, ratio_interval, student_interval

ALONE, AGAIN = "none", "again"
_PREFIX = "contended_"
_LEVEL = 0.95
_LEAST_FOR_P99 = 100  # samples
MISSED = 0.1  # a prediction that is off by more is said


@dataclass(frozen=True)
class Times:
    """Seconds of an operation. `interval`: 95 %, of the median; None for too few rounds. `p99` is None for fewer than
    100 samples. `p99_ends`: the lowest and the highest of the rounds' own p99, or the interval of stamped operations.
    """

    median: float
    interval: tuple[float, float] | None
    p99: float | None
    p99_ends: tuple[float, float] | None


@dataclass(frozen=True)
class Slowdown:
    """The time of an operation beside other work, over its time alone: the ratio of geometric means of the rounds.

    `seconds`: of an operation beside it, the geometric mean of the rounds. `times`: their median and p99. `interval` is
    None for too few rounds. `predicted`: the ratio of the model; None without a model, and where it cannot say.
    `sign`: of a ratio of points of which one missed its precision.
    """

    id: str
    ratio: float
    interval: Interval | None
    seconds: float
    times: Times
    sign: str
    predicted: float | None = None

    @property
    def deviation(self) -> float | None:
        """The model's ratio over the measured one, minus one."""
        return None if self.predicted is None else self.predicted / self.ratio - 1

    @property
    def missed(self) -> bool:
        """Whether the model is off by more than 10 %."""
        return self.deviation is not None and abs(self.deviation) > MISSED

    @property
    def uncertain(self) -> bool:
        """Whether the model's ratio lies within the measured interval."""
        ends = self.interval
        return ends is not None and self.predicted is not None and ends.low <= self.predicted <= ends.high

    @property
    def over_good(self) -> float:
        """The paper's penalty over the good value: (beside - alone) / alone."""
        return self.ratio - 1

    @property
    def over_bad(self) -> float:
        """The penalty over the bad value: (beside - alone) / beside."""
        return 1 - 1 / self.ratio


@dataclass(frozen=True)
class MatrixRow:
    """One measured kind of work on one path: alone, and beside each other kind.

    `predicted_s`: seconds of an operation alone by the model, if it can say.
    """

    kind: str
    path: str
    alone: Point
    beside: Mapping[str, Slowdown]
    again: Point | None = None  # alone, after the work at once
    predicted_s: float | None = None

    @property
    def alone_s(self) -> float:
        """Seconds of an operation alone: the geometric mean of the rounds."""
        return geometric_mean(_rounds(self.alone))

    @property
    def alone_times(self) -> Times:
        """Median and p99 of an operation alone."""
        return _times(self.alone)

    @property
    def drift(self) -> float | None:
        """The change of the time alone from before the work at once to after it; None if it did not run again."""
        if self.again is None:
            return None
        return geometric_mean(_rounds(self.again)) / geometric_mean(_rounds(self.alone)) - 1

    def slowed_by(self, other: str) -> bool:
        """Whether the other work slows this work by more than the drift explains."""
        found = self.beside[other].interval
        return found is not None and found.low > 1 + abs(self.drift or 0)


def matrix(run: Run) -> list[MatrixRow]:
    """The rows of all kinds that were measured alone and beside at least one other kind, in the order of the plan."""
    order = {id: at for at, id in enumerate(run.header.plan.get("points", ()))}
    groups: dict[tuple[str, str, str], dict[str, Point]] = {}
    for point in sorted(run.points, key=lambda point: order.get(point.id, len(order))):
        if point.benchmark.startswith(_PREFIX) and "beside" in point.params and point.median_s:
            key = (point.benchmark.removeprefix(_PREFIX), *_ends(point))
            groups.setdefault(key, {})[AGAIN if "again" in point.params else point.params["beside"]] = point
    rows = []
    for (kind, *_), found in groups.items():
        alone, again = found.pop(ALONE, None), found.pop(AGAIN, None)
        if alone is not None and found:
            path = alone.src if alone.src == alone.dst else f"{alone.src} -> {alone.dst}"
            basis = _predicted(run, alone)
            beside = {name: _slowdown(alone, of, _ratio(_predicted(run, of), basis)) for name, of in found.items()}
            rows.append(MatrixRow(kind, path, alone, beside, again, basis))
    return rows


def others(rows: Sequence[MatrixRow]) -> list[str]:
    """All kinds that ran beside one of the rows, in the order in which they occur."""
    return list(dict.fromkeys(name for row in rows for name in row.beside))


def _ends(point: Point) -> tuple[str, str]:
    """Where the work runs: the places of its flow. Beside reads of files, the point's source is their disk."""
    return point.flows[0].src, point.flows[0].dst


def _predicted(run: Run, point: Point) -> float | None:
    """Seconds of an operation by the model, as `_rounds` counts several flows."""
    seconds = run.predicted.seconds.get(point.id) if run.predicted else None
    return 1 / sum(1 / one for one in seconds) if seconds else None


def _ratio(beside: float | None, alone: float | None) -> float | None:
    return beside / alone if beside and alone else None


def _slowdown(alone: Point, beside: Point, predicted: float | None) -> Slowdown:
    before, after = _rounds(alone), _rounds(beside)
    interval = ratio_interval(before, after, alike=None, level=_LEVEL)
    ratio = geometric_mean(after) / geometric_mean(before)
    sign = sign_of((alone, beside))
    return Slowdown(beside.id, ratio, interval, geometric_mean(after), _times(beside), sign, predicted)


def _rounds(point: Point) -> list[float]:
    """Seconds of an operation in each round. Several measured flows count together: by their operations a second."""
    measured = [flow.round_medians_s for flow in point.flows if flow.role == "measured"]
    return [_together(times) for times in zip(*measured, strict=True)]


def _times(point: Point) -> Times:
    """Several measured flows count together, as in `_rounds`."""
    flows = [flow for flow in point.flows if flow.role == "measured"]
    if len(flows) == 1 and point.median_s is not None:
        return Times(point.median_s, point.ci95_s, *_p99(flows))
    rounds = _rounds(point)
    found = median_interval(rounds) or student_interval(rounds)
    return Times(median(rounds), (found.low, found.high) if found else None, *_p99(flows))


def _p99(flows: Sequence[Flow]) -> tuple[float | None, tuple[float, float] | None]:
    """Of single operations where each has its own time, otherwise of the mean time in an interval; with its ends."""
    if len(flows) == 1 and flows[0].p99_s is not None:
        return flows[0].p99_s, flows[0].p99_ci95_s
    # A flow may lack the last interval of a round.
    rounds = [
        [_together(times) for times in zip(*of_round, strict=False)]
        for of_round in zip(*(flow.samples_s for flow in flows), strict=True)
    ]
    samples = [sample for of_round in rounds for sample in of_round]
    if len(samples) < _LEAST_FOR_P99:
        return None, None
    ends = [_slowest(of_round) for of_round in rounds if of_round]
    return _slowest(samples), (min(ends), max(ends))


def _slowest(samples: Sequence[float]) -> float:
    """The sample that 1 % of them exceed; of fewer than 100 the largest."""
    return sorted(samples)[-(len(samples) // 100) - 1]


def _together(times: Iterable[float]) -> float:
    """Seconds of an operation of several flows together, by their operations a second."""
    return 1 / sum(1 / seconds for seconds in times)
