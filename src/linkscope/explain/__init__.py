"""Explains a profiler's trace: what each transfer took, what it should take, and what a change is worth (CS-27)."""

from linkscope.explain.by_step import KindTimes, StepTimes, by_step
from linkscope.explain.events import Copy, Kernel, Recorded, Step
from linkscope.explain.expect import Expected, expected_by_model, expected_by_run
from linkscope.explain.findings import Explanation, Finding, explain
from linkscope.explain.read import is_text_trace, read_recorded

__all__ = [
    "Copy",
    "Expected",
    "Explanation",
    "Finding",
    "Kernel",
    "KindTimes",
    "Recorded",
    "Step",
    "StepTimes",
    "by_step",
    "expected_by_model",
    "expected_by_run",
    "explain",
    "is_text_trace",
    "read_recorded",
]
