"""Managed pages without peer access use NVLink: new runs are not failed by the peak of host memory, and old ones are
shown with the values that they have."""

import pytest

from fakes import facts, plan
from invented import point, run
from linkscope.machine import model as models
from linkscope.report.html import page
from linkscope.report.managed_peaks import REASON, mended_text, with_nvlink_peaks
from linkscope.report.verdict import verdict
from linkscope.run.assemble import Assembler
from linkscope.run.target import modelled
from linkscope.runfile import Point, PointId, Round, RoundFlow, Run
from test_report_agreement import without_links

ID = "prefetch/prefetch/gpu:0.managed->gpu:1.managed/16777216?bidirectional=false&peer={}"
NVLINK = {"limit_gbps": 478.12, "limit_source": "NVLink 4.0, 18 links x 26.56 GB/s, through NVSwitch = 478.1 GB/s"}
STAGED = {"limit_gbps": 57.61, "limit_source": "without peer access, staged in host memory: PCIe 5.0 x16"}
# The rounds of this point in results/h200x4-full.jsonl.gz: their median is 101.7 GB/s.
ROUNDS = [0.000155839995, 0.000146656007, 0.000173968003, 0.000239264005, 0.000174720004, 0.0001379360035]
ABOVE = "faster than the hardware allows: 101.7 GB/s from gpu:0 to gpu:1, where the limit is 57.61 GB/s (PCIe)"


def failed(rounds: list[float]) -> Point:
    made = point(ID.format("off"), 1.0, status="failed", reason=ABOVE, guards={"above_limit": 101.7}, **STAGED)
    made.flows[0].round_medians_s = rounds
    made.flows[0].median_s = made.flows[0].ci95_s = made.flows[0].gbps = None
    made.median_s = made.ci95_s = made.gbps = made.total_gbps = None
    return made


def old_run(rounds: list[float] = ROUNDS, **peak: object) -> Run:
    with_peer = point(ID.format("on"), 0.000175, **(peak or NVLINK))
    return run([with_peer, failed(rounds)], modelled=False)


def test_a_new_run_does_not_fail_managed_pages_without_peer_access_below_the_peak_of_nvlink() -> None:
    id = ID.format("off")
    target = modelled(models.load("h200x4"), 1)
    flows = [RoundFlow("gpu:0", "gpu:1", "managed", "managed", 16777216, "measured", [one]) for one in ROUNDS]
    rounds = [
        Round(id=id, round=number, flows=[flow], batch=[1], overhead_s=1e-6, timing="gate+slope", verified=True,
              guards={}, device_s=1e-3)
        for number, flow in enumerate(flows)
    ]  # fmt: skip
    found = Assembler(plan("d2d/*"), facts(), target.limit).point(id, rounds)
    assert found.limit_gbps == 478 and found.status == "missed_precision" and "above_limit" not in found.guards
    assert found.gbps == pytest.approx(101.7, abs=0.05)
    copy = target.limit(PointId.parse("d2d/ce/gpu:0.device->gpu:1.device/16777216?bidirectional=false&peer=off"))
    assert copy is not None and copy[0] == 58.45  # a plain copy goes through the host


def test_an_old_point_that_failed_by_the_peak_of_host_memory_has_its_value_and_the_peak_of_nvlink() -> None:
    _, found = with_nvlink_peaks(old_run()).points
    assert (found.status, found.reason, found.guards, found.limit_gbps) == ("missed_precision", REASON, {}, 478.12)
    assert found.gbps == found.total_gbps == found.flows[0].gbps == pytest.approx(101.7, abs=0.05)
    assert found.ci95_s == (min(ROUNDS), max(ROUNDS))
    text = without_links(page(old_run()))
    assert "1 point that the file calls failed has a value: an older version took the peak of host memory" in text
    assert "1 point failed" not in text and "failed" not in verdict(with_nvlink_peaks(old_run()), [])


def test_points_above_the_peak_of_nvlink_or_on_other_machines_stay_failed() -> None:
    fast = with_nvlink_peaks(old_run([16777216 / 500e9] * 6)).points[1]
    assert fast.status == "failed" and fast.limit_gbps == 478.12
    over_pcie = with_nvlink_peaks(old_run(limit_gbps=57.61, limit_source="directly over PCIe: PCIe 5.0 x16"))
    assert over_pcie.points[1].status == "failed" and over_pcie.points[1].limit_gbps == 57.61
    assert mended_text(over_pcie.points) == ""
    copies = [failed(ROUNDS), point(ID.format("on"), 1e-4, **NVLINK)]
    for one in copies:
        one.src_memory = one.dst_memory = "device"
    assert with_nvlink_peaks(run(copies)).points == copies
