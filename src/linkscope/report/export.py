"""Runs as tables for other programs, here CSV. A row is one flow of a point; a point without flows also has a row."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from linkscope.model.curves import total_of
from linkscope.report.trust import reason_text
from linkscope.runfile import Flow, Point, Run

Limit = tuple[float | None, str | None]  # peak in GB/s, and its derivation


@dataclass(frozen=True)
class _Row:
    point: Point
    flow: Flow | None
    limit: Limit
    modelled: bool

    @property
    def values(self) -> Flow | Point:
        """The flow that holds the values, or the point where it has no flow."""
        return self.flow or self.point


# Name, type, meaning and source. Times in seconds, sizes in bytes, rates in GB/s (1e9 bytes a second).
COLUMNS: tuple[tuple[str, type, str, Callable[[_Row], Any]], ...] = (
    ("id", str, "canonical id of the point", lambda r: r.point.id),
    ("status", str, "ok, inherited, missed_precision, unsupported, failed or skipped", lambda r: r.point.status),
    ("reason", str, "reason for the status", lambda r: r.point.reason and reason_text(r.point.reason)),
    ("benchmark", str, "the operation", lambda r: r.point.benchmark),
    ("engine", str, "what moves the data", lambda r: r.point.engine),
    (
        "mode",
        str,
        "batched: one operation among many; single: a single operation",
        lambda r: r.point.params.get("mode"),
    ),
    ("params", str, "all other parameters, name=value joined by ;", lambda r: _params(r.point)),
    ("flow", int, "number of the flow in the point, from 0", lambda r: _number(r.point, r.flow)),
    ("role", str, "measured or background", lambda r: r.flow.role if r.flow else None),
    ("src", str, "source place", lambda r: r.values.src),
    ("src_memory", str, "source memory kind", lambda r: r.values.src_memory),
    ("dst", str, "destination place", lambda r: r.values.dst),
    ("dst_memory", str, "destination memory kind", lambda r: r.values.dst_memory),
    ("bytes", int, "of one operation", lambda r: r.values.bytes),
    ("median_s", float, "median of the round medians", lambda r: r.values.median_s),
    ("ci_low_s", float, "lower end of the interval", lambda r: _end(r.values, 0)),
    ("ci_high_s", float, "upper end of the interval", lambda r: _end(r.values, 1)),
    ("ci_level", float, "confidence level of the interval", lambda r: r.point.ci_level),
    ("ci_method", str, "method of the interval", lambda r: r.point.ci_method),
    ("gbps", float, "rate of this flow", lambda r: r.values.gbps),
    ("total_gbps", float, "rate of all measured flows of the point", lambda r: r.point.total_gbps),
    ("total_ci_low_gbps", float, "lower end of the interval of the total", lambda r: _total_end(r.point, "low")),
    ("total_ci_high_gbps", float, "upper end of the interval of the total", lambda r: _total_end(r.point, "high")),
    ("limit_gbps", float, "peak of the hardware for this flow", lambda r: r.limit[0]),
    ("limit_source", str, "derivation of the peak", lambda r: r.limit[1]),
    ("rounds", int, "rounds that count", lambda r: len(r.flow.round_medians_s) if r.flow else 0),
    ("samples", int, "samples in them", lambda r: sum(map(len, r.flow.samples_s)) if r.flow else 0),
    (
        "within_rounds",
        float,
        "spread within a round, as a fraction of the median",
        lambda r: _spread(r.point, "within_rounds"),
    ),
    (
        "between_rounds",
        float,
        "spread between rounds, as a fraction of the median",
        lambda r: _spread(r.point, "between_rounds"),
    ),
    ("precision_target", float, "target half-width, as a fraction of the median", lambda r: r.point.precision_target),
    ("timing", str, "timing method", lambda r: r.point.timing),
    ("batch", int, "operations in a batch of the first actor", lambda r: r.point.batch[0] if r.point.batch else None),
    (
        "longer",
        int,
        "length of the longer batch over that of the batch; 1: no longer batch",
        lambda r: r.point.longer,
    ),
    ("overhead_s", float, "cost of a batch apart from its operations", lambda r: r.point.overhead_s),
    ("verified", bool, "whether the data were compared and correct", lambda r: r.point.verified),
    ("footprint_bytes", int, "bytes that a batch rotates over", lambda r: r.point.footprint_bytes),
    ("device_s", float, "time that measuring took", lambda r: r.point.device_s),
    ("modelled", bool, "true: a model, no hardware was measured", lambda r: r.modelled),
)


def rows(run: Run) -> Iterator[list[Any]]:
    """The values of COLUMNS for each flow of each point, in the order of the run file. None: no value."""
    limits = _Limits(run.points)
    for point in run.points:
        flows: list[Flow | None] = [*point.flows] or [None]
        for flow in flows:
            row = _Row(point, flow, limits.of(point, flow), run.modelled)
            yield [value(row) for _, _, _, value in COLUMNS]


def write_csv(run: Run, stream: TextIO) -> None:
    """Writes the rows with the names of COLUMNS as the header. An empty cell has no value."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([name for name, _, _, _ in COLUMNS])
    for row in rows(run):
        writer.writerow([cell_text(cell) for cell in row])


def to_csv(run: Run) -> str:
    """The rows as text."""
    stream = io.StringIO()
    write_csv(run, stream)
    return stream.getvalue()


class _Limits:
    """The peak of each flow. A point states the peak of its own direction. For a flow in another direction, such as
    the opposite one, the peak comes from a point of the run with that direction.
    """

    def __init__(self, points: Iterable[Point]) -> None:
        self._of: dict[tuple[str, ...], set[Limit]] = {}
        for point in points:
            if point.limit_gbps is not None:
                key = _path_key(point, point.params.get("peer", "on"))
                self._of.setdefault(key, set()).add((point.limit_gbps, point.limit_source))

    def of(self, point: Point, flow: Flow | None) -> Limit:
        if flow is None or (flow.src, flow.dst) == (point.src, point.dst):
            return point.limit_gbps, point.limit_source
        found = self._of.get(_path_key(flow, point.params.get("peer", "on")), set())
        return next(iter(found)) if len(found) == 1 else (None, None)


def _path_key(of: Flow | Point, peer: str) -> tuple[str, ...]:
    return of.src, of.src_memory, of.dst, of.dst_memory, peer


def cell_text(value: object) -> str:
    """The text of a cell of the CSV; '' for no value."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _params(point: Point) -> str:
    return ";".join(f"{name}={value}" for name, value in sorted(point.params.items()) if name != "mode")


def _number(point: Point, flow: Flow | None) -> int:
    return next((index for index, one in enumerate(point.flows) if one is flow), 0)


def _end(value: Flow | Point, which: int) -> float | None:
    """An end of the interval. No time is negative, but intervals in older run files may begin below 0."""
    return max(value.ci95_s[which], 0.0) if value.ci95_s is not None else None


def _total_end(point: Point, end: str) -> float | None:
    """An end of the interval of the joint rate; None for one flow, and for runs that did not record the joint time."""
    total = total_of(point) if "together_ci95_s" in point.guards else None
    return getattr(total, end) if total is not None else None


def _spread(point: Point, name: str) -> float | None:
    return getattr(point.spread, name) if point.spread is not None else None
