"""The run file: its schema, and the only reader and writer of it (docs/reference/run-file.md)."""

from linkscope.runfile.ids import PointId
from linkscope.runfile.reader import Run, read_run
from linkscope.runfile.schema import (
    ContextsTally,
    End,
    Flow,
    Header,
    Point,
    Resume,
    Round,
    RoundFlow,
    Spread,
    flows_by_path,
    half_width,
)
from linkscope.runfile.writer import RunWriter

__all__ = [
    "ContextsTally",
    "End",
    "Flow",
    "Header",
    "Point",
    "PointId",
    "Resume",
    "Round",
    "RoundFlow",
    "Run",
    "RunWriter",
    "Spread",
    "flows_by_path",
    "half_width",
    "read_run",
]
