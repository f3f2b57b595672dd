"""One run of several nodes from the run files of the nodes and that of the messages between them.

Places get the host in front, as on models of several hosts: `gpu:0` of the second node becomes `host:1/gpu:0`. Ranks
keep their names. No time of day of one node is compared with that of another.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from linkscope.errors import UserError
from linkscope.flow import read_paths, write_paths
from linkscope.runfile.ids import PointId
from linkscope.runfile.reader import Run
from linkscope.runfile.schema import ContextsTally, End, Flow, Header, Point, Record, Round

_OF_A_NODE = re.compile(r"(?<![\w/:])((?:numa|gpu|nic):(?:\d+|all)|disk:)")
_SAME = ("rule", "precision")


@dataclass(frozen=True)
class Part:
    """A run file of a merged run. `host`: the name of its node; '' for messages between nodes."""

    run: Run
    host: str

    @property
    def is_complete(self) -> bool:
        """Whether the run ended by itself, with nothing left to measure."""
        return self.run.end is not None and self.run.end.complete


def parts_of(runs: Sequence[Run]) -> list[Part]:
    """Returns the parts, each with its node: as `run --local` names it, otherwise as its file is named."""
    return [Part(run, "" if _ranks(run) else str(run.header.machine.get("host") or _stem(run.path))) for run in runs]


def merged(parts: Sequence[Part]) -> Iterator[Record]:
    """Yields the records of the merged run. Raises UserError for files that do not fit together."""
    _check(parts)
    hosts = _hosts(parts)
    yield _header(parts, hosts)
    seen: dict[str, Path] = {}
    counts: Counter[str] = Counter()
    for part in parts:
        moved = _Moved(hosts.index(part.host) if part.host else None)
        done = {point.id for point in part.run.points}
        for id, rounds in part.run.rounds.items():
            if id not in done:
                yield from map(moved.round, rounds)
        for point in part.run.points:
            record = moved.point(point)
            if record.id in seen:
                raise UserError(f"{seen[record.id]} and {part.run.path} both have {record.id}: name each run once")
            seen[record.id] = part.run.path
            counts[record.status] += 1
            yield record
    yield _end(parts, hosts, counts)


def _check(parts: Sequence[Part]) -> None:
    first = parts[0].run
    for part in parts[1:]:
        run = part.run
        if run.modelled != first.modelled:
            raise UserError(f"{first.path} and {run.path}: one is MODELLED and one is measured; merge runs of one kind")
        for name in _SAME:
            if run.header.plan.get(name) != first.header.plan.get(name):
                what = f"{name} {first.header.plan.get(name)} and {run.header.plan.get(name)}"
                raise UserError(f"{first.path} and {run.path} have {what}; merge runs with equal settings")
        ours, theirs = (one.header.tool.get("methods") or {} for one in (first, run))
        for name in ours.keys() & theirs.keys():
            if ours[name] != theirs[name]:
                raise UserError(
                    f"{first.path} and {run.path}: {name} has method version {ours[name]} and {theirs[name]}, whose "
                    "values are not comparable; measure again with one version of linkscope"
                )
    for part in parts:
        if part.run.header.machine.get("hosts"):
            raise UserError(f"{part.run.path} is a merged run already; name the files of its nodes instead")


def _hosts(parts: Sequence[Part]) -> list[str]:
    """Returns the names of the nodes: in order of rank, then those of files without ranks."""
    of_ranks = [str(rank.get("host")) for part in parts for rank in _ranks(part.run)]
    return list(dict.fromkeys([*of_ranks, *(part.host for part in parts if part.host)]))


def _header(parts: Sequence[Part], hosts: Sequence[str]) -> Header:
    of_nodes = {part.host: part for part in reversed(parts) if part.host}
    between = [part.run.header.machine for part in parts if not part.host]
    places, described = [], []
    for number, host in enumerate(hosts):
        part = of_nodes.get(host)
        machine = part.run.header.machine if part else {}
        places += [f"host:{number}/{place}" for place in machine.get("places", ())]
        described.append({
            "host": host, "runs": _runs_of(parts, host), "machine": machine,
            "environment": part.run.header.environment if part else {},
        })  # fmt: skip
    places += [place for one in between for place in one.get("places", ()) if place.startswith("rank:")]
    places += [f"rank:{rank['rank']}" for one in between for rank in one["mpi"]["ranks"]]
    first = parts[0].run.header
    names = {str(part.run.header.machine.get("name", "")) for part in parts}
    machine = {
        "name": f"{len(hosts)}-nodes-{names.pop() if len(names) == 1 else 'of-several-kinds'}",
        "places": list(dict.fromkeys(places)), "hosts": described, **({"mpi": between[0]["mpi"]} if between else {}),
    }  # fmt: skip
    methods = {name: version for part in parts for name, version in (part.run.header.tool.get("methods") or {}).items()}
    return Header(
        modelled=first.modelled, machine=machine, environment={}, plan=_plan(parts, hosts),
        tool={**first.tool, "methods": methods}, started=min(part.run.header.started for part in parts),
    )  # fmt: skip


def _runs_of(parts: Sequence[Part], host: str) -> list[dict[str, Any]]:
    return [
        {"file": part.run.path.name, "started": part.run.header.started, "complete": part.is_complete}
        for part in parts
        if part.host == host
    ]


def _plan(parts: Sequence[Part], hosts: Sequence[str]) -> dict[str, Any]:
    """Returns the plan of the first file with the points of all."""
    points = []
    for part in parts:
        moved = _Moved(hosts.index(part.host) if part.host else None)
        points += [moved.id(id) for id in part.run.header.plan.get("points", ())]
    plans = [part.run.header.plan for part in parts]
    suites = dict.fromkeys(str(plan.get("suite", "")) for plan in plans)
    return {
        **{name: value for name, value in plans[0].items() if name not in ("classes", "together")},
        "suite": "+".join(filter(None, suites)), "only": [], "points": points, "budget_s": None,
        "early": any(plan.get("early") for plan in plans),
    }  # fmt: skip


def _end(parts: Sequence[Part], hosts: Sequence[str], counts: Mapping[str, int]) -> End:
    """Returns the end record. The nodes were measured at once, so the longest run counts."""
    gained: dict[str, Any] = {}
    contexts: dict[str, ContextsTally] = {}
    for part in parts:
        moved = _Moved(hosts.index(part.host) if part.host else None)
        counters, stolen = part.run.gained()
        gained |= {moved.text(place): dict(of) for place, of in counters.items()}
        gained["cpu_steal"] = max(stolen, gained.get("cpu_steal", 0.0))
        if segments := {host: dict(of) for host, of in part.run.tcp().items()}:
            gained["tcp"] = gained.get("tcp", {}) | segments
        for gpu, tallies in part.run.contexts().items():
            contexts[moved.text(gpu)] = tallies[-1]
    nodes = [part.run.wall_s for part in parts if part.host]
    wall_s = max(nodes, default=0.0) + sum(part.run.wall_s for part in parts if not part.host)
    complete = all(part.is_complete for part in parts)
    return End(wall_s=round(wall_s, 3), complete=complete, counts=dict(counts), gained=gained, contexts=contexts)


class _Moved:
    """The records of a node with its host in front of every place. None: they are of several nodes, and stay."""

    def __init__(self, number: int | None) -> None:
        self._front = "" if number is None else rf"host:{number}/\1"

    def text(self, text: str) -> str:
        """A text that may hold places."""
        return _OF_A_NODE.sub(self._front, text) if self._front else text

    def id(self, text: str) -> str:
        """An id. Places in parameters are those of the source's host, so only other paths change."""
        point = PointId.parse(text)
        params = tuple((name, self._paths(value) if name == "with" else value) for name, value in point.params)
        return str(replace(point, src=self.text(point.src), dst=self.text(point.dst), params=params))

    def _paths(self, text: str) -> str:
        return write_paths((self.text(src), self.text(dst)) for src, dst in read_paths(text))

    def point(self, point: Point) -> Point:
        """A point."""
        params = {name: self._paths(value) if name == "with" else value for name, value in point.params.items()}
        return msgspec.structs.replace(
            point, id=self.id(point.id), src=self.text(point.src), dst=self.text(point.dst), params=params,
            flows=[self._flow(flow) for flow in point.flows], guards=self._guards(point.guards),
            inherited_from=self.id(point.inherited_from) if point.inherited_from else None,
        )  # fmt: skip

    def round(self, of: Round) -> Round:
        """A round."""
        flows = [
            msgspec.structs.replace(flow, src=self.text(flow.src), dst=self.text(flow.dst)) for flow in of.flows
        ]  # fmt: skip
        return msgspec.structs.replace(of, id=self.id(of.id), flows=flows, guards=self._guards(of.guards))

    def _flow(self, flow: Flow) -> Flow:
        return msgspec.structs.replace(flow, src=self.text(flow.src), dst=self.text(flow.dst))

    def _guards(self, guards: Mapping[str, Any]) -> dict[str, Any]:
        return {self.text(name): value for name, value in guards.items()}


def _ranks(run: Run) -> Iterable[Mapping[str, Any]]:
    about = run.header.machine.get("mpi")
    found: Iterable[Mapping[str, Any]] = about.get("ranks", ()) if isinstance(about, dict) else ()
    return found


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".jsonl")
