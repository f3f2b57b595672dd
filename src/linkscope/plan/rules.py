"""The rules by which points are measured (`run --rule`). Each rule is implemented in one file of linkscope/run."""

from dataclasses import dataclass
from typing import Literal, get_args

RuleName = Literal["linkscope", "nvbandwidth", "comm-scope"]


@dataclass(frozen=True)
class MeasuringRule:
    """A measurement rule. `one_round`: one process, so there is no interval between processes. `point_s`: minimum
    seconds of a point, however short the operation. `modelled_operations`: the most operations of a point on a model;
    more would repeat the same distribution. `mean`: the value is the mean of the samples, with their standard
    deviation."""

    name: RuleName
    summary: str
    one_round: bool = True
    point_s: float = 0.0
    modelled_operations: int = 0
    mean: bool = False


RULES: dict[RuleName, MeasuringRule] = {
    rule.name: rule
    for rule in (
        MeasuringRule("linkscope", "rounds in fresh processes until the interval is narrow enough", one_round=False),
        MeasuringRule("nvbandwidth", "three samples of 16 copies after 4 warm-up copies, in one process"),
        MeasuringRule(
            "comm-scope",
            "five repetitions of 1 s of single operations; mean and standard deviation",
            point_s=5.0,
            modelled_operations=5000,
            mean=True,
        ),
    )
}
assert tuple(RULES) == get_args(RuleName)
