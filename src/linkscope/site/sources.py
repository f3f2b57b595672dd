"""The run files of a site: their names, and the hashes of their texts, kept for files that did not change since."""

import gzip
import hashlib
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from linkscope.errors import UserError
from linkscope.runfile.content import GZIP_MAGIC
from linkscope.site.folder import STATE

_ENDINGS = (".jsonl", ".jsonl.gz")
_CHUNK = 1 << 20
_SETTLED_NS = 2_000_000_000  # two changes within a tick of the file system's clock leave one time of change


class Sources:
    """The run files of the input: the first file of each content, later ones, and what cannot be read.

    `stamps`: those of the last build. A stamp is the size and the times of a file with the hash of its text.
    """

    def __init__(self, inputs: Sequence[Path], output: Path, stamps: Mapping[str, tuple[str, str]]) -> None:
        self.paths: dict[str, Path] = {}  # by content
        self.names: dict[str, str] = {}  # content by name
        self.refused: list[tuple[str, str]] = []
        self.duplicates: list[tuple[str, str]] = []  # name and content
        self.stamps: dict[str, tuple[str, str]] = {}
        self._shown: dict[str, str] = {}  # by content
        for name, path in run_files(inputs, self.refused, output):
            try:
                content = self._content(path, stamps)
            except OSError as error:
                self.refused.append((name, f"cannot be read: {error.strerror}"))
                continue
            if content in self._shown:
                self.duplicates.append((name, content))
                continue
            if name in self.names:  # of another folder
                name = f"{name} ({_shown_name(path)})"
            self._shown[content], self.paths[content], self.names[name] = name, path, content

    def name_of(self, content: str) -> str:
        """The name of the file with a content."""
        return self._shown[content]

    def _content(self, path: Path, stamps: Mapping[str, tuple[str, str]]) -> str:
        """SHA-256 of the text of a file: the stamp's where the file has not changed."""
        key = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]  # the state of a site is public
        about, began = path.stat(), time.time_ns()
        now = f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}"
        stamp, content = stamps.get(key, ("", ""))
        if stamp != now:
            content = hash_of_text(path)
        if about.st_ctime_ns < began - _SETTLED_NS:
            self.stamps[key] = (now, content)
        return content


def run_files(
    inputs: Iterable[Path], unreadable: list[tuple[str, str]], output: Path | None = None
) -> Iterator[tuple[str, Path]]:
    """The run files by the name that the site shows, without the output folder and sites inside of an input.

    `unreadable` gets folders below the inputs that cannot be read, with the reason. Raises UserError for an input that
    does not exist or cannot be read, and if there is no run file.
    """
    outside = output.resolve() if output is not None else None
    listed, seen = list(inputs), set()
    for given in listed:
        if not (given.is_dir() or given.is_file()):
            raise UserError(f"{given} does not exist. Name a folder with run files, or run files")
        paths = sorted(_below(given, outside, unreadable)) if given.is_dir() else [given]
        for path in paths:
            if (where := os.path.abspath(path)) not in seen:
                seen.add(where)
                yield _shown_name(path.relative_to(given) if path != given else Path(given.name)), path
    if not seen and not unreadable:
        names = ", ".join(map(str, listed))
        raise UserError(f"{names}: no file there ends in .jsonl or .jsonl.gz. Name a folder with run files")


def _below(given: Path, outside: Path | None, unreadable: list[tuple[str, str]]) -> Iterator[Path]:
    def note(error: OSError) -> None:
        if Path(error.filename) == given:
            raise UserError(f"{given} cannot be read: {error.strerror}. Name a folder that you may read") from None
        unreadable.append((_shown_name(Path(error.filename).relative_to(given)), f"cannot be read: {error.strerror}"))

    for folder, below, names in os.walk(given, onerror=note):
        here = Path(folder)
        if STATE in names or here.resolve() == outside:  # a site holds copies of runs that may be gone since
            below.clear()
            continue
        yield from (here / name for name in names if name.endswith(_ENDINGS) and (here / name).is_file())


def _shown_name(path: Path) -> str:
    """The path as text; bytes that are no UTF-8 as in '\\xff'."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed, whatever its name."""
    with open(path, "rb") as file:
        return file.read(len(GZIP_MAGIC)) == GZIP_MAGIC


def hash_of_text(path: Path) -> str:
    """SHA-256 of the text of a run file, plain or compressed: the same run is one run on the site."""
    if not is_compressed(path):
        return _hash(path)
    digest = hashlib.sha256()
    try:
        with gzip.open(path, "rb") as text:
            while part := text.read(_CHUNK):
                digest.update(part)
    except (EOFError, zlib.error, gzip.BadGzipFile):  # a damaged file has no text to compare
        return _hash(path)
    return digest.hexdigest()


def _hash(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
