"""The error that ends a command with one sentence instead of a traceback, and the exit codes of the contract."""

import difflib
from collections.abc import Iterable

FINE = 0
SOMETHING_FAILED = 1
WRONG_USAGE = 2
NOT_HERE = 3
STOPPED_EARLY = 4
INCONCLUSIVE = 5  # neither passed nor failed


class UserError(Exception):
    """A mistake of the user, or a thing that is missing: one sentence that names the thing, the place and the cure."""

    def __init__(self, sentence: str, exit_code: int = WRONG_USAGE) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def suggestion(word: str, known: Iterable[str]) -> str:
    """' (did you mean h2d?)' for a mistyped word; '' if nothing is similar."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""
