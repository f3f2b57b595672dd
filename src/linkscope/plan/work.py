"""What a plan asks for next."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """Take the point `id` to `rounds` rounds."""

    id: str
    rounds: int
