"""Section: products of matrices and operations of neural networks as shares of the GPU's peak, with the derivation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from linkscope.model.computing import memory_peak_of_gpu, peak_of_gpu
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Items, Output, Paragraph, Row, Section, Table
from linkscope.report.trust import has_warning, signed
from linkscope.runfile import Point, Run
from linkscope.units import format_fraction, format_seconds

_TITLE = "Products of matrices and neural networks"
_NOTE = (
    "Floor: a plain kernel of linkscope on tensor cores (mma.sync), which a library should exceed. The peak counts the "
    "GPU's highest clock, which it does not hold under its power limit. A product of n x n matrices has 2 n³ "
    "operations. Softmax moves data: its peak is that of the memory, read and written."
)
_COLUMNS = (
    Column("GPU", strong=True), Column("Operation"), Column("Element"), Column("Length", right=True, label="Length"),
    Column("Time", right=True, label="Time"), Column("Rate", right=True, label="Rate"),
    Column("% of peak", right=True, label="% of peak"), Column("Peak", label="Peak"),
)  # fmt: skip
# By benchmark: what the table calls it, and the parameter that is its length.
_OPERATIONS = {
    "gemm": ("product, cuBLAS", "n"),
    "gemm_floor": ("product, floor", "n"),
    "convolution": ("convolution, cuDNN", "channels"),
    "attention": ("attention, cuDNN", "length"),
    "softmax": ("softmax, cuDNN", "length"),
}


@dataclass(frozen=True)
class _Product:
    """An operation. `rate`: operations or bytes a second; `limit`: its peak, None if unknown; `source`: of the peak."""

    point: Point
    name: str
    length: str
    rate: float
    limit: float | None
    source: str

    @property
    def share(self) -> float | None:
        return self.rate / self.limit if self.limit else None

    @property
    def rate_text(self) -> str:
        return f"{self.rate / 1e12:.4g} TFLOP/s" if self.point.flows[0].operations else f"{self.rate / 1e9:.4g} GB/s"


def section(view: RunView) -> Section | None:
    """A row for each operation, by GPU, kind, element and length. None without them."""
    points = [point for point in view.run.points if point.benchmark in _OPERATIONS and point.median_s]
    if not points:
        return None
    found = [_product(view.run, point) for point in sorted(points, key=_order)]
    answers = tuple(_answers(found))
    table = Table(_TITLE, _COLUMNS, (Group(tuple(Row(_cells(one)) for one in found)),))
    blocks = (Items.of(answers, on=Output.PAGE), Paragraph(_NOTE, note=True), table)
    return Section("products", _TITLE, blocks, label="Compute", answers=answers)


def _order(point: Point) -> tuple[str, int, str, int]:
    return (
        point.src, list(_OPERATIONS).index(point.benchmark), point.params["element"],
        int(point.params[_OPERATIONS[point.benchmark][1]]),
    )  # fmt: skip


def _product(run: Run, point: Point) -> _Product:
    name, length = _OPERATIONS[point.benchmark]
    operations = point.flows[0].operations
    limit, source = (
        peak_of_gpu(run.header.machine, run.header.environment, point.src, point.params["element"])
        if operations
        else memory_peak_of_gpu(run.header.machine, point.src)
    )
    rate = (operations or float(point.flows[0].bytes)) / (point.median_s or 1.0)
    return _Product(point, name, point.params[length], rate, limit, source)


def _answers(found: Sequence[_Product]) -> Iterator[str]:
    """Of each operation the best rate of each element, with its share of the peak; without warnings."""
    best: dict[str, dict[str, _Product]] = {}
    for one in found:
        of = best.setdefault(one.name, {})
        element = one.point.params["element"]
        if not has_warning(one.point) and (element not in of or one.rate > of[element].rate):
            of[element] = one
    for name, of in best.items():
        rates = (
            f"{element} {signed(one.rate_text, [one.point])} ({format_fraction(one.share)})"
            for element, one in of.items()
        )
        if of:
            yield f"{name}, best rates, and % of the peak at the highest clock: {', '.join(rates)}."


def _cells(one: _Product) -> tuple[str, ...]:
    share = format_fraction(one.share) if one.share else "-"
    element, seconds = one.point.params["element"], format_seconds(one.point.median_s or 0.0)
    return one.point.src, one.name, element, one.length, seconds, one.rate_text, share, one.source
