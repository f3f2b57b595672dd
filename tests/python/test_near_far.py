"""Near and far NUMA nodes by measured and by modelled copies: one code path, and the lines that bind processes."""

import dataclasses
import json
from pathlib import Path

import pytest

from fake_driver import environment, needs_fake
from invented import point
from linkscope.advise.binding import Seat, cpu_ranges, map_by_line, rank_file, seats_of, single_line, slurm_line
from linkscope.advise.near_far import largest, near_far, nearest, value_text
from linkscope.cli.main import main
from linkscope.cli.seats import as_json, lines, seating_of_machine, seating_of_model
from linkscope.errors import NOT_HERE, WRONG_USAGE, UserError
from linkscope.machine.model import load
from linkscope.runfile import Point
from test_advise import saved
from test_cli import linkscope
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]
MIB = 1 << 20
Captured = pytest.CaptureFixture[str]


def copy(benchmark: str, node: int, gpu: int, gbps: float, size: int = 64 * MIB, more: str = "") -> Point:
    ends = (f"numa:{node}.pinned", f"gpu:{gpu}.device")
    src, dst = ends if benchmark == "h2d" else ends[::-1]
    return point(f"{benchmark}/ce/{src}->{dst}/{size}?mode=batched{more}", size / gbps / 1e9)


# gpu:0 is near numa:1, against what the topology says.
POINTS = [
    copy("h2d", 0, 0, 40), copy("h2d", 1, 0, 50), copy("d2h", 0, 0, 25), copy("d2h", 1, 0, 50),
    copy("h2d", 0, 1, 50), copy("h2d", 1, 1, 49.5), copy("h2d", 0, 0, 8, size=4096), copy("h2d", 1, 0, 10, size=4096),
]  # fmt: skip
MACHINE = {
    "name": "node", "places": ["numa:0", "numa:1", "gpu:0", "gpu:1"], "hidden": [],
    "numa": [{"index": 0, "os_index": 0, "cpus": [0, 1, 4, 5]}, {"index": 1, "os_index": 8, "cpus": [2, 3, 6, 7]}],
    "gpus": [{"index": 0, "numa": 0, "uuid": "a"}, {"index": 1, "numa": 1, "uuid": "b"}],
}  # fmt: skip


def test_penalties_by_both_formulas_are_those_of_the_largest_size() -> None:
    found = {(one.gpu, one.direction): one for one in largest(near_far(POINTS))}
    down = found["gpu:0", "d2h"]
    assert (down.near, down.far, down.bytes) == ("numa:1", "numa:0", 64 * MIB)
    assert down.over_good == pytest.approx(0.5) and down.over_bad == pytest.approx(1.0)
    assert found["gpu:0", "h2d"].over_good == pytest.approx(0.2)
    assert [one.bytes for one in near_far(POINTS) if (one.gpu, one.direction) == ("gpu:0", "h2d")] == [4096, 64 * MIB]


def test_near_and_far_values_have_the_intervals_of_their_points() -> None:
    (down, *_) = [one for one in near_far(POINTS) if one.direction == "d2h"]
    seconds = next(one for one in POINTS if one.benchmark == "d2h" and one.dst == "numa:1").ci95_s
    assert seconds is not None
    assert down.intervals["numa:1"] == pytest.approx(tuple(64 * MIB / end / 1e9 for end in reversed(seconds)))
    assert value_text(down, "numa:1").startswith("50.0 GB/s [")


def test_other_operations_and_single_nodes_have_no_penalty() -> None:
    others = [
        copy("h2d", 0, 0, 50, more="&cache=hot"), copy("h2d", 1, 0, 40, more="&cache=hot"), copy("d2h", 0, 1, 50),
        point(f"h2d/ce/numa:0.pageable->gpu:0.device/{MIB}?mode=batched", 1e-4),
        point(f"h2d/ce/numa:1.pageable->gpu:0.device/{MIB}?mode=batched", 2e-4),
    ]  # fmt: skip
    assert near_far(others) == []


def test_a_latency_is_best_where_it_is_shortest() -> None:
    (found,) = near_far([
        point(f"latency/sm/numa:{node}.pinned->gpu:0.device/0", seconds) for node, seconds in ((0, 1.5e-6), (1, 1e-6))
    ])  # fmt: skip
    assert (found.near, found.direction) == ("numa:1", "latency") and found.over_good == pytest.approx(0.5)


def test_nodes_within_two_percent_are_equally_near() -> None:
    assert nearest(near_far(POINTS)) == {"gpu:0": ("numa:1",), "gpu:1": ("numa:0", "numa:1")}


def test_the_model_of_keeneland_has_the_penalties_of_the_paper_by_the_same_code() -> None:
    """SP-2: H2D 13 %, D2H 31 %; GPU 0 on CPU 0, GPUs 1 and 2 on CPU 1 (SP-14)."""
    found = seating_of_model(load("sl390"))
    assert found.modelled and [seat.numa for seat in found.seats] == [0, 1, 1]
    penalties = {(one.gpu, one.direction): one.over_good for one in largest(found.found)}
    for gpu in ("gpu:0", "gpu:1", "gpu:2"):
        assert penalties[gpu, "h2d"] == pytest.approx(0.13, abs=0.02)
        assert penalties[gpu, "d2h"] == pytest.approx(0.31, abs=0.02)


def test_measured_copies_override_the_topology_and_say_so() -> None:
    found = seating_of_machine(MACHINE, near_far(POINTS))
    assert [(seat.numa, seat.os_numa) for seat in found.seats] == [(1, 8), (1, 8)]
    assert found.by == {"gpu:0": "copies", "gpu:1": "copies"}
    assert any("fastest from numa:1, but the topology says numa:0" in text for text in found.notes)
    by_topology = seating_of_machine(MACHINE, [])
    assert [seat.numa for seat in by_topology.seats] == [0, 1] and set(by_topology.by.values()) == {"topology"}


def test_lines_use_the_numbers_of_the_kernel() -> None:
    nodes = {0: (0, [0, 1, 4, 5]), 1: (8, [2, 3, 6, 7])}
    seats = seats_of(["gpu:0", "gpu:1", "gpu:2"], {"gpu:0": 1, "gpu:1": 0, "gpu:2": 1}, nodes)
    assert single_line(seats[0]) == "CUDA_VISIBLE_DEVICES=0 numactl --cpunodebind=8 --membind=8 COMMAND"
    assert slurm_line(seats) == (
        "srun --ntasks=3 --gres=gpu:3 --gpu-bind=map_gpu:0,1,2 --cpu-bind=map_ldom:8,0,8 --mem-bind=map_mem:8,0,8"
    )
    assert rank_file("node", seats).splitlines()[1:] == [
        "rank 0=localhost slot=2,3", "rank 1=localhost slot=0,1,4,5", "rank 2=localhost slot=6,7",
    ]  # fmt: skip
    assert cpu_ranges([0, 1, 2, 5, 8, 9]) == "0-2,5,8-9"


def test_lines_bind_nothing_where_the_node_is_not_known() -> None:
    seats = [Seat("gpu:0", None), Seat("gpu:1", None)]
    assert single_line(seats[1]) == "CUDA_VISIBLE_DEVICES=1 COMMAND"
    assert slurm_line(seats) == "srun --ntasks=2 --gres=gpu:2 --gpu-bind=map_gpu:0,1"
    with pytest.raises(UserError, match="the NUMA node of gpu:0 is not known"):
        rank_file("node", seats)


def test_advise_prints_the_seats_and_writes_a_rank_file(tmp_path: Path, capsys: Captured) -> None:
    run, ranks = saved(tmp_path, POINTS, **MACHINE), tmp_path / "ranks"
    text = run.read_text().replace('"modelled":true', '"modelled":false', 1)
    run.write_text(text)
    assert main(["advise", str(run), "--placement", "-o", str(ranks)]) == 0
    out = capsys.readouterr().out
    assert "gpu:0  numa:1, CPUs 2-3,6-7  (by copies)" in out and "numactl --cpunodebind=8 --membind=8" in out
    assert "50 % over the good value, 100 % over the bad one" in out and "|good - bad| / bad" in out
    assert ranks.read_text().splitlines()[1] == "rank 0=localhost slot=2,3"
    assert main(["advise", str(run), "--placement", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [gpu["numa"] for gpu in made["gpus"]] == [1, 1] and made["modelled"] is False
    assert made["near_far"][-1]["values"] and made["rank_file"].startswith("# node")


def test_the_report_has_the_section_placement_for_runs_and_models(tmp_path: Path, capsys: Captured) -> None:
    run = tmp_path / "run.jsonl"
    only = [word for glob in ("h2d/ce/*pinned*67108864*false*batched", "d2h/ce/*pinned/67108864*batched")
            for word in ("--only", glob)]  # fmt: skip
    assert main(["run", "--machine", "sl390", "--suite", "quick", *only, "-o", str(run), "-q"]) == 0
    capsys.readouterr()
    assert main(["report", str(run), "--summary=full"]) == 0
    out = capsys.readouterr().out
    assert "gpu:0 is near numa:0; gpu:1 is near numa:1" in out and "Over bad" in out and "|good - bad| / good" in out


def test_a_machine_that_hides_numa_says_so(tmp_path: Path, capsys: Captured) -> None:
    hidden = {"hidden": [{"fact": "numa", "why": "a virtual machine"}], "numa": [], "places": ["numa:0", "gpu:0"],
              "gpus": [{"index": 0, "numa": None, "uuid": "a"}]}  # fmt: skip
    run = saved(tmp_path, [copy("h2d", 0, 0, 50)], **(MACHINE | hidden))
    run.write_text(run.read_text().replace('"modelled":true', '"modelled":false', 1))
    assert main(["advise", str(run), "--placement"]) == 0
    assert "NUMA is hidden here (a virtual machine), so no near node is known." in capsys.readouterr().out
    assert main(["report", str(run), "--summary=full"]) == 0
    assert "so no near node is known" in capsys.readouterr().out
    assert main(["advise", str(run), "--placement", "-o", str(tmp_path / "ranks")]) == NOT_HERE
    assert "no CPUs to name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (
            ["--machine", "sl390", "--placement", "--src", "numa:0"],
            WRONG_USAGE,
            "leave out the options of one transfer",
        ),
        (["--machine", "sl390", "--placement", "--talk", "x"], WRONG_USAGE, "--talk"),
        (["--machine", "auto", "--placement"], WRONG_USAGE, "needs a model"),
    ],
)
def test_options_that_do_not_fit_placement_are_refused(
    capsys: Captured, words: list[str], code: int, says: str
) -> None:
    assert main(["advise", *words]) == code
    assert says in capsys.readouterr().err


@needs_fake
def test_doctor_names_the_place_of_each_gpu_and_refuses_a_run_of_another_machine(tmp_path: Path) -> None:
    done = linkscope("doctor", environment=environment())
    assert "gpu:0  " in done.stdout and "--placement [RUN.jsonl]" in done.stdout
    made = json.loads(linkscope("doctor", "--placement", "--json", environment=environment()).stdout)
    assert [gpu["gpu"] for gpu in made["gpus"]] == ["gpu:0", "gpu:1"] and "srun" in made["slurm"]
    run = saved(tmp_path, POINTS, **MACHINE)
    other = linkscope("doctor", "--placement", str(run), environment=environment())
    assert other.returncode == NOT_HERE and "is MODELLED" in other.stderr
    run.write_text(run.read_text().replace('"modelled":true', '"modelled":false', 1))
    other = linkscope("doctor", "--placement", str(run), environment=environment())
    assert other.returncode == NOT_HERE and "was measured on another machine" in other.stderr


def test_open_mpi_needs_no_rank_file_where_nodes_in_order_have_as_many_processes() -> None:
    def seats(*nodes: int | None) -> list[Seat]:
        return [Seat(f"gpu:{at}", node, node) for at, node in enumerate(nodes)]

    assert map_by_line(seats(0, 0, 1, 1)) == "mpirun -n 4 --map-by ppr:2:numa --bind-to numa"
    assert map_by_line(seats(0)) == "mpirun -n 1 --map-by ppr:1:numa --bind-to numa"
    for nodes in ((0, 1, 1), (1, 1), (0, 1, 0, 1), (0, 8), (0, None)):
        assert map_by_line(seats(*nodes)) is None


def test_the_line_without_a_rank_file_is_printed_only_where_it_gives_the_placement() -> None:
    crossed = seating_of_machine(MACHINE, near_far(POINTS))
    in_order = dataclasses.replace(crossed, seats=[Seat("gpu:0", 0, 0), Seat("gpu:1", 1, 1)])
    assert "--map-by ppr:1:numa --bind-to numa" in "\n".join(lines(in_order))
    assert "--map-by" not in "\n".join(lines(crossed))
    assert json.loads(as_json(in_order))["map_by"].startswith("mpirun -n 2")
    assert json.loads(as_json(crossed))["map_by"] is None
