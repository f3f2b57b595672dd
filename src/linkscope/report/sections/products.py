"""Section: products of matrices as shares of the GPU's peak, with the derivation."""

from linkscope.model.computing import peak_of_gpu
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Paragraph, Row, Section, Table
from linkscope.runfile import Point
from linkscope.units import format_fraction, format_seconds

_TITLE = "Products of matrices"
_NOTE = (
    "Square matrices by cuBLAS, fp8 by cuBLASLt. The peak counts the GPU's highest clock, which it does not hold under "
    "its power limit. A product of n x n matrices has 2 n³ operations."
)
_COLUMNS = (
    Column("GPU", strong=True), Column("Element"), Column("n", right=True, label="n"),
    Column("Time", right=True, label="Time"), Column("Top/s", right=True, label="Top/s"),
    Column("% of peak", right=True, label="% of peak"), Column("Peak", label="Peak"),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """A row for each product, by GPU, element and size. None without products."""
    points = [point for point in view.run.points if point.benchmark == "gemm" and point.median_s]
    if not points:
        return None
    points.sort(key=lambda point: (point.src, point.params["element"], int(point.params["n"])))
    rows = [Row(_cells(view, point)) for point in points]
    return Section("products", _TITLE, (Paragraph(_NOTE, note=True), Table(_TITLE, _COLUMNS, (Group(tuple(rows)),))))


def _cells(view: RunView, point: Point) -> tuple[str, ...]:
    element, seconds = point.params["element"], point.median_s or 1.0
    rate = (point.flows[0].operations or 0.0) / seconds
    limit, source = peak_of_gpu(view.run.header.machine, view.run.header.environment, point.src, element)
    share = format_fraction(rate / limit) if limit else "-"
    return point.src, element, point.params["n"], format_seconds(seconds), f"{rate / 1e12:.4g}", share, source
