"""The operations of a paper or tool, and the corresponding points of linkscope: one row an operation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One operation, finding or requirement of a source.

    `items`: its numbers. `theirs`: its name in the source. `points`: presets in the form of ids,
    `benchmark/engine/kind.memory->kind.memory?name=value,value&name=*`; parameters without a value have their default,
    and `other` is another place of the source's kind. No points: linkscope lacks the operation. `instead`: the command,
    machine file, page or test that answers instead of points. `note`: the differences.
    """

    items: tuple[str, ...]
    theirs: str
    points: tuple[str, ...] = ()
    instead: str = ""
    note: str = ""


@dataclass(frozen=True)
class Source:
    """A paper or tool. `name` as in `list --source`; `sizes` in bytes, and `about_sizes`, where they come from.

    `entries`: what it measured, found or needed. `beyond`: what it did not cover; no suite contains these.
    """

    name: str
    title: str
    about_sizes: str
    sizes: tuple[int, ...]
    entries: tuple[Entry, ...]
    beyond: tuple[Entry, ...] = ()

    @property
    def rows(self) -> tuple[Entry, ...]:
        """All entries, in order."""
        return self.entries + self.beyond


def row(items: str, theirs: str, *points: str, instead: str = "", note: str = "") -> Entry:
    """An entry in one line; blanks separate several items."""
    return Entry(tuple(items.split()), theirs, points, instead, note)


def powers(first: int, last: int) -> tuple[int, ...]:
    """2**first to 2**last."""
    return tuple(1 << exponent for exponent in range(first, last + 1))
