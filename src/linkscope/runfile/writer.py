"""Writes run files: one JSON line a record, appended and flushed at once."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from linkscope.errors import UserError
from linkscope.runfile.content import holds_run
from linkscope.runfile.reader import Run
from linkscope.runfile.schema import Header, Record, Resume

_SYNC_EVERY_S = 2.0  # a flush survives the process, a sync survives the machine and costs milliseconds


def _lock(file: BinaryIO, path: Path) -> None:
    """Locks the file until it is closed, so that no second run writes to it. Raises UserError if one does already."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise UserError(
            f"{path}: another run is writing to this file. Choose another -o, or wait for its end"
        ) from None
    except OSError:  # some network file systems have no locks
        return


class RunWriter:
    """Appends records to one run file. Every write reaches the kernel before it returns."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._encoder = msgspec.json.Encoder()
        self._synced = time.monotonic()

    @classmethod
    def create(cls, path: str | os.PathLike[str], header: Header, *, force: bool = False) -> "RunWriter":
        """Starts a new file. Refuses an existing file unless `force`."""
        where = Path(path)
        try:
            if where.is_dir():
                raise UserError(f"cannot write to {where}: it is a directory. Name a file in it")
            file = open(where, "r+b" if force and where.exists() else "xb", buffering=0)  # noqa: SIM115  closed by close()
        except FileExistsError:
            go_on = f"Continue it with `--resume {where}`, replace" if holds_run(where) else "It holds no run. Replace"
            raise UserError(f"{where} exists. {go_on} it with --force, or choose another -o") from None
        except OSError as error:
            raise UserError(f"cannot write to {where}: {error.strerror}. Choose another file with -o") from None
        _lock(file, where)
        if force and where.is_file():
            file.truncate(0)
        writer = cls(file, where)
        writer.write(header)
        return writer

    @classmethod
    def go_on(cls, run: Run, resume: Resume) -> "RunWriter":
        """Appends to the file of `run`, after removing a torn last line."""
        if run.compressed:
            raise UserError(f"{run.path} is compressed, so nothing can be appended. Unpack it with gunzip first")
        try:
            file = open(run.path, "r+b", buffering=0)  # noqa: SIM115  closed by close()
            _lock(file, run.path)
            file.truncate(run.valid_bytes)
            file.seek(run.valid_bytes - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        except OSError as error:
            raise UserError(
                f"cannot write to {run.path}: {error.strerror}. Copy the file to a writable place and resume there"
            ) from None
        writer = cls(file, run.path)
        writer.write(resume)
        return writer

    def write(self, record: Record) -> None:
        """Appends one record. Raises UserError if the disk refuses it."""
        line = memoryview(self._encoder.encode(record) + b"\n")
        try:
            while line:
                line = line[self._file.write(line) :]
            if time.monotonic() - self._synced > _SYNC_EVERY_S:
                self.sync()
        except OSError as error:
            raise UserError(
                f"cannot write to {self._path}: {error.strerror}. Everything written before is safe"
            ) from None

    def sync(self) -> None:
        """Makes the written records survive a power failure, on a disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            if error.errno not in (22, 95):  # EINVAL, EOPNOTSUPP: pipes and devices cannot be synced
                raise
        self._synced = time.monotonic()

    def close(self) -> None:
        """Syncs and closes."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> "RunWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
