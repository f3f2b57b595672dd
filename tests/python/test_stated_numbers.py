"""docs/notes/stated-numbers.md has every number that the papers state beside the models' value."""

import stated_numbers as tool

from test_sim_machines import pytestmark

__all__ = ["pytestmark"]


def test_the_page_is_what_the_models_give_and_only_known_numbers_miss() -> None:
    assert tool.PAGE.read_text() == tool.page(), "run .venv/bin/python tools/stated_numbers.py"
    misses = [line for line in tool.PAGE.read_text().splitlines() if "**misses**" in line]
    known = ("SP-4: penalty of 0 B", "SP-5: scan, ", "SP-5: stencil, ", "SP-5: penalty of stencil", "SP-10: four tasks")
    assert [line for line in misses if not line[2:].startswith(known)] == []
    assert {item for item in known if any(line[2:].startswith(item) for line in misses)} == set(known)


def test_a_number_outside_its_tolerance_misses() -> None:
    assert tool._residual(tool.Row("", "", 2, 1.0, holds=False)) == "+100.0%, **misses**"
    assert tool._residual(tool.Row("", "", 2, None, holds=False)) == "outside, **misses**"
    assert tool._residual(tool.Row("", "", 2, 0.01, holds=True)) == "+1.0%"
