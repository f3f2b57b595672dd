"""A run, and what several sections of the report need of it, computed once."""

from functools import cached_property

from linkscope.report.overview import FamilyRows, overview
from linkscope.report.shared import without_concurrent
from linkscope.report.trust import INHERITED_MEANS, SIGN_MEANS, inherited
from linkscope.runfile import Run


class RunView:
    """What the sections are made from."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def single(self) -> Run:
        """The run without points of several paths."""
        return without_concurrent(self.run)

    @cached_property
    def families(self) -> list[FamilyRows]:
        """The best rates."""
        return overview(self.single.points)

    @property
    def sign_means(self) -> str:
        """The meanings of the signs before numbers of this run."""
        return "; ".join([SIGN_MEANS] + [INHERITED_MEANS] * any(map(inherited, self.single.points)))
