"""Shared links, where it would be easy to be wrong: what is asked next, whose spread counts, which set is told."""

import math
import random
from collections import Counter
from itertools import combinations, permutations

import pytest

import invented
from linkscope.model.curves import Path
from linkscope.model.flows import are_apart, joints
from linkscope.model.interference import interference
from linkscope.plan import MachineFacts
from linkscope.plan.interference import MOST_FIRST, MOST_MORE, Together, next_together, together
from linkscope.runfile import Point, PointId
from linkscope.stats import Contrast, geometric_mean, shared_by_pairs, sharing_sets, slowdowns, unexplained
from linkscope.stats.ratios import student_quantile
from test_interference import ALONE, SIZE, TABLE, answer, id_of, memory, points

HOST = "numa:0->gpu:{}"


def measured_alone(places: tuple[str, ...], size: int = SIZE) -> list[PointId]:
    """Every path between two of these places of which one is a GPU."""
    return [
        PointId.parse(ALONE.format("h2d", src, memory(src), dst, memory(dst), size))
        for src, dst in permutations(places, 2)
        if "gpu:" in src + dst
    ]


def asked_of(*places: str, seed: int = 1, size: int = SIZE) -> list[Together]:
    return together(measured_alone(places, size), MachineFacts("any", True, places), TABLE, SIZE, seed)


def paths_of(one: Together) -> tuple[tuple[str, str], ...]:
    return PointId.parse(one.id).paths


# --- what is asked first ---


def test_paths_of_another_size_are_not_asked_for() -> None:
    assert asked_of("numa:0", "gpu:0", "gpu:1", size=8) == []


def test_which_pairs_come_first_is_a_draw_of_the_seed() -> None:
    places = ("numa:0", *(f"gpu:{gpu}" for gpu in range(8)))
    assert asked_of(*places, seed=1) == asked_of(*places, seed=1) != asked_of(*places, seed=2)


def test_all_gpus_at_once_are_asked_for_from_three_on() -> None:
    """Of two GPUs all at once are a pair."""
    three = asked_of("numa:0", "gpu:0", "gpu:1", "gpu:2")
    assert len({one.id for one in three if len(paths_of(one)) == 3}) == 4
    wide = [one.why for one in three if len(paths_of(one)) == 3]
    assert wide[:2] == ["numa:0 to all GPUs at once", "all GPUs to numa:0 at once"] and len(wide) == 4
    assert all(len(paths_of(one)) == 2 for one in asked_of("numa:0", "gpu:0", "gpu:1"))


def test_nothing_runs_at_once_on_two_hosts() -> None:
    """From numa:0 of both hosts to the three GPUs of each."""
    places = tuple(f"host:{host}/{place}" for host in (0, 1) for place in ("numa:0", "gpu:0", "gpu:1", "gpu:2"))
    asked = asked_of(*places)
    local = [one for one in asked if all(src[:6] == dst[:6] for src, dst in paths_of(one))]
    assert sum(len(paths_of(one)) == 3 for one in local) == 8  # all in, all out, twice by turns, of each host
    assert all(len({src[:6] for src, _ in paths_of(one)}) == 1 for one in asked)


def test_every_kind_of_pair_comes_first_in_its_turn() -> None:
    """Two NUMA nodes and eight GPUs: of kinds without a path between GPUs no one has two more than another."""
    places = ("numa:0", "numa:1", *(f"gpu:{gpu}" for gpu in range(8)))
    asked = asked_of(*places)
    pairs = [one for one in asked if len(paths_of(one)) == 2]
    first = Counter(one.why for one in pairs if one.first)
    assert first.total() == MOST_FIRST and first.keys() == {one.why for one in pairs}
    large = {why: count for why, count in first.items() if "gpu -> gpu" not in why}
    assert max(large.values()) - min(large.values()) <= 1  # whichever kind happened to be found first


def test_one_numa_node_and_two_are_kinds_of_their_own() -> None:
    for one in asked_of("numa:0", "numa:1", "gpu:0", "gpu:1"):
        nodes = {place for path in paths_of(one) for place in path if "numa" in place}
        ends = sum("numa" in place for path in paths_of(one) for place in path)
        assert one.why.endswith({1: "; one NUMA node", 2: "; two NUMA nodes"}[len(nodes)] if ends == 2 else "gpu")


# --- what is asked next ---

LIKE = "a kind"
GPUS = 20


def state(first: int, later: int, lacking: int, slowed: bool = True) -> tuple[list[Together], dict[str, Point]]:
    """Pairs from one host, the first of which is slowed: so many are measured, and then so many are not."""
    ids = [id_of(HOST.format(one), HOST.format(other)) for one, other in combinations(range(GPUS), 2)]
    asked = [Together(id, LIKE, at < first) for at, id in enumerate(ids[: first + later + lacking])]
    known = [answer(id_of(HOST.format(gpu)), [50.0]) for gpu in range(GPUS)]
    known += [answer(one.id, [50.0, 50.0]) for one in asked[: first + later]]
    if slowed:
        known[GPUS] = answer(asked[0].id, [30.0, 30.0])
    return asked, {point.id: point for point in known}


@pytest.mark.parametrize("later, more", [(0, MOST_MORE), (MOST_MORE - 3, 3), (MOST_MORE, 0), (MOST_MORE + 2, 0)])
def test_of_the_kind_of_a_slowed_pair_so_many_more_are_measured(later: int, more: int) -> None:
    asked, known = state(first=10, later=later, lacking=MOST_MORE + 10 - later)
    assert len(next_together(asked, known)) == more


def test_other_kinds_than_those_of_slowed_pairs_are_left_to_the_time_that_remains() -> None:
    asked, known = state(first=10, later=0, lacking=5)
    other = [Together(one.id, "another kind", one.first) if at >= 12 else one for at, one in enumerate(asked)]
    assert next_together(other, known) == [one.id for one in asked[10:12]]
    assert next_together(*state(first=10, later=0, lacking=5, slowed=False)) == []


def test_three_that_are_slowed_are_no_pair_that_is() -> None:
    """What all GPUs at once get says nothing of the pairs of a kind."""
    wide = id_of(*(HOST.format(gpu) for gpu in range(3)))
    asked = [Together(wide, LIKE, True), Together(id_of(HOST.format(0), HOST.format(1)), LIKE, False)]
    known = [answer(id_of(HOST.format(gpu)), [50.0]) for gpu in range(3)] + [answer(wide, [30.0] * 3)]
    assert interference(known).slowed_pairs() == {}
    slowed = answer(asked[1].id, [30.0, 30.0])
    assert list(interference([*known, slowed]).slowed_pairs()) == [asked[1].id]


def test_a_wider_set_that_failed_is_not_asked_for_again() -> None:
    three = [HOST.format(gpu) for gpu in range(3)]
    pairs = [id_of(*pair) for pair in combinations(three, 2)]
    asked = [Together(id, LIKE, True) for id in pairs]
    known = {id: answer(id, [50.0]) for id in map(id_of, three)} | {id: answer(id, [30.0, 30.0]) for id in pairs}
    assert next_together(asked, known) == [id_of(*three)]
    known[id_of(*three)] = invented.point(id_of(*three), status="failed", reason="a hang")
    assert next_together(asked, known) == []


def test_what_was_measured_is_no_set_that_would_tell_more() -> None:
    three = [HOST.format(gpu) for gpu in range(3)]
    pairs = [dict.fromkeys(pair, 30.0) for pair in combinations(three, 2)]
    assert [set(map(str, one)) for one in interference(points(dict.fromkeys(three, 50.0), *pairs)).next] == [
        {f"numa:0 -> gpu:{gpu}" for gpu in range(3)}
    ]
    assert interference(points(dict.fromkeys(three, 50.0), *pairs, dict.fromkeys(three, 20.0))).next == ()


# --- how sure it is ---


def drawn(id: str, rates: list[float], noise: float, seed: int) -> Point:
    return answer(id, rates, random.Random(seed), noise)


def reach(known: list[Point]) -> float:
    """Half of the interval of the first flow's slowing, as a logarithm."""
    low, high = interference(known).slowdowns[0].of.ends(0.95)
    return math.log(high / low) / 2


def test_how_small_copies_scatter_does_not_count() -> None:
    """Rounds of 8 B differ by 5 %, those of 16 MiB by 0.1 %: the sets are of 16 MiB."""
    ids = [id_of(HOST.format(0)), id_of(HOST.format(1)), id_of(HOST.format(0), HOST.format(1))]
    known = [drawn(id, [50.0] * (1 + (at == 2)), 0.001, at) for at, id in enumerate(ids)]
    small = [ALONE.format("h2d", "numa:0", "pinned", f"gpu:{gpu}", "device", 8) for gpu in range(2)]
    assert reach([*known, *(drawn(id, [1.0], 0.05, at) for at, id in enumerate(small))]) == reach(known)


def test_rounds_beside_others_and_alone_both_say_how_rounds_scatter() -> None:
    """The mean of all variances, not the largest: of one flow's six rounds some are wider apart by chance."""
    ids = [id_of(HOST.format(0)), id_of(HOST.format(1)), id_of(HOST.format(0), HOST.format(1))]
    quiet = [drawn(id, [50.0] * (1 + (at == 2)), 0.001, at) for at, id in enumerate(ids)]
    other = [drawn(id_of(HOST.format(gpu)), [50.0], 0.001, gpu) for gpu in range(2, 12)]
    restless = drawn(id_of(HOST.format(12)), [50.0], 0.02, 1)
    assert reach([*quiet, *other]) < reach([*quiet, *other, restless]) < 0.6 * reach([*quiet, restless])
    beside = drawn(ids[2], [50.0, 50.0], 0.02, 1)
    alone = drawn(id_of(HOST.format(1), HOST.format(2)), [50.0, 50.0], 0.02, 1)
    pair = [*quiet[:2], quiet[2], drawn(id_of(HOST.format(2)), [50.0], 0.001, 9)]
    assert reach([*pair, alone]) > 2 * reach(pair)  # a pair that scatters says so of all
    assert reach([*quiet[:2], beside]) > 2 * reach(quiet)


def test_a_capacity_has_the_95_percent_interval_of_its_rounds() -> None:
    """Three rounds: Student's t of two degrees of freedom is 4.303 (by logarithms, which differ little here)."""
    both = answer(id_of(HOST.format(0), HOST.format(1)), [30.0, 30.0])
    totals = [59.0, 60.0, 61.0]
    for flow in both.flows:
        flow.round_medians_s = [SIZE / (total / 2) / 1e9 for total in totals]
    known = [answer(id_of(HOST.format(gpu)), [50.0]) for gpu in range(2)]
    (group,) = interference([*known, both]).groups
    assert group.capacity.value == pytest.approx(60.0)
    half = 4.303 * 1.0 / math.sqrt(3)
    assert group.capacity.low == pytest.approx(60 - half, rel=2e-3)
    assert group.capacity.high == pytest.approx(60 + half, rel=2e-3)


def test_many_flows_are_corrected_for_and_none_is_slowed_by_chance() -> None:
    """Each has a chance of 0.2 %: one of them would be slowed, of a hundred none is shown to be."""
    margin = math.log(1 / 0.9)
    one = {("a", frozenset("ab")): Contrast(margin + 3.2 * 0.01, 0.01, 20)}
    assert [of.slowed for of in slowdowns(one)] == [True]
    many = {(f"a{at}", frozenset((f"a{at}", "b"))): of for at in range(100) for of in one.values()}
    assert not any(of.slowed for of in slowdowns(many))


@pytest.mark.parametrize("chance, slowed", [(0.05, False), (0.011, False), (0.009, True), (0.001, True)])
def test_slowed_is_what_is_by_chance_in_less_than_one_of_a_hundred(chance: float, slowed: bool) -> None:
    """Of 20 degrees of freedom; the truth at the margin itself."""
    of = Contrast(math.log(1 / 0.9) + student_quantile(chance, 20) * 0.01, 0.01, 20)
    assert of.chance_other(1 / 0.9 - 1) == pytest.approx(chance)
    assert [one.slowed for one in slowdowns({("a", frozenset("ab")): of})] == [slowed]


def test_no_more_than_one_machine_in_a_hundred_has_a_flow_that_is_called_slowed_by_chance() -> None:
    """In 300 machines of 12 pairs all keep nine tenths, which is not yet slowed; rounds scatter by 1 %."""
    paths = [HOST.format(gpu) for gpu in range(3)] + [f"gpu:{gpu}->numa:0" for gpu in range(3)]
    pairs = [two for two in combinations(paths, 2) if are_apart(Path(*path.split("->")) for path in two)]
    false = 0
    for seed in range(300):
        chance = random.Random(f"margin {seed}")
        made = [answer(id_of(path), [50.0], chance, 0.01) for path in paths]
        made += [answer(id_of(*two), [45.0, 45.0], chance, 0.01) for two in pairs]
        false += any(one.slowed for one in interference(made).slowdowns)
    assert len(pairs) == 12 and false <= 8  # at most 3 are to be expected, at 20 % about 25 (measured)


def test_what_is_faster_beside_others_is_not_slowed() -> None:
    fast = {("a", frozenset("ab")): Contrast(-0.5, 1e-4, 20)}
    assert [one.slowed for one in slowdowns(fast)] == [False]


def test_pairs_of_different_capacity_are_no_group_because_a_gpu_keeps_them_apart() -> None:
    """What comes from a GPU and what goes to it cannot be run at once: of one capacity they may share it, else not."""
    pairs = {frozenset("ab"): 12.0, frozenset("cd"): 20.0}
    flows = {(flow, pair): Contrast(0.7, 1e-4, 20) for pair in pairs for flow in pair}

    def groups(totals: dict[frozenset[str], float]) -> set[frozenset[str]]:
        found = shared_by_pairs(slowdowns(flows), totals, lambda a, b: "" if frozenset((a, b)) in pairs else "other")
        return {group.flows for group in found}

    assert groups(pairs) == pairs.keys()
    assert groups(dict.fromkeys(pairs, 12.0)) == {frozenset("abcd")}


def test_slowed_is_less_than_nine_tenths_of_the_rate_and_not_a_tenth_more_time() -> None:
    kept = {share: Contrast(-math.log(share), 1e-5, 20) for share in (0.905, 0.895)}
    assert [one.slowed for one in slowdowns({(str(s), frozenset(str(s))): of for s, of in kept.items()})] == [
        False,
        True,
    ]


# --- which set is told ---


def test_the_set_with_most_flows_shows_how_a_capacity_divides() -> None:
    """The pair happens to get a little more than all three."""
    three = [HOST.format(gpu) for gpu in range(3)]
    pairs = [dict.fromkeys(pair, 30.3) for pair in combinations(three, 2)]
    (group,) = interference(points(dict.fromkeys(three, 50.0), *pairs, dict.fromkeys(three, 20.0))).groups
    assert len(group.parts) == 3 and group.capacity.value == pytest.approx(60.0)
    assert [part.share for part in group.parts] == pytest.approx([1 / 3] * 3) and group.fair


def test_a_set_that_something_else_holds_back_does_not_show_a_capacity() -> None:
    """Pairs meet one of 60; all three together only get 30, by what takes more than two to be seen."""
    three = [HOST.format(gpu) for gpu in range(3)]
    pairs = [dict.fromkeys(pair, 30.0) for pair in combinations(three, 2)]
    groups = interference(points(dict.fromkeys(three, 50.0), *pairs, dict.fromkeys(three, 10.0))).groups
    assert {group.in_pairs: round(group.capacity.value, 6) for group in groups} == {True: 60.0, False: 30.0}
    assert {group.in_pairs: len(group.parts) for group in groups} == {True: 2, False: 3}


def test_a_set_to_saturate_a_group_has_no_gpu_twice() -> None:
    """Into gpu:0 from either node, each beside what goes into gpu:1 and gpu:2."""
    into = ["numa:0->gpu:0", "numa:1->gpu:0"]
    others = ["numa:0->gpu:1", "numa:0->gpu:2"]
    pairs = [dict.fromkeys(pair, 30.0) for pair in [*((a, b) for a in into for b in others), tuple(others)]]
    asked = interference(points(dict.fromkeys(into + others, 50.0), *pairs)).next
    assert asked and all(are_apart(one) and len(one) == 3 for one in asked)


def test_parts_of_flows_that_nothing_slows_may_differ() -> None:
    """One has only 10 alone and keeps them; the two others get the same of what is left."""
    of = {HOST.format(0): 10.0, HOST.format(1): 25.0, HOST.format(2): 25.0}
    alone = dict.fromkeys(of, 50.0) | {HOST.format(0): 10.0}
    slowed = {HOST.format(1): 30.0, HOST.format(2): 30.0}
    joint = [answer(id_of(*of), list(of.values())), answer(id_of(*slowed), list(slowed.values()))]
    pairs = [{HOST.format(0): 8.8, HOST.format(gpu): 51.2 - 1e-3} for gpu in (1, 2)]
    groups = interference([*points(alone, *pairs), *joint]).groups
    whole = next(group for group in groups if len(group.paths) == 3)
    assert [part.gbps for part in whole.parts] == pytest.approx([10.0, 25.0, 25.0]) and whole.fair


def test_a_set_within_one_that_is_not_explained_is_told_with_it() -> None:
    """Four get 6 each and so do three of them, of 10: one sentence, of all four."""
    four = [HOST.format(gpu) for gpu in range(4)]
    known = points(dict.fromkeys(four, 10.0), dict.fromkeys(four, 6.0), dict.fromkeys(four[:3], 6.0))
    (left,) = interference(known).open
    assert len(left.paths) == 4 and (left.gbps, left.alone_gbps) == pytest.approx((24.0, 40.0))


def test_a_little_less_than_the_groups_explain_is_explained() -> None:
    """Three get 9.5 of 10 each, and 8.5: what is less than a tenth is the machine's own."""
    for rate, held in ((9.5, {}), (8.5, {frozenset("abc"): frozenset("abc")})):
        found = slowdowns({(flow, frozenset("abc")): Contrast(math.log(10 / rate), 1e-4, 20) for flow in "abc"})
        assert unexplained(found, dict.fromkeys("abc", 10.0), []) == held


@pytest.mark.parametrize("gain, shared", [(1.01, []), (1.05, [frozenset("ab")])])
def test_a_little_faster_without_another_is_no_sharing(gain: float, shared: list[frozenset[str]]) -> None:
    """By 1 % however certainly; who leaves frees set-ups and memory, too."""
    gains = {pair: Contrast(math.log(gain), 1e-4, 20) for pair in (("a", "b"), ("b", "a"))}
    assert sharing_sets(gains) == shared


def test_what_two_sets_show_is_one_group() -> None:
    """Three share 21 of 30, seen beside a fourth path and beside a fifth, which have their own ways."""
    paths = [HOST.format(gpu) for gpu in range(5)]
    sets = []
    for other in paths[3:]:
        sets += [dict.fromkeys(paths[:3], 7.0) | {other: 10.0}]
        sets += [dict.fromkeys(pair, 10.0) | {other: 10.0} for pair in combinations(paths[:3], 2)]
    found = interference(points(dict.fromkeys(paths, 10.0), *sets))
    (group,) = found.groups
    assert found.open == ()  # 21 for the three, and not 31 for the three and the other one
    assert [path.dst for path in group.paths] == ["gpu:0", "gpu:1", "gpu:2"] and not group.in_pairs
    assert group.capacity.value == pytest.approx(21.0)


def test_all_in_and_all_out_of_one_capacity_are_two_groups() -> None:
    """Three at once get 45 of 55 each, any two of them all: one way and the other may have as much by chance."""
    alone, sets = {}, []
    for way in (HOST, "gpu:{}->numa:0"):
        paths = [way.format(gpu) for gpu in range(3)]
        alone |= dict.fromkeys(paths, 55.0)
        sets += [dict.fromkeys(paths, 45.0), *(dict.fromkeys(pair, 55.0) for pair in combinations(paths, 2))]
    groups = interference(points(alone, *sets)).groups
    assert [len(group.paths) for group in groups] == [3, 3]
    assert [{path.src == "numa:0" for path in group.paths} for group in groups] == [{False}, {True}]


def test_two_that_are_faster_without_each_other_are_measured_as_a_pair() -> None:
    """Beside a third two get 7 of 10, and either has 10 without the other: what they share only their pair tells."""
    a, b, c = (HOST.format(gpu) for gpu in range(3))
    alone = dict.fromkeys((a, b, c), 10.0)
    found = interference(points(alone, {a: 7.0, b: 7.0, c: 10.0}, {a: 10.0, c: 10.0}, {b: 10.0, c: 10.0}))
    assert found.groups == () and [len(one.paths) for one in found.open] == [3]
    assert [[path.dst for path in one] for one in found.next] == [["gpu:0", "gpu:1"]]


# --- which points count ---


def test_flows_that_took_turns_are_no_set() -> None:
    both = answer(id_of(HOST.format(0), HOST.format(1)), [30.0, 30.0])
    assert len(joints([both])) == 1
    both.guards = {"in_turn": True}
    assert joints([both]) == []


@pytest.mark.parametrize("status", ["failed", "inherited", "skipped"])
def test_only_what_was_measured_counts(status: str) -> None:
    both = answer(id_of(HOST.format(0), HOST.format(1)), [30.0, 30.0])
    both.status = status  # type: ignore[assignment]
    assert joints([both]) == []


def test_a_set_with_a_round_without_time_does_not_count() -> None:
    both = answer(id_of(HOST.format(0), HOST.format(1)), [30.0, 30.0])
    both.flows[1].round_medians_s[2] = 0.0
    assert joints([both]) == []
    assert interference([both, *(answer(id_of(HOST.format(gpu)), [50.0]) for gpu in range(2))]).slowdowns == ()


def test_without_peer_access_a_copy_between_gpus_is_another() -> None:
    ends = f"gpu:0.device->gpu:1.device/{SIZE}?bidirectional=false&mode=batched&peer="
    on, off = (answer("d2d/ce/" + ends + told, [rate]) for told, rate in (("on", 300.0), ("off", 30.0)))
    beside = answer(id_of("gpu:0->gpu:1", "gpu:2->gpu:3"), [300.0, 300.0])
    (one,) = [of for of in interference([on, off, beside, answer(id_of("gpu:2->gpu:3"), [300.0])]).slowdowns
              if of.flow == Path("gpu:0", "gpu:1")]  # fmt: skip
    assert one.of.log_ratio == pytest.approx(0.0, abs=1e-9)
    assert geometric_mean(on.flows[0].round_medians_s) < geometric_mean(off.flows[0].round_medians_s)
