"""What the doctor finds."""

from collections.abc import Iterator
from typing import Literal

from linkscope.machine.facts import Fact

Severity = Literal["bad", "warn", "info"]
WORST_FIRST: tuple[Severity, ...] = ("bad", "warn", "info")


class Finding(Fact, frozen=True):
    """`bad`: results will be wrong or far below what the machine can do; `warn`: they may be; `info`: good to know."""

    severity: Severity
    what: str
    why: str
    cure: str

    def __str__(self) -> str:
        return f"{self.severity}: {self.what}\n  why it matters: {self.why}\n  what to do: {self.cure}"


Found = Iterator[Finding]


def bad(what: str, why: str, cure: str) -> Finding:
    """Results will be wrong, or far below what the machine can do."""
    return Finding("bad", what, why, cure)


def warn(what: str, why: str, cure: str) -> Finding:
    """Results may be spoilt."""
    return Finding("warn", what, why, cure)


def info(what: str, why: str, cure: str) -> Finding:
    """Good to know."""
    return Finding("info", what, why, cure)
