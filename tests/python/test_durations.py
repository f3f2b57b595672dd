"""Samples of a duration over the worker's pipe: on a model, and on the fake driver."""

import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from driver_cases import FAMILIES, d2h, failure, h2d, opened, prepare, worker
from fake_driver import ROOT, needs_fake, needs_worker
from linkscope.cli.main import main
from linkscope.runfile import read_run
from test_driver_calls import call, flags

__all__ = ["worker"]  # a fixture

pytestmark = [needs_worker]


def run_for(pipe, wanted, duration=0.1, interval=0.01, **more):
    prepared = prepare(pipe, wanted)
    assert prepared["ok"] and prepared["supported"], prepared
    return pipe.ask("run", samples=2, duration_s=duration, interval_s=interval, verify=True, **more)


def check(answer, bytes_each, interval=0.01):
    """What holds for every answer. Returns all entries of actors."""
    assert answer["ok"] and answer["verdict"]["ok"] and answer["batches"] == 1, answer
    assert answer["doubles"] == 2 * answer["samples"] * answer["actors"]
    stamps = list(zip(answer["stamps"][::2], answer["stamps"][1::2], strict=True))
    found = []
    for sample, entry in enumerate(answer["series"]):
        own = stamps[sample * answer["actors"] : (sample + 1) * answer["actors"]]
        assert max(enter for enter, _ in own) == entry["start_s"]
        assert entry["end_s"] <= min(leave for _, leave in own) + 1e-9
        for actor in entry["actors"]:
            assert actor["iterations"] > 0
            assert len(actor["interval_bytes"]) == round((entry["end_s"] - entry["start_s"]) / interval)
            assert sum(actor["interval_bytes"]) <= actor["iterations"] * bytes_each
            found.append(actor)
    assert len(answer["series"]) == answer["samples"]
    return found


def test_a_model_runs_a_copy_for_a_duration(worker):
    pipe = worker()
    machine = tomllib.loads((ROOT / "machines" / "h200x1.toml").read_text())
    assert pipe.ask("open", platform="sim", machine=machine, seed=1)["ok"]
    for entry in check(run_for(pipe, h2d(size=16 << 20)), 16 << 20):
        rates = [moved / 0.01 for moved in entry["interval_bytes"]]
        assert len(rates) >= 10
        assert all(abs(a - b) < 0.02 * a for a, b in pairwise(rates))


@needs_fake
@pytest.mark.parametrize("wanted", [h2d(), d2h(), h2d("pageable"), h2d(bidirectional="true")])
def test_copies_run_to_a_common_end_and_arrive(worker, wanted):
    pipe, _ = opened(worker)
    check(run_for(pipe, wanted), wanted["bytes"])


@needs_fake
def test_actors_that_exchange_words_do_the_same_number_of_iterations(worker):
    pipe, _ = opened(worker)
    answer = run_for(pipe, flags("numa:0", "gpu:1", "pinned"))
    entries = check(answer, 0)
    for first, second in zip(entries[::2], entries[1::2], strict=True):
        assert first["iterations"] == second["iterations"]


@needs_fake
@pytest.mark.parametrize(
    "wanted, reason",
    [(FAMILIES["h2d by graph"], "issued together"), (call("launch"), "at most 512 iterations per sample")],
)
def test_what_runs_in_limited_batches_cannot_run_for_a_duration(worker, wanted, reason):
    pipe, _ = opened(worker)
    error = failure(run_for(pipe, wanted))
    assert error["kind"] == "usage" and reason in error["message"]


@needs_fake
def test_a_duration_excludes_batches_and_has_whole_intervals(worker):
    pipe, _ = opened(worker)
    assert "not both" in failure(run_for(pipe, h2d(), batches=[[1]]))["message"]
    assert "does not fit" in failure(run_for(pipe, h2d(), duration=0.01, interval=0.1))["message"]
    assert "more than 0 s" in failure(run_for(pipe, h2d(), duration=0))["message"]


@needs_fake
def test_a_word_that_never_arrives_ends_a_duration_with_its_reason(impatient, worker):
    pipe, _ = opened(worker, CUDA_SKIP="20+")
    error = failure(run_for(pipe, flags("gpu:0", "gpu:1", "device")))
    assert error["kind"] == "timeout" and "does not arrive" in error["message"]


def test_large_messages_of_many_modelled_connections_have_values(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    of = "get/sm/numa:0.*/16777216[?]connections="
    globs = (f"{of}132&threads=1024", f"{of}1&threads=1")
    words = [word for glob in globs for word in ("--only", glob)]
    assert main(["run", "--machine", "h200x1", "--suite", "full", *words, "--rounds", "2", "-o", str(path), "-q"]) == 0
    points = read_run(path).points
    assert len(points) == 2 and all(point.verified and point.median_s for point in points)
