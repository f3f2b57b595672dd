"""How far a value can be trusted: the sign that it carries where it cannot, and the words for why."""

import re
from collections.abc import Iterable

from linkscope.model.curves import measured_flows
from linkscope.runfile import Point, half_width
from linkscope.stats import deviation

SIGN = "~"  # stands before a number that missed its precision: can be read in print, and without colours
SIGN_MEANS = f"{SIGN} before a number: it missed its precision (a wider interval than was asked for, or none)"
INHERITED = "^"  # stands before a number that another path of its kind gave
INHERITED_MEANS = f"{INHERITED} before a number: inherited from another path of its class, not measured"
VOID = 0.5  # half an interval, of the value: such a value is nobody's best
WARNINGS = frozenset({"above_limit", "nonlinear", "throttled", "throttled_rounds", "timings", "in_turn"})
_STRAY = 2.0  # samples of so many times the value,
_FEW = 0.25  # and no more of them than this, move a standard deviation but no median


def missed(point: Point) -> bool:
    """Whether a point has a value without the precision that was asked for."""
    return point.status == "missed_precision" and point.median_s is not None


def has_warning(point: Point) -> bool:
    """Whether something was noticed that makes the value of a point doubtful."""
    return not WARNINGS.isdisjoint(point.guards)


def inherited(point: Point) -> bool:
    """Whether its value is that of another point."""
    return point.status == "inherited" and point.median_s is not None


def sign_of(points: Iterable[Point]) -> str:
    """What stands before a number of these points: one that missed its precision, or none that was measured."""
    listed = list(points)
    if any(map(missed, listed)):
        return SIGN
    return INHERITED if listed and all(map(inherited, listed)) else ""


def signs_mean(text: str) -> list[str]:
    """What the signs in a text mean."""
    return [means for sign, means in ((SIGN, SIGN_MEANS), (INHERITED, INHERITED_MEANS)) if sign in text]


def signed(text: str, points: Iterable[Point]) -> str:
    """The text of a number with its sign before it."""
    return sign_of(points) + text if text else text


def apart(point: Point) -> bool:
    """Whether several flows did not run together; their total is none, or that of flows that took turns."""
    rated = [flow for flow in measured_flows(point) if flow.gbps is not None]
    return "in_turn" in point.guards or (len(rated) > 1 and point.total_gbps is None)


def widest(point: Point) -> float | None:
    """Half of the widest interval of its measured flows, which decides whether it is precise, as a fraction of the
    value; None where one has none."""
    widths = [half_width(flow) for flow in measured_flows(point)]
    known = [width for width in widths if width is not None]
    return max(known) if known and len(known) == len(widths) else None


def void(point: Point) -> bool:
    """Whether the interval is so wide that the value says hardly anything."""
    width = half_width(point)
    return width is not None and width >= VOID


def reason_text(reason: str) -> str:
    """A reason of a run file as people read it. Of files that say 'asked was 0.05' it is 'asked was 5 %'."""
    match = re.search(r"the interval is \+-([\d.]+)%(.*?); asked was ([\d.e+-]*\d)(?! %)", reason)
    if match is not None:
        width, asked = float(match[1]), 100 * float(match[3])
        more = "a little more than " if f"{width:.4g}" == f"{asked:.4g}" else ""  # than the digits of the reason show
        told = f"the interval is {more}+-{match[1]} %{match[2]}; asked was {asked:.3g} %"
        reason = reason[: match.start()] + told + reason[match.end() :]
    return re.sub(r"(?<=\d)%", " %", reason)


def between_medians(point: Point) -> float | None:
    """The standard deviation of the medians of the rounds, which value and interval are made of, of their median."""
    medians = point.flows[0].round_medians_s if point.flows else []
    if len(medians) < 2 or not point.median_s:
        return None
    return deviation(medians) / point.median_s


def strays_text(point: Point) -> str:
    """'2 of 42 outlie' where a few samples are far longer than the value; '' where none is."""
    if point.spread is None or not point.flows or not point.median_s:
        return ""
    if point.spread.within_rounds < _STRAY / 8:  # no sample of many lies that far out
        return ""
    samples = [sample for samples in point.flows[0].samples_s for sample in samples]
    strays = sum(sample > _STRAY * point.median_s for sample in samples)
    return f"{strays} of {len(samples)} outlie" if 0 < strays <= _FEW * len(samples) else ""


taken = inherited  # cli/advise.py imports this name
