"""Single figures of a run as SVG files that carry their own style and colours, for any program."""

import re
from collections.abc import Callable

from linkscope.model.text import paths_text
from linkscope.report.heat import heat_svg, heats
from linkscope.report.html import template_text
from linkscope.report.panels import panels
from linkscope.report.picture import machine_svg, wires
from linkscope.report.shared import group_svg, shares, without_concurrent
from linkscope.report.sweep import sweep_rows
from linkscope.report.sweep_charts import sweep_charts
from linkscope.runfile import Run


def figures(run: Run) -> dict[str, Callable[[], str]]:
    """The name of each figure, and the function that draws it."""
    found: dict[str, Callable[[], str]] = {}
    shared = shares(run.points)
    run = without_concurrent(run)
    links = wires(run)
    if links:
        found["machine"] = lambda: machine_svg(links, run.modelled)
    for heat in heats(run.points):
        found[_name(f"heat {heat.title}", found)] = lambda heat=heat: heat_svg(heat, run.modelled)  # type: ignore[misc]
    for chart in sweep_charts(sweep_rows(run), modelled=run.modelled):
        found[_name(f"blocks {chart.operation}", found)] = lambda chart=chart: chart.svg  # type: ignore[misc]
    for group in shared.groups if shared else ():
        paths = paths_text(group.paths)
        found[_name(f"shared {paths}", found)] = lambda group=group: group_svg(group, run.modelled)  # type: ignore[misc]
    for panel in panels(run.points, modelled=run.modelled):
        for what, svg in (("rate", panel.rate_svg), ("time", panel.time_svg)):
            if svg:
                found[_name(f"{what} {panel.path}", found)] = lambda svg=svg: svg  # type: ignore[misc]
    return found


def standalone(svg: str) -> str:
    """A figure of the page as a file of its own, on a light background, with all colours written out."""
    css = _plain_colours(template_text("figure.css"))
    width, height = (float(one) for one in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups())  # type: ignore[union-attr]
    opened = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" ', 1)
    if ' width="' not in opened.partition(">")[0]:
        opened = opened.replace("<svg ", f'<svg width="{width:g}" height="{height:g}" ', 1)
    start = opened.index(">") + 1
    ground = '<rect width="100%" height="100%" fill="#f5f6f8"/>'
    return f"{opened[:start]}<style>{css}</style>{ground}{opened[start:]}\n"


def size_of(svg: str) -> tuple[int, int]:
    """Width and height of a standalone figure in pixels."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found is not None  # every figure of this package has a viewBox
    return round(float(found[1])), round(float(found[2]))


def _plain_colours(css: str) -> str:
    """Replaces custom properties, which many programs do not support, by the values of the light theme."""
    root, _, rest = css.partition("@media screen and (prefers-color-scheme: dark)")
    colours = dict(re.findall(r"(--[\w-]+):\s*([^;]+);", root))
    rules = rest[rest.index("\n}\n") + 3 :]
    return re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], rules)


def _name(text: str, used: dict[str, Callable[[], str]]) -> str:
    """A unique name for the command line: lower-case letters, digits and hyphens."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower().replace("->", " to ")).strip("-")
    name, number = plain, 2
    while name in used:
        name, number = f"{plain}-{number}", number + 1
    return name
