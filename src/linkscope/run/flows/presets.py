"""Named sets of flows, as text of the grammar."""

from collections.abc import Callable, Mapping

from linkscope.errors import NOT_HERE, UserError, suggestion
from linkscope.run.target import Target
from linkscope.units import parse_whole

_MOST_SAME = 64


def _all_to_host(gpus: list[str], near: Mapping[str, str], node: str) -> list[str]:
    return [f"{gpu} -> {node}" for gpu in gpus]


def _host_to_all(gpus: list[str], near: Mapping[str, str], node: str) -> list[str]:
    return [f"{node} -> {gpu}" for gpu in gpus]


def _both(gpus: list[str], near: Mapping[str, str], node: str) -> list[str]:
    return [*_host_to_all(gpus, near, node), *_all_to_host(gpus, near, node)]


def _own_thread(gpus: list[str], near: Mapping[str, str], node: str) -> list[str]:
    return [text for gpu in gpus for text in (f"{near.get(gpu, node)} -> {gpu}", f"{gpu} -> {near.get(gpu, node)}")]


def _ring(gpus: list[str], near: Mapping[str, str], node: str) -> list[str]:
    return [f"{gpu} -> {gpus[(at + 1) % len(gpus)]}" for at, gpu in enumerate(gpus)]


def _all_to_all(gpus: list[str], near: Mapping[str, str], node: str) -> list[str]:
    return [f"{src} -> {dst}" for src in gpus for dst in gpus if src != dst]


def _one_to_all(gpus: list[str], near: Mapping[str, str], node: str) -> list[str]:
    return [f"{gpus[0]} -> {dst}" for dst in gpus[1:]]


# Name: the number of GPUs that it needs, and its flows from the GPUs, the NUMA node near each, and the first node.
_FLOWS: Mapping[str, tuple[int, Callable[[list[str], Mapping[str, str], str], list[str]]]] = {
    "all-to-host": (1, _all_to_host),
    "host-to-all": (1, _host_to_all),
    "both": (1, _both),
    "own-thread": (1, _own_thread),
    "ring": (2, _ring),
    "all-to-all": (2, _all_to_all),
    "one-to-all": (2, _one_to_all),
}
PRESETS = (*_FLOWS, "same-path:N")


def preset_text(name: str, target: Target) -> str:
    """The flows of a preset on a machine.

    Raises UserError: exit code 2 for an unknown name, 3 if the machine has too few GPUs.
    """
    kind, _, count = name.partition(":")
    gpus, nodes = target.facts.of_kind("gpu"), target.facts.of_kind("numa")
    if kind == "same-path":
        times = parse_whole(count or "2", 1, _MOST_SAME)
        if times is None:
            raise UserError(f"--preset {name}: write same-path:N with N from 1 to {_MOST_SAME}")
        _need(name, 1, gpus, target)
        return f"{target.numa_of_gpus.get(gpus[0], nodes[0])} -> {gpus[0]} x{times}"
    if name not in _FLOWS:
        raise UserError(f"--preset {name}: unknown{suggestion(name, PRESETS)}; presets: {', '.join(PRESETS)}")
    least, flows = _FLOWS[name]
    _need(name, least, gpus, target)
    return "; ".join(flows(gpus, target.numa_of_gpus, nodes[0]))


def _need(name: str, least: int, gpus: list[str], target: Target) -> None:
    if len(gpus) < least:
        have = "no GPU" if not gpus else "1 GPU"
        raise UserError(f"--preset {name} needs {least} GPUs or more, and {target.facts.name} has {have}", NOT_HERE)
