"""Copies of cached data and of many pieces, on GPUs: their data is verified."""

import pytest

from on_gpus import measured, needs, only, verified

pytestmark = needs(1)


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize("cache", ["written", "dirty"])
def test_data_that_a_core_has_just_written_arrives(tmp_path, memory, cache) -> None:
    id = f"h2d/ce/numa:0.{memory}->gpu:0.device/{1 << 20}?after=kernel&bidirectional=false&cache={cache}&mode=single"
    verified(measured(tmp_path / "a.jsonl", "--rounds", "1", *only(id)))


@pytest.mark.parametrize("engine", ["ce", "batch", "graph", "sm"])
def test_many_pieces_arrive(tmp_path, engine) -> None:
    """1000 pieces of 4 KiB to the GPU, by each engine that the driver has."""
    run = measured(
        tmp_path / "a.jsonl", "--suite", "full", "--rounds", "1",
        *only(f"pieces/{engine}/numa:0.pinned->gpu:0.device/{1000 * 4096}?*"),
    )  # fmt: skip
    verified(run)
