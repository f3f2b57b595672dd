"""Machine files of Minsky and Newell against the microbench slides (items MB of docs/notes/papers.md)."""

import itertools

import pytest

from paper_machines import KIB, MIB, Number, check, penalty, rate, raw
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]


NUMBERS = [
    Number("MB-6: PCIe 3.0 x16", lambda: raw("4029gp", "pcie switch:0->gpu:0"), 15.8),
    Number("MB-6: two NVLink 1", lambda: raw("minsky", "nvlink switch:0->gpu:0"), 40),
    Number("MB-6: two NVLink 1, back", lambda: raw("minsky", "nvlink gpu:0->switch:0"), 40),
    Number("MB-6: three NVLink 2", lambda: raw("newell", "nvlink switch:0->gpu:0"), 75),
    Number("MB-6: three NVLink 2, back", lambda: raw("newell", "nvlink gpu:0->switch:0"), 75),
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.item)
def test_a_number_of_the_paper_is_reproduced(number: Number) -> None:
    check(number)


@pytest.mark.parametrize("machine", ("minsky", "newell"))
def test_minsky_and_newell_are_anisotropic_near_and_far_mb_7(machine: str) -> None:
    """Every GPU: GPU to CPU is faster locally, CPU to GPU is faster remotely."""
    for gpu, near in (("gpu:0", 0), ("gpu:1", 0), ("gpu:2", 1), ("gpu:3", 1)):
        local, remote = f"numa:{near}", f"numa:{1 - near}"
        assert rate(machine, f"{gpu} > {local}") > 1.01 * rate(machine, f"{local} > {gpu}")
        assert rate(machine, f"{remote} > {gpu}") > 1.05 * rate(machine, f"{gpu} > {remote}")
        assert rate(machine, f"{remote} > {gpu}") < rate(machine, f"{local} > {gpu}")


def test_one_thread_of_power9_copies_slower_than_one_of_power8_mb_7() -> None:
    for power8, power9 in itertools.product(("s822lc", "minsky"), ("ac922", "newell")):
        assert rate(power9, "numa:0 > numa:0") < rate(power8, "numa:0 > numa:0")


@pytest.mark.parametrize(("machine", "gpu"), [("jorda-a", "gpu:2"), ("jorda-b", "gpu:1")])
def test_the_effect_of_locality_grows_with_size_and_is_constant_from_8_mb_jo_9(machine: str, gpu: str) -> None:
    def lost(size: int) -> float:
        return penalty(rate(machine, "numa:0 > gpu:0", size=size), rate(machine, f"numa:0 > {gpu}", size=size))

    losses = [lost(size) for size in (4 * KIB, 64 * KIB, 512 * KIB, 8 * MIB)]
    assert losses == sorted(losses) and losses[0] < 0.5 * losses[-1]
    assert lost(8 * MIB) == pytest.approx(lost(64 * MIB), rel=0.02)
