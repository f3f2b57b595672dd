"""The page of a run: one HTML file without external resources, which works without JavaScript."""

import functools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from linkscope.report.heading import details, facts, machine_title, minor, serious
from linkscope.report.long_tables import with_long_tables_as_text, with_rests_folded
from linkscope.report.managed_peaks import with_nvlink_peaks
from linkscope.report.page_terms import explainer
from linkscope.report.section import Block, Column, Output, Table
from linkscope.report.sections import chapters
from linkscope.runfile import Run, read_run
from linkscope.units import with_signs

# The scripts of the page of a run, in this order.
SCRIPTS = ("frame.js", "pairs.js", "paths.js", "points.js", "uplot.js", "plot.js", "figure.js", "explorer.js")
_TEMPLATES = Path(__file__).parent / "templates"


def render(path: str | os.PathLike[str]) -> str:
    """The page of a run file. Raises UserError where the file cannot be read."""
    return page(read_run(path, rounds=False))


def page(run: Run) -> str:
    """The page of a run."""
    run = with_nvlink_peaks(run)
    made = chapters(run)
    return framed(
        "page.html",
        title=machine_title(run),
        modelled=run.modelled,
        nav=[(chapter.anchor, chapter.title) for chapter in made],
        scripts=SCRIPTS,
        run=run,
        facts=facts(run),
        details=details(run),
        version=str(run.header.tool.get("version", "")),
        serious=serious(run),
        minor=minor(run),
        chapters=made,
    )


def framed(template: str, *, scripts: Iterable[str], **values: Any) -> str:
    """A page made from a template that extends frame.html.

    `values`: title, modelled, version, nav (pairs of anchor and name), and what the template needs. Each of the
    `scripts` has its own scope; the object `page` is common to all.
    """
    explain = explainer() if template == "page.html" else escape  # other pages have no list of terms
    parts = "".join(f"{{\n{template_text(name)}}}\n" for name in scripts)
    css, js = (
        Markup("".join(map(template_text, ("figure.css", "report.css", "uplot.css")))),
        f'"use strict";\nconst page = {{}};\n{parts}',
    )
    text: str = (
        _environment()
        .get_template(template)
        .render(css=css, js=Markup(js), output=Output.PAGE, explain=explain, **values)
    )
    return text


@functools.cache
def _environment() -> Environment:
    """The environment of all pages: to compile the templates takes longer than to make a small page."""
    environment = template_environment("linkscope.report")
    environment.filters |= {
        "svg": Markup, "explained": _explained, "json": _json, "text": _text, "arrows": _arrows, "kind": _kind,
        "short": with_long_tables_as_text, "first": with_rests_folded,
        "table_class": _table_class, "cell_attributes": _cell_attributes,
    }  # fmt: skip
    return environment


def template_environment(package: str) -> Environment:
    """An environment for the templates of a package, which escapes values and refuses names that have none."""
    return Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@functools.cache
def template_text(name: str) -> str:
    """The content of a template file or of a vendored one."""
    folder = _TEMPLATES if (_TEMPLATES / name).exists() else _TEMPLATES.parent / "vendor"
    return (folder / name).read_text(encoding="utf-8")


@pass_context
def _explained(context: Context, text: object) -> Markup:
    """The text with its terms explained; each page explains them anew."""
    explained: Markup = context["explain"](text)
    return explained


def _kind(block: Block) -> str:
    return type(block).__name__


def _json(text: str) -> Markup:
    """JSON for a script element, which ends at the first '</'."""
    return Markup(text.replace("<", "\\u003c"))


def _text(text: str) -> Markup:
    """The text of an element, where quotation marks and > stand for themselves: every id has one."""
    return Markup(text.replace("&", "&amp;").replace("<", "&lt;"))


def _table_class(table: Table) -> Markup:
    names = ["stack"] if table.stacks else []
    names += ["grouped"] if any(group.head for group in table.groups) else []
    return Markup(f' class="{" ".join(names)}"' if names else "")


def _cell_attributes(column: Column) -> Markup:
    """The class and the label of the cells of a column. Cells that wrap have class params."""
    flags = (("n", column.right), ("v", column.strong), ("params", column.wraps))
    names = " ".join(name for name, has in flags if has)
    label = Markup(' data-label="{}"').format(column.label) if column.label else ""
    return Markup(f' class="{names}"' if names else "") + label


def _arrows(text: str) -> Markup:
    """The escaped text with the signs of printed text. No line breaks inside an arrow or a range of places."""
    signed = str(escape(with_signs(text)))
    return Markup(re.sub(r"-&gt;|(?<=:)\d+-\d+", r'<span class="arrow">\g<0></span>', signed))
