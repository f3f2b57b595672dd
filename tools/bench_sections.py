"""Sections of a tool that measures side by side within a budget: each yields Markdown and has its part of the time."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from linkscope.errors import UserError
from linkscope.run.target import Target

LATE = "ended before all was measured"  # in notes on what is missing
STOPPED = 4  # exit code of a tool that a further call can continue


class OutOfTime(Exception):
    """The section's part of the budget is over."""


class Sectioned(Protocol):
    """What sections get. `ends`: of the current section, in `monotonic` time. `missing`: what was not measured."""

    target: Target
    ends: float
    missing: list[str]


Sections = Mapping[str, tuple[str, Callable[[Any], Iterator[str]]]]  # title and function by name


def all_lines(
    subject: str,
    sections: Sections,
    bench: Sectioned,
    names: Sequence[str],
    budget_s: float,
    weights: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[str]:
    """The tables as Markdown. A section that runs out of time keeps the rows that it has. Of the time that is left, a
    section gets its weight's part among those to come; 1 where `weights` has none."""
    deadline = time.monotonic() + budget_s
    modelled = "MODELLED: " if bench.target.modelled else ""
    yield f"# {subject} on {modelled}{bench.target.machine.get('title') or bench.target.facts.name}"
    for at, name in enumerate(names):
        title, section = sections[name]
        now = time.monotonic()
        part = weights.get(name, 1.0) / sum(weights.get(later, 1.0) for later in names[at:])
        bench.ends = now + part * (deadline - now)
        yield f"\n## {title}\n"
        try:
            yield from section(bench)
        except OutOfTime:
            bench.missing.append(f"{name}: its part of the {budget_s:.0f} s {LATE}")
        except (UserError, OSError) as problem:
            bench.missing.append(f"{name}: {problem}")
    if bench.missing:
        yield "\n## Not measured\n"
        yield from (f"- {one}" for one in bench.missing)


def exit_code(bench: Sectioned) -> int:
    """0, or STOPPED if a section had too little time."""
    return STOPPED if any(LATE in note for note in bench.missing) else 0


def write_and_print(lines: Iterator[str], path: Path) -> None:
    """Prints each line as soon as it is known, and writes it to the file."""
    with path.open("w") as page:
        for line in lines:
            print(line, flush=True)
            page.write(f"{line}\n")
            page.flush()
