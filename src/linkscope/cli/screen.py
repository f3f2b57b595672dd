"""Wraps lines to the terminal."""

import shutil
import textwrap

from linkscope.units import NO_BREAK, unbroken, with_signs

_WIDEST = 100  # width without a terminal


def columns() -> int:
    """Columns of a line: 100, or fewer on a narrow terminal."""
    return min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)


def filled(text: str, first: str = "", others: str = "") -> str:
    """The text in lines with the given indents; words, numbers with their unit, and intervals are not divided."""
    lines = textwrap.fill(
        unbroken(with_signs(text)), columns(), initial_indent=first, subsequent_indent=others,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return lines.replace(NO_BREAK, " ")
