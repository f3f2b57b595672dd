"""What Jorda et al. state of staged transfers, on the models of their systems (docs/notes/jorda-on-models.md)."""

import itertools

import jorda_page as tool
import network_page
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


@pytest.mark.parametrize("name", list(tool.SYSTEMS))
def test_curves_over_chunks_of_all_paths_rise_to_one_optimum_and_do_not_rise_again_jo_6(name: str) -> None:
    """JO-1, JO-2, JO-5, JO-6, JO-12, JO-13 and JO-14 by one code: small chunks pay calls, large ones do not overlap."""
    system = System(name)
    for ends, both in tool.lines_of(system):
        rates = list(system.curve(ends, both=both).values())
        top = rates.index(max(rates))
        assert len(rates) == len(BUFFERS) and rates[0] < 0.97 * max(rates), (ends, both)
        assert all(other > 0.98 * one for one, other in itertools.pairwise(rates[: top + 1])), (ends, both)
        assert all(other < 1.02 * one for one, other in itertools.pairwise(rates[top:])), (ends, both)


@pytest.mark.parametrize("name", list(tool.SYSTEMS))
def test_the_best_chunk_grows_with_the_size_and_is_smaller_than_the_transfer_jo_13(name: str) -> None:
    system = System(name)
    for ends in tool.SYSTEMS[name]:
        chunks = [tool.CHUNKS[system.best(ends, size).chunk] for size in tool.OPTIMA]
        assert chunks == sorted(chunks) and all(c < size for c, size in zip(chunks, tool.OPTIMA, strict=True))


def test_remote_paths_gain_from_chunks_like_near_ones_and_stay_slower_jo_1() -> None:
    for name, near, far in (
        ("jorda-a", ("numa:0", "gpu:0"), ("numa:0", "gpu:2")),
        ("jorda-b", ("numa:0", "gpu:0"), ("numa:0", "gpu:1")),
    ):
        system = System(name)
        assert system.best(far).gbps < system.best(near).gbps
        assert system.best(far, both=True).gbps < system.best(near, both=True).gbps < 2 * system.best(near).gbps


@pytest.mark.parametrize("name", list(network_page.PATHS))
def test_buffers_of_some_megabytes_are_flat_between_hosts_and_small_ones_are_not_jo_15(name: str) -> None:
    hosts = network_page.Hosts(name)
    for ends in network_page.PATHS[name]:
        curve = tool.network_curve(hosts, ends)
        best = max(curve.values())
        assert curve[2 * MIB] > 0.99 * best and curve[64 * KIB] < 0.99 * best
        assert 64 * KIB <= hosts.crossover(ends) <= MIB
