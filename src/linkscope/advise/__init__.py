"""What to do otherwise on a machine, and what it gains, from what a run measured (Comm|Scope, section 6)."""

from linkscope.advise.gains import Advice, Gain, advice, is_worthwhile, untried
from linkscope.advise.methods import TransferMethod, kinds, plain, sizes, transfer_methods

__all__ = [
    "Advice",
    "Gain",
    "TransferMethod",
    "advice",
    "is_worthwhile",
    "kinds",
    "plain",
    "sizes",
    "transfer_methods",
    "untried",
]
