"""Section: the anomalies that the rules found."""

from linkscope.report.finding import Finding
from linkscope.report.findings import findings
from linkscope.report.head import GRAVE
from linkscope.report.run_view import RunView
from linkscope.report.section import Block, Fold, Heading, Items, Output, Paragraph, Section

_MOST_OF_KIND, _MOST = 3, 12
_NONE = (
    "None. The rules look for paths slower than their class, rates below half of peak, dips, spread between rounds, "
    "two modes, and throttling."
)


def section(view: RunView) -> Section:
    """The anomalies by kind. Page and Markdown list those that concern the whole run under points to check."""
    found = findings(view.single)
    local = [finding for finding in found if finding.kind not in GRAVE]
    blocks = _page(local)
    blocks += [Items.of([one.text for one in found], on=Output.TERMINAL)] if found else []
    texts = [one.text for one in local[:_MOST]] + ([f"and {len(local) - _MOST} more"] if len(local) > _MOST else [])
    blocks.append(Items.of(texts, on=Output.MARKDOWN) if texts else Paragraph("No rule found one.", on=Output.MARKDOWN))
    return Section("findings", "Anomalies", tuple(blocks))


def _page(found: list[Finding]) -> list[Block]:
    if not found:
        return [Paragraph(_NONE, on=Output.PAGE)]
    kinds: dict[str, list[str]] = {}
    for finding in found:
        kinds.setdefault(finding.kind, []).append(finding.text)
    blocks: list[Block] = []
    for kind, texts in kinds.items():
        blocks += [Heading(kind.capitalize(), on=Output.PAGE), Items.of(texts[:_MOST_OF_KIND], on=Output.PAGE)]
        if more := texts[_MOST_OF_KIND:]:
            blocks.append(Fold(f"{len(more)} more", (Items.of(more),), on=Output.PAGE))
    return blocks
