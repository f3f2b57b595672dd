"""Two runs, or many of one machine: which paths have changed, by how much, and what else has."""

from linkscope.compare.environment import Difference, differences, same_machine
from linkscope.compare.history import Change, changes
from linkscope.compare.verdict import Comparison, Pair, Verdict, compare

__all__ = ["Change", "Comparison", "Difference", "Pair", "Verdict", "changes", "compare", "differences", "same_machine"]
