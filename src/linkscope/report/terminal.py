"""Lines of text for a terminal: wrapping, styles and control characters."""

import io
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from linkscope.units import NO_BREAK, encodable, unbroken, with_signs

BAD, NOTABLE, HEAD = "bold red", "yellow", "bold"
_NARROWEST, _WIDEST, _DEFAULT = 60, 140, 100


@dataclass(frozen=True)
class Line:
    """One line and its style, '' for plain text."""

    text: str
    style: str = ""


def line_width(width: int | None) -> int:
    """Columns to fill: 60 to 140. None takes the width of the terminal, or 100 where standard output is a file."""
    columns = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else _DEFAULT)
    return max(_NARROWEST, min(columns, _WIDEST))


def render(lines: Sequence[Line], width: int, colour: bool | None) -> str:
    """The lines as text, without a newline at the end. `colour` None: colours where standard output is a terminal."""
    if sys.stdout.isatty() if colour is None else colour:
        return _coloured(lines, width)
    return encodable("\n".join(line.text for line in lines), sys.stdout)


def wrap(text: str, width: int, style: str = "", indent: str | None = None) -> Iterator[Line]:
    """Wraps at spaces and keeps numbers and their units together. Further lines have `indent`; by default that of a
    list item."""
    if indent is None:
        indent = "  " if text.startswith("- ") else "      " if text.startswith("    ") else ""
    for line in textwrap.wrap(unbroken(text), width, subsequent_indent=indent, break_on_hyphens=False):
        yield Line(line.replace(NO_BREAK, " "), style)


def heading(text: str, width: int) -> Iterable[Line]:
    """A heading, on several lines if it is long."""
    return wrap(text, width, HEAD, indent="    ")


def printable(text: str) -> str:
    """The text with the signs of text for people, and without control characters, so that a name in a file cannot
    control the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in with_signs(text))


def _coloured(lines: Sequence[Line], width: int) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False)
    with console.capture() as capture:
        for line in lines:
            console.print(Text(encodable(line.text, sys.stdout), style=line.style), soft_wrap=True)
    return capture.get().rstrip("\n")
