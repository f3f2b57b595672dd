"""Collectives: bandwidths with known answers, the report, runs on a model, and on the fake NCCL in one process and
between ranks of MPI."""

import subprocess
from pathlib import Path

import pytest

import invented
from fake_driver import LIBRARIES, environment, needs_fake, needs_worker, too_short
from linkscope.report.collectives import Copies, bus_factor, from_copies, rates_of, stragglers
from linkscope.report.run_view import RunView
from linkscope.report.section import Items, Paragraph, Table, plain
from linkscope.report.sections.collectives import section
from linkscope.run.nccl import libraries
from linkscope.runfile import Point, Run, read_run
from test_ranks import LINKSCOPE, MPIEXEC, needs_mpi, without_ranks

FAKE = str(LIBRARIES / "nccl" / "libnccl.so.2")


# --- known answers ----------------------------------------------------------------------------------------------------


def collective(id: str, *seconds: float) -> Point:
    """A point with the time of each rank."""
    made = invented.point(id, seconds[0])
    ends = (made.src_memory, made.dst_memory)
    made.flows = [invented.flow(f"gpu:{rank}", f"gpu:{rank}", ends, 0, each) for rank, each in enumerate(seconds)]
    return made


def all_reduce(size: int, *seconds: float, mode: str = "batched") -> Point:
    return collective(
        f"all_reduce/nccl/gpu:0.device->gpu:0.device/{size}?mode={mode}&ranks={len(seconds)}", *seconds
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0), ("all_reduce", 4, 1.5), ("all_reduce", 8, 1.75), ("all_gather", 4, 0.75),
        ("reduce_scatter", 8, 0.875), ("all_to_all", 2, 0.5), ("broadcast", 4, 1.0), ("reduce", 2, 1.0),
        ("send_receive", 2, 1.0), ("broadcast", 1, 0.0), ("all_reduce", 1, 0.0),
    ],
)  # fmt: skip
def test_the_bus_bandwidth_counts_what_each_rank_must_send(name: str, ranks: int, factor: float) -> None:
    assert bus_factor(name, ranks) == factor


def test_rates_are_those_of_the_slowest_rank() -> None:
    rates = rates_of(all_reduce(10**9, 0.01, 0.02, 0.01, 0.01))
    assert (rates.seconds, rates.algorithm, rates.bus) == pytest.approx((0.02, 50.0, 75.0))
    assert rates_of(all_reduce(10**9, 0.01)).bus is None


def test_a_rank_whose_interval_lies_above_the_median_of_all_is_a_straggler() -> None:
    (slow,) = stragglers(all_reduce(8, 1e-5, 1e-5, 1.2e-5, 1e-5, mode="single"))
    assert (slow.rank, slow.flow.src) == (2, "gpu:2") and slow.excess == pytest.approx(0.2)
    assert not stragglers(all_reduce(8, 1e-5, 1e-5, 1.02e-5, 1e-5))  # its interval reaches the median
    assert not stragglers(all_reduce(8, 1e-5))


def copies(slow: float = 1.0) -> list[Point]:
    """Copies at 400 GB/s after 2 us, and a pair that is `slow` times slower."""
    sizes = (4096, 1 << 20, 1 << 28)
    made = [
        invented.point(f"d2d/sm/gpu:0.device->gpu:1.device/{size}?mode=batched&peer=on", 2e-6 + size / 400e9)
        for size in sizes
    ]
    id = f"d2d/sm/gpu:2.device->gpu:3.device/{sizes[-1]}?mode=batched&peer=on"
    return [*made, invented.point(id, slow * (2e-6 + sizes[-1] / 400e9))]


def test_large_collectives_from_copies_take_the_bytes_over_the_rate_of_the_slowest_pair() -> None:
    gpus = [f"gpu:{number}" for number in range(4)]
    point = all_reduce(1 << 30, *[0.005] * 4)
    seconds, _ = from_copies(point, gpus, Copies(copies())) or (0.0, "")
    assert seconds == pytest.approx(1.5 * (1 << 30) / 400e9, rel=0.01)
    slower = from_copies(point, gpus, Copies(copies(2.0)))
    assert slower and slower[0] == pytest.approx(2 * seconds, rel=1e-6)


def test_small_collectives_from_copies_take_as_many_copies_as_there_are_steps() -> None:
    gpus = [f"gpu:{number}" for number in range(4)]
    least = 2e-6 + 4096 / 400e9  # of the smallest copy
    assert from_copies(all_reduce(8, *[1e-5] * 4), gpus, Copies(copies())) == pytest.approx((2 * least, "direct"))
    broadcast = collective("broadcast/nccl/gpu:0.device->gpu:0.device/8?mode=batched&ranks=4", *[1e-5] * 4)
    assert from_copies(broadcast, gpus, Copies(copies())) == pytest.approx((least, "direct"))
    assert from_copies(all_reduce(8, 1e-5), gpus, Copies(copies())) is None
    assert from_copies(broadcast, gpus, Copies([])) is None


# --- the report -------------------------------------------------------------------------------------------------------


def shown(run: Run) -> tuple[list[str], list[list[str]], list[str]]:
    """The heads of the table's groups, its rows, and the other texts."""
    made = section(RunView(run))
    assert made is not None
    tables = [block for block in made.blocks if isinstance(block, Table)]
    rows = [[plain(cell) for cell in row.cells] for of in tables for group in of.groups for row in group.rows]
    texts = [plain(item.text) for block in made.blocks if isinstance(block, Items) for item in block.items]
    texts += [plain(block.text) for block in made.blocks if isinstance(block, Paragraph)]
    return [plain(group.head) for of in tables for group in of.groups], rows, texts


def test_the_report_has_both_bandwidths_the_time_from_copies_and_names_the_straggler() -> None:
    run = invented.run([
        all_reduce(1 << 30, *[0.005] * 4), all_reduce(1 << 30, *[0.005] * 3, 0.006, mode="single"), *copies(),
    ])  # fmt: skip
    run.header.tool["nccl"] = {"version": "2.28.9", "path": "/x", "found": "here", "nvls": "off", "why_not": ""}
    heads, rows, texts = shown(run)
    assert heads == ["all_reduce by NCCL, device memory, 4 ranks from gpu:0, one process"]
    ((size, batched, single, algorithm, bus, known),) = rows
    assert size == "1 GiB" and batched.startswith("5.00 ms") and single.startswith("6.00 ms")
    assert (algorithm, bus) == ("214.7 GB/s", "322.1 GB/s")
    assert known.startswith("4.0") and known.endswith("), 81 %")
    assert any(
        "single: rank 3 (gpu:3) takes 6 ms, 20 % more than the median of all ranks, 5 ms" in one for one in texts
    )
    assert any("NCCL 2.28.9, /x: here; off" in one for one in texts)
    assert not any("average" in one for one in texts)
    assert section(RunView(invented.small_run())) is None


def test_the_report_names_the_library_the_memory_and_the_processes_of_ranks() -> None:
    by_mpi = collective("all_reduce/mpi/rank:0.pageable->rank:0.pageable/4096?mode=batched&ranks=2", 1e-5, 1e-5)
    heads, _, _ = shown(invented.run([by_mpi]))
    assert heads == ["all_reduce by MPI, pageable memory, 2 ranks from rank:0, a process each"]


def test_one_rank_has_times_and_no_bandwidth() -> None:
    """In place, the one rank moves nothing: bytes over time would be a thousand times the rate of the memory."""
    _, ((_, batched, _, algorithm, bus, known),), texts = shown(invented.run([all_reduce(1 << 28, 2e-6)]))
    assert batched.startswith("2.00 us") and (algorithm, bus, known) == ("-", "-", "-")
    assert any("1 rank: there is no other rank" in one for one in texts)


# --- where NCCL is ----------------------------------------------------------------------------------------------------


def test_the_chosen_library_is_the_only_one_and_the_loader_is_asked_last() -> None:
    assert libraries(0, {"LINKSCOPE_NCCL": "/x"}) == [{"name": "/x", "found": "LINKSCOPE_NCCL names it"}]
    assert [one["name"] for one in libraries(13000, {})][-2:] == ["libnccl.so.2", "libnccl.so"]


def test_libraries_of_packages_come_first_and_those_of_cuda_13_need_its_driver(monkeypatch, tmp_path) -> None:
    from linkscope.run import library_files

    class Installed:
        name = "libnccl.so.2"

        def __init__(self, package: str) -> None:
            self.package = package

        def locate(self) -> Path:
            return tmp_path / self.package / "libnccl.so.2"

    monkeypatch.setattr(library_files.metadata, "files", lambda package: [Installed(package)])
    assert "nvidia-nccl-cu13 has it" in libraries(13000, {})[0]["found"]
    first = libraries(12080, {})[0]
    assert "nvidia-nccl-cu12 has it" in first["found"] and first["name"].endswith("nvidia-nccl-cu12/libnccl.so.2")


# --- runs -------------------------------------------------------------------------------------------------------------


def run_of(path: Path, only: list[str], *words: str, launch: tuple[str, ...] = (), **settings: str) -> Run:
    globs = [word for glob in only for word in ("--only", glob.replace("?", "[?]"))]
    command = [*launch, *LINKSCOPE, "run", *words, *globs, "--rounds", "2", "--precision", "99%", "-o", str(path)]
    done = subprocess.run(command, env=without_ranks() | settings, capture_output=True, text=True, timeout=300)
    assert path.exists(), done.stderr
    run = read_run(path)
    assert run.end and run.end.complete, done.stderr
    return run


@needs_worker
def test_a_model_runs_the_suite_and_its_figures_follow_from_its_links(tmp_path) -> None:
    only = [
        "*/268435456?mode=batched&ranks=4", "all_reduce/*/8?*ranks=*", "d2d/sm/gpu:0.device->gpu:1*",
    ]  # fmt: skip
    run = run_of(tmp_path / "run.jsonl", only, "--machine", "h200x4", "--suite", "collectives")
    points = {(point.benchmark, point.bytes, point.params.get("ranks")): point for point in run.points}
    assert all(point.status in ("ok", "missed_precision") for point in run.points), [one.reason for one in run.points]
    assert {name for name, _, ranks in points if ranks == "4"} >= {"all_reduce", "all_to_all", "broadcast"}
    assert {ranks for name, size, ranks in points if name == "all_reduce" and size == 8} == {"1", "2", "4"}
    copy = points["d2d", 1 << 28, None].median_s
    assert copy and rates_of(points["all_reduce", 1 << 28, "4"]).seconds == pytest.approx(1.5 * copy, rel=0.03)
    heads, rows, _ = shown(run)
    assert any(head.startswith("all_reduce by NCCL") for head in heads)
    assert any("(direct), " in row[5] or "(ring), " in row[5] for row in rows)


@needs_worker
@needs_fake
def test_four_gpus_of_one_process_run_every_collective_and_the_run_file_names_the_library(tmp_path) -> None:
    only = ["*/nccl/*/65536?*mode=single*ranks=4", "all_reduce/nccl/*/8?mode=batched&ranks=4"]
    fake = environment(CUDA_GPUS=4) | {"LINKSCOPE_NCCL": FAKE}
    run = run_of(tmp_path / "run.jsonl", only, "--suite", "collectives", **fake)
    assert len(run.points) == 8
    for point in run.points:
        assert point.verified or too_short(point), (point.id, point.status, point.reason)
        assert [flow.src for flow in point.flows] == [f"gpu:{rank}" for rank in range(4)]
    found = run.header.tool["nccl"]
    assert found["version"] == "2.28.9" and found["found"] == "LINKSCOPE_NCCL names it" and found["path"] == FAKE
    assert found["nvls"].startswith("NCCL_NVLS_ENABLE=0, set by linkscope")
    assert all("2.28.9" in point.guards["nccl"] for point in run.points if point.verified)


@needs_worker
@needs_fake
@pytest.mark.parametrize(
    ("folder", "calls"),
    [("nccl", {"ncclAlltoAll"}), ("nccl_2_27", {"ncclSend", "ncclRecv"})],
)
def test_an_all_to_all_is_the_librarys_own_call_or_messages_by_a_library_without_one(tmp_path, folder, calls) -> None:
    def point(fails: str) -> tuple[str, str]:
        name = {"LINKSCOPE_NCCL": str(LIBRARIES / folder / "libnccl.so.2"), "FAKE_NCCL_FAIL": fails}
        path = tmp_path / f"{fails or 'works'}.jsonl"
        only = ["all_to_all/nccl/*/65536?*mode=single*ranks=4"]
        (found,) = run_of(path, only, "--suite", "collectives", **environment(CUDA_GPUS=4), **name).points
        return ("verified" if found.verified or too_short(found) else found.status), found.reason or ""

    assert point("")[0] == "verified"
    for call in ("ncclAlltoAll", "ncclSend", "ncclRecv"):
        status, reason = point(call)
        assert (status == "failed" and f"{call}: unhandled" in reason) if call in calls else status == "verified"


@needs_worker
@needs_fake
def test_a_slow_rank_is_named(tmp_path) -> None:
    fake = environment(CUDA_GPUS=2) | {"LINKSCOPE_NCCL": FAKE, "FAKE_NCCL_SLOW": "1:20000"}
    only = ["all_reduce/nccl/*/256?*mode=single*ranks=2"]
    run = run_of(tmp_path / "run.jsonl", only, "--suite", "collectives", **fake)
    (point,) = run.points
    first, second = (flow.median_s or 0.0 for flow in point.flows)
    assert second > first + 2e-3  # of 20 ms: other programs on this machine delay both ranks


@needs_worker
@needs_fake
def test_a_missing_or_old_nccl_and_an_error_midway_have_clear_reasons_and_the_run_goes_on(tmp_path) -> None:
    only = ["all_reduce/nccl/*/256?mode=batched&ranks=2", "broadcast/nccl/*/256?mode=batched&ranks=2"]

    def reasons(name: str, **settings: str) -> dict[str, tuple[str, str]]:
        fake = environment(CUDA_GPUS=2) | {"LINKSCOPE_NCCL": FAKE} | settings
        run = run_of(tmp_path / f"{name}.jsonl", only, "--suite", "collectives", **fake)
        return {point.benchmark: (point.status, point.reason or "") for point in run.points}

    status, reason = reasons("missing", LINKSCOPE_NCCL="/no/such/libnccl.so.2")["all_reduce"]
    assert status == "unsupported" and "/no/such/libnccl.so.2" in reason and "pip install nvidia-nccl-cu13" in reason
    status, reason = reasons("old", FAKE_NCCL_VERSION="2804")["all_reduce"]
    assert status == "unsupported" and "is NCCL 2.8.4, and 2.10.0 or newer is needed" in reason
    found = reasons("error", FAKE_NCCL_FAIL="ncclAllReduce:7")
    assert found["all_reduce"][0] == "failed" and "ncclAllReduce: unhandled system error" in found["all_reduce"][1]
    assert found["broadcast"][0] in ("ok", "missed_precision") or "too short" in found["broadcast"][1]


@needs_mpi
@needs_fake
@needs_worker
def test_two_ranks_with_a_gpu_each_run_collectives_of_nccl_and_of_mpi(tmp_path) -> None:
    launch = (str(MPIEXEC), "-n", "2")
    fake = environment(CUDA_GPUS=2) | {"LINKSCOPE_NCCL": FAKE}
    of_nccl = ["*/nccl/rank:0*/4096?mode=batched&ranks=2"]
    run = run_of(tmp_path / "nccl.jsonl", of_nccl, "--suite", "collectives", launch=launch, **fake)
    assert {point.benchmark for point in run.points} >= {"all_reduce", "all_gather", "send_receive", "all_to_all"}
    of_mpi = ["*/mpi/rank:0*/4096?mode=batched&ranks=2", "*/mpi/rank:0*/1048576?*place=in*"]
    mpi = run_of(tmp_path / "mpi.jsonl", of_mpi, "--suite", "mpi", launch=launch, **fake)
    assert {point.benchmark for point in mpi.points} >= {"all_reduce", "all_gather", "reduce_scatter", "reduce"}
    for point in (*run.points, *mpi.points):
        assert point.verified or too_short(point), (point.id, point.status, point.reason)
        assert [flow.src for flow in point.flows] == ["rank:0", "rank:1"]
