"""`linkscope check` says what it compared with, and judges only what the reference and the counters can show."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from bundled_summary import summarized

from invented import point, run
from linkscope.check import bundled, earlier_run, gate, physics
from linkscope.check.links import faults_of_links
from linkscope.check.notes import unread
from linkscope.check.references import Reference
from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.plan import MachineFacts
from linkscope.run.target import Target, modelled
from linkscope.runfile import Point, Run
from test_gate import baseline, checked, folder, with_slow_link
from test_sim_machines import pytestmark

__all__ = ["baseline", "folder", "pytestmark"]
ROOT = Path(__file__).parents[2]
H2D = "h2d/ce/numa:{}.pinned->gpu:0.device/16777216?after=kernel&bidirectional=false&mode=batched"
LOAD = "latency/sm/numa:0.pinned->gpu:0.device/0?cache=cold&range=2MiB"
H200 = "NVIDIA H200"
SLOWEST_S = 305.8e-6  # of H2D in bundled.toml


def node(points: Sequence[Point], gpus: int = 1, name: str = H200, **facts: object) -> Run:
    """A measured run of a node with some GPUs of one model on numa:0."""
    made = [
        {"index": n, "name": name, "numa": 0, "pci": f"0000:0{n}:00.0", "uuid": f"GPU-{n}", **facts}
        for n in range(gpus)
    ]
    places = ["numa:0", *(f"gpu:{n}" for n in range(gpus))]
    return run(list(points), modelled=False, gpus=made, places=places, driver={"version": "580.1"})


def judged(first: Run, reference: Reference, second: Run | None = None) -> gate.Verdict:
    """The verdict on a run; the second measurement is like the first."""
    facts = MachineFacts("node", False, tuple(first.header.machine["places"]))
    target = Target(facts, {}, lambda point: None, first.header.machine)
    return gate.judge(gate.Check(target, reference, 60.0, 1), first, lambda ids: second or first)


# --- the bundled summary ---


def test_the_committed_summary_is_made_from_the_committed_runs() -> None:
    made = summarized(map(str, (ROOT / "results").glob("*.jsonl.gz")))
    assert bundled.FILE.read_text() == made, "run `python tools/bundled_summary.py results/*.jsonl.gz`"


def test_the_bundled_summary_is_the_default_reference_and_states_its_runs(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [checked(capsys, "--machine", "h200x4", *words) for words in ([], ["--against", "bundled"])]
    assert answers[0] == answers[1]
    of_h200 = bundled.summaries()[H200]
    assert (
        f"the bundled summary of NVIDIA H200 ({of_h200.runs} runs of {of_h200.gpus} GPUs)" in answers[0][1]["against"]
    )


def test_explain_prints_the_peak_and_the_summary_of_every_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--machine", "h200x4", "--explain"]) == 0
    peaks, summary = capsys.readouterr().out.split("Compared with the bundled summary:\n")
    assert peaks.count(" of 58.45 GB/s (") == 8 and "at least half is required" in peaks
    assert summary.count("the slowest takes 305.8 µs, and up to 382.2 µs pass") == 4


def test_a_gpu_model_without_a_summary_is_judged_by_physics_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, answer = checked(capsys, "--machine", "ac922", "--against", "bundled")
    assert (status, answer["against"]) == (0, "physics")
    assert "the bundled summary has no Tesla V100-SXM2-32GB" in answer["evidence"][0]


@pytest.mark.parametrize("times, status", [(1.2, "pass"), (1.3, "fail")])
def test_only_times_far_beyond_the_slowest_known_gpu_are_faults(times: float, status: str) -> None:
    first = node([point(H2D.format(0), SLOWEST_S * times)])
    verdict = judged(first, physics(first.header.machine))
    assert verdict.status == status, verdict
    if status == "fail":
        assert "the slowest takes 305.8 µs" in verdict.evidence[0]
        assert verdict.summary == "at fault: the link between numa:0 and gpu:0, or the host (numa:0 → gpu:0)"


def test_a_point_that_is_slow_only_once_is_no_fault() -> None:
    slow, well = node([point(H2D.format(0), SLOWEST_S * 2)]), node([point(H2D.format(0), SLOWEST_S)])
    verdict = judged(slow, physics(slow.header.machine), well)
    assert (verdict.status, verdict.summary) == ("pass", "1 point seemed slow, and not when measured again")


def test_the_summary_allows_for_other_hosts() -> None:
    """The socket without the GPU, a slot of half the peak, and another CPU's memory are slower on healthy nodes."""
    far = node([point(H2D.format(1), SLOWEST_S * 2)])
    far.header.machine["places"].append("numa:1")
    assert bundled.faults_by_summary(far) == []
    assert bundled.faults_by_summary(node([point(H2D.format(0), SLOWEST_S * 2, limit_gbps=29.2)])) == []
    assert bundled.faults_by_summary(node([point(LOAD, 1.8e-6)])) == []
    assert len(bundled.faults_by_summary(node([point(LOAD, 2.6e-6)]))) == 1


def test_the_summary_judges_nothing_that_another_method_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = node([point(H2D.format(0), SLOWEST_S * 2)])
    assert len(bundled.faults_by_summary(slow)) == 1
    monkeypatch.setattr(bundled, "current", lambda names: dict.fromkeys(names, 99))
    assert bundled.faults_by_summary(slow) == []


# --- a machine file ---


def with_errors(folder: Path, ninety: float) -> Path:
    """h200x4 that states the errors of its copies to a GPU."""
    path = folder / f"errors-{ninety}.toml"
    row = f'"h2d by ce, pinned -> device" = {{ points = 20, median = 0.01, ninety = {ninety} }}'
    path.write_text((ROOT / "machines" / "h200x4.toml").read_text() + f"\n[deviation]\n{row}\n")
    return path


@pytest.mark.parametrize("ninety, slow", [(0.02, True), (0.2, False)])
def test_each_operation_has_the_error_that_the_machine_file_states_for_it(
    ninety: float, slow: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    against = with_errors(folder, ninety)
    changed = with_slow_link(folder, "pcie", "gpu:1", 0.85)
    status, answer = checked(capsys, "--machine", changed, "--against", against)
    at_fault = {path["id"] for path in answer["points"] if path["verdict"] == "slower"}
    assert (status == 1) == slow and any(id.startswith("h2d") for id in at_fault) == slow
    (note,) = (line for line in answer["evidence"] if line.startswith("MODELLED reference"))
    assert f"margins of {100 * max(0.05, 2 * ninety):.0f} to" in note and "twice the p90 error" in note
    assert "d2h by ce, device -> pinned" in note and "times more than 25 % longer are found" in note


# --- links ---


def with_link(state: str | None, reference: str | None = None, **pcie: int) -> list[str]:
    """The evidence of links for one GPU whose points saw a PCIe state."""
    runs = []
    for seen in (state, reference):
        made = node([point(H2D.format(0), 3e-4)], pcie={"max_generation": 5, "max_width": 16, **pcie})
        made.points[0].guards["gpu:0"] = {"pcie": seen} if seen else {}
        runs.append(made)
    return [fault.evidence for fault in faults_of_links(runs[0], runs[1] if reference else None)]


def test_a_pcie_link_below_its_width_or_generation_under_load_is_a_fault() -> None:
    assert with_link("gen5 x16") == []
    said = "the PCIe link of gpu:0 runs at {} under load, and the GPU and its slot allow gen5 x16"
    for state in ("gen5 x8", "gen4 x16"):
        assert with_link(state) == [said.format(state)]
    assert with_link("gen4 x16", reference="gen4 x16") == []
    assert "the reference has gen5 x16" in with_link("gen5 x8", reference="gen5 x16")[0]


@pytest.mark.parametrize(
    "states", [("gen1 x16", "gen5 x16"), ("gen5 x16", "gen1 x16"), ("gen5 x8", "gen5 x16"), ("gen5 x16", "gen5 x8")]
)
def test_the_best_state_counts_because_a_link_between_copies_is_slower(states: tuple[str, str]) -> None:
    made = node([point(H2D.format(0), 3e-4), point(LOAD, 1e-6)], pcie={"max_generation": 5, "max_width": 16})
    for one, state in zip(made.points, states, strict=True):
        one.guards["gpu:0"] = {"pcie": state}
    assert faults_of_links(made) == []


def test_an_idle_link_is_judged_by_its_width_alone() -> None:
    """An idle GPU lowers the generation of its link, and not the width."""
    assert with_link(None, generation=1, width=16) == []
    assert "runs at x8, and" in with_link(None, generation=1, width=8)[0]


def linked(*active: int, name: str = H200, remote: str = "switch") -> Run:
    """A node whose GPUs have some active NVLinks of 18."""
    made = node([], len(active), name)
    for gpu, count in zip(made.header.machine["gpus"], active, strict=True):
        gpu["nvlinks"] = [{"index": n, "active": n < count, "remote": remote} for n in range(18)]
    return made


@pytest.mark.parametrize(
    "first, reference, said",
    [
        (linked(18, 18), None, []),
        (linked(17, 18), None, ["gpu:0 has 17 active NVLinks, and gpu:1 has 18"]),
        (linked(17, 17), None, [f"gpu:{n} has 17 active NVLinks, and {bundled.summaries()[H200].text} has 18"
                                for n in (0, 1)]),
        (linked(0), None, []),  # a virtual machine of one GPU
        (linked(12, 4, name="GPU with bridges", remote="gpu"), None, []),
        (linked(12, 4, name="GPU with bridges", remote="gpu"), linked(12, 8, remote="gpu"),
         ["gpu:1 has 4 active NVLinks, and gpu:1 of the reference has 8"]),
        (linked(18, 0), linked(18, 18), ["gpu:1 has 0 active NVLinks, and gpu:1 of the reference has 18"]),
    ],
)  # fmt: skip
def test_missing_nvlinks_are_found_where_their_number_is_known(
    first: Run, reference: Run | None, said: list[str]
) -> None:
    assert [fault.evidence for fault in faults_of_links(first, reference)] == said


def test_a_fault_of_a_link_fails_the_check_also_against_an_earlier_run_and_on_a_busy_gpu() -> None:
    good = node([point(H2D.format(0), SLOWEST_S)], pcie={"max_generation": 5, "max_width": 16})
    bad = node([point(H2D.format(0), SLOWEST_S)], pcie={"max_generation": 5, "max_width": 16})
    good.points[0].guards["gpu:0"] = {"pcie": "gen5 x16"}
    bad.points[0].guards["gpu:0"] = {"pcie": "gen4 x16"}
    bad.header.environment["gpus"] = [{"pci": "0000:00:00.0", "processes": 1}]
    verdict = judged(bad, earlier_run(good, "good.jsonl", bad.header.machine))
    assert (verdict.status, verdict.exit_code, verdict.summary) == ("fail", 1, "at fault: gpu:0")
    assert "the reference has gen5 x16" in verdict.evidence[0]


# --- counters ---


def test_error_counters_that_cannot_be_read_are_named_and_judge_nothing() -> None:
    made = linked(18, 18)
    states = [{"pci": gpu["pci"], "ecc_uncorrected": 0, "nvlink_errors": {"recovery": 0}}
              for gpu in made.header.machine["gpus"]]  # fmt: skip
    made.points.append(point(H2D.format(0), 3e-4))
    made.points[0].guards |= {gpu: {"pcie": "gen5 x16"} for gpu in ("gpu:0", "gpu:1")}
    made.header.environment["gpus"] = states
    assert unread(made) == []
    without = linked(0, 0)  # GPUs without NVLinks have no counters of NVLinks
    without.points.extend(made.points)
    without.header.environment["gpus"] = [state | {"nvlink_errors": "hidden"} for state in states]
    assert unread(without) == []
    for state in states:
        state["ecc_uncorrected"] = "hidden"
    states[1]["nvlink_errors"] = "hidden"
    end = "cannot be read: the check judges nothing from them"
    assert unread(made) == [
        f"the error counters ecc_uncorrected of gpu:0 {end}",
        f"the error counters ecc_uncorrected, nvlink_recovery of gpu:1 {end}",
    ]
    made.points[0].guards["gpu:1"] = {}
    assert "the PCIe state of gpu:1 under load cannot be read" in unread(made)[-1]
    made.header.environment |= {"gpus": [], "gpus_why_not": "no permission"}
    assert unread(made) == ["no error counter or link state can be read (no permission): the check judges nothing from "
                            "them"]  # fmt: skip
    verdict = judged(made, physics(made.header.machine))
    assert verdict.status == "pass" and any("no permission" in line for line in verdict.evidence)


# --- a baseline that differs ---


def rewritten(path: Path, name: str, change: Callable[[dict], object]) -> Path:
    """The baseline with another first line."""
    first, *rest = path.read_text().splitlines(keepends=True)
    header = json.loads(first)
    change(header)
    made = path.with_name(name)
    made.write_text(json.dumps(header) + "\n" + "".join(rest))
    return made


def test_a_baseline_of_another_gpu_model_is_inconclusive_and_physics_still_judges(
    baseline: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def other_gpus(header: dict) -> None:
        header["machine"]["model"]["gpu"][0]["title"] = "NVIDIA B200"

    other = rewritten(baseline, "b200.jsonl", other_gpus)
    status, answer = checked(capsys, "--machine", "h200x4", "--against", other)
    said = f"{other} is of NVIDIA B200 and this node has NVIDIA H200, so times cannot be compared"
    assert status == 5 and answer["summary"].startswith(said)
    assert answer["summary"].endswith("; physics and the bundled summary show no fault")
    slow = with_slow_link(folder, "nvlink", "gpu:2", 0.5)
    assert checked(capsys, "--machine", slow, "--against", other)[0] == 1


def test_a_baseline_of_another_driver_is_compared_and_the_driver_is_named() -> None:
    first, earlier = node([point(H2D.format(0), SLOWEST_S)]), node([point(H2D.format(0), SLOWEST_S)])
    earlier.header.machine["driver"] = {"version": "570.9"}
    verdict = judged(first, earlier_run(earlier, "good.jsonl", first.header.machine))
    assert verdict.exit_code == 0
    assert verdict.evidence[0].startswith("the reference has driver 570.9, this node 580.1") and any(
        "save a new baseline" in line for line in verdict.evidence
    )


def test_points_of_an_older_method_are_not_compared(baseline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for methods, said, expected in (({"d2d": 1}, "12 points not compared: the reference measured d2d by another", 0),
                                    (dict.fromkeys(("h2d", "d2h", "d2d", "latency", "host_to_all", "all_to_host"), 0),
                                     "42 points not compared", 5)):  # fmt: skip
        older = rewritten(baseline, "older.jsonl", lambda header, of=methods: header["tool"]["methods"].update(of))
        status, answer = checked(capsys, "--machine", "h200x4", "--against", older)
        assert status == expected and any(line.startswith(said) for line in answer["evidence"]), answer
    assert answer["summary"].startswith("no point of the reference can be judged")


def test_gpus_that_the_baseline_lacks_are_named_and_judged_without_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = folder / "two.jsonl"
    assert main(["check", "--machine", "h200x2", "--save-baseline", str(two)]) == 0
    status, answer = checked(capsys, "--machine", "h200x4", "--against", two)
    assert status == 0
    assert "not in the reference: gpu:2, gpu:3; physics and the bundled summary judge their paths" in answer["evidence"]
    assert "joint host traffic is not compared: it is of 2 GPUs in the reference, and of 4 here" in answer["evidence"]
    slow = with_slow_link(folder, "pcie", "gpu:3", 0.4)
    status, answer = checked(capsys, "--machine", slow, "--against", two)
    assert status == 1 and all("gpu:3" in path for part in answer["parts"] for path in part["paths"])


def test_a_path_that_is_no_longer_supported_is_a_fault() -> None:
    peer = "d2d/ce/gpu:0.device->gpu:1.device/16777216?mode=batched&peer=on"
    good, bad = node([point(peer, 4.6e-5), point(H2D.format(0), 3e-4)], 2), node([point(H2D.format(0), 3e-4)], 2)
    bad.points.append(point(peer, status="unsupported", reason="no peer access"))
    verdict = judged(bad, earlier_run(good, "good.jsonl", bad.header.machine))
    assert verdict.status == "fail" and "no peer access; the reference measured this path" in verdict.evidence[0]


def test_a_budget_that_ends_before_the_second_measurement_is_inconclusive(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = modelled(models.load(str(with_slow_link(folder, "pcie", "gpu:1", 0.4))), 1)
    clock = iter((0.0, 59.9))
    monkeypatch.setattr(gate, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(gate, "_measured", lambda asked, plan, path, stop: slow)
    slow = node([point(H2D.format(0), SLOWEST_S * 2)])
    verdict = gate.check(gate.Check(target, physics(target.machine), 60.0, 1), tmp_path, stop=None)
    assert (verdict.exit_code, verdict.summary) == (5, "the budget of 60 s ran out before 1 suspect could be measured "
                                                       "again")  # fmt: skip
