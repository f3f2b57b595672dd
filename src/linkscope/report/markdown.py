"""A run as Markdown, short enough for a pull request: best rates, what stands out, what to distrust."""

import re
from collections.abc import Sequence

from linkscope.model.words import range_share, rate_text
from linkscope.report.findings import findings
from linkscope.report.head import GRAVE, doubts, tiles
from linkscope.report.joint import joint_lines
from linkscope.report.outcome import run_text
from linkscope.report.overview import overview
from linkscope.report.sweep import sweep_rows
from linkscope.report.trust import SIGN, SIGN_MEANS
from linkscope.runfile import Run
from linkscope.units import format_bytes

_MOST_FINDINGS = 12


def to_markdown(run: Run) -> str:
    """The whole text."""
    machine = run.header.machine
    name = " - ".join(str(machine[key]) for key in ("name", "title") if machine.get(key)) or "a machine without a name"
    lines = [f"## {'MODELLED: ' if run.modelled else ''}{_safe(name)}", ""]
    if run.modelled:
        lines += ["**MODELLED**: these numbers come from a model in virtual time. No hardware was measured.", ""]
    lines += [_safe(run_text(run)), ""]
    for tile in tiles(run):
        lines.append(f"- **{tile.label}**: {_safe('; '.join((tile.value, *tile.lines)))}")
    lines += ["", "### Best rates", "", *_rates(run), *_sweeps(run), *_joint(run), "", "### What stands out", ""]
    found = [finding for finding in findings(run) if finding.kind not in GRAVE]  # those are doubts
    lines += [f"- {_safe(one.text)}" for one in found[:_MOST_FINDINGS]] or ["Nothing, by the rules that were applied."]
    lines += [f"- and {len(found) - _MOST_FINDINGS} more"] if len(found) > _MOST_FINDINGS else []
    told = [f"- {_safe(doubt.text)}" for doubt in doubts(run)]
    lines += ["", "### What to distrust", "", *(told or ["Nothing: every point has its value."])]
    return "\n".join(lines) + "\n"


def _rates(run: Run) -> list[str]:
    rows = []
    for family in overview(run.points):
        for row in family.rows:
            cells = (
                str(family.family), row.paths, "; ".join(filter(None, (row.params, row.untold))),
                " ".join(filter(None, (row.best_text, f"({row.missed_text})" if row.missed_text else ""))),
                range_share(row.share), row.at_text, row.half_text, row.smallest_text, row.batched_text,
                row.single_text,
            )  # fmt: skip
            rows.append(cells)
    head = "method | path | how | best rate [interval] | of limit | at | half from | smallest | in a batch | alone"
    notes = [
        f"{family.family}: {told}"
        for family in overview(run.points)
        for told in (family.folded_text, f"limits: {family.limits}" if family.limits else "")
        if told
    ]
    notes += [SIGN_MEANS] if any(SIGN in cell for row in rows for cell in row) else []
    listed = ["", *(f"- {_safe(note)}" for note in notes)] if notes else []
    return [*_table(head, 6, rows), *listed] or ["No point has a value."]


def _sweeps(run: Run) -> list[str]:
    """How few blocks are enough; nothing where a run does not tell."""
    head = "operation | path | how | at | best rate [interval] | blocks for 95 % | SMs | copy engine [interval]"
    rows = [
        (
            str(row.family), row.paths, row.params, format_bytes(row.bytes), row.drawn.best_text, row.needed, row.sms,
            rate_text(row.other),
        )
        for row in sweep_rows(run)
    ]  # fmt: skip
    table = _table(head, 0, rows)
    return ["", "### Blocks that are enough", "", *table] if table else []


def _joint(run: Run) -> list[str]:
    """Copies between one place and all GPUs; nothing where a run has none."""
    head = "pattern | path | at | total [interval] | each flow's rate and share"
    rows = [
        (line.pattern, line.paths, format_bytes(line.bytes), line.total, line.each) for line in joint_lines(run.points)
    ]
    table = _table(head, 0, rows)
    return ["", "### One place and all GPUs at once", "", *table] if table else []


def _table(head: str, right: int, rows: Sequence[Sequence[str]]) -> list[str]:
    """A table, its last `right` columns aligned at the right; nothing without rows."""
    if not rows:
        return []
    rule = "|" + "---|" * (head.count("|") + 1 - right) + "--:|" * right
    return [f"| {head} |", rule, *(f"| {' | '.join(map(_safe, row))} |" for row in rows)]


def _safe(text: str) -> str:
    """On one line, and nothing in it that Markdown or HTML would take for its own."""
    flat = re.sub(r"\s+", " ", text).replace("\\", "\\\\")
    flat = flat.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([|*_`\[\]#~@])", r"\\\1", flat)
