"""Figures for papers from run files and a specification (plot_spec.py), by matplotlib.

A figure is drawn again only when its data, its specification or a version changed.
"""

import difflib
import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import linkscope
from linkscope.errors import UserError
from linkscope.report.plot_spec import Figure, Specification
from linkscope.runfile import Point, Run
from linkscope.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_FIELDS = ("benchmark", "engine", "src", "dst", "src_memory", "dst_memory", "bytes", "run")
_LABELS = {
    "bytes": "bytes of an operation", "gbps": "GB/s", "total_gbps": "GB/s, all flows", "seconds": "seconds",
    "of_peak": "share of the peak", "src": "source", "dst": "destination",
}  # fmt: skip
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999933")
_MARKERS = "osD^vP*X"
_STATE = "plots.json"
_MM = 1 / 25.4
_LETTERS_PER_MM = 0.3  # of the width of a figure, in one of two columns of its legend


@dataclass(frozen=True)
class Value:
    """One point of a curve. `ends`: of the 95 % interval in the unit of y, if there is one; `peak` in the unit of y."""

    x: float | str
    y: float
    ends: tuple[float, float] | None
    peak: float | None


@dataclass
class Data:
    """What a figure shows: the values of each curve by its name, and whether a model made some of them."""

    curves: dict[str, list[Value]] = field(default_factory=dict)
    modelled: bool = False

    def digest(self, *others: object) -> str:
        """A number that changes with the data, or with others that shape the picture."""
        content = [{name: [vars(value) for value in values] for name, values in self.curves.items()}, self.modelled]
        return hashlib.sha256(json.dumps([content, others], sort_keys=True).encode()).hexdigest()


def draw(runs: Sequence[Run], specification: Specification, folder: Path) -> Iterator[tuple[Path, bool]]:
    """Draws all figures into the folder. Yields each file, and whether it was drawn or already there.

    Raises UserError for a figure that names what no run has, and without matplotlib.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise UserError("--plots needs PyYAML and matplotlib: pip install 'linkscope[plots]'") from None
    matplotlib.use("agg")
    found = [(figure, select(runs, figure)) for figure in specification.figures if _is_wanted(runs, figure)]
    if not found:
        raise UserError(_nothing(runs, specification.figures[0]) if specification.figures else "there is no figure")
    folder.mkdir(parents=True, exist_ok=True)
    known = _known(folder / _STATE)
    for figure, data in found:
        versions = (linkscope.__version__, matplotlib.__version__)
        digest = data.digest(msgspec.to_builtins(figure), specification.font_size, versions)
        paths = [folder / f"{figure.name}.{ending}" for ending in specification.formats]
        fresh = known.get(figure.name) == digest and all(path.exists() for path in paths)
        if not fresh:
            _write(figure, data, specification.font_size, paths)
            known[figure.name] = digest
        yield from ((path, not fresh) for path in paths)
    (folder / _STATE).write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def _known(path: Path) -> dict[str, str]:
    """The digests of the figures that are there; none if the file is missing or broken."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _is_wanted(runs: Sequence[Run], figure: Figure) -> bool:
    return not figure.optional or any(_is_shown(point, figure) for run in runs for point in run.points)


def select(runs: Sequence[Run], figure: Figure) -> Data:
    """The values of a figure. Raises UserError that says what the runs have instead."""
    chosen = [(run, point) for run in runs for point in run.points if _is_shown(point, figure)]
    if not chosen:
        raise UserError(_nothing(runs, figure))
    rows = [figure.defaults | _facts(run, point, len(runs) > 1) for run, point in chosen]
    named = sorted({name for row in rows for name in row})
    for wanted in (figure.x, *(figure.curves or ())):
        if any(wanted not in row for row in rows):
            raise UserError(f"figure {figure.name}: not every point has '{wanted}'; they have {', '.join(named)}")
    varying = [name for name in named if len({row.get(name) for row in rows}) > 1 and name != figure.x]
    apart = varying if figure.curves is None else figure.curves
    data = Data(modelled=any(run.modelled for run, _ in chosen))
    for row, (_, point) in zip(rows, chosen, strict=True):
        words = [_called(each, row[each]) for each in apart if each in varying and row.get(each, "-") != "-"]
        name = ", ".join(words) or point.benchmark
        data.curves.setdefault(name, []).append(_value(point, figure, row[figure.x]))
    data.curves = dict(sorted(data.curves.items(), key=lambda curve: _in_order(curve[0])))
    for name, values in data.curves.items():
        values.sort(key=lambda value: (isinstance(value.x, str), value.x))
        if len({value.x for value in values}) < len(values):
            more = sorted(set(varying) - set(apart))
            raise UserError(
                f"figure {figure.name}: curve '{name}' has two values at one {figure.x}; tell them apart by"
                f" {', '.join(more)} in `curves`"
            )
    return data


def _in_order(name: str) -> list[tuple[bool, float, str]]:
    """A key that sorts names with numbers in them by the numbers, and sizes by their bytes."""
    size = parse_bytes(name)
    if size is not None:
        return [(False, float(size), "")]
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(not _is_number(part), float(part) if _is_number(part) else 0.0, part) for part in parts if part]


def _is_shown(point: Point, figure: Figure) -> bool:
    """Whether the point matches, has the figure's value, and was measured itself unless the figure takes others too."""
    if point.median_s is None or (point.inherited_from and not figure.inherited):
        return False
    if figure.y != "seconds" and getattr(point, "total_gbps" if figure.y == "total_gbps" else "gbps") is None:
        return False
    if figure.y == "of_peak" and point.limit_gbps is None:
        return False
    return any(fnmatch.fnmatchcase(point.id, pattern) for pattern in figure.points)


def _nothing(runs: Sequence[Run], figure: Figure) -> str:
    """Why the figure has no points, and which kinds of points come closest to its globs."""
    kinds = sorted({point.id.rsplit("/", 1)[0] for run in runs for point in run.points if point.median_s is not None})
    close = difflib.get_close_matches(figure.points[0] if figure.points else "", kinds, n=4, cutoff=0.0)
    asked = " or ".join(figure.points) or "nothing"
    has = f"for example {', '.join(close)}" if close else "no point with a value"
    return f"figure {figure.name}: no point with a value of {figure.y} matches {asked}; the run has {has}"


def _facts(run: Run, point: Point, several: bool) -> dict[str, str]:
    """Fields and parameters of a point by name, as text."""
    facts = {name: str(getattr(point, name)) for name in _FIELDS if name != "run"} | dict(point.params)
    return facts | ({"run": Path(run.path).name.split(".jsonl")[0]} if several else {})


def _called(name: str, value: str) -> str:
    """How a curve's name states one field: parameters need their name."""
    if name == "bytes":
        return format_bytes(int(value))
    return value if name in _FIELDS else f"{name} {value}"


def _value(point: Point, figure: Figure, x: str) -> Value:
    assert point.median_s is not None
    at: float | str = float(x) if _is_number(x) else x
    if figure.y == "seconds":
        return Value(at, point.median_s, point.ci95_s, None)
    rate = point.total_gbps if figure.y == "total_gbps" else point.gbps
    assert rate is not None
    limit = point.limit_gbps
    unit = limit if figure.y == "of_peak" and limit else 1.0
    ends = None
    if point.ci95_s and figure.y != "total_gbps":
        low, high = (rate * point.median_s / seconds / unit for seconds in reversed(point.ci95_s))
        ends = (low, high)
    return Value(at, rate / unit, ends, limit / unit if limit and figure.y != "total_gbps" else None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _write(figure: Figure, data: Data, font_size: float, paths: Sequence[Path]) -> None:
    import matplotlib
    from matplotlib.figure import Figure as Drawing

    style: dict[Any, Any] = {
        "font.size": font_size, "svg.hashsalt": figure.name, "svg.fonttype": "path", "axes.spines.top": False,
        "axes.spines.right": False, "lines.linewidth": 1.2, "lines.markersize": 3.5,
    }  # fmt: skip
    with matplotlib.rc_context(style):
        drawing = Drawing(figsize=(figure.width_mm * _MM, figure.height_mm * _MM), layout="constrained")
        axes = drawing.add_subplot()
        numeric = all(not isinstance(value.x, str) for values in data.curves.values() for value in values)
        (_curves if numeric else _bars)(axes, data, figure)
        _dress(drawing, axes, data, figure)
        for path in paths:
            metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(path.suffix[1:], {})
            drawing.savefig(path, dpi=300, metadata=metadata)


def _curves(axes: "Axes", data: Data, figure: Figure) -> None:
    for at, (name, values) in enumerate(data.curves.items()):
        x, y = [float(value.x) for value in values], [value.y for value in values]
        color = _COLORS[at % len(_COLORS)]
        axes.plot(x, y, color=color, marker=_MARKERS[at % len(_MARKERS)], label=name, clip_on=False)
        low = [value.ends[0] if value.ends else value.y for value in values]
        high = [value.ends[1] if value.ends else value.y for value in values]
        axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)
    scale = figure.x_scale or ("log2" if figure.x == "bytes" else "linear")
    if scale == "log2":
        axes.set_xscale("log", base=2)
    else:
        axes.set_xscale(scale)
    if figure.x == "bytes":
        from matplotlib.ticker import FuncFormatter

        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_bytes(round(size)) if size >= 1 else ""))


def _bars(axes: "Axes", data: Data, figure: Figure) -> None:
    """Groups of bars: a group for each text on the x axis, a bar for each curve."""
    places = sorted({str(value.x) for values in data.curves.values() for value in values}, key=_in_order)
    wide = 0.8 / len(data.curves)
    for at, (name, values) in enumerate(data.curves.items()):
        x = [places.index(str(value.x)) - 0.4 + (at + 0.5) * wide for value in values]
        ends = [value.ends or (value.y, value.y) for value in values]
        around = [
            [max(value.y - low, 0.0) for value, (low, _) in zip(values, ends, strict=True)],
            [max(high - value.y, 0.0) for value, (_, high) in zip(values, ends, strict=True)],
        ]
        axes.bar(x, [value.y for value in values], wide, yerr=around, color=_COLORS[at % len(_COLORS)], label=name,
                 error_kw={"elinewidth": 0.8})  # fmt: skip
    axes.set_xticks(range(len(places)), places)


def legend_columns(names: list[str], width_mm: float) -> int:
    """Two columns, or one if a name is too long for half the width of the figure."""
    return 2 if max(map(len, names)) <= _LETTERS_PER_MM * width_mm else 1


def _dress(drawing: "Drawing", axes: "Axes", data: Data, figure: Figure) -> None:
    """Labels, legend, the peak, and the mark of a model."""
    axes.set_yscale(figure.y_scale)
    if figure.y_scale == "linear":
        axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.x_label or _LABELS.get(figure.x, figure.x))
    axes.set_ylabel(figure.y_label or _LABELS[figure.y])
    peaks = {value.peak for values in data.curves.values() for value in values if value.peak}
    for peak in sorted(peaks) if figure.peak else ():
        axes.axhline(peak, color="#666666", linewidth=0.8, linestyle="--", label="peak" if peak == min(peaks) else None)
    if len(data.curves) > 1 or (figure.peak and peaks):
        columns = legend_columns(axes.get_legend_handles_labels()[1], figure.width_mm)
        drawing.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    if figure.title:
        axes.set_title(figure.title)
    if data.modelled:
        drawing.text(0.5, 0.5, "MODELLED", ha="center", va="center", rotation=25, alpha=0.15, fontsize=28)
