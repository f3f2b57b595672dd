"""`linkscope advise` on machine files: rates of links, costs that add up, and predictions beside measured times."""

import importlib.util
import json
from pathlib import Path

import pytest

from linkscope.advise.predicted import error_of, is_predictable, predicted_points
from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.run import simulate
from linkscope.run.simulate import simulation
from linkscope.runfile import PointId
from test_advise import MIB, h2d, saved
from test_advise_transfer import beside
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]


def advised(capsys, *words: str, machine: str = "h200x4", src: str = "numa:0", dst: str = "gpu:0") -> dict:
    capsys.readouterr()
    source = ["--machine", machine] if machine else []
    assert main(["advise", *source, "--src", src, "--dst", dst, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def way(found: dict, benchmark: str, engine: str, memory: str = "pinned") -> dict:
    wanted = (benchmark, engine, {memory, "device"})
    return next(
        one
        for one in found["ways"]
        if (one["benchmark"], one["engine"], {one["src_memory"], one["dst_memory"]}) == wanted
    )


def test_a_modelled_method_is_predicted_and_not_measured(capsys) -> None:
    """The link carries 55.5 GB/s (test_predict.py)."""
    found = advised(capsys, "--bytes", "1GiB")
    pinned = way(found, "h2d", "ce")
    assert found["modelled"] and found["model"] == "h200x4" and found["run"] is None
    assert pinned["gbps"] == pytest.approx(55.5, rel=0.01)
    faster = {one["benchmark"] for one in found["ways"] if one["seconds"] < 0.95 * pinned["seconds"]}
    assert faster == {"relayed"}  # over the links of other GPUs as well
    assert pinned["measured"] is None and pinned["points"] == []
    assert pinned["predicted"]["seconds"] == pinned["seconds"]
    low, high = pinned["predicted"]["interval_s"]
    assert low < pinned["seconds"] < high
    registered = way(found, "h2d", "ce", "registered")
    assert registered["seconds"] == pinned["seconds"] and registered["rank"] <= pinned["rank"]
    assert way(found, "h2d", "ce", "pageable")["present"]


def test_beside_others_a_transfer_has_its_share_of_the_link(capsys) -> None:
    """The host gives 182 GB/s to four GPUs together."""
    others = ["--with", "numa:0 -> gpu:1; numa:0 -> gpu:2", "--with", "numa:0 -> gpu:3"]
    shared = way(advised(capsys, "--bytes", "512MiB", *others), "h2d", "ce")
    assert shared["gbps"] == pytest.approx(182 / 4, rel=0.01)
    assert shared["pays_off"] is not None  # allocating costs the same beside others


@pytest.mark.parametrize(
    "id",
    [
        "staged/ce/numa:0.pageable->gpu:0.device/268435456?bidirectional=false&chunk=64KiB&slots=4&threads=4",
        "staged/sm/gpu:0.device->numa:0.pageable/268435456?chunk=128KiB&slots=2&sms=16&threads=8",
        "staged/ce/gpu:0.device->gpu:1.device/268435456?bidirectional=false&chunk=64KiB&ring=numa:0&slots=1",
    ],
)
def test_two_operations_of_many_chunks_tell_the_time_of_eight(id: str, monkeypatch) -> None:
    machine, point = models.load("h200x4").to_json(), PointId.parse(f"{id}&mode=batched")
    with simulation() as simulated:
        few = simulated.seconds(machine, [point])
        assert [counts[0] for counts in simulated._counts(point)] == [1, 2]
        monkeypatch.setattr(simulate, "_MANY_CHUNKS", 1 << 40)
        assert [counts[0] for counts in simulated._counts(point)] == [4, 8]
        assert few == [pytest.approx(seconds, rel=1e-4) for seconds in simulated.seconds(machine, [point])]


def test_operations_of_fewer_chunks_are_simulated_four_and_eight_times() -> None:
    point = PointId.parse("staged/ce/numa:0.pageable->gpu:0.device/268435456?chunk=256KiB&mode=batched&slots=4")
    with simulation() as simulated:
        simulated.seconds(models.load("h200x4").to_json(), [point])
        assert [counts[0] for counts in simulated._counts(point)] == [4, 8]


def test_faults_have_no_steady_state_beside_others(capsys) -> None:
    found = advised(capsys, "--bytes", "16MiB", "--with", "numa:0 -> gpu:1")
    assert {one["benchmark"] for one in found["ways"]}.isdisjoint(("demand", "prefetch"))
    assert any("no steady state" in one["reason"] for one in found["not_listed"])


@pytest.mark.parametrize("dst", ["gpu:0", "gpu:3"])
def test_the_total_is_what_is_paid_once_and_every_copy(capsys, dst: str) -> None:
    found = advised(capsys, "--bytes", "64MiB", "--memory", "pageable", "--reuse", "20", dst=dst)
    for memory in ("pageable", "pinned", "registered"):
        one = way(found, "h2d", "ce", memory)
        assert one["total_s"] == pytest.approx(one["once_s"] + 20 * one["seconds"])
        assert one["once_s"] == pytest.approx(sum(part["seconds"] for part in one["once"])) and one["once_s"] > 0
    pinned, pageable = way(found, "h2d", "ce"), way(found, "h2d", "ce", "pageable")
    extra, gain = pinned["once_s"] - pageable["once_s"], pageable["seconds"] - pinned["seconds"]
    first = pinned["pays_off"]["from"]
    assert first * gain > extra and (first == 1 or (first - 1) * gain <= extra)


def test_a_loop_over_pieces_costs_its_calls_and_one_kernel_does_not(capsys) -> None:
    some, more = (advised(capsys, "--bytes", str(count * 4096), "--pieces", "4KiB") for count in (1000, 2000))
    loop = way(some, "pieces", "ce")
    assert way(some, "pieces", "ce", "pageable")["present"]
    assert way(more, "pieces", "ce")["seconds"] == pytest.approx(2 * loop["seconds"], rel=0.01)
    assert 4096000 / way(some, "pieces", "sm")["seconds"] > 0.8 * 55.5e9 > 10 * 4096000 / loop["seconds"]
    assert way(some, "strided", "ce")["rank"] == 1


def test_pieces_of_a_size_that_no_point_has_lie_between_the_neighbours(capsys) -> None:
    def seconds(piece: int) -> float:
        return way(advised(capsys, "--bytes", str(1000 * piece), "--pieces", str(piece)), "pieces", "ce")["seconds"]

    small, between, large = map(seconds, (512, 2304, 4096))
    assert between == pytest.approx((small + large) / 2)


def test_measured_and_predicted_times_stand_side_by_side(tmp_path: Path, capsys) -> None:
    path = str(saved(tmp_path, [h2d("pinned", 64 * MIB, 1.3e-3), h2d("pageable", 64 * MIB, 9e-3)]))
    words = [path, "--bytes", "64MiB"]
    found = advised(capsys, *words)
    pinned, kernel = way(found, "h2d", "ce"), way(found, "h2d", "sm")
    assert pinned["measured"]["seconds"] == pinned["seconds"] == pytest.approx(1.3e-3)
    assert pinned["predicted"]["seconds"] == pytest.approx(64 * MIB / 55.5e9, rel=0.01)
    assert kernel["measured"] is None and kernel["points"] == [] and kernel["ci95_s"] is None
    capsys.readouterr()
    assert main(["advise", path, "--machine", "h200x4", "--src", "numa:0", "--dst", "gpu:0", "--bytes", "64MiB"]) == 0
    text = capsys.readouterr().out
    assert "MODELLED h200x4: the predicted times" in text and "predicted" in text and "time [95 % CI]" in text


def test_flows_that_the_run_did_not_measure_are_predicted_and_a_note_says_so(tmp_path: Path, capsys) -> None:
    path = str(saved(tmp_path, [h2d("pinned", 64 * MIB, 1.3e-3)]))
    found = advised(capsys, path, "--bytes", "64MiB", "--with", "numa:0 -> gpu:1")
    assert "measured no method beside these transfers: h200x4 predicts the others" in found["notes"][0]
    assert all(one["measured"] is None for one in found["ways"])
    path = str(saved(tmp_path, [h2d("pinned", MIB, 2e-5), beside()]))
    found = advised(capsys, path, "--bytes", "1MiB", "--with", "numa:0 -> gpu:1")
    assert f"measured 1 of {len(found['ways'])} methods" in found["notes"][0]
    assert way(found, "h2d", "ce")["measured"] and way(found, "h2d", "ce")["predicted"]
    assert way(found, "h2d", "sm")["measured"] is None


def test_the_model_of_a_simulated_run_predicts_what_the_run_lacks(tmp_path: Path, capsys) -> None:
    path = str(tmp_path / "run.jsonl")
    only = f"h2d/ce/numa:0.pinned->gpu:0.device/{16 * MIB}?*kernel*false*batched*"
    words = ["--only", only, "--rounds", "3", "--precision", "5%", "-o", path, "--json"]
    assert main(["run", "--machine", "h200x4", *words]) == 0
    found = advised(capsys, path, "--bytes", "16MiB", "--with", "numa:0 -> gpu:1", machine="")
    assert found["model"] == "h200x4" and way(found, "h2d", "ce")["predicted"]


# --- the accuracy of a fitted file ---

FITTED = {
    "machine": {"measured": ["numa:0 -> gpu:0"]},
    "deviation": {"h2d by ce, pinned -> device": {"points": 9, "median": 0.02, "ninety": 0.25, "held_out": False}},
}


def test_the_interval_of_a_prediction_is_the_stated_error() -> None:
    point = PointId.parse(f"h2d/ce/numa:0.pinned->gpu:0.device/{MIB}?bidirectional=false&mode=batched")
    (made,) = predicted_points(FITTED, {point: 1e-3})
    assert made.median_s == 1e-3 and made.ci95_s == pytest.approx((0.8e-3, 1.25e-3)) and made.ci_level == 0.9
    (made,) = predicted_points({"machine": {}}, {point: 1e-3})
    assert made.ci95_s is None


ROWS = {
    "h2h by cpu, pageable -> pinned, initiator src": 0.5,
    "h2d by ce, pinned -> device": 0.1,
    "h2d by ce, pinned -> device, single": 0.7,
    "d2d by ce, device -> device, peer on, initiator src": 0.2,
    "prefetch by prefetch, managed -> managed": 0.4,
}


@pytest.mark.parametrize(("start", "error"), [
    ("staged/ce/numa:0.pageable->gpu:0.device/{}?bidirectional=false&mode=batched", 0.5),  # the CPU's leg
    ("fresh_staged/ce/gpu:0.device->numa:0.pageable/{}?chunk=4MiB&mode=batched&threads=8", 0.5),
    ("relayed/ce/numa:0.pinned->gpu:0.device/{}?helpers=1&mode=batched", 0.2),  # the leg between GPUs
    ("prefetch/prefetch/numa:0.system->gpu:0.system/{}?bidirectional=false", 0.4),  # its other memories
    ("split/ce/numa:0.pinned->gpu:0.device/{}?streams=2", 0.1),  # plain copies of the path
    ("h2d/ce/numa:0.wc->gpu:0.device/{}?bidirectional=false&mode=single", 0.7),  # single copies only
    ("d2h/ce/gpu:0.device->numa:0.pinned/{}?bidirectional=false&mode=batched", None),  # nothing is alike
])  # fmt: skip
def test_an_operation_without_a_stated_error_has_that_of_its_legs_or_of_others(start: str, error) -> None:
    content = {"machine": {}, "deviation": {name: {"ninety": size} for name, size in ROWS.items()}}
    assert error_of(content, PointId.parse(start.format(MIB))) == error


@pytest.mark.parametrize("name", ["h200x8", "jorda-a", "minsky"])
def test_every_prediction_of_a_bundled_model_has_an_interval(capsys, name: str) -> None:
    for words in (["--bytes", "4MiB"], ["--bytes", "4MiB", "--alone"]):
        found = advised(capsys, *words, machine=name, dst="gpu:1")
        assert found["ways"] and all(one["predicted"]["interval_s"] for one in found["ways"])
        borrowed = any("intervals are the errors of h200x4" in note for note in found["notes"])
        assert borrowed is (name != "h200x8")  # whose file states its own


def test_the_stated_errors_of_a_bundled_model_are_those_against_its_run() -> None:
    tool = Path(__file__).parents[2] / "tools" / "model_accuracy.py"
    spec = importlib.util.spec_from_file_location("model_accuracy", tool)
    assert spec is not None and spec.loader is not None
    accuracy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(accuracy)
    written = accuracy.FILE.read_text()
    assert "\n" + accuracy.table("h200x1") in written, "run `.venv/bin/python tools/model_accuracy.py`"


@pytest.mark.parametrize("words", [["--memory", "pageable"], ["--memory", "pinned", "--pieces", "4KiB"]])
def test_all_gpus_of_a_class_have_the_same_methods(capsys, words: list[str]) -> None:
    near, far = (advised(capsys, "--bytes", "16MiB", *words, dst=dst) for dst in ("gpu:0", "gpu:3"))

    def methods(found: dict) -> set[tuple[str, ...]]:
        return {(one["benchmark"], one["engine"], one["src_memory"], str(one["params"])) for one in found["ways"]}

    assert methods(near) == methods(far)
    assert {"staged", "relayed", "h2d"} <= {one[0] for one in methods(far)} or "--pieces" in words


def test_the_ring_for_pageable_memory_is_shown_whatever_its_rank(capsys) -> None:
    start = ["advise", "--machine", "h200x4", "--src", "numa:0", "--dst", "gpu:1", "--bytes", "48MiB"]
    assert main([*start, "--memory", "pageable"]) == 0
    text = capsys.readouterr().out
    assert "staged by sm, pageable → device" in text and "h2d by ce, pageable → device" in text
    assert "linkscope.copy(dst, src)  # C: ls_copy" in text


def test_advise_without_a_run_or_a_model_says_how_to_get_one(capsys) -> None:
    assert main(["advise", "--src", "numa:0", "--dst", "gpu:0", "--bytes", "1MiB"]) == 2
    text = capsys.readouterr().err
    assert "linkscope run -o RUN.jsonl" in text and "--machine h200x4" in text


@pytest.mark.parametrize(
    ("ends", "known"),
    [("numa:0.pinned->gpu:0", True), ("numa:0.pinned->gpu:1", False), ("numa:0.wc->gpu:0", False)],
)
def test_a_fitted_file_predicts_only_what_its_run_measured(ends: str, known: bool) -> None:
    point = PointId.parse(f"h2d/ce/{ends}.device/{MIB}?bidirectional=false&mode=batched")
    assert is_predictable(FITTED, point) is known and is_predictable({"machine": {}}, point)


# --- bad input ---


@pytest.mark.parametrize(("words", "code", "sentence"), [
    (["--dst", "gpu:9"], 3, "h200x4 has no gpu:9"),
    (["--dst", "gpus"], 2, "--dst gpus: this is not a place"),
    (["--memory", "system", "--dst", "gpu:1"], 3, "no transfer from numa:0 to gpu:1 with system memory; it has"),
    (["--dst", "numa:0", "--pieces", "4KiB"], 3, "h200x4 knows no pieces of 4 KiB from numa:0 to numa:0"),
    (["--with", "numa:0 -> gpu:9"], 3, "h200x4 has no gpu:9"),
    (["--with", "numa:0 -> gpu:1 64Mb"], 2, "^^^^ not a size; write 64MB or 64MiB"),
])  # fmt: skip
def test_a_bad_question_to_a_model_gets_the_reason(capsys, words, code, sentence) -> None:
    start = ["advise", "--machine", "h200x4", "--src", "numa:0", "--dst", "gpu:0", "--bytes", "1MiB"]
    assert main([*start, *words]) == code
    assert sentence in capsys.readouterr().err


def test_a_model_without_costs_of_memory_refuses_reuse(capsys) -> None:
    words = ["--machine", "ac922", "--src", "numa:0", "--dst", "gpu:0", "--bytes", "1MiB", "--reuse", "3"]
    assert main(["advise", *words]) == 3
    assert "--reuse 3: the model lacks the cost of" in capsys.readouterr().err


def test_a_model_needs_a_transfer_and_placement_needs_one_machine(tmp_path: Path, capsys) -> None:
    assert main(["advise", "--machine", "h200x4"]) == 2
    assert "--machine needs one transfer" in capsys.readouterr().err
    path = str(saved(tmp_path, [h2d("pinned", MIB, 2e-5)]))
    assert main(["advise", path, "--machine", "h200x4", "--talk", "matrix.txt"]) == 2
    assert "--talk needs the costs of one machine" in capsys.readouterr().err
