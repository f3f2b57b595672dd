"""The error that ends a command with one sentence instead of a traceback, and the exit codes of the contract."""

import difflib
import unicodedata
from collections.abc import Iterable

FINE = 0
SOMETHING_FAILED = 1
WRONG_USAGE = 2
NOT_HERE = 3
STOPPED_EARLY = 4
INCONCLUSIVE = 5  # neither passed nor failed
_WIDEST = 100  # characters of a line in a message: a file of another format may have lines of any length
_BEFORE = 40  # characters before the word in a shortened line


class UserError(Exception):
    """A mistake of the user, or a thing that is missing: one sentence that names the thing, the place and the cure."""

    def __init__(self, sentence: str, exit_code: int = WRONG_USAGE) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class TextError(UserError):
    """A mistake in a line of text. The message has three lines: where the line is, the line, a pointer at the mistake
    with the problem."""

    def __init__(
        self, line: str, span: tuple[int, int], problem: str, where: str, exit_code: int = WRONG_USAGE
    ) -> None:
        super().__init__(f"{where}:\n{_pointed(line, span, problem)}", exit_code)
        self.problem = problem


def suggestion(word: str, known: Iterable[str]) -> str:
    """' (did you mean h2d?)' for a mistyped word; '' if nothing is similar."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _pointed(line: str, span: tuple[int, int], problem: str) -> str:
    """Two lines: the line of a text, and below it a pointer to the characters of `span` with the problem."""
    line = "".join(one if one.isprintable() else " " if one == "\t" else "?" for one in line.rstrip())
    blank = len(line) - len(line.lstrip())
    cut = max(blank, span[0] - _BEFORE) if len(line) - blank > _WIDEST else blank
    head, shown = "…" if cut > blank else "", line[cut : cut + _WIDEST]
    start, end = (min(max(at - cut, 0), len(shown) + 1) for at in span)
    before, width = len(head) + _columns(shown[:start]), max(1, _columns(shown[start:end]))
    tail = "…" if len(line) > cut + _WIDEST else ""
    return f"    {head}{shown}{tail}\n    {' ' * before}{'^' * width} {problem}"


def _columns(text: str) -> int:
    """Columns of the text on a terminal."""
    return sum(0 if unicodedata.combining(one) else 1 + (unicodedata.east_asian_width(one) in "WF") for one in text)
