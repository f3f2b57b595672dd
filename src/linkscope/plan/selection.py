"""Selects points by words for benchmarks, places, memory kinds and sizes."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from linkscope.errors import NOT_HERE, UserError, suggestion
from linkscope.flow import is_place, kind_of
from linkscope.plan.facts import MachineFacts
from linkscope.plan.table import Benchmark
from linkscope.runfile import PointId


@dataclass(frozen=True)
class Selection:
    """Words that select points; an empty field selects everything. `sizes` (bytes) replace those of the suite."""

    benchmarks: tuple[str, ...] = ()
    src: str = ""
    dst: str = ""
    memory: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self != Selection()

    def text(self) -> str:
        """Returns the words as on the command line."""
        options = [("--src", self.src), ("--dst", self.dst), ("--memory", ",".join(self.memory))]
        return " ".join([*self.benchmarks, *(f"{name} {value}" for name, value in options if value)])


def select(
    selection: Selection,
    points: Sequence[PointId],
    everything: Callable[[], Sequence[PointId]],
    machine: MachineFacts,
    table: Iterable[Benchmark],
) -> list[PointId]:
    """Returns the points that the words select, each once.

    `points` are those of the suite; `everything` gives those of suite `full`, for benchmarks that the suite lacks. A
    named benchmark that runs only from `dst` to `src` is selected in that direction: `h2d d2h --src numa:0 --dst gpu:1`
    has both directions of the path. A benchmark that suites have on one path of a class only gets the points of that
    path on the named one. Raises UserError with exit code 2 for an unknown word, and 3 for a place that is
    not on the machine and for words that select nothing.
    """
    rows = list(table)
    _check_words(selection, machine, rows)
    if not {point.benchmark for point in points}.issuperset(selection.benchmarks):
        have = {point.benchmark for point in points}
        points = [*points, *(point for point in everything() if point.benchmark not in have)]
    found = [point for point in points if _is_selected(selection, point)]
    missing = set(selection.benchmarks) - {point.benchmark for point in found}
    if missing and selection.src and selection.dst:
        moved = _moved(selection, [point for point in points if point.benchmark in missing])
        found += moved
        missing -= {point.benchmark for point in moved}
    if missing and selection.src and selection.dst:
        back = replace(selection, src=selection.dst, dst=selection.src)
        found += [point for point in points if point.benchmark in missing and _is_selected(back, point)]
        missing -= {point.benchmark for point in found}
    if missing or not found:
        what = ", ".join(sorted(missing)) or selection.text()
        cure = "`linkscope list` names benchmarks, `linkscope machine` names places"
        if machine.places and not machine.of_kind("gpu"):
            cure += "; most benchmarks need a GPU, and `--machine h200x4` runs them on a model"
        raise UserError(f"{what}: {machine.name} has no such point. {cure}", NOT_HERE)
    if not selection.sizes:
        return list(dict.fromkeys(found))
    sized = [replace(point, bytes=size) for point in found if point.bytes for size in selection.sizes]
    return list(dict.fromkeys([*sized, *(point for point in found if not point.bytes)]))


def _moved(selection: Selection, points: Sequence[PointId]) -> list[PointId]:
    """The points of paths between places of the same kinds, on the named path."""
    ends = [kind_of(place) for place in (selection.src, selection.dst)]
    like = [point for point in points if [kind_of(point.src), kind_of(point.dst)] == ends]
    alike = [point for point in like if (point.src == point.dst) == (selection.src == selection.dst)]
    moved = [replace(point, src=selection.src, dst=selection.dst) for point in alike]
    return [point for point in moved if _is_selected(selection, point)]


def _is_selected(selection: Selection, point: PointId) -> bool:
    return (
        (not selection.benchmarks or point.benchmark in selection.benchmarks)
        and selection.src in ("", point.src)
        and selection.dst in ("", point.dst)
        and (not selection.memory or not set(selection.memory).isdisjoint((point.src_memory, point.dst_memory)))
    )


def _check_words(selection: Selection, machine: MachineFacts, rows: Sequence[Benchmark]) -> None:
    names = list(dict.fromkeys(row.name for row in rows))
    for name in selection.benchmarks:
        if name not in names:
            raise UserError(f"unknown benchmark '{name}'{suggestion(name, names)}: `linkscope list` names all")
    kinds = sorted({kind for row in rows for pair in row.memories for kind in pair})
    for kind in selection.memory:
        if kind not in kinds:
            raise UserError(f"--memory {kind}: unknown{suggestion(kind, kinds)}; available: {', '.join(kinds)}")
    for option, place in (("--src", selection.src), ("--dst", selection.dst)):
        check_place(option, place, machine)


def check_place(option: str, place: str, machine: MachineFacts) -> None:
    """Raises UserError: exit code 2 for a malformed place, 3 for a place that is not on the machine."""
    if place:
        check_written(option, place)
    if place and place not in machine.places and not place.endswith("gpu:all"):
        have = ", ".join(machine.places) or "no places"
        raise UserError(f"{option} {place}: not on {machine.name}, which has {have}", NOT_HERE)


def check_written(option: str, place: str) -> None:
    """Raises UserError with exit code 2 for a place that is malformed, whatever the machine is."""
    if not is_place(place) and not re.fullmatch(r"rank:\d+", place):
        file = "; a file is disk:PATH" if place == "file" or "/" in place else ""
        raise UserError(f"{option} {place}: this is not a place. Write numa:0 or gpu:1; host memory is numa:0{file}")
