"""By whose rule points are measured (`run --rule`). How each does it is in linkscope/run, one file a rule."""

from dataclasses import dataclass
from typing import Literal, get_args

RuleName = Literal["linkscope", "nvbandwidth", "comm-scope"]


@dataclass(frozen=True)
class MeasuringRule:
    """`one_round`: it measures in one process, so that there is no interval between processes. `point_s`: seconds that
    it takes for each point at least, however short an operation is. `mean`: its result is the mean of its samples, with
    their standard deviation."""

    name: RuleName
    summary: str
    one_round: bool = True
    point_s: float = 0.0
    mean: bool = False


RULES: dict[RuleName, MeasuringRule] = {
    rule.name: rule
    for rule in (
        MeasuringRule("linkscope", "rounds in fresh processes until the interval is narrow", one_round=False),
        MeasuringRule("nvbandwidth", "three samples of 16 copies behind 4 to warm up, in one process"),
        MeasuringRule(
            "comm-scope",
            "five repetitions of 1 s of single operations, their mean and standard deviation",
            point_s=5.0,
            mean=True,
        ),
    )
}
assert tuple(RULES) == get_args(RuleName)
