"""The cost of one operation in a batch, from the times of L and mL operations.

The slope of time over batch size leaves out the fixed cost of a batch (Criterion's linear sampling; Moreno and
Fischmeister, Accurate Measurement of Small Execution Times, 2017).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slope:
    """`each_s` seconds an operation, and `once_s`, the fixed cost of a batch (the intercept at no operation)."""

    each_s: float
    once_s: float


def slope(short_s: float, long_s: float, short_count: int, long_count: int) -> Slope:
    """The line through (short_count, short_s) and (long_count, long_s)."""
    each = (long_s - short_s) / (long_count - short_count)
    return Slope(each, short_s - each * short_count)
