"""Reads the kernel's files (/sys, /proc) of this machine, a copied tree, or an earlier reading."""

import re
from collections.abc import Mapping
from pathlib import Path


class Files:
    """Text files below `root`, each read once and remembered, so that a reading can be saved."""

    def __init__(self, root: str | Path = "/") -> None:
        self._root: Path | None = Path(root)
        self._texts: dict[str, str] = {}
        self._lists: dict[str, list[str]] = {}

    @classmethod
    def replay(cls, texts: Mapping[str, str], lists: Mapping[str, list[str]]) -> "Files":
        """Files of an earlier reading; all others are missing."""
        files = cls()
        files._root, files._texts, files._lists = None, dict(texts), dict(lists)
        return files

    @property
    def is_here(self) -> bool:
        """Whether these are the files of this machine, and not a copied tree or an earlier reading."""
        return self._root == Path("/")

    def record(self) -> dict[str, dict[str, str] | dict[str, list[str]]]:
        """All files that were read, for `replay`."""
        return {"texts": dict(sorted(self._texts.items())), "lists": dict(sorted(self._lists.items()))}

    def text(self, path: str) -> str | None:
        """The stripped content; None for a missing, unreadable or empty file."""
        if path not in self._texts and self._root is not None:
            try:
                content = (self._root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                return None
            self._texts[path] = content.strip("\0")
        return self._texts.get(path) or None

    def hex(self, path: str) -> str | None:
        """The content of a binary file (PCI configuration space) in hexadecimal digits."""
        if path not in self._texts and self._root is not None:
            try:
                self._texts[path] = (self._root / path.lstrip("/")).read_bytes().hex()
            except OSError:
                return None
        return self._texts.get(path) or None

    def whole(self, path: str) -> int | None:
        """A decimal number, or None."""
        text = self.text(path)
        return int(text) if text is not None and re.fullmatch(r"[+-]?\d+", text) else None

    def names(self, path: str) -> list[str]:
        """The sorted names in a folder; empty without it."""
        if path not in self._lists and self._root is not None:
            try:
                self._lists[path] = sorted(entry.name for entry in (self._root / path.lstrip("/")).iterdir())
            except OSError:
                return []
        return self._lists.get(path, [])


def parse_list(text: str | None) -> tuple[int, ...]:
    """'0-3,8' -> (0, 1, 2, 3, 8); empty for None, '' and anything else."""
    numbers: list[int] = []
    for part in (text or "").split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match:
            numbers.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(numbers)


def parse_kib(text: str | None, key: str) -> int | None:
    """Bytes of the line 'Key:  123 kB' in files like /proc/meminfo."""
    match = re.search(rf"(?m)^(?:Node \d+ )?{re.escape(key)}:\s*(\d+) kB", text or "")
    return int(match[1]) * 1024 if match else None


def chosen(text: str | None) -> str | None:
    """'always [madvise] never' -> 'madvise': the kernel's notation of a choice."""
    match = re.search(r"\[([^\]]+)\]", text or "")
    return match[1] if match else None
