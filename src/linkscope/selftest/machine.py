"""The machine of the self-test, with round numbers, so that every truth can be checked by mental arithmetic."""

import tomllib
from typing import Any

import msgspec

from linkscope.machine import model as models
from linkscope.machine.model_checks import check
from linkscope.run import Target
from linkscope.run.target import modelled

CALL_S, EVENT_S, TICK_S = 20e-6, 5e-6, 500e-9  # queueing and stamps cost more than the measured operation
LOAD_S = 100e-9
TO_DEVICE_S, FROM_DEVICE_S, PEER_S = 2e-6, 1e-6, 1.5e-6
PCIE_LATENCY_S, NVLINK_LATENCY_S, XBUS_LATENCY_S = 1e-6, 0.5e-6, 0.5e-6
PCIE, PCIE_BOTH, NVLINK, XBUS = 50e9, 80e9, 100e9, 30e9  # bytes a second
NVLINKS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]

_TEXT = """
[machine]
name = "planted"
title = "Two nodes, four GPUs, round numbers"

[[numa]]
places = ["numa:0", "numa:1"]
cpus = 8
memory_gib = 64
llc_mib = 4
dram_gbps = { v = 400, from = "assumed", why = "selftest" }
memcpy_gbps = { v = 10, from = "assumed", why = "selftest" }
load_us = { v = 0.1, from = "assumed", why = "selftest" }

[[gpu]]
title = "GPU"
at = { "numa:0" = ["gpu:0", "gpu:1"], "numa:1" = ["gpu:2", "gpu:3"] }
memory_gib = 16
sms = 100
l2_mib = 4
copy_engines = 6
memory_gbps = { v = 1000, from = "assumed", why = "selftest" }
local_copy_gbps = { v = 400, from = "assumed", why = "selftest" }
"""


def _link(name: str, pairs: list[tuple[str, str]], rate: float, latency_s: float, both: float = 0.0) -> dict[str, Any]:
    link = {
        "name": name, "kind": name, "between": [list(pair) for pair in pairs], "gbps": _constant(rate / 1e9),
        "efficiency": _constant(1), "latency_us": _constant(latency_s * 1e6),
    }  # fmt: skip
    return link | ({"both_ways_gbps": _constant(both / 1e9)} if both else {})


def _constant(value: float) -> dict[str, Any]:
    return {"v": value, "from": "assumed", "why": "selftest"}


def content(**parts: Any) -> dict[str, Any]:
    """The machine file as data, plus `parts` (`fault`, `noise`)."""
    links = [_link(f"pcie{n}", [(f"numa:{n // 2}", f"gpu:{n}")], PCIE, PCIE_LATENCY_S, PCIE_BOTH) for n in range(4)]
    links += [_link(f"nvlink{a}{b}", [(f"gpu:{a}", f"gpu:{b}")], NVLINK, NVLINK_LATENCY_S) for a, b in NVLINKS]
    links.append(_link("xbus", [("numa:0", "numa:1")], XBUS, XBUS_LATENCY_S))
    costs = {
        "call_us": CALL_S * 1e6, "launch_us": 3, "sync_us": 5, "event_us": EVENT_S * 1e6, "event_tick_ns": TICK_S * 1e9,
        "host_stamp_us": 0.03, "cpu_copy_us": 0.05,
    }  # fmt: skip
    copies = {
        "to_device_us": TO_DEVICE_S * 1e6, "from_device_us": FROM_DEVICE_S * 1e6, "peer_us": PEER_S * 1e6,
        "local_us": 2, "inline_kib": 1, "inline_us": 2, "inline_gbps": 3, "channel_us": 6,
    }  # fmt: skip
    pageable = {"chunk_kib": 512, "slots": 4, "to_device_gbps": 10, "from_device_gbps": 10}
    tables: dict[str, dict[str, Any]] = {"costs": costs, "copy": copies, "pageable": pageable,
              "staged_peer": {"chunk_kib": 512, "slots": 4, "chunk_us": 2}}  # fmt: skip
    found = tomllib.loads(_TEXT)
    found["link"] = links
    found["peer"] = {"groups": [[f"gpu:{n}" for n in range(4)]], "from": "assumed", "why": "selftest"}
    for name, values in tables.items():
        found[name] = {key: _constant(value) for key, value in values.items()}
    return found | parts


def target(seed: int = 1, **parts: Any) -> Target:
    """The machine as a target, checked like any machine file."""
    model = msgspec.convert(content(**parts), models.Model)
    check(model)
    return modelled(model, seed)
