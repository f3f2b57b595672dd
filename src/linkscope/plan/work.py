"""The work that a plan asks for, and the unfinished work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Work:
    """A request to measure the point `id` until it has `rounds` rounds."""

    id: str
    rounds: int


@dataclass(frozen=True)
class Underway:
    """The unfinished points: their missing rounds, and the seconds of all of them. New work shares their passes
    through the machine."""

    rounds: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passes(self) -> int:
        """The number of passes that are needed in any case."""
        return max(self.rounds.values(), default=0)

    def new(self, ids: Iterable[str]) -> list[str]:
        """Returns the ids that are not unfinished, each once."""
        return [id for id in dict.fromkeys(ids) if id not in self.rounds]

    def beside(self, rounds: Mapping[str, int]) -> "Underway":
        """Returns this work with the given rounds in addition."""
        return Underway({**self.rounds, **rounds}, self.seconds)


NOTHING = Underway()
