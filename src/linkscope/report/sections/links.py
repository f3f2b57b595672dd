"""Section: the links of the machine, and the facts that it hides."""

from linkscope.report.run_view import RunView
from linkscope.report.section import METHOD, Block, Column, Items, Paragraph, Section, more, table
from linkscope.report.wires import Wire

_TITLE = "The machine and its links"
_NOTE = "The best plain copies towards the second place and back. A path over several links counts on each. "
_COLUMNS = (
    Column("Link"), Column("Kind"), Column("To second place, GB/s", right=True), Column("Back, GB/s", right=True),
    Column("Peak, GB/s", right=True), Column("% of peak", right=True),
)  # fmt: skip
_MOST_OPEN = 4  # links of a table that is not folded


def section(view: RunView) -> Section | None:
    """A table of links. None where the run file describes no links."""
    found = view.wires
    if not found:
        return None
    made = table("Links", _COLUMNS, [_cells(wire) for wire in found])
    blocks: list[Block] = [Paragraph((_NOTE, METHOD), note=True)]
    blocks.append(made if len(found) <= _MOST_OPEN else more(f"All {len(found)} links as a table", made))
    return Section("machine", _TITLE, (*blocks, *_hidden(view)))


def _hidden(view: RunView) -> list[Block]:
    """What the machine does not show, such as the NUMA nodes of the GPUs of a virtual machine."""
    listed = view.run.header.machine.get("hidden")
    texts = [
        f"{one['fact']}: {one['why']}" for one in listed or () if isinstance(one, dict) and {"fact", "why"} <= set(one)
    ]
    return [more(f"{len(texts)} facts that this machine hides", Items.of(texts))] if texts else []


def _cells(wire: Wire) -> tuple[str, ...]:
    there, back = (
        sign + (f"{rate:.4g}" if rate else "") for sign, rate in zip(wire.signs, (wire.there, wire.back), strict=True)
    )
    return (f"{wire.one} - {wire.other}", wire.kind, there, back, wire.limit_text(), wire.share_text() or "-")
