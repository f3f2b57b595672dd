"""The copies of each step by kind, as recorded and as expected: Comm|Scope's figure 1 (CS-27) for a recorded trace."""

import bisect
from dataclasses import dataclass

from linkscope.explain.findings import Explanation


@dataclass
class KindTimes:
    """The copies of one kind in one step. `expected_s`: a copy of which nothing is known counts as recorded."""

    copies: int = 0
    bytes: int = 0
    took_s: float = 0.0
    expected_s: float = 0.0


@dataclass(frozen=True)
class StepTimes:
    """A step and its copies by kind: h2d, d2h, d2d, local."""

    name: str
    kinds: dict[str, KindTimes]


def by_step(found: Explanation) -> list[StepTimes]:
    """Each step with the copies that begin in it; the whole trace as one step where it states none."""
    recorded = found.recorded
    steps = recorded.steps
    made = [StepTimes(step.name, {}) for step in steps] or [StepTimes("whole trace", {})]
    starts = [step.start_s for step in steps]
    for copy, expected in zip(recorded.copies, found.expected_s, strict=True):
        at = bisect.bisect_right(starts, copy.start_s) - 1 if steps else 0
        if at < 0 or (steps and copy.start_s >= steps[at].end_s):
            continue  # before the first step, or between two
        times = made[at].kinds.setdefault(copy.kind, KindTimes())
        times.copies += 1
        times.bytes += copy.bytes
        times.took_s += copy.seconds
        times.expected_s += copy.seconds if expected is None else expected
    return made
