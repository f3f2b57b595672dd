"""Reads run files: `.jsonl` and `.jsonl.gz`, whole, or with a torn last line."""

import io
import os
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from linkscope.errors import UserError
from linkscope.runfile.schema import SCHEMA, ContextsTally, End, Header, Point, Record, Resume, Round

_DECODER = msgspec.json.Decoder(Record)
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Run:
    """A run file's content. `points` has one entry an id, the newest, in the order in which they were first written."""

    path: Path
    header: Header
    points: list[Point]
    rounds: dict[str, list[Round]] = field(repr=False)
    resumes: list[Resume]
    end: End | None
    warnings: list[str]
    valid_bytes: int
    compressed: bool
    earlier_ends: list[End] = field(default_factory=list)  # of sessions before the last that ended by themselves

    @property
    def modelled(self) -> bool:
        """Whether this came from a machine model and not from hardware."""
        return self.header.modelled

    @property
    def wall_s(self) -> float:
        """Seconds that all its sessions took, as far as they ended by themselves."""
        return sum(end.wall_s for end in self._ends())

    def gained(self) -> tuple[dict[str, Counter[str]], float]:
        """What the error counters of each GPU gained in all sessions, and the share of CPU time that was stolen."""
        counters: dict[str, Counter[str]] = {}
        stolen_s = 0.0
        for end in self._ends():
            for place, told in end.gained.items():
                if place == "cpu_steal":
                    stolen_s += told * end.wall_s
                else:
                    counters.setdefault(place, Counter()).update(told)
        return counters, stolen_s / self.wall_s if self.wall_s else 0.0

    def contexts(self) -> dict[str, list[ContextsTally]]:
        """How many contexts of each GPU were made alike, in each session."""
        found: dict[str, list[ContextsTally]] = {}
        for end in self._ends():
            for gpu, tally in end.contexts.items():
                found.setdefault(gpu, []).append(tally)
        return found

    def _ends(self) -> list[End]:
        return [*self.earlier_ends, *([self.end] if self.end else [])]


class _Kind(msgspec.Struct):
    record: str | None = None
    schema: int | None = None


_ROUND = b'{"record":"round",'
_SKIMMED = msgspec.json.Decoder(_Kind)


def read_run(path: str | os.PathLike[str], *, rounds: bool = True) -> Run:
    """Raises UserError with one sentence where `path` holds no run that can be read.

    `rounds`: whether its single rounds are kept, most of the file, which only going on with the run needs.
    """
    where = Path(path)
    try:
        with _opened(where) as file:
            return _read(where, file, rounds)
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror}; check who may read it") from None


def _read(where: Path, file: io.BufferedReader, keep_rounds: bool) -> Run:
    content, compressed, warnings = _content(where, file)
    header, offset = _header(where, content)
    points: dict[str, Point] = {}
    rounds: dict[str, list[Round]] = {}
    resumes: list[Resume] = []
    earlier: list[End] = []
    end: End | None = None
    for number, line in enumerate(content, 2):
        try:
            if not keep_rounds and line.startswith(_ROUND):
                _SKIMMED.decode(line)  # whether it is whole: as much as anybody wants to know
                offset += len(line)
                continue
            record = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if content.read().strip():
                raise _torn(where, number, error) from None
            warnings.append(
                f"{where}: the last line (line {number}) is torn and was dropped: the run was cut off there"
            )
            break
        match record:
            case Point():
                points[record.id] = record
            case Round():
                if keep_rounds:
                    rounds.setdefault(record.id, []).append(record)
            case Resume():
                resumes.append(record)
                earlier += [end] if end else []
                end = None
            case End():
                end = record
            case Header():
                raise UserError(
                    f"{where}, line {number}: a second run starts here; a run file holds one run: split it at this line"
                )
        offset += len(line)
    return Run(where, header, list(points.values()), rounds, resumes, end, warnings, offset, compressed, earlier)


def _opened(where: Path) -> io.BufferedReader:
    if where.is_dir():
        raise UserError(f"{where} is a directory, not a run file: name the .jsonl file in it")
    try:
        return open(where, "rb")
    except FileNotFoundError:
        raise UserError(
            f"there is no file {where}: check the path, or make a run with `linkscope run -o {where}`"
        ) from None


def _content(where: Path, file: io.BufferedReader) -> tuple[io.BufferedReader, bool, list[str]]:
    """What the file says, whether it is compressed, and what was noticed."""
    start = file.peek(len(_GZIP_MAGIC))
    if not start:
        raise UserError(f"{where} is empty, so it holds no run: measure again with `linkscope run`")
    if not start.startswith(_GZIP_MAGIC):
        return file, False, []
    content, warnings = _unzipped(where, file.read())
    return io.BufferedReader(io.BytesIO(content)), True, warnings


def _unzipped(where: Path, raw: bytes) -> tuple[bytes, list[str]]:
    """The text of a gzip file; of one that was cut off, as much as there is."""
    parts = []
    while raw:
        stream = zlib.decompressobj(wbits=31)
        try:
            parts.append(stream.decompress(raw) + stream.flush())
        except zlib.error as error:
            raise UserError(f"{where} is damaged gzip ({error}): copy it again from where it came") from None
        if not stream.eof:
            return b"".join(parts), [f"{where}: the compressed file is cut off; what is there was read"]
        raw = stream.unused_data
    return b"".join(parts), []


def _header(where: Path, content: io.BufferedReader) -> tuple[Header, int]:
    not_a_run = f"{where} is not a linkscope run file"
    cure = "a run file is what `linkscope run -o FILE.jsonl` writes"
    if b"\0" in content.peek(4096)[:4096]:
        raise UserError(f"{not_a_run}: it is binary; {cure}")
    line = content.readline()
    try:
        kind = msgspec.json.decode(line, type=_Kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if not line.endswith(b"\n") and line.startswith(b'{"record":"run"'):
            raise UserError(f"{where} is torn in its first line, so it holds no run: measure again") from None
        raise UserError(f"{not_a_run}: its first line is not a run record; {cure}") from None
    if kind.record != "run":
        raise UserError(f"{not_a_run}: its first line is not a run record; {cure}")
    if kind.schema != SCHEMA:
        raise UserError(
            f"{where} has schema {kind.schema}, and this linkscope reads schema {SCHEMA}: use the version that wrote it"
        )
    try:
        return msgspec.json.decode(line, type=Header), len(line)
    except msgspec.DecodeError as error:
        raise _torn(where, 1, error) from None


def _torn(where: Path, number: int, error: Exception) -> UserError:
    what = f"{where}, line {number}: the line is damaged ({error})"
    return UserError(f"{what}; only a last line may be torn: take an undamaged copy of the file")
