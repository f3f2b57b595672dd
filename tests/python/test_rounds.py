"""The number of rounds and its cost: known answers, and a few cells of tools/rounds.py."""

import dataclasses
import math
import random

import interval_proofs
import pytest
import rounds

from campaign import sample
from fakes import H2D, facts, plan
from linkscope.run.batches import Task
from linkscope.run.noise import RunNoise
from linkscope.run.sampler import Sampler
from linkscope.run.states import State
from linkscope.run.stopping import ROUND_S
from linkscope.runfile import PointId
from linkscope.stats import (
    LOOKS,
    CiMethod,
    Interval,
    Noise,
    expected_rounds,
    families,
    geometric_mean,
    half_width_after,
    median_interval,
    next_look,
    rounds_interval,
)
from linkscope.stats.pooling import SIGMAS
from sampler_workers import earlier
from test_assemble import ONE, round_of
from test_sampler_expensive import Played


def known(found: tuple[Interval, CiMethod] | None) -> tuple[Interval, CiMethod]:
    assert found is not None
    return found


NORMAL = families({"": [[1.0, math.exp(0.01), math.exp(-0.01)]] * 100}, str)[""]  # deviation 1 %


def test_three_rounds_have_an_interval_as_wide_as_those_of_their_family_scatter() -> None:
    """Half-width 2.054 * 1 % / sqrt(3), whether these three happen to lie near each other or not."""
    for medians in ([2.0, 2.001, 2.002], [2.0, 2.02, 1.98]):
        interval, method = known(rounds_interval(medians, NORMAL))
        assert method == "pooled" and interval.level == 0.95
        centre = geometric_mean(medians)
        assert math.log(interval.high / centre) == pytest.approx(0.0119, rel=0.15)
        assert interval.low * interval.high == pytest.approx(centre**2)


def test_a_point_that_scatters_far_more_than_its_family_keeps_its_own_scatter() -> None:
    interval, _ = known(rounds_interval([1.0, 1.3, 0.8], NORMAL))
    assert interval.half_width(1.0) > 0.25


def test_an_interval_contains_the_median_that_linkscope_states() -> None:
    interval, _ = known(rounds_interval([1.0, 1.0, 1.0, 1.0, 1.12], NORMAL))
    assert interval.low <= 1.0


def test_without_a_family_few_rounds_have_no_interval_and_one_round_never_has() -> None:
    assert rounds_interval([1.0, 1.01, 1.02], None) is None and rounds_interval([1.0] * 5, None) is None
    assert rounds_interval([1.0], NORMAL) is None and rounds_interval([], NORMAL) is None
    assert rounds_interval([1.0, -1.0, 1.0], NORMAL) is None and rounds_interval([0.0, 1.0, 1.0], NORMAL) is None


def test_rounds_of_a_family_with_two_modes_have_the_interval_of_a_further_round() -> None:
    """Three rounds of the same mode do not hide the other mode, which is 8 % away."""
    chance = random.Random(1)
    two = families({"": [[1.08 ** (chance.random() < 0.4) for _ in range(3)] for _ in range(40)]}, str)[""]
    assert not two.regular
    interval, method = known(rounds_interval([1.0, 1.0, 1.0], two))
    assert method == "next_round" and interval.low < 1 / 1.05 and interval.high > 1.08
    assert known(rounds_interval([1.0, 1.0, 1.0, 1.08, 1.0, 1.08], two))[1] == "order_statistics"


def test_small_families_are_judged_by_their_kin() -> None:
    chance = random.Random(2)
    rounds = {n: [[math.exp(0.01 * chance.gauss(0, 1)) for _ in range(3)] for _ in range(3)] for n in range(8)}
    alone, together = families(rounds, lambda n: n), families(rounds, lambda n: "kin")
    assert not alone[0].regular and together[0].regular
    assert known(rounds_interval([1.0, 1.01, 0.99], alone[0]))[1] == "next_round"
    assert known(rounds_interval([1.0, 1.01, 0.99], together[0]))[1] == "pooled"


@pytest.mark.parametrize("count, method", [(2, "pooled"), (5, "pooled"), (6, "pooled"), (11, "pooled"), (12, None)])
def test_pooled_intervals_become_narrower_with_every_round_up_to_twelve(count: int, method: str | None) -> None:
    medians = [math.exp(0.01 * (-1) ** at) for at in range(count)]
    interval, found = known(rounds_interval(medians, NORMAL))
    assert found == (method or "order_statistics")
    if method:
        more, _ = known(rounds_interval([*medians, 1.0], NORMAL))
        assert more.high / more.low < interval.high / interval.low or count == 11


@pytest.mark.parametrize(("rounds", "level"), [(6, 0.95), (12, 0.95), (22, 0.98), (36, 0.98)])
def test_intervals_of_later_looks_have_a_higher_level_because_every_look_may_end_the_sampling(rounds, level) -> None:
    found, method = known(rounds_interval([1.0 + n / 1000 for n in range(rounds)], None))
    assert method == "order_statistics" and found.level >= level
    # The narrowest such interval: one rank further inside, the level is missed.
    inside = median_interval(range(rounds), level)
    assert inside is not None and found.low == 1.0 + inside.low / 1000


def test_the_expected_width_after_more_rounds_interpolates_order_statistics() -> None:
    """After 12 rounds the ends are the third and the tenth value: the 2.8th and 9.2nd of eleven."""
    eleven = [1 + at / 1000 for at in range(-5, 6)]
    assert half_width_after(eleven, 0.1, "pooled", 12) == pytest.approx((9.2308 - 2.7692) / 2 / 1000, rel=1e-4)
    wild = [0.5, *eleven[1:-1], 9.0]
    # the outermost values do not count
    assert half_width_after(wild, 0.1, "pooled", 36) == half_width_after(eleven, 0.1, "pooled", 36)


def test_the_expected_width_of_few_rounds_follows_from_their_interval() -> None:
    """The interval of a fourth round is twice that of the mean of three. The expectation is what the family gives."""
    three, five = [1.0, 1.01, 1.02], [1.0, 1.01, 1.02, 1.0, 1.01]
    now, later = (known(rounds_interval(medians, NORMAL))[0] for medians in (three, five))
    expected = half_width_after(three, now.half_width(1.01), "pooled", 5)
    assert expected == pytest.approx(later.half_width(1.01), rel=0.05)
    of_next, of_mean = (
        half_width_after(three, width, method, 5) for width, method in ((0.04, "next_round"), (0.02, "pooled"))
    )
    assert of_next == pytest.approx(of_mean, rel=1e-3)


def test_after_few_rounds_the_next_look_is_where_the_precision_is_expected() -> None:
    three = [1.0, 1.02, 1.03]
    assert [next_look(three, width, "pooled", 0.01) for width in (0.0105, 0.0115, 0.013, 0.02)] == [4, 5, 6, 6]
    assert next_look(three, 0.011, "next_round", 0.01) == 6
    assert next_look(three, 0.06, "pooled", 0.01) is None


@pytest.mark.parametrize(("precision", "expected"), [(0.05, 3), (0.0106, 4.5), (0.0096, 6), (0.0076, 12), (0.001, 3)])
def test_the_family_predicts_the_number_of_rounds_before_a_point_has_an_interval(precision, expected) -> None:
    """Half-width 2.054 * 1 % * 0.4634 for six rounds, 0.743 % for twelve. A target out of reach gets no more rounds."""
    assert expected_rounds(NORMAL, [], precision, 12) == pytest.approx(expected, abs=1.3)
    assert expected_rounds(NORMAL, [1.0], precision, 12) == expected_rounds(NORMAL, [], precision, 12)


def test_predicted_rounds_do_not_exceed_what_is_affordable() -> None:
    assert expected_rounds(NORMAL, [], 0.0076, 6) < 6 < 10 < expected_rounds(NORMAL, [], 0.0076, 12)


def test_a_second_round_that_scatters_far_more_than_the_family_changes_the_prediction() -> None:
    assert expected_rounds(NORMAL, [1.0, 1.3], 0.0096, 12) < 3.5 < expected_rounds(NORMAL, [1.0, 1.01], 0.0096, 12)


def test_points_of_families_with_modes_are_expected_to_need_six_rounds() -> None:
    two = families({"": [[1.08 ** (at % 2) for at in range(3)] for _ in range(40)]}, str)[""]
    assert expected_rounds(dataclasses.replace(two, regular=False), [], 0.5, 12) == pytest.approx(6, abs=0.1)


def test_looks_that_would_come_too_early_are_skipped() -> None:
    six = [1 + at / 1000 for at in (-10, -6, -2, 2, 6, 10)]
    found = [next_look(six, 0.01, "order_statistics", precision) for precision in (0.0065, 0.005, 0.004)]
    assert found == [12, 22, None]
    assert next_look([1.0] * LOOKS[-1], 0.0, "order_statistics", 0.01) is None


@pytest.mark.parametrize("shape", rounds.SHAPES)
@pytest.mark.parametrize("within", [0.0, 1.0])
@pytest.mark.parametrize("strength", sample([0.5, 1.6], [0.5, 1.0, 1.6]))
def test_intervals_cover_for_every_shape_of_noise(shape: str, strength: float, within: float) -> None:
    noise = rounds.Noise(shape, strength, within)
    found = rounds.drawn(noise, sample(240, 600))
    covered = sum(one.covers(rounds.truth(noise)) for one in found) / len(found)
    assert covered >= 0.94 - 3 * (0.94 * 0.06 / len(found)) ** 0.5


def test_scattered_samples_move_the_median_of_rounds_between_two_modes() -> None:
    """A mode with 60 % of the rounds keeps the median while the modes are distinct. Samples that scatter as much as
    the rounds blur the modes."""
    noise = rounds.Noise("two modes, 40 to 60", 2.0)
    assert rounds.truth(noise) == 1.0
    assert 0.98 < rounds.truth(dataclasses.replace(noise, within=1.0)) < 0.995
    assert rounds.truth(rounds.Noise("normal", 2.0, 1.0)) == pytest.approx(1.0, abs=1e-3)


def test_without_the_test_for_modes_few_rounds_would_not_cover(monkeypatch) -> None:
    """With modes two precisions apart, three rounds fall into the rarer one with probability 0.4^3."""
    noise = rounds.Noise("two modes, 40 to 60", 2.0)
    covered = sum(one.covers() for one in rounds.drawn(noise, 1200)) / 1200
    monkeypatch.setattr("linkscope.stats.pooling.is_regular", lambda *_, **__: True)
    assert sum(one.covers() for one in rounds.drawn(noise, 1200)) / 1200 < 0.93 < covered


@pytest.mark.parametrize("shape", interval_proofs.SHAPES)
@pytest.mark.parametrize("points", [interval_proofs.POINTS, interval_proofs.SMALL])
@pytest.mark.parametrize("count", [3, 4, 6])
def test_intervals_of_few_rounds_cover_in_families_of_mixed_noise(shape: str, points: int, count: int) -> None:
    seeds = sample(20, 60)
    share, _ = interval_proofs.cell(shape, "mixed", points, count, seeds)
    assert share >= 0.94 - 3 * (0.94 * 0.06 / (seeds * interval_proofs.POINTS)) ** 0.5


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
    found = rounds.drawn(noise, sample(480, 1200))
    assert sum(one.narrow for one in found) >= 0.8 * len(found)
    assert sum(one.cost for one in found) / len(found) <= 1.5 * rounds.oracle(noise).same


@pytest.mark.parametrize("within", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("strength", sample([0.1, 0.8, 1.3], [0.1, 0.3, 0.8, 1.0, 1.3]))
@pytest.mark.parametrize("sample_cost", sample([0.14, 0.15, 1.0], [0.14, 0.15, 0.3, 1.0, 3.0]))
def test_expensive_samples_cost_hardly_more_relative_to_the_oracle(
    strength: float, within: float, sample_cost: float
) -> None:
    noise = rounds.Noise("normal", strength, within, sample_cost)
    known, found = rounds.oracle(noise).same, rounds.drawn(noise, sample(240, 600))
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
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", little_s)
    monkeypatch.setattr("linkscope.run.stopping.MOST_BUSY_S", math.inf)
    monkeypatch.setattr("rounds.LITTLE_S", little_s)
    drawn_s: list[float] = []

    class Noted(rounds.Noise):
        def sample(self, round: float, chance: random.Random) -> float:
            drawn_s.append(super().sample(round, chance))
            return drawn_s[-1]

    chance, id, each_s = random.Random(within), H2D.format(1 << 20, "false", "batched"), sample_cost * ROUND_S / 3
    counts = set()
    of_point = plan(id)
    for _ in range(sample(30, 60)):
        point = rounds.Measured(Noted("normal", 0.8, within, sample_cost), chance)
        point.to(1)
        first = earlier([1], each_s)
        first.flows[0].samples_s, first.timing = [each_s * one for one in drawn_s], "virtual"
        drawn_s.clear()
        point.to(2)
        worker = Played(*(each_s * one for one in drawn_s), timing="virtual")
        record = Sampler(worker, of_point, facts()).measure(Task(PointId.parse(id), 1, first))
        counts.add(len(record.flows[0].samples_s))
        assert record.flows[0].samples_s == pytest.approx([each_s * one for one in drawn_s], rel=1e-6)
        drawn_s.clear()
    assert len(counts) > 1 and (within > 1 or min(counts) == (1 if sample_cost >= 0.2 else 2))


def test_draws_repeat() -> None:
    noise = rounds.Noise("uniform", 0.7)
    assert rounds.drawn(noise, 12) == rounds.drawn(noise, 12)
    assert rounds.dozen(noise, random.Random(1)) != rounds.dozen(noise, random.Random(2))


def test_a_family_without_rounds_has_the_noise_of_its_kin_and_not_that_of_others() -> None:
    chance = random.Random(3)

    def scattered(deviation: float) -> list[list[float]]:
        return [[math.exp(deviation * chance.gauss(0, 1)) for _ in range(6)] for _ in range(60)]

    rounds = {"quiet": scattered(0.001), "new": [], "loud": scattered(0.1)}
    noise = families(rounds, lambda name: "loud" if name == "loud" else "quiet")["new"]
    assert noise.prior()[SIGMAS < 0.01].sum() > 0.9


def test_throttled_rounds_do_not_show_the_noise_of_a_family() -> None:
    usual = [round_of(number, [2e-6 * (1 + 0.001 * number)]) for number in range(6)]
    slow = [round_of(6 + number, [4e-6], guards={"throttled": ["hw_thermal"]}) for number in range(3)]
    found = []
    for measured in (usual, usual + slow):
        noise = RunNoise({ONE: State(PointId.parse(ONE), 1.0, measured)})
        noise.refresh()
        found.append(known_noise(noise.of(PointId.parse(ONE))))
    assert found[0].counts.tolist() == found[1].counts.tolist()


def known_noise(found: Noise | None) -> Noise:
    assert found is not None
    return found
