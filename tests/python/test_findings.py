"""tools/findings.py: a finding holds, fails or stays undecided, depending on the rates it compares."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fake_driver import needs_worker
from linkscope.cli.main import main
from linkscope.model.curves import Estimate
from linkscope.runfile import read_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("findings", ROOT / "tools" / "findings.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["findings"] = made  # its dataclasses look up their module by name
    spec.loader.exec_module(made)
    return made


def verdict(tool: ModuleType, item: str, rate_of: Callable[[str, int], float], spread: float = 0.001):
    """The verdict for a machine whose rates are a function of id and size."""

    class Planted(tool.Rates):
        def rate(self, form: str, size: int, *, total: bool = False, **fields: object) -> Estimate:
            value = rate_of(form.format(size=size, **fields), size)
            return Estimate(value, value * (1 - spread), value * (1 + spread))

    planted = Planted([])
    planted.gpus = ["gpu:0", "gpu:1"]
    return tool.FINDINGS[item][1](planted).holds


def bidirectional_rates(pinned: float, pageable: float) -> Callable[[str, int], float]:
    def rate(id: str, size: int) -> float:
        gain = (pinned if ".pinned" in id else pageable) if "bidirectional=true" in id else 1.0
        return (50 if ".pinned" in id else 10) * gain

    return rate


def test_the_finding_about_bidirectional_copies(tool: ModuleType) -> None:
    assert verdict(tool, "CS-31", bidirectional_rates(1.95, 1.2)) is True
    assert verdict(tool, "CS-31", bidirectional_rates(1.3, 1.2)) is False
    assert verdict(tool, "CS-31", bidirectional_rates(1.95, 2.5)) is False


def test_the_findings_about_peers_and_their_link(tool: ModuleType) -> None:
    def rates(off: float) -> Callable[[str, int], float]:
        return lambda id, size: 55.0 if "numa" in id else off if "peer=off" in id else 390.0

    assert verdict(tool, "CS-33", rates(38.0)) is True
    assert (
        verdict(tool, "CS-33", rates(100.0)) is False
    )  # faster than the host link, which is impossible through the host
    assert verdict(tool, "CS-33", rates(38.0), spread=0.9) is None


def test_the_finding_that_pageable_copies_are_no_faster_than_memcpy(tool: ModuleType) -> None:
    def rates(to_gpu: float) -> Callable[[str, int], float]:
        return lambda id, size: 8.0 if "h2h" in id else to_gpu if "pageable" in id else 55.0

    assert verdict(tool, "CS-30", rates(7.0)) is True
    assert verdict(tool, "CS-30", rates(10.0)) is False
    assert verdict(tool, "CS-30", rates(10.0), spread=0.2) is None


def test_the_finding_that_zero_copy_reaches_the_rate_and_drops(tool: ModuleType) -> None:
    def rates(share: float, last: float) -> Callable[[str, int], float]:
        return lambda id, size: 50.0 * (share * (last if size == 256 << 20 else 1) if "/sm/" in id else 1)

    assert verdict(tool, "CS-35", rates(1.0, 0.7)) is True
    assert verdict(tool, "CS-35", rates(1.0, 1.0)) is False
    assert verdict(tool, "CS-35", rates(0.9, 0.7)) is False


def test_the_finding_that_demand_paging_needs_threads(tool: ModuleType) -> None:
    def rates(per_thread: float) -> Callable[[str, int], float]:
        def rate(id: str, size: int) -> float:
            if "threads=" in id:
                return 4 + per_thread * int(id.rpartition("=")[2])
            return 12.0 if "demand" in id else 8.0

        return rate

    assert verdict(tool, "CS-36", rates(1.0)) is True
    assert verdict(tool, "CS-36", rates(0.0)) is not True


def test_the_finding_that_prefetch_is_slow_only_at_middle_sizes(tool: ModuleType) -> None:
    def rates(middle: float, large: float) -> Callable[[str, int], float]:
        return lambda id, size: 50.0 * ((large if size == 256 << 20 else middle) if "prefetch" in id else 1)

    assert verdict(tool, "CS-37", rates(0.4, 0.97)) is True
    assert verdict(tool, "CS-37", rates(0.4, 0.8)) is False
    assert verdict(tool, "CS-37", rates(0.95, 0.97)) is False


def test_the_finding_that_caches_exceed_the_memory_rate(tool: ModuleType) -> None:
    def rates(peak: float) -> Callable[[str, int], float]:
        return lambda id, size: peak if "cache=hot" in id and size == 1 << 20 else 9.0

    assert verdict(tool, "CS-38", rates(20.0)) is True
    assert verdict(tool, "CS-38", rates(9.0)) is not True


def test_missing_points_are_named_and_can_be_listed(tool: ModuleType) -> None:
    lines = list(tool.tables([]))
    assert sum("not testable" in line for line in lines) == len(tool.FINDINGS)
    needed = tool.needed(gpus=2)
    assert len(needed) > 80 and all(id.count("/") == 3 for id in needed)


def test_no_point_is_asked_of_a_gpu_or_a_numa_node_that_the_machine_lacks(tool: ModuleType) -> None:
    one, two = tool.needed(gpus=1), tool.needed(gpus=2)
    assert any("gpu:1" in id for id in two) and not any("gpu:1" in id or "numa:1" in id for id in one)
    assert set(one) < set(two)


def test_two_gpus_have_too_few_pairs_for_classes(tool: ModuleType) -> None:
    with pytest.raises(tool.Missing, match="one pair"):
        verdict(tool, "CS-34", lambda id, size: 390.0)


def test_the_finding_about_advice_counts_what_can_be_followed(tool: ModuleType) -> None:
    def rates(pinned: float) -> Callable[[str, int], float]:
        def rate(id: str, size: int) -> float:
            if "d2d" in id or "numa:1" in id:
                raise tool.Missing(id)
            if "threads=" in id:
                return 4.0 + int(id.rpartition("=")[2])
            return pinned if ".pinned" in id else 10.0

        return rate

    assert verdict(tool, "CS-39", rates(50.0)) is True
    assert verdict(tool, "CS-39", rates(5.0)) is False


def test_a_run_of_suite_comm_scope_has_the_points_of_every_finding(tool: ModuleType) -> None:
    from linkscope.plan import SUITES
    from linkscope.plan.enumerate import points_of
    from linkscope.run import benchmark_table
    from linkscope.run.target import choose

    measured = {str(point) for point in points_of(SUITES["comm-scope"], choose("ac922", 1).facts, benchmark_table())}
    assert {tool.of_suite(id) for id in tool.needed(gpus=2)} <= measured


@needs_worker
def test_a_run_of_suite_comm_scope_states_each_finding(tool: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    globs = [word for size in tool.CURVE for word in ("--only", f"*/{size}")] + [
        word for size in tool.CURVE for word in ("--only", f"*/{size}?*")
    ]
    assert main(["run", "--machine", "h200x1", "--suite", "comm-scope", *globs, "-q", "-o", str(path)]) == 0
    rows = [line for line in tool.tables(read_run(path, rounds=False).points) if line.startswith("| CS-")]
    answers = {row.split(" | ")[0][2:]: row.split(" | ")[2].removesuffix(" |") for row in rows}
    assert list(answers) == [f"CS-{number}" for number in range(30, 40)]
    assert answers["CS-32"] == "not testable: the machine shows one NUMA node"
    assert answers["CS-33"] == "not testable: the machine has one GPU"
    assert answers["CS-34"] == "not testable: the machine has one GPU; classes need three GPUs"
    others = {item: answer for item, answer in answers.items() if item not in ("CS-32", "CS-33", "CS-34")}
    assert set(others.values()) <= {"**holds**", "**does not hold**", "not testable: the intervals overlap"}
    assert others["CS-37"] == "**does not hold**" and others["CS-39"] == "**holds**"


def test_a_finding_without_its_points_names_one(tool: ModuleType) -> None:
    (row,) = [line for line in tool.tables([]) if line.startswith("| CS-30")]
    first = "h2d/ce/numa:0.pageable->gpu:0.device/1048576?after=kernel&bidirectional=false&mode=batched"
    assert row.endswith(f"not testable: the run has no rate of {first} |")
