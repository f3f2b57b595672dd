"""The trust in a value: the sign of missed precision or inheritance, and the reasons as text."""

import re
from collections.abc import Iterable

from linkscope.model.curves import measured_flows, share_of
from linkscope.runfile import Point, half_width
from linkscope.stats import deviation

SIGN = "~"  # before a number that missed its precision; readable in print and without colours
SIGN_MEANS = f"{SIGN} before a number: missed precision (the interval is wider than the target, or missing)"
ABOVE = " (!)"  # after a number above its peak
INHERITED = "^"  # before an inherited number
INHERITED_MEANS = f"{INHERITED} before a number: inherited from another path of its class, not measured"
TOO_UNCERTAIN = 0.5  # half the interval as a fraction of the value; wider values are not used as best rates
WARNINGS = frozenset({"above_limit", "nonlinear", "throttled", "throttled_rounds", "timings", "in_turn"})
_OUTLIER = 2.0  # an outlier is a sample above this multiple of the value,
_FEW = 0.25  # if at most this fraction of the samples is; outliers move the standard deviation but not the median


def missed(point: Point) -> bool:
    """Whether the point has a value and missed its target precision."""
    return point.status == "missed_precision" and point.median_s is not None


def has_warning(point: Point) -> bool:
    """Whether a guard questions the value of a point."""
    return not WARNINGS.isdisjoint(point.guards)


def above_peak(point: Point) -> bool:
    """Whether the value is above the peak of the hardware, as the run's own check or its share of the peak says."""
    share = share_of(point)
    return "above_limit" in point.guards or (share is not None and share > 1)


def inherited(point: Point) -> bool:
    """Whether the value was inherited from another point."""
    return point.status == "inherited" and point.median_s is not None


def sign_of(points: Iterable[Point]) -> str:
    """The sign before a number of these points: ~ if one missed precision, ^ if all were inherited."""
    listed = list(points)
    if any(map(missed, listed)):
        return SIGN
    return INHERITED if listed and all(map(inherited, listed)) else ""


def signs_mean(text: str) -> list[str]:
    """The meanings of the signs in a text."""
    return [means for sign, means in ((SIGN, SIGN_MEANS), (INHERITED, INHERITED_MEANS)) if sign in text]


def signed(text: str, points: Iterable[Point]) -> str:
    """The text of a number with its sign."""
    return sign_of(points) + text if text else text


def flows_ran_apart(point: Point) -> bool:
    """Whether several flows did not run together. Their total is missing, or it is one of flows at different times."""
    rated = [flow for flow in measured_flows(point) if flow.gbps is not None]
    return "in_turn" in point.guards or (len(rated) > 1 and point.total_gbps is None)


def widest(point: Point) -> float | None:
    """The widest interval of the measured flows, which decides on precision: half its width as a fraction of the value.

    None if a flow has no interval.
    """
    widths = [half_width(flow) for flow in measured_flows(point)]
    known = [width for width in widths if width is not None]
    return max(known) if known and len(known) == len(widths) else None


def is_too_uncertain(point: Point) -> bool:
    """Whether the interval is too wide for the value to be of use."""
    width = half_width(point)
    return width is not None and width >= TOO_UNCERTAIN


def reason_text(reason: str) -> str:
    """A readable form of a reason in a run file: 'asked was 0.05' becomes 'target was 5 %'."""
    match = re.search(r"the interval is \+-([\d.]+)%(.*?); asked was ([\d.e+-]*\d)(?! %)", reason)
    if match is not None:
        width, asked = float(match[1]), 100 * float(match[3])
        # The rounded digits of the reason can hide the difference.
        more = "a little more than " if f"{width:.4g}" == f"{asked:.4g}" else ""
        readable = f"the interval is {more}+-{match[1]} %{match[2]}; target was {asked:.3g} %"
        reason = reason[: match.start()] + readable + reason[match.end() :]
    return re.sub(r"(?<=\d)%", " %", reason)


def between_medians(point: Point) -> float | None:
    """The standard deviation of the round medians as a fraction of their median. Value and interval come from these."""
    medians = point.flows[0].round_medians_s if point.flows else []
    if len(medians) < 2 or not point.median_s:
        return None
    return deviation(medians) / point.median_s


def outliers_text(point: Point) -> str:
    """'2 of 42 are outliers' if a few samples are far above the value; otherwise ''."""
    if point.spread is None or not point.flows or not point.median_s:
        return ""
    if point.spread.within_rounds < _OUTLIER / 8:  # the spread is too small for an outlier
        return ""
    samples = [sample for samples in point.flows[0].samples_s for sample in samples]
    outliers = sum(sample > _OUTLIER * point.median_s for sample in samples)
    return f"{outliers} of {len(samples)} are outliers" if 0 < outliers <= _FEW * len(samples) else ""
