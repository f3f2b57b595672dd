"""Runs as tables for other programs: CSV with one row a flow of a point (a point without flows has one row too)."""

import csv
import io
from collections.abc import Callable
from typing import Any, TextIO

from linkscope.runfile import Flow, Point, Run

# Name, what it is, and where it comes from. Times in seconds, sizes in bytes, rates in GB/s (1e9 bytes a second).
COLUMNS: tuple[tuple[str, str, Callable[[Point, Flow | None], Any]], ...] = (
    ("id", "canonical id of the point", lambda point, flow: point.id),
    ("status", "ok, inherited, missed_precision, unsupported, failed or skipped", lambda point, flow: point.status),
    ("reason", "why it has this status", lambda point, flow: point.reason),
    ("benchmark", "the operation", lambda point, flow: point.benchmark),
    ("engine", "what moves the data", lambda point, flow: point.engine),
    ("mode", "batched: one operation among many; single: one alone", lambda point, flow: point.params.get("mode")),
    ("params", "all other parameters, name=value joined by ;", lambda point, flow: _params(point)),
    ("flow", "number of the flow in the point, from 0", lambda point, flow: _number(point, flow)),
    ("role", "measured or background", lambda point, flow: flow.role if flow else None),
    ("src", "from which place", lambda point, flow: (flow or point).src),
    ("src_memory", "from which kind of memory", lambda point, flow: (flow or point).src_memory),
    ("dst", "to which place", lambda point, flow: (flow or point).dst),
    ("dst_memory", "to which kind of memory", lambda point, flow: (flow or point).dst_memory),
    ("bytes", "of one operation", lambda point, flow: (flow or point).bytes),
    ("median_s", "median of the round medians", lambda point, flow: (flow or point).median_s),
    ("ci_low_s", "lower end of the interval", lambda point, flow: _end(flow or point, 0)),
    ("ci_high_s", "upper end of the interval", lambda point, flow: _end(flow or point, 1)),
    ("ci_level", "exact level of the interval", lambda point, flow: point.ci_level),
    ("gbps", "rate of this flow", lambda point, flow: (flow or point).gbps),
    ("total_gbps", "rate of all measured flows of the point", lambda point, flow: point.total_gbps),
    ("limit_gbps", "what the hardware allows flow 0", lambda point, flow: point.limit_gbps),
    ("limit_source", "how the limit is derived", lambda point, flow: point.limit_source),
    ("rounds", "rounds that count", lambda point, flow: len(flow.round_medians_s) if flow else 0),
    ("samples", "samples in them", lambda point, flow: sum(map(len, flow.samples_s)) if flow else 0),
    ("within_rounds", "spread within a round, of the median", lambda point, flow: _spread(point, "within_rounds")),
    ("between_rounds", "spread between rounds, of the median", lambda point, flow: _spread(point, "between_rounds")),
    ("precision_target", "half-width asked for, of the median", lambda point, flow: point.precision_target),
    ("timing", "how time was taken", lambda point, flow: point.timing),
    ("batch", "operations in a batch of the first actor", lambda point, flow: point.batch[0] if point.batch else None),
    ("overhead_s", "what a batch costs besides its operations", lambda point, flow: point.overhead_s),
    ("verified", "whether the data were compared and right", lambda point, flow: point.verified),
    ("footprint_bytes", "over how many bytes a batch rotates", lambda point, flow: point.footprint_bytes),
    ("device_s", "seconds that measuring took", lambda point, flow: point.device_s),
    ("modelled", "true: a model, no hardware was measured", lambda point, flow: None),
)


def write_csv(run: Run, stream: TextIO) -> None:
    """Writes COLUMNS of every point-flow, in the order of the run file. Empty cells: no value."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([name for name, _, _ in COLUMNS])
    for point in run.points:
        flows: list[Flow | None] = [*point.flows] or [None]
        for flow in flows:
            cells = [value(point, flow) for _, _, value in COLUMNS[:-1]]
            writer.writerow([_text(cell) for cell in (*cells, run.modelled)])


def to_csv(run: Run) -> str:
    """The same as text."""
    stream = io.StringIO()
    write_csv(run, stream)
    return stream.getvalue()


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _params(point: Point) -> str:
    return ";".join(f"{name}={value}" for name, value in sorted(point.params.items()) if name != "mode")


def _number(point: Point, flow: Flow | None) -> int:
    return next((index for index, one in enumerate(point.flows) if one is flow), 0)


def _end(value: Flow | Point, which: int) -> float | None:
    return value.ci95_s[which] if value.ci95_s is not None else None


def _spread(point: Point, name: str) -> float | None:
    return getattr(point.spread, name) if point.spread is not None else None
