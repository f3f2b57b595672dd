"""GPU contexts of equal cost: which runs request them, which costs are remembered, and the tally
(docs/notes/context-effects.md).

core/platform/cuda/contexts.cpp selects the contexts; tests/core/test_contexts.cpp tests it.
"""

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_driver import WORKER, environment, needs_fake, needs_worker
from fakes import FAKE_WORKER, facts, measured, plan, table, target
from linkscope.cli.main import main
from linkscope.plan import make_plan
from linkscope.report.findings import findings
from linkscope.run.contexts import Contexts
from linkscope.run.worker import RequestFailed, Worker
from linkscope.run.workers import Workers
from linkscope.runfile import ContextsTally, End, read_run
from worker_pipe import Pipe

MODEL = "NVIDIA H200"
ONE = "h2d/ce/numa:0.pinned->gpu:0.device/8?bidirectional=false&mode=batched"


def answer(**costs: list[float]) -> list[dict[str, Any]]:
    return [{"gpu": int(gpu[3:]), "model": MODEL, "operation_s": of} for gpu, of in costs.items()]


# --- what is remembered -----------------------------------------------------------------------------------------------


def test_gpus_are_asked_for_by_number_and_what_is_known_goes_along() -> None:
    contexts = Contexts()
    assert contexts.wanted({"numa:0", "gpu:10", "gpu:2"}) == {"gpus": [2, 10], "floors_s": {}}
    contexts.made(answer(gpu2=[1.9e-6, 1.7e-6], gpu10=[1.71e-6]))
    contexts.made(answer(gpu2=[1.75e-6]))
    assert contexts.wanted({"gpu:2"}) == {"gpus": [2], "floors_s": {MODEL: 1.7e-6}}


def test_models_have_floors_of_their_own() -> None:
    contexts = Contexts()
    contexts.made([*answer(gpu0=[1.7e-6]), {"gpu": 1, "model": "A100", "operation_s": [2.5e-6, 2.4e-6]}])
    assert contexts.wanted(())["floors_s"] == {MODEL: 1.7e-6, "A100": 2.4e-6}


def test_a_reading_that_went_wrong_is_no_floor() -> None:
    contexts = Contexts()
    contexts.made(answer(gpu0=[1.83e-6, 20e-9, 1.7e-6]))
    assert contexts.wanted(())["floors_s"] == {MODEL: 1.7e-6}


@pytest.mark.parametrize(
    "told", [[{"gpu": 0}], {"gpu:0": 1.7e-6}, 7, answer(gpu0=[]), [{"gpu": 0, "model": MODEL, "operation_s": 1.7e-6}]]
)
def test_what_is_no_answer_is_a_failed_request(told: Any) -> None:
    contexts = Contexts()
    with pytest.raises(RequestFailed, match="contexts"):
        contexts.made(told)
    assert contexts.tally() == {}


def test_what_the_worker_keeps_as_alike_is_not_called_dear() -> None:
    contexts = Contexts()
    for cost in (0.5e-6, 0.5e-6, 0.528e-6):
        contexts.made(answer(gpu10=[cost], gpu2=[cost]))
    assert list(contexts.tally()) == ["gpu:2", "gpu:10"]
    assert (contexts.tally()["gpu:2"].dear, contexts.tally()["gpu:2"].dear_kept) == (0, 0)


def test_dear_ones_that_were_kept_are_told() -> None:
    contexts = Contexts()
    for costs in ([1.83e-6] * 16, [1.83e-6] * 16, [1.83e-6, 1.7e-6]):
        contexts.made(answer(gpu0=costs))
    found = contexts.tally()["gpu:0"]
    assert (found.made, found.kept, found.dear, found.dear_kept) == (34, 3, 33, 2)


def test_a_tally_tells_kept_ones_from_those_of_another_kind() -> None:
    contexts = Contexts()
    contexts.made(answer(gpu0=[1.71e-6, 1.85e-6, 1.84e-6, 1.72e-6]))  # the first context is cheap but was not kept
    contexts.made(answer(gpu0=[1.70e-6], gpu1=[1.73e-6]))
    first, other = contexts.tally()["gpu:0"], contexts.tally()["gpu:1"]
    assert (first.made, first.kept, first.dear) == (5, 2, 2)
    assert (first.kept_s, first.dear_s) == (pytest.approx(1.71e-6), pytest.approx(1.845e-6))
    assert (other.made, other.kept, other.dear, other.dear_s) == (1, 1, 0, None)


# --- who asks for them ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wishes", "modelled", "alike"),
    [
        ({"suite": "standard"}, False, True),
        ({"suite": "full"}, False, True),
        ({"suite": "quick"}, False, False),  # a run of seconds
        ({"suite": "quick", "alike_contexts": True}, False, True),
        ({"suite": "standard", "alike_contexts": False}, False, False),
        ({"suite": "standard"}, True, False),  # a model has no contexts
        ({"suite": "standard", "alike_contexts": True}, True, False),
        ({"suite": "nvbandwidth"}, False, True),
        ({"suite": "nvbandwidth", "rule": "nvbandwidth", "rounds": 1}, False, False),  # like that tool
    ],
)
def test_which_plans_have_contexts_that_cost_alike(wishes: dict[str, Any], modelled: bool, alike: bool) -> None:
    assert make_plan(facts(modelled=modelled), table(), **wishes).alike_contexts is alike


@pytest.fixture
def asked(monkeypatch) -> list[dict[str, Any]]:
    """The requests that open workers; the GPU's second context is cheaper than the first, later ones are not."""
    requests: list[dict[str, Any]] = []
    costs = itertools.chain([[1.9e-6], [1.9e-6, 1.7e-6]], itertools.repeat([1.75e-6]))
    asks, opened = Worker.ask_to_open, Worker.opened

    def noted(worker: Worker, request: dict[str, Any]) -> None:
        requests.append(request)
        asks(worker, request)

    def told(worker: Worker) -> dict[str, Any]:
        wanted = "contexts" in requests[-1]
        return opened(worker) | ({"contexts": answer(gpu0=next(costs))} if wanted else {})

    monkeypatch.setattr(Worker, "ask_to_open", noted)
    monkeypatch.setattr(Worker, "opened", told)
    return requests


def test_each_process_is_told_what_those_before_it_found(tmp_path, asked) -> None:
    from msgspec import structs

    path = tmp_path / "a.jsonl"
    measured(target(modelled=False), structs.replace(plan(ONE, rounds=4), alike_contexts=True), path)
    wanted = [request["contexts"] for request in asked]
    assert [of["gpus"] for of in wanted] == [[0]] * 4  # the GPUs of the points, and no others
    assert [of["floors_s"] for of in wanted] == [{}, {MODEL: 1.9e-6}, {MODEL: 1.7e-6}, {MODEL: 1.7e-6}]
    run = read_run(path)
    assert run.end is not None
    assert run.end.contexts == {
        "gpu:0": ContextsTally(made=5, kept=4, kept_s=1.75e-6, dear=2, dear_s=1.9e-6, dear_kept=1)
    }


def test_a_platform_anew_in_the_same_process_has_contexts_made_alike_too(asked) -> None:
    contexts = Contexts()
    workers = Workers(FAKE_WORKER, target().open_request, lambda: False, contexts)
    workers.wants([], {"gpu:0", "numa:0"})
    workers.get()
    assert workers.renew() and workers.drop()
    assert [of["contexts"]["floors_s"] for of in asked] == [{}, {MODEL: 1.9e-6}]
    assert contexts.tally()["gpu:0"].made == 3


def test_without_the_wish_nobody_is_asked(tmp_path, asked) -> None:
    path = tmp_path / "a.jsonl"
    measured(target(modelled=False), plan(ONE, rounds=2), path)
    run = read_run(path)
    assert asked and not any("contexts" in request for request in asked)
    assert run.end is not None and run.end.contexts == {} and run.contexts() == {}


def test_a_worker_that_makes_none_is_taken_as_it_is(tmp_path) -> None:
    """Its answer has no contexts."""
    from msgspec import structs

    wanted = structs.replace(plan(ONE, rounds=2), alike_contexts=True)
    assert measured(target(modelled=False), wanted, tmp_path / "a.jsonl").complete
    run = read_run(tmp_path / "a.jsonl")
    assert len(run.points) == 1 and run.contexts() == {}


def test_what_goes_to_all_gpus_needs_contexts_on_all(tmp_path, asked) -> None:
    from msgspec import structs

    joint = "host_to_all/ce/numa:0.pinned->gpu:all.device/8?bidirectional=false"
    wanted = structs.replace(plan(ONE, rounds=1), points=[joint], alike_contexts=True)
    measured(target(modelled=False), wanted, tmp_path / "a.jsonl")
    assert asked[0]["contexts"]["gpus"] == [0, 1]


def test_all_points_of_a_pass_have_contexts_on_their_gpus(tmp_path, asked) -> None:
    from msgspec import structs

    wanted = structs.replace(plan(ONE, rounds=1), points=[ONE, ONE.replace("gpu:0", "gpu:1")], alike_contexts=True)
    measured(target(modelled=False), wanted, tmp_path / "a.jsonl")
    assert asked[0]["contexts"]["gpus"] == [0, 1]


@pytest.mark.parametrize(
    ("words", "alike"),
    [
        ([], None),  # as in the suite
        (["--contexts", "alike", "--suite", "quick"], True),
        (["--contexts", "any"], False),
        (["--contexts", "any", "--suite", "nvbandwidth", "--rule", "nvbandwidth"], False),  # this suite does so anyway
    ],
)
def test_a_wish_is_planned_for(monkeypatch, words: list[str], alike: bool | None) -> None:
    heard: list[bool | None] = []

    def noted(*given: Any, **wishes: Any) -> Any:
        heard.append(wishes["alike_contexts"])
        return make_plan(*given, **wishes)

    monkeypatch.setattr("linkscope.plan.make_plan", noted)
    monkeypatch.setattr(
        "linkscope.run.target.choose", lambda *given: dataclasses.replace(target(), facts=facts(modelled=False))
    )
    assert main(["run", "--plan-only", *words]) == 0
    assert heard == [alike]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--contexts", "some"], "there are alike and any"),
        (["--contexts", ""], "without a value"),
        (["--contexts", "alike", "--rule", "nvbandwidth"], "nvbandwidth takes contexts as they come"),
        (["--contexts", "any", "--resume", "x.jsonl"], "leave out --contexts"),
        (["--contexts", "alike"], "h200x1 is a model, which has no contexts"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(capsys, words: list[str], sentence: str) -> None:
    assert main(["run", *words, *([] if "--resume" in words else ["--machine", "h200x1"])]) == 2
    assert sentence in capsys.readouterr().err


# --- what is told -----------------------------------------------------------------------------------------------------


def test_contexts_that_cost_more_stand_out(tmp_path) -> None:
    measured(target(), plan(ONE, rounds=1), tmp_path / "a.jsonl")
    run = read_run(tmp_path / "a.jsonl")
    assert run.end is not None
    alike = ContextsTally(made=9, kept=3, kept_s=1.7e-6, dear=0, dear_s=None)
    run.end.contexts = {"gpu:0": alike}
    assert "contexts" not in {finding.kind for finding in findings(run)}
    run.end.contexts = {"gpu:0": alike, "gpu:1": ContextsTally(made=20, kept=6, kept_s=1.7e-6, dear=8, dear_s=1.83e-6)}
    run.earlier_ends.append(
        End(
            wall_s=1.0, complete=False, counts={},
            contexts={"gpu:1": ContextsTally(made=10, kept=4, kept_s=1.7e-6, dear=5, dear_s=1.82e-6)},
        )
    )  # fmt: skip
    (found,) = [finding.text for finding in findings(run) if finding.kind == "contexts"]
    assert "gpu:1: 13 of 30, 130 ns more than 1.7 us" in found and "gpu:0" not in found
    assert "had to be measured" not in found
    run.end.contexts["gpu:1"].dear_kept = 2
    (found,) = [finding.text for finding in findings(run) if finding.kind == "contexts"]
    assert "2 platforms had to be measured in expensive ones" in found


# --- on the fake driver -----------------------------------------------------------------------------------------------


@needs_fake
@needs_worker
def test_a_worker_keeps_a_context_that_is_as_cheap_as_they_get() -> None:
    with Pipe(WORKER, environment(CUDA_GPUS=2, CUDA_DEAR_CONTEXTS="x.:50")) as pipe:
        told = pipe.ask("open", platform="cuda", contexts={"gpus": [0, 1], "floors_s": {}})
    assert told["ok"] and [of["gpu"] for of in told["contexts"]] == [0, 1]
    assert sum(len(of["operation_s"]) for of in told["contexts"]) >= 8
    for of in told["contexts"]:
        dear, cheap = of["operation_s"][0::2], of["operation_s"][1::2]
        assert min(dear) > 50e-6 and len(of["operation_s"]) % 2 == 0 and cheap[-1] < min(dear)


@needs_fake
@needs_worker
@pytest.mark.parametrize(
    ("settings", "extra"),
    [({"CUDA_MODE": "exclusive-free"}, {}), ({}, {"CUDA_LAUNCH_BLOCKING": "1"})],
    ids=["another process could take the GPU", "what an operation costs cannot be told"],
)
def test_where_contexts_cannot_be_made_alike_they_are_taken_as_they_come(settings, extra) -> None:
    with Pipe(WORKER, environment(CUDA_GPUS=1, **settings) | extra) as pipe:
        told = pipe.ask("open", platform="cuda", contexts={"gpus": [0], "floors_s": {}})
    assert told["ok"] and told["contexts"] == []


@needs_fake
@needs_worker
def test_a_context_of_a_gpu_that_is_not_there_is_refused() -> None:
    with Pipe(WORKER, environment(CUDA_GPUS=1)) as pipe:
        told = pipe.ask("open", platform="cuda", contexts={"gpus": [1], "floors_s": {}})
    assert told["error"] == {"kind": "usage", "message": "there is no gpu:1"}


@needs_fake
@needs_worker
@pytest.mark.parametrize("contexts", ["alike", "any"])
def test_a_gpu_on_which_no_context_can_be_told_fails_by_itself(tmp_path: Path, contexts: str) -> None:
    """The GPU's memory has no room for the probe. Its own points fail; the others are measured."""
    path = tmp_path / "a.jsonl"
    host = "h2h/cpu/numa:0.pinned->numa:0.pageable/65536?initiator=src&mode=batched"
    command = [sys.executable, "-m", "linkscope", "run", "--only", ONE.replace("?", "?after=kernel&"), "--only", host]
    done = subprocess.run(
        [*command, "--precision", "99%", "--rounds", "2", "--contexts", contexts, "-o", str(path), "--json"],
        env=environment(CUDA_GPUS=1, CUDA_MEMORY=100000), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    run = read_run(path)
    status = {point.id: point.status for point in run.points}
    assert status.pop(host) in ("ok", "missed_precision"), done.stderr
    assert set(status.values()) <= {"unsupported", "failed"}
    assert run.end is not None and run.end.contexts == {}


@needs_fake
@needs_worker
@pytest.mark.parametrize("contexts", ["alike", "any"])
def test_a_run_says_how_many_contexts_cost_more(tmp_path: Path, contexts: str) -> None:
    path = tmp_path / "a.jsonl"
    command = [
        sys.executable,
        "-m",
        "linkscope",
        "run",
        "--only",
        ONE.replace("?", "?after=kernel&"),
        "--precision",
        "99%",
        "--rounds",
        "2",
    ]
    done = subprocess.run(
        [*command, "--contexts", contexts, "-o", str(path), "--json"],
        env=environment(CUDA_GPUS=1, CUDA_COPY_US=100, CUDA_DEAR_CONTEXTS="x.:60"),
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    # 1: on a busy machine, copies may seem to take no time; this test is about contexts.
    assert done.returncode in (0, 1) and json.loads(done.stdout)["complete"], done.stderr
    run = read_run(path)
    assert run.end is not None and run.header.plan["alike_contexts"] is (contexts == "alike")
    if contexts == "any":
        assert run.end.contexts == {}
    else:
        (tally,) = run.end.contexts.values()
        assert tally.kept == 2 and tally.made >= 8 + 2 and tally.dear >= 4 + 1
        assert tally.dear_s is not None and tally.dear_s > 160e-6 and tally.kept_s > 100e-6
