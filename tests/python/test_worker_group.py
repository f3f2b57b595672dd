"""A program of several processes behind the interface of one worker: their answers are merged, and faults are named."""

import os
import sys
from types import SimpleNamespace

import pytest

from linkscope.run.answers import Carried, Trace, Verdict, merged
from linkscope.run.ranks import RankWorker
from linkscope.run.worker import RequestFailed, Worker, WorkerGone
from processes import children, runs

# A worker whose cases say what happens: {"processes": N, "die|hang|fail|refuse": number of the process}. It tells its
# requests on standard error, and in the notes of its traces.
SCRIPT = """
import json, os, struct, sys
number, seen, case = 0, [], {}
for line in sys.stdin:
    request = json.loads(line)
    op = request["op"]
    seen.append(op)
    answer, stamps = {"ok": True}, b""
    if op == "join":
        number = request["process"]
    if op == "prepare":
        case = request["case"]
        together = request.get("processes", 1) == case["processes"]
        if together and case.get("die") == number:
            sys.exit("no more")
        while together and case.get("hang") == number:
            pass
        answer |= {"supported": True, "actors": case["processes"], "once_s": 0.5 + number}
        answer |= {"acts": number not in case.get("passive", [])} if together else {"processes": case["processes"]}
        if together and case.get("refuse") == number:
            answer |= {"supported": False, "reason": "not here"}
        if together and case.get("fail") == number:
            answer = {"ok": False, "error": {"kind": "memory", "message": "none left"}}
    if op == "run":
        actors, count = case["processes"], len(request["batches"])
        own = [(1.0, 2.0 + number) if actor == number else (0.0, 0.0) for actor in range(actors)]
        stamps = b"".join(struct.pack("<2d", *stamp) for stamp in own) * request["samples"] * count
        answer |= {"doubles": len(stamps) // 8, "samples": request["samples"], "batches": count, "actors": actors}
        answer |= {"timing": "host", "notes": {f"process {number}": seen}}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\\n" + stamps)
    sys.stdout.flush()
"""


@pytest.fixture
def worker():
    started = Worker([sys.executable, "-c", SCRIPT])
    started.open({"platform": "cuda", "most": [], "contexts": {}})
    yield started
    started.kill()


def prepare(worker, processes=3, limit_s=20.0, **case):
    return worker.prepare({"processes": processes, **case}, "key#0", limit_s)


def run(worker):
    return worker.run(2, [[1], [2]], verify=False)


def started_processes():
    return [pid for pid in children(os.getpid()) if runs(pid)]


def test_each_process_stamps_its_own_actors(worker):
    prepared = prepare(worker)
    assert prepared.supported and prepared.actors == 3 and prepared.once_s == 2.5
    trace = run(worker)
    assert trace.stamps == [1.0, 2.0, 1.0, 3.0, 1.0, 4.0] * 4
    assert trace.notes["process 2"] == ["open", "join", "prepare", "run"]


def test_a_process_that_only_has_memory_gets_no_run(worker):
    prepare(worker, passive=[1])
    assert set(run(worker).notes) == {"process 0", "process 2"}


def test_a_program_of_one_process_needs_no_other(worker):
    before = started_processes()
    prepare(worker, processes=1)
    assert run(worker).notes["process 0"] == ["open", "prepare", "run"]
    assert started_processes() == before


def test_all_processes_release_their_memory_before_the_next_program(worker):
    prepare(worker)
    prepare(worker)
    notes = run(worker).notes
    assert notes["process 0"] == ["open", "prepare", "join", "prepare", "release", "prepare", "prepare", "run"]
    assert notes["process 1"] == ["open", "join", "prepare", "release", "prepare", "run"]


def test_processes_join_again_when_their_number_changes(worker):
    prepare(worker, processes=2)
    prepare(worker, processes=3)
    assert run(worker).notes["process 1"] == ["open", "join", "prepare", "release", "join", "prepare", "run"]


@pytest.mark.parametrize("number, who", [(0, "the worker"), (1, "process 1"), (2, "process 2")])
def test_all_are_killed_when_one_ends_and_it_is_named(worker, number, who):
    before = set(started_processes())
    with pytest.raises(WorkerGone, match=rf"^{who} ended with status 1: no more$"):
        prepare(worker, die=number)
    assert set(started_processes()) <= before - {worker.pid}
    assert not runs(worker.pid)


def test_all_are_killed_when_one_misses_its_deadline_and_it_is_named(impatient, worker):
    with pytest.raises(WorkerGone, match=r"^process 1: no answer within 3 s; the worker was killed$") as gone:
        prepare(worker, limit_s=3.0, hang=1)
    assert gone.value.hung and not runs(worker.pid)


def test_a_failure_is_named_and_other_processes_are_started_for_the_next_program(worker):
    with pytest.raises(RequestFailed, match=r"^process 2: none left$") as failed:
        prepare(worker, fail=2)
    assert failed.value.kind == "memory" and runs(worker.pid)
    with pytest.raises(RequestFailed, match=r"^none left$"):
        prepare(worker, fail=0)
    assert prepare(worker).supported
    assert run(worker).notes["process 1"] == ["open", "join", "prepare", "run"]


def test_after_a_failure_the_others_have_a_short_time_to_answer(impatient, worker):
    with pytest.raises(WorkerGone, match=r"^none left; process 1: no answer within 60 s; the worker was killed$"):
        prepare(worker, limit_s=60.0, fail=0, hang=1)


def test_a_program_that_one_process_refuses_is_unsupported(worker):
    prepared = prepare(worker, refuse=1)
    assert not prepared.supported and prepared.reason == "not here"
    assert prepare(worker).supported


def test_opening_a_platform_anew_ends_the_peers(worker):
    prepare(worker)
    before = set(started_processes())
    worker.open({"platform": "cuda"})
    assert len(before - set(started_processes())) == 2
    assert prepare(worker).supported


def test_traces_are_merged():
    right, wrong = Verdict(True, 8, 0, ""), Verdict(False, 8, 4, "here")
    first = Trace(1, 1, 2, "host", {"pages": "numa:0"}, right, [Carried("a", 1)], {"memory_s": 1.0}, [1, 2, 0, 0])
    second = Trace(1, 1, 2, "host", {"pages": "hidden", "more": 1}, wrong, [Carried("b", 2)], {}, [0, 0, 3, 4])
    whole = merged([first, second])
    assert whole.stamps == [1, 2, 3, 4] and whole.notes == {"pages": "numa:0", "more": 1}
    assert whole.verdict == Verdict(False, 16, 4, "here") and [link.link for link in whole.links] == ["a", "b"]
    assert whole.spent == {"memory_s": 1.0}
    assert merged([first]) == first


def test_times_from_the_last_entry_leave_out_that_a_process_waited_for_another():
    early_and_late = [1.0, 9.0, 7.0, 9.5, 20.0, 29.0, 21.0, 29.5]  # two batches of two actors
    trace = Trace(1, 2, 2, "host", stamps=early_and_late).from_last_entry()
    assert [trace.seconds(0, batch, actor) for batch in (0, 1) for actor in (0, 1)] == [2.0, 2.5, 8.0, 8.5]
    ended_before = Trace(1, 1, 2, "host", stamps=[1.0, 2.0, 3.0, 4.0]).from_last_entry()
    assert ended_before.seconds(0, 0, 0) == 0.0


@pytest.mark.parametrize("networks, begins", [(("a", "a"), 7.0), (("a", "b"), 1.0)])
def test_only_ranks_of_one_host_whose_clock_is_the_same_count_from_the_last_entry(monkeypatch, networks, begins):
    stamped = Trace(1, 1, 2, "host", stamps=[1.0, 9.0, 7.0, 9.5])
    monkeypatch.setattr(Worker, "_run_together", lambda self, line, limit_s: stamped)
    ranks = object.__new__(RankWorker)
    ranks._ranks = [SimpleNamespace(network=network) for network in networks]
    assert ranks._run_together(b"", 1.0).stamps[0] == begins
