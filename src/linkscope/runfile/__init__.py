"""The run file: its schema, and the only reader and writer of it (docs/reference/run-file.md)."""

from linkscope.runfile.families import SIZE_CLASSES, Family, family_of, size_class
from linkscope.runfile.ids import PointId
from linkscope.runfile.reader import Predicted, Run, once, read_run
from linkscope.runfile.schema import (
    TOO_SHORT,
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
    is_too_short,
    shown_status,
)
from linkscope.runfile.writer import RunWriter

__all__ = [
    "SIZE_CLASSES",
    "TOO_SHORT",
    "ContextsTally",
    "End",
    "Family",
    "Flow",
    "Header",
    "Point",
    "PointId",
    "Predicted",
    "Resume",
    "Round",
    "RoundFlow",
    "Run",
    "RunWriter",
    "Spread",
    "family_of",
    "flows_by_path",
    "half_width",
    "is_too_short",
    "once",
    "read_run",
    "shown_status",
    "size_class",
]
