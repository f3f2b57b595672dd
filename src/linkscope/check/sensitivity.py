"""The smallest fault that a check finds."""

import math
from collections.abc import Mapping

from linkscope.compare import Comparison, Pair
from linkscope.runfile import size_class
from linkscope.stats import median
from linkscope.units import format_fraction


def sensitivity_text(compared: Comparison, margins: Mapping[str, float]) -> str:
    """'A slowdown of 2.3 % (pinned) or 5.9 % (latency) is detected with 95 % probability.'

    `margins`: by id, the change that counts as none, where it is not that of the comparison.
    """
    judged, noisy = (_by_group(compared, margins, judged=side) for side in (True, False))
    found = " or ".join(f"{format_fraction(change)} ({name})" for name, change in judged.items())
    left = ", ".join(f"{name} ({format_fraction(change)})" for name, change in noisy.items())
    text = f"A slowdown of {found} is detected with 95 % probability." if found else ""
    return text + (f" Too noisy to judge (smallest detectable slowdown in brackets): {left}." if left else "")


def _by_group(compared: Comparison, margins: Mapping[str, float], *, judged: bool) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for pair in compared.pairs:
        if pair.judged == judged and pair.interval and pair.detectable is not None:
            found.setdefault(pair.group.name, []).append(smallest_fault(pair, margin_of(pair, compared, margins)))
    return {name: median(changes) for name, changes in found.items()}


def margin_of(pair: Pair, compared: Comparison, margins: Mapping[str, float]) -> float:
    """The change of a point that counts as none."""
    return margins.get(pair.id, compared.margins[size_class(pair.before.bytes)])


def smallest_fault(pair: Pair, margin: float) -> float:
    """The smallest change of a time that is seen, and that exceeds the margin, with 95 % probability each."""
    assert pair.interval is not None and pair.detectable is not None
    noise = math.sqrt(pair.interval.high / pair.interval.low)
    return max(pair.detectable, (1 + margin) * noise - 1)
