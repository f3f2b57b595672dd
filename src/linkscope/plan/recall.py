"""Caches results of the plan, which is computed after every completed point although most inputs are unchanged."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_Made = TypeVar("_Made")


class Recall:
    """Keeps the last result under each name while its inputs are equal.

    Inputs are stored, not copied, so callers must not change them in place. Beyond `most` names, the least recently
    used is dropped.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Hashable, tuple[tuple[object, ...], Any]] = {}

    def __call__(self, name: Hashable, of: tuple[object, ...], make: Callable[[], _Made]) -> _Made:
        """Returns the cached result, or that of `make`, which may depend on `of` only."""
        known = self._known.pop(name, None)
        if known is None or known[0] != of:
            known = of, make()
        self._known[name] = known
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        made: _Made = known[1]
        return made
