"""Lines that fit the terminal."""

import re
import shutil
import textwrap

_WIDEST = 100  # also where nobody looks
_KEPT = re.compile(r"(?<=\d) (?=(?:[KMGT]?i?B|GB/s|[num]?s|min|h)\b|%)|(?<=,) (?=[^\[\]]*\])")  # in '64 KiB', '[1, 2]'


def columns() -> int:
    """What a line holds: 100 characters, or what the terminal has where that is less."""
    return min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)


def filled(text: str, first: str = "", others: str = "") -> str:
    """The text in lines, with what the first and the others begin with; words, numbers with their unit, and intervals
    stay whole."""
    lines = textwrap.fill(
        _KEPT.sub("\N{NO-BREAK SPACE}", text), columns(), initial_indent=first, subsequent_indent=others,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return lines.replace("\N{NO-BREAK SPACE}", " ")
