"""Edge cases of comparisons: joint intervals, the scatter of the class, and the run at which a change begins."""

import math
import random
from xml.etree import ElementTree

import pytest
from msgspec import structs

from invented import point, run
from linkscope.compare import changes, compare, differences, same_machine
from linkscope.compare.forest import forest
from linkscope.compare.text import by_path, changes_text, table
from linkscope.compare.verdict import Comparison, Pair
from linkscope.model.rounds import Spreads, rounds_of
from linkscope.runfile import Header, Point, Run
from linkscope.stats import Interval, ratio_interval

SCATTER = (0.98, 0.99, 1.0, 1.0, 1.01, 1.02)


def id_of(gpu: int) -> str:
    return f"h2d/ce/numa:0.pinned->gpu:{gpu}.device/67108864?bidirectional=false&mode=batched"


def timed(seconds: float, gpu: int = 0, scatter: tuple[float, ...] = SCATTER) -> Point:
    made = point(id_of(gpu), seconds)
    made.flows[0].round_medians_s = [seconds * factor for factor in scatter]
    return made


def failed(gpu: int, reason: str) -> Point:
    return point(id_of(gpu), status="failed", reason=reason)


# --- two runs ---


def test_intervals_hold_jointly_for_all_points_measured_in_both_runs() -> None:
    points = [timed(1e-3, 0), timed(1e-3, 1), failed(2, "a hang"), failed(3, "a hang")]
    compared = compare(run(points), run(points))
    assert compared.level == pytest.approx(1 - 0.05 / 2)
    assert [pair.interval.level for pair in compared.pairs if pair.interval] == pytest.approx([1 - 0.05 / 2] * 2)


def test_points_with_equal_rounds_get_the_scatter_of_their_class() -> None:
    """One of five paths has six equal rounds in both runs; the rounds of its class differ by 1.4 %."""

    def made(seconds: float) -> Run:
        return run([timed(seconds, 0, (1.0,) * 6), *(timed(1e-3, gpu) for gpu in range(1, 5))])

    pair = compare(made(1e-3), made(1.025e-3)).pairs[0]
    assert pair.interval and pair.interval.high - pair.interval.low > 0.02 and pair.verdict == "undecided"


@pytest.mark.parametrize("still_first", [True, False])
def test_the_scatter_of_both_runs_counts(still_first: bool) -> None:
    """4 % more time on four paths; the rounds of one run are equal, those of the other differ by up to 3 %."""
    equal, apart = (1.0,) * 6, tuple(1 + 1.5 * (factor - 1) for factor in SCATTER)
    scatters = (equal, apart) if still_first else (apart, equal)

    def verdicts(*scatters: tuple[float, ...]) -> set[str]:
        runs = [run([timed(of, gpu, by) for gpu in range(4)]) for of, by in zip((1e-3, 1.04e-3), scatters, strict=True)]
        return {pair.verdict for pair in compare(*runs).pairs}

    assert verdicts(*scatters) == {"undecided"} and verdicts(equal, equal) == {"slower"}


def test_the_scatter_of_other_sizes_does_not_count_if_one_size_has_enough_points() -> None:
    """Rounds of 8 B differ by 14 %, of 64 MiB by 0.1 %: a change of 3 % is significant at 64 MiB."""
    small = [point(id_of(gpu).replace("67108864", "8"), 2e-6) for gpu in range(5)]
    for one in small:
        one.flows[0].round_medians_s = [2e-6 * factor**10 for factor in SCATTER]
    still = tuple(1 + (factor - 1) / 20 for factor in SCATTER)

    def made(seconds: float) -> Run:
        return run([*small, *(timed(seconds if gpu == 0 else 1e-3, gpu, still) for gpu in range(5))])

    compared = compare(made(1e-3), made(1.03e-3))
    assert [pair.verdict for pair in compared.pairs if pair.before.bytes > 8] == ["slower", *["same"] * 4]


def test_four_points_of_a_class_determine_its_scatter_by_size() -> None:
    """The scatter is the mean of their variances. A single copy and a batch are different classes."""
    large = [timed(1e-3, gpu, (1 - part, 1 + part)) for gpu, part in enumerate((0.01, 0.01, 0.01, 0.03))]
    small = [structs.replace(one, bytes=8) for one in (timed(1e-6, gpu, (0.9, 1.1)) for gpu in range(3))]
    single = structs.replace(large[0], params={**large[0].params, "mode": "single"})
    assert Spreads(large[:3]).of(large[0]) is None
    spreads = Spreads([*large, *small])
    assert spreads.of(large[0]) == pytest.approx(2 * (3 * 0.01**2 + 0.03**2) / 4, rel=1e-3)
    assert spreads.of(small[0]) == pytest.approx((8 * (3 * 0.01**2 + 0.03**2) / 4 + 3 * 2 * 0.1**2) / 7, rel=1e-2)
    assert spreads.of(single) is None and Spreads([]).of(large[0]) is None


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_intervals_of_few_rounds_and_few_paths_miss_no_more_often_than_their_level(gpus: int) -> None:
    """Two planned runs of three rounds each, noise of 3 % at 8 B and 0.2 % at 512 MiB: neighbouring sizes add what
    a few points of one size cannot show about their scatter."""
    chance, missed, count = random.Random(1), dict.fromkeys((0.95, 0.99, 0.999), 0), 0
    for _ in range(320 // gpus):
        rounds = {}
        for gpu in range(gpus):
            for at in range(14):
                noise = 0.03 * 0.82**at
                for run_of in (0, 1):
                    scatter = tuple(math.exp(chance.gauss(0, noise)) for _ in range(3))
                    rounds[gpu, 8 * 4**at, run_of] = structs.replace(timed(1e-3, gpu, scatter), bytes=8 * 4**at)
        spreads = Spreads(rounds.values())
        for (gpu, size, run_of), one in rounds.items():
            if run_of:
                continue
            before, after = (rounds_of(rounds[gpu, size, of]) for of in (0, 1))
            count += 1
            for level in missed:
                interval = ratio_interval(before, after, alike=spreads.of(one), level=level)
                missed[level] += interval is None or not interval.low <= 1 <= interval.high
    for level, times in missed.items():
        assert times <= count * (1 - level) + 2 * math.sqrt(count * (1 - level)), level


def test_noise_of_small_copies_on_one_path_hides_no_change_of_large_copies() -> None:
    """Rounds of 8 B to 32 KiB differ by 5 %, of 1 MiB to 4 GiB by 0.1 %; 256 MiB takes 3 % longer."""
    sizes = [8 * 4**at for at in range(7)] + [4**at << 20 for at in range(7)]

    def made(longer: float) -> Run:
        found = []
        for size in sizes:
            by = 0.05 if size < 1 << 20 else 0.001
            seconds = longer if size == 256 << 20 else 1e-3
            one = timed(seconds, 0, (1 - by, 1.0, 1 + by))
            found.append(structs.replace(one, id=one.id.replace("67108864", str(size)), bytes=size))
        return run(found)

    verdicts = {pair.before.bytes: pair.verdict for pair in compare(made(1e-3), made(1.03e-3)).pairs}
    assert {size for size, verdict in verdicts.items() if verdict == "slower"} == {256 << 20}
    assert {verdicts[size] for size in sizes if size > 1 << 20 and size != 256 << 20} == {"same"}
    assert {verdicts[size] for size in sizes[:7]} == {"undecided"}


def test_a_failure_is_described_by_the_run_that_failed() -> None:
    before = run([timed(1e-3, 0), failed(1, "the first hang")])
    after = run([failed(0, "the second hang"), timed(1e-3, 1)])
    lines = table(by_path(compare(before, after)), everything=False, width=200)
    assert "broken" in lines[0] and "the second hang" in lines[0]
    assert "mended" in lines[1] and "the first hang" in lines[1]


def test_within_a_verdict_the_largest_change_comes_first_and_equal_paths_are_counted() -> None:
    still = tuple(1 + (factor - 1) / 20 for factor in SCATTER)
    before = run([timed(1e-3, gpu, still) for gpu in range(4)])
    after = run([timed(1e-3 * factor, gpu, still) for gpu, factor in enumerate((1.1, 1.5, 1.0, 0.5))])
    paths = by_path(compare(before, after))
    assert [one.worst.ratio for one in paths] == pytest.approx([1.5, 1.1, 0.5, 1.0])
    lines = table(paths, everything=False, width=200)
    assert len(lines) == 5 and "+50 % of time" in lines[0] and "same" not in "".join(lines[:3])
    assert lines[3] == "4 paths: 2 slower, 1 faster, 1 same"
    assert len(table(paths, everything=True, width=200)) == 6


def test_changes_are_printed_with_two_digits() -> None:
    still = tuple(1 + (factor - 1) / 100 for factor in SCATTER)
    before = run([timed(1e-3, gpu, still) for gpu in range(2)])
    lines = table(by_path(compare(before, run([timed(1.0534e-3, 0, still), timed(1.257e-3, 1, still)]))), True, 200)
    assert "+26 % of time [+2" in lines[0] and "+5.3 % of time [+5.3 %, +5.4 %]" in lines[1]


def test_the_drawing_is_wide_enough_for_the_fastest_and_the_slowest_path() -> None:
    """Half the time is as far to the left as twice the time is to the right. No interval is cut off."""
    before = run([timed(1e-3, 0), timed(1e-3, 1)])
    for factors in ((0.5, 1.0), (2.0, 1.0), (0.5, 2.0)):
        after = run([timed(1e-3 * factor, gpu) for gpu, factor in enumerate(factors)])
        root = ElementTree.fromstring(forest(compare(before, after), modelled=False))
        lines = [node for node in root.iter("{http://www.w3.org/2000/svg}path") if node.get("stroke-width")]
        paths = [node.get("d") or "" for node in lines]
        ends = [tuple(float(number) for number in (text[1:].split()[0], text.partition("H")[2])) for text in paths]
        middles = [float(node.get("cx") or 0) for node in root.iter("{http://www.w3.org/2000/svg}circle")]
        assert all(low < middle < high for (low, high), middle in zip(ends, middles, strict=True))
        one = (520 + 870) / 2  # the position of an unchanged time
        assert [round(math.copysign(1, middle - one)) for middle in middles if abs(middle - one) > 1] == [
            round(math.copysign(1, math.log(factor))) for factor in sorted(factors, reverse=True) if factor != 1.0
        ]


# --- differences of machines and environments ---


def header(machine: dict, environment: dict | None = None, *, modelled: bool = True) -> Header:
    made = run([]).header
    return structs.replace(made, machine=machine, environment=environment or {}, modelled=modelled)


def test_machines_are_identified_by_their_gpus_in_any_order_and_a_model_is_no_machine() -> None:
    one, other = ({"uuid": "GPU-1"}, {"uuid": "GPU-2"})
    real = header({"name": "a", "gpus": [one, other]}, modelled=False)
    assert same_machine(real, header({"name": "b", "gpus": [other, one]}, modelled=False))
    assert not same_machine(real, header({"name": "a", "gpus": [one, other]}))
    assert same_machine(header({"name": "a"}), header({"name": "a"}))
    assert not same_machine(header({"name": "a"}), header({"name": "b"}))


def test_values_that_always_change_are_no_difference() -> None:
    def at(number: int) -> Header:
        return header({"name": "a"}, {
            "cpu": {"load_1min": number, "steal_since_boot": number},
            "memory": {"available": number, "swap_used": number},
            "process": {"variables": {"TMPDIR": f"/tmp/{number}"}},
            "gpus": [{
                "sm_mhz": number, "memory_mhz": number, "throttle_reasons": number, "temperature_c": number,
                "power_w": number, "processes": number, "pcie_replays": number, "nvlink_errors": {"crc": number},
            }],
        })  # fmt: skip

    assert differences(at(1), at(2)) == []


# --- many runs ---


def series(*seconds: float, gpus: int = 1, scatter: tuple[float, ...] = SCATTER) -> list[Run]:
    """GPU 0 has these times, the other GPUs have constant times."""
    return [run([timed(one if gpu == 0 else 1e-3, gpu, scatter) for gpu in range(gpus)]) for one in seconds]


def test_a_series_without_noise_has_a_history() -> None:
    """On a simulated machine without noise the intervals have no width."""
    (found,) = changes(series(1e-3, 1e-3, 1.1e-3, 1.1e-3, scatter=(1.0,) * 6))
    assert (found.at, found.ratio) == (2, pytest.approx(1.1))
    (single,) = changes(series(1e-3, 1e-3, 1.1e-3, scatter=(1.0,)))  # one round per run
    assert single.at == 2
    assert changes(series(1e-3, 1e-3, 1e-3, scatter=(1.0,) * 6)) == []


def test_the_splits_of_all_points_are_tested_jointly() -> None:
    (found,) = changes(series(1e-3, 1e-3, 1e-3, 1.2e-3, 1.2e-3, gpus=3))
    assert found.interval and found.interval.level == pytest.approx(1 - 0.05 / 3 / 4)


def test_a_change_within_a_change_is_found_at_its_run() -> None:
    steps = [1e-3 * factor for factor in (1.0, 2.0, 2.4, 2.6) for _ in range(3)]
    found = changes(series(*steps))
    assert [one.at for one in found] == [3, 6, 9] and all(one.kind == "change" for one in found)


def test_a_drift_must_exceed_the_margin_and_be_significant_over_all_points() -> None:
    assert changes(series(*(1e-3 * 1.002**day for day in range(10)))) == []  # 1.8 % in total
    assert [one.kind for one in changes(series(*(1e-3 * 1.0025**day for day in range(10))))] == ["drift"]
    # Six runs in order have a chance of 1 in 360 for one point, which is not significant for twenty points.
    six = [1e-3 * 1.005**day for day in range(6)]
    assert [one.kind for one in changes(series(*six))] == ["drift"] and changes(series(*six, gpus=20)) == []


def test_the_scatter_within_runs_is_estimated_from_the_runs_of_a_segment() -> None:
    """Two rounds per run: from the four rounds of two runs and the two of one, 9 % could be chance."""
    runs = series(1e-3, 1e-3, 1.089e-3, scatter=(0.98, 1.02))
    assert [one.at for one in changes(runs)] == [2]


def test_the_split_that_explains_most_comes_first_and_others_lie_within_its_segments() -> None:
    """The last of nine runs is far off. The eight others are split only among themselves."""
    found = changes(series(*[1e-3] * 4, *[1.1e-3] * 4, 1.25e-3))
    assert [one.at for one in found] == [4, 8]
    assert [one.ratio for one in found] == pytest.approx([(1.1**4 * 1.25) ** (1 / 5), 1.25 / 1.1], rel=1e-3)


def test_a_point_missing_in_a_run_has_no_history() -> None:
    runs = series(1e-3, 1e-3, 1.2e-3, gpus=2)
    runs[1].points.pop(0)
    assert changes(runs) == []
    runs[1].points.insert(0, failed(0, "a hang"))
    assert changes(runs) == []


def test_a_history_states_slower_and_faster_paths() -> None:
    slower, faster = series(1e-3, 1e-3, 1.2e-3), series(1e-3, 1e-3, 0.8e-3)
    assert changes_text(changes(slower), slower)[0].startswith("slower, time +20 % [")
    assert changes_text(changes(faster), faster)[0].startswith("faster, time -20 % [")
    drift = series(*(1e-3 * 1.005**day for day in range(10)))
    assert changes_text(changes(drift), drift)[0].startswith("drifts, slower, time +4.6 % from first to last")
    assert changes_text([], slower) == ["no path has changed"]


@pytest.mark.parametrize(
    "ends, expected",
    [
        ([(0.97, 1.05), (0.5, 1.01), (0.99, 1.03)], "5 % of the time, 90 % by less than 5 %"),
        ([(1 / 1.4, 1.01), (0.99, 1.03)], "3 % of the time, 90 % by less than 3 %"),
        ([(1 / (1 + at / 100), 1.001) for at in range(3, 14)], "8 % of the time, 90 % by less than 12 %"),
        ([(1 / 2.3, 1.001)], "130 % of the time, 90 % by less than 130 %"),
    ],
)
def test_the_possible_change_of_undecided_paths_is_printed(ends: list[tuple[float, float]], expected: str) -> None:
    pairs = [Pair(timed(1e-3, 0), timed(1e-3, 0), "undecided", 1.0, Interval(low, high, 0.99)) for low, high in ends]
    same = Pair(timed(1e-3, 0), timed(1e-3, 0), "same", 1.0, Interval(0.5, 2.0, 0.99))
    lines = table(by_path(Comparison([*pairs, same], 0.99, 0.02, 0, 0)), False, 120)
    assert lines[-1] == f"undecided points: 50 % changed by less than {expected}"
    assert "undecided" not in table(by_path(Comparison([same], 0.99, 0.02, 0, 0)), False, 120)[-1]
