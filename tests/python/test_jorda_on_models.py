"""What Jorda et al. state of staged transfers, on the models of their systems (docs/notes/jorda-on-models.md)."""

import itertools

import jorda_page as tool
import pytest
from jorda_page import BUFFERS, CUDA, DIRECT, KIB, MIB, WHOLE, Method, System

from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

A_REMOTE, A_NEAR = ("gpu:0", "gpu:2"), ("gpu:0", "gpu:1")


def test_the_page_is_what_the_models_give() -> None:
    assert tool.PAGE.read_text() == tool.page(), "run .venv/bin/python tools/jorda_page.py"


def test_remote_gpus_of_a_reach_at_most_65_percent_of_near_ones_by_cuda_jo_10() -> None:
    a = System("jorda-a")
    near, remote = a.rates(A_NEAR, [DIRECT])[DIRECT], a.rates(A_REMOTE, [CUDA, DIRECT])
    assert near is not None and remote[CUDA] is not None and remote[DIRECT] is None
    assert 0.4 < remote[CUDA] / near <= 0.65


@pytest.mark.parametrize(("name", "ends"), [("jorda-a", A_REMOTE), ("jorda-b", A_NEAR), ("jorda-c", A_REMOTE)])
def test_a_double_buffer_loses_to_cudas_own_when_small_and_wins_when_large_jo_13(
    name: str, ends: tuple[str, str]
) -> None:
    system = System(name)
    for size in (64 * KIB, 256 * KIB):
        assert system.best(ends, size).gbps < (system.rates(ends, [CUDA], size)[CUDA] or 0.0)
    gain = system.best(ends).gbps / (system.rates(ends, [CUDA])[CUDA] or 1.0)
    assert 1.1 < gain <= 1.7, "JO-16: up to 70 %"
    crossover = system.crossover(ends)
    assert crossover is not None and 512 * KIB <= crossover <= 4 * MIB


@pytest.mark.parametrize("name", list(tool.SYSTEMS))
def test_two_buffers_overlap_what_one_does_in_turn_jo_6(name: str) -> None:
    system = System(name)
    for ends in tool.SYSTEMS[name]:
        for both in (False, True):
            whole = system.rates(ends, [WHOLE], both=both)[WHOLE]
            assert whole is not None and system.best(ends, both=both).gbps > 1.2 * whole


@pytest.mark.parametrize("name", list(tool.SYSTEMS))
def test_the_rate_over_chunks_of_a_disk_rises_and_then_is_flat_jo_14(name: str) -> None:
    system = System(name)
    for ends in (("disk:0", "gpu:0"), ("gpu:0", "disk:0")):
        rates = [gbps for gbps in system.rates(ends, BUFFERS).values() if gbps is not None]
        assert len(rates) == len(BUFFERS)
        assert rates[0] < 0.85 * max(rates) and all(one < other for one, other in itertools.pairwise(rates[:7]))
        assert min(rates[-4:]) > 0.98 * max(rates)


def test_the_best_chunk_of_the_solid_state_disk_is_some_megabytes_jo_14() -> None:
    b = System("jorda-b")
    (at_4mib,) = b.rates(("disk:0", "gpu:0"), [Method("double buffer", "4MiB")]).values()
    best = b.best(("disk:0", "gpu:0"))
    assert best.chunk in ("2MiB", "4MiB", "8MiB") and at_4mib is not None and at_4mib > 0.99 * best.gbps


def test_the_locality_of_a_disk_matters_little_jo_12() -> None:
    a = System("jorda-a")
    near, far = (a.best(("disk:0", gpu), MIB).gbps for gpu in ("gpu:0", "gpu:2"))
    assert far > 0.8 * near
