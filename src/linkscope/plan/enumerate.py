"""Lists all points of a suite on a machine, from the rows of the table; no benchmark is named here."""

import itertools
from collections.abc import Callable, Iterable, Iterator

from linkscope.plan.facts import MachineFacts, all_gpus, host_of, kind_of
from linkscope.plan.suite_rules import Rule, Suite
from linkscope.plan.table import Benchmark
from linkscope.runfile import PointId


def points_of(suite: Suite, machine: MachineFacts, table: Iterable[Benchmark]) -> list[PointId]:
    """Returns the points of a suite, the first ones before the others. Both are in canonical order: by row, places,
    memories, parameters, size."""
    rows = list(table)
    found = dict.fromkeys(first_points_of(suite, machine, rows))
    found.update(dict.fromkeys(_by_rules(rows, machine, lambda row: suite.rules_for(row, rows))))
    if suite.more:
        found.update(dict.fromkeys(suite.more(machine)))
    return list(found)


def first_points_of(suite: Suite, machine: MachineFacts, table: Iterable[Benchmark]) -> list[PointId]:
    """Returns the points that each round measures before the others."""
    return list(dict.fromkeys(_by_rules(table, machine, lambda row: suite.first)))


def _by_rules(
    rows: Iterable[Benchmark], machine: MachineFacts, rules: Callable[[Benchmark], Iterable[Rule]]
) -> Iterator[PointId]:
    for row in rows:
        pairs = _pairs(row, machine)
        for rule in rules(row):
            if rule.takes(row) and not (rule.one_gpu and len(machine.of_kind("gpu")) > 1):
                yield from _of_row(row, rule, machine, pairs)


def _of_row(row: Benchmark, rule: Rule, machine: MachineFacts, of_row: list[tuple[str, str]]) -> Iterator[PointId]:
    pairs = [(src, dst) for src, dst in of_row if rule.allows(src, dst) and _has_several(machine, row, rule, src, dst)]
    if rule.one_path:
        pairs = list({machine.kind_of_path(src, dst): (src, dst) for src, dst in reversed(pairs)}.values())
    for (src, dst), (src_memory, dst_memory), params in itertools.product(
        pairs, rule.of_memories(row), list(_assignments(row, rule))
    ):
        if _redundant(row, src, dst, dict(params)):
            continue
        if not _has_nodes(machine, src, params) or not _has_sm(machine, dst, params):
            continue
        if row.engine == "mpi" and not machine.has_mpi:
            continue
        if row.param("ranks") and not _has_ranks(machine, row, src, int(dict(params)["ranks"])):
            continue
        if not all(_has_memory(machine, *end) for end in ((src, src_memory), (dst, dst_memory))):
            continue
        for size in rule.sizes if row.sized else (0,):
            yield PointId(row.name, row.engine, src, src_memory, dst, dst_memory, size, params)


def _pairs(row: Benchmark, machine: MachineFacts) -> list[tuple[str, str]]:
    """Returns the pairs of places of the row's kinds, also between hosts; the platform rejects impossible ones."""
    if row.relation == "to_all":
        return [(src, all_gpus(src)) for src in machine.of_kind(row.src) if machine.gpus_but(src)]
    if row.relation == "from_all":
        return [(all_gpus(dst), dst) for dst in machine.of_kind(row.dst) if machine.gpus_but(dst)]
    pairs = itertools.product(machine.of_kind(row.src), machine.of_kind(row.dst))
    if row.relation == "other_host":
        return [(src, dst) for src, dst in pairs if host_of(src) != host_of(dst)]
    return [(src, dst) for src, dst in pairs if _related(row, src == dst)]


def _has_several(machine: MachineFacts, row: Benchmark, rule: Rule, src: str, dst: str) -> bool:
    """Returns whether a joint copy has several flows: a rule that varies the tasks has them on one GPU, too."""
    if row.relation not in ("to_all", "from_all"):
        return True
    return "tasks" in rule.params or len(machine.gpus_but(src if row.relation == "to_all" else dst)) > 1


def _related(row: Benchmark, same: bool) -> bool:
    return row.relation == "any" or same == (row.relation == "same")


def _assignments(row: Benchmark, rule: Rule) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yields every combination of the values that the row and its rule share, and those that the rule adds.

    Yields nothing if the rule needs a parameter that the row lacks.
    """
    if not rule.needs() <= {param.name for param in row.params}:
        return
    for chosen in itertools.product(*(rule.values(param) for param in row.params)):
        yield _in_id(row, chosen)
        for at, param in enumerate(row.params):
            for value in rule.extra_values(param):
                yield _in_id(row, (*chosen[:at], value, *chosen[at + 1 :]))


def _in_id(row: Benchmark, values: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Returns the parameters that the id shows, with their values."""
    pairs = zip(row.params, values, strict=True)
    return tuple(sorted((param.name, value) for param, value in pairs if param.in_id(value)))


def _has_nodes(machine: MachineFacts, src: str, params: Iterable[tuple[str, str]]) -> bool:
    """Returns whether the NUMA nodes in the parameters exist on the source's host."""
    named = [value for _, value in params if value.startswith("numa:")]
    host, nodes = host_of(src), machine.of_kind("numa") if named else []
    return all((f"{host}/{value}" if host else value) in nodes for value in named)


def _has_memory(machine: MachineFacts, place: str, memory: str) -> bool:
    """Returns whether a rank has a GPU, if the memory is that of its GPU."""
    if kind_of(place) != "rank" or memory != "device":
        return True
    return "gpu" in machine.ranks[int(place.rpartition(":")[2])]


def _has_ranks(machine: MachineFacts, row: Benchmark, src: str, count: int) -> bool:
    """Returns whether a collective of that many ranks is measured. Ranks of a launcher all take part. Within a process
    without other ranks, groups of GPUs have one, two, four, … members, or all of them.

    A model has no collectives of MPI.
    """
    if kind_of(src) == "rank":
        has_gpus = row.engine != "nccl" or all("gpu" in rank for rank in machine.ranks)
        return (
            src == "rank:0"
            and count == len(machine.ranks)
            and has_gpus
            and not (machine.modelled and row.engine == "mpi")
        )
    gpus = machine.gpus_but("") if not host_of(src) else machine.gpus_but(f"{host_of(src)}/numa:0")
    at = gpus.index(src)
    return not machine.ranks and at + count <= len(gpus) and (count & (count - 1) == 0 or count == len(gpus))


def _has_sm(machine: MachineFacts, gpu: str, params: Iterable[tuple[str, str]]) -> bool:
    """Returns whether the GPU has the SM of a parameter; True for an unknown number of SMs."""
    named = [int(value) for name, value in params if name == "sm"]
    return all(sm < machine.sms.get(gpu, sm + 1) for sm in named)


def _redundant(row: Benchmark, src: str, dst: str, params: dict[str, str]) -> bool:
    """Returns whether another point is the same operation: the other end of a bidirectional point, or a place that
    initiates by default."""
    if params.get("bidirectional") == "true" and row.src == row.dst:
        return _place_order(src) >= _place_order(dst) and not (src == dst and row.role == "message")
    if params.get("binding") == "none" and (src if row.src == "numa" else dst).rpartition(":")[2] != "0":
        return True  # the same operation on every node
    if "cpu" in params and params["cpu"] == (src if row.src == "numa" else dst).rpartition("/")[2]:
        return True
    initiator = row.param("initiator")
    return initiator is not None and src == dst and params["initiator"] != initiator.values[0]


def _place_order(place: str) -> tuple[str, int]:
    head, _, number = place.rpartition(":")
    return head, int(number) if number.isdigit() else 0
