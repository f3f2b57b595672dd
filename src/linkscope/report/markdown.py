"""A run as Markdown, short enough for a pull request: best rates, anomalies, points to check."""

import re
from collections.abc import Sequence

from linkscope.advise import worthwhile
from linkscope.advise.text import headline
from linkscope.model.text import range_share, rate_text
from linkscope.report.break_even import SHORT_HEADING, break_evens
from linkscope.report.findings import findings
from linkscope.report.head import GRAVE, doubts, tiles
from linkscope.report.joint import joint_lines
from linkscope.report.outcome import run_text
from linkscope.report.overview import overview
from linkscope.report.shared import HEADING, shares, without_concurrent
from linkscope.report.sweep import sweep_rows
from linkscope.report.trust import signs_mean
from linkscope.runfile import Run
from linkscope.units import format_bytes

_MOST_FINDINGS = 12


def to_markdown(run: Run) -> str:
    """The report as Markdown."""
    shared, everything, run = _shared(run), run, without_concurrent(run)
    machine = run.header.machine
    name = " - ".join(str(machine[key]) for key in ("name", "title") if machine.get(key)) or "a machine without a name"
    lines = [f"## {'MODELLED: ' if run.modelled else ''}{_safe(name)}", ""]
    if run.modelled:
        lines += ["**MODELLED**: a machine model gave these numbers. No hardware was measured.", ""]
    lines += [_safe(run_text(everything)), ""]
    for tile in tiles(everything):
        lines.append(f"- **{tile.label}**: {_safe('; '.join((tile.value, *tile.lines)))}")
    lines += ["", "### Best rates", "", *_rates(run), *_sweeps(run), *_joint(run), *shared, *_break_even(run)]
    lines += ["", "### Anomalies", ""]
    found = [finding for finding in findings(run) if finding.kind not in GRAVE]  # listed under points to check
    lines += [f"- {_safe(one.text)}" for one in found[:_MOST_FINDINGS]] or ["No rule found one."]
    lines += [f"- and {len(found) - _MOST_FINDINGS} more"] if len(found) > _MOST_FINDINGS else []
    advised = [f"- {_safe(headline(one))}; {_safe(one.recommendation.how)}" for one in worthwhile(run.points)]
    lines += ["", "### Recommendations", "", *advised] if advised else []
    listed = [f"- {_safe(doubt.text)}" for doubt in doubts(everything)]
    lines += ["", "### Points to check", "", *(listed or ["None: every point has its value."])]
    return "\n".join(lines) + "\n"


def _break_even(run: Run) -> list[str]:
    """The break-even of memory kinds in a few lines; empty if the run has no such data."""
    found = break_evens(run.points)
    lines = [f"- {_safe(line)}" for line in found.lines] if found else []
    return ["", f"### {SHORT_HEADING}", "", *lines] if lines else []


def _rates(run: Run) -> list[str]:
    rows = []
    for family in overview(run.points):
        for row in family.rows:
            cells = (
                str(family.family), row.paths, "; ".join(filter(None, (row.params, row.note))),
                " ".join(filter(None, (row.best_text, f"({row.missed_text})" if row.missed_text else ""))),
                range_share(row.share), row.at_text, row.half_text, row.smallest_text, row.batched_text,
                row.single_text,
            )  # fmt: skip
            rows.append(cells)
    head = "method | path | how | best rate [interval] | % of peak | at | half from | smallest | batched | single"
    notes = [
        f"{family.family}: {text}"
        for family in overview(run.points)
        for text in (family.minor_params_text, f"peak: {family.limits}" if family.limits else "")
        if text
    ]
    notes += signs_mean(" ".join(cell for row in rows for cell in row))
    listed = ["", *(f"- {_safe(note)}" for note in notes)] if notes else []
    return [*_table(head, 6, rows), *listed] or ["No point has a value."]


def _sweeps(run: Run) -> list[str]:
    """The number of blocks that is sufficient; empty if the run has no sweep."""
    head = "operation | path | how | at | best rate [interval] | blocks for 95 % | SMs | copy engine [interval]"
    rows = [
        (
            str(row.family), row.paths, row.params, format_bytes(row.bytes), row.drawn.best_text, row.needed, row.sms,
            rate_text(row.other),
        )
        for row in sweep_rows(run)
    ]  # fmt: skip
    table = _table(head, 0, rows)
    return ["", "### Number of blocks", "", *table] if table else []


def _joint(run: Run) -> list[str]:
    """Copies between one place and all GPUs; empty if the run has none."""
    head = "pattern | path | at | total [interval] | each flow's rate and share"
    rows = [
        (line.pattern, line.paths, format_bytes(line.bytes), line.total, line.each) for line in joint_lines(run.points)
    ]
    table = _table(head, 0, rows)
    return ["", "### One place and all GPUs at once", "", *table] if table else []


def _shared(run: Run) -> list[str]:
    """The shared links; empty if no concurrent flows were measured."""
    found = shares(run.points)
    if found is None:
        return []
    return ["", f"### {HEADING}", "", f"{found.summary}.", "", *(f"- {_safe(text)}" for text in found.sentences)]


def _table(head: str, right: int, rows: Sequence[Sequence[str]]) -> list[str]:
    """A table with its last `right` columns right-aligned; empty without rows."""
    if not rows:
        return []
    rule = "|" + "---|" * (head.count("|") + 1 - right) + "--:|" * right
    return [f"| {head} |", rule, *(f"| {' | '.join(map(_safe, row))} |" for row in rows)]


def _safe(text: str) -> str:
    """The text on one line, with Markdown and HTML characters escaped."""
    flat = re.sub(r"\s+", " ", text).replace("\\", "\\\\")
    flat = flat.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([|*_`\[\]#~@])", r"\\\1", flat)
