"""Managed memory on the fake driver: pages return home before every sample, migrate on access, and are verified."""

import itertools
import subprocess
import sys

import pytest

from campaign import only_long
from driver_cases import failure, opened, prepare, refusal, worker
from fake_driver import environment, needs_fake, needs_worker, too_short
from linkscope.runfile import read_run
from worker_pipe import NoAnswer

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]

KIB, MIB, PAGE = 1 << 10, 1 << 20, 4096


def managed(benchmark, src, dst, size=17 * PAGE - 8, **params):
    return {
        "benchmark": benchmark, "engine": "prefetch" if benchmark == "prefetch" else "fault", "src": src, "dst": dst,
        "src_memory": "managed", "dst_memory": "managed", "bytes": 0 if benchmark == "fault_latency" else size,
        "footprint_bytes": 0, "params": params,
    }  # fmt: skip


IN, OUT, ACROSS = ("numa:0", "gpu:0"), ("gpu:0", "numa:0"), ("gpu:0", "gpu:1")
FAMILIES = {
    "demand, written": managed("demand", *IN),
    "demand, read": managed("demand", *IN, access="read"),
    "demand, part of a page": managed("demand", *IN, size=24),
    "demand, not whole pages": managed("demand", *IN, size=5 * PAGE + 8),
    "demand by a CPU": managed("demand", *OUT),
    "demand by a CPU, read": managed("demand", *OUT, access="read"),
    "demand by CPUs": managed("demand", *OUT, threads="4"),
    "demand by CPUs, read": managed("demand", *OUT, threads="4", access="read", size=3 * PAGE),
    "demand bidirectional": managed("demand", *OUT, bidirectional="true"),
    "demand of a peer": managed("demand", *ACROSS),
    "demand through the host, bidirectional": managed("demand", *ACROSS, peer="off", bidirectional="true"),
    "prefetch": managed("prefetch", *IN),
    "prefetch home": managed("prefetch", *OUT, size=24),
    "prefetch bidirectional": managed("prefetch", *IN, bidirectional="true"),
    "prefetch from a peer": managed("prefetch", *ACROSS, bidirectional="true"),
    "demand of all bytes": managed("demand", *IN, touch="all", access="read"),
    "demand of all bytes, written": managed("demand", *IN, touch="all", size=MIB),
    **{
        f"demand, {advice}, {kind_of_access}": managed("demand", *IN, access=kind_of_access, advice=advice, size=MIB)
        for advice in ("read_mostly", "preferred_src", "preferred_dst", "accessed_by")
        for kind_of_access in ("read", "write")
    },
    "demand by a CPU of all bytes": managed("demand", *OUT, touch="all", access="read", size=5 * PAGE + 24),
    "demand by CPUs of all bytes": managed("demand", *OUT, touch="all", access="read", threads="4", size=5 * PAGE + 24),
    "demand by CPUs of all bytes, write": managed("demand", *OUT, touch="all", threads="4", size=5 * PAGE + 24),
    **{
        f"demand by a CPU, {advice}, {kind_of_access}": managed(
            "demand", *OUT, access=kind_of_access, advice=advice, size=MIB
        )
        for advice in ("read_mostly", "preferred_src", "preferred_dst", "accessed_by")
        for kind_of_access in ("read", "write")
    },
    "demand of a peer, accessed by": managed("demand", *ACROSS, advice="accessed_by", size=MIB),
    "prefetch as a batch of one": managed("prefetch", *IN, ranges="1"),
    "prefetch as a batch": managed("prefetch", *IN, ranges="8"),
    "prefetch as a batch, bidirectional": managed("prefetch", *IN, ranges="64", bidirectional="true", size=MIB),
    "prefetch home as a batch": managed("prefetch", *OUT, ranges="8", size=MIB),
    "prefetch, discarded before": managed("prefetch", *IN, discard="before"),
    "prefetch, discarded with it": managed("prefetch", *IN, discard="with"),
    "prefetch from a peer, discarded": managed("prefetch", *ACROSS, discard="with", ranges="8", size=MIB),
    "faults of a GPU": managed("fault_latency", *IN),
    "near faults of a GPU": managed("fault_latency", *IN, step="64KiB"),
    "nearest faults of a CPU": managed("fault_latency", *OUT, step="4KiB"),
    "faults of a CPU": managed("fault_latency", *OUT),
}
CPUS = {name for name in FAMILIES if "CPU" in name} | {"demand bidirectional"}


def run(pipe, wanted, samples=2, verify=True):
    prepared = prepare(pipe, wanted)
    assert prepared["ok"] and prepared["supported"], prepared
    most, actors = prepared["most_iterations"], prepared["actors"]
    batches = [[0] * actors, [1] * actors] if most == 1 else [[7] * actors, [most] * actors]
    return pipe.ask("run", samples=samples, batches=batches, verify=verify)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_runs_and_is_verified(worker, family):
    pipe, _ = opened(worker)
    for _ in range(2):  # an earlier session has no effect
        answer = run(pipe, FAMILIES[family], samples=3)
        assert answer["ok"] and answer["verdict"]["ok"] and answer["verdict"]["checked_bytes"] > 0, answer
        assert answer["timing"] == ("host" if family in CPUS else "gate")
    actors = prepare(pipe, FAMILIES[family])["actors"]
    assert pipe.ask("run", samples=1, batches=[[1] * actors], verify=True)["verdict"]["ok"]


# Families that overwrite every byte, or whose calls make several copies.
SEVERAL = {name for name in FAMILIES if "as a batch" in name or "accessed by" in name or name.endswith(", write")}
SEVERAL |= {"demand of all bytes, written"}
PLAIN = [name for name in FAMILIES if "faults" not in name and "discard" not in name and name not in SEVERAL]
SEVERAL -= CPUS  # the driver cannot see accesses by a CPU


@pytest.mark.parametrize("family", sorted(SEVERAL))
def test_one_wrong_copy_among_several_or_a_wrong_last_write_is_found(worker, family):
    several = {"prefetch as a batch": 20, "prefetch home as a batch": 20, "prefetch as a batch, bidirectional": 200}
    number = several.get(family, 9 if "batch" in family else "7+")  # the number of a timed copy
    verdict = run(opened(worker, CUDA_CORRUPT=number)[0], FAMILIES[family], samples=4)["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] > 0 and "managed at byte" in verdict["first_wrong"]


@pytest.mark.parametrize("family", PLAIN)
@pytest.mark.parametrize("number", [7, 9])  # timed copies; earlier data is overwritten
def test_one_wrong_transfer_is_found(worker, family, number):
    """A prefetch in either direction, or a touch, flips a bit in the middle of the range that nothing else writes."""
    verdict = run(opened(worker, CUDA_CORRUPT=number)[0], FAMILIES[family], samples=4)["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] > 0 and "managed at byte" in verdict["first_wrong"]


@pytest.mark.parametrize("family", ["demand, written", "demand, read", "faults of a GPU"])
def test_a_skipped_touch_is_found(worker, family):
    verdict = run(opened(worker, CUDA_SKIP="2+")[0], FAMILIES[family])["verdict"]
    assert not verdict["ok"] and verdict["first_wrong"]


def prefetches(log):
    """The destination of each prefetch, and its number of bytes that were elsewhere."""
    lines = [line.split() for line in log.read_text().splitlines() if line.startswith("prefetch")]
    return [(line[2], int(line[3])) for line in lines]


def test_before_every_sample_the_touched_pages_return_home(worker, tmp_path):
    log = tmp_path / "queued"
    pipe, _ = opened(worker, CUDA_LOG=log)
    wanted = managed("demand", *IN, size=5 * PAGE + 8)
    assert prepare(pipe, wanted)["supported"]
    pipe.ask("run", samples=1, batches=[[1]], verify=False)  # the rehearsal
    before = len(prefetches(log))
    pipe.ask("run", samples=3, batches=[[0], [1]], verify=False)
    assert prefetches(log)[before:] == [("host", 6 * PAGE), ("host", 0)] + 2 * [("host", 6 * PAGE), ("host", 0)]


def test_a_prefetch_moves_all_pages_in_every_sample(worker, tmp_path):
    log = tmp_path / "queued"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert prepare(pipe, managed("prefetch", *ACROSS, size=MIB))["supported"]
    pipe.ask("run", samples=1, batches=[[1]], verify=False)
    before = len(prefetches(log))
    pipe.ask("run", samples=4, batches=[[1]], verify=False)
    assert prefetches(log)[before:] == 8 * [("gpu", MIB)]


def test_each_step_of_the_chase_migrates_one_page(worker, tmp_path):
    log = tmp_path / "queued"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert prepare(pipe, managed("fault_latency", *IN))["most_iterations"] == 512
    pipe.ask("run", samples=1, batches=[[100]], verify=False)
    before = len(prefetches(log))
    pipe.ask("run", samples=2, batches=[[100]], verify=False)
    assert prefetches(log)[before:] == 2 * [("host", 100 * PAGE)]


def lines(log, what):
    """The words after `what` and the GPU, of all lines that start with them."""
    found = [line.split() for line in log.read_text().splitlines()]
    return [words[2:] for words in found if words[0] == what]


@pytest.mark.parametrize(
    "advice, moved", [("none", MIB), ("preferred_dst", MIB), ("preferred_src", 0), ("accessed_by", 0)]
)
def test_pages_stay_where_advice_keeps_them(worker, tmp_path, advice, moved):
    log = tmp_path / "queued"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert prepare(pipe, managed("demand", *IN, size=MIB, touch="all", advice=advice))["supported"]
    pipe.ask("run", samples=1, batches=[[1]], verify=False)
    before = len(prefetches(log))
    pipe.ask("run", samples=2, batches=[[1]], verify=False)
    assert prefetches(log)[before:] == 2 * [("host", moved)]  # return home before each sample


def test_advice_is_unset_before_pages_return_home_and_set_again(worker, tmp_path):
    log = tmp_path / "queued"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert prepare(pipe, managed("demand", *IN, advice="read_mostly"))["supported"]
    words = [line.split() for line in log.read_text().splitlines() if line.startswith(("advise", "prefetch"))]
    assert [line[0] for line in words] == ["advise", "prefetch", "advise"] * (len(words) // 3)
    assert lines(log, "advise")[:2] == [["unset", "read_mostly", "node:0"], ["set", "read_mostly", "node:0"]]


@pytest.mark.parametrize(
    ("path", "advice", "expected"),
    [
        (IN, "preferred_src", ["preferred", "node:0"]),
        (IN, "preferred_dst", ["preferred", "gpu:1"]),
        (IN, "accessed_by", ["accessed_by", "gpu:1"]),
        (OUT, "read_mostly", ["read_mostly", "gpu:1"]),
        (OUT, "preferred_src", ["preferred", "gpu:1"]),
        (OUT, "preferred_dst", ["preferred", "node:0"]),
        (OUT, "accessed_by", ["accessed_by", "host"]),  # the CPU has no node id in this call
    ],
)
def test_advice_names_the_processor_in_the_form_of_cuda(worker, tmp_path, path, advice, expected):
    """gpu:0 is the first on the bus and the driver's second."""
    log = tmp_path / "queued"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert prepare(pipe, managed("demand", *path, advice=advice))["supported"]
    assert lines(log, "advise")[:2] == [["unset", *expected], ["set", *expected]]


@pytest.mark.parametrize("ranges, count", [("one", 1), ("1", 1), ("8", 8), ("512", 256)])
def test_a_batch_has_the_requested_number_of_page_aligned_ranges(worker, tmp_path, ranges, count):
    log = tmp_path / "queued"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert prepare(pipe, managed("prefetch", *ACROSS, size=MIB, ranges=ranges))["supported"]
    pipe.ask("run", samples=1, batches=[[1]], verify=False)
    before = len(prefetches(log))
    pipe.ask("run", samples=1, batches=[[1]], verify=False)
    assert prefetches(log)[before + 1 :] == count * [("gpu", MIB // count)]


@pytest.mark.parametrize("discard, ranges", [("before", "one"), ("before", "8"), ("with", "one"), ("with", "8")])
def test_discarded_ranges_are_prefetched_too(worker, tmp_path, discard, ranges):
    log = tmp_path / "queued"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert prepare(pipe, managed("prefetch", *ACROSS, size=MIB, discard=discard, ranges=ranges))["supported"]
    count = 8 if ranges == "8" else 1
    assert lines(log, "discard")[-1] == [str(count), str(MIB)]
    assert prefetches(log)[-1] == ("gpu", MIB // count)


@pytest.mark.parametrize(
    "symbol, wanted",
    [
        ("cuMemPrefetchBatchAsync", {"ranges": "8"}),
        ("cuMemDiscardBatchAsync", {"discard": "before"}),
        ("cuMemDiscardAndPrefetchBatchAsync", {"discard": "with"}),
    ],
)
def test_calls_of_cuda_13_are_unsupported_with_a_reason_on_older_drivers(worker, symbol, wanted):
    for settings in ({"CUDA_VERSION": 12090}, {"CUDA_MISSING": symbol}):
        pipe, _ = opened(worker, **settings)
        assert f"lacks {symbol}" in refusal(pipe, managed("prefetch", *IN, **wanted))
        assert prepare(pipe, managed("prefetch", *IN))["supported"]


def test_a_driver_without_advice_gives_a_stated_reason(worker):
    pipe, _ = opened(worker, CUDA_MISSING="cuMemAdvise")
    assert "lacks cuMemAdvise" in refusal(pipe, managed("demand", *IN, advice="accessed_by"))
    assert prepare(pipe, managed("demand", *IN))["supported"]


SYSTEM = {"src_memory": "system", "dst_memory": "system"}


@pytest.mark.parametrize(
    "wanted",
    [
        managed("demand", *IN), managed("demand", *OUT), managed("demand", *IN, touch="all", access="read"),
        managed("prefetch", *IN), managed("prefetch", *OUT), managed("prefetch", *IN, ranges="8"),
        managed("fault_latency", *IN), managed("fault_latency", *OUT, step="64KiB"),
    ],
)  # fmt: skip
def test_memory_of_the_operating_system_is_used_where_gpus_reach_it(worker, wanted):
    pipe, _ = opened(worker, CUDA_HMM=1)
    answer = run(pipe, wanted | SYSTEM)
    assert answer["ok"] and answer["verdict"]["ok"] and answer["verdict"]["checked_bytes"] > 0, answer
    pipe, _ = opened(worker)
    assert "neither HMM nor ATS (PAGEABLE_MEMORY_ACCESS is 0)" in refusal(pipe, wanted | SYSTEM)


@pytest.mark.parametrize("family", ["demand, written", "demand by a CPU", "faults of a GPU"])
def test_more_iterations_than_pages_are_refused(worker, family):
    pipe, _ = opened(worker)
    most = prepare(pipe, FAMILIES[family])["most_iterations"]
    error = failure(pipe.ask("run", samples=1, batches=[[most + 1]], verify=False))
    assert error["kind"] == "usage" and f"at most {most} per sample" in error["message"]


def test_managed_memory_stays_small(worker):
    pipe, _ = opened(worker)
    for benchmark, (src, dst) in itertools.product(("demand", "prefetch"), (IN, OUT, ACROSS)):
        assert "the limit is 1 GiB" in refusal(pipe, managed(benchmark, src, dst, size=(1 << 30) + 8))
    assert "needs 2 GiB" in refusal(pipe, managed("prefetch", *IN, size=1 << 30, bidirectional="true"))
    pipe, _ = opened(worker, CUDA_MEMORY=100 * MIB)
    assert "a tenth of the free memory of gpu:0" in refusal(pipe, managed("demand", *IN, size=11 * MIB))
    assert prepare(pipe, managed("demand", *IN, size=8 * MIB))["supported"]


def test_memory_kept_for_other_points_does_not_count_as_free(worker):
    pipe, _ = opened(worker, CUDA_MEMORY=100 * MIB)
    wanted = managed("demand", *IN, size=8 * MIB)
    assert prepare(pipe, wanted)["supported"]
    local = {
        "benchmark": "local", "engine": "ce", "src": "gpu:0", "dst": "gpu:0", "src_memory": "device",
        "dst_memory": "device", "bytes": 16 * MIB, "footprint_bytes": 0, "params": {},
    }  # fmt: skip
    assert prepare(pipe, local)["supported"]
    assert "a tenth of the free memory of gpu:0" in refusal(pipe, wanted)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"CUDA_VERSION": 12000}, "lacks cuMemPrefetchAsync"),
        ({"CUDA_MISSING": "cuMemAllocManaged"}, "lacks cuMemAllocManaged"),
        ({"CUDA_NO_PEER": 1}, "cannot access the memory"),
    ],
)
def test_a_driver_without_managed_memory_gives_a_stated_reason(worker, settings, words):
    pipe, _ = opened(worker, **settings)
    assert words in refusal(pipe, FAMILIES["demand of a peer"])


def test_a_prefetch_uses_the_prefetch_call(worker):
    pipe, _ = opened(worker, CUDA_HANG="cuMemPrefetchAsync")
    with pytest.raises(NoAnswer):
        pipe.ask("prepare", timeout_s=1, case=FAMILIES["prefetch"], key="point#0")


@only_long
def test_a_complete_run_of_managed_memory(tmp_path):
    path = tmp_path / "run.jsonl"
    # CPU accesses cost nothing on the fake driver, and its prefetches exceed the peak.
    only = ["demand/*/8[?]*", "demand/fault/numa*/1048576*", "prefetch/*/1048576*", "fault_latency/*"]
    command = [sys.executable, "-m", "linkscope", "run", "--suite", "full", "--rounds", "2", "--precision", "99%"]
    command += ["-o", str(path), "--json", *itertools.chain(*(("--only", one) for one in only))]
    slow = environment(CUDA_COPY_US=300)
    done = subprocess.run(command, env=slow, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stderr  # 1: a point was too short
    points = read_run(path).points
    assert {point.benchmark for point in points} == {"demand", "prefetch", "fault_latency"} and len(points) > 20
    for point in points:
        if point.src_memory == "system":
            assert point.status == "unsupported" and "neither HMM nor ATS" in point.reason
            continue
        assert point.verified, (point.id, point.reason)
        assert point.status in ("ok", "missed_precision") or too_short(point), (point.id, point.reason)
        assert point.batch in ([1], [1, 1]) or point.benchmark == "fault_latency"
        assert point.footprint_bytes == point.bytes
