"""The content of a machine drawing, for detected machines and models."""

from dataclasses import dataclass

from linkscope.machine import model as models
from linkscope.machine.facts import Gpu, Machine, NumaNode
from linkscope.machine.limits import Limit, Transfer, limit
from linkscope.machine.model_paths import directed_links, routes
from linkscope.machine.model_places import host_of
from linkscope.machine.model_types import Link
from linkscope.units import format_bytes


@dataclass(frozen=True)
class Node:
    """A NUMA node, or "" for GPUs with a hidden node; `gpus` by place."""

    place: str
    text: str
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class Sketch:
    """`gpus` and `links` (to the host) are texts by place; `cells` hold GB/s and the kind of path from GPU to GPU."""

    title: str
    host: tuple[str, ...]
    nodes: tuple[Node, ...]
    gpus: dict[str, str]
    links: dict[str, str]
    cells: dict[tuple[str, str], str]
    hidden: tuple[str, ...]


def sketch(machine: Machine | models.Model) -> Sketch:
    """The sketch of a detected machine, or of a model marked MODELLED."""
    return _of_machine(machine) if isinstance(machine, Machine) else _of_model(machine)


def _of_machine(machine: Machine) -> Sketch:
    ids = {gpu.index: f"gpu:{gpu.index}" for gpu in machine.gpus}
    nodes = []
    for node in machine.numa:
        near = tuple(ids[gpu.index] for gpu in machine.gpus if gpu.numa == node.index)
        nodes.append(Node(f"numa:{node.index}", _node_text(node), near))
    stray = tuple(ids[gpu.index] for gpu in machine.gpus if gpu.numa is None)
    if stray:
        nodes.append(Node("", "NUMA node hidden", stray))
    return Sketch(
        title=_title(machine),
        host=_host(machine),
        nodes=tuple(nodes),
        gpus={ids[gpu.index]: _gpu_text(gpu) for gpu in machine.gpus},
        links={ids[gpu.index]: _link_text(machine, gpu) for gpu in machine.gpus},
        cells={(ids[a], ids[b]): _cell(machine, a, b) for a in ids for b in ids},
        hidden=tuple(f"{hidden.fact}: {hidden.why}" for hidden in machine.hidden),
    )


def _title(machine: Machine) -> str:
    driver = machine.driver
    parts = [machine.name]
    parts += [f"driver {driver.version}"] if driver.version else []
    parts += [f"CUDA {driver.cuda_version}"] if driver.cuda_version else []
    return ", ".join(parts)


def _host(machine: Machine) -> tuple[str, ...]:
    cpu = machine.cpu
    facts = [cpu.model or "CPU hidden"]
    facts += [_count(cpu.sockets, "socket")] if cpu.sockets else []
    facts += [_count(cpu.cores, "core")] if cpu.cores else []
    facts += [_count(cpu.threads, "thread")]
    facts += [f"{cpu.caches or 1} x {format_bytes(cpu.cache_bytes)} last-level cache"] if cpu.cache_bytes else []
    return (", ".join((*facts, _size(machine.memory_bytes) or "memory hidden")),)


def _node_text(node: NumaNode) -> str:
    pages = [f"{page.total} pages of {format_bytes(page.page_bytes)}" for page in node.huge_pages if page.total]
    distances = f"distances {' '.join(map(str, node.distances))}" if len(node.distances) > 1 else ""
    cpus = f"CPUs {ranges(node.cpus)}" if node.cpus else "no CPUs"
    return ", ".join(fact for fact in (cpus, _size(node.memory_bytes), *pages, distances) if fact)


def _gpu_text(gpu: Gpu) -> str:
    facts = [gpu.name or "GPU", _size(gpu.memory_bytes)]
    facts += [f"{gpu.sms} SMs"] if gpu.sms else []
    facts += [f"{format_bytes(gpu.l2_bytes)} L2"] if gpu.l2_bytes else []
    facts += [f"{gpu.copy_engines} copy engines"] if gpu.copy_engines else []
    return ", ".join(fact for fact in (*facts, gpu.pci) if fact)


def _link_text(machine: Machine, gpu: Gpu) -> str:
    node, place = f"numa:{gpu.numa or 0}", f"gpu:{gpu.index}"
    into = limit(machine, Transfer(node, place, "pinned", "device", "ce"))
    out = limit(machine, Transfer(place, node, "device", "pinned", "ce"))
    name = into.source.partition(":")[0] if into.gbps is not None else "host link hidden"
    rates = f": {_rate(into)} GB/s in, {_rate(out)} GB/s out" if into.gbps is not None else ""
    return name + rates


def _cell(machine: Machine, src: int, dst: int) -> str:
    found = limit(machine, Transfer(f"gpu:{src}", f"gpu:{dst}", "device", "device", "ce"))
    if src == dst:
        return f"{_rate(found)} local"
    pair = machine.pair(src, dst)
    if pair and pair.peer is False:
        return f"{_rate(found)} host"
    return f"{_rate(found)} {f'NV{pair.nvlinks}' if pair and pair.nvlinks else 'PCIe' if found.gbps else '?'}"


def _of_model(model: models.Model) -> Sketch:
    known, ways = models.places(model), models.limits(model)
    way_of = routes(model)
    kinds = {place: kind for kind in model.gpu for place in kind.places()}
    nodes = []
    for numa in model.numa:
        for place in numa.places:
            near = tuple(gpu for gpu in known.gpus if known.gpu_numa[gpu] == place)
            text = f"{numa.cpus} CPUs, {numa.memory_gib:g} GiB, {numa.dram_gbps.v:g} GB/s of memory"
            nodes.append(Node(place, text, near))
    links, cells = {}, {}
    for gpu in known.gpus:
        home = known.gpu_numa[gpu]
        kind = " + ".join(dict.fromkeys(_hop(hop.link) for hop in way_of[home, gpu]))
        links[gpu] = f"{kind}: {ways[home, gpu].gbps:.4g} GB/s in, {ways[gpu, home].gbps:.4g} GB/s out"
        for other in known.gpus:
            staged = gpu != other and (gpu, other) not in known.peers
            found = models.limit_through_host(model, gpu, other) if staged else ways[gpu, other]
            hops = dict.fromkeys(_hop(hop.link) for hop in way_of[gpu, other])
            how = "network" if host_of(gpu) != host_of(other) else "host" if staged else "+".join(hops) or "local"
            cells[gpu, other] = f"{found.gbps:.4g} {how}"
    return Sketch(
        title=f"MODELLED {model.machine.name}: {model.machine.title}",
        host=(*_network(model), *_disks(model)),
        nodes=tuple(nodes),
        gpus={
            place: f"{kind.title}, {kind.memory_gib:g} GiB, {kind.sms} SMs, {kind.l2_mib:g} MiB L2, "
            f"{kind.copy_engines} copy engines"
            for place, kind in kinds.items()
        },
        links=links,
        cells=cells,
        hidden=(),
    )


def _network(model: models.Model) -> tuple[str, ...]:
    """Each network card and its links."""
    links = directed_links(model)
    lines = []
    for nic in model.nic:
        for place in nic.places:
            ends = [f"{_hop(link.link)} {link.raw.v:.4g} GB/s to {link.to}" for link in links if link.start == place]
            lines.append(f"{place}  {', '.join(([nic.title] if nic.title else []) + ends)}")
    return tuple(lines)


def _disks(model: models.Model) -> tuple[str, ...]:
    """Each disk with its place and its read and write rates."""
    links = directed_links(model)
    lines = []
    for disk in model.disk:
        for place in disk.places:
            read = [f"{link.raw.v:.4g} GB/s read to {link.to}" for link in links if link.start == place]
            written = [f"{link.raw.v:.4g} GB/s written from {link.start}" for link in links if link.to == place]
            lines.append(f"{place}  {', '.join(([disk.title] if disk.title else []) + read + written)}")
    return tuple(lines)


def _hop(link: Link) -> str:
    return f"{link.kind} x{link.lanes}" if link.lanes > 1 else link.kind


def ranges(numbers: tuple[int, ...]) -> str:
    """(0, 1, 2, 8) -> '0-2,8'."""
    parts: list[str] = []
    start = previous = -2
    for number in (*numbers, -2):
        if number != previous + 1:
            if previous >= 0:
                parts.append(str(start) if start == previous else f"{start}-{previous}")
            start = number
        previous = number
    return ",".join(parts)


def _count(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _rate(found: Limit) -> str:
    return "?" if found.gbps is None else f"{found.gbps:.4g}"


def _size(count: int | None) -> str:
    return format_bytes(count) if count else ""
