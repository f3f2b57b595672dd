"""Edge cases of advice: when a gain is certain, which advice comes first, and which sizes and paths it names."""

import pytest

from invented import point
from linkscope.advise import advice, transfer_methods, worthwhile
from linkscope.advise.text import details, headline
from linkscope.cli.main import main
from linkscope.model.curves import curves
from linkscope.model.dips import dips
from linkscope.runfile import Point
from test_advise import MIB, found, h2d, saved
from test_break_even import PAGEABLE, PINNED, REGISTERED, copy, life

STEADY = (0.9995, 0.9998, 1.0, 1.0, 1.0002, 1.0005)


def timed(made: Point, factors: tuple[float, ...]) -> Point:
    """The same point with rounds of these factors of its time."""
    assert made.median_s is not None
    made.flows[0].round_medians_s = [made.median_s * factor for factor in factors]
    return made


def steady(memory: str, size: int, seconds: float, gpu: int = 0) -> Point:
    return timed(h2d(memory, size, seconds, gpu), STEADY)


# --- when a gain is certain ---


def test_more_comparisons_require_more_certainty_of_each() -> None:
    """All intervals hold jointly at 95 %: each of ten pairs needs one of 99.5 %."""
    points = [h2d(memory, MIB, seconds, gpu) for gpu in range(10) for memory, seconds in
              (("pageable", 8e-5), ("pinned", 2e-5))]  # fmt: skip
    levels = [gain.interval.level for gain in found(points, "pin").compared]
    assert levels == pytest.approx([1 - 0.05 / 10] * 10)


def test_a_gain_is_worthwhile_if_its_whole_interval_exceeds_five_percent() -> None:
    """Rounds that differ by 0.03 % show that 5.2 % is worthwhile and 4.8 % is not; by 2 % they show neither."""
    assert found([steady("pageable", MIB, 1.052e-5), steady("pinned", MIB, 1e-5)], "pin").gains
    assert not found([steady("pageable", MIB, 1.048e-5), steady("pinned", MIB, 1e-5)], "pin").gains
    assert not found([h2d("pageable", MIB, 1.052e-5), h2d("pinned", MIB, 1e-5)], "pin").gains


def test_of_two_memory_kinds_the_wider_scatter_decides() -> None:
    """Rounds of five paths differ by 2 % from pageable memory and by 0.03 % from pinned memory. The compared pair is
    steady on both sides by chance."""
    others = [one for gpu in range(1, 6) for one in (h2d("pageable", MIB, 8e-5, gpu), steady("pinned", MIB, 2e-5, gpu))]
    lucky = [steady("pageable", MIB, 8e-5), steady("pinned", MIB, 2e-5)]
    (gain,) = [gain for gain in found([*lucky, *others], "pin").compared if gain.path.dst == "gpu:0"]
    assert gain.interval.high / gain.interval.low > 1.02


# --- which advice comes first ---


def test_the_most_certain_gain_comes_first() -> None:
    """GPU 1 has the larger median gain, but its rounds scatter so much that less of it is certain."""
    wild = (0.7, 0.8, 0.9, 1.1, 1.25, 1.4)
    points = [steady("pageable", MIB, 6e-5, 0), steady("pinned", MIB, 2e-5, 0)]
    points += [timed(h2d("pageable", MIB, 6.4e-5, 1), wild), timed(h2d("pinned", MIB, 2e-5, 1), wild)]
    one = found(points, "pin")
    assert [gain.path.dst for gain in one.gains] == ["gpu:0", "gpu:1"] and one.gains[1].ratio > one.gains[0].ratio
    assert "×3.1 (median, 1 to 64 MiB, 2 paths)" in headline(one)


def test_the_largest_typical_gain_comes_first_and_no_gain_last() -> None:
    single = h2d("pinned", MIB, 1.3e-4, params="after=kernel&bidirectional=false&mode=single")
    same = [point(f"d2d/ce/gpu:0.device->gpu:1.device/{MIB}?call=memcpy&initiator=src&mode=batched&peer={peer}", 1e-5)
            for peer in ("off", "on")]  # fmt: skip
    points = [h2d("pageable", MIB, 8e-5), h2d("pinned", MIB, 2e-5), single, *same]
    assert [one.recommendation.name for one in advice(points)] == ["queue", "pin", "peer"]
    assert [one.recommendation.name for one in worthwhile(points)] == ["queue", "pin"]


def pinned_at(ratios: dict[int, float], size: int) -> list[Point]:
    """Copies of one size on several GPUs; pinned memory gains this ratio on each."""
    return [
        steady(memory, size, 1e-5 * (ratio if memory == "pageable" else 1), gpu)
        for gpu, ratio in ratios.items()
        for memory in ("pageable", "pinned")
    ]


def test_a_gain_of_one_path_among_many_is_no_recommendation(tmp_path, capsys) -> None:
    points = pinned_at({0: 2.0, 1: 0.9, 2: 0.9}, MIB)
    one = found(points, "pin")
    assert one.gains and not one.is_general and worthwhile(points) == []
    assert main(["advise", str(saved(tmp_path, points))]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "No recommendation gains" in text and "at best ×2 [" in text and "on numa:0 → gpu:0 at 1 MiB" in text


def test_the_headline_is_the_gain_at_the_sizes_that_gain_if_usual_sizes_do_not() -> None:
    points = pinned_at({0: 3.0, 1: 4.0}, 4096) + pinned_at({0: 1.0, 1: 1.0}, MIB) + pinned_at({0: 0.9, 1: 0.9}, 4 * MIB)
    one = found(points, "pin")
    assert one.typical_gain < 1.05 and headline(one).endswith("×3.5 (median, 4 KiB, 2 paths)")


# --- the sizes and paths that the advice names ---


def gains_by_size() -> list[Point]:
    """Pinning gains fourfold at 1 and 4 MiB, sixfold on GPU 1, nothing at 64 MiB on GPU 0; nothing at all on GPU 2."""
    ratios = {0: (4, 4, 1), 1: (6, 6, 6), 2: (1, 1, 1)}
    sizes = (MIB, 4 * MIB, 64 * MIB)
    return [
        steady(memory, size, size / 50e9 * (ratio if memory == "pageable" else 1), gpu)
        for gpu, of_gpu in ratios.items() for size, ratio in zip(sizes, of_gpu, strict=True)
        for memory in ("pageable", "pinned")
    ]  # fmt: skip


def test_sizes_and_paths_are_those_with_a_worthwhile_gain() -> None:
    one = found([made for made in gains_by_size() if made.dst != "gpu:1"], "pin")
    assert one.sizes == (MIB, 4 * MIB) and [str(path) for path in one.paths] == ["numa:0 -> gpu:0"]
    text = details(one)
    assert text[1].startswith("worthwhile on 1 of 2 paths, 1 MiB to 4 MiB: ")


@pytest.mark.parametrize(
    "losing, expected",
    [([8], "at 8 B"), ([8, 64], "at 8 B and 64 B"), ([8, 64, 512], "at 8 B, 64 B and 512 B"),
     ([8, 16, 64, 512], "at 4 sizes from 8 B to 512 B")],
)  # fmt: skip
def test_the_sizes_that_lose_are_named(losing: list[int], expected: str) -> None:
    points = gains_by_size()
    points += [steady(memory, size, 1e-6 * ratio) for size in losing for memory, ratio in
               (("pageable", 1), ("pinned", 2))]  # fmt: skip
    assert f", 1 MiB to 64 MiB, but not {expected}: " in details(found(points, "pin"))[1]


def test_the_gain_by_size_is_the_median_of_the_paths_that_gain_at_any_size() -> None:
    """At 64 MiB one path gains a factor of 6 and one nothing: 3.5. GPU 2 does not count."""
    by_size = found(gains_by_size(), "pin").by_size()
    assert [(size, round(ratio, 6)) for size, ratio in by_size] == [(MIB, 5.0), (4 * MIB, 5.0), (64 * MIB, 3.5)]


@pytest.mark.parametrize("count, expected", [(2, 2), (7, 7), (8, 8), (9, 5), (15, 8), (16, 6)])
def test_of_many_sizes_a_few_are_listed_with_the_first_and_the_last(count: int, expected: int) -> None:
    sizes = [MIB << at for at in range(count)]
    points = [steady(memory, size, size / rate) for size in sizes for memory, rate in
              (("pageable", 10e9), ("pinned", 50e9))]  # fmt: skip
    (line,) = [line for line in details(found(points, "pin")) if line.startswith("median speed-up by size")]
    named = line.partition(": ")[2].split(", ")
    assert len(named) == expected and named[0].startswith("1 MiB ") and "5" in named[-1]
    assert len(set(named)) == expected


def test_the_copy_that_pays_is_counted_against_pageable_memory() -> None:
    """Pinned memory costs 250 us more to allocate and gains 80 us a copy, registered memory gains 70 us."""
    kinds = [("pageable", PAGEABLE), ("pinned", PINNED), ("registered", REGISTERED)]
    points = [one for memory, cost in kinds for one in life(memory, "1MiB", cost)]
    few = [*points, copy("pageable", MIB, 100e-6), copy("pinned", MIB, 20e-6), copy("registered", MIB, 30e-6)]
    paid = found(few, "pin").paid_after
    assert paid is not None and paid.first == 4
    assert "pays off with the 4th copy of 1 MiB" in details(found(few, "pin"))[-2]


@pytest.mark.parametrize(
    "gain_s, expected", [(260e-6, "1st"), (130e-6, "2nd"), (90e-6, "3rd"), (23e-6, "11th"), (20.9e-6, "12th"),
                     (19.5e-6, "13th"), (12.2e-6, "21st"), (2.25e-6, "112th")]
)  # fmt: skip
def test_the_number_of_the_copy_that_pays_is_an_ordinal(gain_s: float, expected: str) -> None:
    points = [*life("pageable", "1MiB", PAGEABLE), *life("pinned", "1MiB", PINNED)]
    points += [timed(copy("pageable", MIB, 20e-6 + gain_s), STEADY), timed(copy("pinned", MIB, 20e-6), STEADY)]
    assert f"with the {expected} copy" in details(found(points, "pin"))[-2]


# --- one transfer ---


def test_a_break_between_two_sizes_exceeds_the_uncertainty_of_both() -> None:
    """From 1 to 4 MiB a time may grow by a factor of 4 and by 3 % more; intervals of +-2 % each add 4 %."""

    def read(factor: float) -> bool:
        points = [h2d("pinned", MIB, 20e-6), h2d("pinned", 4 * MIB, 20e-6 * factor)]
        return bool(transfer_methods(points, "numa:0", "gpu:0", 2 * MIB))

    assert read(4.0) and read(4 * 1.065) and not read(4 * 1.075)


def test_a_bidirectional_point_is_no_method_of_one_transfer() -> None:
    both = h2d("pinned", MIB, 1e-6, params="after=kernel&bidirectional=true&mode=batched")
    assert both.bidirectional and transfer_methods([both], "numa:0", "gpu:0", MIB) == []


# --- which drops of the rate are irregular ---


def test_a_larger_size_is_a_dip_only_where_the_intervals_do_not_overlap() -> None:
    """2 MiB has 80 % of the rate of 1 MiB. An interval that reaches 100 % is no dip, nor is a rate of 90 %."""

    def lost(rate: float, spread: float) -> list[float]:
        points = [h2d("pinned", MIB, MIB / 50e9), h2d("pinned", 2 * MIB, 2 * MIB / rate)]
        low, high = (points[1].median_s * (1 + part) for part in (-spread, spread))
        points[1].ci95_s = points[1].flows[0].ci95_s = (low, high)
        return [dip.lost for dip in dips(curves(points))]

    assert lost(40e9, 0.01) == pytest.approx([0.2])
    assert lost(40e9, 0.25) == [] and lost(45e9, 0.01) == [] and lost(60e9, 0.01) == []


def test_recommendations_are_ranked_by_their_median_gain_from_one_to_64_mib() -> None:
    """A large gain at 8 B counts for nothing in the ranking when points from 1 to 64 MiB were compared."""
    points = [steady("pageable", 8, 9e-6), steady("pinned", 8, 1e-6)]
    points += [steady("pageable", MIB, 3e-5), steady("pinned", MIB, 2e-5)]
    one = found(points, "pin")
    assert one.is_typical and one.typical_gain == pytest.approx(1.5)
    assert headline(one).endswith("×1.5 (median, 1 to 64 MiB, 1 path)")
    small = found(points[:2], "pin")
    assert not small.is_typical and small.typical_gain == pytest.approx(9)
    assert "sizes outside 1 to 64 MiB" in headline(small)
