"""The race of the tuner finds the fastest candidate in noise, and ends when nothing is left to decide."""

import itertools
import math
import random

import pytest

from linkscope.tune.race import MARGIN, race


def never() -> bool:
    return False


def noisy(times, seed, scatter=0.03, drift=0.0):
    """Laps whose times scatter, and drift from call to call; one of ten is an outlier of 3 ×."""
    noise, calls = random.Random(seed), itertools.count()

    def lap(one):
        outlier = 3.0 if noise.random() < 0.1 else 1.0
        return (
            times[one] * math.exp(noise.gauss(0, scatter)) * (outlier if scatter else 1.0) * (1 + drift) ** next(calls)
        )

    return lap


@pytest.mark.parametrize("drift", [0.0, 0.001])
def test_the_fastest_of_thirty_candidates_wins_in_95_of_100_noisy_races(drift):
    times = {one: 1.0 + 0.05 * one for one in range(30)}
    won = [race(list(times), noisy(times, seed, drift=drift), never, seed=seed).best for seed in range(100)]
    assert sum(times[best] <= 1 + 1.5 * 0.05 for best in won) >= 95


def test_candidates_that_are_certainly_slower_leave_after_few_laps():
    times = {one: 1.0 if one == 7 else 2.0 for one in range(20)}
    found = race(list(times), noisy(times, 1, scatter=0.01), never)
    assert found.best == 7 and found.decided
    assert sum(len(values) for one, values in found.logs.items() if one != 7) < 20 * 10


def test_a_race_of_equals_ends_when_none_can_be_faster_by_the_margin():
    found = race("abcd", lambda one: 1.0 + 1e-4 * "abcd".index(one), never)
    assert found.decided and found.laps == 3
    assert max(found.seconds.values()) / min(found.seconds.values()) < 1 + MARGIN


def test_a_race_ends_when_its_time_is_up_and_says_that_it_is_undecided():
    laps = iter([False, False, True])
    times = {"a": 1.0, "b": 1.001}
    found = race("ab", noisy(times, 3, scatter=0.5), lambda: next(laps))
    assert found.laps == 3 and not found.decided and found.best in times


def test_the_winner_is_compared_with_a_candidate_that_has_left():
    times = {"plain": 5.0, "ring": 1.0, "other": 1.01}
    found = race(list(times), noisy(times, 5, scatter=0.02), never)
    assert len(found.logs["plain"]) < found.laps
    gain = found.against("plain")
    assert gain is not None and gain.low < 5 / times[found.best] < gain.high


def test_a_single_candidate_needs_no_decision_and_none_is_refused():
    assert race(["only"], lambda _: 1.0, never).decided
    with pytest.raises(ValueError, match="needs a candidate"):
        race([], lambda _: 1.0, never)
