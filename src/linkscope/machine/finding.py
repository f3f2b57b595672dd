"""The findings of the doctor."""

from collections.abc import Iterator
from typing import Literal

from linkscope.machine.facts import Fact

Severity = Literal["bad", "warn", "info"]
WORST_FIRST: tuple[Severity, ...] = ("bad", "warn", "info")


class Finding(Fact, frozen=True):
    """`bad`: results are wrong or far below what the machine can do; `warn`: they may be; `info`: for information."""

    severity: Severity
    what: str
    why: str
    cure: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.what}\n  why it matters: {self.why}\n  what to do: {self.cure}"


Found = Iterator[Finding]


def bad(what: str, why: str, cure: str) -> Finding:
    """A finding that makes results wrong or far too low."""
    return Finding("bad", what, why, cure)


def warn(what: str, why: str, cure: str) -> Finding:
    """A finding that may spoil results."""
    return Finding("warn", what, why, cure)


def info(what: str, why: str, cure: str) -> Finding:
    """A finding for information."""
    return Finding("info", what, why, cure)
