"""`linkscope advise --talk` puts the processes that talk most where their messages are fastest (JO-17)."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest

from invented import point
from linkscope.advise.pair_costs import costs_of_run
from linkscope.advise.placement import MOST_EXACT, PairCosts, place
from linkscope.cli.main import main
from linkscope.errors import UserError
from test_advise import saved
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

PAIRS = "0 1MiB 64MiB 1MiB\n1MiB 0 1MiB 64MiB\n64MiB 1MiB 0 1MiB\n1MiB 64MiB 1MiB 0\n"  # 0 and 2 talk, 1 and 3 talk


def islands(gpus: int, each: int) -> PairCosts:
    """GPUs in islands of `each`: ten times faster within an island than between two."""
    island = np.arange(gpus) // each
    near = island[:, None] == island[None]
    return PairCosts(np.full((gpus, gpus), 1e-6), np.where(near, 1e-11, 1e-10))


def cost(sent, costs, gpus) -> float:
    pairs = itertools.permutations(range(len(sent)), 2)
    return sum(
        costs.fixed_s[gpus[i], gpus[j]] + sent[i, j] * costs.s_per_byte[gpus[i], gpus[j]]
        for i, j in pairs if sent[i, j]
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_a_placement_of_few_ranks_is_the_best_of_all(seed):
    random = np.random.default_rng(seed)
    sent = random.integers(0, 1 << 24, (4, 4)).astype(float)
    costs = PairCosts(random.random((5, 5)) * 1e-5, random.random((5, 5)) * 1e-10)
    found = place(sent, costs)
    best = min(cost(sent, costs, gpus) for gpus in itertools.permutations(range(5), 4))
    worst = max(cost(sent, costs, gpus) for gpus in itertools.permutations(range(5), 4))
    assert found.exact and found.seconds <= 1.01 * best and found.worst_s == pytest.approx(worst)
    assert found.seconds == pytest.approx(cost(sent, costs, found.gpus))
    assert found.in_order_s == pytest.approx(cost(sent, costs, range(4)))


def test_many_ranks_are_placed_in_islands_if_their_groups_talk():
    ranks, each = 16, 4
    group = np.arange(ranks) % each  # rank i talks to i + 4, i + 8, i + 12
    sent = np.where(group[:, None] == group[None], float(1 << 26), 0.0)
    np.fill_diagonal(sent, 0.0)
    found = place(sent, islands(ranks, each))
    assert math.perm(ranks, ranks) > MOST_EXACT and not found.exact
    for members in range(each):
        assert len({found.gpus[rank] // each for rank in range(ranks) if rank % each == members}) == 1
    assert found.in_order_s > 5 * found.seconds


def test_two_ranks_share_a_gpu_if_there_are_twice_as_many_ranks():
    sent = np.zeros((4, 4))
    sent[0, 1] = sent[2, 3] = 1 << 26
    found = place(sent, islands(2, 1))
    assert found.gpus[0] == found.gpus[1] != found.gpus[2] == found.gpus[3]


def test_the_order_of_ranks_is_kept_if_another_gains_less_than_one_percent():
    costs = PairCosts(np.zeros((3, 3)), np.array([[1, 1.005, 1], [1.005, 1, 1], [1, 1, 1]]) * 1e-10)
    sent = np.zeros((3, 3))
    sent[0, 1] = 1 << 20
    assert place(sent, costs).gpus == (0, 1, 2)


def matrix(tmp_path: Path, text: str) -> str:
    path = tmp_path / "talk.txt"
    path.write_text(text)
    return str(path)


def test_pairs_that_talk_share_an_ioh_of_system_a(tmp_path, capsys):
    ranks = tmp_path / "ranks"
    assert main(["advise", "--machine", "jorda-a", "--talk", matrix(tmp_path, PAIRS), "-o", str(ranks)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("MODELLED jorda-a") and "no placement is faster" in out
    assert "--gpu-bind=map_gpu:0,2,1,3 --cpu-bind=map_ldom:0,1,0,1" in out
    assert "--map-by" not in out  # which fills the nodes in order
    assert main(["advise", "--machine", "h200x4", "--talk", matrix(tmp_path, PAIRS)]) == 0
    assert "or without FILE: mpirun -n 4 --map-by ppr:4:numa --bind-to numa" in capsys.readouterr().out
    slots = ["0,1", "4,5", "2,3", "6,7"]
    assert ranks.read_text().splitlines()[1:] == [
        f"rank {rank}=localhost slot={cpus}" for rank, cpus in enumerate(slots)
    ]


def run_of(tmp_path: Path, **machine) -> str:
    """Four GPUs of which 0 and 3, and 1 and 2, are near each other."""
    near = {(0, 3), (3, 0), (1, 2), (2, 1)}
    points = []
    for src, dst in itertools.product(range(4), repeat=2):
        name = "local" if src == dst else "d2d"
        gbps = 1000 if src == dst else 300 if (src, dst) in near else 50
        for size in (4096, 64 << 20):
            path = f"{name}/ce/gpu:{src}.device->gpu:{dst}.device/{size}?bidirectional=false&mode=batched"
            points.append(point(path, 2e-6 + size / gbps / 1e9))
    return str(saved(tmp_path, points, places=["numa:0", *(f"gpu:{at}" for at in range(4))], **machine))


def test_measured_copies_of_a_run_place_processes_too(tmp_path, capsys):
    assert main(["advise", run_of(tmp_path), "--talk", matrix(tmp_path, PAIRS), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    gpus = [one["gpu"] for one in found["ranks"]]
    assert {frozenset(gpus[0::2]), frozenset(gpus[1::2])} == {
        frozenset(["gpu:0", "gpu:3"]),
        frozenset(["gpu:1", "gpu:2"]),
    }
    assert found["exact"] and found["seconds"] < found["in_order_s"] <= found["worst_s"]


def test_a_pair_that_the_run_did_not_measure_is_named():
    with pytest.raises(UserError, match=r"no copies of two sizes from gpu:0 to gpu:0"):
        costs_of_run([point("d2d/ce/gpu:0.device->gpu:1.device/4096?mode=batched", 1e-6)], ["gpu:0", "gpu:1"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 1MiB\n", "2 ranks or more|two ranks or more"),
        ("0 1MiB\n1MiB\n", r"talk.txt:2: 1 sizes, and there are 2 ranks"),
        ("0 1MiB\n-1 0\n", r"talk.txt:2: -1: not a size"),
        ("0 64M\n0 0\n", r"talk.txt:1: 64M: not a size; write 64MB or 64MiB"),
        ("5 0\n0 5\n", "no rank sends anything"),
        ("0 0\n" * 257, "at most 256"),
    ],
)
def test_a_matrix_that_states_no_talk_is_refused_with_its_line(tmp_path, capsys, text, says):
    import re

    assert main(["advise", "--machine", "jorda-a", "--talk", matrix(tmp_path, text)]) == 2
    assert re.search(says, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        ([], 2, "advise needs a run file"),
        (["--machine", "jorda-a"], 2, "--machine needs one transfer"),
        (["--machine", "auto", "--talk", "x"], 2, "needs a model"),
        (["--machine", "h200x1", "--talk", "x"], 3, "has 1 GPU, so there is nothing to place"),
        (["--machine", "jorda-a", "--talk", "/nowhere/x"], 2, "cannot be read"),
        (["--machine", "jorda-a", "--talk", "x", "--src", "gpu:0", "--dst", "gpu:1", "--bytes", "8"], 2, "leave out"),
        (["--machine", "jorda-a", "-o", "x"], 2, "add --talk MATRIX"),
    ],
)
def test_options_that_do_not_fit_together_are_refused_with_the_cure(capsys, options, code, says):
    assert main(["advise", *options]) == code
    assert says in capsys.readouterr().err


def test_a_rank_file_needs_the_numa_nodes_of_the_gpus(tmp_path, capsys):
    options = ["--talk", matrix(tmp_path, PAIRS), "-o", str(tmp_path / "ranks")]
    assert main(["advise", run_of(tmp_path), *options]) == 3
    assert "the NUMA node of gpu:0 is not known" in capsys.readouterr().err and not (tmp_path / "ranks").exists()


def test_advice_on_a_model_needs_no_run_file(capsys):
    transfer = ["--src", "numa:0", "--dst", "gpu:1", "--bytes", "48MiB"]
    assert main(["advise", "--machine", "h200x4", *transfer]) == 0
    out = capsys.readouterr().out
    assert (
        out.startswith("MODELLED h200x4\n") and "relayed by ce, pinned → device" in out and "pageable → device" in out
    )
