"""Known truths through the real measuring path: `linkscope selftest` (docs/method/self-test.md)."""

from linkscope.selftest.rows import Finding, Row, Verdict, carry_out
from linkscope.selftest.table import HERE, PLANTED

__all__ = ["HERE", "PLANTED", "Finding", "Row", "Verdict", "carry_out"]
