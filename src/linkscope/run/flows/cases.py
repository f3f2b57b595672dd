"""Turns flows of the grammar into operations of the worker's table, and points at words that do not fit them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NoReturn

from linkscope.errors import NOT_HERE, suggestion
from linkscope.flow import Flow, Transfer, Work, wrong
from linkscope.plan import Benchmark
from linkscope.plan.facts import kind_of
from linkscope.run.target import Target
from linkscope.runfile import PointId
from linkscope.units import parse_bytes, parse_whole

MOST_FLOWS = 64
_TRIAD_BYTES = 64 << 20  # of each array
_DEFAULT_MEMORY = {"numa": "pinned", "gpu": "device", "disk": "file"}
_MIGRATIONS = {"fault": "demand", "prefetch": "prefetch"}
_FILE = {"bidirectional": "false", "chunk": "1MiB", "mode": "batched", "slots": "2"}
WORKS = {
    "gemm": "gemm gpu:0 bf16 8192",
    "memory": "memory gpu:0, or memory numa:0 threads=4",
    "triad": "triad gpu:0",
    "launch": "launch gpu:0",
    "ping_pong": "ping_pong gpu:0",
    "read": "read gpu:0 16MiB",
    "message": "message numa:0 64KiB via=tcp to=numa:1",
}


@dataclass(frozen=True)
class Asked:
    """One flow as it runs: a point for each of its actors. `work`: its name, if it moves nothing between places."""

    flow: Flow
    points: tuple[PointId, ...]
    work: str | None = None
    operations: float = 0.0  # arithmetic operations of one iteration
    traffic: int = 0  # bytes that an iteration of work accesses, if its point has no size


def asked_flows(flows: Sequence[Flow], target: Target, table: Sequence[Benchmark], size: int) -> list[Asked]:
    """The flows as they run on a machine, each as often as its count says. `size`: bytes of transfers that state none.

    Raises TextError that points at the word: exit code 3 for a place that the machine lacks, otherwise 2.
    """
    found: list[Asked] = []
    for flow in flows:
        if flow.times > MOST_FLOWS:
            raise wrong(flow, "times", f"at most x{MOST_FLOWS} of one flow")
        for part, place in _places(flow):
            if place not in target.facts.places:
                have = ", ".join(target.facts.places)
                raise wrong(flow, part, f"{target.facts.name} has no {place}; it has {have}", NOT_HERE)
        one = _transfer(flow, target, table, size) if isinstance(flow, Transfer) else _work(flow, target, table, size)
        found += [replace(one, flow=replace(flow, times=1))] * flow.times
    if len(found) > MOST_FLOWS:
        raise wrong(flows[-1], "flow", f"these are {len(found)} flows; at most {MOST_FLOWS} run at once")
    _refuse_more_threads(found, target)
    return found


def _places(flow: Flow) -> list[tuple[str, str]]:
    return [("src", flow.src), ("dst", flow.dst)] if isinstance(flow, Transfer) else [("place", flow.place)]


def _refuse_more_threads(found: Sequence[Asked], target: Target) -> None:
    """Refuses more CPU threads that copy or exchange messages than their node has CPUs: they would take turns."""
    used: Counter[str] = Counter()
    for asked in found:
        first = asked.points[0]
        nodes = {"h2h": [first.src] * len(asked.points), "message": [first.src, first.dst]}.get(first.benchmark, [])
        used.update(nodes)
        for node in nodes:
            if used[node] > target.cpus.get(node, used[node]):
                what = "copy" if first.benchmark == "h2h" else "copy or exchange messages"
                raise wrong(
                    asked.flow, "threads=",
                    f"{used[node]} threads would {what} on {node}, and it has {target.cpus[node]} CPUs",
                )  # fmt: skip


def _transfer(flow: Transfer, target: Target, table: Sequence[Benchmark], size: int) -> Asked:
    if flow.option("mode") == "single":
        raise wrong(flow, "mode=", "flows run one operation after the other: leave it out, or write batched")
    kinds = flow.kinds
    engine = flow.engine or ("file" if "disk" in kinds else "cpu" if kinds == ("numa", "numa") else "ce")
    name = _operation(flow, engine)
    memories = _memories(flow, engine, _rows(flow, name, engine, table))
    size, threads = flow.bytes or size, 1
    if text := flow.option("threads"):
        threads = int(text)
        if threads > target.cpus.get(flow.src, threads):
            raise wrong(flow, "threads=", f"{flow.src} has {target.cpus[flow.src]} CPUs")
    params: dict[str, str] = {}
    if peer := flow.option("peer"):
        if (name, engine) != ("d2d", "ce"):
            raise wrong(flow, "peer=", "it applies to copies between GPUs by ce")
        params["peer"] = peer
    if name == "file_copies":
        gpu = flow.dst if kinds[0] == "disk" else flow.src
        params = _FILE | {"ring": target.numa_of_gpus.get(gpu, target.facts.of_kind("numa")[0])}
    each = max(size // threads // 8 * 8, 8)
    point = PointId(name, engine, flow.src, memories[0], flow.dst, memories[1], each, tuple(sorted(params.items())))
    return Asked(flow, (point,) * threads)


def _operation(flow: Transfer, engine: str) -> str:
    if engine in _MIGRATIONS:
        return _MIGRATIONS[engine]
    match flow.kinds:
        case ("numa", "gpu"):
            return "h2d"
        case ("gpu", "numa"):
            return "d2h"
        case ("gpu", "gpu"):
            return "local" if flow.src == flow.dst else "d2d"
        case ("numa", "numa"):
            return "h2h"
        case ("disk", "numa"):
            return "read_file"
        case ("disk", "gpu") | ("gpu", "disk"):
            return "file_copies"
    raise wrong(flow, "flow", f"nothing here moves data from a {flow.kinds[0]} to a {flow.kinds[1]}")


def _rows(flow: Transfer, name: str, engine: str, table: Sequence[Benchmark]) -> list[Benchmark]:
    """The rows of the operation by this engine between places of these kinds."""
    placed = [row for row in table if row.name == name and (row.src, row.dst) == flow.kinds]
    rows = [row for row in placed if row.engine == engine]
    if not rows:
        known = ", ".join(dict.fromkeys(row.engine for row in placed)) or "no engine"
        raise wrong(flow, "engine", f"{engine} does not move data from {flow.src} to {flow.dst}; {known} does")
    return rows


def _memories(flow: Transfer, engine: str, rows: Sequence[Benchmark]) -> tuple[str, str]:
    """The memory kinds that the flow states; otherwise the usual ones, or those of the first row that fits."""
    pairs = [pair for row in rows for pair in row.memories]
    stated = (flow.src_memory, flow.dst_memory)
    fitting = [pair for pair in pairs if all(word in (None, kind) for word, kind in zip(stated, pair, strict=True))]
    if not fitting:
        part = (
            "src_memory" if flow.src_memory and not any(flow.src_memory == pair[0] for pair in pairs) else "dst_memory"
        )
        known = ", ".join(f"{src} -> {dst}" for src, dst in dict.fromkeys(pairs))
        part = part if getattr(flow, part) else "src_memory"
        raise wrong(flow, part, f"{engine} copies {known} here")
    usual = tuple(_DEFAULT_MEMORY.get(kind, "") for kind in flow.kinds)
    return min(fitting, key=lambda pair: sum(a != b for a, b in zip(pair, usual, strict=True)))


# --- work ---


def _work(flow: Work, target: Target, table: Sequence[Benchmark], size: int) -> Asked:
    works: dict[str, Callable[[Work], Asked]] = {
        "gemm": partial(_gemm, table=table), "memory": partial(_memory, target=target, size=size), "launch": _launch,
        "triad": _triad, "ping_pong": partial(_ping_pong, target=target),
        "read": partial(_read, target=target, size=size),
        "message": partial(_message, target=target, table=table),
    }  # fmt: skip
    made = works.get(flow.name)
    if made is None:
        raise wrong(flow, "name", f"unknown work{suggestion(flow.name, WORKS)}; there is {', '.join(WORKS)}")
    return made(flow)


def _refuse(flow: Work, part: str, problem: str) -> NoReturn:
    raise wrong(flow, part, f"{problem}; write it like {WORKS[flow.name]}")


def _on_gpu(flow: Work, options: Sequence[str] = ()) -> None:
    if kind_of(flow.place) != "gpu":
        _refuse(flow, "place", f"{flow.name} runs on a GPU")
    _only(flow, options)


def _only(flow: Work, options: Sequence[str]) -> None:
    for name, _ in flow.options:
        if name not in options:
            _refuse(flow, f"{name}=", f"{flow.name} has no option {name}")


def _at_most(flow: Work, words: int) -> None:
    if len(flow.words) > words:
        _refuse(flow, f"word {words}", f"{flow.name} has no such word")


def _on_one_gpu(name: str, gpu: str, size: int = 0, params: Mapping[str, str] = MappingProxyType({})) -> PointId:
    return PointId(name, "sm", gpu, "device", gpu, "device", size, tuple(sorted(params.items())))


def _gemm(flow: Work, table: Sequence[Benchmark]) -> Asked:
    _on_gpu(flow)
    row = next(row for row in table if row.name == "gemm")
    chosen = {param.name: param.values[0] for param in row.params}
    for at, word in enumerate(flow.words):
        name = next((param.name for param in row.params if word in param.values), None)
        if name is None:
            known = "; ".join(f"{param.name}: {', '.join(param.values)}" for param in row.params)
            _refuse(flow, f"word {at}", f"gemm knows {known}")
        chosen[name] = word
    point = _on_one_gpu("gemm", flow.place, params=chosen)
    return Asked(flow, (point,), "gemm", 2.0 * int(chosen["n"]) ** 3)


def _size_of(flow: Work, otherwise: int) -> int:
    """The size in the first word, a multiple of 8 B."""
    _at_most(flow, 1)
    found = parse_bytes(flow.words[0]) if flow.words else otherwise
    if not found or found % 8:
        _refuse(flow, "word 0", "not a size in whole words of 8 B")
    return found


def _memory(flow: Work, target: Target, size: int) -> Asked:
    size = _size_of(flow, size)
    if kind_of(flow.place) == "gpu":
        _only(flow, ())
        return Asked(flow, (_on_one_gpu("local", flow.place, size),), "memory")
    if kind_of(flow.place) != "numa":
        _refuse(flow, "place", "memory traffic runs on a GPU or a NUMA node")
    _only(flow, ("threads",))
    cpus = target.cpus.get(flow.place, 1 << 20)
    threads = parse_whole(dict(flow.options).get("threads", "1"), 1, cpus)
    if threads is None:
        _refuse(flow, "threads=", f"a whole number from 1 to {cpus}, the CPUs of {flow.place}")
    each = max(size // threads // 8 * 8, 8)
    point = PointId("h2h", "cpu", flow.place, "pageable", flow.place, "pinned", each)
    return Asked(flow, (point,) * threads, "memory")


def _triad(flow: Work) -> Asked:
    _on_gpu(flow)
    _at_most(flow, 0)
    point = _on_one_gpu("compute_triad", flow.place, params={"size": "shoc"})
    return Asked(flow, (point,), "triad", 2.0 * _TRIAD_BYTES / 4, 3 * _TRIAD_BYTES)


def _launch(flow: Work) -> Asked:
    _on_gpu(flow)
    _at_most(flow, 0)
    return Asked(flow, (_on_one_gpu("contended_launch", flow.place, params={"beside": "none"}),), "launch")


def _near(flow: Work, target: Target) -> str:
    return target.numa_of_gpus.get(flow.place, target.facts.of_kind("numa")[0])


def _ping_pong(flow: Work, target: Target) -> Asked:
    _on_gpu(flow)
    _at_most(flow, 0)
    alone, near = (("beside", "none"),), _near(flow, target)
    point = PointId("contended_ping_pong", "cpu", near, "pinned", flow.place, "pinned", 0, alone)
    return Asked(flow, (point,), "ping_pong")


def _message(flow: Work, target: Target, table: Sequence[Benchmark]) -> Asked:
    """Round trips between two processes, the other one at `to`; bytes count in one direction."""
    if kind_of(flow.place) != "numa":
        _refuse(flow, "place", "messages go between NUMA nodes")
    _only(flow, ("via", "to"))
    options = dict(flow.options)
    channels = next(row for row in table if row.name == "message").params[0].values
    channel, other = options.get("via", channels[0]), options.get("to", flow.place)
    if channel not in channels:
        _refuse(flow, "via=", f"via is {', '.join(channels)}")
    if other not in target.facts.of_kind("numa"):
        _refuse(flow, "to=", f"{target.facts.name} has no NUMA node {other}")
    params = (("channel", channel),)
    point = PointId("message", "cpu", flow.place, "pageable", other, "pageable", _size_of(flow, 8), params)
    return Asked(flow, (point,), "message")


def _read(flow: Work, target: Target, size: int) -> Asked:
    """Zero-copy reads: they move bytes from the NUMA node near the GPU."""
    _on_gpu(flow)
    point = PointId("read", "sm", _near(flow, target), "pinned", flow.place, "device", _size_of(flow, size))
    return Asked(flow, (point,))
