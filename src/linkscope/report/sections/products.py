"""Section: products of matrices and operations of neural networks as shares of the GPU's peak, with the derivation."""

from linkscope.model.computing import memory_peak_of_gpu, peak_of_gpu
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Paragraph, Row, Section, Table
from linkscope.runfile import Point
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


def section(view: RunView) -> Section | None:
    """A row for each operation, by GPU, kind, element and length. None without them."""
    points = [point for point in view.run.points if point.benchmark in _OPERATIONS and point.median_s]
    if not points:
        return None
    rows = [Row(_cells(view, point)) for point in sorted(points, key=_order)]
    return Section("products", _TITLE, (Paragraph(_NOTE, note=True), Table(_TITLE, _COLUMNS, (Group(tuple(rows)),))))


def _order(point: Point) -> tuple[str, int, str, int]:
    return (
        point.src, list(_OPERATIONS).index(point.benchmark), point.params["element"],
        int(point.params[_OPERATIONS[point.benchmark][1]]),
    )  # fmt: skip


def _cells(view: RunView, point: Point) -> tuple[str, ...]:
    name, length = _OPERATIONS[point.benchmark]
    element, seconds = point.params["element"], point.median_s or 1.0
    operations = point.flows[0].operations
    rate = (operations or float(point.flows[0].bytes)) / seconds
    shown = f"{rate / 1e12:.4g} Top/s" if operations else f"{rate / 1e9:.4g} GB/s"
    header = view.run.header
    limit, source = (
        peak_of_gpu(header.machine, header.environment, point.src, element)
        if operations
        else memory_peak_of_gpu(header.machine, point.src)
    )
    share = format_fraction(rate / limit) if limit else "-"
    return point.src, name, element, point.params[length], format_seconds(seconds), shown, share, source
