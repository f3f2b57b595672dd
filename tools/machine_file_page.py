"""Writes the tables of keys of docs/reference/machine-file.md. The text around them is written by hand.

Usage: .venv/bin/python tools/machine_file_page.py     (from the types of linkscope/machine/model_types.py)
"""

import json
import pathlib
import re
import typing
from typing import Any

import msgspec

from linkscope.machine.model_schema import FRACTIONS, Key, Quantity, bare, content, keys
from linkscope.machine.model_types import Model

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "reference" / "machine-file.md"
HEAD = "| key | type | default | meaning |\n|---|---|---|---|\n"
_KINDS = {str: "text", int: "count", bool: "boolean", list[str]: "list of texts"}


def tables() -> dict[str, type[msgspec.Struct]]:
    """Every table of a machine file by its header, and the constants."""
    found: dict[str, Any] = {"Constants": Quantity}
    for field in msgspec.structs.fields(Model):
        kind, name = content(field.type), field.encode_name
        if typing.get_origin(kind) is dict:  # a table with names of its own for its rows
            kind = typing.get_args(kind)[1]
        if name == "noise":
            found |= {f"[noise.{level.encode_name}]": content(level.type) for level in msgspec.structs.fields(kind)}
        else:
            found[f"[[{name}]]" if typing.get_origin(bare(field.type)) is list else f"[{name}]"] = kind
    return found


def page(text: str) -> str:
    """The page with the table of each section made anew. A section without a table has none."""
    known = tables()
    parts = re.split(r"^(?=## )", text, flags=re.M)
    for number, part in enumerate(parts):
        headers = [header.strip("`") for header in part.partition("\n")[0].removeprefix("## ").split(", ")]
        kinds = {header: known[header] for header in headers if header in known}
        before, head, rest = part.partition(HEAD)
        if kinds and head:
            parts[number] = before + head + "".join(f"{row}\n" for row in _all_rows(kinds)) + _after_rows(rest)
    return "".join(parts)


def _after_rows(text: str) -> str:
    return re.sub(r"\A(\|.*\n)*", "", text)


def _all_rows(kinds: dict[str, type[msgspec.Struct]]) -> list[str]:
    """The rows of a section. Several tables of one type share their rows; those of others have `table.key`."""
    if len(set(kinds.values())) == 1:
        return rows(next(iter(kinds.values())))
    return [row for header, kind in kinds.items() for row in rows(kind, f"{header.strip('[]')}.")]


def rows(table: type[msgspec.Struct], prefix: str = "") -> list[str]:
    """The rows of a table; `prefix` stands before each key. A row may have several keys."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(table)}
    grouped: dict[str, list[str]] = {}
    said = keys(table)
    for name, key in said.items():
        own = name if key.meaning else key.row or next(reversed(grouped))
        grouped.setdefault(own, []).append(f"`{prefix}{name}`")
    return [
        f"| {', '.join(names)} | {_kind(fields[own], said[own])} | {_default(fields[own], said[own])} "
        f"| {said[own].meaning} |"
        for own, names in grouped.items()
    ]


def _kind(field: msgspec.structs.FieldInfo, key: Key) -> str:
    """The type in words. Units and fractions are part of the names of keys."""
    kind, name = bare(field.type), field.encode_name
    if key.kind:
        return key.kind
    if kind is Quantity:
        return "**C**" + " fraction" * name.endswith(FRACTIONS) + " count" * key.whole
    if kind is float:
        return {"gib": "GiB", "mib": "MiB"}.get(name.rpartition("_")[2], "number")
    return "text" if typing.get_origin(kind) is typing.Literal else _KINDS[kind]


def _default(field: msgspec.structs.FieldInfo, key: Key) -> str:
    if key.needs or key.default:
        return key.default or f"required with `{key.needs}`"
    if field.required:
        return "required"
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value)}`"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    print(f"wrote {PAGE}")
