"""The observations that a model is fitted to: which points count, and the uncertainty of each."""

import math

import pytest
from msgspec import structs

from invented import flow, point
from linkscope.model.observed import observed, totals
from linkscope.runfile import Point

ONE = "h2d/ce/numa:0.pinned->gpu:0.device/67108864?bidirectional=false&mode=batched"
BOTH = ONE.replace("false", "true")
ALL = "host_to_all/ce/numa:0.pinned->gpu:all.device/67108864?bidirectional=false"


def test_only_measured_points_count() -> None:
    """Inherited values add nothing, and flows that ran in turn show nothing about concurrent flows."""
    assert [one.seconds for one in observed([point(ONE, 1e-3), point(ONE, 2e-3, status="missed_precision")])] == [
        1e-3, 2e-3
    ]  # fmt: skip
    others = [point(ONE, 1e-3, status=status) for status in ("inherited", "failed", "skipped", "unsupported")]
    assert observed([*others, point(BOTH, 1e-3, guards={"in_turn": True})]) == []


def known_by(rounds: list[float], interval: tuple[float, float] | None, size: int = 64 << 20) -> Point:
    made = point(ONE.replace("67108864", str(size)), 1e-3)
    made.flows[0].round_medians_s, made.flows[0].ci95_s = rounds, interval
    return made


def test_the_deviation_follows_from_the_interval_of_six_rounds() -> None:
    """The lowest and the highest of six rounds are a 96.9 % interval of +-2.15 deviations; the model adds 1 %."""
    (one,) = observed([known_by([], (0.98e-3, 1.02e-3))])
    assert one.spread == pytest.approx(0.02 / 2.15)
    assert one.sigma == pytest.approx(math.hypot(0.01, one.spread))


@pytest.mark.parametrize("interval, spread", [(None, 0.04), ((1e-5, 1.0), 0.3)])
def test_a_point_without_an_interval_has_a_deviation_of_four_percent_and_at_most_30(interval, spread: float) -> None:
    assert [one.spread for one in observed([known_by([], interval)])] == [spread]


def test_rounds_give_a_smaller_deviation_than_an_interval_as_wide_as_the_target() -> None:
    """For three rounds that agree. The rounds of other sizes count too, because three rounds may agree by chance."""
    wide = (0.95e-3, 1.05e-3)
    steady = known_by([0.999e-3, 1e-3, 1.001e-3], wide)
    assert [one.spread for one in observed([steady])] == pytest.approx([2.456e-3 / math.sqrt(3) / 2.15], rel=1e-3)
    calm, loud = (known_by([1e-3 - by, 1e-3, 1e-3 + by], wide, size) for size, by in ((8, 1e-6), (64, 30e-6)))
    spreads = [one.spread for one in observed([calm, loud])]
    assert spreads[0] == spreads[1] == pytest.approx(0.03 / 2.15, rel=0.02)  # pooled: 3 % / sqrt(2), from three rounds
    other_memory = structs.replace(loud, id=loud.id.replace("pinned", "registered"))
    assert observed([calm, other_memory])[0].spread == pytest.approx(2.456e-3 / math.sqrt(3) / 2.15, rel=1e-3)


def test_the_interval_decides_if_rounds_scatter_more_than_it() -> None:
    scattering = [1e-3 * factor for factor in (0.9, 0.99, 1.0, 1.0, 1.01, 1.1)]
    assert [one.spread for one in observed([known_by(scattering, (0.99e-3, 1.01e-3))])] == pytest.approx([0.01 / 2.15])


def test_bidirectional_points_are_two_observations_and_points_of_all_gpus_one_total() -> None:
    both = observed([point(BOTH, 1e-3, guards={"joint_overlap": 0.9})])
    assert [(one.flow, one.joint, one.overlap) for one in both] == [(0, True, 0.9), (1, True, 0.9)]
    assert [one.of([1e-3, 2e-3]) for one in both] == [1e-3, 2e-3] and both[0].of("no such path") is None
    made = point(BOTH, 1e-3)
    everything = point(ALL, 1e-3, flows=made.flows, total_gbps=2 * 67108864 / 2e-3 / 1e9)
    (total,) = observed([everything])
    assert total.seconds == pytest.approx(2e-3)
    assert total.of([1e-3, 1e-3]) == pytest.approx(1e-3)  # both flows concurrently: twice the rate
    assert total.of([1e-3, 3e-3]) == pytest.approx(2 / (1 / 1e-3 + 1 / 3e-3))
    assert observed([point(ALL, 1e-3, flows=made.flows, total_gbps=None)]) == []


def test_concurrent_paths_add_a_total_and_bidirectional_paths_do_not() -> None:
    at_once = "concurrent/ce/numa:0.pinned->gpu:0.device/1000?with=numa:0->gpu:1"
    flows = [
        flow("numa:0", f"gpu:{gpu}", ("pinned", "device"), 1000, seconds) for gpu, seconds in enumerate((1e-6, 3e-6))
    ]
    made = observed([point(at_once, flows=flows), point(BOTH, 1e-3), point(ONE, 1e-3)])
    total, *others = totals(made)
    assert others == made[2:] and total.flow == -1 and total.flow_bytes == (1000, 1000)
    rates = [1000 / 1e-6, 1000 / 3e-6]
    assert total.seconds == pytest.approx(2000 / sum(rates))
    spreads = [one.spread for one in made[:2]]
    wanted = math.hypot(*(rate * spread for rate, spread in zip(rates, spreads, strict=True))) / sum(rates)
    assert total.spread == pytest.approx(wanted) and total.sigma > total.spread
    assert totals(made[:1] + made[2:]) == made[:1] + made[2:]  # one of the flows has no value
