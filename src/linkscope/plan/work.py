"""What a plan asks for next, and what it asked for that is not done yet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Work:
    """Take the point `id` to `rounds` rounds."""

    id: str
    rounds: int


@dataclass(frozen=True)
class Underway:
    """What was asked for and is not done: by point the rounds that it still lacks, and the seconds that all of them
    take. What is asked for besides shares their passes through the machine."""

    rounds: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passes(self) -> int:
        """How many passes are to come in any case."""
        return max(self.rounds.values(), default=0)

    def new(self, ids: Iterable[str]) -> list[str]:
        """Those that are not under way, each once."""
        return [id for id in dict.fromkeys(ids) if id not in self.rounds]

    def beside(self, rounds: Mapping[str, int]) -> "Underway":
        """With these, too."""
        return Underway({**self.rounds, **rounds}, self.seconds)


NOTHING = Underway()
