"""`linkscope check` passes healthy nodes, names the part at fault, and never blames hardware without evidence."""

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from gate_proofs import parts, slowed

from campaign import sample
from invented import point, run
from linkscope.check import gate
from linkscope.check.gate import _cure_of_scatter, _disturbed
from linkscope.check.notes import absent, busy
from linkscope.check.parts import parts_at_fault
from linkscope.check.physics import faults_by_physics
from linkscope.check.references import Reference
from linkscope.check.sensitivity import sensitivity_text, smallest_fault
from linkscope.cli.main import main
from linkscope.compare.verdict import Comparison, Pair
from linkscope.machine import model as models
from linkscope.run.target import choose, modelled
from linkscope.runfile import Run, read_run
from linkscope.stats import Interval
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]
MACHINES = Path(__file__).parents[2] / "machines"
H2D = "h2d/ce/numa:0.pinned->gpu:{}.device/16777216?after=kernel&bidirectional=false&mode=batched"
D2D = "d2d/ce/gpu:{}.device->gpu:{}.device/16777216?mode=batched&peer=on"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("check")


@pytest.fixture(scope="module")
def baseline(folder: Path) -> Path:
    path = folder / "baseline.jsonl"
    assert main(["check", "--machine", "h200x4", "--save-baseline", str(path)]) == 0
    return path


def with_slow_link(folder: Path, link: str, pair: str, factor: float) -> Path:
    """h200x4 with one pair of a link at a fraction of its rate, in both directions."""
    path = folder / f"{link}-{pair.replace(':', '')}-{factor}.toml"
    path.write_text(slowed((MACHINES / "h200x4.toml").read_text(), link, pair, factor))
    return path


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    capsys.readouterr()
    status = main(["check", *map(str, words), "--json"])
    return status, json.loads(capsys.readouterr().out)


# Without a reference all bundled nodes with GPUs pass; those of several hosts have no second GPU to compare with.
HEALTHY = (
    "4029gp", "ac922", "dl160", "h200x1", "h200x4", "jorda-a", "jorda-b", "jorda-c", "minsky", "newell", "s822lc",
    "sl390",
)  # fmt: skip


@pytest.mark.parametrize("machine", sample(("h200x1", "h200x4", "ac922", "sl390"), HEALTHY))
def test_healthy_machines_pass_without_a_reference(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = checked(capsys, "--machine", machine)
    assert (status, answer["status"], answer["parts"]) == (0, "pass", []), answer
    assert answer["modelled"] and answer["against"].startswith("physics")


def test_unchanged_nodes_pass_against_their_baseline(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(2, 5):
        status, answer = checked(capsys, "--machine", "h200x4", "--against", baseline, "--seed", seed)
        assert status == 0, answer
        assert "is detected with 95 % probability" in answer["summary"]


@pytest.mark.parametrize("factor", [0.5, 0.9, 0.95])
def test_a_slow_host_link_of_one_gpu_is_named(
    factor: float, baseline: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = with_slow_link(folder, "pcie", "gpu:1", factor)
    status, answer = checked(capsys, "--machine", node, "--against", baseline)
    assert status == 1 and "the link between numa:0 and gpu:1" in {part["name"] for part in answer["parts"]}
    named = {place for part in answer["parts"] for path in part["paths"] for place in path}
    assert not named & {"gpu:0", "gpu:2", "gpu:3"}, answer["parts"]


def test_a_gpu_whose_nvlinks_are_slow_is_named(
    baseline: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One NVLink of 18 is missing: 5.6 % of the rate."""
    node = with_slow_link(folder, "nvlink", "gpu:2", 17 / 18)
    status, answer = checked(capsys, "--machine", node, "--against", baseline)
    assert status == 1
    assert all("gpu:2" in path for part in answer["parts"] for path in part["paths"])
    assert sum(len(part["paths"]) for part in answer["parts"]) == 6


def test_a_link_of_half_width_is_found_without_a_reference(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = with_slow_link(folder, "nvlink", "gpu:2", 0.5)
    status, answer = checked(capsys, "--machine", node)
    assert status == 1 and all("gpu:2" in path for part in answer["parts"] for path in part["paths"])


def test_one_line_for_a_log_and_every_point_on_request(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", "--machine", "h200x4", "--against", str(baseline)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("linkscope check: PASS MODELLED h200x4: ") and "Compared with" not in text
    assert main([*words, "--explain"]) == 0
    assert f"Compared with {baseline}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words, status, said",
    [
        (["--machine", "h200x4", "--budget", "1ms"], 5, "too small"),
        (["--machine", "h200x4", "--budget", "never"], 2, "--budget never"),
        (["--machine", "h200x4", "--against", "nowhere.jsonl"], 2, "nowhere.jsonl"),
        (["--machine", "h200x9"], 2, "h200x9"),
        (["--machine", "klenk-ib", "--budget", "0s"], 2, "above zero"),
        (["--machine", "h200x4", "--against", "x.jsonl", "--save-baseline", "y.jsonl"], 2, "leave out --against"),
    ],
)
def test_what_cannot_be_checked_is_explained(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *words]) == status
    printed = capsys.readouterr()
    assert said in printed.out + printed.err


def test_a_node_with_fewer_gpus_than_its_baseline_fails(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, answer = checked(capsys, "--machine", "h200x2", "--against", baseline)
    assert status == 1 and answer["summary"].startswith("gpu:2, gpu:3 of the reference is missing")
    assert absent(None, run([])) == []


def test_a_machine_file_without_stated_accuracy_is_used_with_a_wide_margin(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    against = str(MACHINES / "h200x4.toml")
    status, answer = checked(capsys, "--machine", "h200x4", "--against", against)
    assert status == 0 and any("states no error" in line for line in answer["evidence"])
    node = with_slow_link(folder, "pcie", "gpu:1", 0.5)
    assert checked(capsys, "--machine", node, "--against", against)[0] == 1


@pytest.mark.parametrize(
    "first, second, status",
    [
        (1.04e-3, 1.04e-3, "fail"),
        (1.04e-3, 1e-3, "pass"),
        (1.3e-3, 1e-3, "pass"),  # one measurement far off
        (1.04e-3, None, "inconclusive"),
    ],
)
def test_a_suspect_counts_if_both_measurements_show_it(first: float, second: float | None, status: str) -> None:
    def measured(seconds: float) -> Run:
        points = [point(H2D.format(gpu), 1e-3) for gpu in range(8)]
        points[0].flows[0].round_medians_s = [seconds * factor for factor in (0.99, 0.995, 1.0, 1.0, 1.005, 1.01)]
        for one in points[1:]:
            one.flows[0].round_medians_s = [1e-3 * factor for factor in (0.99, 0.995, 1.0, 1.0, 1.005, 1.01)]
        return run(points)

    def again(ids: Sequence[str]) -> Run | str:
        asked_for.append(ids)
        return measured(second) if second else "the budget of 60 s ran out"

    asked_for: list[Sequence[str]] = []
    asked = gate.Check(modelled(models.load("h200x4"), 1), Reference("baseline", measured(1e-3)), 60.0, 1)
    verdict = gate.judge(asked, measured(first), again)
    assert verdict.status == status, verdict
    assert asked_for == [[H2D.format(0)]]
    if second is None:
        assert verdict.summary == "the budget of 60 s ran out before 1 suspect could be measured again"


@pytest.mark.parametrize("factor, status", [(1.045, "pass"), (1.055, "fail")])
def test_a_suspect_must_be_slower_than_chance_makes_one_check_in_ten_thousand(factor: float, status: str) -> None:
    """Eight points share the false alarms, so both measurements of one suspect need a chance of 1 in 80,000."""

    def measured(seconds: float) -> Run:
        points = [point(H2D.format(gpu), 1e-3) for gpu in range(8)]
        for number, one in enumerate(points):
            usual = 1e-3 if number else seconds
            one.flows[0].round_medians_s = [usual * part for part in (0.98, 0.99, 1.0, 1.0, 1.01, 1.02)]
        return run(points)

    asked = gate.Check(modelled(models.load("h200x4"), 1), Reference("baseline", measured(1e-3)), 60.0, 1)
    verdict = gate.judge(asked, measured(1e-3 * factor), lambda ids: measured(1e-3 * factor))
    assert verdict.status == status, verdict
    if status == "pass":
        assert verdict.summary == "1 point seemed slow, and not when measured again"


def test_the_stated_smallest_fault_exceeds_the_margin_and_the_noise() -> None:
    pair = Pair(
        point(H2D.format(0), 1e-3), point(H2D.format(0), 1e-3), "equivalent", 1.0, Interval(0.99, 1.01, 0.95), 0.03
    )
    assert smallest_fault(pair, 0.05) == pytest.approx(1.05 * (1.01 / 0.99) ** 0.5 - 1)
    assert smallest_fault(pair, 0.0) == 0.03
    compared = Comparison([pair], (0.05, 0.05, 0.02))
    assert sensitivity_text(compared, {}) == "A slowdown of 3 % (pinned) is detected with 95 % probability."
    noisy = Comparison([dataclasses.replace(pair, detectable=0.2)], compared.margins)
    assert sensitivity_text(noisy, {}).strip().endswith("(smallest detectable slowdown in brackets): pinned (20 %).")


# --- parts ---

PATHS = [("numa:0", f"gpu:{n}") for n in range(4)] + [(f"gpu:{n}", "numa:0") for n in range(4)]
PEERS = [(f"gpu:{a}", f"gpu:{b}") for a in range(4) for b in range(4) if a != b]


@pytest.mark.parametrize(
    "slow, expected",
    [
        ([], []),
        ([path for path in PATHS + PEERS if "gpu:2" in path], ["gpu:2"]),
        (PATHS, ["the host side"]),
        ([("gpu:0", "gpu:1"), ("gpu:1", "gpu:0")], ["the link between gpu:0 and gpu:1"]),
        ([("numa:0", "gpu:3"), ("gpu:3", "numa:0")], ["the link between numa:0 and gpu:3"]),
        ([("gpu:3", "numa:0")], ["the link between numa:0 and gpu:3, in the direction to numa:0"]),
        ([("gpu:1", "gpu:1")], ["the memory of gpu:1"]),
    ],
)
def test_the_part_that_explains_all_slow_paths_is_named(slow: list[tuple[str, str]], expected: list[str]) -> None:
    found = parts_at_fault(slow, PATHS + PEERS + [("gpu:1", "gpu:1")])
    assert [part.name for part in found] == expected
    assert sorted(path for part in found for path in part.paths) == sorted(slow)


def test_one_gpu_cannot_show_which_end_of_its_link_is_at_fault() -> None:
    both = [("numa:0", "gpu:0"), ("gpu:0", "numa:0")]
    assert [part.name for part in parts_at_fault(both, both)] == ["the link between numa:0 and gpu:0, or the host"]


# --- evidence without a reference ---


def one_class(src: str, dst: str) -> str:
    return "all"


def test_a_rate_far_below_the_peak_is_a_fault() -> None:
    made = [point(H2D.format(0), 16777216 / gbps / 1e9, limit_gbps=58.4) for gbps in (28.0, 32.0)]
    assert "48 % of its peak" in faults_by_physics(run(made[:1]), one_class)[0].evidence
    assert faults_by_physics(run(made[1:]), one_class) == []


def test_a_point_that_was_too_short_for_the_clock_is_no_fault_of_the_node() -> None:
    short = point(H2D.format(0), None, status="failed", reason="too short for the clock: the batch took no longer")
    wrong = point(H2D.format(1), None, status="failed", reason="wrong data: byte 3 of 16")
    assert [fault.point for fault in faults_by_physics(run([short, wrong]), one_class)] == [wrong]


def test_a_path_slower_than_its_class_is_a_fault_only_among_three_or_more() -> None:
    made = [point(D2D.format(0, n), 16777216 / 395e9, limit_gbps=478.0) for n in (1, 2, 3)]
    made[2] = point(D2D.format(0, 3), 16777216 / 350e9, limit_gbps=478.0)
    (fault,) = faults_by_physics(run(made), one_class)
    assert fault.point is made[2] and "1.13 × the median time of 3 paths" in fault.evidence
    assert faults_by_physics(run(made[1:]), one_class) == []


def test_a_slow_link_of_a_busy_gpu_is_inconclusive_without_a_reference_too(monkeypatch, folder: Path, capsys) -> None:
    node = with_slow_link(folder, "pcie", "gpu:1", 0.4)
    assert checked(capsys, "--machine", node)[0] == 1
    monkeypatch.setattr("linkscope.check.gate.busy", lambda machine, environment: ["gpu:1 was used by 1 other process"])
    status, answer = checked(capsys, "--machine", node)
    assert status == 5 and "gpu:1 was used by 1 other process: check an idle node" in answer["summary"]


def test_other_users_of_a_gpu_are_named_before_measuring(monkeypatch, capsys) -> None:
    told: list[str] = []

    def cut_off(*_: object, **__: object) -> None:
        told.append(capsys.readouterr().err)
        raise RuntimeError("cut off")

    monkeypatch.setattr("linkscope.check.busy", lambda machine, environment: ["gpu:1 was used by 1 other process"])
    monkeypatch.setattr("linkscope.check.gate.measure", cut_off)
    with pytest.raises(RuntimeError, match="cut off"):
        main(["check", "--machine", "h200x1"])
    assert told == ["linkscope check: gpu:1 was used by 1 other process\n"]


def test_a_busy_gpu_or_widely_scattered_rounds_make_a_slow_point_inconclusive() -> None:
    used = run([], modelled=False, gpus=[{"index": n, "pci": f"0000:0{n}:00.0"} for n in (0, 1)])
    states = [{"pci": "0000:00:00.0", "processes": 0}, {"pci": "0000:01:00.0", "processes": 2}]
    used.header.environment["gpus"] = states
    assert busy(used.header.machine, used.header.environment) == ["gpu:1 was used by 2 other processes"]
    calm, wild = point(H2D.format(0), 1e-3), point(H2D.format(0), 1.5e-3)
    calm.flows[0].round_medians_s = [1e-3, 1.001e-3, 1.002e-3]
    wild.flows[0].round_medians_s = [1.1e-3, 1.5e-3, 1.9e-3]
    slow = Pair(calm, wild, "slower", 1.5, Interval(1.3, 1.7, 0.95), 0.05)
    assert "another load uses the same link" in _disturbed([slow], 1, [])
    assert "check an idle node" in _disturbed([slow], 1, busy(used.header.machine, used.header.environment))
    wild.flows[0].round_medians_s = [1.5e-3, 1.501e-3, 1.502e-3]
    assert _disturbed([slow], 1, []) == ""


# --- tools/gate_proofs.py ---


def test_the_parts_of_a_run_have_disjoint_rounds() -> None:
    made = run([point(H2D.format(0), 1e-3), point(D2D.format(0, 1), 1e-3)], modelled=False)
    made.points[0].flows[0].round_medians_s = [float(n) for n in range(1, 8)]
    made.points[1].flows[0].round_medians_s = [1.0, 2.0, 3.0]
    found = parts(made, 3, random.Random(1))
    assert [[p.id for p in of.points] for of in found] == [[H2D.format(0)]] * 3
    rounds = [of.points[0].flows[0].round_medians_s for of in found]
    assert [len(of) for of in rounds] == [2, 2, 2] and len({value for of in rounds for value in of}) == 6


def test_a_check_whose_points_mostly_scatter_is_inconclusive(folder: Path, monkeypatch, capsys) -> None:
    """Under another load, rounds scatter so much that a change of 10 % would not be seen."""
    baseline = str(folder / "calm.jsonl")
    assert main(["check", "--machine", "h200x4", "--save-baseline", baseline]) == 0
    capsys.readouterr()
    assert checked(capsys, "--machine", "h200x4", "--against", baseline)[0] == 0
    for few, said in ((11, "only 11 of 42 points can be judged; "), (0, "no point of the reference can be judged; ")):
        calm = {of.id for of in read_run(Path(baseline)).points[:few]}
        monkeypatch.setattr("linkscope.compare.verdict.Pair.judged", property(lambda pair, of=calm: pair.id in of))
        status, answer = checked(capsys, "--machine", "h200x4", "--against", baseline)
        assert status == 5 and said in answer["summary"], answer
        assert "Rounds of the reference differ by" in answer["summary"]


def test_the_side_whose_rounds_scatter_decides_what_to_do() -> None:
    calm, wild = (point(H2D.format(0), 1e-3) for _ in range(2))
    wild.flows[0].round_medians_s = [1e-3, 2e-3, 3e-3]
    for before, after, cure in (
        (wild, calm, "save a new baseline"),
        (calm, wild, "check again when nothing"),
    ):
        pair = Pair(before, after, "no change seen", 1.0, Interval(0.5, 2.0, 0.95), detectable=3.0)
        assert cure in _cure_of_scatter(Comparison([pair], (0.02,) * 3))


def test_a_node_without_a_gpu_says_what_the_bus_and_cuda_show(
    monkeypatch, capsys, folder: Path, baseline: Path
) -> None:
    usual = choose("h200x1", 1)
    facts = dataclasses.replace(usual.facts, places=("numa:0",), modelled=False)

    def checked_on(machine: dict, *words: str) -> tuple[int, str]:
        found = dataclasses.replace(usual, facts=facts, machine=machine)
        monkeypatch.setattr("linkscope.run.target.choose", lambda name, seed: found)
        return main(["check", *words]), capsys.readouterr().err

    dead = {"pci_gpus": ["0000:1b:00.0", "0000:43:00.0"], "driver": {"cuda_why_not": "CUDA_ERROR_NO_DEVICE"}}
    status, text = checked_on(dead)
    assert status == 3 and "2 NVIDIA GPUs on the PCI bus; CUDA_ERROR_NO_DEVICE. If the node should" in text
    assert "no NVIDIA GPU on the PCI bus" in checked_on({"driver": {"cuda_why_not": "there is no CUDA driver here"}})[1]
    for missing in ("nowhere.jsonl", "nowhere.jsonl.gz", "nowhere.toml"):
        status, text = checked_on(dead, "--against", missing)
        assert status == 2 and missing in text
    assert f"{baseline} is of a node with 4 GPUs" in checked_on(dead, "--against", str(baseline))[1]
