"""What to do otherwise on a machine, and what it gains, from what a run measured (Comm|Scope, section 6)."""

from linkscope.advise.gains import Advice, Gain, advice, untried, worth_it
from linkscope.advise.ways import Way, kinds, plain, sizes, ways

__all__ = ["Advice", "Gain", "Way", "advice", "kinds", "plain", "sizes", "untried", "ways", "worth_it"]
