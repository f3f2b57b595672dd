"""The structure of a machine file from the first line of a run: places, links and their ends, without constants.

On hardware this is what was detected. For a modelled run it is the same of its model: places, and names, ends and raw
rates of links, but none of its constants.
"""

import itertools
import re
from collections.abc import Iterable
from typing import Any

from linkscope.errors import UserError
from linkscope.runfile import Header, Point

Content = dict[str, Any]
_GIB, _MIB = 2**30, 2**20
_FACTS = {
    "numa": ("places", "cpus", "memory_gib", "llc_mib", "huge_2mib_pages", "huge_1gib_pages"),
    "gpu": ("title", "at", "memory_gib", "sms", "l2_mib", "copy_engines", "compute_capability"),
    "nic": ("places", "title"),
    "disk": ("places", "title"),
    "switch": ("places", "title"),
    "route": ("from", "to", "via"),
}


def skeleton(header: Header, points: Iterable[Point]) -> Content:
    """`numa`, `gpu`, `switch`, `link` (one pair of ends each), `peer`, and the other tables that the first line
    determines."""
    model = header.machine.get("model")
    try:
        content = _of_model(model) if isinstance(model, dict) else _of_probe(header.machine)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        problem = f"the first line of the run lacks what a model needs of the machine ({error!r})"
        raise UserError(f"{problem}: fit a model to an undamaged run") from None
    limits = _limits(points)
    for gpu in content.get("gpu", []):
        gpu.setdefault("memory_gbps", _memory(gpu, limits))
    known = {link["name"]: raw for link in reversed(content["link"]) if (raw := _raw(link, limits))}
    for link in content["link"]:
        link.setdefault("gbps", _raw(link, limits) or known.get(link["name"]) or _above_all(limits))
    peer = _stated_peers(header.machine) or _measured_peers(points)
    return content | ({"peer": peer} if peer else {})


def _of_model(model: Content) -> Content:
    content: Content = {
        table: [{key: row[key] for key in keys if key in row} for row in model.get(table, [])]
        for table, keys in _FACTS.items()
    }
    raw = ("name", "kind", "lanes", "gbps", "back_gbps")
    content["link"] = [
        {key: link[key] for key in raw if key in link} | {"between": [list(pair)]}
        for link in model["link"]
        for pair in link["between"]
    ]
    for link in content["link"]:
        for key in ("gbps", "back_gbps"):
            if key in link:
                link[key] = quantity(link[key]["v"], "derived", why="the raw rate of the model that was measured")
    return {table: rows for table, rows in content.items() if rows or table == "link"}


def _of_probe(machine: Content) -> Content:
    nodes = [place for place in machine["places"] if place.startswith("numa:")]
    gpus = machine.get("gpus", [])
    cpu, known = machine.get("cpu", {}), {node["index"]: node for node in machine.get("numa", [])}
    llc = cpu.get("cache_bytes", 0) / max(cpu.get("caches", 1), 1) / _MIB
    content: Content = {"numa": [], "gpu": [], "link": []}
    for at, place in enumerate(nodes):
        node = known.get(at, {})
        memory = max(node.get("memory_bytes", 0), machine.get("memory_bytes", 0) / len(nodes))
        cpus = len(node.get("cpus", [])) or max(cpu.get("threads", len(nodes)) // len(nodes), 1)
        row = {"places": [place], "cpus": cpus, "memory_gib": max(round(memory / _GIB, 1), 1)}
        content["numa"].append(row | {"llc_mib": round(llc, 2) or 1})
    for gpu in gpus:
        home = f"numa:{gpu['numa']}" if f"numa:{gpu.get('numa')}" in nodes else nodes[0]
        place = f"gpu:{gpu['index']}"
        row = {"title": gpu["name"], "at": {home: [place]}, "memory_gib": round(gpu["memory_bytes"] / _GIB, 1)}
        row |= {"sms": gpu.get("sms") or 1, "l2_mib": round((gpu.get("l2_bytes") or _MIB) / _MIB, 2)}
        row |= {"copy_engines": gpu.get("copy_engines") or 1}
        row |= {"compute_capability": float(gpu["compute_capability"])} if gpu.get("compute_capability") else {}
        content["gpu"].append(row | _stated_memory(gpu))
        lanes = (gpu.get("pcie") or {}).get("max_width") or 1
        kind = "c2c" if gpu.get("c2c_gbps") else "pcie"
        content["link"].append({"name": kind, "kind": kind, "lanes": lanes, "between": [[home, place]]})
    content["gpu"] = _equal_gpus(content["gpu"])
    content["link"] += [
        {"name": "sockets", "kind": "sockets", "between": [list(pair)]} for pair in itertools.combinations(nodes, 2)
    ]
    return content | _nvlinks(machine, gpus, content["link"])


def _nvlinks(machine: Content, gpus: list[Content], links: list[Content]) -> Content:
    """NVLinks, to a switch if the GPUs report one, otherwise between GPUs."""
    behind = [gpu for gpu in gpus if any(one.get("remote") == "switch" for one in gpu.get("nvlinks", []))]
    for gpu in behind:
        count, rate = len(gpu["nvlinks"]), gpu["nvlink_gbps"]
        stated = quantity(rate, "derived", why=f"{count} NVLinks of {rate / count:.4g} GB/s, as NVML reports")
        ends = [[f"gpu:{gpu['index']}", "switch:0"]]
        links.append({"name": "nvlink", "kind": "nvlink", "lanes": count, "between": ends, "gbps": stated})
    for pair in machine.get("pairs", []) if not behind else []:
        if pair.get("nvlinks") and pair["src"] < pair["dst"]:
            stated = quantity(pair["nvlink_gbps"], "derived", why=pair.get("nvlink_source") or "as NVML reports")
            ends = [[f"gpu:{pair['src']}", f"gpu:{pair['dst']}"]]
            links.append(
                {"name": "nvlink", "kind": "nvlink", "lanes": pair["nvlinks"], "between": ends, "gbps": stated}
            )
    return {"switch": [{"title": "NVSwitch", "places": ["switch:0"]}]} if behind else {}


def _stated_memory(gpu: Content) -> Content:
    if not gpu.get("memory_mhz") or not gpu.get("memory_bus_bits"):
        return {}
    rate = 2 * gpu["memory_mhz"] * 1e6 * gpu["memory_bus_bits"] / 8 / 1e9
    why = f"{gpu['memory_bus_bits']} bit at {gpu['memory_mhz']} MHz, two transfers a clock, as the driver reports"
    return {"memory_gbps": quantity(rate, "derived", why=why)}


def _equal_gpus(rows: list[Content]) -> list[Content]:
    """GPUs that differ only in their place, in one row."""
    kinds: list[Content] = []
    for row in rows:
        rest = {key: value for key, value in row.items() if key != "at"}
        for kind in kinds:
            if {key: value for key, value in kind.items() if key != "at"} == rest:
                for home, places in row["at"].items():
                    kind["at"].setdefault(home, []).extend(places)
                break
        else:
            kinds.append(row)
    return kinds


def _limits(points: Iterable[Point]) -> dict[tuple[str, str], tuple[float, str]]:
    """The peak of one direct copy on each path, as stated by the run."""
    found: dict[tuple[str, str], tuple[float, str]] = {}
    for point in points:
        direct = point.params.get("peer") != "off" and not point.bidirectional and point.engine == "ce"
        if direct and point.limit_gbps and point.benchmark in ("h2d", "d2h", "d2d", "local"):
            found.setdefault((point.src, point.dst), (point.limit_gbps, point.limit_source or ""))
    return found


def _memory(gpu: Content, limits: dict[tuple[str, str], tuple[float, str]]) -> Content:
    for place in itertools.chain.from_iterable(gpu["at"].values()):
        if (place, place) in limits:
            rate, source = limits[place, place]
            return quantity(2 * rate, "derived", why=f"twice the peak of copies within it: {source}")
    return quantity(10000, "assumed", why="unknown, since no copy within a GPU was measured: set far above its links")


def _raw(link: Content, limits: dict[tuple[str, str], tuple[float, str]]) -> Content | None:
    for ends in (tuple(link["between"][0]), tuple(reversed(link["between"][0]))):
        if ends in limits:
            rate, source = limits[ends]
            return quantity(rate, "derived", why=source or "the peak that the run states for this path")
    return None


def _above_all(limits: dict[tuple[str, str], tuple[float, str]]) -> Content:
    rate = 2 * max((limit for limit, _ in limits.values()), default=100.0)
    return quantity(rate, "assumed", why="the run states no peak for it: set above all others")


def _stated_peers(machine: Content) -> Content:
    """GPU pairs with peer access, as the driver or the model states."""
    model = machine.get("model")
    if isinstance(model, dict):
        return {
            key: value for key, value in (model.get("peer") or {}).items() if key in ("groups", "from", "ref", "why")
        }
    pairs = machine.get("pairs", [])
    direct = {frozenset((f"gpu:{pair['src']}", f"gpu:{pair['dst']}")) for pair in pairs if pair.get("peer")}
    return _peers(direct, "the driver's answer for each pair, in the run")


def _measured_peers(points: Iterable[Point]) -> Content:
    """GPU pairs with a measured direct copy."""
    direct = {
        frozenset((point.src, point.dst))
        for point in points
        if point.benchmark == "d2d" and point.params.get("peer") != "off" and point.median_s is not None
    }
    return _peers(direct, "pairs that copied directly in the run")


def _peers(direct: set[frozenset[str]], ref: str) -> Content:
    everyone = sorted(set().union(*direct), key=_number) if direct else []
    groups: list[list[str]] = []
    for place in everyone:
        for group in groups:
            if all(frozenset((place, other)) in direct for other in group):
                group.append(place)
                break
        else:
            groups.append([place])
    covered = {frozenset(pair) for group in groups for pair in itertools.combinations(group, 2)}
    groups = [group for group in groups if len(group) > 1]
    groups += [sorted(pair, key=_number) for pair in sorted(direct - covered, key=lambda p: sorted(p, key=_number))]
    return {"groups": groups, "from": "measured", "ref": ref} if groups else {}


def _number(place: str) -> list[tuple[str, int]]:
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D+)(\d*)", place)]


def quantity(value: float, origin: str, *, why: str = "", ref: str = "", fitted_to: Iterable[str] = ()) -> Content:
    """A constant of a machine file."""
    said = {"ref": ref, "why": why, "fitted_to": list(fitted_to)}
    return {"v": value, "from": origin} | {key: text for key, text in said.items() if text}


def identity(header: Header) -> str:
    """The identity of a machine: the UUIDs of its GPUs, or its name without any."""
    gpus = [str(gpu.get("uuid")) for gpu in header.machine.get("gpus", [])]
    return ", ".join(gpus) or str(header.machine.get("name", ""))
