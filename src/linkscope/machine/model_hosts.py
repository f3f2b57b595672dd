"""Several equal hosts of one machine file, joined by the network of its table [network]."""

import fnmatch
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from linkscope.errors import NOT_HERE, UserError
from linkscope.machine.model_paths import directed_links
from linkscope.machine.model_places import host_of, places
from linkscope.machine.model_types import Model

MOST_HOSTS = 16
_PLACE = re.compile(r"\b(?:numa|gpu|nic|disk|switch):\d+")
_NETWORK_SWITCH = "switch:0"  # names no host, as every switch between hosts


def joined_for(model: Model, ends: Iterable[str]) -> Model:
    """The model with as many hosts as the places name; the model itself where no place names a host.

    Raises UserError for hosts that it cannot have.
    """
    hosts = {host_of(place) for place in ends if re.match(r"host:\d+/", place)}
    if not hosts or any(host_of(place) for place in places(model).numa):
        return model
    name = model.machine.name
    if model.network is None:
        raise UserError(f"{min(hosts)}: {name} is one host without a [network]: name places such as gpu:0", NOT_HERE)
    count = max(2, 1 + max(int(host.partition(":")[2]) for host in hosts))
    if count > MOST_HOSTS:
        raise UserError(f"host:{count - 1}: at most {MOST_HOSTS} hosts are joined, host:0 to host:{MOST_HOSTS - 1}")
    return joined(model, count)


def joined(model: Model, count: int) -> Model:
    """`count` copies of a host, host:0 and so on, whose network cards are joined by one switch."""
    content = model.to_json()
    hosts = [f"host:{number}" for number in range(count)]
    network = content.pop("network")
    names = [link.name for link in directed_links(model)]
    content["machine"]["title"] += f"; {count} hosts, joined by {network['kind']}"
    for part in ("numa", "nic", "disk", "switch"):
        for item in content.get(part, []):
            item["places"] = _everywhere(item["places"], hosts)
    for gpu in content.get("gpu", []):
        gpu["at"] = {_on(host, numa): _on(host, there) for host in hosts for numa, there in gpu["at"].items()}
    for link in content["link"]:
        link["between"] = _everywhere(link["between"], hosts)
    for fault in content.get("fault", []):
        if "links" in fault:
            fault["links"] = _everywhere(_matching(fault["links"], names), hosts)
    content["share"] = [
        share | {"links": _on(host, _matching(share["links"], names))} for share in content["share"] for host in hosts
    ]
    content["route"] = [_on(host, route) for route in content["route"] for host in hosts]
    if "peer" in content:
        content["peer"]["groups"] = _everywhere(content["peer"]["groups"], hosts)
    content["switch"].append({"places": [_NETWORK_SWITCH], "title": f"{network['kind']} switch"})
    content["link"].append(_wire(network, [nic for kind in content["nic"] for nic in kind["places"]]))
    return msgspec.convert(content, Model)


def _wire(network: dict[str, Any], nics: list[str]) -> dict[str, Any]:
    """The links from the cards to the switch: each has half of the latency from card to card."""
    half = network["latency_us"] | {"v": network["latency_us"]["v"] / 2}
    return network | {"name": "network", "latency_us": half, "between": [[nic, _NETWORK_SWITCH] for nic in nics]}


def _matching(globs: list[str], names: list[str]) -> list[str]:
    return [name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in globs)]


def _everywhere(items: list[Any], hosts: list[str]) -> list[Any]:
    return [_on(host, item) for host in hosts for item in items]


def _on(host: str, value: Any) -> Any:
    """The value with the places of one host."""
    if isinstance(value, str):
        return _PLACE.sub(lambda found: f"{host}/{found[0]}", value)
    if isinstance(value, dict):
        return {key: _on(host, item) for key, item in value.items()}
    return [_on(host, item) for item in value] if isinstance(value, list) else value
