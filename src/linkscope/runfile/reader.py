"""Reads run files, `.jsonl` and `.jsonl.gz`, including files with a torn last line."""

import functools
import io
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from linkscope.errors import UserError
from linkscope.runfile.content import GZIP_MAGIC
from linkscope.runfile.ids import PointId
from linkscope.runfile.schema import (
    SCHEMA,
    ContextsTally,
    End,
    Header,
    MachineShape,
    PlanShape,
    Point,
    Record,
    Resume,
    Round,
    ToolShape,
)

_DECODER = msgspec.json.Decoder(Record)


Answer = TypeVar("Answer")


def once(question: Callable[["Run"], Answer]) -> Callable[["Run"], Answer]:
    """Keeps the answer of a function with the run, because several sections of a page need the same answer.

    Callers must not change the answer, and must not change the run after the first call.
    """

    @functools.wraps(question)
    def answer(run: "Run") -> Answer:
        if question not in run.answers:
            run.answers[question] = question(run)
        found: Answer = run.answers[question]
        return found

    return answer


@dataclass(frozen=True)
class Predicted:
    """What a model says of points of a run: seconds of an operation of each measured flow, by id. `by`: its name."""

    by: str
    seconds: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Run:
    """A run file's content. `points`: the newest record of each id, in the order of their first records.

    `predicted`: added by the command that reads the run; the file does not hold it.
    """

    path: Path
    header: Header
    points: list[Point]
    rounds: dict[str, list[Round]] = field(repr=False)
    resumes: list[Resume]
    end: End | None
    warnings: list[str]
    valid_bytes: int
    compressed: bool
    earlier_ends: list[End] = field(default_factory=list)  # of earlier sessions that wrote their last line
    predicted: Predicted | None = None
    answers: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)  # of `once`

    @property
    def modelled(self) -> bool:
        """Whether the run was simulated."""
        return self.header.modelled

    @property
    def wall_s(self) -> float:
        """Seconds of all sessions that wrote their last line."""
        return sum(end.wall_s for end in self._ends())

    def gained(self) -> tuple[dict[str, Counter[str]], float]:
        """Returns the increases of each GPU's error counters in all sessions, and the share of stolen CPU time."""
        counters: dict[str, Counter[str]] = {}
        stolen_s = 0.0
        for end in self._ends():
            for place, increase in end.gained.items():
                if place == "cpu_steal":
                    stolen_s += increase * end.wall_s
                elif place != "tcp":
                    counters.setdefault(place, Counter()).update(increase)
        return counters, stolen_s / self.wall_s if self.wall_s else 0.0

    def tcp(self) -> dict[str, Counter[str]]:
        """Returns the segments that TCP `sent` and `sent_again` in all sessions, by host of ranks."""
        found: dict[str, Counter[str]] = {}
        for end in self._ends():
            for host, counts in end.gained.get("tcp", {}).items():
                found.setdefault(host, Counter()).update(counts)
        return found

    def contexts(self) -> dict[str, list[ContextsTally]]:
        """Returns the tally of contexts of each GPU, by session."""
        found: dict[str, list[ContextsTally]] = {}
        for end in self._ends():
            for gpu, tally in end.contexts.items():
                found.setdefault(gpu, []).append(tally)
        return found

    def _ends(self) -> list[End]:
        return [*self.earlier_ends, *([self.end] if self.end else [])]


class _Kind(msgspec.Struct):
    record: Any = None
    schema: Any = None


_ROUND = b'{"record":"round",'
_KIND_DECODER = msgspec.json.Decoder(_Kind)


def read_run(path: str | os.PathLike[str], *, rounds: bool = True) -> Run:
    """Reads a run file. Raises UserError with one sentence if `path` holds no readable run.

    `rounds`: whether to keep the rounds, which are most of the file; only resuming needs them.
    """
    where = Path(path)
    try:
        with _opened(where) as file:
            return _read(where, file, rounds)
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror}. Check its permissions") from None


def intact_lines(run: Run) -> Iterator[bytes]:
    """The lines of a run's file as they are, without a torn last line. Raises UserError if the file cannot be read."""
    with _opened(run.path) as file:
        content, _, _ = _content(run.path, file)
        read = 0
        for line in content:
            read += len(line)
            if read > run.valid_bytes:
                return
            yield line


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
                _KIND_DECODER.decode(line)  # checks only that the line is intact
                offset += len(line)
                continue
            record = _DECODER.decode(line)
            if isinstance(record, Point):
                PointId.parse(record.id)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            if line.endswith(b"\n"):
                raise _damaged(where, number, error) from None
            warnings.append(
                f"{where}: the last line (line {number}) is incomplete and was dropped. The run was interrupted there"
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
                    f"{where}, line {number}: a second run starts here. Split the file at this line, one run a file"
                )
        offset += len(line)
    return Run(where, header, list(points.values()), rounds, resumes, end, warnings, offset, compressed, earlier)


def _opened(where: Path) -> io.BufferedReader:
    if where.is_dir():
        raise UserError(f"{where} is a directory. Name the .jsonl file in it")
    try:
        return open(where, "rb")
    except FileNotFoundError:
        raise UserError(
            f"file {where} does not exist. Check the path, or make a run with `linkscope run -o {where}`"
        ) from None


def _content(where: Path, file: io.BufferedReader) -> tuple[io.BufferedReader, bool, list[str]]:
    """Returns the content of the file, whether it is compressed, and warnings."""
    start = file.peek(len(GZIP_MAGIC))
    if not start:
        raise UserError(f"{where} is empty. Measure again with `linkscope run`")
    if not start.startswith(GZIP_MAGIC):
        return file, False, []
    content, warnings = _unzipped(where, file.read())
    if not content:
        state = "cut off before its first line" if warnings else "empty"
        raise UserError(f"{where} is {state}. Copy it again from its source, or measure again with `linkscope run`")
    return io.BufferedReader(io.BytesIO(content)), True, warnings


def _unzipped(where: Path, raw: bytes) -> tuple[bytes, list[str]]:
    """Returns the text of a gzip file, as far as it is complete."""
    parts = []
    while raw:
        stream = zlib.decompressobj(wbits=31)
        try:
            parts.append(stream.decompress(raw) + stream.flush())
        except zlib.error as error:
            raise UserError(f"{where} is a damaged gzip file ({error}). Copy it again from its source") from None
        if not stream.eof:
            return b"".join(parts), [f"{where}: the compressed file is incomplete. The intact part was read"]
        raw = stream.unused_data
    return b"".join(parts), []


def _header(where: Path, content: io.BufferedReader) -> tuple[Header, int]:
    not_a_run = f"{where} is not a linkscope run file"
    hint = "Run files come from `linkscope run -o FILE.jsonl`"
    if b"\0" in content.peek(4096)[:4096]:
        raise UserError(f"{not_a_run}: it is binary. {hint}")
    line = content.readline()
    try:
        kind = msgspec.json.decode(line, type=_Kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if not line.endswith(b"\n") and line.startswith(b'{"record":"run"'):
            raise UserError(f"{where} has an incomplete first line and no results. Measure again") from None
        raise UserError(f"{not_a_run}: its first line is not a run record. {hint}") from None
    if kind.record != "run":
        raise UserError(f"{not_a_run}: its first line is not a run record. {hint}")
    if kind.schema != SCHEMA:
        raise UserError(
            f"{where} has schema {kind.schema!r}, but this linkscope reads schema {SCHEMA}. "
            "Use the version that wrote it"
        )
    try:
        header = msgspec.json.decode(line, type=Header)
        for part, shape in ((header.plan, PlanShape), (header.machine, MachineShape), (header.tool, ToolShape)):
            msgspec.convert(part, shape)
    except msgspec.DecodeError as error:
        raise _damaged(where, 1, error) from None
    return header, len(line)


def _damaged(where: Path, number: int, error: Exception) -> UserError:
    cure = "Use an undamaged copy of the file"
    if number == 1:
        return UserError(f"{where}, line 1: the first line is damaged ({error}). {cure}")
    what = f"{where}, line {number}: the line is damaged ({error}); only the last line may be incomplete"
    show = "zcat" if where.suffix == ".gz" else "cat"
    intact = f"its {number - 1} intact lines: `{show} {where} | head -n {number - 1} > FILE.jsonl`"
    return UserError(f"{what}. {cure}, or {intact}")
