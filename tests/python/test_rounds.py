"""The number of rounds and its cost: known answers, and a few cells of tools/rounds.py."""

import dataclasses
import math
import random

import pytest
import rounds

from fakes import H2D, facts, plan
from linkscope.run.sampler import ROUND_S, Sampler, Task
from linkscope.runfile import PointId
from linkscope.stats import LOOKS, agree, half_width_after, median_interval, mostly, next_look, rounds_interval
from test_sampler_edges import earlier
from test_sampler_expensive import Played


def test_three_rounds_agree_within_the_precision() -> None:
    assert agree([1.0, 1.01, 1.005], 0.01) and not agree([1.0, 1.011, 1.005], 0.01)
    assert agree([1.0, 1.01, 1.005, 2.0], 0.01)  # the first three count
    assert not agree([1.0, 1.0], 0.01) and not agree([-1.0, 0.0, -1.0], 0.01)


def test_three_agreeing_rounds_have_an_interval_of_the_target_and_others_students_interval() -> None:
    near = rounds_interval([1.0, 1.002, 1.004], 0.01)
    assert near is not None and (near.low, near.high) == pytest.approx((1.002 * 0.99001, 1.002 * 1.00999))
    far = rounds_interval([1.0, 1.02, 1.04], 0.01)
    assert far is not None and far.high / 1.02 == pytest.approx(1 + 4.303 * 0.0196 / 3**0.5, rel=2e-3)
    assert far.level == 0.95
    assert rounds_interval([1.0], 0.01) is None and rounds_interval([1.0, -1.0, 1.0], 0.01) is None


@pytest.mark.parametrize("outlier", [0.5, 2.0])
def test_four_of_five_rounds_have_to_agree(outlier: float) -> None:
    near = rounds_interval([1.003, outlier, 1.0, 1.002, 1.009], 0.01)
    assert near is not None
    middle = 1.003 if outlier > 1 else 1.002
    assert (near.low, near.high) == pytest.approx((middle * 0.99001, middle * 1.00999))
    for far in ([1.003, outlier, 1.0, 1.002, 1.0125], [1.003, 0.5, 1.0, 2.0, 1.002], [1.0, 1.001, 1.002, outlier]):
        found = rounds_interval(far, 0.01)
        assert found is not None and found.half_width(1.0) > 0.01


def test_six_or_more_rounds_use_order_statistics_and_late_looks_a_higher_level() -> None:
    values = [1 + at / 100 for at in range(36)]
    assert rounds_interval(values[:6], 0.01) == median_interval(values[:6])
    assert rounds_interval(values[:12], 0.01) == median_interval(values[:12])
    late = rounds_interval(values, 0.01)
    assert late == median_interval(values, 0.98) and late.level >= 0.98 > median_interval(values).level


@pytest.mark.parametrize(("rounds", "level"), [(6, 0.95), (12, 0.95), (22, 0.98), (36, 0.98)])
def test_intervals_of_later_looks_have_a_higher_level_because_every_look_may_end_the_sampling(rounds, level) -> None:
    found = rounds_interval([1.0 + n / 1000 for n in range(rounds)], 0.01)
    assert found is not None and found.level >= level
    # The narrowest such interval: one rank further inside, the level is missed.
    inside = median_interval(range(rounds), level)
    assert inside is not None and found.low == 1.0 + inside.low / 1000


def test_the_expected_width_after_more_rounds_interpolates_order_statistics() -> None:
    """After 12 rounds the ends are the third and the tenth value: the 2.8th and 9.2nd of eleven."""
    eleven = [1 + at / 1000 for at in range(-5, 6)]
    assert half_width_after(eleven, 12) == pytest.approx((9.2308 - 2.7692) / 2 / 1000, rel=1e-4)
    wild = [0.5, *eleven[1:-1], 9.0]
    assert half_width_after(wild, 36) == half_width_after(eleven, 36)  # the outermost values do not count
    assert half_width_after([1.0, 1.01, 1.02], 36) == pytest.approx(2.456 * 0.01 / 6 / 1.01)


def test_looks_that_would_come_too_early_are_skipped() -> None:
    six = [1 + at / 1000 for at in (-10, -6, -2, 2, 6, 10)]
    assert next_look(six, 0.0065) == 12 and next_look(six, 0.005) == 22 and next_look(six, 0.004) is None
    assert next_look([1.0, 1.02, 1.03], 0.01) == 6  # three rounds are too few to skip a look
    assert next_look([1.0, 1.2, 1.3], 0.01) is None
    assert next_look([1.0] * LOOKS[-1], 0.01) is None


def test_agreement_by_chance_needs_the_agreement_of_the_class() -> None:
    assert mostly([True, True, False, False]) and not mostly([True, False, False])
    assert not mostly([True, True])


@pytest.mark.parametrize("shape", rounds.SHAPES)
@pytest.mark.parametrize("within", [0.0, 1.0])
@pytest.mark.parametrize("strength", [0.5, 1.0, 1.6])
def test_intervals_cover_for_every_shape_of_noise(shape: str, strength: float, within: float) -> None:
    noise = rounds.Noise(shape, strength, within)
    found = rounds.drawn(noise, 600)
    covered = sum(one.covers(rounds.truth(noise)) for one in found) / len(found)
    assert covered >= 0.94 - 3 * (0.94 * 0.06 / len(found)) ** 0.5


def test_scattered_samples_move_the_median_of_rounds_between_two_modes() -> None:
    """A mode with 60 % of the rounds keeps the median while the modes are distinct. Samples that scatter as much as
    the rounds blur the modes."""
    noise = rounds.Noise("two modes, 40 to 60", 2.0)
    assert rounds.truth(noise) == 1.0
    assert 0.98 < rounds.truth(dataclasses.replace(noise, within=1.0)) < 0.995
    assert rounds.truth(rounds.Noise("normal", 2.0, 1.0)) == pytest.approx(1.0, abs=1e-3)


def test_without_the_check_of_the_class_agreement_by_chance_would_not_cover(monkeypatch) -> None:
    """With modes two precisions apart, three rounds fall into the rarer one with probability 0.4^3."""
    noise = rounds.Noise("two modes, 40 to 60", 2.0)
    monkeypatch.setattr(rounds, "mostly", lambda agreed: True)
    found = [one for one in rounds.drawn(noise, 1200) if one.rounds == 3 and one.narrow]
    assert sum(one.covers() for one in found) / len(found) == pytest.approx(0.6**3 / (0.6**3 + 0.4**3), abs=0.06)


def test_the_cost_of_the_oracle_matches_a_closed_form() -> None:
    """Normal noise of 1.5 times the precision: 95 % of the medians are within it after (1.96 * 1.2533 * 1.5)^2 = 13.6
    rounds."""
    known = rounds.oracle(rounds.Noise("normal", 1.5, sample_cost=0.1))
    assert known.blind / 1.1 == pytest.approx(13.6, abs=2.5)
    assert known.same >= known.blind
    # three rounds are the minimum
    assert rounds.oracle(rounds.Noise("normal", 0.1, sample_cost=0.1)).same == pytest.approx(3.3)


@pytest.mark.parametrize(
    "shape, strength",
    [("normal", 0.1), ("normal", 1.0), ("normal", 1.3), ("heavy tails (Student, 3 degrees)", 0.5),
     ("a fifth far slower", 0.5)],
)  # fmt: skip
def test_points_cost_at_most_1_5_times_as_many_rounds_as_for_an_oracle(shape: str, strength: float) -> None:
    noise = rounds.Noise(shape, strength)
    found = rounds.drawn(noise, 1200)
    assert sum(one.narrow for one in found) >= 0.8 * len(found)
    assert sum(one.cost for one in found) / len(found) <= 1.5 * rounds.oracle(noise).same


@pytest.mark.parametrize("within", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("strength", [0.1, 0.3, 0.8, 1.0, 1.3])
@pytest.mark.parametrize("sample_cost", [0.14, 0.15, 0.3, 1.0, 3.0])
def test_expensive_samples_cost_hardly_more_relative_to_the_oracle(
    strength: float, within: float, sample_cost: float
) -> None:
    noise = rounds.Noise("normal", strength, within, sample_cost)
    known, found = rounds.oracle(noise).same, rounds.drawn(noise, 600)
    assert known < float("inf") or within == 4.0
    most = 1.5 if sample_cost <= 1.0 else 1.6  # 1.55 in one case: the longest batches of host memory
    assert sum(one.cost for one in found) / len(found) <= most * known


@pytest.mark.parametrize("within", [0.05, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("sample_cost", [0.05, 0.1, 0.2, 0.3])
@pytest.mark.parametrize("little_s", [0.0, math.inf])
def test_the_sampler_takes_as_many_samples_as_its_simulation(
    monkeypatch, within: float, sample_cost: float, little_s: float
) -> None:
    """The second round of a point of 1 MiB, target 1 %. A sample is one batch of one operation and one of two."""
    monkeypatch.setattr("linkscope.run.sampler.LITTLE_S", little_s)
    monkeypatch.setattr("linkscope.run.sampler.MOST_BUSY_S", math.inf)
    monkeypatch.setattr("rounds.LITTLE_S", little_s)
    drawn_s: list[float] = []

    class Noted(rounds.Noise):
        def sample(self, round: float, chance: random.Random) -> float:
            drawn_s.append(super().sample(round, chance))
            return drawn_s[-1]

    chance, id, each_s = random.Random(within), H2D.format(1 << 20, "false", "batched"), sample_cost * ROUND_S / 3
    counts = set()
    for _ in range(60):
        point = rounds.Measured(Noted("normal", 0.8, within, sample_cost), chance)
        point.to(1)
        first = earlier([1], each_s)
        first.flows[0].samples_s, first.timing = [each_s * one for one in drawn_s], "virtual"
        drawn_s.clear()
        point.to(2)
        worker = Played(*(each_s * one for one in drawn_s), timing="virtual")
        record = Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 1, first))
        counts.add(len(record.flows[0].samples_s))
        assert record.flows[0].samples_s == pytest.approx([each_s * one for one in drawn_s], rel=1e-6)
        drawn_s.clear()
    assert len(counts) > 1 and (within > 1 or min(counts) == (1 if sample_cost >= 0.2 else 2))


def test_draws_repeat() -> None:
    noise = rounds.Noise("uniform", 0.7)
    assert rounds.drawn(noise, 12) == rounds.drawn(noise, 12)
    assert rounds.dozen(noise, random.Random(1)) != rounds.dozen(noise, random.Random(2))


def test_if_three_rounds_rarely_agree_no_point_stops_at_five() -> None:
    assert not [one for one in rounds.drawn(rounds.Noise("normal", 3.0), 600) if one.rounds == 5]
