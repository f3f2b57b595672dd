"""The page of a run: one HTML file without external resources, which works without JavaScript."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from linkscope.report.outcome import run_text
from linkscope.report.section import Block, Column, Output, Table
from linkscope.report.sections import chapters
from linkscope.runfile import Run, read_run

SCRIPTS = ("frame.js", "paths.js")  # of the page of a run, in this order
_TEMPLATES = Path(__file__).parent / "templates"


def render(path: str | os.PathLike[str]) -> str:
    """The page of a run file. Raises UserError where the file cannot be read."""
    return page(read_run(path, rounds=False))


def page(run: Run) -> str:
    """The page of a run."""
    made = chapters(run)
    return framed(
        "page.html",
        title=str(run.header.machine.get("name") or "a machine without a name"),
        modelled=run.modelled,
        nav=[(chapter.anchor, chapter.title) for chapter in made],
        scripts=SCRIPTS,
        run=run,
        about=run_text(run),
        version=str(run.header.tool.get("version", "")),
        warnings=[*run.warnings, *_warnings(run.header.environment), *_warnings(run.header.machine)],
        chapters=made,
    )


def framed(template: str, *, scripts: Iterable[str], **values: Any) -> str:
    """A page made from a template that extends frame.html.

    `values`: title, modelled, version, nav (pairs of anchor and name), and what the template needs. Each of the
    `scripts` has its own scope; the object `page` is common to all.
    """
    environment = Environment(
        loader=PackageLoader("linkscope.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "svg": Markup, "arrows": _arrows, "kind": _kind,
        "table_class": _table_class, "cell_attributes": _cell_attributes,
    }  # fmt: skip
    parts = "".join(f"{{\n{template_text(name)}}}\n" for name in scripts)
    css, js = (
        Markup(template_text("figure.css") + template_text("report.css")),
        f'"use strict";\nconst page = {{}};\n{parts}',
    )
    text: str = environment.get_template(template).render(css=css, js=Markup(js), output=Output.PAGE, **values)
    return text


def template_text(name: str) -> str:
    """The content of a template file."""
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _kind(block: Block) -> str:
    return type(block).__name__


def _table_class(table: Table) -> Markup:
    names = ["stack"] if table.stacks else []
    names += ["grouped"] if any(group.head for group in table.groups) else []
    names += ["facts"] if not any(column.name for column in table.columns) else []
    return Markup(f' class="{" ".join(names)}"' if names else "")


def _cell_attributes(column: Column) -> Markup:
    """The class and the label of the cells of a column. Cells that wrap have class params."""
    flags = (("n", column.right), ("v", column.strong), ("params", column.wraps))
    names = " ".join(name for name, has in flags if has)
    label = Markup(' data-label="{}"').format(column.label) if column.label else ""
    return Markup(f' class="{names}"' if names else "") + label


def _arrows(text: str) -> Markup:
    """The escaped text, without line breaks inside an arrow or a range of places."""
    return Markup(re.sub(r"-&gt;|(?<=:)\d+-\d+", r'<span class="arrow">\g<0></span>', str(escape(text))))


def _warnings(facts: dict[str, Any]) -> list[str]:
    """The warnings of the environment or the probe: texts, or objects with a text."""
    listed = facts.get("warnings")
    if not isinstance(listed, list):
        return []
    return [str(one.get("text") or one.get("message") or one) if isinstance(one, dict) else str(one) for one in listed]
