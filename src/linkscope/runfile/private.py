"""Finds personal data in the records of a run file: names of hosts and users, serial numbers, UUIDs, paths, addresses.

A word is found by its key (`host`, `serial`), by its form (a UUID, a path), or because it is part of another word that
was found (the user in `/home/USER`). Paths that are the same on every machine, such as /usr/lib, are not personal.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from linkscope.runfile.ids import PointId

HOST, USER, SERIAL, UUID, PATH, ADDRESS = "host name", "user name", "serial number", "UUID", "path", "address"
_KEYS = {
    HOST: {"host", "hostname", "host_name", "nodename", "node_name", "fqdn", "nccl_hostid", "nccl_comm_id"},
    USER: {"user", "username", "user_name", "login", "logname", "owner"},
    SERIAL: {"serial", "serial_number", "board_serial", "product_serial", "asset_tag"},
}
_KIND_OF_KEY = {key: kind for kind, keys in _KEYS.items() for key in keys}
_NOT_PERSONAL = re.compile(r"|localhost|root|hidden|unknown|none|null|n/a|host:?\d+|(host|user|serial)-\d+", re.I)
_SYSTEM = re.compile(r"/(usr|lib|lib32|lib64|bin|sbin|etc|proc|sys|dev)(/|$)|/opt/(nvidia|cuda)\b|/path-\d+(/|$)")
_PATH = re.compile(r"(?<![\w.~/%>*-])~?/[^\s\"'<>|;:,()\[\]{}?*&`]+")
_QUOTED_PATH = re.compile(r"(['\"`])(~?/[^'\"`\n]+)\1")  # may hold spaces
_DISK = re.compile(r"(?:host:\d+/)?disk:(?P<path>.+)", re.DOTALL)
_HOME = re.compile(r"/(?:home|Users)/([^/\s\"'<>|;:,()\[\]{}?*&`]+)")
_COUNTRIES = "at|au|be|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|it|jp|kr|nl|no|pl|se|sg|tw|uk|us"  # none is a file's ending
_FORMS = (
    (UUID, re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I)),
    (ADDRESS, re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")),
    (ADDRESS, re.compile(r"\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5}\b", re.I)),
    (ADDRESS, re.compile(r"(?<![\w:.])[0-9a-f]{4}(?::[0-9a-f]{4}){3}(?:(?::[0-9a-f]{4}){4})?(?![\w:.])", re.I)),
    (ADDRESS, re.compile(r"(?<![\w:.])(?=[a-f:]*\d)(?:[0-9a-f]{1,4}:){1,7}(?::[0-9a-f]{1,4}){1,7}(?![\w:.])", re.I)),
    (ADDRESS, re.compile(r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\d.])")),
    (HOST, re.compile(r"\b(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|mil|local|lan|internal|cluster|corp|test)\b", re.I)),
    (HOST, re.compile(rf"\b(?:[a-z0-9-]+\.){{2,}}(?:{_COUNTRIES})\b", re.I)),
)  # fmt: skip
_ID = re.compile(r"[a-z0-9_]+/[a-z0-9_]+/[^>]+->")
_PLACEHOLDER_UUID = re.compile(r"(0{4,8}-){4}0{6}\d{6}")


@dataclass
class Private:
    """The personal words of one file, each with its kind and the key where it first stands."""

    words: dict[str, str] = field(default_factory=dict)  # word: kind
    where: dict[str, str] = field(default_factory=dict)  # word: key

    def look_at(self, record: dict[str, Any]) -> None:
        """Adds the words of a record, as decoded from its line."""
        self._visit(record, "", [])

    def _visit(self, value: Any, key: str, place: list[str]) -> None:
        if isinstance(value, str):
            for kind, word in _found(key, value):
                if word not in self.words:
                    self.words[word], self.where[word] = kind, ".".join(place)
        elif isinstance(value, dict):
            for name, inner in value.items():
                self._visit(name, "", place)  # the name of a table can be a place, such as disk:/data
                if not isinstance(inner, int | float | None):
                    self._visit(inner, name, [*place, name])
        elif isinstance(value, list) and not is_numeric(value):
            for inner in value:
                self._visit(inner, key, place)

    def counts(self) -> list[tuple[str, int, str]]:
        """Returns (kind, number of words, the key of the first) for each kind."""
        found: dict[str, tuple[int, str]] = {}
        for word, kind in self.words.items():
            count, where = found.get(kind, (0, self.where[word]))
            found[kind] = (count + 1, where)
        return [(kind, count, where) for kind, (count, where) in found.items()]


def id_in(text: str) -> PointId | None:
    """The id if the text is one; a sentence that only begins as an id does is none."""
    if not _ID.match(text):
        return None
    try:
        return PointId.parse(text)
    except ValueError:
        return None


def is_numeric(value: list[Any]) -> bool:
    """Whether a list holds numbers, such as samples, in which no text can stand."""
    return bool(value) and isinstance(value[0], int | float)


def is_personal_key(key: str) -> bool:
    """Whether the value of a key is a personal word, whatever its form is."""
    return key.lower() in _KIND_OF_KEY


@functools.lru_cache(maxsize=1 << 16)  # the texts of rounds repeat
def _found(key: str, text: str) -> tuple[tuple[str, str], ...]:
    return tuple(_search(key, text))


def _search(key: str, text: str) -> Iterator[tuple[str, str]]:
    kind = _KIND_OF_KEY.get(key.lower())
    if kind is not None:
        if not _NOT_PERSONAL.fullmatch(text):
            yield kind, text
        return
    if (point := id_in(text)) is not None:
        for part in (point.src, point.dst, *(value for _, value in point.params)):
            yield from _search("", part)
        return
    if (disk := _DISK.fullmatch(text)) and "->" not in text[: disk.start("path")] and not _SYSTEM.match(disk["path"]):
        yield PATH, disk["path"]
    for home in _HOME.finditer(text):
        if not _NOT_PERSONAL.fullmatch(home[1]):
            yield USER, home[1]
    for path in [*(quoted[2] for quoted in _QUOTED_PATH.finditer(text)), *(plain[0] for plain in _PATH.finditer(text))]:
        if not _SYSTEM.match(path):
            yield PATH, path.rstrip(".-")
    for kind, form in _FORMS:
        if kind == ADDRESS and "version" in key:  # a version of four numbers looks like an address
            continue
        for match in form.finditer(text):
            if not _PLACEHOLDER_UUID.fullmatch(match[0]):
                yield kind, match[0]
