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
import jorda_page  # noqa: E402
import network_page  # noqa: E402
import put_get_cards  # noqa: E402

from paper_machines import rates  # noqa: E402

PAGE = ROOT / "docs" / "notes" / "stated-numbers.md"
HEAD = """# Numbers that the papers state, and the models

<!-- Made by tools/stated_numbers.py: change that. -->

**Question.** How far are the machine models from the numbers that the papers state of their systems?

**Answer.** {within} of {all} numbers are within 5 % (penalties within a tenth or 2 points), and {inside} of {spans}
ratios within their ranges. {predicted} of the {all} are predictions: no constant of a machine file is fitted to them or
repeats them.

**Command.** `.venv/bin/python tools/stated_numbers.py`. All values are MODELLED, without noise.

A residual is (model - paper) / paper. "Fitted" marks a number to which a constant of a machine file is fitted,
"datasheet" a capacity that the file repeats. Statements with a bound or a size, and numbers without a model, are below.

| item | the paper | MODELLED | residual | |
|---|--:|--:|--:|---|
"""
MISSES = """
What misses, and why:

- SP-4, 0 B: the model adds the crossing of one link to the latency of a message, 0.20 µs; the paper's 0.26 µs has more.
- SP-5: the penalty of the scan is compared as SHOC of 2011 counted it, with milliseconds added to seconds; the model's
  own is 21.7 %. The stencil's 36 % is not explained: pinned copies in and out, without any computation,
  lose less. The model's stencil takes 0.9 s, which is 1000 steps at the rate of the GPU's memory.
  [computations-on-models.md](computations-on-models.md) gives the reasons.
- SP-10: a model divides a link equally among tasks, so four tasks have no collapse.
"""
WITHOUT = """
## Numbers without a model

- CS-29, "up to 40" of section 4.1: the same link as 41, which the table has.
- SP-5, the mean penalty of 13.5 %: it includes computations whose penalties the paper does not state.
- SP-7, 21 % of HPL on 64 nodes; SP-13, applications: stand-ins are in [numa-findings.md](numa-findings.md).
- JO-11, MPI between GPUs: 1.4.5 and 1.7 have no model.
- KL-8 and KL-9, counters: [put-get-on-models.md](put-get-on-models.md) counts the accesses of our programs.
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
    machine = computations_page.Keeneland()
    return [*_of_tests(), *_latencies(), *_results(machine), *_penalties(machine), *_collapse()]


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
    found: dict[str, list[float]] = {}
    for case, paper, modelled, fitted in network_page.latencies():
        yield Row(f"SP-3: {case}, µs", f"{paper:g}", modelled, modelled / paper - 1, abs(modelled / paper - 1) <= 0.05,
                  "fitted" if fitted else "")  # fmt: skip
        found.setdefault(case.partition(",")[0], []).append(modelled)
    for (case, (good, bad)), stated in zip(found.items(), ((12.1, 13.8), (26.1, 35.3)), strict=True):
        for formula, paper, base in zip(("over bad", "over good"), stated, (bad, good), strict=True):
            yield _penalty(f"SP-4: penalty of {case}, {formula}, %", paper, 100 * (bad - good) / base)


def _penalty(item: str, paper: float, value: float) -> Row:
    return Row(item, f"{paper:g}", value, value / paper - 1, abs(value - paper) <= max(0.1 * paper, 2))


def _collapse() -> Iterator[Row]:
    slowest = min(rates("sl390", *[f"numa:0 > gpu:{gpu}" for gpu in range(3)] * 4))
    yield Row("SP-10: four tasks a GPU, GB/s", "0.07", slowest, slowest / 0.07 - 1, abs(slowest / 0.07 - 1) <= 0.05)


def _results(machine: computations_page.Keeneland) -> Iterator[Row]:
    """The results of SP-5 from both nodes: rates, or the time of the stencil."""
    for name, (good, bad, unit, _) in computations_page.PUBLISHED.items():
        there, _, operations = computations_page.TRAFFIC[name]
        amount = {"GF/s": operations / 1e9, "GB/s": there / 1e9}.get(unit)
        found = machine.scan_as_counted() if name == "scan" else machine.found(name)
        for side, paper, seconds in (("right", good, found.near), ("wrong", bad, found.far)):
            value = amount / seconds if amount else seconds
            about = "fitted" if name in ("sgemm", "dgemm") and side == "right" else ""
            residual = value / paper - 1
            yield Row(f"SP-5: {name}, {side} node, {unit}", f"{paper:g}", value, residual, abs(residual) <= 0.05, about)


def _penalties(machine: computations_page.Keeneland) -> Iterator[Row]:
    for name, (_, _, unit, penalty) in computations_page.PUBLISHED.items():
        found = machine.scan_as_counted() if name == "scan" else machine.found(name)
        value = 100 * (found.over_bad if unit == "s" else found.over_good)
        shown = f"{name}, as counted" if name == "scan" else name
        yield _penalty(f"SP-5: penalty of {shown}, %", penalty, value)


def statements() -> Iterator[str]:
    """The statements with a bound, a size or a ratio, as rows."""
    yield "\n## Statements with a bound or a size\n"
    yield "| item | the paper | MODELLED |\n|---|---|---|"
    yield from jorda_page.statements(*(jorda_page.System(name) for name in jorda_page.SYSTEMS))
    yield from network_page.statements([network_page.Hosts(name) for name in network_page.PATHS])
    for name in put_get_cards.QUEUES:
        for one in put_get_cards.relations(put_get_cards.Pair(name)):
            verdict = "" if one.holds else ", **does not hold**"
            yield f"| KL-10 | {one.text}: {one.paper} | {one.value:.3g} ({name}, {one.basis}){verdict} |"


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
    return head + "\n".join([*lines, MISSES.rstrip(), *statements()]) + "\n" + WITHOUT


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
