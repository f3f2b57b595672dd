"""The work that a plan asks for, and the unfinished work."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Work:
    """Measures the point `id` until it has `rounds` rounds."""

    id: str
    rounds: int


@dataclass(frozen=True)
class Underway:
    """The unfinished points: their missing rounds, and the seconds for all of them. New work shares their passes
    through the machine."""

    rounds: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def passes(self) -> int:
        """Passes that come in any case."""
        return max(self.rounds.values(), default=0)

    def new(self, ids: Iterable[str]) -> list[str]:
        """The ids that are not unfinished, each once."""
        return [id for id in dict.fromkeys(ids) if id not in self.rounds]

    def beside(self, rounds: Mapping[str, int]) -> "Underway":
        """This with the given rounds in addition."""
        return Underway({**self.rounds, **rounds}, self.seconds)


NOTHING = Underway()
