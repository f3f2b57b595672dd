"""Draws a machine in the terminal: places, the links between them, and the rates between GPUs."""

from linkscope.machine.facts import Machine
from linkscope.machine.model_types import Model
from linkscope.machine.sketch import Node, Sketch, sketch


def draw(machine: Machine | Model) -> str:
    """The drawing of a detected machine or a model; rates are peaks in GB/s (1e9) in one direction."""
    seen = sketch(machine)
    lines = [seen.title, *(f"  {line}" for line in seen.host), ""]
    for node in seen.nodes:
        lines += _node(node, seen)
    if len(seen.gpus) > 1:
        lines += ["", "GPU to GPU, GB/s at most, from row to column:", *_matrix(seen)]
        lines += _legend(seen)
    if seen.hidden:
        lines += ["", "hidden here:", *(f"  {line}" for line in _grouped(seen.hidden))]
    return "\n".join(lines)


def _node(node: Node, seen: Sketch) -> list[str]:
    lines = [f"{node.place}  {node.text}" if node.place else node.text]
    for gpu in node.gpus:
        last = gpu == node.gpus[-1]
        lines.append(f"{'└─' if last else '├─'} {gpu}  {seen.gpus[gpu]}")
        lines.append(f"{'  ' if last else '│ '}    {seen.links[gpu]}")
    return lines


def _matrix(seen: Sketch) -> list[str]:
    places = list(seen.gpus)
    width = max(len(text) for text in (*seen.cells.values(), *places)) + 2
    head = max(map(len, places)) + 2
    lines = [" " * head + "".join(place.rjust(width) for place in places)]
    for src in places:
        lines.append(src.ljust(head) + "".join(seen.cells[src, dst].rjust(width) for dst in places))
    return lines


def _legend(seen: Sketch) -> list[str]:
    used = {word for cell in seen.cells.values() for word in cell.split()[1:]}
    known = {
        "host": "host: no peer access, staged in host memory",
        "network": "network: on another host, through the network",
        "PCIe": "PCIe: directly over PCIe",
        "local": "local: read and written in one memory",
        "?": "?: not visible here",
    }
    lines = [text for word, text in known.items() if word in used]
    if any(word.startswith("NV") for word in used):
        lines.insert(0, "NVn: over n NVLinks")
    return ["  " + "; ".join(lines)] if lines else []


def _grouped(hidden: tuple[str, ...]) -> list[str]:
    """One line for each reason: 'gpu:0.numa, gpu:1.numa: …'; of many places the first and the last."""
    facts: dict[str, list[str]] = {}
    for line in hidden:
        fact, _, why = line.partition(": ")
        facts.setdefault(why, []).append(fact)
    shown = {why: ", ".join(names) if len(names) <= 4 else f"{names[0]}, … {names[-1]}" for why, names in facts.items()}
    return [f"{names}: {why}" for why, names in shown.items()]
