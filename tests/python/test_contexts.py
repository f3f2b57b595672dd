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
from linkscope.run import provenance
from linkscope.run.contexts import Contexts
from linkscope.run.worker import RequestFailed, Worker
from linkscope.run.workers import Workers
from linkscope.runfile import ContextsTally, End, read_run
from worker_pipe import Pipe

MODEL = "NVIDIA H200"
ONE = "h2d/ce/numa:0.pinned->gpu:0.device/8?bidirectional=false&mode=batched"


def answer(**costs: list[float]) -> list[dict[str, Any]]:
    return [{"gpu": int(gpu[3:]), "model": MODEL, "operation_s": of} for gpu, of in costs.items()]


# --- remembered costs -------------------------------------------------------------------------------------------------


def test_gpus_are_requested_by_number_together_with_the_known_floor() -> None:
    contexts = Contexts()
    assert contexts.wanted({"numa:0", "gpu:10", "gpu:2"}) == {"gpus": [2, 10], "floors_s": {}, "own_floors_s": []}
    contexts.made(answer(gpu2=[1.9e-6, 1.7e-6], gpu10=[1.71e-6]))
    contexts.made(answer(gpu2=[1.75e-6]))
    assert contexts.wanted({"gpu:2"}) == {"gpus": [2], "floors_s": {MODEL: 1.7e-6}, "own_floors_s": []}


def test_a_gpu_that_has_made_eight_contexts_has_a_floor_of_its_own() -> None:
    contexts = Contexts()
    contexts.made(answer(gpu0=[1.71e-6] * 2, gpu1=[1.9e-6] + [1.8e-6] * 6))
    assert contexts.wanted({"gpu:0", "gpu:1"})["own_floors_s"] == []
    contexts.made(answer(gpu1=[1.81e-6]))
    assert contexts.wanted({"gpu:0", "gpu:1"})["own_floors_s"] == [{"gpu": 1, "operation_s": 1.8e-6}]
    assert contexts.wanted({"gpu:0"})["own_floors_s"] == []  # of the GPUs that are asked for


def test_each_gpu_model_has_its_own_floor() -> None:
    contexts = Contexts()
    contexts.made([*answer(gpu0=[1.7e-6]), {"gpu": 1, "model": "A100", "operation_s": [2.5e-6, 2.4e-6]}])
    assert contexts.wanted(())["floors_s"] == {MODEL: 1.7e-6, "A100": 2.4e-6}


def test_an_invalid_reading_is_no_floor() -> None:
    contexts = Contexts()
    contexts.made(answer(gpu0=[1.83e-6, 20e-9, 1.7e-6]))
    assert contexts.wanted(())["floors_s"] == {MODEL: 1.7e-6}


@pytest.mark.parametrize(
    "malformed",
    [[{"gpu": 0}], {"gpu:0": 1.7e-6}, 7, answer(gpu0=[]), [{"gpu": 0, "model": MODEL, "operation_s": 1.7e-6}]],
)
def test_an_invalid_answer_fails_the_request(malformed: Any) -> None:
    contexts = Contexts()
    with pytest.raises(RequestFailed, match="contexts"):
        contexts.made(malformed)
    assert contexts.tally() == {}


def test_a_context_that_the_worker_keeps_as_equal_is_not_counted_as_expensive() -> None:
    contexts = Contexts()
    for cost in (0.5e-6, 0.5e-6, 0.528e-6):
        contexts.made(answer(gpu10=[cost], gpu2=[cost]))
    assert list(contexts.tally()) == ["gpu:2", "gpu:10"]
    assert (contexts.tally()["gpu:2"].dear, contexts.tally()["gpu:2"].dear_kept) == (0, 0)


def test_expensive_contexts_that_were_kept_are_counted() -> None:
    contexts = Contexts()
    for costs in ([1.83e-6] * 16, [1.83e-6] * 16, [1.83e-6, 1.7e-6]):
        contexts.made(answer(gpu0=costs))
    found = contexts.tally()["gpu:0"]
    assert (found.made, found.kept, found.dear, found.dear_kept) == (34, 3, 33, 2)


def test_the_tally_separates_kept_contexts_from_others() -> None:
    contexts = Contexts()
    contexts.made(answer(gpu0=[1.71e-6, 1.85e-6, 1.84e-6, 1.72e-6]))  # the first context is cheap but was not kept
    contexts.made(answer(gpu0=[1.70e-6], gpu1=[1.73e-6]))
    first, other = contexts.tally()["gpu:0"], contexts.tally()["gpu:1"]
    assert (first.made, first.kept, first.dear) == (5, 2, 2)
    assert (first.kept_s, first.dear_s) == (pytest.approx(1.71e-6), pytest.approx(1.845e-6))
    assert (other.made, other.kept, other.dear, other.dear_s) == (1, 1, 0, None)


# --- runs that request equal contexts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wishes", "modelled", "alike"),
    [
        ({"suite": "standard"}, False, True),
        ({"suite": "full"}, False, True),
        ({"suite": "quick"}, False, False),  # a run of a few seconds
        ({"suite": "quick", "alike_contexts": True}, False, True),
        ({"suite": "standard", "alike_contexts": False}, False, False),
        ({"suite": "standard"}, True, False),  # a simulated machine has no contexts
        ({"suite": "standard", "alike_contexts": True}, True, False),
        ({"suite": "nvbandwidth"}, False, True),
        ({"suite": "nvbandwidth", "rule": "nvbandwidth", "rounds": 1}, False, False),  # as nvbandwidth itself does
    ],
)
def test_plans_that_request_contexts_of_equal_cost(wishes: dict[str, Any], modelled: bool, alike: bool) -> None:
    assert make_plan(facts(modelled=modelled), table(), **wishes).alike_contexts is alike


@pytest.fixture
def requests(monkeypatch) -> list[dict[str, Any]]:
    """The requests that open workers. The GPU's second context is cheaper than the first, later ones are not."""
    requests: list[dict[str, Any]] = []
    costs = itertools.chain([[1.9e-6], [1.9e-6, 1.7e-6]], itertools.repeat([1.75e-6]))
    asks, opened = Worker.ask_to_open, Worker.opened

    def noted(worker: Worker, request: dict[str, Any]) -> None:
        requests.append(request)
        asks(worker, request)

    def opened_with_contexts(worker: Worker) -> dict[str, Any]:
        wanted = "contexts" in requests[-1]
        return opened(worker) | ({"contexts": answer(gpu0=next(costs))} if wanted else {})

    monkeypatch.setattr(Worker, "ask_to_open", noted)
    monkeypatch.setattr(Worker, "opened", opened_with_contexts)
    return requests


def test_each_process_receives_the_floor_found_by_earlier_ones(tmp_path, requests) -> None:
    from msgspec import structs

    path = tmp_path / "a.jsonl"
    measured(target(modelled=False), structs.replace(plan(ONE, rounds=4), alike_contexts=True), path)
    wanted = [request["contexts"] for request in requests]
    assert [of["gpus"] for of in wanted] == [[0]] * 4  # the GPUs of the points, and no others
    assert [of["floors_s"] for of in wanted] == [{}, {MODEL: 1.9e-6}, {MODEL: 1.7e-6}, {MODEL: 1.7e-6}]
    run = read_run(path)
    assert run.end is not None
    assert run.end.contexts == {
        "gpu:0": ContextsTally(made=5, kept=4, kept_s=1.75e-6, dear=2, dear_s=1.9e-6, dear_kept=1)
    }


def test_a_renewed_platform_in_the_same_process_requests_equal_contexts_too(requests) -> None:
    contexts = Contexts()
    workers = Workers(FAKE_WORKER, target().open_request, lambda: False, contexts)
    workers.wants([], {"gpu:0", "numa:0"})
    workers.get()
    assert workers.renew() and workers.drop()
    assert [of["contexts"]["floors_s"] for of in requests] == [{}, {MODEL: 1.9e-6}]
    assert contexts.tally()["gpu:0"].made == 3


def test_without_the_setting_no_worker_is_asked_for_contexts(tmp_path, requests) -> None:
    path = tmp_path / "a.jsonl"
    measured(target(modelled=False), plan(ONE, rounds=2), path)
    run = read_run(path)
    assert requests and not any("contexts" in request for request in requests)
    assert run.end is not None and run.end.contexts == {} and run.contexts() == {}


def test_a_worker_without_contexts_in_its_answer_is_used_as_it_is(tmp_path) -> None:
    from msgspec import structs

    wanted = structs.replace(plan(ONE, rounds=2), alike_contexts=True)
    assert measured(target(modelled=False), wanted, tmp_path / "a.jsonl").complete
    run = read_run(tmp_path / "a.jsonl")
    assert len(run.points) == 1 and run.contexts() == {}


def test_a_point_to_all_gpus_needs_contexts_on_all_of_them(tmp_path, requests) -> None:
    from msgspec import structs

    joint = "host_to_all/ce/numa:0.pinned->gpu:all.device/8?bidirectional=false"
    wanted = structs.replace(plan(ONE, rounds=1), points=[joint], alike_contexts=True)
    measured(target(modelled=False), wanted, tmp_path / "a.jsonl")
    assert requests[0]["contexts"]["gpus"] == [0, 1]


def test_a_pass_requests_contexts_on_the_gpus_of_all_its_points(tmp_path, requests) -> None:
    from msgspec import structs

    wanted = structs.replace(plan(ONE, rounds=1), points=[ONE, ONE.replace("gpu:0", "gpu:1")], alike_contexts=True)
    measured(target(modelled=False), wanted, tmp_path / "a.jsonl")
    assert requests[0]["contexts"]["gpus"] == [0, 1]


@pytest.mark.parametrize(
    ("words", "alike"),
    [
        ([], None),  # the default of the suite
        (["--contexts", "alike", "--suite", "quick"], True),
        (["--contexts", "any"], False),
        (["--contexts", "any", "--suite", "nvbandwidth", "--rule", "nvbandwidth"], False),  # the default of this suite
    ],
)
def test_the_contexts_option_reaches_the_plan(monkeypatch, words: list[str], alike: bool | None) -> None:
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
        (["--contexts", "some"], "choose alike or any"),
        (["--contexts", ""], "has an empty value"),
        (["--contexts", "alike", "--rule", "nvbandwidth"], "nvbandwidth uses any contexts"),
        (["--contexts", "any", "--resume", "x.jsonl"], "leave out --contexts"),
        (["--contexts", "alike"], "h200x1 is a model, which has no contexts"),
    ],
)
def test_an_inconsistent_contexts_option_is_refused(capsys, words: list[str], sentence: str) -> None:
    assert main(["run", *words, *([] if "--resume" in words else ["--machine", "h200x1"])]) == 2
    assert sentence in capsys.readouterr().err


# --- reported contexts ------------------------------------------------------------------------------------------------


def test_expensive_contexts_are_a_finding(tmp_path) -> None:
    measured(target(), plan(ONE, rounds=1), tmp_path / "a.jsonl")
    run = read_run(tmp_path / "a.jsonl")
    assert run.end is not None
    alike = ContextsTally(made=9, kept=3, kept_s=1.7e-6, dear=0, dear_s=None)
    run.end.contexts = {"gpu:0": alike}
    assert "contexts" not in {finding.kind for finding in findings(dataclasses.replace(run))}
    run.end.contexts = {"gpu:0": alike, "gpu:1": ContextsTally(made=20, kept=6, kept_s=1.7e-6, dear=8, dear_s=1.83e-6)}
    run.earlier_ends.append(
        End(
            wall_s=1.0, complete=False, counts={},
            contexts={"gpu:1": ContextsTally(made=10, kept=4, kept_s=1.7e-6, dear=5, dear_s=1.82e-6)},
        )
    )  # fmt: skip
    (found,) = [finding.text for finding in findings(dataclasses.replace(run)) if finding.kind == "contexts"]
    assert "gpu:1: 13 of 30, 130 ns more than 1.7 us" in found and "gpu:0" not in found
    assert "had to be measured" not in found
    run.end.contexts["gpu:1"].dear_kept = 2
    (found,) = [finding.text for finding in findings(dataclasses.replace(run)) if finding.kind == "contexts"]
    assert "2 platforms could only be measured in expensive contexts" in found


# --- on the fake driver -----------------------------------------------------------------------------------------------


@needs_fake
@needs_worker
def test_a_worker_keeps_one_of_the_cheapest_contexts() -> None:
    with Pipe(WORKER, environment(CUDA_GPUS=2, CUDA_SLOW_CONTEXTS="x.:50")) as pipe:
        opened_answer = pipe.ask("open", platform="cuda", contexts={"gpus": [0, 1], "floors_s": {}})
    assert opened_answer["ok"] and [of["gpu"] for of in opened_answer["contexts"]] == [0, 1]
    assert sum(len(of["operation_s"]) for of in opened_answer["contexts"]) >= 8
    for of in opened_answer["contexts"]:
        expensive, cheap = of["operation_s"][0::2], of["operation_s"][1::2]
        assert min(expensive) > 50e-6 and len(of["operation_s"]) % 2 == 0 and cheap[-1] < min(expensive)


@needs_fake
@needs_worker
def test_a_slower_gpu_is_content_with_its_own_floor() -> None:
    floors = {"floors_s": {}, "own_floors_s": [{"gpu": 0, "operation_s": 1.0}, {"gpu": 1, "operation_s": 1e-12}]}
    with Pipe(WORKER, environment(CUDA_GPUS=2)) as pipe:
        opened_answer = pipe.ask("open", platform="cuda", contexts={"gpus": [0, 1]} | floors)
    assert [len(of["operation_s"]) > 1 for of in opened_answer["contexts"]] == [False, True]


@needs_fake
@needs_worker
@pytest.mark.parametrize(
    ("settings", "extra"),
    [({"CUDA_MODE": "exclusive-free"}, {}), ({}, {"CUDA_LAUNCH_BLOCKING": "1"})],
    ids=["another process could take the GPU", "the cost of an operation is unknown"],
)
def test_contexts_that_cannot_be_selected_are_used_as_created(settings, extra) -> None:
    with Pipe(WORKER, environment(CUDA_GPUS=1, **settings) | extra) as pipe:
        opened_answer = pipe.ask("open", platform="cuda", contexts={"gpus": [0], "floors_s": {}})
    assert opened_answer["ok"] and opened_answer["contexts"] == []


@needs_fake
@needs_worker
def test_a_context_on_a_missing_gpu_is_refused() -> None:
    with Pipe(WORKER, environment(CUDA_GPUS=1)) as pipe:
        opened_answer = pipe.ask("open", platform="cuda", contexts={"gpus": [1], "floors_s": {}})
    assert opened_answer["error"] == {"kind": "usage", "message": "there is no gpu:1"}


@needs_fake
@needs_worker
@pytest.mark.parametrize("contexts", ["alike", "any"])
def test_a_gpu_without_room_for_the_probe_fails_alone(tmp_path: Path, contexts: str) -> None:
    """The GPU's own points fail. The others are measured."""
    path = tmp_path / "a.jsonl"
    host = "h2h/cpu/numa:0.pinned->numa:0.pageable/65536?initiator=src&mode=batched"
    command = [sys.executable, "-m", "linkscope", "run", "--only", ONE.replace("?", "?after=kernel&"), "--only", host]
    done = subprocess.run(
        [*command, "--precision", "99%", "--rounds", "2", "--contexts", contexts, "-o", str(path), "--json"],
        env=environment(CUDA_GPUS=1, CUDA_MEMORY=100000), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    run = read_run(path)
    status = {point.id: point.status for point in run.points}
    assert status.pop(host) in ("ok", "missed_precision"), done.stderr
    assert set(status.values()) <= {"unsupported", "failed"}
    assert run.end is not None and run.end.contexts == {}


@needs_fake
@needs_worker
@pytest.mark.parametrize("contexts", ["alike", "any"])
def test_a_run_counts_the_expensive_contexts(tmp_path: Path, contexts: str) -> None:
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
        env=environment(CUDA_GPUS=1, CUDA_COPY_US=100, CUDA_SLOW_CONTEXTS="x.:60"),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    # 1: on a busy machine a copy may seem to take no time. This test only looks at the contexts.
    assert done.returncode in (0, 1) and json.loads(done.stdout)["complete"], done.stderr
    run = read_run(path)
    assert run.end is not None and run.header.plan["alike_contexts"] is (contexts == "alike")
    assert run.header.tool.get("commit") == provenance.commit()  # a run on hardware names the source that measured it
    if contexts == "any":
        assert run.end.contexts == {}
    else:
        (tally,) = run.end.contexts.values()
        assert tally.kept == 2 and tally.made >= 8 + 2 and tally.dear >= 4 + 1
        assert tally.dear_s is not None and tally.dear_s > 160e-6 and tally.kept_s > 100e-6
