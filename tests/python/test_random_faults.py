"""All presets of concurrent work on models with random faults: no hang, no lost point, no traceback.

`make test` draws a few runs with a fixed seed. `make test-long` draws new ones for ten minutes. A failure names its
seed.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign import LONG, sample
from fake_driver import needs_worker
from linkscope.cli.main import main
from linkscope.errors import FINE, NOT_HERE, SOMETHING_FAILED
from linkscope.machine.model import bundled
from linkscope.plan.enumerate import points_of
from linkscope.plan.suites import SUITES
from linkscope.run import benchmark_table
from linkscope.run.flows import PRESETS
from linkscope.run.target import choose
from linkscope.runfile import read_run

pytestmark = [needs_worker]
DRAWS = 6  # of `make test`
LASTS_S = sample(0.0, 600.0)
HANGS_S = 400.0  # most draws end in seconds; one in which all points hang ends in two minutes
PATIENCE_S = 0.5  # until the parent kills a worker that hangs
CHOSEN = ("contention", "loaded-latency", "sharing", "sp-5", "sp-6", "sp-7", "sp-8", "sp-9", "sp-10", "sp-11", "sp-13")
MOST_POINTS = 24  # of a run
MACHINES = ("h200x1", "h200x4", "sl390", "jorda-a", "ac922")


@pytest.fixture
def brief_limits(monkeypatch: pytest.MonkeyPatch, impatient: None) -> None:
    for module in ("sampler", "batches", "beside"):
        monkeypatch.setattr(f"linkscope.run.{module}.REQUEST_LIMIT_S", PATIENCE_S)
    # A fault may slow a link a thousandfold in virtual time, and the limit of a request that hangs follows it.
    monkeypatch.setattr("linkscope.run.batches.PATIENCE", 1)
    monkeypatch.setattr("linkscope.run.flows.rates._LIMIT_S", PATIENCE_S)


@pytest.fixture
def no_hang() -> Iterator[None]:
    """An alarm ends what hangs; each draw sets it anew."""

    def ring(*_: object) -> None:
        raise AssertionError(f"no end after {HANGS_S:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def fault(draw: random.Random) -> str:
    """A fault of a random kind for random points and rounds."""
    kind = draw.choice(("corrupt", "die", "hang", "ramp", "throttle", "slow", "flaky", "lie"))
    lines = [
        "[[fault]]", f'kind = "{kind}"', f"after_samples = {draw.randrange(2)}",
        f'match = "{draw.choice(("*", "*d2h*", "*beside=none*", "*beside=both*"))}#{draw.choice("*01")}"',
    ]  # fmt: skip
    if kind in ("ramp", "throttle", "lie"):
        lines.append(f"samples = {draw.randrange(1, 5)}")
    if kind in ("ramp", "throttle"):
        lines.append(f"factor = {draw.uniform(1.1, 20):.3g}")
    if kind in ("slow", "flaky"):
        lines += ['links = ["*"]', f"factor = {draw.uniform(0.001, 0.9):.3g}"]
    if kind == "flaky":
        lines.append(f"share = {draw.random():.3g}")
    return "\n".join(lines)


def disturbed(folder: Path, draw: random.Random) -> Path:
    """A bundled model with up to three faults."""
    path = folder / "disturbed.toml"
    faults = [fault(draw) for _ in range(draw.randrange(1, 4))]
    path.write_text("\n\n".join([bundled()[draw.choice(MACHINES)].read_text(), *faults, ""]))
    return path


def run_of_a_suite(folder: Path, machine: Path, draw: random.Random) -> None:
    path, suite = folder / "run.jsonl", draw.choice(CHOSEN)
    points = points_of(SUITES[suite], choose(str(machine), 1).facts, benchmark_table())
    if not points:  # the machine lacks the places of all
        return
    chosen = draw.sample(points, min(len(points), draw.randrange(1, MOST_POINTS + 1)))
    only = [word for point in chosen for word in ("--only", str(point))]
    words = ["run", "--machine", str(machine), "--suite", suite, *only, "--rounds", str(draw.randrange(1, 4)), "-q"]
    status = main([*words, "-o", str(path), "--force"])
    run = read_run(path)
    assert status in (FINE, SOMETHING_FAILED, NOT_HERE) and run.end is not None and run.end.complete
    assert (status == NOT_HERE) == all(point.status == "unsupported" for point in run.points)
    assert {point.id for point in run.points} == set(run.header.plan["points"]) == {str(point) for point in chosen}
    assert all(point.median_s or point.reason for point in run.points)
    assert main(["report", str(path), "--summary=full"]) == FINE


@pytest.mark.usefixtures("brief_limits", "no_hang")
def test_presets_under_random_faults_end_with_a_record_of_each_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int.from_bytes(os.urandom(4)) if LONG else 1
    end, draws = time.monotonic() + LASTS_S, 0
    while draws < DRAWS or time.monotonic() < end:
        draw = random.Random(f"{seed}.{draws}")
        machine = disturbed(tmp_path, draw)
        signal.setitimer(signal.ITIMER_REAL, HANGS_S)
        try:
            run_of_a_suite(tmp_path, machine, draw)
            preset = draw.choice(PRESETS).replace(":N", ":3")
            words = ["flow", "--preset", preset, "--machine", str(machine), "--bytes", "8MiB", "--seconds", "0.1"]
            assert main([*words, "--rounds", "2"]) in (FINE, SOMETHING_FAILED, NOT_HERE)
            assert "Traceback" not in capsys.readouterr().err
        except BaseException as problem:
            problem.add_note(f"seed {seed}, draw {draws}:\n{machine.read_text().partition('[[fault]]')[2]}")
            raise
        draws += 1
