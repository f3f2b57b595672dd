"""Complete commands on the GPUs of this machine: verified data, and rates within the hardware limits."""

import pytest

from linkscope.runfile import Run
from on_gpus import measured, needs, value

ON_GPU_0 = ("--only", "h2d/*gpu:0.*", "--only", "d2h/*gpu:0.*", "--only", "local/*gpu:0.*")


pytestmark = needs(1)


@pytest.fixture(scope="module")
def quick(tmp_path_factory) -> Run:
    return measured(tmp_path_factory.mktemp("gpu") / "quick.jsonl", "--suite", "quick", *ON_GPU_0)


def test_every_point_of_quick_is_measured_and_verified(quick) -> None:
    assert quick.points and {point.status for point in quick.points} <= {"ok", "missed_precision"}
    assert all(point.verified for point in quick.points)
    assert quick.end is not None and quick.end.complete


def test_large_pinned_copies_come_close_to_the_peak_and_pageable_ones_do_not(quick) -> None:
    pinned = value(quick, f"pinned->gpu:0.device/{64 << 20}?after=kernel&bidirectional=false")
    pageable = value(quick, f"pageable->gpu:0.device/{64 << 20}?after=kernel&bidirectional=false")
    assert pinned.limit_gbps and 0.7 * pinned.limit_gbps < pinned.gbps <= pinned.limit_gbps
    assert pageable.gbps < pinned.gbps and (pinned.timing, pageable.timing) == ("gate+slope", "host")


def test_the_run_file_has_the_state_of_the_gpu(quick) -> None:
    seen = value(quick, f"pinned->gpu:0.device/{64 << 20}").guards["gpu:0"]
    assert seen["sm_mhz"][1] > 0 and seen["temperature"] > 0


def test_a_copy_after_a_kernel_includes_the_change_of_channel(tmp_path) -> None:
    only = ("--only", "h2d/*pinned->gpu:0.*/4096?*&b*=false&mode=single")
    run = measured(tmp_path / "a.jsonl", "--suite", "full", *only)
    after = {point.params["after"]: point.median_s for point in run.points}
    assert after["wait"] < after["kernel"]


def test_a_pointer_chase_runs_on_the_requested_sm(tmp_path) -> None:
    ids = [f"latency/sm/gpu:0.device->gpu:0.device/0?cache=cold&range=2MiB{sm}" for sm in ("", "&sm=0", "&sm=1")]
    run = measured(tmp_path / "a.jsonl", *(part for id in ids for part in ("--only", id)))
    assert {point.id for point in run.points} == set(ids) and all(point.verified for point in run.points)
    assert {point.status for point in run.points} <= {"ok", "missed_precision"}


def test_launch_blocking_is_detected_and_recorded(tmp_path) -> None:
    only = ("--only", f"h2d/*pinned->gpu:0.*/{1 << 20}?*")
    run = measured(tmp_path / "a.jsonl", "--suite", "quick", *only, CUDA_LAUNCH_BLOCKING="1")
    assert {point.timing for point in run.points} == {"events"}
    assert all("CUDA_LAUNCH_BLOCKING" in point.guards["timing"] for point in run.points)


def test_managed_pages_move_and_are_verified(tmp_path) -> None:
    """64 MiB: prefetches are faster than demand paging; eight threads move pages to the host faster than one."""
    size = 64 << 20
    only = [f"demand/*gpu:0.*/{size}*", f"prefetch/*gpu:0.*/{size}*", "fault_latency/*gpu:0.*"]
    run = measured(tmp_path / "a.jsonl", "--suite", "full", *(part for one in only for part in ("--only", one)))
    managed = [point for point in run.points if point.src_memory == "managed"]
    assert managed and {point.status for point in managed} <= {"ok", "missed_precision"}
    assert all(point.verified for point in managed)
    there, back = f"numa:0.managed->gpu:0.managed/{size}", f"gpu:0.managed->numa:0.managed/{size}"
    demand = value(run, f"demand/fault/{there}?access=write")
    prefetch = value(run, f"prefetch/prefetch/{there}?bidirectional=false")
    assert demand.gbps < prefetch.gbps < prefetch.limit_gbps
    one, eight = (
        value(run, f"demand/fault/{back}?access=write&bidirectional=false&threads={count}") for count in (1, 8)
    )
    assert one.gbps < eight.gbps
    assert value(run, "fault_latency/fault/numa:0.managed->gpu:0").median_s > 1e-6


def test_without_visible_gpus_the_host_paths_are_measured(tmp_path) -> None:
    run = measured(tmp_path / "a.jsonl", "--suite", "quick", CUDA_VISIBLE_DEVICES="")
    assert run.points and {point.benchmark for point in run.points} == {"h2h"}


KERNELS = [
    "h2d/sm/numa:0.pinned->gpu:0.device/24?bidirectional=false&blocks=sms&mode=batched&threads=512",
    "d2h/sm/gpu:0.device->numa:0.pinned/8?blocks=8&mode=batched&threads=1024",
    "local/sm/gpu:0.device->gpu:0.device/1000024?blocks=sms&mode=batched&threads=256",
    "read/sm/numa:0.pinned->gpu:0.device/24?blocks=sms&threads=512",
    "read/sm/gpu:0.device->gpu:0.device/1000024?blocks=8&threads=1024",
    "write/sm/gpu:0.device->numa:0.pinned/8?blocks=sms&threads=512",
    "write/sm/gpu:0.device->gpu:0.device/1000024?blocks=sms&threads=256",
    "exchange/sm/numa:0.pinned->gpu:0.device/24?blocks=sms&threads=512",
    "exchange/sm/numa:0.pinned->gpu:0.device/1000024?blocks=8&threads=1024",
    "exchange/sm/numa:0.pinned->gpu:0.device/1000024?blocks=pieces&threads=256",
    "latency/sm/numa:0.pinned->gpu:0.device/0?cache=cold&range=2MiB",
    "latency/sm/gpu:0.device->gpu:0.device/0?cache=hot&range=64MiB",
    "latency/cpu/numa:0.pageable->numa:0.pageable/0?cache=cold&range=2MiB",
]


def test_every_kernel_processes_all_of_its_data(tmp_path) -> None:
    """Tails of 8 B, and spans that end within a tile; data outside the span is verified too."""
    only = [word for id in KERNELS for word in ("--only", id)]
    points = measured(tmp_path / "run.jsonl", "--rounds", "1", *only).points
    assert len(points) == len(KERNELS)
    assert [(point.id, point.verified) for point in points if point.verified is not True] == []


def test_comm_scopes_rule_agrees_on_large_copies_and_includes_queueing_in_small_ones(tmp_path) -> None:
    ids = [f"h2d/ce/numa:0.registered->gpu:0.device/{size}?after=wait&bidirectional=false&mode=single"
           for size in (256, 64 << 20)]  # fmt: skip
    only = [word for id in ids for word in ("--only", id)]
    theirs = measured(tmp_path / "theirs.jsonl", "--suite", "comm-scope", "--rule", "comm-scope", *only)
    ours = measured(tmp_path / "ours.jsonl", "--suite", "comm-scope", *only)
    for size, low, high in ((256, 1.05, 10), (64 << 20, 0.98, 1.02)):
        by_theirs, by_ours = value(theirs, f"/{size}?"), value(ours, f"/{size}?")
        assert (by_theirs.timing, by_ours.timing) == ("events", "gate+slope") and by_theirs.verified
        assert low * by_ours.median_s < by_theirs.flows[0].mean_s < high * by_ours.median_s, size
