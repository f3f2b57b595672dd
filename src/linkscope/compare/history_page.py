"""The page of several runs of one machine: headline numbers over time, the changes, and the runs."""

from collections.abc import Sequence

from markupsafe import escape

from linkscope.compare.environment import same_machine
from linkscope.compare.history import Change, changes
from linkscope.compare.page import runs_page
from linkscope.compare.text import change_text
from linkscope.model.curves import MODE, Estimate, time_of, total_of
from linkscope.model.text import count_text, point_text
from linkscope.report.axes import Axis
from linkscope.report.heading import machine_title
from linkscope.report.headline import headline_points
from linkscope.report.section import Block, Column, Figure, Figures, Paragraph, Section, more, table
from linkscope.report.trust import signed
from linkscope.runfile import Point, Run
from linkscope.units import format_rate, format_seconds

_RATES = {"h2d": "Host to GPU", "d2h": "GPU to host", "d2d": "GPU to GPU", "local": "Within a GPU"}
_TIMES = {"h2d": "Smallest copy to a GPU, single", "d2h": "Smallest copy to the host, single"}
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 190, 84, 16, 22, 34
_MOST = 20  # changes that are not folded


def history_page(runs: Sequence[Run]) -> str:
    """The HTML of a history; the runs are put in the order of time."""
    ordered = sorted(runs, key=lambda run: run.header.started)
    found = changes(ordered)
    alike = all(same_machine(ordered[0].header, run.header) for run in ordered[1:])
    notes = [] if alike else ["The runs are of different machines: paths of the same name are compared."]
    name = machine_title(ordered[-1])
    made = [_headlines(ordered, found), _changes(ordered, found), _runs(ordered)]
    about = [f"{ordered[0].header.started} to {ordered[-1].header.started}"]
    return runs_page(f"{name} over {count_text(len(ordered), 'run')}", about, ordered, made, notes)


def headlines(runs: Sequence[Run]) -> dict[str, list[Point]]:
    """The same point of every run, by its title: the fastest copy of each direction, and the smallest single copies.

    Only points with a value in every run count.
    """
    by_id = [{point.id: point for point in run.points if point.median_s} for run in runs]
    common = [point for point in headline_points(runs[0].points) if all(point.id in found for found in by_id)]
    chosen: dict[str, Point] = {}
    for benchmark, title in _RATES.items():
        rated = [point for point in common if point.benchmark == benchmark and not point.bidirectional]
        rates = {point.id: total.value for point in rated if (total := total_of(point)) is not None}
        if rates:
            chosen[title] = by_id[0][max(rates, key=lambda id: rates[id])]
    for benchmark, title in _TIMES.items():
        single = [one for one in common if one.benchmark == benchmark and one.params.get(MODE) == "single"]
        if single:
            chosen[title] = min(single, key=lambda point: (point.bytes, point.median_s))
    return {title: [found[point.id] for found in by_id] for title, point in chosen.items()}


def _headlines(runs: Sequence[Run], found: Sequence[Change]) -> Section:
    of = headlines(runs)
    if not of:
        return Section("headlines", "Headlines", (Paragraph("No headline point has a value in every run."),))
    text = "Each dot is a run with its 95 % interval; a hollow dot is inherited. A dashed line marks a change."
    figures = tuple(_figure(title, points, runs, found) for title, points in of.items())
    return Section("headlines", "Headlines over time", (Paragraph(text), Figures(figures)))


def _figure(title: str, points: Sequence[Point], runs: Sequence[Run], found: Sequence[Change]) -> Figure:
    as_rate = title in _RATES.values()
    values = [_value(point, as_rate) for point in points]
    since = [one for one in found if one.point.id == points[0].id and one.kind == "change"]
    dates = [run.header.started[:10] for run in runs]
    mark = "MODELLED: " if any(run.modelled for run in runs) else ""
    name = f"{mark}{title}: {point_text(points[0])}"
    low = min(one.low if one.low is not None else one.value for one in values)
    high = max(one.high if one.high is not None else one.value for one in values)
    room = max(high - low, 0.04 * high) * 0.2
    ticks = tuple((value, format_rate(value) if as_rate else format_seconds(value)) for value in (low, high))
    ticks = ticks if high - low > 0.1 * room else ticks[:1]
    y = Axis(low - room, high + room, _HEIGHT - _BOTTOM, _TOP, False, ticks)
    x = Axis(-0.5, len(runs) - 0.5, _LEFT, _WIDTH - _RIGHT, False, ())
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(name)}">'
        f"<title>{escape(name)}</title>",
        _grid(x, y, dates),
        *(_change(one, x) for one in since),
        _dots(points, values, x, y),
    ]
    if mark:
        parts.append(f'<text class="modelled" x="{_WIDTH / 2}" y="{_HEIGHT / 2}">MODELLED</text>')
    last = format_rate(values[-1].value) if as_rate else format_seconds(values[-1].value)
    return Figure(f"history-{title}", "".join([*parts, "</svg>"]), f"{title}: {signed(last, [points[-1]])} last")


def _value(point: Point, as_rate: bool) -> Estimate:
    found = total_of(point) if as_rate else time_of(point)
    return found or Estimate(point.median_s or 0.0)


def _grid(x: Axis, y: Axis, dates: Sequence[str]) -> str:
    lines = "".join(f"M{_LEFT} {y.at(value):.1f}H{_WIDTH - _RIGHT}" for value, _ in y.ticks)
    texts = "".join(
        f'<text class="num" x="{_LEFT - 6}" y="{y.at(value) + 4:.1f}">{escape(text)}</text>' for value, text in y.ticks
    )
    for at in sorted({0, len(dates) - 1}):
        anchor = "start" if at == 0 else "end"
        edge = _LEFT if at == 0 else _WIDTH - _RIGHT
        texts += f'<text x="{edge}" y="{_HEIGHT - 10}" text-anchor="{anchor}">{escape(dates[at])}</text>'
    return f'<path class="grid" d="{lines}"/>{texts}'


def _change(one: Change, x: Axis) -> str:
    at = x.at(one.at - 0.5)
    said = f"{'slower' if one.ratio > 1 else 'faster'}, time {100 * (one.ratio - 1):+.2g} %"
    side = "end" if at > _WIDTH / 2 else "start"
    return (
        f'<path class="limit" d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>'
        f'<text x="{at + (-5 if side == "end" else 5):.1f}" y="14" text-anchor="{side}">{said}</text>'
    )


def _dots(points: Sequence[Point], values: Sequence[Estimate], x: Axis, y: Axis) -> str:
    places = [(x.at(number), y.at(one.value)) for number, one in enumerate(values)]
    line = "".join(f"{'L' if number else 'M'}{px:.1f} {py:.1f}" for number, (px, py) in enumerate(places))
    bars = "".join(
        f"M{px:.1f} {y.at(one.low):.1f}V{y.at(one.high):.1f}"
        for (px, _), one in zip(places, values, strict=True)
        if one.low is not None and one.high is not None
    )
    dots = {False: "", True: ""}
    for point, (px, py) in zip(points, places, strict=True):
        dots[point.status == "inherited"] += f"M{px - 4:.1f} {py:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0"
    return (
        f'<g class="s0"><path class="line" d="{line}"/><path class="bar" d="{bars}"/>'
        f'<path class="mark" d="{dots[False]}"/></g><path class="ring" d="{dots[True]}"/>'
    )


def _changes(runs: Sequence[Run], found: Sequence[Change]) -> Section:
    if not found:
        return Section("changes", "Changes", (Paragraph("No path has changed beyond its margin and interval."),))
    columns = (
        Column("Time", strong=True), Column("Since", label="Since"), Column("Point", label="Point", wraps=True),
    )  # fmt: skip
    ordered = sorted(found, key=lambda one: -max(one.ratio, 1 / one.ratio))
    rows = [(change_text(one), _since(one, runs), point_text(one.point)) for one in ordered]
    blocks: list[Block] = [Paragraph("The biggest change stands first, with the run since which it holds.")]
    blocks.append(table("Changes", columns, rows[:_MOST]))
    if rest := rows[_MOST:]:
        blocks.append(more(f"{count_text(len(rest), 'smaller change')}", table("Smaller changes", columns, rest)))
    return Section("changes", "Changes", tuple(blocks))


def _since(one: Change, runs: Sequence[Run]) -> str:
    return "drifts from first to last" if one.kind == "drift" else runs[one.at].header.started


def _runs(runs: Sequence[Run]) -> Section:
    columns = (
        Column("Started", strong=True), Column("File", label="File"), Column("Driver", label="Driver"),
        Column("Suite", label="Suite"), Column("Points", right=True, label="Points"),
        Column("With a value", right=True, label="With a value"),
    )  # fmt: skip
    rows = [
        (
            run.header.started, str(run.path), _driver(run), str(run.header.plan.get("suite", "-")),
            str(len(run.points)), str(sum(point.median_s is not None for point in run.points)),
        )
        for run in runs
    ]  # fmt: skip
    return Section("runs", "Runs", (table("Runs", columns, rows),))


def _driver(run: Run) -> str:
    found = run.header.machine.get("driver") or run.header.environment.get("driver") or "-"
    return str(found.get("version", "-")) if isinstance(found, dict) else str(found)
