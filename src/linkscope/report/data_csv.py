"""Every point of a run once, as CSV: what the page holds, the explorer draws and the downloads save."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from linkscope.model.curves import MODE, Estimate, measured_flows, rate_of, share_of, time_of, total_of
from linkscope.report.outcome import STATUS_WORDS
from linkscope.report.trust import WARNINGS, above_peak, between_medians, inherited, outliers_text, reason_text
from linkscope.runfile import Point, Run, shown_status

# Times in seconds, sizes in bytes, rates in GB/s, shares and spreads as fractions; empty: no value.
COLUMNS = (
    "id", "kind", "engine", "src", "src_memory", "dst", "dst_memory", "bytes", "mode", "bidirectional", "params",
    "time_s", "time_low_s", "time_high_s", "gbps", "gbps_low", "gbps_high", "total_gbps", "total_low", "total_high",
    "peak_gbps", "of_peak", "rounds", "within", "between", "status", "origin", "note", "modelled",
)  # fmt: skip
# Columns that the page leaves out, and points.js finds in the others: they are a third of the text of a page.
_FOUND_IN_OTHERS = frozenset({*COLUMNS[1:11], "origin"})
ON_PAGE = tuple(name for name in COLUMNS if name not in _FOUND_IN_OTHERS)
NOT_METHOD = frozenset({MODE, "bidirectional"})  # parameters with a column of their own


def data_csv(run: Run, columns: Sequence[str] = COLUMNS) -> str:
    """The points in the order of the run file, below the names of these columns.

    Times and rates have six digits, shares of the peak four, and spreads three.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    places = [COLUMNS.index(name) for name in columns]
    rows = (_row(point, run.modelled) for point in run.points)
    writer.writerows([row[place] for place in places] for row in rows)
    return stream.getvalue()


def params_key(params: Iterable[tuple[str, str]]) -> str:
    """'after=kernel;peer=on': the parameters of a method in the column `params`, and in addresses."""
    return ";".join(f"{name}={value}" for name, value in sorted(params) if name not in NOT_METHOD)


def _row(point: Point, modelled: bool) -> list[str]:
    several = len(measured_flows(point)) > 1
    rounds = point.flows[0].round_medians_s if point.flows else []
    valued = point.median_s is not None
    return [
        *map(_one_line, (point.id, point.benchmark, point.engine, point.src, point.src_memory, point.dst)),
        _one_line(point.dst_memory), str(point.bytes), _one_line(point.params.get(MODE, "")),
        "true" if point.bidirectional else "false", _one_line(params_key(point.params.items())),
        *_estimate(time_of(point)), *_estimate(rate_of(point)), *_estimate(total_of(point) if several else None),
        _number(point.limit_gbps), _number(share_of(point), 4), str(len(rounds) or ""),
        _number(point.spread.within_rounds if point.spread else None, 3),
        _number(between_medians(point) if point.spread else None, 3),
        STATUS_WORDS[shown_status(point)], ("inherited" if inherited(point) else "measured") if valued else "",
        _one_line(_note(point)), "true" if modelled else "false",
    ]  # fmt: skip


def _note(point: Point) -> str:
    """The reason of the status, the warnings of the guards, and outliers."""
    named = sorted((WARNINGS - {"above_limit"}) & point.guards.keys())
    warnings = ["above its peak"] * above_peak(point) + [name.replace("_", " ") for name in named]
    # Of an interrupted run, nearly all points have this reason: in full it would be a fifth of the page.
    reason = re.sub(r"( of \d+ rounds): too few for an interval.*", r"\1", reason_text(point.reason or ""))
    return "; ".join(filter(None, (reason, *warnings, outliers_text(point))))


def _estimate(of: Estimate | None) -> tuple[str, str, str]:
    return (_number(of.value), _number(of.low), _number(of.high)) if of else ("", "", "")


def _number(value: float | None, digits: int = 6) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def _one_line(text: str) -> str:
    """The text without carriage returns, which HTML turns into line feeds."""
    return text.replace("\r", " ")
