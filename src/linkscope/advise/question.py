"""One transfer that advice is asked for."""

from dataclasses import dataclass

from linkscope.flow import Transfer

UNTOUCHED = "untouched"  # pageable memory without pages


@dataclass(frozen=True)
class Question:
    """A transfer of `bytes` from `src` to `dst`.

    `memory`: the kind of host memory that holds the data now; '' if it was not stated. `alone`: a single copy with its
    wait. `reuse`: the number of copies of the same memory; None if it was not stated. `piece`: the size of scattered
    pieces; None for one range. `others`: the transfers that run at the same time. `untouched`: nobody has touched the
    destination, which is pageable memory.
    """

    src: str
    dst: str
    bytes: int
    memory: str = ""
    alone: bool = False
    reuse: int | None = None
    piece: int | None = None
    others: tuple[Transfer, ...] = ()
    untouched: bool = False

    @property
    def stated_memory(self) -> str:
        """The host memory as the user stated it: its kind, or 'untouched'; '' if it was not stated."""
        return UNTOUCHED if self.untouched else self.memory

    @property
    def pieces(self) -> int:
        """The number of pieces; 1 for one range."""
        return self.bytes // self.piece if self.piece else 1
