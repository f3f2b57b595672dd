"""Machine files of systems A, B and C of Jorda et al. against their paper (items JO of docs/notes/papers.md)."""

import pytest

from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.machine.model_paths import routes
from paper_machines import Span, bidirectional_rates, rate, raw
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]


def remote(machine: str, near: str, far: str) -> float:
    """The rate of a far copy over that of a near one, in per cent."""
    return 100 * rate(machine, far) / rate(machine, near)


_REMOTE = {"A": ("jorda-a", "gpu:2"), "B": ("jorda-b", "gpu:1")}


def _span(system: str, direction: str) -> Span:
    machine, gpu = _REMOTE[system]
    near, far = (("numa:0", end) if direction == "H2D" else (end, "numa:0") for end in ("gpu:0", gpu))
    return Span(
        f"JO-9: remote to local one-way on {system}, {direction}, %",
        lambda: remote(machine, " > ".join(near), " > ".join(far)),
        70,
        80,
    )


SPANS = [
    *(_span(system, direction) for system in _REMOTE for direction in ("H2D", "D2H")),
    Span(
        "JO-10: GPU to GPU, remote to local on A, %",
        lambda: 100 * rate("jorda-a", "gpu:0 > gpu:2", peer="off") / rate("jorda-a", "gpu:0 > gpu:1"),
        0,
        65,
    ),
]
# Statements with ranges, as the machine files name them.
RANGES = ("JO-9: remote one-way 70-80 % on A", "JO-9: remote one-way 70-80 % on B", "JO-10")


@pytest.mark.parametrize("span", SPANS, ids=lambda span: span.item)
def test_a_ratio_lies_in_the_range_of_the_paper(span: Span) -> None:
    assert span.least <= span.found() <= span.most


@pytest.mark.parametrize(("machine", "gpu"), [("jorda-a", "gpu:2"), ("jorda-b", "gpu:1")])
def test_remote_is_70_to_80_percent_of_local_and_bidirectional_is_slowest_jo_9(machine: str, gpu: str) -> None:
    for near, far in (("numa:0 > gpu:0", f"numa:0 > {gpu}"), ("gpu:0 > numa:0", f"{gpu} > numa:0")):
        assert 0.70 <= rate(machine, far) / rate(machine, near) <= 0.80
        bidirectional = max(*bidirectional_rates(machine, near), *bidirectional_rates(machine, far))
        assert bidirectional < rate(machine, far) < rate(machine, near)


def test_bidirectional_copies_are_slowest_on_c_too_jo_9() -> None:
    assert max(bidirectional_rates("jorda-c", "numa:0 > gpu:0")) < 0.8 * rate("jorda-c", "numa:0 > gpu:0")


def test_a_is_faster_into_the_gpu_and_b_out_of_the_gpu_jo_9() -> None:
    assert rate("jorda-a", "numa:0 > gpu:0") > 1.01 * rate("jorda-a", "gpu:0 > numa:0")
    assert rate("jorda-b", "gpu:0 > numa:0") > 1.01 * rate("jorda-b", "numa:0 > gpu:0")


def test_copies_between_iohs_of_a_are_staged_jo_10() -> None:
    near = rate("jorda-a", "gpu:0 > gpu:1")
    assert 0.4 * near < rate("jorda-a", "gpu:0 > gpu:2", peer="off") <= 0.65 * near
    assert ("gpu:0", "gpu:2") not in models.places(models.load("jorda-a")).peers


def test_gpus_of_c_are_equally_fast_across_switches_jo_10() -> None:
    assert rate("jorda-c", "gpu:0 > gpu:2") == pytest.approx(rate("jorda-c", "gpu:0 > gpu:1"), rel=0.05)


@pytest.mark.parametrize(("machine", "near"), [("jorda-a", "switch:0"), ("jorda-b", "switch:0"), ("jorda-c", "numa:0")])
def test_disks_have_a_place_and_one_rate_for_reads_and_writes_jo_5_jo_8(machine: str, near: str) -> None:
    model = models.load(machine)
    assert models.places(model).disks == ("disk:0",)
    (link,) = [link for link in model.link if "disk:0" in link.between[0]]
    assert link.between == [(near, "disk:0")] and link.both_ways_gbps is not None
    read, written = raw(machine, f"disk disk:0->{near}"), raw(machine, f"disk {near}->disk:0")
    assert max(read, written) <= link.both_ways_gbps.v < read + written
    assert (read > written) == (machine == "jorda-b"), "flash is read faster than written, a disk's one head does both"
    by_pair = routes(model)
    for gpu in models.places(model).gpus:
        route = [hop.name for hop in by_pair["disk:0", gpu]]
        assert route[0] == f"disk disk:0->{near}" and route[-1].endswith(f"->{gpu}")


def test_an_ssd_is_faster_than_an_hdd_and_both_slower_than_any_gpu_jo_5() -> None:
    hdd, ssd = raw("jorda-a", "disk disk:0->switch:0"), raw("jorda-b", "disk disk:0->switch:0")
    assert 1.5 * hdd < ssd < 0.1 * rate("jorda-b", "numa:0 > gpu:0")


@pytest.mark.parametrize("ends", [("numa:0", "disk:0"), ("disk:0", "disk:0")])
def test_files_are_copied_from_and_to_gpus_only(ends: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--machine", "jorda-b", "--src", ends[0], "--dst", ends[1]]) == 3
    assert f"{ends[0]} -> {ends[1]}: benchmarks copy files from and to GPUs only" in capsys.readouterr().err
