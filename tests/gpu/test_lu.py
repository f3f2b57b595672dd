"""An LU over the GPUs of this machine: its residual is that of a factorization, also with panels through the host."""

import pytest

from on_gpus import FAKE, measured, needs, only, verified

ORDER = "256" if FAKE else "8192"


@pytest.mark.parametrize(
    "gpus", [pytest.param("0123"[:count], marks=needs(count), id=f"on_{count}") for count in (1, 2, 3, 4)]
)
def test_an_lu_over_gpus_has_the_residual_of_a_factorization(gpus, tmp_path) -> None:
    ids = [
        f"lu_gpus/sm/gpu:0.device->gpu:0.device/0?ahead=1&by={by}&gpus={gpus}&n={ORDER}&node=0&threads_on=near"
        for by in ("host", "peer")
    ]
    points = verified(measured(tmp_path / "run.jsonl", "--rounds", "6", *only(*ids)))
    assert {point.params["by"] for point in points} >= {"host"}
    assert all(point.flows[0].operations == pytest.approx(2 / 3 * int(ORDER) ** 3) for point in points)
