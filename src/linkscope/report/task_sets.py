"""Transfer tasks and message tasks, one kind alone and both at once (suites `sp-8`, `sp-9` and `sp-11`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from linkscope.runfile import Flow, Point, Run

_SAME = ("sets", "message", "messages", "threads", "channel")  # parameters of one comparison


@dataclass(frozen=True)
class Range:
    """Minimum, mean and maximum over tasks."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class Compared:
    """A quantity of tasks alone and at once: a value for each task, in the same order. `again`: alone once more.

    A quantity is a time in seconds, or with `rate` a rate in GB/s, of which more is better.
    """

    name: str
    rate: bool
    alone: list[float]
    at_once: list[float]
    again: list[float]

    @property
    def over_good(self) -> Range:
        """The penalty over the good value: |bad - good| / good of each task."""
        return _range([self._loss(*pair) / pair[0] for pair in self._pairs()])

    @property
    def over_bad(self) -> Range:
        """The penalty over the bad value: |bad - good| / bad of each task."""
        return _range([self._loss(*pair) / pair[1] for pair in self._pairs()])

    @property
    def drift(self) -> float | None:
        """The change of the mean alone, from before the work at once to after it; None if it did not run again."""
        return sum(self.again) / len(self.again) / (sum(self.alone) / len(self.alone)) - 1 if self.again else None

    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.alone, self.at_once, strict=True))

    def _loss(self, good: float, bad: float) -> float:
        return good - bad if self.rate else bad - good


@dataclass(frozen=True)
class TaskSet:
    """One point of both kinds at once, with what it is compared with."""

    point: Point
    compared: list[Compared]


def task_sets(run: Run) -> list[TaskSet]:
    """All points of both kinds of tasks whose kinds were also measured alone, in the order of their ids."""
    points = {_key(point): point for point in run.points if "at" in point.params and point.flows}
    made = []
    for key, point in sorted(points.items()):
        if point.params["at"] != "both":
            continue
        found = [
            *_compared(points, point, key, "transfers"),
            *_compared(points, point, key, "messages"),
        ]
        if found:
            made.append(TaskSet(point, found))
    return made


Key = tuple[str, str, str, str, tuple[str, ...]]  # source, destination, `at`, `again`, the rest


def _key(point: Point, at: str = "", again: str | None = None) -> Key:
    params = point.params
    rest = tuple(params.get(name, "") for name in _SAME)
    return point.src, point.dst, at or params["at"], params.get("again", "") if again is None else again, rest


def _alone(points: dict[Key, Point], both: Point, at: str, again: str) -> Point | None:
    """The tasks of one kind alone. Transfers alone do not depend on the messages."""
    src, dst, _, _, rest = _key(both)
    for key, point in points.items():
        same = range(1) if at == "transfers" else range(3)
        if key[:4] == (src, dst, at, again) and all(key[4][part] == rest[part] for part in same):
            return point
    return None


def _compared(points: dict[Key, Point], both: Point, key: Key, at: str) -> list[Compared]:
    alone, again = _alone(points, both, at, ""), _alone(points, both, at, "true")
    if alone is None:
        return []
    sides = [_of_kind(point, at) if point else [] for point in (alone, both, again)]
    if len(sides[0]) != len(sides[1]):
        return []
    if at == "transfers":
        return [Compared("transfers", True, *([flow.gbps or 0.0 for flow in side] for side in sides))]
    return [
        Compared(f"messages, {name}", False, *([getattr(flow, field) or 0.0 for flow in side] for side in sides))
        for name, field in (("median", "p50_s"), ("p99", "p99_s"))
    ]


def _of_kind(point: Point, at: str) -> list[Flow]:
    """The flows of transfers end at a GPU, those of messages at a NUMA node or a rank, which answers."""
    measured = [flow for flow in point.flows if flow.role == "measured"]
    return [flow for flow in measured if ("gpu:" in flow.dst) == (at == "transfers")]


def _range(values: Sequence[float]) -> Range:
    return Range(min(values), sum(values) / len(values), max(values))
