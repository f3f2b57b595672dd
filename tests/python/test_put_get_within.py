"""Messages between two kernels of one GPU: all control modes, and the paper's conclusions, without a second GPU."""

import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from fake_driver import environment, needs_fake
from fakes import facts
from linkscope.cli.main import main
from linkscope.plan import Plan, in_order, make_plan
from linkscope.report.put_get import MODES, all_series, connections, mode_of
from linkscope.report.put_get_claims import best_claims
from linkscope.run import benchmark_table
from linkscope.runfile import PointId, Run, read_run
from test_cli import linkscope
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

WITHIN = "gpu:0.device->gpu:0.device"
KIB, MIB = 1 << 10, 1 << 20
_ONLY = (
    *(f"*_ping_pong/*/{WITHIN}/{size}?*" for size in (8, MIB)),
    *(f"put/*/{WITHIN}/{size}?connections=1&*" for size in (8, MIB, 64 * MIB)),
    f"put/*/{WITHIN}/64?connections=*",
)
_ONLY_OF_QUEUES = ("post/*", "queued_put_ping_pong/sm/*queue=host*", "queued_put_ping_pong/sm/*queue=own*")


def modelled(path: Path, suite: str, *only: str) -> Run:
    words = [word for pattern in only for word in ("--only", pattern)]
    assert (
        main(
            [
                "run",
                "--machine",
                "h200x1",
                "--suite",
                suite,
                "--seed",
                "3",
                "--rounds",
                "4",
                *words,
                "-o",
                str(path),
                "-q",
            ]
        )
        == 0
    )
    return read_run(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("within")
    return [
        modelled(folder / "putget.jsonl", "putget", *_ONLY),
        modelled(folder / "queues.jsonl", "putget-queues", *_ONLY_OF_QUEUES),
    ]


def plan(*only: str, gpus: int, suite: str) -> Plan:
    return make_plan(facts(gpus), benchmark_table(), suite=suite, only=only)


def within(made: Plan) -> list[PointId]:
    return [one for one in map(PointId.parse, made.points) if one.src == one.dst and one.src_memory == "device"]


def test_one_gpu_has_all_control_modes_at_all_sizes_and_two_gpus_have_them_between_each_other() -> None:
    one, two = (within(plan(gpus=gpus, suite="putget")) for gpus in (1, 2))
    for benchmark in ("put", "get", "put_ping_pong", "get_ping_pong"):
        for size in (4, 8, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 64 * MIB):
            modes = {
                found.param("control", "direct") for found in one if (found.benchmark, found.bytes) == (benchmark, size)
            }
            assert modes == set(MODES), (benchmark, size)
    assert not {found.param("control") for found in two} - {""}


def test_messages_of_mode_direct_within_a_gpu_keep_the_ids_that_older_runs_have() -> None:
    points = plan(gpus=1, suite="putget").points
    assert f"put/sm/{WITHIN}/64?connections=4&threads=32&word=separate" in points
    assert f"put_ping_pong/sm/{WITHIN}/8?threads=1024&word=separate" in points


@pytest.mark.parametrize("benchmark", ["put", "get"])
def test_messages_within_a_gpu_have_as_many_connections_as_those_between_gpus(benchmark: str) -> None:
    for engine in ("sm", "ce"):
        rows = [
            one
            for one in benchmark_table()
            if (one.name, one.engine, one.src, one.dst) == (benchmark, engine, "gpu", "gpu")
        ]
        numbers = {one.relation: [param.values for param in one.params if param.name == "connections"] for one in rows}
        assert len(numbers) == 2 and numbers["same"] == numbers["different"] != []


@pytest.mark.parametrize("suite", ["putget", "putget-queues"])
def test_each_round_begins_with_the_points_that_decide_the_conclusions_in_random_order(suite: str) -> None:
    made = plan(gpus=1, suite=suite)
    leading = made.points[: made.first]
    assert 0 < made.first < len(made.points)
    for number in (0, 1):
        order = in_order(made, made.points, number)
        assert sorted(order[: made.first]) == sorted(leading) and sorted(order) == sorted(made.points)
        assert order[: made.first] != leading


def test_a_part_of_a_suite_begins_with_its_points_that_decide_too() -> None:
    made = plan(f"put_ping_pong/sm/{WITHIN}/*", gpus=1, suite="putget")
    whole = plan(gpus=1, suite="putget")
    leading = set(whole.points[: whole.first])
    assert set(takewhile(leading.__contains__, made.points)) == leading & set(made.points)
    assert made.first == len(leading & set(made.points)) > 0


def test_a_small_budget_has_the_points_that_decide(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    words = ("--machine", "h200x1", "--suite", "putget-queues", "--budget", "2s", "-o", str(path), "-q")
    main(["run", *words])
    run = read_run(path)
    made = run.header.plan
    leading = set(made["points"][: made["first"]])
    skipped = {point.id for point in run.points if point.status == "skipped"}
    assert skipped and not skipped & leading


def test_every_conclusion_of_the_paper_has_an_answer_on_one_gpu(runs: list[Run]) -> None:
    found = best_claims(runs)
    assert [one.text for one in found if one.answer == "cannot be tested"] == []
    assert all(one.evidence.endswith(", between two kernels of gpu:0") for one in found)
    answers = {one.text: one.answer for one in found}
    assert answers["The host's help costs more than polling in GPU memory"] == "holds"
    assert answers["The rate with the host's help is flat beyond 4 connections"] == "holds"


def test_words_in_host_memory_and_the_hosts_help_cost_time_within_a_gpu(runs: list[Run]) -> None:
    series = next(one for one in all_series(runs[0]) if one.benchmark == "put_ping_pong")
    small = {name: point.median_s or 0.0 for name, point in series.messages[0].modes.items()}
    assert small["direct"] < small["notified"] < small["host"] < small["assisted"]
    assert {mode_of(one.point) for one in connections(runs[0])} == set(MODES)


@needs_fake
def test_all_control_modes_within_a_gpu_move_the_right_bytes_on_the_fake_driver(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    only = [word for size in ("put_ping_pong/*/", "get_ping_pong/*/") for word in ("--only", f"{size}{WITHIN}/8?*")]
    words = ("run", "--suite", "putget", "--rounds", "1", "--contexts", "any", *only, "-o", str(path), "-q")
    linkscope(*words, environment=environment(CUDA_GPUS=1))
    points = read_run(path).points
    assert {mode_of(point) for point in points} == set(MODES)
    timed = [point for point in points if "too short for the clock" not in (point.reason or "")]
    assert timed and all(point.status in ("ok", "missed_precision") and point.verified for point in timed)


def test_a_reader_that_closes_the_pipe_ends_the_command_without_a_word() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "tools/put_get_claims.py"), str(root / "results/h200x2-putget.jsonl.gz")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
