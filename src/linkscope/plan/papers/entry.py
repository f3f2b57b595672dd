"""What a paper or tool measures, and with which points linkscope does: one row an operation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One operation, finding or demand of a source.

    `items` are its numbers, `theirs` its name in the words of the source. `points` are presets in the form of ids:
    `benchmark/engine/kind.memory->kind.memory?name=value,value&name=*`, where a parameter that is not named has its
    default and `other` is another place of the source's kind; none: linkscope has no such operation yet. `instead` is
    what answers where no point does: a command, a machine file, a page, a test. `note` is what differs.
    """

    items: tuple[str, ...]
    theirs: str
    points: tuple[str, ...] = ()
    instead: str = ""
    note: str = ""


@dataclass(frozen=True)
class Source:
    """A paper or tool: `name` as `list --source` takes it; `sizes` in bytes, `about_sizes` where these come from.

    `entries` are what it measures, found or needed, `beyond` what it leaves to others: these are in no suite of its.
    """

    name: str
    title: str
    about_sizes: str
    sizes: tuple[int, ...]
    entries: tuple[Entry, ...]
    beyond: tuple[Entry, ...] = ()

    @property
    def rows(self) -> tuple[Entry, ...]:
        """All of them, in their order."""
        return self.entries + self.beyond


def row(items: str, theirs: str, *points: str, instead: str = "", note: str = "") -> Entry:
    """An entry in one line; several items are separated by blanks."""
    return Entry(tuple(items.split()), theirs, points, instead, note)


def powers(first: int, last: int) -> tuple[int, ...]:
    """2**first to 2**last."""
    return tuple(1 << exponent for exponent in range(first, last + 1))
