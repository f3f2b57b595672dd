"""Small multiples of copies between one place and all GPUs at once: one drawing for each direction, on one scale."""

from collections.abc import Callable, Sequence

from markupsafe import escape

from linkscope.report.axes import rate_axis
from linkscope.report.family_words import operation_text
from linkscope.report.joint import Joint, JointRow
from linkscope.report.section import Figure
from linkscope.units import digits4

_ROW, _TOP, _LEFT, _WIDTH, _RIGHT, _BOTTOM = 26, 8, 130, 400, 62, 24
_MOST = 4  # rows of a drawing; the table has all
_LETTERS = 17


def joint_figures(found: Sequence[Joint], modelled: bool) -> list[Figure]:
    """A drawing for each direction: the total of each place with its interval, divided into its flows.

    Those with one place come first, so that drawings side by side have one height.
    """
    of_direction: dict[tuple[str, bool], list[JointRow]] = {}
    for one in found:
        of_direction.setdefault((one.family.benchmark, one.bidirectional), []).extend(one.rows)
    ordered = sorted(((key, _best(rows)) for key, rows in of_direction.items()), key=lambda one: len(one[1]))
    best = {(key[0], operation_text(key[0]) + ", both directions" * key[1]): rows for key, rows in ordered}
    highest = max((row.total.high or row.total.value for rows in best.values() for row in rows), default=0.0)
    return [
        Figure(
            f"joint-{benchmark}" + name.removeprefix(operation_text(benchmark)),
            _drawing(name, rows, highest, modelled),
            f"{name}{_caption(len(rows))}",
        )
        for (benchmark, name), rows in best.items()
    ]


def _best(rows: Sequence[JointRow]) -> list[JointRow]:
    """The fastest method of each path."""
    of_path: dict[str, JointRow] = {}
    for row in sorted(rows, key=lambda row: -row.total.value):
        of_path.setdefault(str(row.path), row)
    return sorted(of_path.values(), key=lambda row: row.path)


def _caption(count: int) -> str:
    return f": {_MOST // 2} lowest and {_MOST // 2} highest of {count}" if count > _MOST else ""


def _ends(rows: Sequence[JointRow]) -> Sequence[JointRow]:
    """All rows, or the lowest and the highest totals of many."""
    if len(rows) <= _MOST:
        return rows
    ordered = sorted(rows, key=lambda row: row.total.value)
    return ordered[: _MOST // 2] + ordered[-(_MOST // 2) :]


def _drawing(name: str, rows: Sequence[JointRow], highest: float, modelled: bool) -> str:
    shown = _ends(rows)
    x = rate_axis(highest, _LEFT, _WIDTH - _RIGHT)
    bottom = _TOP + _ROW * len(shown)
    title = f"{'MODELLED: ' if modelled else ''}totals of concurrent flows, {name}"
    parts = [
        f'<svg class="chart joint" viewBox="0 0 {_WIDTH} {bottom + _BOTTOM}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>"
    ]
    parts.append('<path class="grid" d="' + "".join(f"M{x.at(at):.1f} {_TOP}V{bottom}" for at, _ in x.ticks) + '"/>')
    parts += [f'<text class="size" x="{x.at(at):.1f}" y="{bottom + 16}">{text}</text>' for at, text in x.ticks[::2]]
    for number, row in enumerate(shown):
        parts.append(_bar(row, _TOP + _ROW * (number + 0.5), x.at))
    if modelled:
        mark = f'class="modelled" style="font-size:56px" x="{_WIDTH / 2}" y="{(bottom + _BOTTOM) / 2}"'
        parts.append(f"<text {mark}>MODELLED</text>")
    return "".join([*parts, "</svg>"])


def _bar(row: JointRow, y: float, at: Callable[[float], float]) -> str:
    label = f"{row.path.src} → {row.path.dst}"
    label = label if len(label) <= _LETTERS else f"{label[: _LETTERS - 1]}…"
    sums = [sum(part.share for part in row.parts[:count]) for count in range(len(row.parts) + 1)] or [0.0]
    whole = max(sums[-1], 1.0)
    cuts = "".join(f"M{at(row.total.value * share / whole):.1f} {y - 8:.1f}h1.5v16h-1.5z" for share in sums[1:-1])
    whisker = ""
    if row.total.low is not None and row.total.high is not None:
        low, high = at(row.total.low), at(row.total.high)
        whisker = f'<path class="ring" d="M{low:.1f} {y - 4:.1f}v8m0 -4H{high:.1f}m0 -4v8"/>'
    sign = "~" if row.missed else ""
    return (
        f'<text class="num" x="{_LEFT - 8}" y="{y + 4:.1f}">{escape(label)}</text>'
        f'<rect class="h3" x="{_LEFT}" y="{y - 8:.1f}" width="{at(row.total.value) - _LEFT:.1f}" height="16"/>'
        f'<path class="under" d="{cuts}"/>{whisker}'
        f'<text class="reached" x="{at(row.total.high or row.total.value) + 6:.1f}" y="{y + 4:.1f}">'
        f"{sign}{digits4(row.total.value)}</text>"
    )
