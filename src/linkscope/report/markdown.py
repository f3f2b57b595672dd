"""A run as Markdown, short enough for a pull request: best rates, what stands out, what to distrust."""

import re

from linkscope.report.findings import findings
from linkscope.report.head import doubts, tiles
from linkscope.report.outcome import run_text
from linkscope.report.overview import overview
from linkscope.report.words import range_s, range_share
from linkscope.runfile import Run
from linkscope.units import format_bytes, format_rate_interval, format_seconds_interval

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
    lines += ["", "### Best rates", "", *_rates(run), "", "### What stands out", ""]
    found = findings(run)
    lines += [f"- {_safe(one.text)}" for one in found[:_MOST_FINDINGS]] or ["Nothing, by the rules that were applied."]
    lines += [f"- and {len(found) - _MOST_FINDINGS} more"] if len(found) > _MOST_FINDINGS else []
    told = [f"- {_safe(doubt.text)}" for doubt in doubts(run)]
    lines += ["", "### What to distrust", "", *(told or ["Nothing: every point has its value."])]
    return "\n".join(lines) + "\n"


def _rates(run: Run) -> list[str]:
    rows = []
    for family in overview(run.points):
        for row in family.rows:
            best = "-"
            if row.rate is not None:
                best = format_rate_interval(row.rate.value, row.rate.low, row.rate.high)
            elif row.time is not None:
                best = format_seconds_interval(row.time.value, row.time.low, row.time.high)
            half = row.half_text
            cells = (
                str(family.family), row.paths, row.params, best, range_share(row.share), format_bytes(row.at_bytes),
                half, format_bytes(row.smallest_bytes), range_s(row.batched_s), range_s(row.single_s),
            )  # fmt: skip
            rows.append("| " + " | ".join(map(_safe, cells)) + " |")
    if not rows:
        return ["No point has a value."]
    head = "| method | path | how | best rate [interval] | of limit | at | half from | smallest | in a batch | alone |"
    return [head, "|---|---|---|---|--:|--:|--:|--:|--:|--:|", *rows]


def _safe(text: str) -> str:
    """On one line, and nothing in it that Markdown or HTML would take for its own."""
    flat = re.sub(r"\s+", " ", text).replace("\\", "\\\\")
    flat = flat.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([|*_`\[\]#~@])", r"\\\1", flat)
