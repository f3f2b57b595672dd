"""Section: rates over size, one figure for each direction."""

from linkscope.model.curves import Path
from linkscope.report.curve_chart import curve_svg
from linkscope.report.curve_lines import Lines
from linkscope.report.run_view import RunView
from linkscope.report.section import METHOD, Figure, Figures, Paragraph, Section, Span, more

_NOTE = (
    "Batched plain copies on one path of each direction, managed memory prefetched or on demand. A name has its best "
    "rate. Bands are intervals; a hollow dot is inherited, a ringed one missed its precision. "
)


def section(view: RunView) -> Section | None:
    """Figures on a linear axis; the same on a logarithmic one is folded. None without copies."""
    found = view.curve_lines
    if not found:
        return None
    linear, logarithmic = (
        Figures(tuple(_figure(one, view.run.modelled, is_log) for one in found)) for is_log in (False, True)
    )
    small = more("On a logarithmic axis, for small sizes", logarithmic)
    return Section("curves", "Rate over size", (Paragraph((_NOTE, METHOD), note=True), linear, small))


def _figure(lines: Lines, modelled: bool, logarithmic: bool) -> Figure:
    others = [f"{one.name}: {_path_text(one.curve.path)}" for one in lines.lines if one.curve.path != lines.path]
    caption = (Span(lines.direction, "strong"), f", {', '.join([_path_text(lines.path), *others])}")
    name = f"curves {lines.benchmark}" + (" logarithmic" if logarithmic else "")
    return Figure(name, curve_svg(lines, modelled, logarithmic=logarithmic), caption)


def _path_text(path: Path) -> str:
    return f"{path.src} → {path.dst}"
