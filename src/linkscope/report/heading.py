"""The head of the page: the machine in large letters, its software in one line, and serious warnings."""

import datetime
import re
from collections import Counter
from typing import Any

from linkscope.report.counters import counter_findings
from linkscope.report.outcome import run_text, took_text
from linkscope.report.verdict import FEW, incomplete, warnings
from linkscope.runfile import Run, shown_status


def machine_title(run: Run) -> str:
    """'4 × NVIDIA H200'; for a machine without known GPUs its CPU or name."""
    machine = run.header.machine
    names = _gpu_names(machine)
    if names:
        return " + ".join(f"{count} × {name}" for name, count in Counter(names).items())
    cpu = _dict(machine.get("cpu"))
    if cpu.get("model") and "gpus" in machine:
        return f"{_short(str(cpu['model']))}, no GPU"
    return str(machine.get("name") or machine.get("title") or "a machine without a name")


def facts(run: Run) -> list[str]:
    """Driver, CUDA, CPU, date and duration: what the run file states of them."""
    machine = run.header.machine
    driver, cpu = _dict(machine.get("driver")), _dict(machine.get("cpu"))
    pcie = _dict(_first(machine.get("gpus")).get("pcie"))
    found = [
        f"driver {driver['version']}" if driver.get("version") else "",
        f"CUDA {driver['cuda_version']}" if driver.get("cuda_version") else "",
        f"PCIe {pcie['max_generation']}.0 x{pcie['width']}" if pcie.get("max_generation") and pcie.get("width") else "",
        f"{_short(str(cpu['model']))}, {cpu.get('cores', '?')} cores" if cpu.get("model") else "",
        _date(run.header.started),
        took_text(run) if run.end is not None else "",
    ]
    return [text for text in found if text]


def details(run: Run) -> list[str]:
    """What the page folds away: suite, rounds, seed and counts; the name of the machine; the version of linkscope."""
    machine, tool = run.header.machine, run.header.tool
    named = ": ".join(str(machine[key]) for key in ("name", "title") if machine.get(key))
    return [
        run_text(run), f"machine {named}" if named else "", f"started {run.header.started}",
        f"linkscope {tool.get('version', '')}".strip(),
    ]  # fmt: skip


def serious(run: Run) -> list[str]:
    """Warnings that concern the whole run: it is incomplete, many points failed, or data were lost."""
    failed = sum(shown_status(point) == "failed" for point in run.points)
    lost = [finding.text for finding in counter_findings(run) if finding.kind == "errors"]
    many = [text for text, bad in warnings(run) if bad and text not in lost and failed > FEW * len(run.points)]
    return [*incomplete(run), *lost, *many]


def minor(run: Run) -> list[str]:
    """The warnings of the run file, the environment and the probe."""
    return [*run.warnings, *_listed(run.header.environment), *_listed(run.header.machine)]


def _gpu_names(machine: dict[str, Any]) -> list[str]:
    """The name of each GPU of a probed machine or of a model."""
    probed = machine.get("gpus")
    if isinstance(probed, list):
        return [str(gpu["name"]) for gpu in probed if isinstance(gpu, dict) and gpu.get("name")]
    kinds = _dict(machine.get("model")).get("gpu")
    found: list[str] = []
    for kind in kinds if isinstance(kinds, list) else []:
        at = _dict(_dict(kind).get("at"))
        found += [str(_dict(kind).get("title", "GPU"))] * sum(len(of) for of in at.values() if isinstance(of, list))
    return found


def _short(model: str) -> str:
    """A CPU without (R) and other signs that do not tell CPUs apart."""
    return " ".join(re.sub(r"\((R|TM)\)|CPU @.*|Processor$", " ", model).split())


def _date(started: str) -> str:
    """'22 November 2026'."""
    try:
        of = datetime.datetime.fromisoformat(started)
    except ValueError:
        return ""
    return f"{of.day} {of:%B %Y}"


def _listed(facts: dict[str, Any]) -> list[str]:
    """The warnings of the environment or the probe: texts, or objects with a text."""
    listed = facts.get("warnings")
    if not isinstance(listed, list):
        return []
    return [str(one.get("text") or one.get("message") or one) if isinstance(one, dict) else str(one) for one in listed]


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(value: Any) -> dict[str, Any]:
    return _dict(value[0]) if isinstance(value, list) and value else {}
