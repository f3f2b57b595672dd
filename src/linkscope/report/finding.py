"""One anomaly of a run, and helpers of the rules that find them (findings.py, pairs.py)."""

from collections.abc import Sequence
from dataclasses import dataclass

from linkscope.model.curves import Curve, total_of
from linkscope.runfile import Point

LARGE = 1 << 20  # smaller sizes cannot show the best rate of a path


@dataclass(frozen=True)
class Finding:
    """A sentence and the ids of its points, the clearest example first."""

    kind: str
    text: str
    ids: tuple[str, ...]


def worst(kind: str, entries: Sequence[tuple[float, str, str]], noun: str = "curve") -> Finding:
    """A finding with the text of the lowest-ranked entry and the number of the other entries."""
    ordered = sorted(entries, key=lambda entry: entry[0])
    more = len(ordered) - 1
    text = ordered[0][1] + (f" (and {more} more {noun}{'s' if more > 1 else ''})" if more else "")
    return Finding(kind, text, tuple(id for _, _, id in ordered))


def with_best(batched: Sequence[Curve]) -> list[tuple[Curve, Point]]:
    """The curves that have a rate, each with its best point."""
    return [(curve, best) for curve in batched if (best := curve.best()) is not None and total_of(best) is not None]
