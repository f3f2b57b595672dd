"""Complete commands on the fake driver: the run file describes what the kernels did."""

import subprocess
import sys
from pathlib import Path

import pytest

from fake_driver import environment, needs_fake, needs_worker, too_short
from linkscope.runfile import read_run

pytestmark = [needs_fake, needs_worker]

EXCHANGE = "exchange/sm/numa:0.pinned->gpu:1.device/65536?blocks=pieces&threads=512"
CHASE = "latency/sm/numa:0.pinned->gpu:0.device/0?cache=cold&range=64MiB"
LENIENT = "99%"  # times of the fake driver are those of the host and have no meaning here
MEASURED = ("ok", "missed_precision")


def measured(folder: Path, only: str, **settings):
    """The only point of a run, and the command's exit code."""
    path = folder / "run.jsonl"
    only = only.replace("?", "[?]")
    command = [sys.executable, "-m", "linkscope", "run", "--suite", "full", "--only", only, "--precision", LENIENT]
    command += ["--contexts", "any"]  # faults are counted by copies, and selecting contexts makes thousands of them
    done = subprocess.run(
        [*command, "-o", str(path), "--json"], env=environment(**settings), capture_output=True, text=True, timeout=300
    )
    assert path.exists(), done.stderr
    run = read_run(path)
    assert not run.header.modelled and len(run.points) == 1, done.stderr
    return run.points[0], done.returncode


def ends(flow) -> tuple[str, str, str, str, int]:
    return flow.src, flow.src_memory, flow.dst, flow.dst_memory, flow.bytes


def test_both_flows_of_an_exchange_are_in_the_run_file_and_add_up(tmp_path):
    point, code = measured(tmp_path, EXCHANGE, CUDA_COPY_US=3000)  # longer than the delays of a busy machine
    assert point.status in MEASURED and (point.verified, code) == (True, 0), point.reason
    there, back = point.flows
    assert ends(there) == ("numa:0", "pinned", "gpu:1", "device", 65536)
    assert ends(back) == ("gpu:1", "device", "numa:0", "pinned", 65536)
    assert there.median_s == back.median_s == point.median_s  # one kernel moves both
    assert point.gbps == pytest.approx(65536 / point.median_s / 1e9)
    assert point.total_gbps == pytest.approx(2 * point.gbps)


@pytest.mark.parametrize("first, place", [(1, "gpu:1.device"), (2, "numa:0.pinned")], ids=["to", "back"])
def test_an_exchange_with_one_wrong_direction_is_a_failed_point(tmp_path, first, place):
    """Each launch is two copies of the fake driver; every second copy has a wrong bit."""
    point, code = measured(tmp_path, EXCHANGE, CUDA_CORRUPT=f"{first}+2")
    assert (point.status, point.verified, code) == ("failed", False, 1)
    assert point.gbps is None and point.total_gbps is None
    assert point.reason.startswith("wrong data: ") and f" bytes are wrong, the first: {place} at byte " in point.reason


ON_AN_SM = "latency/sm/gpu:1.device->gpu:1.device/0?cache=cold&range=2MiB&sm=33"


@pytest.mark.parametrize("held", [None, 32, 33])
def test_a_chase_on_an_sm_is_a_point_that_fails_if_that_sm_is_occupied(tmp_path, held):
    settings = {} if held is None else {"CUDA_HELD_SM": held}
    point, code = measured(tmp_path, ON_AN_SM, **settings)
    assert point.id == ON_AN_SM and point.params["sm"] == "33"
    if held == 33:
        assert (point.status, point.median_s, code) == ("failed", None, 1)
        assert "none of 132 blocks came to SM 33 of gpu:1" in point.reason
    else:
        assert (point.verified, code) == (True, 0) and (point.status in MEASURED or too_short(point)), point.reason


def test_a_chase_that_leaves_its_cycle_is_a_failed_point(tmp_path):
    point, code = measured(tmp_path, CHASE, CUDA_SKIP="2+")  # the first copy sets the chase to its start
    assert (point.status, point.verified, code) == ("failed", False, 1)
    assert "where the chase should stand" in point.reason


def test_kernels_are_launched_in_the_shape_of_their_point(tmp_path):
    log = tmp_path / "queued"
    point, _ = measured(tmp_path, CHASE, CUDA_LOG=log)
    assert point.verified and (point.status in MEASURED or too_short(point)), point.reason
    lines = [line.split() for line in log.read_text().splitlines()]
    assert {tuple(line[2:]) for line in lines if line[2] == "linkscope_chase"} == {("linkscope_chase", "1", "1")}


@pytest.mark.parametrize(
    "id",
    [
        "h2d/ce/numa:0.pageable->gpu:0.device/65536?after=kernel&bidirectional=false&cache=hot&mode=batched",
        "h2h/cpu/numa:0.pageable->numa:0.pinned/65536?cache=hot&initiator=src&mode=batched",
    ],
)
def test_copies_of_cached_data_are_measured_and_verified(tmp_path, id):
    point, code = measured(tmp_path, id, CUDA_COPY_US=300)
    assert point.status in MEASURED and point.median_s, point.reason
    assert (point.verified, code, point.params["cache"]) == (True, 0, "hot")


def test_comm_scopes_rule_times_one_second_of_copies_by_events_five_times(tmp_path):
    """Copies of the fake driver take real time, so this test takes five seconds. Most of a copy of 50 ms is a sleep."""
    path = tmp_path / "run.jsonl"
    wanted = "h2d/ce/numa:0.pageable->gpu:0.device/16777216?after=wait&bidirectional=true&mode=single"
    command = [sys.executable, "-m", "linkscope", "run", "--rule", "comm-scope", "--only", wanted, "-o", str(path)]
    settings = environment(CUDA_COPY_US=50_000)
    done = subprocess.run([*command, "--json"], env=settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    run = read_run(path)
    (point,) = run.points
    assert run.header.plan["rule"] == "comm-scope" and (point.timing, point.verified) == ("events", True)
    assert "nothing holds the streams" in point.guards["timing"]
    for flow in point.flows:
        (samples,) = flow.samples_s
        assert len(samples) == 5 and flow.mean_s == pytest.approx(sum(samples) / 5)
    together_s = point.guards["together_s"]
    # The first repetition fills a second, the others have the same number of copies. Other programs delay some copies.
    assert point.batch[0] * max(max(samples) for flow in point.flows for samples in flow.samples_s) > 0.5
    assert point.total_gbps == pytest.approx(2 * 16777216 / together_s / 1e9)
    assert together_s >= 0.99 * max(flow.mean_s for flow in point.flows)


def test_a_point_states_its_time_by_part_and_the_tool_adds_them_up(tmp_path):
    """Six rounds of at least two batches of copies of 2 ms. The parts add up to less than the total."""
    point, _ = measured(tmp_path, EXCHANGE, CUDA_COPY_US=2000)
    spent = point.guards["spent"]
    assert list(spent) == ["caches_s", "comparing_s", "memory_s", "rehearsals_s", "samples_s"]
    assert all(seconds > 0 for seconds in spent.values())
    assert sum(spent.values()) < point.device_s and spent["samples_s"] > 6 * 2 * 2e-3
