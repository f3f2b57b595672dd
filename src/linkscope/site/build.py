"""Builds the site: makes the files of changed runs on all CPUs, then the pages over all runs."""

import contextlib
import datetime
import hashlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

import linkscope
from linkscope.errors import UserError
from linkscope.site import pages
from linkscope.site.compare import Comparison, Machine, comparisons, machines_of
from linkscope.site.downloads import ADDED_MEANINGS, Part, Tables, described, formats, write_tables
from linkscope.site.entry import Entry, Summary
from linkscope.site.feed import MOST, Change, feed
from linkscope.site.folder import STATE, Folder
from linkscope.site.make import KILLED, Made, machine_page, make, report
from linkscope.site.processes import processes
from linkscope.site.sources import Sources

REPORTS = 20  # newest runs of a machine that have a report
_FEW = 3  # changed files that are made without further processes
_SAVED = 2  # version of the state


class State(msgspec.Struct):
    """What a later run needs. `sources`: SHA-256 of the text of each run file by name; `tables`: the runs in them."""

    saved: int = _SAVED
    code: str = ""
    files: list[str] = []
    entries: dict[str, Entry] = {}
    sources: dict[str, str] = {}
    stamps: dict[str, tuple[str, str]] = {}
    changes: list[Change] = []
    formats: list[str] = []
    tables: list[Part] = []


@dataclass(frozen=True)
class Built:
    """What a build did. `refused`: files without pages; `missing`: tables that were not written; both with reasons."""

    folder: Folder
    runs: int
    machines: int
    refused: list[tuple[str, str]]
    missing: dict[str, str]


def build(inputs: Sequence[Path], output: Path, url: str = "", reports: int = REPORTS) -> Built:
    """Builds the site of run files and of folders with run files. `url`: its address, for the feed.

    `reports`: newest runs of a machine that have a report, at least 1. Raises UserError if the inputs hold no run file,
    or the output holds files of others.
    """
    if any(given.resolve() == output.resolve() for given in inputs):
        raise UserError(f"-o {output}: this is an input: choose another folder for the site")
    sources = Sources(inputs, output, _state(output).stamps)
    folder = Folder(output)
    try:
        return _build(sources, folder, _state(output), max(1, reports), url)
    finally:
        folder.close()


def _build(sources: Sources, folder: Folder, before: State, reports: int, url: str) -> Built:
    code, refused = _code(), list(sources.refused)
    entries = _unchanged(before, sources, folder) if before.code == code else {}
    _make_files(sources, folder, entries, refused)
    _make_pages(sources, folder, entries, refused, reports)
    doubtful = folder.interrupted or before.code != code or before.formats != formats()
    ordered = sorted(entries.values(), key=lambda entry: (entry.machine, entry.slug))
    machines = machines_of(ordered, lambda entry: _summary(folder, entry))
    for name, content in sources.duplicates:
        whether = "is shown" if content in entries else "has no page either"
        refused.append((name, f"a duplicate of {sources.name_of(content)}, which {whether}"))
    refused.sort()
    changes = _changes(before, entries, sources.names)
    tables = _tables(folder, ordered, [] if doubtful else before.tables)
    written = [name for name in formats() if name not in tables.missing]
    _write_pages(folder, machines, comparisons(machines), refused, written)
    folder.put("changes.xml", feed(changes, url))
    names = {name: content for name, content in sources.names.items() if content in entries}
    state = State(_SAVED, code, folder.files(), entries, names, sources.stamps, changes, written, tables.parts)
    folder.finish(msgspec.json.encode(state))
    return Built(folder, len(ordered), len(machines), refused, tables.missing)


def _unchanged(before: State, sources: Sources, folder: Folder) -> dict[str, Entry]:
    """The entries of unchanged runs by content, whose files are kept."""
    kept: dict[str, Entry] = {}
    for content in sources.names.values():
        entry = before.entries.get(content)
        if entry is not None and all(folder.has(name) for name in _names(entry)):
            for name in _names(entry):
                folder.keep(name)
            doubtful = folder.interrupted or not folder.has(entry.page)
            kept[content] = msgspec.structs.replace(entry, report=None) if doubtful else entry
    for name in folder.known() if kept else ():
        if name.startswith(f"{pages.ASSETS}/") and folder.has(name):
            folder.keep(name)
    return kept


def _make_files(sources: Sources, folder: Folder, entries: dict[str, Entry], refused: list[tuple[str, str]]) -> None:
    """Makes the files of changed runs, except their pages."""
    jobs = [
        (sources.paths[content], name, content) for name, content in sources.names.items() if content not in entries
    ]
    for (_, name, content), made in _parallel(make, jobs):
        if made.entry is None:
            refused.append((name, made.refused))
            continue
        entries[content] = made.entry
        for address, data in made.files.items():
            folder.put(address, data)


def _make_pages(
    sources: Sources, folder: Folder, entries: dict[str, Entry], refused: list[tuple[str, str]], reports: int
) -> None:
    """Makes the reports of the newest runs of each machine, and short pages of the others."""
    while missing := [entry for entry in _newest(entries.values(), reports) if not entry.report]:
        jobs = [(sources.paths[entry.content], sources.name_of(entry.content), entry) for entry in missing]
        for (_, name, entry), made in _parallel(report, jobs):
            if made.entry is None:
                refused.append((name, made.refused))
                for address in _names(entries.pop(entry.content)):
                    folder.drop(address)
                continue
            entries[entry.content] = made.entry
            for address, data in made.files.items():
                folder.put(address, data)
    having = {entry.content for entry in _newest(entries.values(), reports)}
    short = [(folder.root, entry) for content, entry in entries.items() if content not in having]
    for (_, entry), made in _parallel(_short_page, [job for job in short if job[1].report is not False]):
        if made.entry is None:
            refused.append((sources.name_of(entry.content), made.refused))
            for address in _names(entries.pop(entry.content)):
                folder.drop(address)
            continue
        entries[entry.content] = made.entry
        folder.put(entry.page, made.files[entry.page])
    for entry in entries.values():
        folder.keep(entry.page)


def _newest(entries: Iterable[Entry], count: int) -> list[Entry]:
    """The newest entries of each machine."""
    ordered = sorted(sorted(entries, key=attrgetter("started", "slug"), reverse=True), key=attrgetter("machine"))
    groups = itertools.groupby(ordered, key=attrgetter("machine"))
    return [entry for _, group in groups for entry in itertools.islice(group, count)]


def _short_page(root: Path, entry: Entry) -> Made:
    summary = msgspec.json.decode((root / entry.folder / "summary.json").read_bytes(), type=Summary)
    files = {entry.page: pages.run_page(entry, summary.cells).encode("utf-8")}
    return Made(msgspec.structs.replace(entry, report=False), files)


def _tables(folder: Folder, entries: Sequence[Entry], before: list[Part]) -> Tables:
    """The tables, which are written unless they are there and hold these runs."""
    same = {part.content for part in before} == {entry.content for entry in entries}
    if before and same and all(folder.has(name) for name in formats()):
        for name in formats():
            folder.keep(name)
        return Tables(before, {})
    return write_tables(folder, entries, before)


def _write_pages(
    folder: Folder,
    machines: Sequence[Machine],
    found: Sequence[Comparison],
    refused: list[tuple[str, str]],
    tables: Sequence[str],
) -> None:
    for address, text in pages.shared_files().items():
        folder.put(address, text)
    for machine in machines:
        text = folder.read(machine.runs[0].page).decode("utf-8")
        folder.put(f"{machine.folder}/index.html", machine_page(text, machine.runs))
        if not all(run.report for run in machine.runs):
            folder.put(f"{machine.folder}/runs.html", pages.runs_page(machine))
    for one in found:
        folder.put(f"p/{one.kind}.html", pages.comparison_page(one))
    folder.put("index.html", pages.gallery(machines, sum(len(one.runs) for one in machines), len(refused)))
    folder.put("table.html", pages.table(machines, found))
    folder.put("paths.html", pages.comparison_list(found))
    folder.put("not-shown.html", pages.not_shown(refused, machines))
    folder.put("downloads.html", pages.downloads(machines, described(tables), ADDED_MEANINGS))
    folder.put("index.json", _index(machines))


def _index(machines: Sequence[Machine]) -> bytes:
    """Machines and runs with their addresses, for programs."""
    listed = [
        {
            "name": machine.name, "title": machine.title, "modelled": machine.modelled,
            "page": f"{machine.folder}/index.html",
            "runs": [
                {
                    "run": run.slug, "started": run.started, "suite": run.suite, "rule": run.rule,
                    "page": run.page, "points": f"{run.folder}/points.html",
                    "csv": f"{run.folder}/points.csv", "summary": f"{run.folder}/summary.json",
                    "file": run.download, "sha256": run.content,
                }
                for run in machine.runs
            ],
        }
        for machine in machines
    ]  # fmt: skip
    return msgspec.json.format(msgspec.json.encode({"version": 1, "machines": listed}), indent=1)


def _names(entry: Entry) -> list[str]:
    """The files of a run, except its page."""
    names = ["points.html", "points.csv", "summary.json", *(["map.svg"] if entry.links else [])]
    return [*(f"{entry.folder}/{name}" for name in names), entry.download]


def _parallel(function: Callable[..., Made], jobs: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, Made]]:
    """Calls a function for each job, in order. At most two jobs a process are under way, so memory stays bounded."""
    count = min(len(os.sched_getaffinity(0)), 8)
    if len(jobs) <= _FEW or count < 2:
        for job in jobs:
            yield job, function(*job)
        return
    with processes(count) as pool:
        waiting: deque[tuple[tuple[Any, ...], Future[Made] | None]] = deque()
        for job in jobs:
            waiting.append((job, _submitted(pool, function, job)))
            if len(waiting) >= 2 * count:
                first, future = waiting.popleft()
                yield first, _result(function, first, future)
        for first, future in waiting:
            yield first, _result(function, first, future)


def _submitted(pool: ProcessPoolExecutor, function: Callable[..., Made], job: tuple[Any, ...]) -> Future[Made] | None:
    """The job under way; None where the pool has lost a process, after which it takes no jobs."""
    try:
        return pool.submit(function, *job)
    except BrokenProcessPool:
        return None


def _result(function: Callable[..., Made], job: tuple[Any, ...], future: Future[Made] | None) -> Made:
    """What the job made. A pool that lost a process does not say by which job: each is repeated in its own process."""
    with contextlib.suppress(BrokenProcessPool):
        if future is not None:
            return future.result()
    with processes(1) as alone, contextlib.suppress(BrokenProcessPool):
        return alone.submit(function, *job).result()
    return Made(None, {}, f"{KILLED}. Other files have their pages")


def _changes(before: State, entries: dict[str, Entry], names: dict[str, str]) -> list[Change]:
    """The changes since the last build, then those before. A run that is gone has no address in earlier ones either."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    gone = {name: content for name, content in before.sources.items() if content not in entries}
    found = []
    for name, content in sorted(names.items()):
        entry = entries.get(content)
        if entry is not None and content not in before.entries:
            what = "replaced" if gone.pop(name, None) else "added"
            found.append(_change(now, what, entry, entry.page))
    found += [_change(now, "removed", before.entries[content], "") for content in gone.values()]
    pages = {entry.page for entry in entries.values()}
    earlier = [
        one if one.address in pages else msgspec.structs.replace(one, address="") for one in before.changes[:MOST]
    ]
    return [*found, *earlier][:MOST]


def _change(now: str, what: str, entry: Entry, address: str) -> Change:
    return Change(now, what, entry.slug, f"{entry.title or entry.name}: {entry.heading}", address)


def _state(output: Path) -> State:
    """The state of the last build; an empty one where it is missing or of another version."""
    try:
        state = msgspec.json.decode((output / STATE).read_bytes(), type=State)
        if state.saved == _SAVED:
            return state
    except (OSError, msgspec.DecodeError):
        pass
    return State()


def _summary(folder: Folder, entry: Entry) -> Summary:
    return msgspec.json.decode(folder.read(f"{entry.folder}/summary.json"), type=Summary)


def _code() -> str:
    """A hash of the code and templates that make pages: another version makes all pages again."""
    root = Path(linkscope.__file__).parent
    digest = hashlib.sha256(linkscope.__version__.encode())
    for part in ("report", "site", "model", "advise", "stats", "runfile"):
        for path in sorted((root / part).rglob("*")):
            if path.suffix in (".py", ".html", ".css", ".js", ".svg"):
                digest.update(path.read_bytes())
    return digest.hexdigest()
