"""Section: the machine and its links."""

from linkscope.report.picture import Wire, machine_svg, wires
from linkscope.report.run_view import RunView
from linkscope.report.section import METHOD, Column, Figure, Paragraph, Section, table

_TITLE = "The machine and its links"
_NOTE = (
    "Each link shows the best rate of a plain copy towards the GPU (or the place named second) and back in GB/s, the "
    "peak, and the % of peak in each direction. On PCIe the peaks differ: packets of data that the GPU reads (host to "
    "GPU) have shorter headers than packets that it writes. A path over several links counts on each of them. "
)
_COLUMNS = (
    Column("Link"), Column("Kind"), Column("To second place, GB/s", right=True), Column("Back, GB/s", right=True),
    Column("Peak, GB/s", right=True), Column("% of peak", right=True),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """A drawing and a table. None where the run file describes no links."""
    found = wires(view.single)
    if not found:
        return None
    made = table("Links, table", _COLUMNS, [_cells(wire) for wire in found])
    figure = Figure("machine", machine_svg(found, view.run.modelled), table=made, label=_TITLE)
    return Section("machine", _TITLE, (Paragraph((_NOTE, METHOD), note=True), figure))


def _cells(wire: Wire) -> tuple[str, ...]:
    there, back = (
        sign + (f"{rate:.4g}" if rate else "") for sign, rate in zip(wire.signs, (wire.there, wire.back), strict=True)
    )
    return (f"{wire.one} - {wire.other}", wire.kind, there, back, wire.limit_text(), wire.share_text() or "-")
