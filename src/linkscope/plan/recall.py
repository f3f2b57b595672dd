"""What was made of values before: the plan is asked whenever a point is done, and most others are as they were."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_Made = TypeVar("_Made")


class Recall:
    """The last answer under each name, for as long as what it was made of is equal. What is given to it may not be
    changed in place: it is kept, not copied. The names longest not asked for are forgotten beyond `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Hashable, tuple[tuple[object, ...], Any]] = {}

    def __call__(self, name: Hashable, of: tuple[object, ...], make: Callable[[], _Made]) -> _Made:
        """What `make` gives, which may depend on nothing but `of`."""
        known = self._known.pop(name, None)
        if known is None or known[0] != of:
            known = of, make()
        self._known[name] = known
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        made: _Made = known[1]
        return made
