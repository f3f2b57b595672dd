"""A fault that shows without a comparison with an earlier run."""

from dataclasses import dataclass

from linkscope.runfile import Point


@dataclass(frozen=True)
class Fault:
    """The slow or failed point, or for a fault of a GPU or its links None and the place; and the evidence."""

    point: Point | None
    place: str
    evidence: str

    @property
    def key(self) -> str:
        """The same for one fault in two measurements."""
        return self.point.id if self.point else self.place
