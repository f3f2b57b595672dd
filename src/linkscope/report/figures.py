"""Single figures of a run as SVG files that carry their own style and colours, for any program."""

import re
from collections.abc import Iterable, Iterator

from linkscope.report.html import template_text
from linkscope.report.section import Block, Figure, Figures, Fold, Output, Split
from linkscope.report.sections import sections
from linkscope.runfile import Run


def figures(run: Run) -> dict[str, str]:
    """The figures of all sections by name, as in the page."""
    found: dict[str, str] = {}
    for section in sections(run, Output.PAGE):
        for figure in _of_blocks(section.blocks):
            found[_name(figure.name, found)] = figure.svg
    return found


def _of_blocks(blocks: Iterable[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Figures):
            yield from block.figures
        elif isinstance(block, Fold):
            yield from _of_blocks(block.blocks)
        elif isinstance(block, Split):
            yield from _of_blocks((*block.left, *block.right))


def standalone(svg: str) -> str:
    """A figure of the page as a file of its own, on a light background, with all colours written out."""
    colours, rules = _light_colours(template_text("figure.css"))
    css, svg = _plain(rules, colours), _plain(svg, colours)
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


def _light_colours(css: str) -> tuple[dict[str, str], str]:
    """The custom properties of the light theme, and the rules below them."""
    root, _, rest = css.partition("@media screen and (prefers-color-scheme: dark)")
    return dict(re.findall(r"(--[\w-]+):\s*([^;]+);", root)), rest[rest.index("\n}\n") + 3 :]


def _plain(text: str, colours: dict[str, str]) -> str:
    """Replaces custom properties, which many programs do not support, by their values."""
    return re.sub(r"var\((--[\w-]+)\)", lambda match: colours[match[1]], text)


def _name(text: str, used: dict[str, str]) -> str:
    """A unique name for the command line: lower-case letters, digits and hyphens."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower().replace("->", " to ")).strip("-")
    name, number = plain, 2
    while name in used:
        name, number = f"{plain}-{number}", number + 1
    return name
