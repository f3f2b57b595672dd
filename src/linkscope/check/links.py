"""Links that run below what they allow: the PCIe link of each GPU, and its NVLinks.

An idle GPU lowers the generation of its PCIe link to save power. So the generation counts only as read during copies
(`guards` of the points). The width does not change with load, so the facts of the machine may show it too.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from linkscope.check.bundled import summaries
from linkscope.check.faults import Fault
from linkscope.check.gpus import gpus_of
from linkscope.model.text import count_text
from linkscope.runfile import Run


class Pcie(NamedTuple):
    """Generation and width of a PCIe link. Width 0 or generation 0: unknown."""

    generation: int
    width: int

    def __str__(self) -> str:
        words = [f"gen{self.generation}"] * bool(self.generation) + [f"x{self.width}"] * bool(self.width)
        return " ".join(words)


def faults_of_links(run: Run, reference: Run | None = None) -> list[Fault]:
    """PCIe links below the generation or width of the reference, or without one below what GPU and slot allow, and
    GPUs with missing NVLinks. A model states neither."""
    return [] if run.modelled else [*_pcie_faults(run, reference), *_nvlink_faults(run, reference)]


def pcie_under_load(run: Run) -> dict[str, Pcie]:
    """The best generation and the best width of each GPU's link during the points."""
    found: dict[str, Pcie] = {}
    for point in run.points:
        for gpu, guard in point.guards.items():
            read = re.fullmatch(r"gen(\d+) x(\d+)", str(guard.get("pcie"))) if isinstance(guard, dict) else None
            if read:  # the best, because a link between two copies may be slower for a moment
                before = found.get(gpu, Pcie(0, 0))
                found[gpu] = Pcie(max(before.generation, int(read[1])), max(before.width, int(read[2])))
    return found


def _pcie_faults(run: Run, reference: Run | None) -> Iterable[Fault]:
    loaded, earlier = pcie_under_load(run), pcie_under_load(reference) if reference else {}
    for gpu, facts in _pcie_facts(run.header.machine).items():
        seen = loaded.get(gpu) or Pcie(0, facts.get("width") or 0)
        wanted = earlier.get(gpu) or Pcie(facts.get("max_generation") or 0, facts.get("max_width") or 0)
        if (0 < seen.generation < wanted.generation) or (0 < seen.width < wanted.width):
            load = " under load" if gpu in loaded else ""
            why = "the reference has" if gpu in earlier else "the GPU and its slot allow"
            yield Fault(None, gpu, f"the PCIe link of {gpu} runs at {seen}{load}, and {why} {wanted}")


def _pcie_facts(machine: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"gpu:{gpu['index']}": gpu.get("pcie") or {} for gpu in machine.get("gpus") or []}


def active_nvlinks(machine: Mapping[str, Any]) -> dict[str, int]:
    """The number of active NVLinks of each GPU; without GPUs that have none."""
    counts = {
        f"gpu:{gpu['index']}": sum(bool(link.get("active")) for link in gpu.get("nvlinks") or [])
        for gpu in machine.get("gpus") or []
    }
    return {gpu: count for gpu, count in counts.items() if count}


def _nvlink_faults(run: Run, reference: Run | None) -> Iterable[Fault]:
    here = active_nvlinks(run.header.machine)
    earlier = active_nvlinks(reference.header.machine) if reference else {}
    for gpu, (expected, source) in {**_expected_nvlinks(run.header.machine, here), **_as_earlier(earlier)}.items():
        count = here.get(gpu, 0)
        if count < expected:
            yield Fault(None, gpu, f"{gpu} has {count_text(count, 'active NVLink')}, and {source} has {expected}")


def _as_earlier(counts: Mapping[str, int]) -> dict[str, tuple[int, str]]:
    return {gpu: (count, f"{gpu} of the reference") for gpu, count in counts.items()}


def _expected_nvlinks(machine: Mapping[str, Any], here: Mapping[str, int]) -> dict[str, tuple[int, str]]:
    """The NVLinks that each GPU should have, and the source.

    GPUs at an NVSwitch are alike. GPUs with bridges between them may differ, so the bundled summary judges only models
    that it saw at a switch. A virtual machine of one GPU has no NVLinks, and that is no fault.
    """
    if not here or not _at_switch(machine):
        return {}
    expected = {}
    gpus = gpus_of(machine)
    for gpu in gpus:
        alike = {other.place: here.get(other.place, 0) for other in gpus if other.name == gpu.name}
        best = max(alike, key=lambda place: alike[place])
        summary = summaries().get(gpu.name)
        if summary and summary.nvlinks > alike[best]:
            expected[gpu.place] = summary.nvlinks, summary.text
        else:
            expected[gpu.place] = alike[best], best
    return expected


def _at_switch(machine: Mapping[str, Any]) -> bool:
    return any(link.get("remote") == "switch" for gpu in machine.get("gpus") or [] for link in gpu.get("nvlinks") or [])
