"""The rates of the summary: plain copies of each direction against their peak, also pageable, and the half rate."""

import statistics
from collections.abc import Collection, Iterable, Sequence

from linkscope.model.curves import Curve, curves, has_gap, method_of, path_of
from linkscope.model.text import count_text, sizes_text
from linkscope.report.headline import COPIES, RateRow, Rates, headline_rows, is_headline
from linkscope.report.outcome import has_older_interval
from linkscope.report.section import Bar, BarPart
from linkscope.report.trust import inherited, sign_of
from linkscope.runfile import Point, Run, half_width
from linkscope.units import digits3, format_bytes, format_fraction, format_rate_interval

_SHOWN = ("h2d", "d2h", "d2d", "local")
_MOST_MORE = 2  # further kinds of memory or links of a direction


def direction_bars(run: Run, drawn: Collection[str]) -> list[Bar]:
    """A bar for each direction that was measured by plain copies. `run` without points of several paths.

    `drawn`: the operations that have a figure of curves, to which the bar links.
    """
    rows = [row for row in headline_rows(run) if row.unidirectional is not None]
    batched = [curve for curve in curves(filter(is_headline, run.points)) if curve.batched]
    found = []
    for benchmark in _SHOWN:
        of = sorted((row for row in rows if row.where == COPIES[benchmark]), key=_is_second)
        if of:
            link = "#curves" if benchmark in drawn else "#paths"
            found.append(_bar(COPIES[benchmark], link, of, batched))
    return found


def shown_points(run: Run) -> list[tuple[str, Point]]:
    """The points of the bars, each with the name of its bar: 'host → GPU, pageable'."""
    return [
        (f"{row.where}, {row.memory}" if row.memory else row.where, point)
        for row in headline_rows(run)
        if row.unidirectional is not None and row.where != COPIES["h2h"]
        for point in row.unidirectional.points
    ]


def _is_second(row: RateRow) -> bool:
    return "pageable" in row.memory or "peer off" in row.memory


def _bar(label: str, link: str, rows: Sequence[RateRow], batched: Sequence[Curve]) -> Bar:
    first, *more = rows
    shown = (first, *[row for row in more if _is_second(row)][:_MOST_MORE])
    highest = max((peak for row in shown for peak in _of(row).peaks if peak), default=0.0)
    parts = tuple(_part(row, highest) for row in shown)
    others = [row for row in more if not _is_second(row)]
    notes = [_paths_text(first)]
    if half := _half_text(first, batched):
        notes.append(f"{first.memory}: {half}" if first.memory else half)
    notes += [f"{row.memory}: rounds from {_range(ends)} GB/s" for row in shown if (ends := _of(row).unstable)]
    notes += [f"{count_text(len(others), 'other group')}: see the pairs"] if others else []
    return Bar(label[:1].upper() + label[1:], parts, tuple(notes), link)


def _part(row: RateRow, highest: float) -> BarPart:
    """`highest`: the peak at which a bar would be full, so that bars of one direction compare as their rates."""
    rates = _of(row)
    shares = rates.shares
    own = statistics.median(peaks) if (peaks := [one for one in rates.peaks if one]) else 0.0
    share = None if shares is None else _share(rates) * own / highest
    peak = f" of {_range([one for one in rates.peaks if one])}" if shares else ""
    above = ", above its peak" if shares and shares[1] > 1 else ""
    text = f"{format_fraction(_share(rates))}{peak}{above}" if shares else "peak unknown"
    return BarPart(
        row.memory or "by copy engine", _rate_text(rates), share, text, not _measured(rates), _sizes_text(rates).strip()
    )


def _share(rates: Rates) -> float:
    """The share of the peak that the number of the bar has, so that both agree."""
    values = [value for _, value in _measured(rates)] or list(rates.values)
    return float(digits3(statistics.median(values))) / statistics.median(peak for peak in rates.peaks if peak)


def _sizes_text(rates: Rates) -> str:
    """' at 256 MiB', ' at 16 to 256 MiB': the sizes of the measured points."""
    points = [point for point, _ in _measured(rates)] or list(rates.points)
    return sizes_text(point.bytes for point in points)


def _of(row: RateRow) -> Rates:
    assert row.unidirectional is not None  # direction_bars() took only rows that have them
    return row.unidirectional


def _rate_text(rates: Rates) -> str:
    """'55.5 GB/s', '~8.64 GB/s': the median of the measured paths. Of unstable rates a note has the range."""
    measured = _measured(rates) or list(zip(rates.points, rates.values, strict=True))
    values = [value for _, value in measured]
    return sign_of(point for point, _ in measured) + f"{digits3(statistics.median(values))} GB/s"


def _measured(rates: Rates) -> list[tuple[Point, float]]:
    return [(p, value) for p, value in zip(rates.points, rates.values, strict=True) if not inherited(p)]


def _paths_text(row: RateRow) -> str:
    """'4 paths at 256 MiB: 55.4 to 55.6, up to ±0.2 %'; of one path its interval."""
    rates = _of(row)
    points = [point for point, _ in _measured(rates)] or list(rates.points)
    at = _sizes_text(rates)
    inherits = len(rates.points) - rates.measured
    left = f" ({inherits} inherited)" if inherits else ""
    if len(rates.points) == 1:
        (point,) = rates.points
        left = " (inherited)" if inherits else ""
        return f"{path_of(point).src} → {path_of(point).dst}{at}{left}: {_interval_text(point)}"
    widths = [width for point in points if (width := half_width(point)) is not None]
    known = len(widths) == len(points) and not any(map(has_older_interval, points))
    each = f", up to ±{format_fraction(max(widths))}" if known else ""
    return f"{len(rates.points)} paths{at}{left}: {_range(rates.values)}{each}"


def _range(values: Iterable[float]) -> str:
    """'55.4 to 55.6'; one number if the ends look alike."""
    ends = sorted(values)
    return " to ".join(dict.fromkeys((digits3(ends[0]), digits3(ends[-1]))))


def _interval_text(point: Point) -> str:
    from_to = point.ci95_s
    if from_to is None or not point.gbps or from_to[0] <= 0 or has_older_interval(point):
        return "no interval"
    low, high = (point.bytes / end / 1e9 for end in (from_to[1], from_to[0]))
    return format_rate_interval(point.gbps, low, high)


def _half_text(row: RateRow, batched: Iterable[Curve]) -> str:
    """'half of 55.5 GB/s from 256 KiB', from the measured path with the most sizes, as the curves and paths have it.

    'between 64 and 256 KiB' where no size between these was measured.
    """
    best = {(path_of(point), method_of(point)) for point in _of(row).points}
    of = [curve for curve in batched if (curve.path, curve.method) in best]
    curve = max(of, key=lambda one: sum(not inherited(point) for point in one.measured), default=None)
    half = curve.half_rate_bytes() if curve else None
    if curve is None or half is None:
        return ""
    below = curve.below_half()[0]
    rate = _rate_text(_of(row)).lstrip("~^")
    if below is not None and has_gap(below.bytes, half):
        return f"half of {rate} between{sizes_text((below.bytes, half)).removeprefix(' at').replace(' to ', ' and ')}"
    return f"half of {rate} from {format_bytes(half)}{'' if below else ' or less'}"
