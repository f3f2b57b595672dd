"""Computations by CUB on this machine: their results are right at every size, alone and with their transfers."""

import pytest

from on_gpus import FAKE, measured, needs, only, verified

pytestmark = needs(1)
SIZES = ("small",) if FAKE else ("small", "shoc", "full")


@pytest.mark.parametrize("name", ["reduction", "scan", "sort"])
def test_computations_by_cub_are_right_at_every_size(name, tmp_path) -> None:
    ends = ("gpu:0.device->gpu:0.device", "numa:0.pinned->gpu:0.device")
    ids = [f"compute_{name}/sm/{end}/0?size={size}" for end in ends for size in SIZES]
    points = verified(measured(tmp_path / "run.jsonl", "--rounds", "3", *only(*ids)))
    assert {point.params["size"] for point in points} == set(SIZES)
