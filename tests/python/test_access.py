"""SM accesses, cache states and bound host threads on simulated machines, from the table to the run file."""

import pytest

from linkscope.machine import model as models
from linkscope.plan import SUITES, case_of, footprint, make_plan
from linkscope.plan.enumerate import points_of
from linkscope.run import benchmark_table, measure
from linkscope.run.target import modelled
from linkscope.runfile import PointId, read_run
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

MIB = 1 << 20
PAPER = "blocks=256&threads=256&width=4"


def full(machine):
    return points_of(SUITES["full"], modelled(models.load(machine), 1).facts, benchmark_table())


def measured(machine, folder, *only):
    target = modelled(models.load(machine), 1)
    chosen = make_plan(target.facts, benchmark_table(), suite="full", only=only, seed=1)
    assert chosen.points
    measure(target, chosen, folder / "run.jsonl")
    return read_run(folder / "run.jsonl").points


@pytest.mark.parametrize("suite", ["quick", "standard", "nvbandwidth", "sm"])
def test_suites_other_than_full_have_no_access_parameters(suite):
    machine = modelled(models.load("h200x2"), 1).facts
    new = {"width", "stride", "order", "cpu", "advice", "ranges", "discard", "touch", "step"}
    for point in points_of(SUITES[suite], machine, benchmark_table()):
        assert not new & set(dict(point.params))
        assert not {"written", "dirty"} & set(dict(point.params).values())
        assert point.benchmark not in ("read", "write") or not point.bidirectional


def test_the_full_suite_has_every_width_stride_order_and_bidirectional_access_once():
    points = [p for p in full("h200x2") if p.benchmark in ("read", "write") and p.bytes == 64 * MIB]
    assert len(points) == len(set(points))
    found = {name: {p.param(name) for p in points} - {""} for name in ("width", "stride", "order")}
    assert found == {
        "width": {"4", "8"}, "order": {"random"}, "stride": {"32", "64", "128", "256", "512", "1024", "4096"},
    }  # fmt: skip
    assert {p.param("blocks") for p in points} >= {"sms", "256"}
    both = {(p.benchmark, p.src, p.dst) for p in points if p.bidirectional}
    assert both == {("read", "numa:0", "gpu:0"), ("read", "gpu:0", "gpu:1"), ("write", "gpu:0", "gpu:1")}


def test_a_host_thread_is_bound_to_every_other_existing_node():
    of = {}
    for point in full("ac922"):
        if point.benchmark in ("h2d", "d2h", "host_to_all", "all_to_host") and point.param("cpu"):
            host = point.src if point.src.startswith("numa") else point.dst
            of.setdefault(point.benchmark, set()).add((host, point.param("cpu")))
    # One path of each class, near and far. Both paths to a GPU start at the first node.
    near = {("numa:0", "numa:1")}
    assert of == {"h2d": near, "d2h": near | {("numa:1", "numa:0")}, "host_to_all": near, "all_to_host": near}
    assert not [point for point in full("h200x1") if point.param("cpu")]


def test_a_host_copy_does_not_exceed_the_cache_of_one_core():
    machine = modelled(models.load("h200x1"), 1).facts
    id = "h2h/cpu/numa:0.pageable->numa:0.pinned/{}?cache={}&initiator=src&mode=batched"
    for size, expected in ((8, 512 * 8), (4096, MIB), (MIB, MIB), (4 * MIB, 4 * MIB)):
        for cache in ("written", "dirty"):
            assert footprint(PointId.parse(id.format(size, cache)), machine) == expected


def test_accesses_report_the_requested_bytes_and_stay_below_the_peak(tmp_path):
    paths = ("read/sm/numa:0.pinned->gpu:0.device", "write/sm/gpu:0.device->gpu:1.device")
    points = measured("h200x2", tmp_path, *(f"{path}/{64 * MIB}[?]*blocks=sms*" for path in paths))
    by_params = {(p.benchmark, *sorted(p.params.items())): p for p in points}
    for name in ("read", "write"):
        plain = by_params[name, ("blocks", "sms"), ("threads", "512")]
        assert plain.status == "ok" and plain.verified
        for stride in (128, 1024):
            (thin,) = [p for p in points if p.benchmark == name and p.params.get("stride") == str(stride)]
            assert thin.verified and thin.flows[0].bytes == 16 * 64 * MIB // stride
            assert 0 < thin.gbps < plain.gbps * 16 / 32  # half of each sector is not requested
        (narrow,) = [p for p in points if p.benchmark == name and p.params.get("width") == "4"]
        assert narrow.flows[0].bytes == 64 * MIB
        (both,) = [p for p in points if p.benchmark == name and p.bidirectional]
        assert len(both.flows) == 2 and sum(flow.gbps for flow in both.flows) > 1.5 * plain.gbps


def test_cold_footprints_exceed_the_caches_and_hot_ones_fit():
    machine = modelled(models.load("h200x1"), 1).facts
    id = "read/sm/gpu:0.device->gpu:0.device/1048576?blocks=sms&threads=512"
    assert case_of(PointId.parse(id), machine)["footprint_bytes"] >= 3 * 60 * MIB
    assert case_of(PointId.parse(id.replace("blocks", "cache=hot&blocks")), machine)["footprint_bytes"] == MIB


def test_data_in_the_l2_is_read_faster(tmp_path):
    path = "read/sm/gpu:0.device->gpu:0.device"
    points = measured("h200x1", tmp_path, f"{path}/{MIB}[?]blocks=sms*threads=512")
    points = [p for p in points if set(p.params) <= {"blocks", "cache", "threads"}]
    rates = {p.params.get("cache", "cold"): p.gbps for p in points}
    assert set(rates) == {"cold", "hot"} and rates["hot"] > rates["cold"]
    limit = modelled(models.load("h200x1"), 1).limit  # the limit is that of device memory, so hot points have none
    assert [limit(PointId.parse(str(p.id))) is None for p in points] == [p.params.get("cache") == "hot" for p in points]


def test_a_prefetch_of_discarded_pages_has_no_rate_limit(tmp_path):
    path = f"prefetch/prefetch/numa:0.managed->gpu:0.managed/{64 * MIB}"
    points = measured("h200x1", tmp_path, f"{path}[?]*discard=with*")
    assert [p.status for p in points] == ["ok"] and points[0].gbps > 63 and "above_limit" not in points[0].guards


def test_a_pageable_copy_from_another_node_is_slower_for_a_far_thread(tmp_path):
    """The driver copies with the calling thread. In the model its rate is lower for memory of another node."""
    path = f"h2d/ce/numa:0.pageable->gpu:0.device/{16 * MIB}"
    points = measured("ac922", tmp_path, f"{path}[?]*mode=batched*")
    usual = [p for p in points if not p.bidirectional and p.params["after"] == "kernel" and "cache" not in p.params]
    rates = {p.params.get("cpu", "memory"): p.gbps for p in usual}
    assert rates["numa:1"] < rates["memory"]
