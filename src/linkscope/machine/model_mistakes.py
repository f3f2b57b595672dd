"""Mistakes in machine files: their key, what is wrong, and the cure, from msgspec's messages; and their line."""

import difflib
import re
import typing
from typing import Any

import msgspec

from linkscope.machine.model_schema import Quantity, content
from linkscope.machine.model_types import Model

EXAMPLE = '{ v = 1.5, from = "assumed", why = "…" }'
_UNIT = re.compile(r"_(gbps|gops|us|ns|kib|mib|gib)$")
_TYPES = {
    "str": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
    "null": "",  # TOML has no null: an optional key is left out
}


class Mistake(Exception):
    """What is wrong at a key of a machine file, and the cure."""

    def __init__(self, key: str, what: str, cure: str) -> None:
        super().__init__(key)
        self.key, self.what, self.cure = key, what, cure


def explain(problem: msgspec.ValidationError) -> Mistake:
    """A mistake in types or keys, from msgspec's message."""
    message, _, at = str(problem).partition(" - at `")
    key = at.rstrip("`").removeprefix("$").removeprefix(".").replace("[...]", "") or "the file"
    field = re.search(r"field `(\w+)`", message)
    if field and "unknown" in message:
        known = _keys_at(key)
        with_unit = [name for name in known if _UNIT.search(name) and _stem(name) == _stem(field[1])]
        stems = {_stem(name): name for name in known}  # otherwise any two times would look similar
        near = with_unit or [stems[stem] for stem in difflib.get_close_matches(_stem(field[1]), stems, 1, 0.5)]
        cure = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
        return Mistake(
            join(key, field[1]), "there is no such key", cure + " (the unit is part of the name)" * bool(with_unit)
        )
    if field and "missing" in message:
        return Mistake(join(key, field[1]), "it is missing", f"write {field[1]} = {_example(key, field[1])}")
    if "Expected `object`" in message and _example(*_split(key)) == EXAMPLE:
        return Mistake(key, "a constant says where it comes from", f"write {_split(key)[1]} = {EXAMPLE}")
    if "Invalid enum value" in message:
        wrong = message.removeprefix("Invalid enum value ")
        return Mistake(key, f"it cannot be {wrong}", f"it is {' or '.join(_choices(key))}")
    expected, found = (_in_words(half) for half in message.partition(", got ")[::2])
    what = f"it must be {expected}, but the file has {found}" if found else f"it must be {expected}"
    return Mistake(key, what, "correct the value")


def _in_words(types: str) -> str:
    """msgspec's type names, as in "Expected `float | null`", in words that describe a TOML value."""
    names = [_TYPES.get(name, name) for name in types.removeprefix("Expected ").replace("`", "").split(" | ")]
    return " or ".join(name for name in names if name)


def _stem(key: str) -> str:
    """A key without its unit."""
    return _UNIT.sub("", key)


def line_of(text: str, key: str) -> int | None:
    """The line of `link[1].gbps`, or that of its table if the key is missing."""
    parts = re.findall(r"(\w+)(?:\[(\d+)\])?", key)
    best: int | None = None
    seen: dict[str, int] = {}
    inside: list[str] = []
    wanted = [f"{name}[{index}]" if index else name for name, index in parts]
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[\[?)\s*([\w.]+)", line)
        if header:
            names = header[2].split(".")
            if header[1] == "[[":
                seen[header[2]] = seen.get(header[2], -1) + 1
                names[-1] += f"[{seen[header[2]]}]"
            inside = names
            if inside == wanted[: len(inside)]:
                best = number
            continue
        found = re.match(r"\s*([\w]+)\s*=", line)
        depth = len(inside)
        if found and depth < len(wanted) and inside == wanted[:depth] and found[1] == parts[depth][0]:
            return number
    return best


def _keys_at(key: str) -> list[str]:
    kind = _type_at(key)
    return [field.encode_name for field in msgspec.structs.fields(kind)] if kind else []


def _example(key: str, name: str) -> str:
    """An example of a missing key."""
    kind = _type_at(join(key, name))
    if kind is Quantity:
        return EXAMPLE
    return '"published" (or "derived", "fitted", "measured", "assumed")' if name == "from" else "…"


def _choices(key: str) -> list[str]:
    table, name = _split(key)
    kind = _type_at(table)
    fields = msgspec.structs.fields(kind) if kind else ()
    return [
        str(choice) for field in fields if field.encode_name == name for choice in typing.get_args(content(field.type))
    ]


def _type_at(key: str) -> type | None:
    """The struct at a key of the file, or None for a plain value."""
    kind: Any = Model
    for name in re.findall(r"(\w+)(?:\[\d+\])?", "" if key == "the file" else key):
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            return None
        field = next((field for field in msgspec.structs.fields(kind) if field.encode_name == name), None)
        if field is None:
            return None
        kind = content(field.type)
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def join(key: str, name: str) -> str:
    """The key of a value in the table at `key`."""
    return name if key in ("", "the file") else f"{key}.{name}"


def _split(key: str) -> tuple[str, str]:
    head, _, name = key.rpartition(".")
    return head, name
