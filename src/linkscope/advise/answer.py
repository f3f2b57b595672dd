"""The answer to a question about one transfer: its methods by rank."""

from dataclasses import dataclass

from linkscope.advise.question import Question
from linkscope.advise.ranking import Candidate, Ranked
from linkscope.machine.model import Model, places
from linkscope.runfile import Run


@dataclass(frozen=True)
class Answer:
    """The methods by rank, and what the reader must know of them. `run` or `model` may be None, but not both.

    `now`: the present method. `unlisted`: numbers of methods that are missing, with reasons.
    """

    asked: Question
    run: Run | None
    model: Model | None
    methods: list[Ranked]
    now: Candidate | None
    unlisted: list[tuple[int, str]]
    notes: list[str]

    @property
    def several_nodes(self) -> bool:
        """Whether the host has more than one NUMA node."""
        if self.run is not None:
            known = [str(place) for place in self.run.header.machine.get("places", [])]
        else:
            known = list(places(self.model).numa) if self.model else []
        return sum("numa:" in place for place in known) > 1
