"""Transfer tasks and message tasks, one kind alone and both at once (suites `sp-8`, `sp-9` and `sp-11`), and both kinds
by one thread and by two (suite `sp-11`).
"""

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
    """A quantity of tasks in two situations, such as alone and at once: a value for each task, in the same order.
    `again`: the good situation once more.

    A quantity is a time in seconds, or with `rate` a rate in GB/s, of which more is better.
    """

    name: str
    rate: bool
    good: list[float]
    bad: list[float]
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
        """The change of the mean in the good situation, from before the bad one to after it; None if it did not run
        again."""
        return _mean(self.again) / _mean(self.good) - 1 if self.again else None

    @property
    def longer_s(self) -> float | None:
        """The mean over tasks of bad - good, in seconds; None for a rate."""
        return None if self.rate else _mean(self.bad) - _mean(self.good)

    def _pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.good, self.bad, strict=True))

    def _loss(self, good: float, bad: float) -> float:
        return good - bad if self.rate else bad - good


@dataclass(frozen=True)
class TaskSet:
    """One point of both kinds at once, with what it is compared with."""

    point: Point
    compared: list[Compared]


@dataclass(frozen=True)
class ThreadCost:
    """Both kinds of tasks by two threads, which is the good situation, and by one thread, which is the bad one
    (Spafford et al. 5.3). `drift`: the drift of each quantity alone, in the same run, by its name; 0 if it is not
    known."""

    two: Point
    one: Point
    compared: list[Compared]
    drift: dict[str, float]


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


def thread_costs(run: Run) -> list[ThreadCost]:
    """All points of one thread for both kinds that also have a point of two threads, in the order of their ids."""
    both = {_key(point): point for point in run.points if point.params.get("at") == "both" and point.flows}
    alone = {one.point.id: one for one in task_sets(run)}
    made = []
    for _, one in sorted(both.items()):
        two = both.get(_key(one, threads=""))
        if one.params.get("threads") != "one" or two is None:
            continue
        found = [of for at in ("transfers", "messages") for of in _of_situations(at, two, one)]
        drift = {of.name: of.drift or 0.0 for of in alone[two.id].compared} if two.id in alone else {}
        if found:
            made.append(ThreadCost(two, one, found, drift))
    return made


Key = tuple[str, str, str, str, tuple[str, ...]]  # source, destination, `at`, `again`, the rest


def _key(point: Point, **changed: str) -> Key:
    """The key of a point, with other values of some parameters."""
    params = point.params | changed
    rest = tuple(params.get(name, "") for name in _SAME)
    return point.src, point.dst, params["at"], params.get("again", ""), rest


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
    return _of_situations(at, alone, both, again)


def _of_situations(at: str, good: Point, bad: Point, again: Point | None = None) -> list[Compared]:
    """The quantities of one kind of tasks; none if the points have different numbers of tasks. A quantity that a task
    lacks, or that is 0, is left out: a fault leaves no penalty to state."""
    sides = [_of_kind(point, at) if point else [] for point in (good, bad, again)]
    if len(sides[0]) != len(sides[1]):
        return []
    fields = {"transfers": "gbps"} if at == "transfers" else {"messages, median": "p50_s", "messages, p99": "p99_s"}
    found = []
    for name, field in fields.items():
        before, beside, after = ([getattr(flow, field) or 0.0 for flow in side] for side in sides)
        if before and all(before) and all(beside):
            found.append(Compared(name, at == "transfers", before, beside, after if all(after) else []))
    return found


def _of_kind(point: Point, at: str) -> list[Flow]:
    """The flows of transfers end at a GPU, those of messages at a NUMA node or a rank, which answers."""
    measured = [flow for flow in point.flows if flow.role == "measured"]
    return [flow for flow in measured if ("gpu:" in flow.dst) == (at == "transfers")]


def _range(values: Sequence[float]) -> Range:
    return Range(min(values), _mean(values), max(values))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
