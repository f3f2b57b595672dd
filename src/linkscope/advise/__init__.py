"""Recommendations for a machine with their gains, from the points of a run (Comm|Scope, section 6)."""

from linkscope.advise.gains import Advice, Gain, advice, untried, worthwhile
from linkscope.advise.methods import TransferMethod, kinds, plain, sizes, transfer_methods

__all__ = [
    "Advice",
    "Gain",
    "TransferMethod",
    "advice",
    "kinds",
    "plain",
    "sizes",
    "transfer_methods",
    "untried",
    "worthwhile",
]
