"""A gate for a job's prolog: measures what decides, compares it with a reference, and names the part at fault."""

from linkscope.check.gate import Check, Verdict, check
from linkscope.check.notes import busy
from linkscope.check.parts import Part, parts_at_fault
from linkscope.check.references import BUNDLED, SUITE, Reference, earlier_run, physics, prediction

__all__ = [
    "BUNDLED",
    "SUITE",
    "Check",
    "Part",
    "Reference",
    "Verdict",
    "busy",
    "check",
    "earlier_run",
    "parts_at_fault",
    "physics",
    "prediction",
]
