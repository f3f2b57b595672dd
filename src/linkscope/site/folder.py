"""The output folder: writes what changed, removes what is no longer made, touches nothing that it did not write."""

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

from linkscope.errors import UserError

STATE = ".linkscope-site.json"
_JOURNAL = ".linkscope-site.journal"  # files that an interrupted run wrote, one a line


class _Files(msgspec.Struct):
    files: list[str]


class Folder:
    """A folder whose files all come from `linkscope site`.

    Raises UserError where it holds other files; names that begin with a dot, such as .git, are left alone.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.written = self.unchanged = self.removed = 0
        self._made: set[str] = set()
        self.interrupted = (root / _JOURNAL).is_file()  # the files may be newer than the state
        self._old = self._owned()
        foreign = sorted(self._present() - self._old)
        if foreign:
            shown = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
            raise UserError(
                f"-o {root}: the folder holds files that `linkscope site` did not write ({shown}): choose an empty "
                "folder. Nothing was changed"
            )
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._journal = open(root / _JOURNAL, "a", encoding="utf-8")  # noqa: SIM115  closed by finish()
            self._lock()
        except OSError as error:
            raise UserError(f"-o {root}: cannot be written: {error.strerror}; choose another path") from None

    def _lock(self) -> None:
        """Raises UserError while another process writes the site, or when it just did: its journal is gone then."""
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(self._journal.fileno()), (self.root / _JOURNAL).stat()):
                return
        except (BlockingIOError, FileNotFoundError):
            pass
        self._journal.close()
        raise UserError(f"-o {self.root}: another `linkscope site` writes this site; call again when it has ended")

    def known(self) -> set[str]:
        """The files of earlier runs."""
        return self._old

    def has(self, name: str) -> bool:
        """Whether a file is there from an earlier run."""
        return name in self._old and (self.root / name).is_file()

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return (self.root / name).read_bytes()

    def keep(self, name: str) -> None:
        """Keeps a file of an earlier run as it is."""
        if name not in self._made:
            self.unchanged += 1
        self._made.add(name)

    def drop(self, name: str) -> None:
        """Takes back a file that this run made: `finish` removes it."""
        self._made.discard(name)
        self._old.add(name)

    def put(self, name: str, content: str | bytes) -> None:
        """Writes a file, unless it has this content already."""
        data = content.encode("utf-8") if isinstance(content, str) else content
        target = self.root / name
        if self.has(name) and target.stat().st_size == len(data) and target.read_bytes() == data:
            self.keep(name)
            return
        self.begin(name).write_bytes(data)
        self.end(name)

    def begin(self, name: str) -> Path:
        """A temporary path for a large file; `end` puts it in place."""
        self._journal.write(f"{name}\n{name}.part\n")
        self._journal.flush()
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.with_name(target.name + ".part")

    def end(self, name: str) -> None:
        """Puts a file in place that `begin` named."""
        target = self.root / name
        os.replace(target.with_name(target.name + ".part"), target)
        self.written += name not in self._made
        self._made.add(name)

    def cancel(self, name: str) -> None:
        """Removes what was written of a file that `begin` named; `finish` then removes the file of an earlier run."""
        target = self.root / name
        target.with_name(target.name + ".part").unlink(missing_ok=True)

    def finish(self, state: bytes) -> None:
        """Removes files that this run did not make, and saves the state. `state` must list `files()`."""
        for name in sorted(self._old - self._made):
            path = self.root / name
            if path.is_file() or path.is_symlink():
                path.unlink()
                self.removed += not name.endswith(".part")
        for folder, _, _ in os.walk(self.root, topdown=False):
            if folder != str(self.root) and not os.listdir(folder):
                os.rmdir(folder)
        temporary = self.root / f"{STATE}.part"
        temporary.write_bytes(state)
        os.replace(temporary, self.root / STATE)
        self.close()
        (self.root / _JOURNAL).unlink()

    def close(self) -> None:
        """Closes the journal; after an error the next run knows from it what this one wrote."""
        self._journal.close()

    def files(self) -> list[str]:
        """The files that this run made or kept."""
        return sorted(self._made)

    def _present(self) -> set[str]:
        """The files in the folder, and links to folders. Raises UserError where it is no folder."""
        if self.root.exists() and not self.root.is_dir():
            raise UserError(f"-o {self.root}: this is a file, and a site needs a folder")
        found: set[str] = set()
        for folder, below, names in os.walk(self.root):
            here = Path(folder).relative_to(self.root)
            below[:] = [name for name in below if not name.startswith(".")]
            links = [name for name in below if (Path(folder) / name).is_symlink()]
            found |= {(here / name).as_posix() for name in [*names, *links] if not name.startswith(".")}
        return found

    def _owned(self) -> set[str]:
        """The files of earlier runs. Names that lead out of the folder do not count."""
        names: list[str] = []
        with contextlib.suppress(OSError, msgspec.DecodeError):
            names += msgspec.json.decode((self.root / STATE).read_bytes(), type=_Files).files
        with contextlib.suppress(OSError, UnicodeDecodeError):
            names += (self.root / _JOURNAL).read_text(encoding="utf-8").splitlines()
        return {name for name in names if name and not Path(name).is_absolute() and ".." not in Path(name).parts}
