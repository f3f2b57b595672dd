"""The worker processes of a run: how many there are, when they end, and what happens if one fails."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fakes import FAKE_WORKER, measured, no_worker_opens_after, plan, target
from linkscope.plan.classes import PathClass
from linkscope.run.answers import Prepared
from linkscope.run.ranks import RankWorkers
from linkscope.run.worker import RequestFailed, Worker, WorkerGone
from linkscope.run.workers import CannotStart, Workers, twice
from linkscope.runfile import read_run
from processes import runs
from test_assemble import ONE
from test_run_edges import LARGE, OTHER


def test_every_round_of_a_plan_without_classes_has_its_own_process(tmp_path, monkeypatch) -> None:
    opened: list[int] = []
    opens = Worker.opened

    def seen(worker: Worker) -> dict[str, Any]:
        opened.append(worker.pid)
        return opens(worker)

    monkeypatch.setattr(Worker, "opened", seen)
    measured(target(modelled=False), plan(ONE, LARGE), tmp_path / "a.jsonl")
    assert len(opened) == len(set(opened)) == 6
    opened.clear()
    classes = [PathClass("host to GPU", ["numa:0->gpu:0"])]
    with_classes = structs.replace(plan(ONE, LARGE, rounds=6), classes=classes)
    measured(target(modelled=False), with_classes, tmp_path / "b.jsonl")
    assert len(set(opened)) < len(opened)  # every second round has a fresh platform in the same process


def test_a_fresh_process_opens_while_the_previous_ends_and_measures_after_its_end(tmp_path, monkeypatch) -> None:
    calls: list[str] = []

    def noted(does: Callable[..., Any]) -> Callable[..., Any]:
        def logged(*given: Any) -> Any:
            calls.append(does.__name__)
            return does(*given)

        return logged

    for name in ("ask_to_open", "end", "kill", "prepare"):
        monkeypatch.setattr(Worker, name, noted(getattr(Worker, name)))
    measured(target(modelled=False), plan(ONE, rounds=2), tmp_path / "a.jsonl")
    first = calls.index("ask_to_open")  # the requests before it open a worker for its version
    assert calls[first:] == ["ask_to_open", "prepare", "end", "ask_to_open", "kill", "prepare", "kill"]


def test_a_worker_that_dies_while_opening_is_started_again(tmp_path, monkeypatch) -> None:
    asks, dying = Worker.ask_to_open, [0, 1, 0, 0]

    def sometimes(worker: Worker, request: dict[str, Any]) -> None:
        if dying.pop(0):
            worker.kill()
            raise WorkerGone("it died")
        asks(worker, request)

    monkeypatch.setattr(Worker, "ask_to_open", sometimes)
    assert measured(target(modelled=False), plan(ONE, rounds=3), tmp_path / "a.jsonl").points[ONE].median_s
    assert not dying


def test_a_worker_that_lost_its_gpu_is_not_used_again(tmp_path, monkeypatch) -> None:
    used: dict[str, list[int]] = {}
    prepares = Worker.prepare

    def seen(worker: Worker, case: Any, key: str, *others: Any) -> Prepared:
        used.setdefault(key, []).append(worker.pid)
        return prepares(worker, case, key, *others)

    monkeypatch.setattr(Worker, "prepare", seen)
    for flaw, processes in (("lost", 3), ("fail", 1)):
        used.clear()
        measured(target(flawed={flaw: "*/8?*#0"}), plan(ONE, OTHER, rounds=2), tmp_path / f"{flaw}.jsonl")
        assert len({pid for pids in used.values() for pid in pids}) == processes, flaw  # a lost one is tried twice


@pytest.mark.parametrize(
    "problem", [RequestFailed("failed", "no second platform"), WorkerGone("no answer", hung=True, abandoned=True)]
)
def test_the_gpus_of_an_unkillable_worker_are_lost_if_its_platform_does_not_reopen(
    tmp_path, monkeypatch, problem: Exception
) -> None:
    kills, tried = Worker.kill, list[int]()

    def never(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
        tried.append(worker.pid)
        raise problem

    def unkillable(worker: Worker) -> bool:
        return kills(worker) and worker.pid not in tried

    monkeypatch.setattr(Worker, "open", never)
    monkeypatch.setattr(Worker, "kill", unkillable)
    path = tmp_path / "a.jsonl"
    classes = [PathClass("host to GPU", ["numa:0->gpu:0"])]
    measured(target(modelled=False), structs.replace(plan(ONE, rounds=6), classes=classes), path)
    (found,) = read_run(path).points
    assert len(tried) == len(found.flows[0].samples_s) == 1
    assert "gpu:0" in (found.reason or "") and "could not be killed" in (found.reason or "")


def test_a_worker_that_is_still_opening_is_ended_and_never_used(monkeypatch) -> None:
    started, opened = list[Worker](), list[int]()
    asks, opens = Worker.ask_to_open, Worker.opened

    def noted(worker: Worker, request: dict[str, Any]) -> None:
        started.append(worker)
        asks(worker, request)

    def seen(worker: Worker) -> dict[str, Any]:
        opened.append(started.index(worker))
        return opens(worker)

    monkeypatch.setattr(Worker, "ask_to_open", noted)
    monkeypatch.setattr(Worker, "opened", seen)
    workers = Workers(FAKE_WORKER, target().open_request, lambda: False)
    workers.get()
    assert workers.replace() and workers.drop()
    assert [runs(worker.pid) for worker in started] == [False, False]
    workers.get()
    workers.drop()
    assert opened == [0, 2]


def test_a_point_with_three_sufficient_rounds_keeps_its_value_if_no_worker_starts(tmp_path, monkeypatch) -> None:
    no_worker_opens_after(3, monkeypatch)
    classes = [PathClass("host to GPU", ["numa:0->gpu:0"])]
    made = structs.replace(plan(ONE, budget_s=1e4), classes=classes, early=True)
    found = measured(target(modelled=False, noise=0.05), made, tmp_path / "a.jsonl").points[ONE]
    assert "no GPU any more" in (found.reason or "") + found.guards.get("stopped", "")
    assert found.status in ("ok", "missed_precision") and found.median_s and len(found.flows[0].samples_s) == 3


def test_points_keep_their_rounds_if_no_worker_starts_and_the_point_that_ended_it_is_named(
    tmp_path, monkeypatch
) -> None:
    no_worker_opens_after(3, monkeypatch)
    where = target(modelled=False, flawed={"die": f"{OTHER}*"})
    points = measured(where, plan(ONE, OTHER, rounds=6), tmp_path / "a.jsonl").points
    kept, ended = points[ONE], points[OTHER]
    assert kept.status == "missed_precision" and kept.median_s and kept.flows[0].samples_s
    assert (kept.reason or "").endswith(f"no GPU any more; a worker last ended while it measured {OTHER}"), kept.reason
    assert ended.status == "failed" and "was ended by SIGKILL" in (ended.reason or "")


OPEN_MPI = """[vm:7] *** Process received signal ***
[vm:7] Signal: Segmentation fault (11)
[vm:7] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x42520)[0x7f0000000000]
[vm:7] [ 1] /usr/lib/libcuda.so.1(+0x338aa1)[0x7f0000000001]
[vm:7] [ 2] /usr/lib/libcuda.so.1(+0x2f0000)[0x7f0000000002]
[vm:7] [ 3] /opt/ucx/lib/ucx/libuct_cuda.so.0(uct_cuda_copy_md_open+0x24)[0x7f0000000003]
[vm:7] [ 4] /opt/ucx/lib/libuct.so.0(+0x1)[0x7f0000000004]
[vm:7] [ 5] /opt/ucx/lib/libucp.so.0(ucp_init_version+0x1)[0x7f0000000005]
[vm:7] [ 6] /opt/linkscope/linkscope-worker(+0x10)[0x7f0000000006]
[vm:7] [ 7] /opt/linkscope/linkscope-worker(main+0x10)[0x7f0000000007]
[vm:7] [ 8] /lib/x86_64-linux-gnu/libc.so.6(__libc_start_main+0x80)[0x7f0000000008]
[vm:7] *** End of error message ***"""
UCX = """==== backtrace (tid:      7) ====
 0  /opt/ucx/lib/libucs.so.0(ucs_handle_error+0x2e4) [0x7f0000000000]
 1  /lib/x86_64-linux-gnu/libc.so.6(+0x42520) [0x7f0000000001]
 2  /opt/ucx/lib/ucx/libuct_cuda.so.0(uct_cuda_ipc_post+0x24) [0x7f0000000002]
 3  /opt/ucx/lib/libucs.so.0(ucs_callbackq_add+0x1) [0x7f0000000003]
================================="""
OF_OPEN_MPI = (
    "in libcuda.so.1+0x338aa1, called by libuct_cuda.so.0(uct_cuda_copy_md_open), called by libuct.so.0+0x1, called by "
    "libucp.so.0(ucp_init_version), called by linkscope-worker+0x10, called by linkscope-worker(main)"
)
OF_UCX = "in libuct_cuda.so.0(uct_cuda_ipc_post), called by libucs.so.0(ucs_callbackq_add)"


@pytest.mark.parametrize(("printed", "named"), [(OPEN_MPI, OF_OPEN_MPI), (UCX, OF_UCX)])
def test_a_worker_that_crashes_in_a_library_names_who_called_it_by_up_to_six_calls(
    tmp_path, printed: str, named: str
) -> None:
    where = target(flawed={"die": "*"}, last_words=printed)
    found = measured(where, plan(ONE), tmp_path / "a.jsonl").points[ONE]
    assert found.status == "failed"
    assert (found.reason or "").endswith(f": {named}"), found.reason


def test_a_point_whose_worker_died_is_named_even_if_no_worker_starts_for_a_second_try(tmp_path, monkeypatch) -> None:
    """Ranks cannot be started again, so their second try would hide the point in which they ended."""
    no_worker_opens_after(1, monkeypatch)
    where = target(modelled=False, flawed={"die": f"{OTHER}*"})
    points = measured(where, plan(ONE, OTHER), tmp_path / "a.jsonl").points
    assert points[OTHER].status == "failed" and "was ended by SIGKILL" in (points[OTHER].reason or "")


class _Ranks:
    """Ranks whose machine opens a number of times; then a rank ends."""

    def __init__(self, opens: int) -> None:
        self.opens, self.why_gone = opens, ""

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        self.opens -= 1
        if self.opens < 0:
            raise WorkerGone("rank 0 was ended by SIGSEGV: in libcuda.so.1+0x1")
        return {}


@pytest.mark.parametrize(("opens", "when"), [(0, "opened"), (2, "opened anew after pass 2")])
def test_ranks_that_end_while_their_machine_is_opened_say_after_which_pass(opens: int, when: str) -> None:
    workers = RankWorkers(_Ranks(opens), {})  # type: ignore[arg-type]
    for _ in range(opens):
        workers.get()
        workers.replace()
    with pytest.raises(CannotStart) as ended:
        workers.get()
    named = f"rank 0 was ended by SIGSEGV: in libcuda.so.1+0x1; the machine was being {when}"
    assert str(ended.value) == named
    with pytest.raises(CannotStart, match=re.escape(named)):
        workers.get()


def test_a_point_is_tried_again_if_its_worker_died_early_or_lost_its_gpu(monkeypatch) -> None:
    """A hang is not tried again, because it would cost the whole time-out again, and neither is a late death."""

    def tries(problem: Exception) -> int:
        tried: list[int] = []

        def measure() -> None:
            tried.append(1)
            raise problem

        with pytest.raises(type(problem)):
            twice(measure)
        return len(tried)

    problems = (WorkerGone("killed"), RequestFailed("lost", "Xid 79"), WorkerGone("no answer", hung=True),
                RequestFailed("failed", "no memory"))  # fmt: skip
    assert [tries(problem) for problem in problems] == [2, 2, 1, 1]
    monkeypatch.setattr("linkscope.run.workers._CHEAP_S", -1.0)
    assert tries(problems[0]) == 1


def test_a_worker_that_does_not_start_is_started_three_times(tmp_path, monkeypatch) -> None:
    opens, failing = Worker.opened, [2]
    unopened: list[int] = []  # processes that did not open; they hold GPU resources until they end

    def sometimes(worker: Worker) -> dict[str, Any]:
        if failing[0] > 0:
            failing[0] -= 1
            unopened.append(worker.pid)
            raise RequestFailed("failed", "not yet")
        return opens(worker)

    monkeypatch.setattr(Worker, "opened", sometimes)
    assert measured(target(), plan(ONE, rounds=2), tmp_path / "a.jsonl").points[ONE].median_s
    assert len(unopened) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in unopened)
    failing[0] = 3
    found = measured(target(), plan(ONE, rounds=2), tmp_path / "b.jsonl").points[ONE]
    assert found.status == "failed" and "not yet" in (found.reason or "")
