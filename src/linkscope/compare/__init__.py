"""Compares two or more runs: the paths that changed, by how much, and the differences of machine and settings."""

from linkscope.compare.environment import Difference, differences, same_machine
from linkscope.compare.history import Change, changes
from linkscope.compare.verdict import Comparison, Pair, Verdict, compare

__all__ = ["Change", "Comparison", "Difference", "Pair", "Verdict", "changes", "compare", "differences", "same_machine"]
