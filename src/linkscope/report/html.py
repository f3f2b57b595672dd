"""The page of a run: one HTML file without external resources, which works without JavaScript."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from linkscope.advise import worthwhile
from linkscope.advise.text import details, headline
from linkscope.model.text import range_s, range_share, rate_text
from linkscope.report.break_even import HEADING, NOTE, PHASES, break_evens
from linkscope.report.finding import Finding
from linkscope.report.findings import findings
from linkscope.report.glossary import WORDS
from linkscope.report.head import GRAVE, doubts, tiles
from linkscope.report.heat import Heat, heat_svg, heats
from linkscope.report.joint import joints
from linkscope.report.outcome import intervals_text, problems, run_text
from linkscope.report.overview import ALIKE, overview
from linkscope.report.panels import DRAWN_AS_ONE, panels
from linkscope.report.picture import machine_svg, wires
from linkscope.report.shared import HEADING as SHARED_HEADING
from linkscope.report.shared import NOTE as SHARED_NOTE
from linkscope.report.shared import group_svg, shares, without_concurrent
from linkscope.report.sweep import ENOUGH, sweep_rows
from linkscope.report.sweep_charts import sweep_charts
from linkscope.report.trust import INHERITED, INHERITED_MEANS, SIGN, SIGN_MEANS, inherited
from linkscope.runfile import Run, read_run
from linkscope.units import format_bytes, format_fraction

_TEMPLATES = Path(__file__).parent / "templates"


def render(path: str | os.PathLike[str]) -> str:
    """The page of a run file. Raises UserError where the file cannot be read."""
    return page(read_run(path, rounds=False))


def page(run: Run) -> str:
    """The page of a run."""
    everything, run = run, without_concurrent(run)
    environment = Environment(
        loader=PackageLoader("linkscope.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": format_bytes, "rate": rate_text, "range_s": range_s, "range_share": range_share,
        "svg": Markup, "share": format_fraction, "arrows": _arrows,
    }  # fmt: skip
    swept = sweep_rows(run)
    text: str = environment.get_template("page.html").render(
        run=run,
        name=str(run.header.machine.get("name") or "a machine without a name"),
        title=str(run.header.machine.get("title") or ""),
        about=run_text(everything),
        version=str(run.header.tool.get("version", "")),
        warnings=[*run.warnings, *_warnings(run.header.environment), *_warnings(run.header.machine)],
        environment=list(_flat(run.header.environment)),
        machine=list(_flat(run.header.machine)),
        tiles=tiles(everything),
        doubts=doubts(everything),
        file=_file_name(run),
        wires=wires(run),
        machine_svg=machine_svg(wires(run), run.modelled),
        heat=_by_direction(heats(run.points)),
        heat_svg=lambda heat: heat_svg(heat, run.modelled),
        sweeps=swept,
        sweep_charts=sweep_charts(swept, modelled=run.modelled),
        enough=format_fraction(ENOUGH),
        joints=joints(run.points),
        break_evens=break_evens(run.points),
        break_even_heading=HEADING,
        break_even_note=NOTE,
        phases=list(PHASES),
        # the page lists the others under points to check
        findings=_by_kind([finding for finding in findings(run) if finding.kind not in GRAVE]),
        advice=[(headline(one), details(one)) for one in worthwhile(run.points)],
        sign_means="; ".join([SIGN_MEANS] + [INHERITED_MEANS] * any(map(inherited, run.points))),
        inherited_sign=INHERITED,
        sign=SIGN,
        words=WORDS,
        intervals=intervals_text(run.points),
        shares=shares(everything.points),
        shared_heading=SHARED_HEADING,
        shared_note=SHARED_NOTE,
        group_svg=lambda group: group_svg(group, run.modelled),
        problems=problems(everything.points),
        families=overview(run.points),
        panels=panels(run.points, modelled=run.modelled),
        alike=f"{ALIKE:.0%}",
        drawn_as_one=f"{DRAWN_AS_ONE:.0%}",
        css=Markup(template_text("figure.css") + template_text("report.css")),
        js=Markup(template_text("report.js")),
    )
    return text


def template_text(name: str) -> str:
    """The content of a template file."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _file_name(run: Run) -> str:
    """The base name of downloads: the name of the run file, with MODELLED for modelled runs."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", run.path.name.split(".jsonl")[0]) or "run"
    return f"MODELLED-{plain}" if run.modelled else plain


def _arrows(text: str) -> Markup:
    """The escaped text, without line breaks inside an arrow or a range of places."""
    return Markup(re.sub(r"-&gt;|(?<=:)\d+-\d+", r'<span class="arrow">\g<0></span>', str(escape(text))))


def _by_kind(found: list[Finding]) -> list[tuple[str, list[Finding]]]:
    kinds: dict[str, list[Finding]] = {}
    for finding in found:
        kinds.setdefault(finding.kind, []).append(finding)
    return list(kinds.items())


def _by_direction(found: list[Heat]) -> list[tuple[str, str, list[Heat]]]:
    """The maps by family, with the usual values of each family. A page with dozens of maps shows them folded."""
    families: dict[tuple[str, str], list[Heat]] = {}
    for heat in found:
        families.setdefault((heat.family, heat.usual), []).append(heat)
    return [(*key, maps) for key, maps in families.items()]


def _warnings(facts: dict[str, Any]) -> list[str]:
    """The warnings of the environment or the probe: texts, or objects with a text."""
    listed = facts.get("warnings")
    if not isinstance(listed, list):
        return []
    return [str(one.get("text") or one.get("message") or one) if isinstance(one, dict) else str(one) for one in listed]


def _flat(facts: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested facts as lines with dotted names. A list of plain values is one line."""
    if isinstance(facts, dict):
        for key, value in facts.items():
            if key != "warnings":
                yield from _flat(value, f"{name}.{key}" if name else str(key))
    elif isinstance(facts, list) and any(isinstance(value, dict | list) for value in facts):
        for index, value in enumerate(facts):
            yield from _flat(value, f"{name}[{index}]")
    elif isinstance(facts, list):
        yield name, ", ".join(map(str, facts))
    elif facts is not None and facts != "":
        yield name, str(facts)
