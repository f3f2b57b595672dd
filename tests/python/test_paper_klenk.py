"""Machine files of Klenk's two pairs of nodes against the paper's statements (items KL of docs/notes/papers.md)."""

import itertools
from pathlib import Path

import pytest

from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.machine.model_paths import routes
from linkscope.runfile import read_run
from paper_machines import Number, check, raw
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]


NUMBERS = [
    Number("KL-11: EXTOLL Galibier, raw", lambda: raw("klenk-extoll", "extoll host:0/nic:0->host:1/nic:0"), 1.26),
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.item)
def test_a_number_of_the_paper_is_reproduced(number: Number) -> None:
    check(number)


def test_the_links_between_klenks_hosts_kl_11() -> None:
    """EXTOLL: 157 MHz x 64 bit; InfiniBand 4X FDR. They bound all transfers between the hosts."""
    for machine, gbps in (("klenk-extoll", 157e6 * 64 / 8 / 1e9), ("klenk-ib", 4 * 14.0625 * 64 / 66 / 8)):
        model = models.load(machine)
        known, limits = models.places(model), models.limits(model)
        assert (known.numa, known.gpus, known.nics) == tuple(
            tuple(f"host:{host}/{kind}:0" for host in (0, 1)) for kind in ("numa", "gpu", "nic")
        )
        ends = itertools.product((*known.numa, *known.gpus), repeat=2)
        between = [limits[a, b] for a, b in ends if a[:6] != b[:6]]
        assert len(between) == 8
        for limit in between:
            assert limit.gbps == pytest.approx(gbps, rel=0.005) and "nic:0" in limit.derivation
        within = limits["host:0/numa:0", "host:0/gpu:0"]
        assert within.gbps > gbps and "nic" not in within.derivation


def test_klenks_network_cards_reach_gpus_without_host_memory_kl_11() -> None:
    """GPUDirect RDMA: the path from a GPU to the network does not cross a NUMA node."""
    for machine in ("klenk-extoll", "klenk-ib"):
        path = routes(models.load(machine))["host:0/gpu:0", "host:1/gpu:0"]
        assert [hop.to for hop in path][1:3] == ["host:0/nic:0", "host:1/nic:0"]
        assert not any("numa" in hop.to for hop in path)


@pytest.mark.parametrize("machine", ("klenk-extoll", "klenk-ib"))
def test_paths_within_klenks_hosts_and_by_their_cards_are_measured_and_others_have_a_reason(
    machine: str, tmp_path: Path
) -> None:
    run = tmp_path / "run.jsonl"
    assert main(["run", "--machine", machine, "--suite", "quick", "-o", str(run)]) == 0
    points = read_run(run).points
    within = [point for point in points if point.src[:6] == point.dst[:6]]
    others = [point for point in points if point.src[:6] != point.dst[:6]]
    between = [point for point in others if point.benchmark != "network"]
    assert {point.status for point in others if point not in between} <= {"ok", "missed_precision"}
    assert {point.status for point in within} <= {"ok", "missed_precision"}
    assert {(point.benchmark, point.src[:6]) for point in within} == {
        (benchmark, host) for benchmark in ("h2h", "h2d", "d2h", "local") for host in ("host:0", "host:1")
    }
    assert {point.benchmark for point in between} == {"h2h", "h2d", "d2h", "d2d"}
    for point in between:
        assert point.status == "unsupported" and "on different hosts" in point.reason, point.id


def test_predictions_on_klenks_machines_kl_11(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "--machine", "klenk-extoll", "--src", "host:0/numa:0", "--dst"]
    assert main([*words, "host:0/gpu:0"]) == 0
    assert "host:0/numa:0 → host:0/gpu:0" in capsys.readouterr().out
    assert main([*words, "host:1/gpu:0"]) == 0
    assert "host:0/numa:0 → host:1/gpu:0  64 MiB, one transfer alone" in capsys.readouterr().out
