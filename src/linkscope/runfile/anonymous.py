"""A run file without personal data: the same records and numbers, with stable placeholders for personal words."""

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from linkscope.runfile.ids import PointId
from linkscope.runfile.private import (
    ADDRESS,
    HOST,
    PATH,
    SERIAL,
    USER,
    UUID,
    Private,
    id_in,
    is_numeric,
    is_personal_key,
)
from linkscope.runfile.reader import intact_lines, read_run

_PLACEHOLDERS = {
    HOST: "host-{}", USER: "user-{}", SERIAL: "serial-{}", ADDRESS: "address-{}", PATH: "/path-{}",
    UUID: "00000000-0000-0000-0000-{:012}",
}  # fmt: skip
_ANYWHERE = 5  # letters: longer words are replaced inside other words too
_PLAIN = re.compile(r"[\w.+-]+")
_CLOSED = {  # keys whose values are words of the format
    "record", "status", "role", "timing", "ci_method", "suite", "rule", "benchmark", "engine", "src_memory",
    "dst_memory", "kind",
}  # fmt: skip
_WORDS = {"gpu", "numa", "host", "nic", "disk", "all", "linkscope"}


def personal_data(path: Path) -> Private:
    """The personal words of a run file. Raises UserError if the file holds no readable run."""
    found = Private()
    for _, record in _records(path):
        found.look_at(record)
    return found


def anonymous(path: Path) -> tuple[bytes, list[str]]:
    """Returns the lines of the run file with placeholders, and the words that stay in part.

    A word that is also a word of the format, such as `gpu`, is replaced under its own key only. A torn last line is
    left out. Raises UserError if the file holds no readable run.
    """
    found, reserved = Private(), set(_WORDS)
    for _, record in _records(path):
        found.look_at(record)
        _reserve(record, reserved)
    cleaner = _Cleaner(found, reserved)
    lines = []
    for line, record in _records(path):
        cleaned = cleaner.clean(record)
        lines.append(line if cleaned == record else msgspec.json.encode(cleaned) + b"\n")
    return b"".join(lines), sorted(word for word in found.words if word.lower() in reserved)


class _Cleaner:
    """Replaces words. The same word has the same placeholder everywhere in a file."""

    def __init__(self, found: Private, reserved: set[str]) -> None:
        counts: dict[str, int] = {}
        self._reserved = reserved
        self._placeholders: dict[str, str] = {}
        for word, kind in found.words.items():
            if word.lower() not in self._placeholders:
                counts[kind] = counts.get(kind, 0) + 1
                self._placeholders[word.lower()] = _PLACEHOLDERS[kind].format(counts[kind])
        words = sorted(self._placeholders.keys() - reserved, key=lambda word: (-len(word), word))
        all_reserved = "\n".join(reserved)
        patterns = [_pattern_of(word, inside=len(word) >= _ANYWHERE and word not in all_reserved) for word in words]
        self._pattern = re.compile("|".join(patterns), re.IGNORECASE) if patterns else None
        self._text = functools.lru_cache(maxsize=1 << 16)(self._cleaned)  # the texts of rounds repeat

    def clean(self, value: Any, key: str = "") -> Any:
        """The value with placeholders in all texts below it, names of tables included."""
        if isinstance(value, str):
            return self._text(value, key)
        if isinstance(value, dict):
            return {
                self._text(name): inner if isinstance(inner, int | float | None) else self.clean(inner, name)
                for name, inner in value.items()
            }
        if isinstance(value, list) and not is_numeric(value):
            return [self.clean(inner, key) for inner in value]
        return value

    def _cleaned(self, text: str, key: str = "") -> str:
        if is_personal_key(key) and text.lower() in self._placeholders:
            return self._placeholders[text.lower()]
        if (point := id_in(text)) is not None:
            return _id_with(text, point, self._text)
        if self._pattern is None or text.lower() in self._reserved:
            return text
        return self._pattern.sub(lambda match: self._placeholders[match[0].lower()], text)


def _pattern_of(word: str, *, inside: bool) -> str:
    escaped = re.escape(word)
    return escaped if inside else rf"(?<![A-Za-z0-9]){escaped}(?![A-Za-z0-9])"


def _id_with(text: str, point: PointId, change: Callable[[str], str]) -> str:
    """The id with changed places. Operation, engine, memories and sizes stay."""
    params = tuple((name, change(value)) for name, value in point.params)
    changed = replace(point, src=change(point.src), dst=change(point.dst), params=params)
    return text if changed == point else str(changed)


def _reserve(value: Any, reserved: set[str], key: str = "") -> None:
    """Adds the words of the format in a record, in lower case: names of fields, and values from closed lists."""
    if isinstance(value, str):
        if key in _CLOSED and _PLAIN.fullmatch(value):
            reserved.add(value.lower())
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in reserved and _PLAIN.fullmatch(name):
                reserved.add(name.lower())
            if not isinstance(inner, int | float | None):
                _reserve(inner, reserved, "kind" if key == "params" else name)
    elif isinstance(value, list) and not is_numeric(value):
        for inner in value:
            _reserve(inner, reserved, key)


def _records(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The intact lines of a run file and their records."""
    for line in intact_lines(read_run(path, rounds=False)):
        yield line, msgspec.json.decode(line)
