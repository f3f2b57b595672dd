"""A run, and what several sections of the report need of it, computed once."""

from collections.abc import Sequence
from functools import cached_property

from linkscope.advise import Advice, worthwhile
from linkscope.report.curve_lines import Lines, curve_lines
from linkscope.report.head import Doubt, doubts
from linkscope.report.overview import FamilyRows, overview
from linkscope.report.pair_rates import Matrix, matrices
from linkscope.report.path_rows import PathRow, path_rows
from linkscope.report.shared import without_concurrent
from linkscope.report.trust import INHERITED_MEANS, SIGN_MEANS, inherited
from linkscope.report.wires import Wire, wires
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

    @cached_property
    def doubts(self) -> list[Doubt]:
        """The reasons to distrust results."""
        return doubts(self.run)

    @cached_property
    def path_rows(self) -> list[PathRow]:
        """Plain copies by importance."""
        return path_rows(self.single.points)

    @cached_property
    def advice(self) -> list[Advice]:
        """The recommendations with a worthwhile gain."""
        return worthwhile(self.single.points)

    @cached_property
    def matrices(self) -> list[Matrix]:
        """The rates of all paths of a direction, by method and size."""
        return matrices(self.single)

    @cached_property
    def has_curves(self) -> bool:
        """Whether a point with a size has a value, so that the page has an explorer."""
        return any(point.bytes and point.median_s is not None for point in self.single.points)

    @cached_property
    def curve_lines(self) -> list[Lines]:
        """The curves of each direction."""
        return curve_lines(self.single)

    @cached_property
    def wires(self) -> Sequence[Wire]:
        """The links of the machine."""
        return wires(self.single)

    @property
    def sign_means(self) -> str:
        """The meanings of the signs before numbers of this run."""
        return "; ".join([SIGN_MEANS] + [INHERITED_MEANS] * any(map(inherited, self.single.points)))
