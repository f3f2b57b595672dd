"""How evenly concurrent flows share a capacity."""

from collections.abc import Sequence


def jain_index(rates: Sequence[float]) -> float | None:
    """Jain, Chiu and Hawe (1984): (Σx)² / (n Σx²), from 1/n (one flow gets all) to 1 (equal rates).

    None without a positive rate.
    """
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares > 0 else None
