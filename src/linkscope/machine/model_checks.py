"""Checks machine files. Each mistake names the key and the cure."""

import dataclasses
import fnmatch
import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from linkscope.machine import model_paths as paths
from linkscope.machine.model_mistakes import EXAMPLE, Mistake, join
from linkscope.machine.model_places import host_of, order
from linkscope.machine.model_schema import FRACTIONS, Quantity, Table, keys
from linkscope.machine.model_types import Fault, Gpu, Link, Model, Nic, Peer, Spread

_WORD, _MOST_DESCRIPTOR = 8, 128  # bytes
_MAY_BE_ZERO = ("_us", "_ns")


def check(model: Model) -> None:
    """Raises the first mistake that types alone do not exclude."""
    for key, value in _constants(model):
        _check_constant(key, value)
    _check_places(model)
    _check_links(model)
    _check_peers(model)
    _check_tables(model)
    _check_ways(model)
    _check_noise(model)
    for name, row in model.deviation.items():
        if not (row.points > 0 and 0 <= row.median <= row.ninety):
            what = f"{row.median:g} and {row.ninety:g} of {row.points} points are not a median and a p90"
            raise Mistake(f"deviation.{name}", what, "`linkscope model` writes them; leave the row out")
    _check_faults(model)


def _constants(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every Quantity, Peer, Spread and plain number with its key, without the numbers of faults and noise."""
    if isinstance(value, Fault):
        return
    if isinstance(value, msgspec.Struct):
        if isinstance(value, Quantity | Peer | Spread):
            yield key, value
        if isinstance(value, Quantity | Spread):
            return
        for field in msgspec.structs.fields(value):
            yield from _constants(getattr(value, field.name), join(key, field.encode_name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _constants(item, f"{key}[{index}]")
    elif isinstance(value, int | float):
        yield key, value


def _check_constant(key: str, value: Any) -> None:
    name = key.rpartition(".")[2]
    if isinstance(value, Peer | Spread | Quantity):
        _check_origin(key, value)
    if isinstance(value, Quantity):
        _check_number(key, name, value.v)
        if not (value.low is value.high is None or 0 < (value.low or 0) <= value.v <= (value.high or 0)):
            raise Mistake(key, "low and high do not enclose v", "write both, above 0, with v between them, or none")
    elif isinstance(value, int | float):
        _check_number(key, name, value)


def _check_number(key: str, name: str, number: float) -> None:
    if name.endswith(_MAY_BE_ZERO):
        if not 0 <= number < math.inf:
            raise Mistake(key, f"{number:g} is not a time", "write 0 or more")
    elif name.endswith(FRACTIONS):
        if not 0 < number <= 1:
            raise Mistake(key, f"{number:g} is not a fraction", "write more than 0 and at most 1")
    elif not 0 < number < math.inf:
        raise Mistake(key, f"{number:g} is not above 0", "write what the machine has, in the unit of the key's name")


def _check_origin(key: str, value: Quantity | Peer | Spread) -> None:
    fitted_to = value.fitted_to if isinstance(value, Quantity) else []
    needs = {"published": "ref", "measured": "ref", "fitted": "fitted_to", "derived": "why", "assumed": "why"}
    need = needs[value.origin]
    if not getattr(value, need, None):
        raise Mistake(key, f"it is {value.origin}, without a source or a reason", f"add {need} = …")
    if fitted_to and value.origin != "fitted":
        raise Mistake(key, f"it is {value.origin} and has fitted_to", 'write from = "fitted", or take fitted_to away')


def _check_places(model: Model) -> None:
    listed: dict[str, str] = {}
    groups = [(f"numa[{i}].places", "numa", numa.places) for i, numa in enumerate(model.numa)]
    groups += [(f"gpu[{i}].at", "gpu", gpu.places()) for i, gpu in enumerate(model.gpu)]
    groups += [(f"nic[{i}].places", "nic", nic.places) for i, nic in enumerate(model.nic)]
    groups += [(f"disk[{i}].places", "disk", disk.places) for i, disk in enumerate(model.disk)]
    groups += [(f"switch[{i}].places", "switch", switch.places) for i, switch in enumerate(model.switch)]
    for key, kind, names in groups:
        for name in names:
            if not re.fullmatch(rf"(host:\d+/)?{kind}:\d+", name):
                raise Mistake(key, f"{name!r} is not a place of this kind", f"write {kind}:0, {kind}:1, …")
            if name in listed:
                raise Mistake(key, f"{name} is there twice (also in {listed[name]})", "give each a number of its own")
            listed[name] = key
    if not any(kind == "numa" and names for _, kind, names in groups):
        raise Mistake("numa", "there is no NUMA node", 'add a [[numa]] with places = ["numa:0"]')
    for name, key in listed.items():
        head, number = order(name)
        if number > 0 and f"{head}:{number - 1}" not in listed:
            raise Mistake(key, f"there is {name} but no {head}:{number - 1}", "number them from 0 without gaps")
    for index, gpu in enumerate(model.gpu):
        for numa in gpu.at:
            if listed.get(numa, "").partition("[")[0] != "numa":
                there = f"NUMA nodes are {_some(listed, 'numa')}"
                raise Mistake(f"gpu[{index}].at", f"there is no NUMA node {numa}", there)
            for place in gpu.at[numa]:
                if host_of(place) != host_of(numa):
                    cure = "put it at a NUMA node of its own host"
                    raise Mistake(f"gpu[{index}].at", f"{place} is at {numa}, which is of another host", cure)
    _check_hosts(listed)


def _check_hosts(listed: dict[str, str]) -> None:
    """All places name their host, or none does; switches that join hosts have none."""
    hosts = {host_of(name) for name in listed if host_of(name)}
    for name, key in listed.items():
        if hosts and not host_of(name) and not name.startswith("switch:"):
            cure = f"write host:0/{name}: where one place names its host, all but switches between hosts do"
            raise Mistake(key, f"{name} names no host", cure)
        number = order(host_of(name))[1]
        if number > 0 and f"host:{number - 1}" not in hosts:
            raise Mistake(key, f"there is host:{number} but no host:{number - 1}", "number hosts from 0 without gaps")
    for host in sorted(hosts, key=order):
        if not any(name.startswith(f"{host}/numa:") for name in listed):
            key = next(key for name, key in listed.items() if host_of(name) == host)
            raise Mistake(key, f"{host} has no NUMA node", f"add {host}/numa:0 to the places of a [[numa]]")


def _check_links(model: Model) -> None:
    nodes = paths.nodes(model)
    for index, link in enumerate(model.link):
        for number, (one, other) in enumerate(link.between):
            key = f"link[{index}].between[{number}]"
            for end in (one, other):
                if end not in nodes:
                    raise Mistake(key, f"there is no {end}", f"there are {', '.join(nodes)}")
            if one == other:
                raise Mistake(key, f"it joins {one} with itself", "name its two ends")
    names: list[str] = []
    for directed in paths.directed_links(model):
        if directed.name in names:
            key = f"link[{model.link.index(directed.link)}]"
            raise Mistake(key, f"two links are called {directed.name!r}", "give one of them another name")
        names.append(directed.name)
    shares = [share.name for share in model.share]
    for index, share in enumerate(model.share):
        for glob in share.links:
            if fnmatch.filter(shares, glob) and not fnmatch.filter(names, glob):
                cure = "list the links themselves: one share has links only, never another share"
                raise Mistake(f"share[{index}].links", f"{glob!r} is a share, not a link", cure)
        _check_globs(f"share[{index}].links", share.links, names)
    for index, route in enumerate(model.route):
        stops = [route.start, *route.via, route.to]
        keys = ["from", *["via"] * len(route.via), "to"]
        for stop, at in zip(stops, keys, strict=True):
            if stop not in nodes:
                raise Mistake(f"route[{index}].{at}", f"there is no {stop}", f"there are {', '.join(nodes)}")
        for stop in stops:
            if stops.count(stop) > 1:
                raise Mistake(f"route[{index}]", f"it passes {stop} twice", "name every place on the way once")
        if any((route.start, route.to) == (other.start, other.to) for other in model.route[:index]):
            cure = "keep one of them"
            raise Mistake(f"route[{index}]", f"it is the second from {route.start} to {route.to}", cure)
        for one, other in itertools.pairwise(stops):
            if paths.widest(model, one, other) is None:
                cure = "name in via every place on the way"
                raise Mistake(f"route[{index}]", f"no link joins {one} and {other}", cure)


def _check_globs(key: str, globs: list[str], names: list[str]) -> None:
    if not globs:
        raise Mistake(key, "it names no link", 'write names of directed links, as ["pcie numa:0->gpu:*"]')
    for glob in globs:
        if not any(fnmatch.fnmatchcase(name, glob) for name in names):
            like = f"they are called like {names[0]!r}" if names else "add a [[link]]"
            raise Mistake(key, f"no link is called {glob!r}", like)


def _check_peers(model: Model) -> None:
    gpus = {name for gpu in model.gpu for name in gpu.places()}
    for index, group in enumerate(model.peer.groups if model.peer else []):
        for name in group:
            if name not in gpus:
                raise Mistake(f"peer.groups[{index}]", f"there is no GPU {name}", f"there are {_some(gpus, 'gpu')}")
            if host_of(name) != host_of(group[0]):
                cure = "give each host groups of its own"
                raise Mistake(f"peer.groups[{index}]", f"{group[0]} and {name} are on different hosts", cure)


def _check_tables(model: Model) -> None:
    hosts = [host_of(name) for gpu in model.gpu for name in gpu.places()]
    gpus = max(map(hosts.count, hosts), default=0)  # within one host: the driver stages nothing between hosts
    for name, least in (("copy", 1), ("pageable", 1), ("staged_peer", 2)):
        if gpus >= least and getattr(model, name) is None:
            there = "is a GPU" if gpus == 1 else f"are {gpus} GPUs" + " on a host" * bool(hosts[0])
            raise Mistake(name, f"it is missing, and there {there}", f"add a table [{name}]")
    _check_network(model, hosts)
    if model.pull and model.pull.least_us.v > model.pull.extra_us.v:
        what = f"{model.pull.least_us.v:g} us cannot be left of extra_us, {model.pull.extra_us.v:g} us"
        raise Mistake("pull.least_us", what, "write what large copies pay of it, extra_us at most")
    launch = model.costs.launch_us.v
    if model.calls and model.calls.locked_us.v > launch:
        what = f"{model.calls.locked_us.v:g} us cannot be a part of launch_us of [costs], {launch:g} us"
        raise Mistake("calls.locked_us", what, "write how long a launch keeps other threads out, launch_us at most")
    for at, table in _tables(model):
        _check_schema(at, table)
    sleepers: list[tuple[str, Gpu | Link]] = [(f"gpu[{index}]", gpu) for index, gpu in enumerate(model.gpu)]
    sleepers += [(f"link[{index}]", link) for index, link in enumerate(model.link)]
    for at, one in sleepers:
        if one.wake_after_us and one.wake_after_us.v == 0:
            cure = "write more than 0, or take both keys away"
            raise Mistake(f"{at}.wake_after_us", "an idle gap of 0 s cannot put a part to sleep", cure)
    if model.managed and model.managed.piece_kib.v % model.managed.page_kib.v:
        what = f"pieces of {model.managed.piece_kib.v:g} KiB are not whole pages of {model.managed.page_kib.v:g} KiB"
        raise Mistake("managed.piece_kib", what, "write a multiple of page_kib")
    if model.managed and model.managed.cpu_block_pages:
        block, fault = model.managed.cpu_block_pages.v, model.managed.cpu_fault_pages.v
        if block % fault:
            what = f"a block of {block:g} pages does not consist of faults of {fault:g} pages"
            raise Mistake("managed.cpu_block_pages", what, "write a multiple of cpu_fault_pages")


def _check_network(model: Model, hosts: list[str]) -> None:
    if model.network and not any(nic.places for nic in model.nic):
        raise Mistake("network", "it joins network cards, and there is none", "add a [[nic]] with its link")
    if model.network and any(hosts):
        what = "it joins equal hosts, and the places here name their hosts already"
        raise Mistake("network", what, "write a [[link]] between the cards, or take the hosts away")
    for index, nic in enumerate(model.nic):
        if nic.eager_far_gbps and not nic.eager_gbps:
            raise Mistake(f"nic[{index}].eager_far_gbps", "it has no eager_gbps", "add it, or take this key away")
        if nic.gpu_short_kib and not nic.gpu_read_gbps:
            raise Mistake(f"nic[{index}].gpu_short_kib", "it has no gpu_read_gbps", "add it, or take this key away")
        _check_posts(nic, f"nic[{index}]")


def _check_posts(nic: Nic, at: str) -> None:
    size = nic.descriptor_bytes
    if size is not None and (size % _WORD or not _WORD <= size <= _MOST_DESCRIPTOR):
        raise Mistake(f"{at}.descriptor_bytes", f"{size} B is no descriptor", "write a multiple of 8, 8 to 128")
    if nic.queues and not nic.message_us:
        raise Mistake(f"{at}.queues", "it has no message_us", "add it, or take this key away")
    if nic.gpu_message_us and nic.queues != "card":
        raise Mistake(f"{at}.gpu_message_us", 'it is of registers, queues = "card"', "take this key away")


def _tables(model: Model) -> Iterator[tuple[str, Table]]:
    """The tables of the file by name, with their index if there are several."""
    for name in model.__struct_fields__:
        value = getattr(model, name)
        listed = [(f"{name}[{index}]", one) for index, one in enumerate(value)] if isinstance(value, list) else []
        yield from listed or ([(name, value)] if isinstance(value, Table) else [])


def _check_schema(at: str, table: Table) -> None:
    """Checks what the schema says about the keys of a table: which need each other, and which are whole numbers."""
    together: dict[str, list[str]] = {}
    for name, key in keys(type(table)).items():
        if key.needs:
            together.setdefault(key.needs, [key.needs]).append(name)
        count = getattr(table, name) if key.whole else None
        if count is not None and count.v != int(count.v):
            raise Mistake(f"{at}.{name}", f"{count.v:g} is not a count", "write a whole number")
    for names in together.values():
        _check_together(at, table, names)


def _check_together(at: str, table: Table, together: list[str]) -> None:
    given = [name for name in together if getattr(table, name) is not None]
    if given and len(given) < len(together):
        missing = next(name for name in together if name not in given)
        cure = f"write {missing} = {EXAMPLE}, or take {given[0]} away"
        raise Mistake(f"{at}.{missing}", f"it is missing, and there is {given[0]}", cure)


def _check_ways(model: Model) -> None:
    routes = paths.routes(model)
    # A switch between GPUs is reached only by them, because nothing passes through a GPU.
    switches = [node for node in paths.nodes(model) if node.startswith("switch:") or "/switch:" in node]
    everyone = [node for node in paths.nodes(model) if node not in switches]
    for switch in switches:
        if not any((one, switch) in routes for one in everyone):
            cure = "add a [[link]] between it and what it joins, or take it away"
            raise Mistake(_table_of(model, switch), f"no link leads to {switch}", cure)
    for one in everyone:
        for other in everyone:
            if (one, other) not in routes:
                cure = "add a [[link]] that joins their parts of the machine"
                raise Mistake(_table_of(model, other), f"no way leads from {one} to {other}", cure)


def _table_of(model: Model, place: str) -> str:
    tables: list[tuple[str, list[list[str]]]] = [
        ("numa", [numa.places for numa in model.numa]),
        ("gpu", [gpu.places() for gpu in model.gpu]),
        ("nic", [nic.places for nic in model.nic]),
        ("disk", [disk.places for disk in model.disk]),
        ("switch", [switch.places for switch in model.switch]),
    ]
    return next(f"{name}[{i}]" for name, all in tables for i, group in enumerate(all) if place in group)


_SIGMAS = ("compute", "engine", "channel", "rate", "host")
_OF_SHAPE: dict[str, tuple[str, ...]] = {
    "lognormal": (),
    "autocorrelated": ("correlation",),
    "bimodal": ("second", "share"),
}


@dataclasses.dataclass(frozen=True)
class _Range:
    """The values from `least` to less than `below`, except those in `without`."""

    least: float
    below: float
    what: str
    cure: str
    without: tuple[float, ...] = ()


_CORRELATION = _Range(0, 1, "a correlation", "write from 0 to less than 1")
_SHARE = _Range(0, 1, "a share", "write more than 0 and less than 1", without=(0,))
_SLOWER = _Range(0, 1, "the part of its rate that a link has", "write more than 0 and less than 1", without=(0,))
_TIMES, _ABOVE_1 = "factor by which the time grows", "write a factor above 1, such as 1.3"
_LONGER = _Range(1, 1000, _TIMES, _ABOVE_1, without=(1,))
_SECOND = _Range(1, 100, _TIMES, _ABOVE_1, without=(1,))


def _check_noise(model: Model) -> None:
    for level in ("machine", "round", "sample"):
        spread = getattr(model.noise, level, None)
        if spread is None:
            continue
        key = f"noise.{level}"
        for name in _SIGMAS:
            if not 0 <= getattr(spread, name) <= 0.5:
                what = f"{getattr(spread, name):g} is not a sigma of noise"
                raise Mistake(f"{key}.{name}", what, "write a fraction between 0 and 0.5")
        if spread.shape == "autocorrelated" and level != "sample":
            cure = "write it in [noise.sample]: machines and rounds have no order"
            raise Mistake(f"{key}.shape", f"a {level} does not depend on the one before", cure)
        shape = f'shape = "{spread.shape}"'
        _check_keys(key, spread, shape, _OF_SHAPE[spread.shape], ("correlation", "second", "share"))
        _check_range(f"{key}.correlation", spread.correlation, _CORRELATION)
        _check_range(f"{key}.share", spread.share, _SHARE)
        _check_range(f"{key}.second", spread.second, _SECOND)


_OF_FAULT = {
    "ramp": ("samples", "factor"), "throttle": ("samples", "factor"), "slow": ("links", "factor"),
    "flaky": ("links", "factor", "share"),
}  # fmt: skip
_FAULT_KEYS = ("samples", "factor", "links", "share")


def _check_faults(model: Model) -> None:
    names = [link.name for link in paths.directed_links(model)]
    for index, fault in enumerate(model.fault):
        key = f"fault[{index}]"
        if fault.after_samples < 0:
            cure = "write how many samples go well before, 0 or more"
            raise Mistake(f"{key}.after_samples", f"{fault.after_samples:g} is negative", cure)
        may = ("samples",) if fault.kind == "lie" else ()
        _check_keys(key, fault, f'kind = "{fault.kind}"', _OF_FAULT.get(fault.kind, ()), _FAULT_KEYS, may)
        if fault.samples is not None and fault.samples < 1:
            raise Mistake(f"{key}.samples", f"{fault.samples} is not a number of samples", "write 1 or more")
        _check_range(f"{key}.factor", fault.factor, _LONGER if fault.kind in ("ramp", "throttle") else _SLOWER)
        _check_range(f"{key}.share", fault.share, _SHARE)
        if fault.links is not None:
            _check_globs(f"{key}.links", fault.links, names)


def _check_keys(
    key: str, table: Any, of: str, needed: tuple[str, ...], known: tuple[str, ...], may: tuple[str, ...] = ()
) -> None:
    """Checks which keys a table has for a value of `of`."""
    for name in known:
        there = getattr(table, name) is not None
        if name in needed and not there:
            raise Mistake(f"{key}.{name}", f"it is missing, and {of}", f"write {name} = …")
        if there and name not in (*needed, *may):
            has = " and ".join((*needed, *may))
            raise Mistake(f"{key}.{name}", f"{of} has no such key", f"take it away{f'; it has {has}' * bool(has)}")


def _check_range(key: str, value: float | None, allowed: _Range) -> None:
    if value is not None and not (allowed.least <= value < allowed.below and value not in allowed.without):
        raise Mistake(key, f"{value:g} is not {allowed.what}", allowed.cure)


def _some(names: Any, kind: str) -> str:
    return ", ".join(sorted((name for name in names if f"{kind}:" in name), key=order)) or "none"
