"""Runs as tables for other programs: one row a flow of a point (a point without flows has one row too). Here as CSV."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from linkscope.runfile import Flow, Point, Run

# Name, type, what it is, and where it comes from. Times in seconds, sizes in bytes, rates in GB/s (1e9 bytes a second).
COLUMNS: tuple[tuple[str, type, str, Callable[[Point, Flow | None], Any]], ...] = (
    ("id", str, "canonical id of the point", lambda p, f: p.id),
    ("status", str, "ok, inherited, missed_precision, unsupported, failed or skipped", lambda p, f: p.status),
    ("reason", str, "why it has this status", lambda p, f: p.reason),
    ("benchmark", str, "the operation", lambda p, f: p.benchmark),
    ("engine", str, "what moves the data", lambda p, f: p.engine),
    ("mode", str, "batched: one operation among many; single: one alone", lambda p, f: p.params.get("mode")),
    ("params", str, "all other parameters, name=value joined by ;", lambda p, f: _params(p)),
    ("flow", int, "number of the flow in the point, from 0", lambda p, f: _number(p, f)),
    ("role", str, "measured or background", lambda p, f: f.role if f else None),
    ("src", str, "from which place", lambda p, f: (f or p).src),
    ("src_memory", str, "from which kind of memory", lambda p, f: (f or p).src_memory),
    ("dst", str, "to which place", lambda p, f: (f or p).dst),
    ("dst_memory", str, "to which kind of memory", lambda p, f: (f or p).dst_memory),
    ("bytes", int, "of one operation", lambda p, f: (f or p).bytes),
    ("median_s", float, "median of the round medians", lambda p, f: (f or p).median_s),
    ("ci_low_s", float, "lower end of the interval", lambda p, f: _end(f or p, 0)),
    ("ci_high_s", float, "upper end of the interval", lambda p, f: _end(f or p, 1)),
    ("ci_level", float, "exact level of the interval", lambda p, f: p.ci_level),
    ("gbps", float, "rate of this flow", lambda p, f: (f or p).gbps),
    ("total_gbps", float, "rate of all measured flows of the point", lambda p, f: p.total_gbps),
    ("limit_gbps", float, "what the hardware allows flow 0", lambda p, f: p.limit_gbps),
    ("limit_source", str, "how the limit is derived", lambda p, f: p.limit_source),
    ("rounds", int, "rounds that count", lambda p, f: len(f.round_medians_s) if f else 0),
    ("samples", int, "samples in them", lambda p, f: sum(map(len, f.samples_s)) if f else 0),
    ("within_rounds", float, "spread within a round, of the median", lambda p, f: _spread(p, "within_rounds")),
    ("between_rounds", float, "spread between rounds, of the median", lambda p, f: _spread(p, "between_rounds")),
    ("precision_target", float, "half-width asked for, of the median", lambda p, f: p.precision_target),
    ("timing", str, "how time was taken", lambda p, f: p.timing),
    ("batch", int, "operations in a batch of the first actor", lambda p, f: p.batch[0] if p.batch else None),
    (
        "longer",
        int,
        "how many times as long the batch was that it was compared with; 1: with none",
        lambda p, f: p.longer,
    ),
    ("overhead_s", float, "what a batch costs besides its operations", lambda p, f: p.overhead_s),
    ("verified", bool, "whether the data were compared and right", lambda p, f: p.verified),
    ("footprint_bytes", int, "over how many bytes a batch rotates", lambda p, f: p.footprint_bytes),
    ("device_s", float, "seconds that measuring took", lambda p, f: p.device_s),
    ("modelled", bool, "true: a model, no hardware was measured", lambda p, f: None),
)


def rows(run: Run) -> Iterator[list[Any]]:
    """The values of COLUMNS for every point-flow, in the order of the run file. None: no value."""
    for point in run.points:
        flows: list[Flow | None] = [*point.flows] or [None]
        for flow in flows:
            yield [*(value(point, flow) for _, _, _, value in COLUMNS[:-1]), run.modelled]


def write_csv(run: Run, stream: TextIO) -> None:
    """Writes the rows under the names of COLUMNS. Empty cells: no value."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([name for name, _, _, _ in COLUMNS])
    for row in rows(run):
        writer.writerow([_text(cell) for cell in row])


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
