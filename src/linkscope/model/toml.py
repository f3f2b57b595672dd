"""Writes the content of a machine file as TOML (docs/reference/machine-file.md)."""

import json
from typing import Any

_ORDER = (
    "machine", "numa", "gpu", "nic", "disk", "switch", "link", "share", "route", "peer", "costs", "copy", "pull",
    "batch", "graph", "kernel", "managed", "calls", "atomic", "memory", "pageable", "staged_peer", "noise", "deviation",
)  # fmt: skip


def machine_toml(content: dict[str, Any]) -> str:
    """The text of the file; a comment at the top names the runs it was fitted to."""
    parts = []
    for table in sorted(content, key=_ORDER.index):
        rows = content[table]
        if table == "noise":
            parts += [_table(f"[noise.{level}]", rows[level]) for level in rows]
        elif isinstance(rows, list):
            parts += [_table(f"[[{table}]]", row) for row in rows]
        else:
            parts.append(_table(f"[{table}]", rows))
    return "\n".join(parts)


def _table(head: str, values: dict[str, Any]) -> str:
    return "\n".join([head, *(f"{_key(key)} = {_value(value)}" for key, value in values.items()), ""])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, float):
        return f"{value:.10g}"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if key.replace("_", "").isalnum() and key.isascii() else json.dumps(key)
