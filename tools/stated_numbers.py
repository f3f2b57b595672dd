"""Writes docs/notes/stated-numbers.md: every number that the papers state of their systems beside the models' value.

Usage: .venv/bin/python tools/stated_numbers.py     (MODELLED, without noise)

The numbers are those of the tests of the papers (tests/python/test_paper_*.py), of tools/network_page.py and of
tools/computations_page.py. They never come from the machine files.
"""

import pathlib
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "python"))

import computations_page  # noqa: E402 (the folder above is on the path only now)
import network_page  # noqa: E402

PAGE = ROOT / "docs" / "notes" / "stated-numbers.md"
HEAD = """# Numbers that the papers state, and the models

<!-- Made by tools/stated_numbers.py: change that. -->

**Question.** How far are the machine models from the numbers that the papers state of their systems?

**Answer.** {within} of {all} numbers are within 5 % (penalties within a tenth or 2 points), and {inside} of {spans}
ratios within their ranges. {predicted} of the {all} are predictions: no constant of a machine file is fitted to them or
repeats them.

**Command.** `.venv/bin/python tools/stated_numbers.py`. All values are MODELLED, without noise.

A residual is (model - paper) / paper. "Fitted" marks a number to which a constant of a machine file is fitted,
"datasheet" a capacity that the file repeats. Counters of KL-8 and KL-9 are in
[put-get-on-models.md](put-get-on-models.md), the curves of JO-12 to JO-16 in [jorda-on-models.md](jorda-on-models.md)
and [network-on-models.md](network-on-models.md).

| item | the paper | MODELLED | residual | |
|---|--:|--:|--:|---|
"""
TAIL = """
The penalty of the scan is compared as SHOC of 2011 counted it, with milliseconds added to seconds; the model's own is
21.7 %. The penalty of the stencil (SP-5) misses: pinned copies in and out, without any computation, lose less.
[computations-on-models.md](computations-on-models.md) gives the reasons of both.
"""


@dataclass(frozen=True)
class Row:
    """One number; `about`: fitted, datasheet, or nothing."""

    item: str
    stated: str
    modelled: float
    residual: float | None
    holds: bool
    about: str = ""


def rows() -> list[Row]:
    """All numbers with a value, in the order of the papers."""
    return [*_of_tests(), *_latencies(), *_penalties()]


def spans() -> list[Row]:
    """All ratios with a range."""
    from test_paper_jorda import SPANS

    found = [(span, span.found()) for span in SPANS]
    return [
        Row(span.item, f"{span.least:g} to {span.most:g}", value, None, span.least <= value <= span.most,
            _fitted(span.item.partition(":")[0]))
        for span, value in found
    ]  # fmt: skip


def _of_tests() -> Iterator[Row]:
    from paper_machines import is_near
    from test_papers import NUMBERS

    for number in NUMBERS:
        found = float(number.found())
        about = "datasheet" if "raw" in number.found.__code__.co_names else _fitted(number.item)
        yield Row(
            number.item, f"{number.expected:.4g}", found, found / number.expected - 1, is_near(number, found), about
        )


def _latencies() -> Iterator[Row]:
    for case, paper, found, fitted in network_page.latencies():
        yield Row(f"SP-3: {case}, µs", f"{paper:g}", found, found / paper - 1, abs(found / paper - 1) <= 0.05,
                  "fitted" if fitted else "")  # fmt: skip


def _penalties() -> Iterator[Row]:
    machine = computations_page.Keeneland()
    for name, (_, _, unit, penalty) in computations_page.PUBLISHED.items():
        found = machine.scan_as_counted() if name == "scan" else machine.found(name)
        value = 100 * (found.over_bad if unit == "s" else found.over_good)
        holds = abs(value - penalty) <= max(0.1 * penalty, 2)
        shown = f"{name}, as counted" if name == "scan" else name
        yield Row(f"SP-5: penalty of {shown}, %", f"{penalty:g}", value, value / penalty - 1, holds)


def _fitted(item: str) -> str:
    return "fitted" if any(one.startswith(item.partition(" on ")[0]) for one in _fits()) else ""


def _fits() -> set[str]:
    """The items to which constants of the machine files are fitted."""
    texts = [path.read_text() for path in (ROOT / "machines").glob("*.toml")]
    return {item for text in texts for item in _fitted_to(tomllib.loads(text))}


def _fitted_to(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        yield from content.get("fitted_to", ())
    for value in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from _fitted_to(value)


def _residual(row: Row) -> str:
    text = f"{row.residual:+.1%}" if row.residual is not None else "in the range" if row.holds else "outside"
    return text if row.holds else f"{text}, **misses**"


def page() -> str:
    """The whole page."""
    numbers, ranges = rows(), spans()
    head = HEAD.format(
        all=len(numbers), within=sum(row.holds for row in numbers), spans=len(ranges),
        inside=sum(row.holds for row in ranges), predicted=sum(not row.about for row in numbers),
    )  # fmt: skip
    lines = [
        f"| {row.item} | {row.stated} | {row.modelled:.4g} | {_residual(row)} | {row.about} |"
        for row in (*numbers, *ranges)
    ]
    return head + "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
