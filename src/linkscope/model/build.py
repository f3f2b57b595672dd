"""Builds a machine file from a run: structure, constants and shared capacities."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from linkscope.errors import UserError
from linkscope.model import defaults
from linkscope.model.constants import DIRECT, RINGS_AND_THREADS, STAGED, hosts_and_all, joint, joint_staged
from linkscope.model.curves import Path
from linkscope.model.fit import Fit
from linkscope.model.interference import interference
from linkscope.model.observed import Observation, Simulation
from linkscope.model.sharing import find_shares
from linkscope.model.skeleton import Content, quantity, skeleton
from linkscope.runfile import Header, Point, PointId
from linkscope.stats import median

_ROOM = 2.0  # factor: an upper bound of a memory rate whose limit no flow reached
_LEAST_SIZES = 3
_BY_ITSELF = 1.5  # overlap of concurrent flows; 1: one after the other


def build(
    header: Header,
    points: Sequence[Point],
    observations: Sequence[Observation],
    simulation: Simulation,
    run: str,
    tell: Callable[[str], None] = lambda text: None,
) -> Content:
    """The content of a machine file fitted to the observations; `run` is the name of the run in the file.

    Raises UserError for a run with too little data.
    """
    refuse_too_little(points, observations, run)
    content = _start(header, points, observations, run)
    fit = Fit(content, observations, simulation, run)
    fit.blocks(DIRECT, tell)
    tell("shared capacities")
    shared = interference(points)
    shown = {group.id for group in shared.groups}  # each in the largest set that reaches its capacity
    at_once = any(len(PointId.parse(id).paths) > 1 for id in shared.ids.values())
    # Concurrent flows that were slowed without a known group, for example where only all flows ran together, are
    # explained by links.
    groups = shared.groups if at_once and (shared.groups or not shared.open) else None
    find_shares(fit, lambda point: joint(point) and (len(point.paths) == 1 or str(point) in shown), groups=groups)
    fit.blocks(RINGS_AND_THREADS, tell)
    # Without flows between a host and all GPUs, the staged copies between GPUs show what these share. The constants of
    # their ring were fitted without shares.
    if not any(hosts_and_all(one.point) for one in observations) and find_shares(fit, joint_staged, most=1):
        fit.blocks([STAGED], tell)
    return _merged(fit.content)


def refuse_too_little(points: Sequence[Point], observations: Sequence[Observation], run: str) -> None:
    """Raises UserError that names what is missing, and the suite that measures it."""
    if not observations:
        raise UserError(f"{run}: {_why_nothing(points)}, so there is nothing to fit; measure with `linkscope run`")
    curves: dict[tuple[object, ...], set[int]] = {}
    for one in observations:
        point = one.point
        if point.bytes and not one.joint:
            curves.setdefault((point.benchmark, point.engine, point.src, point.dst), set()).add(point.bytes)
    gpus = any("gpu:" in place for one in observations for place in (one.point.src, one.point.dst))
    wanted = (
        [("h2d", "between host and GPU"), ("d2h", "between GPU and host")] if gpus else [("h2h", "within the host")]
    )
    for name, where in wanted:
        sizes = set().union(*(of for key, of in curves.items() if key[0] == name and key[1] in ("ce", "cpu")))
        if len(sizes) < _LEAST_SIZES or max(sizes, default=0) < 16 << 20:
            what = f"no curve {where}: a curve needs at least {_LEAST_SIZES} sizes, one of them at least 16 MiB"
            raise UserError(f"{run}: too little data for a model: {what}; run --suite standard")


def _why_nothing(points: Sequence[Point]) -> str:
    """'none of its 212 points has a time (212 failed, the first because …)'."""
    if not points:
        return "it has no point"
    counts = Counter(point.status for point in points)
    reason = next((point.reason for point in points if point.reason), "")
    statuses = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    return f"none of its points has a time ({statuses}{f'; the first: {reason}' if reason else ''})"


def _start(header: Header, points: Sequence[Point], observations: Sequence[Observation], run: str) -> Content:
    found = skeleton(header, points)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", str(header.machine.get("name", "machine"))).strip("-") or "machine"
    title = str(header.machine.get("title") or header.machine.get("name", "machine"))
    of = "a MODELLED run" if header.modelled else "measurements"
    notes = f"Fitted to {of} by `linkscope model`: {run}, begun {header.started}."
    head = {"name": f"{name}-fitted", "title": f"{title}, fitted", "notes": notes, "measured": _paths(points)}
    content: Content = {"machine": head}
    content |= found
    seen = _most_seen(observations)
    for numa in content["numa"]:
        why = f"not reached: {_ROOM:g} times the highest use by concurrent copies"
        numa["dram_gbps"] = quantity(max(_ROOM * seen, 50.0), "assumed", why=why)
        numa["memcpy_gbps"] = quantity(_default("numa", "memcpy_gbps"), "assumed", why=defaults.WHY)
    for gpu in content.get("gpu", []):
        rate = min(_default("gpu", "local_copy_gbps"), gpu["memory_gbps"]["v"] / 2)
        gpu["local_copy_gbps"] = quantity(
            rate, "assumed", why="at most half of the memory's rate; no copy was measured"
        )
    for link in content["link"]:
        for key in ("efficiency", "latency_us"):
            link[key] = quantity(_default("link", key), "assumed", why=defaults.WHY)
    content["costs"] = defaults.table("costs")
    if content.get("gpu"):
        content["copy"] = defaults.table("copy") | {"turns": turns(points)}
        content["pageable"] = defaults.table("pageable")
        if sum(len(places) for gpu in content["gpu"] for places in gpu["at"].values()) > 1:
            content["staged_peer"] = defaults.table("staged_peer")
    return content


def turns(points: Iterable[Point]) -> str:
    """How an engine serves several streams (`turns` of [copy]): 'stream' if the flows from one place ran one after the
    other; otherwise 'copy'."""
    at_once = [
        point.guards["joint_overlap"] * len(point.flows)
        for point in points
        if point.benchmark in ("split", "one_to_all") and point.engine == "ce" and point.src != point.dst
        and point.median_s is not None and "joint_overlap" in point.guards
    ]  # fmt: skip
    return "stream" if at_once and median(at_once) < _BY_ITSELF else "copy"


def _paths(points: Iterable[Point]) -> list[str]:
    """The paths of all flows, in the order of places."""
    taken = {Path(flow.src, flow.dst) for point in points if point.median_s is not None for flow in point.flows}
    return [str(path) for path in sorted(taken)]


def _default(table: str, key: str) -> float:
    value = defaults.VALUES[table][key]
    assert not isinstance(value, str)
    return value


def _most_seen(observations: Iterable[Observation]) -> float:
    """GB/s of the fastest flow that used a host's memory; a memcpy both reads and writes there."""
    rates = [0.0]
    for one in observations:
        point = one.point
        ends = sum("numa:" in place for place in (point.src, point.dst))
        if ends and one.flow <= 0 and all(one.flow_bytes):
            rates.append(ends * sum(one.flow_bytes) / one.seconds / 1e9)
    return max(rates)


def _merged(content: Content) -> Content:
    """Merges links of one name with equal constants into one table with all their ends."""
    merged: list[Content] = []
    for link in content["link"]:
        rest = {key: value for key, value in link.items() if key not in ("between", "own")}
        for other in merged:
            if {key: value for key, value in other.items() if key != "between"} == rest:
                other["between"] += link["between"]
                break
        else:
            merged.append(rest | {"between": link["between"]})
    return content | {"link": merged}
