"""tools/batch_ends.py recovers a planted uncertainty of batch times, for every `longer`."""

import random
from types import SimpleNamespace

import batch_ends
import pytest

from fakes import H2D, round_record
from invented import point
from linkscope.runfile import Round, RoundFlow

ID = H2D.format(4096, "false", "batched")


def noisy(chance: random.Random, longer: int | None, samples: int = 15) -> Round:
    """Batches of 100 copies of 2 us and `longer` times as many; the end of each is uncertain by 3 us."""
    made = round_record(ID, 0)
    span = 100 * max((longer or 2) - 1, 1)
    each = [2e-6 + (chance.gauss(0, 3e-6) - chance.gauss(0, 3e-6)) / span for _ in range(samples)]
    made.flows = [RoundFlow("numa:0", "gpu:0", "pinned", "device", 4096, "measured", each)]
    made.batch, made.longer = [100], longer
    return made


@pytest.mark.parametrize("longer", [None, 2, 8])
def test_what_was_planted_comes_back(longer: int | None) -> None:
    chance = random.Random(5)
    measured = point(ID, 2e-6)
    measured.timing, measured.params = "gate+slope", {"mode": "batched"}
    rounds = [*(noisy(chance, longer) for _ in range(99)), noisy(chance, longer, samples=2), noisy(chance, 1)]
    ((_, found),) = batch_ends.uncertain_us(SimpleNamespace(points=[measured], rounds={ID: rounds})).items()
    ((edge, values),) = found.items()
    assert edge == 0.25 and len(values) == 99  # neither the steady round nor the one without a shorter batch
    assert sorted(values)[49] == pytest.approx(3.0, rel=0.15)
