"""Points of several flows: the peak of one flow, totals of all flows, overlaps of all rounds."""

import re
from typing import Any

import pytest
from msgspec import structs

from fakes import H2D, facts, plan
from invented import flow as invented_flow
from invented import point as invented_point
from invented import run as invented_run
from linkscope.machine import model as models
from linkscope.machine.limits import Limit
from linkscope.model.curves import share_of, total_of
from linkscope.report.details import details
from linkscope.report.overview import overview
from linkscope.report.partial import Partial
from linkscope.run.assemble import Assembler
from linkscope.run.target import modelled, this_machine
from linkscope.runfile import Point, PointId, Round, RoundFlow

SIZE = 64 << 20
BOTH = H2D.format(SIZE, "true", "batched")
THERE, BACK = ("numa:0", "gpu:0", "pinned", "device"), ("gpu:0", "numa:0", "device", "pinned")


def rounds(*rates: float, overlaps: tuple[float, ...] = (1.0,) * 6, ends: Any = (THERE, BACK)) -> list[Round]:
    """Six rounds with these rates of the flows in GB/s and these overlaps."""
    made = []
    for number, overlap in enumerate(overlaps):
        flows = [
            RoundFlow(*of, SIZE, "measured", [SIZE / rate / 1e9] * 3) for of, rate in zip(ends, rates, strict=True)
        ]
        made.append(
            Round(
                id=BOTH, round=number, flows=flows, batch=[4] * len(flows), overhead_s=1e-6, timing="gate+slope",
                verified=True, guards={"joint_overlap": overlap, "together_s": SIZE / min(rates) / 1e9}, device_s=1e-3,
            )
        )  # fmt: skip
    return made


def two_flows(there: float, back: float, limit: float | None = 60.0, **fields: Any) -> Point:
    """The point of two flows with these rates and a hardware limit of `limit` for each."""
    found = (limit, "the test says so") if limit else None
    return Assembler(plan(BOTH), facts(), lambda _: found).point(BOTH, rounds(there, back, **fields))


def test_a_bidirectional_point_has_the_peak_of_one_flow_and_its_total_may_exceed_it() -> None:
    point = two_flows(54.0, 48.0)
    assert point.status == "ok" and "above_limit" not in point.guards
    assert point.limit_gbps == 60.0 and point.total_gbps == pytest.approx(96.0)
    assert share_of(point) == pytest.approx(0.9)  # of the first flow, not of both or their mean


@pytest.mark.parametrize(("there", "back", "wrong"), [(61.0, 20.0, "numa:0 to gpu:0"), (20.0, 61.0, "gpu:0 to numa:0")])
def test_one_flow_above_its_limit_fails_even_if_the_total_is_below_twice_the_limit(
    there: float, back: float, wrong: str
) -> None:
    point = two_flows(there, back)
    assert point.status == "failed" and f"from {wrong}" in (point.reason or "") and "60 GB/s" in (point.reason or "")
    assert point.guards["above_limit"] == pytest.approx(61.0)
    assert two_flows(60.5, 60.5).status == "ok"  # limits have a margin of 1 %


SPLIT = f"split/ce/numa:0.pinned->gpu:0.device/{2 * SIZE}?streams=2"


def in_parts(*rates: float, **fields: Any) -> Point:
    made = Assembler(plan(BOTH), facts(), lambda _: (60.0, "the test says so"))
    return made.point(SPLIT, [structs.replace(one, id=SPLIT) for one in rounds(*rates, ends=[THERE] * 2, **fields)])


def test_flows_of_one_direction_on_several_streams_have_one_limit_for_their_total() -> None:
    point = in_parts(28.0, 27.0)
    assert point.status == "ok" and share_of(point) == pytest.approx(54 / 60)
    wrong = in_parts(40.0, 35.0)
    assert wrong.status == "failed" and "70 GB/s from numa:0 to gpu:0" in (wrong.reason or "")
    assert wrong.guards["above_limit"] == pytest.approx(70.0)


def test_parts_that_ran_in_turn_have_a_rate_and_a_note() -> None:
    point = in_parts(28.0, 27.0, overlaps=(0.5,) * 6)
    assert point.status == "ok" and point.reason is None and "in_turn" not in point.guards
    (family,) = overview([point])
    assert family.rows[0].note == "its parts overlapped for 50 % of the time"
    assert family.rows[0].note in " ".join(details(invented_run([point]), width=120, colour=False).split())
    assert overview([two_flows(54.0, 48.0)])[0].rows[0].note == ""


def test_the_actors_of_one_computation_may_wait_for_each_other() -> None:
    id, ends = "lu_gpus/sm/gpu:0.device->gpu:0.device/0?gpus=01", [("gpu:0", "gpu:0", "device", "device")] * 2
    made = [structs.replace(one, id=id) for one in rounds(54.0, 54.0, overlaps=(0.5,) * 6, ends=ends)]
    for one in made:
        one.flows = [
            structs.replace(flow, bytes=0, role=role, operations=operations)
            for flow, role, operations in zip(one.flows, ("measured", "background"), (1e9, None), strict=True)
        ]
    assert "in_turn" not in Assembler(plan(BOTH), facts(), lambda _: None).point(id, made).guards


def test_threads_whose_calls_ran_in_turn_have_no_time_of_their_own() -> None:
    """They move no bytes, so they have no joint rate."""
    id, ends = "launch/cpu/numa:0.pageable->gpu:0.device/0?threads=2", [("numa:0", "gpu:0", "pageable", "device")] * 2
    made = [structs.replace(one, id=id) for one in rounds(54.0, 54.0, overlaps=(0.5,) * 6, ends=ends)]
    for one in made:
        one.flows = [structs.replace(flow, bytes=0) for flow in one.flows]
    point = Assembler(plan(BOTH), facts(), lambda _: None).point(id, made)
    assert point.status == "missed_precision" and point.guards["in_turn"]


def test_a_row_of_several_numbers_of_streams_has_the_range_of_their_overlaps() -> None:
    two = in_parts(28.0, 27.0, overlaps=(0.5,) * 6)
    four = structs.replace(two, id=two.id.replace("=2", "=4"), params={"streams": "4"})
    four.guards = two.guards | {"joint_overlap": 0.25}
    (family,) = overview([two, four])
    assert [row.note for row in family.rows] == ["its parts overlapped for 25-50 % of the time"]


def test_the_live_table_shows_the_percentage_of_peak_of_all_flows_of_one_direction() -> None:
    so_far = Partial([SPLIT], lambda _: (60.0, "the test says so"))
    for one in rounds(28.0, 27.0, ends=[("numa:0", "gpu:0", "pinned", "device")] * 2):
        so_far.add(structs.replace(one, id=SPLIT))
    (row,) = so_far.rows()
    assert row.rate == pytest.approx(54.0) and row.share == pytest.approx(54 / 60)


def test_the_live_table_shows_the_total_and_the_first_flows_percentage_of_peak() -> None:
    so_far = Partial([BOTH], lambda _: (60.0, "the test says so"))
    for one in rounds(54.0, 48.0):
        so_far.add(one)
    (before,) = so_far.rows()
    so_far.add(two_flows(54.0, 48.0))
    (after,) = so_far.rows()
    for row in (before, after):
        assert row.rate == pytest.approx(96.0) and row.share == pytest.approx(0.9)


def test_the_summary_shows_the_total_and_one_directions_percentage_of_peak() -> None:
    """Flows of 54 and 48 GB/s, limit 60 GB/s: the total is twice 48 GB/s, and the first flow reaches 90 % of peak."""
    point = two_flows(54.0, 48.0)
    (family,) = overview([point])
    (row,) = family.rows
    assert row.rate is not None and row.rate.value == pytest.approx(96.0)
    assert row.share == (pytest.approx(0.9), pytest.approx(0.9))
    line = next(
        line for line in details(invented_run([point]), width=120, colour=False).splitlines() if "numa:0 →" in line
    )
    assert re.search(r" 96\.0\S* .* 90 %", line), line


def test_between_one_place_and_all_gpus_each_flow_has_a_limit_and_the_total_has_none() -> None:
    id = "host_to_all/ce/numa:0.pinned->gpu:all.device/67108864?bidirectional=false"
    limit = modelled(models.load("h200x4"), 1).limit
    ends = [("numa:0", f"gpu:{gpu}", "pinned", "device") for gpu in range(4)]
    made = Assembler(plan(BOTH), facts(gpus=4), limit)
    point = made.point(id, rounds(50.0, 40.0, 45.0, 58.0, ends=ends))
    assert point.status == "ok" and point.limit_gbps is None and share_of(point) is None
    assert point.total_gbps == pytest.approx(160.0) and total_of(point).value == pytest.approx(160.0)  # type: ignore[union-attr]
    point.limit_gbps = 58.45
    assert share_of(point) is None  # all flows share the link
    point = made.point(id, rounds(50.0, 40.0, 45.0, 60.0, ends=ends))
    assert point.status == "failed" and "from numa:0 to gpu:3" in (point.reason or "")


# A simulated H200: 4800 GB/s of memory, 478 GB/s of NVLink, 58.45 GB/s of PCIe. A copy within a GPU's memory reads
# and writes the memory, so its limit is half; a read or a write has the full rate. Limits between places are unchanged.
LIMITS = {
    "local/ce/gpu:0.device->gpu:0.device/8?mode=batched": 2400.0,
    "local/sm/gpu:0.device->gpu:0.device/8?mode=batched": 2400.0,
    "read/sm/gpu:0.device->gpu:0.device/8?blocks=sms": 4800.0,
    "write/sm/gpu:0.device->gpu:0.device/8?blocks=sms": 4800.0,
    "read/sm/gpu:1.device->gpu:0.device/8?blocks=sms": 478.0,
    "write/sm/gpu:0.device->gpu:1.device/8?blocks=sms": 478.0,
    "read/sm/numa:0.pinned->gpu:0.device/8?blocks=sms": 58.45,
    "d2d/ce/gpu:0.device->gpu:1.device/8?bidirectional=false&mode=batched&peer=on": 478.0,
    "d2d/ce/gpu:0.device->gpu:1.device/8?bidirectional=true&mode=batched&peer=on": 478.0,
    "h2d/ce/numa:0.pinned->gpu:0.device/8?bidirectional=false&mode=batched": 58.45,
    "h2d/ce/numa:0.pinned->gpu:0.device/8?bidirectional=true&mode=batched": 58.45,
    "exchange/sm/numa:0.pinned->gpu:0.device/8?blocks=sms": 58.45,
}


@pytest.mark.parametrize(("id", "gbps"), LIMITS.items(), ids=LIMITS)
def test_the_limit_of_a_simulated_machine_is_that_of_one_flow(id: str, gbps: float) -> None:
    found = modelled(models.load("h200x4"), 1).limit(PointId.parse(id))
    assert found is not None and found[0] == pytest.approx(gbps, abs=0.01)
    assert ("either read or written: 4800 GB/s" in found[1]) == (gbps == 4800.0)


@pytest.mark.parametrize(("id", "gbps"), LIMITS.items(), ids=LIMITS)
def test_the_limit_of_this_machine_is_that_of_one_flow(id: str, gbps: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is unchanged except for reads and writes within one memory."""
    monkeypatch.setattr("linkscope.machine.limits.limit", lambda *_, **__: Limit(100.0, "the test says so"))
    found = this_machine().limit(PointId.parse(id))
    assert found is not None and found[0] == (200.0 if gbps == 4800.0 else 100.0)


@pytest.mark.parametrize(
    ("overlaps", "overlap", "status"),
    [
        ((0.5, 0.9, 0.88, 0.92, 0.95, 1.0), 0.91, "ok"),  # one of six rounds ran in turn
        ((0.5, 0.8, 0.8, 0.88, 1.0, 1.0), 0.84, "missed_precision"),
        ((0.5, 0.5, 0.5, 0.5, 0.9, 1.0), 0.5, "missed_precision"),  # the last round does not represent the others
    ],
)
def test_the_overlap_of_a_point_is_the_median_of_its_rounds(
    overlaps: tuple[float, ...], overlap: float, status: str
) -> None:
    point = two_flows(54.0, 48.0, overlaps=overlaps)
    assert point.guards["joint_overlap"] == pytest.approx(overlap) and point.status == status
    assert ("in_turn" in point.guards) == (status != "ok")
    assert point.total_gbps == pytest.approx(96.0)  # by the same definition at every overlap
    assert [flow.gbps for flow in point.flows] == pytest.approx([54.0, 48.0])


# Batches of 4 and 10 copies of 64 MiB; each flow's own time per copy in ms; the time in which both batches end.
JOINT = {
    "flows that end together": ([4, 10], (5.0, 2.0), 20.0),
    "an overlap of 0.9": ([4, 10], (4.5, 2.0), 20.0),
    "an overlap of 0.8": ([4, 10], (4.0, 2.0), 20.0),
    "flows in turn": ([4, 10], (2.0, 3.8), 38.0),
}


@pytest.mark.parametrize("written", [True, False], ids=["with together_s", "by a version without together_s"])
@pytest.mark.parametrize(("batch", "own_ms", "ends_ms"), JOINT.values(), ids=JOINT)
def test_the_total_is_all_bytes_over_the_time_until_the_last_flow_ends(
    batch: list[int], own_ms: tuple[float, float], ends_ms: float, written: bool
) -> None:
    """14 copies move until the last flow ends, whatever the overlap, and each flow keeps its own rate."""
    shortest, longest = sorted(count * own for count, own in zip(batch, own_ms, strict=True))
    made = rounds(*(SIZE / own / 1e6 for own in own_ms), overlaps=(shortest / longest,) * 6)
    for one in made:
        one.batch = batch
        one.guards = {"joint_overlap": shortest / longest} | (
            {"together_s": ends_ms * 1e-3 * 2 / sum(batch)} if written else {}
        )
    point = Assembler(plan(BOTH), facts(), lambda _: None).point(BOTH, made)
    assert point.total_gbps == pytest.approx(14 * SIZE / ends_ms / 1e6)
    assert [flow.median_s for flow in point.flows] == pytest.approx([own * 1e-3 for own in own_ms])
    assert (point.status, "in_turn" in point.guards) == (
        ("ok", False) if shortest >= 0.85 * longest else ("missed_precision", True)
    )


def test_rounds_above_and_below_85_percent_overlap_share_one_definition() -> None:
    """Each round moves 128 MiB in 20 ms. Own times stay as measured, so no round differs from the others."""
    made = rounds(6.0, SIZE / 20e-3 / 1e9, overlaps=(0.8, 0.9, 0.8, 0.9, 0.9, 0.9))
    point = Assembler(plan(BOTH), facts(), lambda _: None).point(BOTH, made)
    assert point.status == "ok" and point.total_gbps == pytest.approx(2 * SIZE / 20e-3 / 1e9)
    assert len(set(point.flows[0].round_medians_s)) == 1
    assert point.guards["together_ci95_s"] == pytest.approx([20e-3, 20e-3])


def test_the_total_of_flows_in_turn_survives_a_negative_time_of_one_flow() -> None:
    """One engine served the first flow last in the shorter batch and first in the longer one."""
    made = rounds(54.0, 48.0, overlaps=(0.4,) * 6)
    for one in made:
        one.flows[0].samples_s = [-1e-6] * 3
    point = Assembler(plan(BOTH), facts(), lambda _: None).point(BOTH, made)
    assert point.status == "missed_precision" and point.guards["in_turn"]
    assert point.total_gbps == pytest.approx(96.0)
    assert point.median_s is None and point.gbps is None and point.flows[1].gbps == pytest.approx(48.0)


def test_flows_in_turn_on_one_path_are_compared_with_the_limit_by_their_total() -> None:
    """A link of 60 GB/s serves two parts in turn: 55 GB/s for the first, then both have ended at 27.5 GB/s each."""
    point = in_parts(55.0, 27.5, overlaps=(0.5,) * 6)
    assert point.status == "ok" and point.total_gbps == pytest.approx(55.0)


def test_a_background_flow_is_in_no_total() -> None:
    made = rounds(54.0, 48.0)
    for one in made:
        one.flows[1].role = "background"
        one.guards["together_s"] = SIZE / 54e9
    point = Assembler(plan(BOTH), facts(), lambda _: None).point(BOTH, made)
    total = total_of(point)
    assert total is not None and point.total_gbps == total.value == total.high == pytest.approx(54.0)
    so_far = Partial([BOTH], lambda _: None)
    so_far.add(made[0])
    assert so_far.rows()[0].rate == pytest.approx(54.0)


@pytest.mark.parametrize(
    ("times_s", "gbps"), [((1e-3, 1.1e-3, -2e-3), SIZE / 1e-3 / 1e9), ((1e-3, -1e-3, -2e-3), None), ((0.0,), None)]
)
def test_the_live_table_takes_the_median_time_of_all_rounds_and_shows_no_rate_below_zero(
    times_s: tuple[float, ...], gbps: float | None
) -> None:
    so_far = Partial([BOTH], lambda _: None)
    for one, together_s in zip(rounds(54.0, 48.0), times_s, strict=False):
        one.flows[1].role = "background"
        one.guards["together_s"] = together_s
        so_far.add(one)
    assert [row.rate for row in so_far.rows()] == ([pytest.approx(gbps)] if gbps else [])


def test_the_ends_of_a_totals_interval_are_the_sums_of_those_of_its_flows() -> None:
    """Each flow has an interval from 98 to 102 % of its median time."""
    point = invented_point(BOTH, SIZE / 50e9)
    point.flows[1] = invented_flow("gpu:0", "numa:0", ("device", "pinned"), SIZE, SIZE / 25e9)
    point.total_gbps = 75.0
    total = total_of(point)
    assert total is not None and (total.low, total.high) == (pytest.approx(75 / 1.02), pytest.approx(75 / 0.98))
