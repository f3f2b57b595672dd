"""Each answer of the worker belongs to its own request, and each request has one deadline."""

import sys
import time

import pytest

from fakes import FAKE_WORKER, H2D, facts
from linkscope.plan import case_of
from linkscope.run import process
from linkscope.run.answers import ActorSeries, Window
from linkscope.run.cpu_waits import cpu_waits, longest_wait_s
from linkscope.run.worker import RunRequest, Worker, WorkerGone
from linkscope.runfile import PointId

START_S, EACH_S = 1e-6, 2e-6
SLOW_PATH = {"numa:0->gpu:0": 1e9, "numa:0->gpu:1": 1e15}
KIB = 1 << 10


@pytest.fixture
def worker():
    started = Worker(FAKE_WORKER)
    started.open({"machine": {"fake": {"start_s": START_S, "each_s": EACH_S, "rates": SLOW_PATH}}})
    yield started
    started.kill()


def case(gpu: int = 1):
    return case_of(PointId.parse(H2D.format(KIB, "false", "batched").replace("gpu:0", f"gpu:{gpu}")), facts())


def seconds(trace) -> list[float]:
    return [trace.seconds(sample, at, 0) for sample in range(trace.samples) for at in range(trace.batches)]


def cost(count: int) -> float:
    return START_S + count * EACH_S


SENT = RunRequest(1, [[0], [4]], verify=False)


def test_a_run_sent_with_its_prepare_answers_the_same_run(worker) -> None:
    worker.prepare(case(), "key#0", then=SENT)
    assert seconds(worker.run(1, [[0], [4]], verify=False)) == pytest.approx([cost(0), cost(4)])
    assert seconds(worker.run(1, [[0], [9]], verify=False)) == pytest.approx([cost(0), cost(9)])


def test_a_run_sent_ahead_never_answers_a_run_with_other_batches(worker) -> None:
    worker.prepare(case(), "key#0", then=SENT)
    assert seconds(worker.run(1, [[0], [8]], verify=False)) == pytest.approx([cost(0), cost(8)])


def test_a_run_sent_ahead_without_verification_never_answers_a_verified_run(worker) -> None:
    worker.prepare(case(), "key#0", then=SENT)
    assert worker.run(1, [[0], [4]], verify=True).verdict is not None
    worker.prepare(case(), "key#1", then=SENT._replace(verify=True))
    assert worker.run(1, [[0], [4]], verify=False).verdict is None


def test_a_run_sent_ahead_for_one_program_never_answers_the_same_run_of_another(worker) -> None:
    worker.prepare(case(gpu=0), "slow#0", then=SENT)
    worker.prepare(case(gpu=1), "fast#0", then=SENT)
    assert seconds(worker.run(1, [[0], [4]], verify=False)) == pytest.approx([cost(0), cost(4)])
    worker.prepare(case(gpu=0), "slow#1", then=SENT)
    worker.prepare(case(gpu=1), "fast#1")
    assert seconds(worker.run(1, [[0], [4]], verify=False)) == pytest.approx([cost(0), cost(4)])


# Reads a request, then writes one byte every 20 ms; `{}` is the text before the answer's last bytes.
TRICKLE = """
import sys, time
sys.stdin.readline()
out = sys.stdout.buffer
out.write(b'{head}')
for _ in range({bytes}):
    out.write(b'{byte}')
    out.flush()
    time.sleep(0.02)
out.write(b'{tail}')
out.flush()
time.sleep(60)
"""


@pytest.mark.parametrize(
    "parts",
    [
        {"head": "", "bytes": 100, "byte": " ", "tail": '{"ok": true}\\n'},
        {"head": '{"ok": true, "doubles": 13}\\n', "bytes": 104, "byte": "0", "tail": ""},
    ],
    ids=["line", "doubles"],
)
def test_an_answer_that_arrives_byte_by_byte_still_misses_its_deadline(impatient, parts) -> None:
    """The whole answer takes 2 s or more, and its deadline is 0.4 s. Each byte arrives well within 0.4 s."""
    script = TRICKLE
    for name, value in parts.items():
        script = script.replace("{" + name + "}", str(value))
    worker = Worker([sys.executable, "-c", script])
    with pytest.raises(WorkerGone, match=r"no answer within 0\.4 s; the worker was killed"):
        worker.prepare({}, "key#0", limit_s=0.4)


def test_a_duration_counts_when_the_slowest_actor_has_ended_an_operation() -> None:
    fast, slow = ActorSeries(4, [1.0, 1.0, 1.0, 1.0]), ActorSeries(1, [0.4, 0.4, 0.2, 0.0])
    assert Window(0.0, 0.4, [fast, slow]).warm_up() == Window(0.0, 0.4, [slow, fast]).warm_up() == 3


def test_a_patience_above_one_multiplies_every_deadline(monkeypatch) -> None:
    monkeypatch.setenv("LINKSCOPE_PATIENCE", "2.5")
    worker = Worker([sys.executable, "-c", "import time; time.sleep(300)"])
    with pytest.raises(WorkerGone, match=r"no answer within 1 s; the worker was killed"):
        worker.prepare({}, "key#0", limit_s=0.4)


SLOW = "import sys, time; sys.stdin.readline(); time.sleep(1.2); print('{\"ok\": true}', flush=True); time.sleep(60)"


@pytest.mark.parametrize("share", [0.0, 0.999])
def test_time_in_which_a_worker_waits_for_a_cpu_does_not_count_as_a_hang(impatient, monkeypatch, share: float) -> None:
    """The answer takes 1.2 s, and its deadline is 0.4 s. A thread waits for a CPU for this share of the time."""
    monkeypatch.setattr(process, "cpu_waits", lambda pids: dict.fromkeys(pids, share * time.monotonic()))
    worker = process.Process([sys.executable, "-c", SLOW], process.WORKER, lambda: False)
    try:
        worker.send(b"{}\n")
        if share:
            assert worker.answer(0.4)[0] == b'{"ok": true}'
        else:
            with pytest.raises(WorkerGone, match=r"no answer within 0\.4 s; the worker was killed"):
                worker.answer(0.4)
    finally:
        worker.kill()


def test_waits_for_a_cpu_are_those_of_the_thread_that_waited_longest(tmp_path) -> None:
    def write(process: int, thread: int, text: str) -> None:
        folder = tmp_path / str(process) / "task" / str(thread)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(text)

    write(7, 7, "5 1000000000 3\n")
    write(7, 8, "5 250000000 3\n")
    write(9, 9, "damaged\n")
    before = cpu_waits([7, 9], tmp_path)
    assert before == {7: 1.0, 8: 0.25}
    write(7, 8, "5 2250000000 9\n")
    write(9, 10, "5 1500000000 9\n")  # a new thread
    assert longest_wait_s(before, cpu_waits([7, 9], tmp_path)) == 2.0
    assert longest_wait_s({}, cpu_waits([1234], tmp_path)) == 0.0
