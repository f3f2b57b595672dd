"""The rows that say how a point is sampled."""

import pytest

from fakes import H2D
from linkscope.run.answers import Prepared
from linkscope.run.recipes import Recipe, SizeClass, recipe_of
from linkscope.runfile import PointId

MIB = 1 << 20


def recipe(id: str, actors: int = 1, **prepared: int) -> Recipe:
    return recipe_of(PointId.parse(id), Prepared(supported=True, actors=actors, **prepared))


def size_class(size: int, actors: int = 1) -> SizeClass:
    return recipe(H2D.format(size, "false", "batched"), actors).size


@pytest.mark.parametrize("actors", [1, 2])
def test_the_largest_row_that_a_size_reaches_holds(actors: int) -> None:
    found = [size_class(size, actors).least for size in (8, MIB - 8, MIB, 16 * MIB - 8, 16 * MIB, 256 * MIB, 1 << 30)]
    assert found == [0, 0, MIB, MIB, 16 * MIB, 256 * MIB, 256 * MIB]


@pytest.mark.parametrize("actors", [1, 2])
def test_larger_sizes_have_longer_batches(actors: int) -> None:
    rows = [size_class(size, actors) for size in (8, MIB, 16 * MIB, 256 * MIB)]
    assert [row.batch_s for row in rows] == sorted(row.batch_s for row in rows)
    assert all(row.batch_s < row.longer_s for row in rows)


def test_shares_of_several_flows_even_out_over_operations_unless_one_operation_is_long() -> None:
    assert [size_class(size, 2).joint_count for size in (8, MIB, 16 * MIB, 256 * MIB)] == [4, 4, 4, 0]
    assert size_class(8).joint_count == 0


def test_operations_of_one_call_and_of_a_cpu_thread_have_more_in_a_batch() -> None:
    texts = ("h2d/ce/numa:0.pinned->gpu:0.device/8", "h2d/batch/numa:0.pinned->gpu:0.device/8")
    engine, one_call = (recipe(f"{text}?mode=batched").limits.count for text in texts)
    thread = recipe("h2h/cpu/numa:0.pinned->numa:0.pinned/8?mode=batched").limits
    assert engine < one_call < thread.count and thread.by_host


def test_a_cpu_thread_meets_no_slice_twice_in_a_batch() -> None:
    limits = recipe("h2h/cpu/numa:0.pinned->numa:0.pinned/8?mode=batched", slices=100).limits
    assert (limits.count, limits.queued) == (50, 100)


def test_a_program_that_runs_once_takes_single_operations() -> None:
    batched = H2D.format(8, "false", "batched")
    assert not recipe(batched).single
    assert recipe(batched, most_iterations=1).single and recipe(H2D.format(8, "false", "single")).single


def test_only_single_copies_of_gpu_memory_wake_their_link() -> None:
    between = "d2d/ce/gpu:0.device->gpu:1.device/8?mode={}&peer=on"
    assert recipe(between.format("single")).waking and recipe(between.format("single")).settles
    assert not recipe(between.format("batched")).waking and not recipe(H2D.format(8, "false", "single")).settles
