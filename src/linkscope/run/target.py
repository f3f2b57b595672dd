"""The measured machine: this computer, or a model. All differences between both are in this file."""

import atexit
import functools
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from linkscope.errors import NOT_HERE, UserError
from linkscope.plan import MachineFacts
from linkscope.plan.facts import host_of, kind_of
from linkscope.plan.table import ROLES_WITHOUT_PEAK
from linkscope.run.assemble import Limit
from linkscope.run.table import role_of
from linkscope.runfile import PointId, Run

if TYPE_CHECKING:
    from linkscope.machine.model import Model


@dataclass(frozen=True)
class Target:
    """`machine` and `environment` go into the run file; `open_request` opens a worker (docs/reference/worker.md)."""

    facts: MachineFacts
    open_request: dict[str, Any]
    limit: Limit
    machine: dict[str, Any]
    environment: dict[str, Any] = field(default_factory=dict)
    numa_of_gpus: dict[str, str] = field(default_factory=dict)  # the nearest NUMA node, where known
    cpus: dict[str, int] = field(default_factory=dict)  # CPUs of each NUMA node

    @property
    def modelled(self) -> bool:
        """Whether the target is a model."""
        return self.facts.modelled

    @property
    def pci_of_gpus(self) -> dict[str, str]:
        """Place -> PCI bus id, of GPUs with a known bus id."""
        gpus = () if self.modelled else self.machine.get("gpus", ())
        return {f"gpu:{gpu['index']}": gpu["pci"] for gpu in gpus if gpu.get("pci")}


def choose(name: str, seed: int) -> Target:
    """Returns the target of `auto`, a bundled model or a machine file. Raises UserError for an unknown name."""
    if name == "auto":
        return this_machine()
    from linkscope.machine.choose import Modelled, resolve

    choice = resolve(name)
    if not isinstance(choice, Modelled):
        raise UserError(f"--machine {name}: a saved probe cannot be measured; run linkscope on that machine")
    return modelled(choice.model, seed)


def with_directory(target: Target, directory: str, where: str) -> Target:
    """Returns the machine with the disk that holds a directory. Raises UserError that begins with `where`: exit code 2
    for a model, 3 for a place that is not a directory in which files can be made."""
    if target.facts.modelled:
        raise UserError(f"{where}: {target.facts.name} is a model, whose disks have no directories")
    path = os.path.abspath(directory)
    if not os.path.isdir(path) or not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"{where}: this is not a directory in which files can be made", NOT_HERE)
    facts = replace(target.facts, places=(*target.facts.places, f"disk:{path}"))
    return replace(target, facts=facts)


def of_node(target: Target, host: str) -> Target:
    """Returns the machine as one node of several, with the name that its run file holds."""
    return replace(target, machine={**target.machine, "host": host})


def with_ranks(target: Target, ranks: Sequence[dict[str, str]], about: dict[str, Any]) -> Target:
    """Returns the machine with ranks of MPI at these places (`MachineFacts.ranks`). `about` goes into the run file."""
    known = target.facts
    places = tuple(f"rank:{number}" for number in range(len(ranks)))

    def kinds() -> dict[tuple[str, str], str]:
        pairs = itertools.permutations(enumerate(ranks), 2)
        between = {(f"rank:{one}", f"rank:{other}"): _between(at, there) for (one, at), (other, there) in pairs}
        return {**known.kinds(), **between}

    facts = replace(known, places=(*known.places, *places), kinds=functools.cache(kinds), ranks=tuple(ranks),
        has_mpi="why_no_mpi" not in about)  # fmt: skip
    return replace(target, facts=facts, machine={**target.machine, "mpi": about})


def _between(one: dict[str, str], other: dict[str, str]) -> str:
    """Returns the kind of the path between two ranks."""
    if one.get("host") != other.get("host") or host_of(one["numa"]) != host_of(other["numa"]):
        return "between ranks of two hosts"
    node = "one NUMA node" if one["numa"] == other["numa"] else "two NUMA nodes"
    if "gpu" not in one or "gpu" not in other:
        return f"between ranks of {node}"
    return f"between ranks of {node}, on {'one GPU' if one['gpu'] == other['gpu'] else 'two GPUs'}"


def with_modelled_ranks(target: Target) -> Target:
    """Returns a model with a rank for each GPU, next to it; without GPUs one for each NUMA node; two at least."""
    gpus, nodes = target.facts.of_kind("gpu"), target.facts.of_kind("numa")
    ranks = [{"numa": target.numa_of_gpus.get(gpu, nodes[0]), "gpu": gpu} for gpu in gpus]
    ranks = ranks or [{"numa": node} for node in nodes]
    ranks = ranks if len(ranks) > 1 else ranks * 2
    return with_ranks(target, ranks, {"ranks": [{"rank": number, **at} for number, at in enumerate(ranks)]})


def target_of(run: Run) -> Target:
    """Returns the target for continuing a run: the model in the file, or this machine if it is the same one."""
    if not run.modelled:
        return same_machine(this_machine(), run)
    import msgspec

    from linkscope.machine.model import Model

    try:
        model = msgspec.convert(run.header.machine.get("model"), Model)
        return modelled(model, int(run.header.plan["seed"]))
    except (msgspec.ValidationError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{run.path}: the model in its first line is damaged ({error}): start a new run") from None


def modelled(model: "Model", seed: int) -> Target:
    """Makes a target of a model. The model's noise depends on the seed."""
    from linkscope.machine.model import limit_finder, places
    from linkscope.machine.path_classes import classes_modelled

    known = places(model)
    limit_between = limit_finder(model)
    content = model.to_json()

    def limit(point: PointId) -> tuple[float, str] | None:
        if _has_no_limit(point):
            return None
        managed = "managed" in (point.src_memory, point.dst_memory)
        nodes = [node for node in known.numa if host_of(node) == host_of(point.src)]
        ends = _anywhere(point, nodes) if point.param("binding") == "none" else [(point.src, point.dst)]
        limits = [limit_between(*pair, not point.through_host, managed) for pair in ends]
        found = max(filter(None, limits), key=lambda one: one.gbps, default=None)
        return _one_sided(point, found.gbps, found.derivation) if found else None

    kinds = functools.cache(lambda: classes_modelled(model))
    here = (*known.numa, *known.gpus, *known.disks)
    cpus = {place: node.cpus for node in model.numa for place in node.places}
    facts = MachineFacts(model.machine.name, True, here, dict(known.cache_bytes), kinds, known.sms, cpus)
    machine = {"name": model.machine.name, "title": model.machine.title, "places": list(facts.places), "model": content}
    request = {"platform": "sim", "machine": content, "seed": seed}
    return Target(facts, request, limit, machine, numa_of_gpus=known.gpu_numa, cpus=cpus)


def this_machine() -> Target:
    """Returns the machine on which this process runs."""
    from linkscope.machine.environment import environment
    from linkscope.machine.limits import Transfer
    from linkscope.machine.limits import limit as limit_of
    from linkscope.machine.path_classes import classes_probed
    from linkscope.machine.probe import probe
    from linkscope.run import nccl, nixl, ucx
    from linkscope.run.worker import open_driver

    driver, keeper = open_driver()
    atexit.register(keeper.kill)  # keeps the GPUs up between the workers of a run
    machine = probe(driver)

    def limit(point: PointId) -> tuple[float, str] | None:
        if _has_no_limit(point):
            return None
        transfer = Transfer(
            point.src, point.dst, point.src_memory, point.dst_memory, point.engine, point.bidirectional,
            peer=False if point.through_host else {"on": True}.get(point.param("peer")),
        )  # fmt: skip
        found = limit_of(machine, transfer)
        return _one_sided(point, found.gbps, found.source) if found.gbps is not None else None

    kinds = functools.cache(lambda: classes_probed(machine))
    cpus = {f"numa:{node.index}": len(node.cpus) for node in machine.numa}
    places, caches = tuple(machine.places), dict(machine.cache_bytes)
    facts = MachineFacts(machine.name, False, places, caches, kinds, machine.sms, cpus)
    near = {f"gpu:{gpu.index}": f"numa:{gpu.numa}" for gpu in machine.gpus if gpu.numa is not None}
    version = int((driver or {}).get("version") or 0)
    found = {"nccl": nccl.libraries(version), "ucx": ucx.libraries(), "nixl": nixl.libraries()}
    opened = {"platform": "cuda", **found}
    return Target(facts, opened, limit, machine.to_json(), environment(), near, cpus)


def _anywhere(point: PointId, nodes: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the ends of a point whose host memory may lie on any of these nodes."""
    src, dst = (nodes if kind_of(end) == "numa" else [end] for end in (point.src, point.dst))
    return list(itertools.product(src, dst))


def _has_no_limit(point: PointId) -> bool:
    """Returns whether no limit applies: latencies, calls and atomics (limits count bytes, not operations),
    flows to or from all GPUs (each flow has its own limit), cached data within one memory, and pages moved without
    their contents."""
    if point.src == point.dst and point.param("cache") in ("hot", "written", "dirty", "cleaned"):
        return True
    discarded = point.param("discard") not in ("", "no")
    ends = (point.src.rpartition(":")[2], point.dst.rpartition(":")[2])
    return role_of(point.benchmark) in ROLES_WITHOUT_PEAK or discarded or "all" in ends


def _one_sided(point: PointId, gbps: float, source: str) -> tuple[float, str]:
    """Doubles the limit of reads or writes within one memory. Only copies there both read and write."""
    if point.src == point.dst and role_of(point.benchmark) == "access":
        return 2 * gbps, f"{source}; either read or written: {2 * gbps:.4g} GB/s"
    return gbps, source


def same_machine(target: Target, run: Run) -> Target:
    """Returns the target for continuing `run`. Refuses a machine that is not the original one."""
    original, current = _identity(run.header.machine), _identity(target.machine)
    if original != current:
        problem = f"{run.path} was measured on another machine ({original}; here: {current})"
        raise UserError(f"{problem}: resume it there", NOT_HERE)
    return target


def _identity(machine: dict[str, Any]) -> str:
    """Returns the UUIDs of the machine's GPUs, or its name if it has none."""
    gpus = [str(gpu.get("uuid")) for gpu in machine.get("gpus", []) if isinstance(gpu, dict)]
    return ", ".join(gpus) or str(machine.get("name", "a machine without a name"))
