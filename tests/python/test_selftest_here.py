"""The self-test's checks of this machine: a busy machine makes a row inconclusive, and planted errors make it fail."""

import itertools
import json
import re
from types import SimpleNamespace

import pytest

from fake_driver import environment, needs_fake, needs_worker
from linkscope import selftest
from linkscope.cli.main import main
from linkscope.run.worker import Worker
from linkscope.selftest import Row, here, timing
from linkscope.selftest.rows import judged

pytestmark = [needs_worker]


def assert_no_error(row: dict) -> None:
    """A row that raises an error would catch any fault, also one of the test."""
    assert not re.match(r"\w*(Error|Failed|Gone|Unsupported|CannotStart): ", row["found"]), row


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    status = main(["selftest", "--json", "--here", *arguments])
    return status, json.loads(capsys.readouterr().out)


# --- inconclusive rows ------------------------------------------------------------------------------------------------

AGREEING, DISAGREEING = [1.0, 1.02, 1.01, 1.03, 1.4], [1.0, 1.3, 1.2, 1.01, 1.5]


@pytest.mark.parametrize(
    ("holds", "repeats", "fails", "conclusive"),
    [
        (True, AGREEING, False, True),
        (True, DISAGREEING, False, True),
        (False, AGREEING, True, True),
        (False, DISAGREEING, False, False),
        (False, [0.0, 0.0, 0.0], True, True),
    ],
)
def test_a_row_that_does_not_hold_fails_only_if_its_repeats_agree(holds, repeats, fails, conclusive) -> None:
    row = Row("compares", lambda folder: judged("truth", "found", holds, AGREEING, repeats))
    (verdict,) = selftest.carry_out([row])
    assert (verdict.holds, verdict.fails, verdict.conclusive) == (holds, fails, conclusive)
    assert ("run this row again on an idle machine" in verdict.found) == (not conclusive)


def test_an_inconclusive_row_is_named_and_is_no_failure(monkeypatch, capsys) -> None:
    rows = (
        Row("unclear", lambda folder: judged("truth", "found", False, DISAGREEING)),
        Row("clear", lambda folder: judged("truth", "found", True, DISAGREEING)),
    )
    monkeypatch.setattr(selftest, "HERE", rows)
    status, answer = json_of(capsys)
    assert (status, answer["holds"], answer["failing"], answer["inconclusive"]) == (0, True, [], ["unclear"])
    assert main(["selftest", "--here"]) == 0
    shown = capsys.readouterr()
    assert "unclear              INCONCLUSIVE" in shown.out and "1 of 2 rows hold, 1 inconclusive" in shown.out
    assert "inconclusive on this busy machine: unclear" in shown.err


@pytest.mark.parametrize(
    ("hot_ns", "failing", "inconclusive"),
    [
        ([30, 31, 30, 30, 33], [], []),
        ([80, 81, 80, 82, 80], ["here_cache_flush"], []),  # as without a flush on an idle machine
        ([80, 120, 95, 140, 90], [], ["here_cache_flush"]),  # compilers evict the cache between two loads
        ([80, 81, 80, 82, 80, 80, 30], [], []),  # the seventh round meets a quiet moment
    ],
)
def test_a_cache_flush_on_a_busy_machine_is_inconclusive(monkeypatch, capsys, hot_ns, failing, inconclusive) -> None:
    times = itertools.cycle(seconds for ns in hot_ns for seconds in (85e-9, ns * 1e-9))
    where = SimpleNamespace(facts=SimpleNamespace(of_kind=lambda kind: ["numa:0"]))
    monkeypatch.setattr(here, "machine", lambda: where)
    monkeypatch.setattr(here, "one_round", lambda *arguments: (SimpleNamespace(notes={}), next(times)))
    status, answer = json_of(capsys, "--only", "here_cache_flush")
    assert (answer["failing"], answer["inconclusive"]) == (failing, inconclusive) and status == len(failing)


# --- rows on the fake driver ------------------------------------------------------------------------------------------


@pytest.fixture
def fake_gpu(monkeypatch):
    """Gives this machine a fake GPU with these settings."""

    def use(**settings: str | int) -> None:
        for name, value in environment(CUDA_GPUS=1, **settings).items():
            if name.startswith("FAKE_") or name == "LD_LIBRARY_PATH":
                monkeypatch.setenv(name, value)
        here.machine.cache_clear()

    yield use
    here.machine.cache_clear()


# Delays that exceed those of a busy machine.
SLOW_CALLS, SLOW_COPIES = {"CUDA_SLOW": "cuMemcpyHtoDAsync:20"}, {"CUDA_COPY_US": 50}


def holds(capsys, row: str) -> bool:
    """Whether a row holds. Other programs may make a row that does not hold inconclusive."""
    status, answer = json_of(capsys, "--only", row)
    (found,) = answer["rows"]
    assert_no_error(found)
    assert status == (0 if found["holds"] or not found["conclusive"] else 1)
    return found["holds"]


def change_runs(monkeypatch, change) -> None:
    """`change(trace)` alters every answer to `run`."""
    run = Worker.run

    def changed(self, samples, batches, **more):
        trace = run(self, samples, batches, **more)
        change(trace)
        return trace

    monkeypatch.setattr(Worker, "run", changed)


def change_cases(monkeypatch, **params: str) -> None:
    """Every prepared program has these parameters."""
    prepare = Worker.prepare
    monkeypatch.setattr(
        Worker,
        "prepare",
        lambda self, case, key, *more: prepare(self, case | {"params": case["params"] | params}, key, *more),
    )


@needs_fake
@pytest.mark.parametrize(
    ("row", "settings"),
    [("here_stream_entry", SLOW_CALLS), ("here_l2_flush", {}), ("here_idle_gap", {}), ("here_dirty_cache", {}),
     ("here_context_cost", SLOW_COPIES)],
)  # fmt: skip
def test_no_row_of_this_machines_timing_fails_on_a_correct_worker(fake_gpu, monkeypatch, capsys, row, settings) -> None:
    fake_gpu(**settings)
    monkeypatch.setattr(timing, "_ALIKE", 0.4)  # delays of this busy machine move the fake's event stamps
    status, answer = json_of(capsys, "--only", row)
    assert status == 0 and row in [one.name for one in timing.ROWS], answer["rows"]
    assert_no_error(answer["rows"][0])


@needs_fake
def test_a_second_stream_whose_time_counts_from_its_own_entry_is_caught(fake_gpu, monkeypatch, capsys) -> None:
    fake_gpu(**SLOW_CALLS)

    def each_from_its_own_entry(trace) -> None:
        for at in range(0, len(trace.stamps), 2):
            trace.stamps[at : at + 2] = [0.0, trace.stamps[at + 1] - trace.stamps[at]]

    assert holds(capsys, "here_stream_entry")
    change_runs(monkeypatch, each_from_its_own_entry)
    assert not holds(capsys, "here_stream_entry")


@needs_fake
def test_a_flush_of_the_l2_that_is_not_waited_for_is_caught(fake_gpu, monkeypatch, capsys) -> None:
    fake_gpu()
    asked = itertools.count(1)
    change_runs(monkeypatch, lambda trace: trace.spent.update(caches_s=next(asked) * 2e-6))
    assert not holds(capsys, "here_l2_flush")


@needs_fake
def test_an_idle_gap_that_is_not_waited_for_is_caught(fake_gpu, monkeypatch, capsys) -> None:
    fake_gpu()
    assert holds(capsys, "here_idle_gap")
    change_cases(monkeypatch, idle_gap_s="0.0001")
    assert not holds(capsys, "here_idle_gap")


def test_lines_that_the_calling_core_itself_dirties_are_caught(monkeypatch, capsys) -> None:
    change_cases(monkeypatch, cache="written")
    assert not holds(capsys, "here_dirty_cache")


@needs_fake
@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ([1.5e-6, 1.55e-6, 1.45e-6], "holds"),
        # Divided by the copies of the longer batch instead of the difference of both.
        ([1.5e-6 * 160 / 192, 1.52e-6 * 160 / 192, 1.48e-6 * 160 / 192], "fails"),
        ([1.2e-6, 1.9e-6, 1.3e-6], "inconclusive"),
    ],
    ids=["right", "17 % low", "noise"],
)
def test_a_cost_of_contexts_with_a_wrong_divisor_is_caught(fake_gpu, monkeypatch, capsys, stated, expected) -> None:
    costs = iter(stated)
    fake_gpu()
    here.machine()  # opens a worker of its own
    monkeypatch.setattr(timing, "_queued_copy_s", lambda worker, size: 1.5e-6)
    opened = Worker.opened

    def with_costs(self):
        return opened(self) | {"contexts": [{"gpu": 0, "model": "a GPU", "operation_s": [2e-6, next(costs)]}]}

    monkeypatch.setattr(Worker, "opened", with_costs)
    status, found = json_of(capsys, "--only", "here_context_cost")
    assert_no_error(found["rows"][0])
    lists = {"holds": ([], []), "fails": (["here_context_cost"], []), "inconclusive": ([], ["here_context_cost"])}
    assert (found["failing"], found["inconclusive"]) == lists[expected] and status == (expected == "fails")
