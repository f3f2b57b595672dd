"""Classes of paths that should perform alike, from the facts about their ends and links.

Hidden facts do not separate paths: in a virtual machine that hides its PCIe tree all paths between GPUs are in one
class until they are measured. The name of a class is a text for people; two paths have the same text exactly if they
are in one class.
"""

import fnmatch
from collections.abc import Iterable

from linkscope.machine.facts import Gpu, Machine, NumaNode, Pair
from linkscope.machine.model_paths import DirectedLink, routes
from linkscope.machine.model_places import Places, places
from linkscope.machine.model_types import Gpu as GpuModel
from linkscope.machine.model_types import Model, Numa

Kinds = dict[tuple[str, str], str]
Ways = dict[tuple[str, str], list[DirectedLink]]


def classes_probed(machine: Machine) -> Kinds:
    """The class of every pair of places of a detected machine, including a place with itself."""
    ends: dict[str, Gpu | NumaNode] = {f"numa:{node.index}": node for node in machine.numa}
    ends |= {f"gpu:{gpu.index}": gpu for gpu in machine.gpus}
    return {(src, dst): _probed(machine, ends[src], ends[dst]) for src in ends for dst in ends}


def _probed(machine: Machine, src: Gpu | NumaNode, dst: Gpu | NumaNode) -> str:
    ends = f"{_place(src)} -> {_place(dst)}"
    if isinstance(src, Gpu) and isinstance(dst, Gpu):
        if src.index == dst.index:
            return f"within {_place(src)}"
        pair = machine.pair(src.index, dst.index)
        return f"{ends}{_pair(pair) if pair else ''}{_distance(machine, src.numa, dst.numa)}"
    if isinstance(src, NumaNode) and isinstance(dst, NumaNode):
        return f"within {_place(src)}" if src.index == dst.index else ends + _distance(machine, src.index, dst.index)
    near = src.index if isinstance(src, NumaNode) else src.numa
    far = dst.index if isinstance(dst, NumaNode) else dst.numa
    return ends + _distance(machine, near, far)


def _place(place: Gpu | NumaNode) -> str:
    if isinstance(place, NumaNode):
        return f"host, {len(place.cpus)} CPUs"
    link = place.pcie
    parts = [place.name or "GPU"]
    generation, width = link.max_generation or link.generation, link.max_width or link.width
    if generation and width:
        now = f" at x{link.width}" if link.width and link.width < width else ""
        parts.append(f"PCIe {generation}.0 x{width}{now}")
    if place.c2c_gbps:
        parts.append(f"chip-to-chip link of {place.c2c_gbps:.4g} GB/s")
    return ", ".join(parts)


def _pair(pair: Pair) -> str:
    parts = []
    if pair.nvlinks:
        parts.append(f"{pair.nvlinks} NVLinks of {pair.nvlink_gbps or 0:.4g} GB/s in all")
    if pair.level:
        parts.append(f"PCIe by {pair.level}")
    if pair.peer is False:
        parts.append("no peer access")
    return "".join(f", {word}" for word in parts)


def _distance(machine: Machine, one: int | None, other: int | None) -> str:
    """The distance of two NUMA nodes as text; '' on machines with one node, or for a GPU with a hidden node."""
    if one is None or other is None or len(machine.numa) < 2:
        return ""
    distances = next((node.distances for node in machine.numa if node.index == one), ())
    return f", NUMA distance {distances[other]}" if other < len(distances) else ""


def classes_modelled(model: Model) -> Kinds:
    """The class of every pair of places of a model. Planted faults do not count."""
    known, ways = places(model), routes(model)
    everyone = [*known.numa, *known.gpus]
    parts = {
        (src, dst): _modelled(model, known, ways, src, dst)
        for src in everyone
        for dst in everyone
        if (src, dst) in ways
    }
    return _numbered(parts)


def _modelled(model: Model, known: Places, ways: Ways, src: str, dst: str) -> tuple[str, object]:
    """A text, and everything that determines the rate of the path; two classes may have equal texts."""
    ends = [_part(model, place) for place in (src, dst)]
    parts: list[object] = [src == dst, *map(_but_places, ends)]
    if src == dst:
        return f"within {_title(ends[0])}", repr(parts)
    parts += [_links(model, way) for way in (ways[src, dst], ways.get((dst, src), []))]
    text = " -> ".join(map(_title, ends))
    if src in known.gpus and dst in known.gpus:
        direct = (src, dst) in known.peers
        # Without peer access: through the node near the source, or near the destination.
        hosts = [known.gpu_numa[src], known.gpu_numa[dst]]
        parts += [direct, *(_links(model, ways[src, host] + ways[host, dst]) for host in hosts)]
        text += "" if direct else ", no peer access"
    hops = [f"{link.link.kind}{f' x{link.link.lanes}' if link.link.lanes > 1 else ''}" for link in ways[src, dst]]
    return text + "".join(f", {hop}" for hop in hops), repr(parts)


def _part(model: Model, place: str) -> Numa | GpuModel:
    for numa in model.numa:
        if place in numa.places:
            return numa
    return next(gpu for gpu in model.gpu if place in gpu.places())


def _title(part: Numa | GpuModel) -> str:
    return part.title if isinstance(part, GpuModel) else f"host, {part.cpus} CPUs"


def _but_places(part: Numa | GpuModel) -> list[object]:
    return [getattr(part, name) for name in part.__struct_fields__ if name not in ("places", "at")]


def _links(model: Model, way: Iterable[DirectedLink]) -> list[object]:
    """Each link as its values and shares, without its name and ends, in no order."""
    found: list[object] = []
    for link in way:
        values = [getattr(link.link, name) for name in link.link.__struct_fields__ if name not in ("name", "between")]
        shares = [
            share.gbps.v for share in model.share if any(fnmatch.fnmatchcase(link.name, name) for name in share.links)
        ]
        found.append((link.raw.v, values, sorted(shares)))
    return sorted(found, key=repr)


def _numbered(parts: dict[tuple[str, str], tuple[str, object]]) -> Kinds:
    """The class texts, numbered where several classes have the same text."""
    first: dict[object, str] = {}
    for text, what in parts.values():
        first.setdefault(what, text)
    sharing: dict[str, list[object]] = {}
    for what, text in first.items():
        sharing.setdefault(text, []).append(what)
    names = {
        what: text if len(of_text) == 1 else f"{text} ({number})"
        for text, of_text in sharing.items()
        for number, what in enumerate(of_text, 1)
    }
    return {path: names[what] for path, (_, what) in parts.items()}
