"""Differences between two runs in machine, environment and plan. Read them before the times."""

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from linkscope.runfile import Header

# Facts that differ between any two moments on one machine are left out.
_VOLATILE = (
    "machine.numa.*.memory_bytes",  # a virtual machine grows with its use
    "environment.cpu.load_1min",
    "environment.cpu.steal_since_boot",
    "environment.memory.available",
    "environment.memory.swap_used",
    "environment.gpus.*.sm_mhz",
    "environment.gpus.*.memory_mhz",
    "environment.gpus.*.throttle*",
    "environment.gpus.*.temperature_c",
    "environment.gpus.*.power_w",
    "environment.gpus.*.processes",
    "environment.gpus.*.pcie_replays",
    "environment.gpus.*.nvlink_errors.*",
    "environment.process.variables.*",
)
_PLAN = ("suite", "rule", "precision", "rounds", "early", "seed")


@dataclass(frozen=True)
class Difference:
    """One fact that differs; None if a run lacks it."""

    what: str
    before: Any
    after: Any


def same_machine(before: Header, after: Header) -> bool:
    """Whether both runs are of one machine: by the UUIDs of the GPUs, or by the machine's name without any."""
    gpus = [[gpu.get("uuid") for gpu in header.machine.get("gpus", [])] for header in (before, after)]
    if before.modelled != after.modelled:
        return False
    if any(gpus) and all(all(found) for found in gpus):
        return sorted(gpus[0]) == sorted(gpus[1])
    return bool(before.machine.get("name") == after.machine.get("name"))


def unlike(before: Header, after: Header) -> list[str]:
    """Why two runs have few points in common: ['suite standard against lu', 'GPU NVIDIA H200 against NVIDIA L40']."""
    found = []
    for name, values in (
        ("suite", [str(header.plan.get("suite")) for header in (before, after)]),
        ("GPU", [_gpu_models(header) for header in (before, after)]),
        ("number of GPUs", [str(len(header.machine.get("gpus") or [])) for header in (before, after)]),
    ):
        if values[0] != values[1]:
            found.append(f"{name} {values[0]} against {values[1]}")
    if (before.plan.get("only") or []) != (after.plan.get("only") or []):
        found.append("other patterns of --only")
    return found


def _gpu_models(header: Header) -> str:
    return ", ".join(dict.fromkeys(str(gpu.get("name")) for gpu in header.machine.get("gpus") or [])) or "none"


def differences(before: Header, after: Header) -> list[Difference]:
    """Differing facts of machine, environment, plan and tool, in the order of the files."""
    facts = [dict(_facts(header)) for header in (before, after)]
    names = list(dict.fromkeys([*facts[0], *facts[1]]))
    groups = [{head for name in side for head in _heads(name)} for side in facts]
    found: dict[str, Difference] = {}
    for name in names:
        values = [side.get(name) for side in facts]
        if values[0] != values[1]:
            # A part that only one run has, such as a GPU or a link, is one difference and not one per fact.
            absent = next((head for head in _heads(name) if any(head not in group for group in groups)), None)
            if absent is None:
                found[name] = Difference(name, *values)
            else:
                found[absent] = Difference(absent, *("present" if absent in group else None for group in groups))
    return list(found.values())


def _heads(name: str) -> list[str]:
    """'machine.gpus.2.pcie.width' -> the parts that hold it, the largest first: 'machine.gpus.2',
    'machine.gpus.2.pcie'."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(3, len(parts))]


def _facts(header: Header) -> Iterator[tuple[str, Any]]:
    yield "modelled", header.modelled
    for section, value in (("machine", header.machine), ("environment", header.environment), ("tool", header.tool)):
        for name, fact in _flat(section, value):
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in _VOLATILE):
                yield name, fact
    for name in _PLAN:
        if name in header.plan:
            yield f"plan.{name}", header.plan[name]


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Leaves by their path; lists of plain values are leaves, empty ones are left out."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from _flat(f"{name}.{index}", inner)
    elif value not in ([], {}):  # an empty value equals a missing one
        yield name, value
