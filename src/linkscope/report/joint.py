"""Copies between one place and all GPUs at once: the total of all flows, and the rate of each."""

from collections.abc import Iterable
from dataclasses import dataclass

from linkscope.model.curves import (
    Estimate,
    Family,
    Method,
    Path,
    alike,
    curves,
    flow_rate,
    measured_flows,
    natural,
    path_of,
    total_of,
)
from linkscope.model.text import params_text, paths_text, rate_text, varying
from linkscope.report.trust import SIGN, flows_ran_apart, missed
from linkscope.runfile import Flow, Point
from linkscope.units import format_fraction, format_rate

_ALIKE = 0.02


@dataclass(frozen=True)
class Part:
    """One flow ('-> gpu:1' or 'gpu:1 ->'), its rate, and its fraction of the total."""

    name: str
    rate: Estimate
    share: float


@dataclass(frozen=True)
class JointRow:
    """One place and its flows, at the size with the highest total."""

    path: Path
    bytes: int
    total: Estimate
    parts: tuple[Part, ...]
    missed: bool = False  # missed its precision

    @property
    def total_text(self) -> str:
        """The total, with its sign where it missed precision."""
        return (SIGN if self.missed else "") + rate_text(self.total)

    def part(self, name: str) -> Part | None:
        """The flow with that name."""
        return next((part for part in self.parts if part.name == name), None)


@dataclass(frozen=True)
class Joint:
    """One pattern: a method and its rows. `params` distinguishes it from the other patterns of its family."""

    family: Family
    params: str
    names: tuple[str, ...]
    rows: tuple[JointRow, ...]
    bidirectional: bool = False  # its totals are of both directions


@dataclass(frozen=True)
class JointLine:
    """Rows with similar totals, for output without a column for each flow."""

    pattern: str
    paths: str
    total: str
    bytes: int
    each: str


def joints(points: Iterable[Point]) -> list[Joint]:
    """All patterns that have a total."""
    by_method: dict[Method, list[JointRow]] = {}
    for curve in curves(point for point in points if path_of(point).joint):
        best = curve.best()
        if best is not None and (total := total_of(best)) is not None:
            by_method.setdefault(curve.method, []).append(_row(best, total))
    found = []
    for method, rows in by_method.items():
        shown = varying(other for other in by_method if other.family == method.family)
        parts = params_text(pair for pair in method.params if pair[0] in shown)
        names = sorted({part.name for row in rows for part in row.parts}, key=natural)
        both = dict(method.params).get("bidirectional") == "true"
        found.append(Joint(method.family, parts, tuple(names), tuple(rows), both))
    return found


def joint_lines(points: Iterable[Point]) -> list[JointLine]:
    """One line for the rows of a pattern with similar totals."""
    found = []
    for joint in joints(points):
        clusters: list[list[JointRow]] = []
        for row in sorted(joint.rows, key=lambda row: -row.total.value):
            if clusters and alike(clusters[-1][0].total, row.total, _ALIKE):
                clusters[-1].append(row)
            else:
                clusters.append([row])
        found += [_line(joint, cluster) for cluster in clusters]
    return found


def _row(point: Point, total: Estimate) -> JointRow:
    """Flows that did not run together have a total, but no rates of their own: the time of each is that of a wait."""
    path = path_of(point)
    flows = [] if flows_ran_apart(point) else measured_flows(point)
    rated = [(flow, rate) for flow in flows if (rate := flow_rate(flow)) is not None]
    parts = (Part(_name(flow, path), rate, rate.value / total.value) for flow, rate in rated)
    return JointRow(path, point.bytes, total, tuple(parts), missed(point))


def _name(flow: Flow, path: Path) -> str:
    """The name of a flow: the place that only this flow has, on its side of the arrow."""
    shared = path.dst if path.src.endswith(":all") else path.src
    return f"-> {flow.dst}" if flow.src == shared else f"{flow.src} ->"


def _line(joint: Joint, cluster: list[JointRow]) -> JointLine:
    best = cluster[0]
    rates = [part.rate.value for row in cluster for part in row.parts]
    shares = [part.share for row in cluster for part in row.parts]
    each = "its flows did not run together"
    if rates:
        each = (
            f"{len(best.parts)} flows of {min(rates):.4g} to {format_rate(max(rates))}, "
            f"{format_fraction(min(shares)).removesuffix(' %')} to {format_fraction(max(shares))} each"
        )
    return JointLine(
        f"{joint.family}" + (f", {joint.params}" if joint.params else ""),
        paths_text([row.path for row in sorted(cluster, key=lambda row: row.path)]),
        best.total_text, best.bytes, each,
    )  # fmt: skip
