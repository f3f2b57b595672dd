"""What the site compares: of each machine the newest value of every configuration, and the values that do not count."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter

from linkscope.site.entry import Entry, Summary
from linkscope.site.kinds import Cell, order_of


@dataclass
class Machine:
    """A machine with its runs, the newest first, and its newest comparable cells by kind and label."""

    slug: str
    name: str
    title: str
    modelled: bool
    runs: list[Entry]
    cells: dict[tuple[str, str], tuple[Entry, Cell]] = field(default_factory=dict)
    old: dict[str, tuple[Entry, Cell]] = field(default_factory=dict)  # of kinds measured by an older method only

    @property
    def folder(self) -> str:
        """The folder of the machine's pages in the site."""
        return f"m/{self.slug}"

    @property
    def mapped(self) -> Entry | None:
        """The run whose map shows the machine: the newest of those with the most rates in it."""
        return max((run for run in self.runs if run.links), key=lambda run: run.measured_links, default=None)


@dataclass(frozen=True)
class Value:
    """A cell with the machine and the run that it comes from."""

    machine: Machine
    entry: Entry
    cell: Cell


@dataclass(frozen=True)
class Comparison:
    """A kind: the values of its main configuration, those of other configurations, and those by older methods."""

    kind: str
    label: str
    values: list[Value]
    others: list[tuple[str, list[Value]]]
    old: list[Value]


def machines_of(entries: Iterable[Entry], load: Callable[[Entry], Summary]) -> list[Machine]:
    """The machines, measured ones first. `load` reads one summary at a time."""
    found = []
    ordered = sorted(sorted(entries, key=attrgetter("started", "slug"), reverse=True), key=attrgetter("machine"))
    for slug, group in itertools.groupby(ordered, key=attrgetter("machine")):
        runs = list(group)
        machine = Machine(slug, runs[0].name, runs[0].title, runs[0].modelled, runs)
        for entry in runs:
            _add(machine, entry, load(entry))
        found.append(machine)
    return _named_apart(sorted(found, key=lambda one: (one.modelled, one.name, one.slug)))


def comparisons(machines: Iterable[Machine]) -> list[Comparison]:
    """One for each kind that a run has. The main configuration is the one that most machines have."""
    by_kind: dict[str, dict[str, list[Value]]] = {}
    old: dict[str, list[Value]] = {}
    for machine in machines:
        for (kind, label), (entry, cell) in machine.cells.items():
            by_kind.setdefault(kind, {}).setdefault(label, []).append(Value(machine, entry, cell))
        for kind, (entry, cell) in machine.old.items():
            old.setdefault(kind, []).append(Value(machine, entry, cell))
    made = []
    for kind in sorted(by_kind.keys() | old.keys(), key=order_of):
        labels = by_kind.get(kind, {})
        order = sorted(labels, key=lambda label: (-len(labels[label]), len(label), label))
        ranked = [(label, _ranked(labels[label])) for label in order]
        main = ranked[0] if ranked else ("", [])
        made.append(Comparison(kind, main[0], main[1], ranked[1:], old.get(kind, [])))
    return made


def _add(machine: Machine, entry: Entry, summary: Summary) -> None:
    if entry.rule != "linkscope":
        return
    for cell in summary.cells:
        if cell.is_current:
            machine.cells.setdefault((cell.kind, cell.label), (entry, cell))
            machine.old.pop(cell.kind, None)
        elif not any(kind == cell.kind for kind, _ in machine.cells):
            machine.old.setdefault(cell.kind, (entry, cell))


def _ranked(values: list[Value]) -> list[Value]:
    """The best first: the highest rate, or the shortest time."""
    return sorted(values, key=lambda one: -one.cell.value if one.cell.unit == "GB/s" else one.cell.value)


def _named_apart(machines: list[Machine]) -> list[Machine]:
    """Adds the start of the fingerprint to names that several machines have."""
    counts = Counter(machine.name for machine in machines)
    for machine in machines:
        if counts[machine.name] > 1:
            machine.name += f" ({machine.slug.rpartition('-')[2][:6]})"
    return machines
