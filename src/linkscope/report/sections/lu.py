"""Section: the update of a blocked LU, from every placement of its ranks (Spafford et al. 4.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linkscope.model.text import count_text
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Items, Output, Paragraph, Row, Section, Table
from linkscope.runfile import Point
from linkscope.units import format_fraction, format_seconds

_TITLE = "Update of a blocked LU by placement"
_NOTE = (
    "Rank i has GPU i; a digit is the NUMA node of its memory. Time of a tile is that of the slowest rank. The "
    "prediction from copies is the product and the slower copy of a tile, with look-ahead the slowest of the three. A "
    "placement's predicted rank is its place by that; equal predictions share one. The gap is the time of the worst "
    "placement over that of the best, less one."
)
_COLUMNS = (
    Column("Ranks", label="Ranks"), Column("Look-ahead", label="Look-ahead"), Column("Nodes", strong=True),
    Column("Tile", right=True, label="Tile"), Column("Over best", right=True, label="Over best"),
    Column("Predicted", right=True, label="Predicted"), Column("Rank", right=True, label="Predicted rank"),
    Column("Gap", right=True, label="Gap"),
)  # fmt: skip
_SAME = 0.005  # predictions within this fraction are equal
_TILE_BYTES = {"shoc": 8 * 2048**2, "small": 8 * 128**2}


@dataclass(frozen=True)
class Placement:
    """A placement, with the seconds of a tile on its slowest rank, and what copies predict; None: unknown."""

    nodes: str
    slots: str
    seconds: float
    predicted: float | None


def placements_of_lu(points: Sequence[Point]) -> dict[tuple[int, str], list[Placement]]:
    """By number of ranks and slots, the fastest placement first."""
    costs = {
        (point.benchmark, point.src, point.dst): 1 / (point.gbps * 1e9)
        for point in points if point.benchmark in ("h2d", "d2h") and point.gbps
    }  # fmt: skip
    found = [point for point in points if point.benchmark == "lu_update" and point.median_s]
    product = _product_s(found)
    groups: dict[tuple[int, str], list[Placement]] = {}
    for point in found:
        nodes, slots = point.params["nodes"], point.params["slots"]
        times = [flow.median_s or 0.0 for flow in point.flows if flow.role == "measured"]
        made = Placement(nodes, slots, max(times), _predicted(point, costs, product))
        groups.setdefault((len(nodes), slots), []).append(made)
    return {key: sorted(groups[key], key=lambda one: one.seconds) for key in sorted(groups)}


def _product_s(points: Sequence[Point]) -> float | None:
    """Seconds of a tile's product: of one rank with look-ahead, which hides the shorter copies."""
    times = [p.median_s for p in points if len(p.params["nodes"]) == 1 and p.params["slots"] == "2" and p.median_s]
    return min(times, default=None)


def _predicted(point: Point, costs: Mapping[tuple[str, str, str], float], product: float | None) -> float | None:
    size = _TILE_BYTES[point.params["size"]]
    ranks: list[float] = []
    for gpu, node in enumerate(point.params["nodes"]):
        ends = (f"numa:{node}", f"gpu:{gpu}")
        there, back = costs.get(("h2d", *ends)), costs.get(("d2h", *ends[::-1]))
        if there is None or back is None or product is None:
            return None
        parts = (size * there, product, size * back)
        ranks.append(product + size * max(there, back) if point.params["slots"] == "1" else max(parts))
    return max(ranks)


def ranks_of(predictions: Sequence[float | None]) -> list[int | None]:
    """The place of each prediction; equal predictions share a place, and unknown ones have none."""
    known = sorted(seconds for seconds in predictions if seconds is not None)
    places: dict[float, int] = {}
    first = place = 0
    for at, seconds in enumerate(known):
        if at == 0 or seconds > known[first] * (1 + _SAME):
            first, place = at, at + 1
        places[seconds] = place
    return [None if seconds is None else places[seconds] for seconds in predictions]


def predicted_ranks(group: Sequence[Placement]) -> dict[str, int]:
    """The place of every placement by its prediction."""
    ranks = ranks_of([one.predicted for one in group])
    return {one.nodes: rank for one, rank in zip(group, ranks, strict=True) if rank is not None}


def section(view: RunView) -> Section | None:
    """A group for each number of ranks, with and without look-ahead. None without placements."""
    groups, answers = [], []
    for (count, slots), group in placements_of_lu(view.run.points).items():
        best, ranks = group[0].seconds, predicted_ranks(group)
        gap = format_fraction(group[-1].seconds / best - 1)
        rows = [
            Row((
                str(count), "yes" if slots != "1" else "no", one.nodes, format_seconds(one.seconds),
                format_fraction(one.seconds / best - 1), format_seconds(one.predicted) if one.predicted else "-",
                str(ranks.get(one.nodes, "-")), gap if one is group[0] else "",
            ))
            for one in group
        ]  # fmt: skip
        groups.append(Group(tuple(rows)))
        ahead = "with look-ahead" if slots != "1" else "without look-ahead"
        if len(group) > 1:
            good, bad = (",".join(one.nodes) for one in (group[0], group[-1]))
            answers.append(
                f"{count_text(count, 'rank')} {ahead}: best on nodes {good}, {format_seconds(best)} a tile; worst on "
                f"{bad}, {gap} longer."
            )
    if not groups:
        return None
    table = Table(_TITLE, _COLUMNS, tuple(groups), stacks=True)
    blocks = (*([Items.of(answers, on=Output.PAGE)] if answers else []), Paragraph(_NOTE, note=True), table)
    return Section("lu", _TITLE, blocks, label="LU", answers=tuple(answers))
