"""Shared links: sentences, a drawing for each group, and the result of each pair (docs/method/shared-links.md)."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import escape

from linkscope.model.curves import Path, measured_flows, natural, total_of
from linkscope.model.interference import LEVEL, Group, Interference, Open, interference
from linkscope.model.text import count_text, paths_text, rate_text
from linkscope.runfile import Point, PointId, Run
from linkscope.stats import Slowdown
from linkscope.units import format_bytes, format_fraction, format_rate

HEADING = "Shared links"
NOTE = (
    "Flows ran concurrently, in pairs and all together. A path counts as slowed if it certainly gets less than 90 % of "
    "its rate alone. Paths that slow each other share a resource: a switch, an uplink, a memory."
)
_ALIKE = 1.02  # rates within this factor are shown as one
_WIDTH, _LEFT, _RIGHT, _BAR, _GAP, _TOP = 620, 170, 20, 22, 10, 30


@dataclass(frozen=True)
class PairRow:
    """A pair of paths. `kept` is the fraction of its rate that the slower path kept, with its interval."""

    paths: str
    kept: str
    slowed: bool
    id: str


@dataclass(frozen=True)
class Shares:
    """The content of the page: a sentence and a drawing for each group, then the pairs, the slowed ones first."""

    groups: tuple[Group, ...]
    sentences: tuple[str, ...]
    pairs: tuple[PairRow, ...]
    summary: str
    slowed_pairs: int = 0


def without_concurrent(run: Run) -> Run:
    """The run without points of several paths and of contention, because their rates are not the best rates of a single
    path."""
    points = [point for point in run.points if not is_concurrent(point) and not is_contended(point)]
    return dataclasses.replace(run, points=points) if len(points) < len(run.points) else run


def is_contended(point: Point) -> bool:
    """Whether the point measures work beside other work, several kinds of tasks, or clients of one GPU."""
    return not {"beside", "at", "clients"}.isdisjoint(point.params)


def is_concurrent(point: Point) -> bool:
    """Whether the point measures several named paths."""
    return len(PointId.parse(point.id).paths) > 1


def totals_without_single_rates(points: Iterable[Point]) -> list[str]:
    """Rates of sets of paths without single rates in the run: 'numa:0 -> gpu:0,1: 110.1 GB/s [109.9, 110.3] in total
    at 16 MiB, 55.08 and 55.05 GB/s; their single rates were not measured'.
    """
    sentences = []
    for point in points:
        # Pairs of nodes have a section of their own.
        total = total_of(point) if is_concurrent(point) and point.engine != "mpi" else None
        if total is not None:
            paths = paths_text([Path(*path) for path in PointId.parse(point.id).paths])
            each = " and ".join(format_rate(flow.gbps) for flow in measured_flows(point) if flow.gbps is not None)
            rates = f"{rate_text(total)} in total at {format_bytes(point.bytes)}, {each}"
            sentences.append(f"{paths}: {rates}; their single rates were not measured")
    return sentences


def shares(points: Iterable[Point]) -> Shares | None:
    """The shared links of a run. None if no concurrent flows were measured."""
    found = interference(points)
    if not found.slowdowns:
        return None
    sentences = [sentence(group) for group in found.groups]
    sentences += [_open_sentence(one) for one in found.open]
    return Shares(found.groups, tuple(sentences), tuple(_rows(found)), _summary(found), _slowed(found))


def sentence(group: Group) -> str:
    """'GPU 2 and 3 share 71 GB/s [70.8, 71.3] to numa:0: 2 flows of 55.4 GB/s alone get 35.5 GB/s each'."""
    return f"{group_text(group)}: {_parts(group)}"


def group_text(group: Group) -> str:
    """'GPU 2 and 3 share 71 GB/s [70.8, 71.3] to numa:0'."""
    return _members_text(group.paths, "share", rate_text(group.capacity))


def to_json(points: Iterable[Point]) -> dict[str, Any]:
    """The shared links as plain values: GB/s, fractions, intervals of 95 %."""
    found = interference(points)
    return {
        "level": LEVEL,
        "groups": [
            {
                "paths": [_arrow(path) for path in group.paths], "gbps": group.capacity.value,
                "low_gbps": group.capacity.low, "high_gbps": group.capacity.high, "in_pairs": group.in_pairs,
                "id": group.id, "fair": group.fair,
                "parts": [
                    {"path": _arrow(of.path), "gbps": of.gbps, "share": of.share, "alone_gbps": of.alone_gbps}
                    for of in group.parts
                ],
            }
            for group in found.groups
        ],
        "unexplained": [
            {"paths": [_arrow(path) for path in one.paths], "gbps": one.gbps, "alone_gbps": one.alone_gbps}
            for one in found.open
        ],
        "sets": [
            {
                "id": found.ids[flows],
                "flows": [
                    {
                        "path": _arrow(one.flow), "kept": math.exp(-one.of.log_ratio),
                        "low": 1 / one.of.ends(LEVEL)[1], "high": 1 / one.of.ends(LEVEL)[0], "slowed": one.slowed,
                    }
                    for one in of
                ],
            }
            for flows, of in found.sets().items()
        ],
    }  # fmt: skip


def group_svg(group: Group, modelled: bool) -> str:
    """The single rate of each flow as an outline, its concurrent rate filled, and their sum below."""
    name = ("MODELLED: " if modelled else "") + group_text(group)
    height = _TOP + (_BAR + _GAP) * (len(group.parts) + 1) + 8
    most = max([group.capacity.value, *(part.alone_gbps for part in group.parts)])
    scale = (_WIDTH - _LEFT - _RIGHT - 120) / most
    parts = [
        f'<svg class="chart" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(name)}"><title>{escape(name)}</title>',
        f'<text x="{_LEFT}" y="18">outline: alone; filled: concurrent, GB/s</text>',
    ]
    start = float(_LEFT)
    bottom = _TOP + (_BAR + _GAP) * len(group.parts)
    for index, part in enumerate(group.parts):
        y = _TOP + (_BAR + _GAP) * index
        parts.append(f'<text class="num" x="{_LEFT - 8}" y="{y + 16}">{escape(str(part.path))}</text>')
        parts.append(_bar(_LEFT, y, part.gbps * scale, index))
        parts.append(
            f'<rect class="bare" x="{_LEFT}" y="{y}" width="{part.alone_gbps * scale:.1f}" height="{_BAR}"/>'
            f'<text x="{_LEFT + part.alone_gbps * scale + 8:.1f}" y="{y + 16}">'
            f"{part.gbps:.3g} of {part.alone_gbps:.3g}</text>"
        )
        parts.append(_bar(start, bottom, part.gbps * scale, index))
        start += part.gbps * scale
    parts.append(f'<text class="num place" x="{_LEFT - 8}" y="{bottom + 16}">concurrent</text>')
    total = escape(format_rate(group.capacity.value))
    parts.append(f'<text class="place" x="{start + 8:.1f}" y="{bottom + 16}">{total}</text>')
    if modelled:
        parts.append(
            f'<text class="modelled" style="font-size:56px" x="{_WIDTH / 2:g}" y="{height / 2:g}" '
            f'transform="rotate(-8 {_WIDTH / 2:g} {height / 2:g})">MODELLED</text>'
        )
    return "".join(parts) + "</svg>"


def _bar(x: float, y: float, width: float, colour: int) -> str:
    return (
        f'<g class="s{colour % 8}"><rect class="mark" x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" '
        f'height="{_BAR}"/></g>'
    )


def _members_text(paths: Sequence[Path], verb: str, rate: str) -> str:
    """'GPU 2 and 3 share 71 GB/s to numa:0'; for other paths 'gpu:0 -> gpu:1; numa:0 -> gpu:1 share 12.4 GB/s'."""
    hosts = {place for path in paths for place in (path.src, path.dst) if "gpu:" not in place}
    gpus = {place for path in paths for place in (path.src, path.dst) if "gpu:" in place}
    directions = {("to" if "gpu:" in path.src else "from") for path in paths}
    between = any("gpu:" in path.src and "gpu:" in path.dst for path in paths)
    if between or len(paths) != len(hosts) * len(gpus) * len(directions):
        return f"{paths_text(paths)} {verb} {rate}"
    direction = "to and from" if len(directions) == 2 else next(iter(directions))
    return f"GPU {_numbers(gpus)} {verb} {rate} {direction} {' and '.join(sorted(hosts, key=natural))}"


def _numbers(gpus: Iterable[str]) -> str:
    """'2 and 3', '0 to 3', '0, 2 and 5'; with host names where there are several hosts."""
    places = sorted(gpus, key=natural)
    heads = {place.rpartition(":")[0] for place in places}
    names = [place.rpartition(":")[2] for place in places] if len(heads) == 1 and heads == {"gpu"} else places
    numbers = [int(name) for name in names] if names is not places else []
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]} to {numbers[-1]}"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _parts(group: Group) -> str:
    """The division of the capacity among the flows."""
    alone = [part.alone_gbps for part in group.parts]
    got = [part.gbps for part in group.parts]
    one_each = f"{len(got)} flows of {_span(alone)} alone get {_span(got)}"
    if group.fair:
        return f"{one_each} each"
    shares_text = ", ".join(f"{part.path} {format_fraction(part.share)}" for part in group.parts)
    return f"{one_each}, in unequal parts: {shares_text}"


def _span(rates: Sequence[float]) -> str:
    low, high = min(rates), max(rates)
    return f"{high:.3g} GB/s" if high <= _ALIKE * low else f"{low:.3g} to {high:.3g} GB/s"


def _open_sentence(found: Open) -> str:
    rate = _members_text(found.paths, "get", format_rate(found.gbps))
    alone = format_rate(found.alone_gbps)
    return f"{rate} concurrently and {alone} as the sum of single rates. The shared link was not identified"


def _slowed(found: Interference) -> int:
    """The number of pairs whose paths slow each other."""
    return sum(any(one.slowed for one in of) for of in found.pairs().values())


def _summary(found: Interference) -> str:
    pairs = found.pairs()
    slowed = _slowed(found)
    wide = len(found.ids) - len(pairs)
    sets = f", and {count_text(wide, 'set')} of more" if wide else ""
    # all points have the same size (flows.joints)
    size = format_bytes(PointId.parse(next(iter(found.ids.values()))).bytes)
    return (
        f"{count_text(len(pairs), 'pair')} of paths and {size} per copy were measured concurrently{sets}; {slowed} "
        "of the pairs slow each other. Rates include the set-up cost of copies of that size"
    )


def _rows(found: Interference) -> list[PairRow]:
    rows = []
    for flows, of in found.pairs().items():
        slower: Slowdown[Path] = max(of, key=lambda one: one.of.log_ratio)
        low, high = (1 / end for end in reversed(slower.of.ends(LEVEL)))
        kept = f"{format_fraction(math.exp(-slower.of.log_ratio))} [{100 * low:.1f}, {100 * high:.1f}]"
        paths = " with ".join(map(str, sorted(flows)))
        rows.append((slower.of.log_ratio, PairRow(paths, kept, any(one.slowed for one in of), found.ids[flows])))
    return [row for _, row in sorted(rows, key=lambda one: (not one[1].slowed, -one[0], one[1].paths))]


def _arrow(path: Path) -> str:
    return f"{path.src}->{path.dst}"
