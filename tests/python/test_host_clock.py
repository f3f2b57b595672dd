"""The host's clock and idle gaps: complete runs on simulated machines, and single calls on the fake driver."""

import itertools
import time

import pytest

from driver_cases import KIB, TOGETHER, case, failure, h2d, local, opened, prepare, worker, works
from fake_driver import needs_fake, needs_worker
from linkscope.machine import model as models
from linkscope.plan import make_plan
from linkscope.run import benchmark_table, measure
from linkscope.run.target import modelled
from linkscope.runfile import PointId, read_run
from test_driver_pieces import lines

__all__ = ["worker"]  # a fixture

pytestmark = [needs_worker]

PIECES = "pieces/{}/numa:0.pinned->gpu:0.device/4096000?"
ENGINES = ("ce", "batch", "graph", "sm")


def run_of(machine, file, *only):
    target = modelled(machine, 1)
    measure(target, make_plan(target.facts, benchmark_table(), suite="full", only=only, seed=1), file)
    return read_run(file).points


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Microseconds by engine and clock, for 1000 pieces of 4 KiB to a GPU."""
    file = tmp_path_factory.mktemp("pieces") / "run.jsonl"
    found = {}
    for point in run_of(models.load("h200x2"), file, *(PIECES.format(engine) + "*batched*" for engine in ENGINES)):
        assert point.status in ("ok", "missed_precision") and point.verified, point.reason
        found[point.engine, point.params.get("clock", "event")] = point.median_s * 1e6
    return found


def test_one_run_measures_every_engine_by_both_clocks(pieces):
    assert set(pieces) == set(itertools.product(ENGINES, ("event", "host")))


@pytest.mark.parametrize(
    ("engine", "gpu", "host"), [("ce", 2552, 2552), ("graph", 2579, 2567), ("batch", 74.9, None), ("sm", 84.8, 84.8)]
)
def test_times_of_pieces_agree_with_those_of_an_h200(pieces, engine, gpu, host):
    assert pieces[engine, "event"] == pytest.approx(gpu, rel=0.07)
    if host is None:  # the measured value varies from run to run
        assert 600 < pieces[engine, "host"] < 1300
    else:
        assert pieces[engine, "host"] == pytest.approx(host, rel=0.07)


SLEEPY = """
wake_us = { v = 30, from = "assumed", why = "a test" }
wake_after_us = { v = 1000, from = "assumed", why = "a test" }
"""


def test_a_run_shows_which_operations_wait_for_a_link_after_a_pause(tmp_path):
    text = models.bundled()["h200x1"].read_text().replace("[[link]]\n", f"{SLEEPY}\n[[link]]\n", 1)
    assert "wake_us" in text
    machine = models.parse(text, "sleepy.toml")
    only = ("h2d/ce/*pinned*4096?*clock=host*mode=single*", "launch*idle_gap_s*", "launch*mode=single*")
    points = run_of(machine, tmp_path / "run.jsonl", *only)
    us = {(p.benchmark, p.params.get("idle_gap_s", "0")): p.median_s * 1e6 for p in points if p.bytes in (0, 4 * KIB)}
    for name in ("h2d", "launch_to_end"):
        assert us[name, "0.0001"] - us[name, "0"] == pytest.approx(30 * 0.095, abs=1)
        for gap, part in (("0.001", 0.632), ("0.01", 1), ("0.1", 1)):
            assert us[name, gap] - us[name, "0"] == pytest.approx(30 * part, abs=2)
    for point in points:  # on hardware, long gaps cost seconds
        assert (max(map(len, point.flows[0].samples_s)) < 7) == (float(point.params.get("idle_gap_s", "0")) >= 0.01)
    assert us["launch", "0.1"] == pytest.approx(us["launch", "0"], rel=0.1)  # the call itself does not use the link


def test_only_full_has_pauses_and_the_host_clock_on_one_path_of_each_class():
    target, table = modelled(models.load("h200x4"), 1), benchmark_table()
    for suite in ("quick", "standard", "nvbandwidth", "sm", "comm-scope"):
        points = make_plan(target.facts, table, suite=suite).points
        assert not [id for id in points if "clock=" in id or "idle_gap_s=" in id], suite
    points = [PointId.parse(id) for id in make_plan(target.facts, table, suite="full").points]
    paused = [point for point in points if point.idle_gap_s > 0]
    assert {point.benchmark for point in paused} == {"h2d", "d2h", "d2d", "local", "launch", "launch_to_end"}
    assert all(point.param("mode") == "single" for point in paused)
    assert len(paused) < 60 and len([point for point in points if point.param("clock") == "host"]) < 120
    strided = {(point.src[:3], point.dst[:3]) for point in points if point.benchmark == "strided"}
    assert strided == {("num", "gpu"), ("gpu", "num"), ("gpu", "gpu")}


# --- the fake driver ----------------------------------------------------------------------------------------------

BY_HOST = {
    "one copy": h2d(clock="host", mode="single"),
    "bidirectional": h2d(clock="host", bidirectional="true"),
    "by one call": TOGETHER["pieces by batch"] | {"params": TOGETHER["pieces by batch"]["params"] | {"clock": "host"}},
    "as a graph": TOGETHER["pieces by graph"] | {"params": TOGETHER["pieces by graph"]["params"] | {"clock": "host"}},
    "rows": case("strided", "gpu:0", "numa:0", "device", "pinned", clock="host"),
    "a halo": case("halo", "gpu:0", "gpu:1", "device", "device", clock="host", way="packed"),
    "by sm": local(clock="host") | {"engine": "sm"},
}


@needs_fake
@pytest.mark.parametrize("name", BY_HOST)
def test_operations_timed_by_the_host_run_without_a_gate(worker, tmp_path, name):
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_LOG=log)
    answer = works(pipe, BY_HOST[name])
    assert answer["timing"] == "host" and "the host's clock was asked for" in answer["notes"]["timing"]
    assert "linkscope_gate" not in log.read_text()


@needs_fake
def test_a_batch_timed_by_the_host_is_one_call(worker, tmp_path):
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_LOG=log)
    works(pipe, BY_HOST["by one call"])
    pieces = 1600 // 64
    assert lines(log, "batch") == [pieces, *2 * [pieces, 8 * pieces, 16 * pieces]]


@needs_fake
@pytest.mark.parametrize("mode", [{"after": "kernel"}, {"after": "wait"}, {"clock": "host"}])
def test_a_pause_precedes_every_sample_with_work(worker, mode):
    pipe, _ = opened(worker)
    prepared = prepare(pipe, h2d(mode="single", idle_gap_s="0.1", **mode))
    assert prepared["most_iterations"] == 1 and "after 0.1 s of idling" in prepared["program"]
    began = time.monotonic()
    answer = pipe.ask("run", samples=3, batches=[[0], [1]], verify=True)
    assert time.monotonic() - began >= 3 * 0.1  # a lower bound, even on a fast machine
    assert answer["verdict"]["ok"]


@needs_fake
def test_a_pause_precedes_timed_calls(worker):
    pipe, _ = opened(worker)
    launch = case("launch", "numa:0", "gpu:0", "pageable", "device", size=0, footprint=0) | {"engine": "cpu"}
    for name in ("launch", "launch_to_end"):
        wanted = launch | {"benchmark": name, "params": {"mode": "single", "idle_gap_s": "0.001"}}
        assert prepare(pipe, wanted)["supported"]
        assert pipe.ask("run", samples=2, batches=[[0], [1]], verify=False)["timing"] == "host"


@needs_fake
def test_parameters_that_exclude_a_pause_are_refused_with_the_cure(worker):
    pipe, _ = opened(worker)
    assert "idle_gap_s needs mode=single" in failure(prepare(pipe, h2d(idle_gap_s="0.1")))["message"]
    assert "idle_gap_s is 0, 0.0001, " in failure(prepare(pipe, h2d(mode="single", idle_gap_s="3600")))["message"]
    prepare(pipe, h2d(mode="single", idle_gap_s="0.001"))
    assert "at most 1" in failure(pipe.ask("run", samples=1, batches=[[2]], verify=False))["message"]


@needs_fake
@pytest.mark.parametrize(
    ("engine", "most"), [("ce", 1024 // 25), ("graph", 1024 // 25), ("batch", 4096 // 25), ("sm", 0)]
)
def test_a_batch_of_pieces_stays_below_the_length_of_the_queue(worker, engine, most):
    pipe, _ = opened(worker)
    wanted = case("pieces", "numa:0", "gpu:0", "pinned", "device", size=25 * 64, piece="64") | {"engine": engine}
    assert prepare(pipe, wanted)["most_iterations"] == most
    assert prepare(pipe, wanted | {"params": {"piece": "64", "clock": "host"}})["most_iterations"] == 0
