"""What the site keeps of a run file: enough for all pages except the run's own."""

import hashlib
import re
from collections import Counter
from typing import Any

import msgspec

from linkscope.report.wires import wires
from linkscope.runfile import Run
from linkscope.runfile.methods import current, version
from linkscope.site.kinds import Cell

_SLUG = 40  # letters of a name in an address
DIGITS = 10  # hexadecimal digits of a hash in an address


class Entry(msgspec.Struct):
    """A run file on the site. `content`: SHA-256 of its text; `doubts`: why values are not compared.

    `links`: those of the machine's map; `measured_links`: their directions with a rate. `report`: whether its page is
    the report; None where it has no page yet.
    """

    content: str
    slug: str
    machine: str
    name: str
    title: str
    modelled: bool
    started: str
    suite: str
    rule: str
    points: int
    valued: int
    driver: str
    links: int
    measured_links: int
    doubts: list[str]
    report: bool | None = None

    @property
    def folder(self) -> str:
        """The folder of the run's pages in the site."""
        return f"m/{self.machine}/{self.slug}"

    @property
    def page(self) -> str:
        """The address of the run's page: its report, or its main values with links."""
        return f"{self.folder}/index.html"

    @property
    def download(self) -> str:
        """The address of the run file in the site, which is compressed."""
        return f"{self.folder}/run.jsonl.gz"

    @property
    def date(self) -> str:
        """The day on which the run started; '' if the file does not say."""
        found = re.match(r"\d{4}-\d\d-\d\d", self.started)
        return found[0] if found else ""

    @property
    def heading(self) -> str:
        """'2026-11-22, standard'."""
        return ", ".join(filter(None, (self.date, self.suite or "no suite")))


class Summary(msgspec.Struct):
    """The file summary.json of a run, for programs and for the pages that compare machines."""

    machine: str
    run: str
    modelled: bool
    started: str
    cells: list[Cell]


def entry_of(run: Run, content: str) -> Entry:
    """The entry of a run whose text has this SHA-256."""
    header, links = run.header, wires(run)
    name = str(header.machine.get("name") or "machine")
    suite = str(header.plan.get("suite") or "")
    day = re.match(r"\d{4}-\d\d-\d\d", header.started)
    driver = header.machine.get("driver")
    return Entry(
        content=content,
        slug="-".join(filter(None, (day[0] if day else "", slug(suite), content[:DIGITS]))),
        machine=f"{slug(name)}-{fingerprint(header.machine)[:DIGITS]}",
        name=name,
        title=title(header.machine),
        modelled=run.modelled,
        started=header.started,
        suite=suite,
        rule=str(header.plan.get("rule") or "linkscope"),
        points=len(run.points),
        valued=sum(point.median_s is not None for point in run.points),
        driver=str((driver if isinstance(driver, dict) else {}).get("version") or ""),
        links=len(links),
        measured_links=sum((wire.there is not None) + (wire.back is not None) for wire in links),
        doubts=doubts(run),
    )


def doubts(run: Run) -> list[str]:
    """Why values of a run are not compared with those of other runs: rule, method version, no value."""
    rule = str(run.header.plan.get("rule") or "linkscope")
    found = [] if rule == "linkscope" else [f"measured by the rule {rule}, whose values are not comparable"]
    if not any(point.median_s is not None for point in run.points):
        found.append("no point has a value")
    for benchmark, now in current(point.benchmark for point in run.points).items():
        if (by := version(run.header, benchmark)) != now:
            found.append(f"{benchmark} was measured by method {by}, and the site compares method {now}")
    return found


def fingerprint(machine: dict[str, Any]) -> str:
    """A hash of what makes two machines perform alike: GPUs, CPU, NUMA nodes and links; of a model its whole file.

    It has no serial numbers, so all nodes of one type are one machine, also in anonymous run files.
    """
    if isinstance(model := machine.get("model"), dict):
        told: Any = model
    else:
        told = {
            "gpus": [_kept(gpu, _GPU) for gpu in _tables(machine.get("gpus"))],
            "cpu": _kept(machine.get("cpu"), ("model", "architecture", "sockets", "cores", "threads")),
            "numa": [_kept(node, ("index", "distances")) for node in _tables(machine.get("numa"))],
            "pairs": [
                _kept(pair, ("src", "dst", "peer", "level", "nvlinks")) for pair in _tables(machine.get("pairs"))
            ],
        }
        if hosts := _tables(machine.get("hosts")):  # of a merged run
            nodes = [node for host in hosts if isinstance(node := host.get("machine"), dict)]
            told["hosts"] = [fingerprint(node) for node in nodes]
    return hashlib.sha256(msgspec.json.encode([machine.get("name"), told], order="deterministic")).hexdigest()


_GPU = ("name", "memory_bytes", "sms", "compute_capability", "nvlink_gbps", "c2c_gbps")


def _tables(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _kept(table: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: table.get(name) for name in names} if isinstance(table, dict) else {}


def title(machine: dict[str, Any]) -> str:
    """'4 × NVIDIA H200'; the title of a model; without GPUs the CPU; '' if nothing is known."""
    if machine.get("title"):
        return str(machine["title"])
    gpus = Counter(str(gpu.get("name") or "GPU") for gpu in _tables(machine.get("gpus")))
    cpu = machine.get("cpu")
    cpu_name = str(cpu.get("model") or "") if isinstance(cpu, dict) else ""
    return ", ".join(f"{count} × {name}" for name, count in gpus.items()) or cpu_name


def slug(text: str) -> str:
    """Lower-case letters, digits and hyphens, for an address."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_SLUG].strip("-")


def anchor(point_id: str) -> str:
    """The anchor of a point: it depends on the id only, so it stays when runs are added."""
    return "p-" + hashlib.sha256(point_id.encode()).hexdigest()[:DIGITS]
