"""Edge cases of comparisons: joint intervals, the scatter of the class, and the run at which a change begins."""

import math
import random
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from msgspec import structs

from campaign import sample
from invented import point, run
from linkscope.compare import changes, differences, same_machine
from linkscope.compare import compare as compared
from linkscope.compare.forest import forest
from linkscope.compare.headline import headline
from linkscope.compare.text import by_path, changes_text, left_out, table
from linkscope.runfile import Header, Point, Run
from linkscope.stats import median
from linkscope.stats.pooling import RUNS

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


def noisy(chance: random.Random, noise: float, of_run: float = 0.0, rounds: int = 3) -> tuple[float, ...]:
    """Rounds with a deviation of their own, and one that they share."""
    common = chance.gauss(0, of_run)
    return tuple(math.exp(common + chance.gauss(0, noise)) for _ in range(rounds))


def drawn(chance: random.Random, noise: float, change: float = 0.0, paths: int = 24) -> Run:
    """Paths with equal noise, and a noise of the run as large as runs of one machine have; gpu 0 takes longer."""
    return run([
        timed(1e-3 * (1 + change if gpu == 0 else 1), gpu, noisy(chance, noise, RUNS * noise)) for gpu in range(paths)
    ])  # fmt: skip


def test_unchanged_runs_show_a_change_in_at_most_one_comparison_of_a_hundred() -> None:
    chance = random.Random(7)
    alarms = 0
    for _ in range(sample(60, 2000)):
        alarms += bool(compared([drawn(chance, 0.02)], [drawn(chance, 0.02)]).changed(noisy=True))
    assert alarms <= sample(4, 35)  # 0.6 and 20 are expected at most


def test_a_change_as_large_as_stated_is_seen_in_nineteen_of_twenty_comparisons() -> None:
    chance = random.Random(8)
    known = compared([drawn(chance, 0.003)], [drawn(chance, 0.003)]).pairs
    stated = median([pair.detectable or 0.0 for pair in known])
    pairs = [compared([drawn(chance, 0.003)], [drawn(chance, 0.003, stated)], 0.001).pairs[0] for _ in range(40)]
    assert sum(pair.verdict == "slower" for pair in pairs) >= 34  # 38 are expected


def test_the_interval_of_a_ratio_covers_the_truth_as_often_as_it_says() -> None:
    chance, covered, count = random.Random(9), 0, 0
    for _ in range(60):
        for pair in compared([drawn(chance, 0.02)], [drawn(chance, 0.02)]).pairs:
            assert pair.interval
            covered += pair.interval.low <= 1 <= pair.interval.high
            count += 1
    assert covered >= 0.94 * count


def test_a_noisy_path_keeps_its_own_scatter_among_calm_ones() -> None:
    """One of 24 paths has 20 × the scatter: its slow rounds are no change."""
    chance = random.Random(10)

    def made() -> Run:
        calm = [timed(1e-3, gpu, noisy(chance, 0.001)) for gpu in range(1, 24)]
        return run([timed(1e-3, 0, noisy(chance, 0.02)), *calm])

    verdicts = [compared([made()], [made()]).pairs[0].verdict for _ in range(40)]
    assert verdicts.count("slower") + verdicts.count("faster") <= 1


def test_noise_of_small_copies_hides_no_change_of_large_copies() -> None:
    """Rounds of 8 B to 32 KiB differ by 5 %, of 1 MiB to 4 GiB by 0.1 %; 256 MiB takes 3 % longer."""
    chance = random.Random(11)
    sizes = [8 * 4**at for at in range(7)] + [4**at << 20 for at in range(7)]

    def made(longer: float) -> Run:
        found = []
        for size in sizes:
            seconds = longer if size == 256 << 20 else 1e-3
            one = timed(seconds, 0, noisy(chance, 0.05 if size < 1 << 20 else 0.001))
            found.append(structs.replace(one, id=one.id.replace("67108864", str(size)), bytes=size))
        return run(found)

    verdicts = {pair.before.bytes: pair.verdict for pair in compared([made(1e-3)], [made(1.03e-3)]).pairs}
    assert {size for size, verdict in verdicts.items() if verdict == "slower"} == {256 << 20}
    assert {verdicts[size] for size in sizes if size > 1 << 20 and size != 256 << 20} == {"equivalent"}
    assert {verdicts[size] for size in sizes[:7]} == {"no change seen"}


def test_points_that_cannot_be_judged_to_ten_percent_gate_only_on_request() -> None:
    wide = tuple(1 + 8 * (factor - 1) for factor in SCATTER)
    before, after = ([timed(seconds, gpu, wide) for gpu in range(8)] for seconds in (1e-3, 3e-3))
    found = compared([run(before)], [run(after)])
    assert {pair.verdict for pair in found.pairs} == {"slower"} and not found.pairs[0].judged
    assert found.worse() == [] and len(found.worse(noisy=True)) == 8
    text = headline(found)
    assert text.startswith("No verdict: none of 8 compared points can be judged.") and "got worse" not in text
    assert "8 points (pinned) are slower, but not judged" in text and "Too noisy to judge" in text
    assert headline(found, noisy=True).startswith("8 paths got slower")
    assert found.undecided() and not found.undecided(noisy=True)


def test_points_with_one_round_on_each_side_give_no_verdict() -> None:
    one = run([timed(1e-3, 0, (1.0,))])
    assert compared([one], [one]).undecided()


STILL = tuple(1 + (factor - 1) / 20 for factor in SCATTER)


def test_a_verdict_needs_half_of_the_points_of_the_smaller_run() -> None:
    """A run of fewer points that all have a counterpart has a verdict, as does one of which half have."""
    large = run([timed(1e-3, gpu, STILL) for gpu in range(12)])
    for gpus, few in ((range(3), False), (range(10, 14), False), (range(10, 15), True), (range(11, 40), True)):
        found = compared([large], [run([timed(1e-3, gpu, STILL) for gpu in gpus])])
        assert found.few == found.undecided() == few and not found.worse()
        assert headline(found).startswith("Nothing got worse." if not few else "Only ")
    slow = compared([large], [run([timed(2e-3, gpu, STILL) for gpu in range(11, 40)])])
    text = headline(slow)
    assert text.startswith("Only 1 point could be compared, of 12 measured before and 29 after. 1 path got slower")
    assert "no verdict" not in text


def test_points_outside_of_the_pattern_count_as_no_missing_counterpart() -> None:
    before, after = (run([timed(1e-3, gpu, STILL) for gpu in gpus]) for gpus in (range(10), range(9, 30)))
    assert compared([before], [after]).few
    assert not compared([before], [after], only=["*->gpu:9.*"]).few


def test_a_failure_and_a_slower_point_are_counted_apart_and_a_second_pair_is_asked_for() -> None:
    wild = tuple(1 + 8 * (factor - 1) for factor in SCATTER)
    before = run([timed(1e-3, gpu, STILL) for gpu in range(8)] + [of_pageable(1e-3, wild)])
    after = run([failed(0, "a hang"), *(timed(2e-3 if gpu == 1 else 1e-3, gpu, STILL) for gpu in range(1, 8))])
    after.points.append(of_pageable(9e-3, wild))
    text = headline(compared([before], [after]))
    assert text.startswith("1 point failed that worked before: h2d by ce, pinned -> device on numa:0 -> gpu:0")
    assert "1 path got slower, at 1 size. 1 point (pageable) is slower, but not judged" in text
    assert "a second pair of runs" in text and "got worse" not in text
    assert "second pair" not in headline(compared([before], [before]))


def of_pageable(seconds: float, scatter: tuple[float, ...]) -> Point:
    made = point(id_of(0).replace("pinned", "pageable"), seconds)
    made.flows[0].round_medians_s = [seconds * factor for factor in scatter]
    return made


def test_unjudged_slower_points_are_part_of_the_verdict() -> None:
    wild = tuple(1 + 8 * (factor - 1) for factor in SCATTER)
    sides = [run([timed(1e-3, 0, STILL), timed(1e-3, 1, STILL), of_pageable(s, wild)]) for s in (1e-3, 9e-3)]
    text = headline(compared(sides[:1], sides[1:]))
    assert text.startswith("Nothing judged got worse. 1 point (pageable) is slower, but not judged")
    found = changes([sides[0], sides[0], sides[1]])
    assert [one.judged for one in found] == [False]
    assert changes_text(found, sides + sides)[0].startswith("slower, not judged, time")


def test_a_change_that_the_first_and_the_last_run_do_not_show_is_in_the_verdict() -> None:
    runs = series(1e-3, 1e-3, 1.2e-3, 1.2e-3, 1e-3, 1e-3, scatter=STILL)
    text = headline(compared(runs[:1], runs[-1:]), history=changes(runs))
    assert text.startswith("Nothing got worse. This compares the first run with the last. 1 more point changed")


def test_a_history_leaves_out_points_that_its_runs_measured_by_other_methods() -> None:
    runs = series(1e-3, 1e-3, 1.2e-3, scatter=STILL)
    assert [one.at for one in changes(runs)] == [2]
    dated = [structs.replace(run.header, modelled=False, started=day) for run, day in zip(runs, DAYS, strict=True)]
    runs = [
        replace(made, header=head, points=[of_host(made.points[0])]) for made, head in zip(runs, dated, strict=True)
    ]
    assert compared(runs[:1], runs[-1:]).other_method == {"h2h": 1} and changes(runs) == []


DAYS = ("2026-11-20T00:00:00+00:00", "2026-11-21T00:00:00+00:00", "2026-11-25T00:00:00+00:00")


def of_host(of: Point) -> Point:
    return structs.replace(of, id=of.id.replace("h2d/", "h2h/"), benchmark="h2h")


def test_the_smallest_detectable_changes_name_their_sizes() -> None:
    small = [structs.replace(timed(1e-3, 0, STILL), id=id_of(0).replace("67108864", "8"), bytes=8)]
    both = run(small), run([timed(1e-3, 0, STILL)])
    assert "(pinned) below 64 KiB." in headline(compared(both[:1], both[:1]))
    assert "(pinned) from 1 MiB." in headline(compared(both[1:], both[1:]))


def test_points_without_a_value_are_counted_by_their_status() -> None:
    before = run([timed(1e-3, 0), failed(1, "a hang"), point(id_of(2), status="skipped", reason="no time")])
    after = run([timed(1e-3, 0), failed(1, "a hang"), timed(1e-3, 2)])
    found = compared([before], [after])
    assert found.unmeasured == {"failed": 1, "skipped": 1}
    (text,) = left_out(found, [before, after])
    assert text == "2 points without a value in one of the runs (1 failed, 1 not measured)"


def test_a_seen_change_within_the_margin_is_not_called_slower() -> None:
    still = tuple(1 + (factor - 1) / 100 for factor in SCATTER)
    before, after = (run([timed(seconds, gpu, still) for gpu in range(8)]) for seconds in (1e-3, 1.01e-3))
    assert {pair.verdict for pair in compared([before], [after]).pairs} == {"equivalent"}
    assert {pair.verdict for pair in compared([before], [after], 0.005).pairs} == {"slower"}


def test_a_failure_is_described_by_the_run_that_failed() -> None:
    before = run([timed(1e-3, 0), failed(1, "the first hang")])
    after = run([failed(0, "the second hang"), timed(1e-3, 1)])
    lines = table(by_path(compared([before], [after])), everything=False, width=200)
    assert "broken" in lines[0] and "the second hang" in lines[0]
    assert "mended" in lines[1] and "the first hang" in lines[1]


def test_within_a_verdict_the_largest_change_comes_first_and_unchanged_paths_are_left_out() -> None:
    still = tuple(1 + (factor - 1) / 20 for factor in SCATTER)
    before = run([timed(1e-3, gpu, still) for gpu in range(4)])
    after = run([timed(1e-3 * factor, gpu, still) for gpu, factor in enumerate((1.1, 1.5, 1.0, 0.5))])
    paths = by_path(compared([before], [after]))
    assert [one.worst.ratio for one in paths] == pytest.approx([1.5, 1.1, 0.5, 1.0])
    lines = table(paths, everything=False, width=200)
    assert len(lines) == 3 and "+50 % of time" in lines[0] and "equivalent" not in "".join(lines)
    assert len(table(paths, everything=True, width=200)) == 4


def test_changes_are_printed_with_two_digits() -> None:
    still = tuple(1 + (factor - 1) / 100 for factor in SCATTER)
    before = run([timed(1e-3, gpu, still) for gpu in range(2)])
    after = run([timed(1.0534e-3, 0, still), timed(1.257e-3, 1, still)])
    lines = table(by_path(compared([before], [after])), True, 200)
    assert "+26 % of time [+2" in lines[0] and "+5.3 % of time [+5.3 %, +5.4 %]" in lines[1]


def test_the_drawing_is_wide_enough_for_the_fastest_and_the_slowest_path() -> None:
    """Half the time is as far to the left as twice the time is to the right. No interval is cut off."""
    before = run([timed(1e-3, 0), timed(1e-3, 1)])
    for factors in ((0.5, 1.0), (2.0, 1.0), (0.5, 2.0)):
        after = run([timed(1e-3 * factor, gpu) for gpu, factor in enumerate(factors)])
        root = ElementTree.fromstring(forest(compared([before], [after]), modelled=False))
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
    assert changes(series(1e-3, 1e-3, 1.1e-3, scatter=(1.0,))) == []  # one round per run does not show the noise
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
