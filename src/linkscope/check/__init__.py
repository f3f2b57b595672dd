"""A gate for a job's prolog: measures what decides, compares it with a reference, and names the part at fault."""

from linkscope.check.gate import Check, Verdict, check
from linkscope.check.parts import Part, parts_at_fault

__all__ = ["Check", "Part", "Verdict", "check", "parts_at_fault"]
