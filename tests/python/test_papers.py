"""Machine files of all papers: topology, sources of constants, drawings.

docs/notes/papers.md lists the items (CS-28, SP-2, …). test_paper_*.py contain the tests of single papers.
"""

import itertools
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import test_paper_comm_scope
import test_paper_klenk
import test_paper_microbench
import test_paper_spafford
from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.machine.model_paths import directed_links, routes
from paper_machines import rate, rates
from test_paper_jorda import RANGES
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

PAPERS = ("ac922", "s822lc", "4029gp", "minsky", "newell", "sl390", "dl160", "jorda-a", "jorda-b", "jorda-c",
          "klenk-extoll", "klenk-ib")  # fmt: skip
# Each number once, even if two machines have it; both machines are tested.
NUMBERS = [
    *test_paper_comm_scope.NUMBERS,
    *test_paper_spafford.NUMBERS,
    *test_paper_microbench.NUMBERS,
    *test_paper_klenk.NUMBERS,
]


# Topology


NEIGHBOURS = {
    "ac922": {"numa:0": {"gpu:0", "gpu:1"}, "numa:1": {"gpu:2", "gpu:3"}},
    "s822lc": {"numa:0": {"gpu:0", "gpu:1"}, "numa:1": {"gpu:2", "gpu:3"}},
    "minsky": {"numa:0": {"gpu:0", "gpu:1"}, "numa:1": {"gpu:2", "gpu:3"}},
    "newell": {"numa:0": {"gpu:0", "gpu:1"}, "numa:1": {"gpu:2", "gpu:3"}},
    "4029gp": {"numa:0": {f"gpu:{n}" for n in range(4)}, "numa:1": {f"gpu:{n}" for n in range(4, 8)}},
    "sl390": {"numa:0": {"gpu:0"}, "numa:1": {"gpu:1", "gpu:2"}},
    "dl160": {"numa:0": {f"gpu:{n}" for n in range(4)}},
    "jorda-a": {"numa:0": {"gpu:0", "gpu:1"}, "numa:1": {"gpu:2", "gpu:3"}},
    "jorda-b": {"numa:0": {"gpu:0"}, "numa:1": {"gpu:1"}},
    "jorda-c": {"numa:0": {f"gpu:{n}" for n in range(4)}},
    "klenk-extoll": {f"host:{n}/numa:0": {f"host:{n}/gpu:0"} for n in range(2)},
    "klenk-ib": {f"host:{n}/numa:0": {f"host:{n}/gpu:0"} for n in range(2)},
    "h200x8": {"numa:0": {f"gpu:{n}" for n in range(8)}},
}
PEERS = {
    "ac922": [range(4)], "newell": [range(4)], "s822lc": [(0, 1), (2, 3)], "minsky": [(0, 1), (2, 3)],
    "4029gp": [range(8)], "sl390": [], "dl160": [], "jorda-a": [(0, 1), (2, 3)], "jorda-b": [], "jorda-c": [range(4)],
    "klenk-extoll": [], "klenk-ib": [], "h200x8": [range(8)],
}  # fmt: skip
ITEMS = {
    "ac922": "CS-24", "s822lc": "CS-25", "4029gp": "CS-26", "minsky": "MB-6", "newell": "MB-6", "sl390": "SP-14",
    "dl160": "SP-14", "jorda-a": "JO-8", "jorda-b": "JO-8", "jorda-c": "JO-8", "klenk-extoll": "KL-11",
    "klenk-ib": "KL-11", "h200x8": "h200x4",
}  # fmt: skip


@pytest.mark.parametrize("machine", sorted(NEIGHBOURS))
def test_gpus_are_near_the_stated_node_and_peers_of_the_stated_gpus(machine: str) -> None:
    known = models.places(models.load(machine))
    near: dict[str, set[str]] = {}
    for gpu, numa in known.gpu_numa.items():
        near.setdefault(numa, set()).add(gpu)
    assert near == NEIGHBOURS[machine]
    pairs = {(f"gpu:{a}", f"gpu:{b}") for group in PEERS[machine] for a, b in itertools.permutations(group, 2)}
    assert known.peers == pairs
    assert ITEMS[machine] in models.bundled()[machine].read_text()


def test_gpus_share_the_stated_links_sp_14_jo_8() -> None:
    by_machine = {name: routes(models.load(name)) for name in ("sl390", "dl160", "jorda-a", "jorda-b", "jorda-c")}

    def first(machine: str, numa: str, gpu: str) -> str:
        return by_machine[machine][numa, gpu][0].name

    assert len({first("dl160", "numa:0", f"gpu:{n}") for n in range(4)}) == 1  # one x16 link to a switch
    assert first("sl390", "numa:1", "gpu:1") == first("sl390", "numa:1", "gpu:2") != first("sl390", "numa:0", "gpu:0")
    assert first("jorda-a", "numa:0", "gpu:0") == first("jorda-a", "numa:0", "gpu:1")  # two GPUs below an IOH
    assert (
        first("jorda-c", "numa:0", "gpu:0")
        == first("jorda-c", "numa:0", "gpu:1")
        != first("jorda-c", "numa:0", "gpu:2")
    )
    assert first("jorda-b", "numa:0", "gpu:0").startswith("qpi")
    assert {hop.link.kind for hop in by_machine["jorda-a"]["numa:0", "gpu:2"]} == {"qpi", "pcie"}


# h200x8


def test_h200x8_consists_of_two_halves_that_equal_h200x4() -> None:
    alike = {"numa:0 > gpu:5": "numa:0 > gpu:1", "gpu:6 > numa:0": "gpu:2 > numa:0", "gpu:1 > gpu:7": "gpu:1 > gpu:3"}
    for eight, four in alike.items():
        assert rate("h200x8", eight) == pytest.approx(rate("h200x4", four), rel=0.01)
    assert sum(rates("h200x8", *(f"numa:0 > gpu:{n}" for n in range(4)))) == pytest.approx(182, rel=0.01)
    assert sum(rates("h200x8", *(f"numa:0 > gpu:{n}" for n in range(8)))) == pytest.approx(364, rel=0.01)
    assert sum(rates("h200x8", *(f"gpu:{n} > numa:0" for n in range(8)))) == pytest.approx(300, rel=0.01)


# Bookkeeping


def constants(content: Any, key: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(content, dict):
        if "v" in content or ("from" in content and "via" not in content and "to" not in content):
            yield key, content
        for name, value in content.items():
            yield from constants(value, f"{key}.{name}")
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from constants(value, f"{key}[{index}]")


def every_constant() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{name}{key}", constant)
        for name in PAPERS
        for key, constant in constants(msgspec.to_builtins(models.load(name)))
    ]


PROVENANCE = {"published": "ref", "measured": "ref", "derived": "why", "assumed": "why", "fitted": "fitted_to"}


@pytest.mark.parametrize("machine", sorted(models.bundled()))
def test_every_constant_of_every_file_states_its_origin(machine: str) -> None:
    """Read from the text of the file, because the reader's defaults would hide a missing origin."""
    content = tomllib.loads(models.bundled()[machine].read_text())
    found = list(constants({name: table for name, table in content.items() if name != "route"}))
    assert len(found) > 30
    for key, constant in found:
        assert constant.get("from") in PROVENANCE, key
        assert constant.get(PROVENANCE[constant["from"]]), key
    bare = [key for key, _ in bare_numbers(content) if re.search(r"_(gbps|us|ns)$|efficiency$", key)]
    assert not bare, "a rate, a time or a fraction is a constant"


def bare_numbers(content: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """Numbers outside of constants."""
    if isinstance(content, dict) and "v" not in content:
        for name, value in content.items():
            yield from bare_numbers(value, f"{key}.{name}")
    elif isinstance(content, list):
        for value in content:
            yield from bare_numbers(value, key)
    elif isinstance(content, int | float):
        yield key, content


def fits() -> dict[str, list[str]]:
    return {key: constant["fitted_to"] for key, constant in every_constant() if constant["from"] == "fitted"}


def test_at_most_as_many_constants_are_fitted_as_there_are_fitted_items() -> None:
    items = {item for fitted_to in fits().values() for item in fitted_to}
    assert len(fits()) <= len(items)


def test_at_least_half_of_the_numbers_are_predictions() -> None:
    items = {item for fitted_to in fits().values() for item in fitted_to}

    def fitted(stated: list[str]) -> list[str]:
        return [name for name in stated if any(item.startswith(name.partition(" on ")[0]) for item in items)]

    everything = [*(number.item for number in NUMBERS), *RANGES]
    assert {"CS-28", "CS-29", "SP-2: H2D", "JO-10"} <= set(fitted(everything))
    assert len(fitted(everything)) <= len(everything) / 2
    # Without numbers that repeat a datasheet.
    simulated = [number.item for number in NUMBERS if "raw" not in number.found.__code__.co_names] + [*RANGES]
    assert len(fitted(simulated)) <= len(simulated) / 2


# Output


@pytest.mark.parametrize("machine", sorted(NEIGHBOURS))
def test_the_machine_is_drawn(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "--machine", machine]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"MODELLED {machine}")
    for gpu in models.places(models.load(machine)).gpus:
        assert sum(gpu in line and "GiB" in line for line in lines) == 1
    if "GPU to GPU, GB/s at most, from row to column:" in lines:
        matrix = lines[lines.index("GPU to GPU, GB/s at most, from row to column:") + 1 :]
        rows = [line for line in matrix if line.startswith(("gpu:", " " * 4))]
        assert len({len(row) for row in rows}) == 1, "columns are aligned"


def test_network_cards_are_next_to_the_stated_gpus_sp_14_jo_8() -> None:
    def gpus_beside(machine: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for link in directed_links(models.load(machine)):
            if link.to.startswith("nic:"):
                gpus = [
                    other.to
                    for other in directed_links(models.load(machine))
                    if other.start == link.start and "gpu" in other.to
                ]
                found[link.to] = gpus
        return found

    assert gpus_beside("sl390") == {"nic:0": ["gpu:0"]}
    assert gpus_beside("jorda-b") == {"nic:0": ["gpu:0"], "nic:1": ["gpu:1"]}
