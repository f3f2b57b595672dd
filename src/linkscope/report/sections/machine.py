"""Section: the facts about the machine and its environment."""

from collections.abc import Iterator
from typing import Any

from linkscope.model.text import count_text
from linkscope.report.run_view import RunView
from linkscope.report.section import Block, Fold, Listing, Section


def section(view: RunView) -> Section:
    """Two folded lists of names and values."""
    header = view.run.header
    blocks = (_fold("Machine", header.machine), _fold("Environment", header.environment))
    return Section("environment", "Machine and environment", blocks)


def _fold(heading: str, facts: dict[str, Any]) -> Fold:
    rows = list(_flat(facts))
    made: tuple[Block, ...] = (Listing(tuple(f"{name}: {value}" for name, value in rows)),) if rows else ()
    return Fold(f"{heading}: {count_text(len(rows), 'fact')}", made, role="more")


def _flat(facts: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested facts as lines with dotted names. A list of plain values is one line."""
    if isinstance(facts, dict):
        for key, value in facts.items():
            if key != "warnings":
                yield from _flat(value, f"{name}.{key}" if name else str(key))
    elif isinstance(facts, list) and any(isinstance(value, dict | list) for value in facts):
        for index, value in enumerate(facts):
            yield from _flat(value, f"{name}[{index}]")
    elif isinstance(facts, list):
        yield name, ", ".join(map(str, facts))
    elif facts is not None and facts != "":
        yield name, str(facts)
