"""What ends a command with one sentence instead of a traceback, and the exit codes of the contract."""

FINE = 0
SOMETHING_FAILED = 1
WRONG_USAGE = 2
NOT_HERE = 3
STOPPED_EARLY = 4


class UserError(Exception):
    """A mistake of the user's, or a thing that is not here: one sentence with the place and the cure."""

    def __init__(self, sentence: str, exit_code: int = WRONG_USAGE) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
