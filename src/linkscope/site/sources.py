"""The run files of a site: their names, and the hashes of their texts, kept for files that did not change since."""

import gzip
import hashlib
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from linkscope.errors import UserError
from linkscope.runfile.content import GZIP_MAGIC

_ENDINGS = (".jsonl", ".jsonl.gz")
_CHUNK = 1 << 20
_SETTLED_NS = 2_000_000_000  # two changes within a tick of the file system's clock leave one time of change


class Sources:
    """The run files of the input: the first file of each content, and what is not shown.

    `stamps`: those of the last build. A stamp is the size and the times of a file with the hash of its text.
    """

    def __init__(self, inputs: Sequence[Path], output: Path, stamps: Mapping[str, tuple[str, str]]) -> None:
        self.paths: dict[str, Path] = {}  # by content
        self.names: dict[str, str] = {}  # content by name
        self.refused: list[tuple[str, str]] = []
        self.stamps: dict[str, tuple[str, str]] = {}
        self._shown: dict[str, str] = {}  # by content
        for name, path in run_files(inputs, output):
            try:
                content = self._content(path, stamps)
            except OSError as error:
                self.refused.append((name, f"cannot be read: {error.strerror}"))
                continue
            if content in self._shown:
                self.refused.append((name, f"a duplicate of {self._shown[content]}, which is shown"))
                continue
            if name in self.names:  # of another folder
                name = f"{name} ({path})"
            self._shown[content], self.paths[content], self.names[name] = name, path, content

    def name_of(self, content: str) -> str:
        """The name of the file with a content."""
        return self._shown[content]

    def _content(self, path: Path, stamps: Mapping[str, tuple[str, str]]) -> str:
        """SHA-256 of the text of a file: the stamp's where the file has not changed."""
        key = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]  # the state of a site is public
        about, began = path.stat(), time.time_ns()
        now = f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns} {about.st_ino}"
        stamp, content = stamps.get(key, ("", ""))
        if stamp != now:
            content = hash_of_text(path)
        if about.st_ctime_ns < began - _SETTLED_NS:
            self.stamps[key] = (now, content)
        return content


def run_files(inputs: Iterable[Path], output: Path | None = None) -> Iterator[tuple[str, Path]]:
    """The run files by the name that the site shows. The output folder inside of an input is left out.

    Raises UserError for an input that does not exist.
    """
    outside = output.resolve() if output is not None else None
    for given in inputs:
        if given.is_dir():
            for path in sorted(given.rglob("*.jsonl*")):
                inside = outside is not None and outside in path.resolve().parents
                if path.name.endswith(_ENDINGS) and path.is_file() and not inside:
                    yield path.relative_to(given).as_posix(), path
        elif given.is_file():
            yield given.name, given
        else:
            raise UserError(f"{given} does not exist. Name a folder with run files, or run files")


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
