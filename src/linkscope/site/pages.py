"""The pages of the site besides reports: templates, and the styles and scripts that they share."""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from linkscope.report.export import COLUMNS
from linkscope.report.html import template_environment, template_text
from linkscope.report.svg import swatch
from linkscope.site import figure
from linkscope.site.compare import Comparison, Machine, Value
from linkscope.site.entry import Entry, anchor
from linkscope.site.kinds import PLAIN, Cell, title_of
from linkscope.units import (
    format_bytes,
    format_fraction,
    format_rate,
    format_rate_interval,
    format_seconds,
    format_seconds_interval,
    with_signs,
)

ASSETS = "assets"
TABLE_KINDS = (
    "h2d-pinned", "d2h-pinned", "h2d-pageable", "d2h-pageable", "h2d-bidirectional", "d2d-peer", "local", "launch-cpu",
)  # fmt: skip
_TEMPLATES = Path(__file__).parent / "templates"


@functools.cache
def asset(name: str) -> tuple[str, str]:
    """The address and the content of a shared file. The address changes with the content."""
    if name == "base.css":  # the look of the report
        text = template_text("figure.css") + template_text("report.css")
    else:
        text = (_TEMPLATES / name).read_text(encoding="utf-8")
    return f"{ASSETS}/{hashlib.sha256(text.encode()).hexdigest()[:12]}.{name.rpartition('.')[2]}", text


def render(template: str, root: str, **values: Any) -> str:
    """A page. `root`: the way from its folder to the top of the site."""
    links = {kind: root + asset(name)[0] for kind, name in _SHARED.items()}
    return _environment().get_template(template).render(root=root, **links, **values)


_SHARED = {"base_css": "base.css", "site_css": "site.css", "site_js": "site.js"}


def shared_files() -> dict[str, str]:
    """The styles and scripts of these pages, by address."""
    return dict(asset(name) for name in _SHARED.values())


def gallery(machines: Sequence[Machine], runs: int, refused: int) -> str:
    """The first page: all machines with their maps."""
    tiles = [
        {
            "machine": machine,
            "map": f"{mapped.folder}/map.svg" if (mapped := machine.mapped) else "",
            "lines": [
                (title_of(kind), value_text(Value(machine, *found)))
                for kind in TABLE_KINDS[:6]
                if (found := machine.cells.get((kind, ""))) is not None
            ],
        }
        for machine in machines
    ]
    measured = [tile for tile in tiles if not tile["machine"].modelled]  # type: ignore[attr-defined]
    modelled = [tile for tile in tiles if tile["machine"].modelled]  # type: ignore[attr-defined]
    return render("index.html", "", title="Machines", measured=measured, modelled=modelled, runs=runs, refused=refused)


def run_page(entry: Entry, cells: Sequence[Cell]) -> str:
    """The page of a run without a report: its map, its main values and its files."""
    plain = [cell for cell in cells if cell.kind in PLAIN]
    return render("run.html", "../../../", title=f"Run of {entry.title or entry.name}", entry=entry, cells=plain)


def runs_page(machine: Machine) -> str:
    """All runs of a machine."""
    return render("runs.html", "../../", title=f"Runs of {machine.title or machine.name}", machine=machine)


def table(machines: Sequence[Machine], found: Sequence[Comparison]) -> str:
    """The table across machines. Modelled ones are hidden at first, unless there are no others."""
    by_kind = {one.kind: {value.machine.slug: value for value in one.values} for one in found}
    kinds = [one for one in found if one.kind in TABLE_KINDS]
    old = {one.kind: {value.machine.slug for value in one.old} for one in found}
    rows = [
        (machine, [(kind.kind, by_kind[kind.kind].get(machine.slug), machine.slug in old[kind.kind]) for kind in kinds])
        for machine in machines
    ]
    only_models = all(machine.modelled for machine in machines)
    return render("table.html", "", title="All machines in one table", rows=rows, kinds=kinds, only_models=only_models)


def comparison_list(found: Sequence[Comparison]) -> str:
    """The list of all path kinds."""
    return render("kinds.html", "", title="Compare by path", found=found)


def comparison_page(one: Comparison) -> str:
    """The page of a path kind: figures, table, other configurations, and values that are not compared."""
    groups = []
    for modelled in (False, True):
        values = [value for value in one.values if value.machine.modelled == modelled]
        if values:
            bars = [figure.Bar(value.machine.name, value.cell) for value in values]
            curves, names = figure.curves(title_of(one.kind), bars, modelled=modelled)
            groups.append({
                "modelled": modelled, "values": values, "curves": Markup(curves), "names": names,
                "dots": Markup(figure.dots(title_of(one.kind), bars, modelled=modelled)),
                "left_out": max(0, len(bars) - figure.MOST_ROWS),
            })  # fmt: skip
    open_models = not any(not group["modelled"] for group in groups)
    return render("compare.html", "../", title=title_of(one.kind), one=one, groups=groups, open_models=open_models)


def not_shown(refused: Sequence[tuple[str, str]], machines: Sequence[Machine]) -> str:
    """The files without a page, and the runs whose values are not compared, with the reasons."""
    runs = [(machine, run) for machine in machines for run in machine.runs if run.doubts or not run.links]
    return render("not-shown.html", "", title="Not shown, and why", refused=refused, runs=runs)


def downloads(machines: Sequence[Machine], files: Sequence[tuple[str, str]], added: Sequence[tuple[str, str]]) -> str:
    """Downloads, and the meaning of every column."""
    types = {str: "text", int: "whole number", float: "number", bool: "true or false"}
    columns = [(name, "text", "", meaning) for name, meaning in added]
    columns += [(name, types[kind], _unit(name), meaning) for name, kind, meaning, _ in COLUMNS]
    return render("downloads.html", "", title="Downloads", machines=machines, files=files, columns=columns)


def value_text(value: Value) -> str:
    """'55.4 GB/s [55.3, 55.5]', with the sign of an inherited or imprecise value."""
    return _cell_text(value.cell)


def _cell_text(cell: Cell) -> str:
    text = format_seconds_interval if cell.unit == "s" else format_rate_interval
    return with_signs(cell.sign + text(cell.value, cell.low, cell.high))


def _unit(column: str) -> str:
    units = {"_s": "s", "gbps": "GB/s", "bytes": "B", "level": "fraction", "rounds": "", "precision_target": "fraction"}
    if column in ("within_rounds", "between_rounds"):
        return "fraction"
    return next((unit for ending, unit in units.items() if column.endswith(ending)), "")


def _range_text(value: Value) -> str:
    cell = value.cell
    if cell.paths < 2 or cell.range is None:
        return "1 path"
    text = format_seconds if cell.unit == "s" else format_rate
    low, high = map(text, cell.range)
    return with_signs(f"{cell.paths} paths, {low} to {high}")


def _point_address(value: Value) -> str:
    return f"{value.entry.folder}/points.html#{anchor(value.cell.point)}"


@functools.cache
def _environment() -> Environment:
    environment = template_environment("linkscope.site")
    environment.filters |= {
        "bytes": format_bytes, "share": format_fraction, "kind_title": title_of, "value_text": value_text,
        "cell_text": _cell_text, "anchor": anchor,
        "range_text": _range_text, "address": _point_address, "swatch": lambda colour: Markup(swatch(colour)),
    }  # fmt: skip
    return environment
