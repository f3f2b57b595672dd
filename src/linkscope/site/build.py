"""Builds the site: makes the files of changed runs on all CPUs, then the pages over all runs."""

import datetime
import gzip
import hashlib
import os
import shutil
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec

import linkscope
from linkscope.errors import UserError
from linkscope.runfile.content import GZIP_MAGIC
from linkscope.site import pages
from linkscope.site.compare import Comparison, Machine, comparisons, machines_of
from linkscope.site.downloads import ADDED_MEANINGS, described, formats, write_tables
from linkscope.site.entry import Entry, Summary
from linkscope.site.feed import MOST, Change, feed
from linkscope.site.folder import Folder
from linkscope.site.make import Made, machine_page, make

_ENDINGS = (".jsonl", ".jsonl.gz")
_FEW = 3  # changed files that are made without further processes
_CHUNK = 1 << 20
_SAVED = 1  # version of the state


class State(msgspec.Struct):
    """What a later run needs. `sources`: SHA-256 of the text of each run file by name; `tables`: what they hold."""

    saved: int
    code: str
    files: list[str]
    entries: dict[str, Entry]
    sources: dict[str, str]
    changes: list[Change]
    tables: str


@dataclass(frozen=True)
class Built:
    """What a build did."""

    folder: Folder
    runs: int
    machines: int
    refused: list[tuple[str, str]]


class _Sources:
    """The run files of the input: the first file of each content, and what is not shown."""

    def __init__(self, inputs: Sequence[Path], output: Path) -> None:
        self.paths: dict[str, Path] = {}  # by content
        self.names: dict[str, str] = {}  # content by name
        self.refused: list[tuple[str, str]] = []
        first: dict[str, str] = {}
        for name, path in run_files(inputs, output):
            try:
                content = _hash_of_text(path)
            except OSError as error:
                self.refused.append((name, f"cannot be read: {error.strerror}"))
                continue
            if content in first:
                self.refused.append((name, f"a duplicate of {first[content]}, which is shown"))
                continue
            if name in self.names:  # of another folder
                name = f"{name} ({path})"
            first[content] = name
            self.paths[content], self.names[name] = path, content


def build(inputs: Sequence[Path], output: Path, url: str = "") -> Built:
    """Builds the site of run files and of folders with run files. `url`: its address, for the feed.

    Raises UserError if the inputs hold no run file, or the output holds files of others.
    """
    if any(given.resolve() == output.resolve() for given in inputs):
        raise UserError(f"-o {output}: this is an input: choose another folder for the site")
    sources = _Sources(inputs, output)
    if not sources.names and not sources.refused:
        listed = ", ".join(map(str, inputs))
        raise UserError(f"{listed}: no file there ends in .jsonl or .jsonl.gz. Name a folder with run files")
    folder = Folder(output)
    try:
        return _build(sources, folder, url)
    finally:
        folder.close()


def _build(sources: _Sources, folder: Folder, url: str) -> Built:
    before, code = _state(folder), _code()
    entries: dict[str, Entry] = {}
    changed: list[tuple[Path, str, str]] = []
    for name, content in sources.names.items():
        entry = before.entries.get(content) if before.code == code else None
        if entry is not None and _keep(folder, entry):
            entries[content] = entry
        else:
            changed.append((sources.paths[content], name, content))
    refused = list(sources.refused)
    for (_, name, content), made in _made(changed):
        if made.entry is None:
            refused.append((name, made.refused))
            continue
        entries[content] = made.entry
        for address, data in made.files.items():
            folder.put(address, data)
    ordered = sorted(entries.values(), key=lambda entry: (entry.machine, entry.slug))
    for entry in ordered:
        _copy(folder, sources.paths[entry.content], entry.download)
    machines = machines_of(ordered, lambda entry: _summary(folder, entry))
    refused.sort()
    changes = _changes(before, entries, sources.names)
    tables = hashlib.sha256(repr([formats(), code, [entry.content for entry in ordered]]).encode()).hexdigest()
    if tables == before.tables and all(folder.has(name) for name in formats()):
        for name in formats():
            folder.keep(name)
    else:
        write_tables(folder, ordered)
    _write_pages(folder, machines, comparisons(machines), refused)
    folder.put("changes.xml", feed(changes, url))
    names = {name: content for name, content in sources.names.items() if content in entries}
    state = State(_SAVED, code, folder.files(), entries, names, changes, tables)
    folder.finish(msgspec.json.encode(state))
    return Built(folder, len(ordered), len(machines), refused)


def _write_pages(
    folder: Folder, machines: Sequence[Machine], found: Sequence[Comparison], refused: list[tuple[str, str]]
) -> None:
    for address, text in pages.shared_files().items():
        folder.put(address, text)
    for machine in machines:
        newest = machine.runs[0]
        report = folder.read(f"{newest.folder}/index.html").decode("utf-8")
        folder.put(f"{machine.folder}/index.html", machine_page(report, machine.runs))
    for one in found:
        folder.put(f"p/{one.kind}.html", pages.comparison_page(one))
    folder.put("index.html", pages.gallery(machines, sum(len(one.runs) for one in machines), len(refused)))
    folder.put("table.html", pages.table(machines, found))
    folder.put("paths.html", pages.comparison_list(found))
    folder.put("not-shown.html", pages.not_shown(refused, machines))
    folder.put("downloads.html", pages.downloads(machines, described(), ADDED_MEANINGS))
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
                    "page": f"{run.folder}/index.html", "points": f"{run.folder}/points.html",
                    "csv": f"{run.folder}/points.csv", "summary": f"{run.folder}/summary.json",
                    "file": run.download, "sha256": run.content,
                }
                for run in machine.runs
            ],
        }
        for machine in machines
    ]  # fmt: skip
    return msgspec.json.format(msgspec.json.encode({"version": 1, "machines": listed}), indent=1)


def _keep(folder: Folder, entry: Entry) -> bool:
    """Keeps the files of an unchanged run; False if one is missing."""
    names = [f"{entry.folder}/{name}" for name in ("index.html", "points.html", "points.csv", "summary.json")]
    names += [f"{entry.folder}/map.svg"] if entry.links else []
    if not all(folder.has(name) for name in names):
        return False
    assets = [name for name in folder.known() if name.startswith(f"{pages.ASSETS}/") and folder.has(name)]
    for name in [*names, *assets]:
        folder.keep(name)
    return True


def _made(changed: Sequence[tuple[Path, str, str]]) -> Iterator[tuple[tuple[Path, str, str], Made]]:
    """Makes the files of the runs in order. At most two runs a process are under way, so memory stays bounded."""
    count = min(len(os.sched_getaffinity(0)), 8)
    if len(changed) <= _FEW or count < 2:
        for one in changed:
            yield one, make(*one)
        return
    with ProcessPoolExecutor(count) as pool:
        waiting: deque[tuple[tuple[Path, str, str], Future[Made]]] = deque()
        for one in changed:
            waiting.append((one, pool.submit(make, *one)))
            if len(waiting) >= 2 * count:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()


def _changes(before: State, entries: dict[str, Entry], names: dict[str, str]) -> list[Change]:
    """The changes since the last build, then those before."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    gone = {name: content for name, content in before.sources.items() if content not in entries}
    found = []
    for name, content in sorted(names.items()):
        entry = entries.get(content)
        if entry is not None and content not in before.entries:
            what = "replaced" if gone.pop(name, None) else "added"
            found.append(_change(now, what, entry, f"{entry.folder}/index.html"))
    found += [_change(now, "removed", before.entries[content], "") for content in gone.values()]
    return [*found, *before.changes][:MOST]


def _change(now: str, what: str, entry: Entry, address: str) -> Change:
    return Change(now, what, entry.slug, f"{entry.title or entry.name}: {entry.heading}", address)


def _state(folder: Folder) -> State:
    """The state of the last build; an empty one where it is missing or of another version."""
    try:
        state = msgspec.json.decode(folder.state() or b"", type=State)
        if state.saved == _SAVED:
            return state
    except msgspec.DecodeError:
        pass
    return State(_SAVED, "", [], {}, {}, [], "")


def _summary(folder: Folder, entry: Entry) -> Summary:
    return msgspec.json.decode(folder.read(f"{entry.folder}/summary.json"), type=Summary)


def _copy(folder: Folder, source: Path, name: str) -> None:
    """The text of the run file as it is, compressed. The address has the hash of the text, so a copy stays right."""
    if folder.has(name):
        folder.keep(name)
        return
    if _is_compressed(source):
        shutil.copyfile(source, folder.begin(name))
    else:
        with (
            open(source, "rb") as text,
            open(folder.begin(name), "wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as out,
        ):
            shutil.copyfileobj(text, out)
    folder.end(name)


def run_files(inputs: Iterable[Path], output: Path | None = None) -> Iterator[tuple[str, Path]]:
    """The run files by the name that the site shows. The output folder inside of an input is left out.

    Raises UserError for an input that does not exist.
    """
    for given in inputs:
        if given.is_dir():
            for path in sorted(given.rglob("*.jsonl*")):
                inside = output is not None and output.resolve() in path.resolve().parents
                if path.name.endswith(_ENDINGS) and path.is_file() and not inside:
                    yield path.relative_to(given).as_posix(), path
        elif given.is_file():
            yield given.name, given
        else:
            raise UserError(f"{given} does not exist. Name a folder with run files, or run files")


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_of_text(path: Path) -> str:
    """SHA-256 of the text of a run file, plain or compressed: the same run is one run on the site."""
    if not _is_compressed(path):
        return _hash(path)
    digest = hashlib.sha256()
    try:
        with gzip.open(path, "rb") as text:
            while part := text.read(_CHUNK):
                digest.update(part)
    except (EOFError, zlib.error, gzip.BadGzipFile):  # a damaged file has no text to compare
        return _hash(path)
    return digest.hexdigest()


def _is_compressed(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def _code() -> str:
    """A hash of the code and templates that make pages: another version makes all pages again."""
    root = Path(linkscope.__file__).parent
    digest = hashlib.sha256(linkscope.__version__.encode())
    for part in ("report", "site", "model", "advise", "stats", "runfile"):
        for path in sorted((root / part).rglob("*")):
            if path.suffix in (".py", ".html", ".css", ".js", ".svg"):
                digest.update(path.read_bytes())
    return digest.hexdigest()
