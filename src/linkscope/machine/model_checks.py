"""What can be wrong in a machine file, said with the key and the cure."""

import difflib
import fnmatch
import itertools
import math
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from linkscope.machine import model_paths as paths
from linkscope.machine.model_types import Model, Peer, Quantity, Spread, order

_FRACTION = "efficiency"
_MAY_BE_ZERO = ("_us", "_ns")
_EXAMPLE = '{ v = 1.5, from = "assumed", why = "…" }'


class Mistake(Exception):
    def __init__(self, key: str, what: str, cure: str) -> None:
        super().__init__(key)
        self.key, self.what, self.cure = key, what, cure


def check(model: Model) -> None:
    """Raises the first mistake in what the types alone allow."""
    for key, value in _constants(model):
        _check_constant(key, value)
    _check_places(model)
    _check_links(model)
    _check_peers(model)
    _check_tables(model)
    _check_ways(model)


def explain(problem: msgspec.ValidationError, content: dict[str, Any]) -> Mistake:
    """A mistake in types or keys, from msgspec's message."""
    message, _, at = str(problem).partition(" - at `")
    key = at.rstrip("`").removeprefix("$").removeprefix(".").replace("[...]", "") or "the file"
    field = re.search(r"field `(\w+)`", message)
    if field and "unknown" in message:
        known = _keys_at(key)
        with_unit = [name for name in known if name.startswith(field[1] + "_")]
        near = with_unit or difflib.get_close_matches(field[1], known, 1, 0.5)
        cure = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known)}"
        return Mistake(
            _join(key, field[1]), "there is no such key", cure + " (the unit is part of the name)" * bool(with_unit)
        )
    if field and "missing" in message:
        return Mistake(_join(key, field[1]), "it is missing", f"write {field[1]} = {_example(key, field[1])}")
    if "Expected `object`" in message and _example(*_split(key)) == _EXAMPLE:
        return Mistake(key, "a constant says where it comes from", f"write {_split(key)[1]} = {_EXAMPLE}")
    if "Invalid enum value" in message:
        wrong = message.removeprefix("Invalid enum value ")
        return Mistake(key, f"it cannot be {wrong}", f"it is {' or '.join(_choices(key))}")
    return Mistake(key, message.replace("Expected", "it is").replace(", got", ", not"), "correct the value")


def line_of(text: str, key: str) -> int | None:
    """The line in which `link[1].gbps` stands, or its table's where the key itself is not there."""
    parts = re.findall(r"(\w+)(?:\[(\d+)\])?", key)
    best: int | None = None
    seen: dict[str, int] = {}
    inside: list[str] = []
    wanted = [f"{name}[{index}]" if index else name for name, index in parts]
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[\[?)\s*([\w.]+)", line)
        if header:
            names = header[2].split(".")
            if header[1] == "[[":
                seen[header[2]] = seen.get(header[2], -1) + 1
                names[-1] += f"[{seen[header[2]]}]"
            inside = names
            if inside == wanted[: len(inside)]:
                best = number
            continue
        found = re.match(r"\s*([\w]+)\s*=", line)
        depth = len(inside)
        if found and depth < len(wanted) and inside == wanted[:depth] and found[1] == parts[depth][0]:
            return number
    return best


def _constants(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every Quantity, Peer, Spread and plain number, with its key."""
    if isinstance(value, msgspec.Struct):
        if isinstance(value, Quantity | Peer | Spread):
            yield key, value
        if isinstance(value, Quantity):
            return
        for field in msgspec.structs.fields(value):
            yield from _constants(getattr(value, field.name), _join(key, field.encode_name))
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
    elif isinstance(value, int | float):
        if key.startswith("noise."):
            if not 0 <= value <= 0.5:
                raise Mistake(key, f"{value:g} is no sigma of noise", "write a fraction between 0 and 0.5")
        elif name != "after_samples":
            _check_number(key, name, value)
        elif value < 0:
            raise Mistake(key, f"{value:g} is negative", "write how many samples go well before, 0 or more")


def _check_number(key: str, name: str, number: float) -> None:
    if name.endswith(_MAY_BE_ZERO):
        if not 0 <= number < math.inf:
            raise Mistake(key, f"{number:g} is no time", "write 0 or more")
    elif name.endswith(_FRACTION):
        if not 0 < number <= 1:
            raise Mistake(key, f"{number:g} is no fraction", "write more than 0 and at most 1")
    elif not 0 < number < math.inf:
        raise Mistake(key, f"{number:g} is not above 0", "write what the machine has, in the unit of the key's name")


def _check_origin(key: str, value: Quantity | Peer | Spread) -> None:
    fitted_to = value.fitted_to if isinstance(value, Quantity) else []
    needs = {"published": "ref", "measured": "ref", "fitted": "fitted_to", "derived": "why", "assumed": "why"}
    need = needs[value.origin]
    if not getattr(value, need, None):
        raise Mistake(key, f"it is {value.origin}, without saying where or why", f"add {need} = …")
    if fitted_to and value.origin != "fitted":
        raise Mistake(key, f"it is {value.origin} and has fitted_to", 'write from = "fitted", or take fitted_to away')


def _check_places(model: Model) -> None:
    listed: dict[str, str] = {}
    groups = [(f"numa[{i}].places", "numa", numa.places) for i, numa in enumerate(model.numa)]
    groups += [(f"gpu[{i}].at", "gpu", gpu.places()) for i, gpu in enumerate(model.gpu)]
    groups += [(f"switch[{i}].places", "switch", switch.places) for i, switch in enumerate(model.switch)]
    for key, kind, names in groups:
        for name in names:
            if not re.fullmatch(rf"(host:\d+/)?{kind}:\d+", name):
                raise Mistake(key, f"{name!r} is no place of this kind", f"write {kind}:0, {kind}:1, …")
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
    for index, share in enumerate(model.share):
        for glob in share.links:
            if not any(fnmatch.fnmatchcase(name, glob) for name in names):
                like = f"they are called like {names[0]!r}" if names else "add a [[link]]"
                raise Mistake(f"share[{index}].links", f"no link is called {glob!r}", like)
    for index, route in enumerate(model.route):
        stops = [route.start, *route.via, route.to]
        for stop in stops:
            if stop not in nodes:
                raise Mistake(f"route[{index}]", f"there is no {stop}", f"there are {', '.join(nodes)}")
        for one, other in itertools.pairwise(stops):
            if paths.widest(model, one, other) is None:
                cure = "name in via every place on the way"
                raise Mistake(f"route[{index}]", f"no link joins {one} and {other}", cure)


def _check_peers(model: Model) -> None:
    gpus = {name for gpu in model.gpu for name in gpu.places()}
    for index, group in enumerate(model.peer.groups if model.peer else []):
        for name in group:
            if name not in gpus:
                raise Mistake(f"peer.groups[{index}]", f"there is no GPU {name}", f"there are {_some(gpus, 'gpu')}")


def _check_tables(model: Model) -> None:
    gpus = sum(len(gpu.places()) for gpu in model.gpu)
    for name, least in (("copy", 1), ("pageable", 1), ("staged_peer", 2)):
        if gpus >= least and getattr(model, name) is None:
            there = "is a GPU" if gpus == 1 else f"are {gpus} GPUs"
            raise Mistake(name, f"it is missing, and there {there}", f"add a table [{name}]")
    for name in ("pageable", "staged_peer"):
        table = getattr(model, name)
        if table and table.slots.v != int(table.slots.v):
            raise Mistake(f"{name}.slots", f"{table.slots.v:g} is no count", "write a whole number")


def _check_ways(model: Model) -> None:
    routes = paths.routes(model)
    everyone = [node for node in paths.nodes(model) if not node.startswith("switch:")]
    for one in everyone:
        for other in everyone:
            if (one, other) not in routes:
                cure = "add a [[link]] that joins their parts of the machine"
                raise Mistake(_table_of(model, other), f"no way leads from {one} to {other}", cure)


def _table_of(model: Model, place: str) -> str:
    numa = [f"numa[{i}]" for i, node in enumerate(model.numa) if place in node.places]
    return (numa + [f"gpu[{i}]" for i, gpu in enumerate(model.gpu) if place in gpu.places()])[0]


def _keys_at(key: str) -> list[str]:
    kind = _type_at(key)
    return [field.encode_name for field in msgspec.structs.fields(kind)] if kind else []


def _example(key: str, name: str) -> str:
    """How to write a key that is missing."""
    kind = _type_at(_join(key, name))
    if kind is Quantity:
        return _EXAMPLE
    return '"published" (or "derived", "fitted", "measured", "assumed")' if name == "from" else "…"


def _choices(key: str) -> list[str]:
    table, name = _split(key)
    kind = _type_at(table)
    fields = msgspec.structs.fields(kind) if kind else ()
    return [str(choice) for field in fields if field.encode_name == name for choice in typing.get_args(field.type)]


def _type_at(key: str) -> type | None:
    """The struct (or None for a plain value) that stands at a key of the file."""
    kind: Any = Model
    for name in re.findall(r"(\w+)(?:\[\d+\])?", "" if key == "the file" else key):
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            return None
        field = next((field for field in msgspec.structs.fields(kind) if field.encode_name == name), None)
        if field is None:
            return None
        kind = field.type
        if typing.get_origin(kind) in (typing.Union, types.UnionType):
            kind = next(part for part in typing.get_args(kind) if part is not type(None))
        if typing.get_origin(kind) is list:
            kind = typing.get_args(kind)[0]
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _join(key: str, name: str) -> str:
    return name if key in ("", "the file") else f"{key}.{name}"


def _split(key: str) -> tuple[str, str]:
    head, _, name = key.rpartition(".")
    return head, name


def _some(names: Any, kind: str) -> str:
    return ", ".join(sorted((name for name in names if f"{kind}:" in name), key=order)) or "none"
