"""Shared links: known answers, the planner on simulated machines, complete runs, bad input."""

import itertools
import json
import math
import random
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path as File

import pytest
from msgspec import structs

import invented
from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.model.curves import Path
from linkscope.model.flows import are_apart, joints, rates_alone
from linkscope.model.interference import interference
from linkscope.plan import MachineFacts, Plan, footprint, make_plan, next_work
from linkscope.plan.interference import MOST_FIRST, further_pairs, next_together, together
from linkscope.report import details, html, markdown
from linkscope.report.figures import figures
from linkscope.report.shared import sentence, shares
from linkscope.run import benchmark_table, measure
from linkscope.run.target import Target, modelled
from linkscope.runfile import Point, PointId, read_run
from linkscope.stats import Contrast, Shared, shared_by_pairs, sharing_sets, slowdowns, unexplained
from linkscope.stats.sharing import fair_rates

sys.path.insert(0, str(File(__file__).resolve().parents[2] / "tools"))
from true_shares import Truth, truth_of

MIB = 1 << 20
SIZE = 16 * MIB
SINGLE = "{}/ce/{}.{}->{}.{}/{}?after=kernel&bidirectional=false&mode=batched"
MEMORY = {True: "device", False: "pinned"}


def memory(place: str) -> str:
    return MEMORY["gpu:" in place]


def id_of(*paths: str) -> str:
    """'numa:0->gpu:0', 'numa:0->gpu:1' as the id of their concurrent point."""
    (src, dst), *others = (path.split("->") for path in paths)
    suffix = f"?with={','.join(f'{a}->{b}' for a, b in others)}" if others else ""
    return f"concurrent/ce/{src}.{memory(src)}->{dst}.{memory(dst)}/{SIZE}{suffix}"


def answer(id: str, rates: Sequence[float], chance: random.Random | None = None, noise: float = 0.001) -> Point:
    """A point whose flows have these rates in GB/s; `noise` between three rounds and between points, as a fraction."""
    what = PointId.parse(id)
    made = invented.point(id, 1.0)
    made.flows = []
    for (src, dst), rate in zip(what.paths, rates, strict=True):
        flow = invented.flow(src, dst, (memory(src), memory(dst)), what.bytes, what.bytes / rate / 1e9)
        if chance is not None:
            flow.round_medians_s = [flow.median_s * math.exp(chance.gauss(0, noise)) for _ in range(3)]
        made.flows.append(flow)
    return made


def points(single_gbps: dict[str, float], *sets: dict[str, float]) -> list[Point]:
    made = [answer(id_of(path), [rate]) for path, rate in single_gbps.items()]
    return made + [answer(id_of(*of), list(of.values())) for of in sets]


# --- ids ---


def test_an_id_names_its_other_paths_in_the_form_of_predict() -> None:
    text = "concurrent/ce/numa:0.pinned->gpu:0.device/8?with=numa:0->gpu:1,gpu:2->numa:0"
    point = PointId.parse(text)
    assert str(point) == text
    assert point.paths == (("numa:0", "gpu:0"), ("numa:0", "gpu:1"), ("gpu:2", "numa:0"))
    assert PointId.parse("h2d/ce/numa:0.pinned->gpu:0.device/8?mode=batched").paths == (("numa:0", "gpu:0"),)


@pytest.mark.parametrize("text", ["numa:0", "numa:0->", "->gpu:1", "numa:0->gpu:1,"])
def test_an_invalid_path_in_an_id_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a path; write numa:0->gpu:1"):
        _ = PointId.parse(f"concurrent/ce/numa:0.pinned->gpu:0.device/8?with={text}").paths


# --- points that count ---


def test_only_plain_single_path_and_concurrent_copies_count() -> None:
    plain = SINGLE.format("h2d", "numa:0", "pinned", "gpu:0", "device", SIZE)
    counted = [
        answer(plain, [50]),
        answer(id_of("numa:0->gpu:1"), [50]),
        answer(id_of("numa:0->gpu:0", "numa:0->gpu:1"), [40, 30]),
    ]
    others = [
        invented.point(plain.replace("mode=batched", "mode=single"), 1.0),
        invented.point(plain.replace("pinned", "pageable"), 1.0),
        invented.point(plain.replace("bidirectional=false", "bidirectional=true"), 1.0),
        invented.point(plain.replace("gpu:0", "gpu:2").replace("h2d/ce", "h2d/sm"), 1.0),
        answer(id_of("numa:0->gpu:0", "gpu:0->numa:0"), [40, 30]),  # both paths touch gpu:0
    ]
    found = rates_alone(counted + others)
    assert {(str(path), size) for path, size in found} == {("numa:0 -> gpu:0", SIZE), ("numa:0 -> gpu:1", SIZE)}
    (joint,) = joints(counted + others)
    assert joint.id == counted[2].id and joint.gbps(Path("numa:0", "gpu:1")) == pytest.approx(30)


def test_only_sets_of_one_size_are_compared() -> None:
    """The same three paths at 64 MiB too: their larger size does not make them slower."""
    large = "host_to_all/ce/numa:0.pinned->gpu:all.device/67108864?bidirectional=false"
    paths = [f"numa:0->gpu:{gpu}" for gpu in range(3)]
    made = invented.point(large, 1.0)
    made.flows = [invented.flow("numa:0", f"gpu:{gpu}", ("pinned", "device"), 64 * MIB, 1e-3) for gpu in range(3)]
    small = [answer(id_of(*paths), [40, 40, 40]), answer(id_of(*paths[:2]), [40, 40])]
    assert {joint.id for joint in joints([*small, made])} == {point.id for point in small}
    assert [joint.id for joint in joints([made])] == [large]


# --- groups ---


def contrasts(single_gbps: dict[str, float], *sets: dict[str, float]) -> dict[tuple[str, frozenset[str]], Contrast]:
    """Contrasts with negligible noise."""
    return {
        (flow, frozenset(of)): Contrast(math.log(single_gbps[flow] / rate), 1e-4, 20)
        for of in sets
        for flow, rate in of.items()
    }


def test_fair_rates_are_max_min() -> None:
    """The first flow takes its 5 of 20, the others half of the rest; an independent flow keeps its own rate."""
    single_gbps = {"a": 5.0, "b": 10.0, "c": 10.0, "d": 7.0}
    found = fair_rates(single_gbps, [Shared(frozenset("abc"), 20.0, True)])
    assert found == pytest.approx({"a": 5.0, "b": 7.5, "c": 7.5, "d": 7.0})
    groups = [Shared(frozenset("abc"), 18.0, True), Shared(frozenset("ab"), 6.0, True)]
    narrow = fair_rates({"a": 8.0, "b": 8.0, "c": 8.0}, groups)
    assert narrow == pytest.approx({"a": 3.0, "b": 3.0, "c": 8.0})


def test_three_paths_with_one_capacity_are_one_group_and_three_pairs_are_three_groups() -> None:
    single_gbps = dict.fromkeys("abc", 10.0)
    pairs = [dict.fromkeys(pair, 6.0) for pair in ("ab", "ac", "bc")]
    one = {frozenset(of): sum(of.values()) for of in pairs}
    found = shared_by_pairs(slowdowns(contrasts(single_gbps, *pairs)), one, lambda a, b: "")
    assert [(group.flows, group.capacity) for group in found] == [(frozenset("abc"), 12.0)]
    apart = [dict.fromkeys("ab", 6.0), dict.fromkeys("ac", 7.0), dict.fromkeys("bc", 8.0)]
    totals = {frozenset(of): sum(of.values()) for of in apart}
    slow = slowdowns(contrasts(single_gbps, *apart))
    # Pairs would also fit one capacity of 16 with narrower ones inside; the set of three gets 6 + 6 + 8.
    assert frozenset("abc") in {group.flows for group in shared_by_pairs(slow, totals, lambda a, b: "")}
    found = shared_by_pairs(slow, totals | {frozenset("abc"): 20.0}, lambda a, b: "")
    assert {group.flows: group.capacity for group in found} == {
        frozenset("ab"): 12.0, frozenset("ac"): 14.0, frozenset("bc"): 16.0
    }  # fmt: skip


def test_a_capacity_is_the_rate_of_its_own_pairs_and_not_of_a_pair_that_shares_a_flow() -> None:
    pairs = [dict.fromkeys("ab", 6.0), dict.fromkeys("bc", 6.1)]  # equal capacities are found together
    totals = {frozenset(of): sum(of.values()) for of in pairs}
    found = shared_by_pairs(slowdowns(contrasts(dict.fromkeys("abc", 10.0), *pairs)), totals, lambda a, b: "")
    assert {group.flows: group.capacity for group in found} == totals


def test_a_slowdown_below_ten_percent_is_no_sharing() -> None:
    slow = slowdowns(contrasts({"a": 10.0, "b": 10.0}, {"a": 9.1, "b": 9.1}))
    assert not any(one.slowed for one in slow)
    assert shared_by_pairs(slow, {frozenset("ab"): 18.2}, lambda a, b: "") == []
    assert all(one.slowed for one in slowdowns(contrasts({"a": 10.0, "b": 10.0}, {"a": 8.9, "b": 8.9})))


def test_sharing_of_more_than_two_paths_shows_when_one_is_left_out() -> None:
    """Four paths of 10 share 28: no pair and no three are slowed. The fifth path is independent."""
    single_gbps = dict.fromkeys("abcde", 10.0)
    all_shared = dict.fromkeys("abcd", 7.0) | {"e": 10.0}
    found = slowdowns(contrasts(single_gbps, all_shared))
    assert unexplained(found, single_gbps, []) == {frozenset("abcde"): frozenset("abcd")}
    assert unexplained(found, single_gbps, [Shared(frozenset("abcd"), 28.0, False)]) == {}
    gains = {
        (flow, other): Contrast(math.log(9.33 / 7.0) if {flow, other} <= set("abcd") else 0.0, 1e-3, 20)
        for flow, other in itertools.permutations("abcde", 2)
    }
    assert sharing_sets(gains) == [frozenset("abcd")]


def test_independent_paths_form_no_group() -> None:
    """500 machines of four GPUs whose rounds scatter by 3 %; all pairs run concurrently and none is slowed."""
    false = 0
    paths = [f"numa:0->gpu:{gpu}" for gpu in range(4)] + [f"gpu:{gpu}->numa:0" for gpu in range(4)]
    for seed in range(500):
        chance = random.Random(seed)
        made = [answer(id_of(path), [50.0], chance, 0.03) for path in paths]
        for one, other in itertools.combinations(paths, 2):
            if are_apart(Path(*path.split("->")) for path in (one, other)):
                made.append(answer(id_of(one, other), [50.0, 50.0], chance, 0.03))
        false += bool(interference(made).groups)
    assert false <= 5  # at a level of 1 % at most 5 are expected at the margin, and these rates are far from it


# --- the planner on simulated machines ---

TABLE = benchmark_table()


def planned(target: Target) -> tuple[Plan, list[str]]:
    """The plan of `standard`, and the points that its sets depend on."""
    plan = make_plan(target.facts, TABLE, suite="standard", budget_s=110.0)
    needed = {path for one in plan.together for path in PointId.parse(one.id).paths}
    ids = [
        id
        for id in plan.points
        if (of := PointId.parse(id)).bytes == SIZE and (of.src, of.dst) in needed and of.engine == "ce"
        and {of.src_memory, of.dst_memory} <= {"pinned", "device"} and not of.bidirectional
        and of.param("mode") == "batched" and of.param("peer") != "off" and of.param("initiator") != "dst"
    ]  # fmt: skip
    return plan, ids


def simulated(truth: Truth, id: str, chance: random.Random) -> Point:
    flows = [Path(*path) for path in PointId.parse(id).paths]
    if not all(flow in truth.crossed for flow in flows):
        return invented.point(id, status="unsupported", reason="no peer access")
    rates = truth.rates(flows)
    return answer(id, [rates[flow] for flow in flows], chance)


def wrong(truth: Truth, found: Iterable[Point]) -> list[str]:
    """Groups that are missing, invented, or have a wrong capacity."""
    result = interference(found)
    groups = {frozenset(group.paths): group.capacity.value for group in result.groups}
    true = truth.groups(map(list, result.ids))
    far = [paths for paths in groups.keys() & true.keys() if abs(groups[paths] / true[paths] - 1) > 0.02]
    return [" ".join(map(str, sorted(paths))) for paths in (*(groups.keys() ^ true.keys()), *far)]


GROUPS = {"dl160": 2, "h200x2": 0, "h200x4": 3, "jorda-a": 10, "jorda-b": 0, "jorda-c": 6, "minsky": 6}


@pytest.mark.parametrize("name, groups", GROUPS.items())
def test_the_groups_match_the_links(name: str, groups: int) -> None:
    """Also hidden links: a plan knows only classes of paths. Shares of jorda-a overlap
    (docs/notes/model-evidence.md)."""
    truth, (plan, ids) = truth_of(models.load(name)), planned(modelled(models.load(name), 1))
    chance = random.Random(name)
    known = {id: simulated(truth, id, chance) for id in ids}
    stages = 0
    while more := next_together(plan.together, known):
        assert not known.keys() & set(more)
        known |= {id: simulated(truth, id, chance) for id in more}
        stages += 1
        assert stages < 12
    assert wrong(truth, known.values()) == []
    assert len(interference(known.values()).groups) == groups
    assert interference(known.values()).open == ()
    known |= {id: simulated(truth, id, chance) for id in further_pairs(plan.together, known)}
    assert wrong(truth, known.values()) == []  # all other pairs change nothing


def test_four_gpus_need_few_points_and_sixteen_are_bounded() -> None:
    plan, _ = planned(modelled(models.load("h200x4"), 1))
    assert sum(one.first for one in plan.together) == 28  # 4 of all GPUs, 3 x 6 pairs with the host, 3 x 2
    places = ("numa:0", *(f"gpu:{gpu}" for gpu in range(16)))
    facts = MachineFacts("many", True, places)  # only the places are known
    listed = [
        PointId.parse(SINGLE.format("h2d", src, memory(src), dst, memory(dst), SIZE))
        for src, dst in itertools.permutations(places, 2)
    ]
    found = together(listed, facts, TABLE, SIZE, 1)
    assert sum(one.first for one in found) == 4 + MOST_FIRST
    assert len(found) <= 3000 and len({one.id for one in found}) == len(found)
    assert not any(one.first for one in found[4 + MOST_FIRST :])


def test_concurrent_paths_divide_the_memory_that_they_copy() -> None:
    """64 MiB of host memory are 4 copies of 16 MiB on one path, and 2 on each of two paths."""
    machine = MachineFacts("two", True, ("numa:0", "gpu:0", "gpu:1"), {"gpu:0": 60 * MIB, "gpu:1": 60 * MIB})
    single_id, pair_id = id_of("numa:0->gpu:0"), id_of("numa:0->gpu:0", "numa:0->gpu:1")
    assert [footprint(PointId.parse(id), machine) // SIZE for id in (single_id, pair_id)] == [4, 2]


def test_only_paths_that_were_measured_singly_are_paired() -> None:
    plan, ids = planned(modelled(models.load("jorda-a"), 1))
    truth = truth_of(models.load("jorda-a"))
    known = {id: simulated(truth, id, random.Random(1)) for id in ids}
    assert any(point.status == "unsupported" for point in known.values())  # no peer access across the IOHs
    paired = {path for id in next_together(plan.together, known) for path in PointId.parse(id).paths}
    assert ("gpu:0", "gpu:1") in paired and ("gpu:0", "gpu:2") not in paired
    assert next_together(plan.together, {}) == []


def test_only_suites_with_concurrent_points_measure_them() -> None:
    facts = modelled(models.load("h200x4"), 1).facts
    assert make_plan(facts, TABLE, suite="quick", budget_s=16.0).together == []
    assert make_plan(facts, TABLE, suite="standard", only=["h2d/*"]).together == []
    assert make_plan(facts, TABLE, suite="full").together != []


# --- complete runs ---


@pytest.fixture(scope="module")
def run_of_jorda_a(tmp_path_factory) -> File:
    """The paths of jorda-a singly and concurrently, simulated."""
    path = tmp_path_factory.mktemp("run") / "a.jsonl"
    target = modelled(models.load("jorda-a"), 1)
    plan, ids = planned(target)
    measure(target, structs.replace(plan, points=ids, classes=[], rounds=3), path)
    return path


def test_a_run_finds_the_shared_links_of_its_machine(run_of_jorda_a: File) -> None:
    run = read_run(run_of_jorda_a)
    assert wrong(truth_of(models.load("jorda-a")), run.points) == []
    assert len(interference(run.points).groups) == 10
    assert next_work(structs.replace(planned(modelled(models.load("jorda-a"), 1))[0], points=[], classes=[], rounds=3),
                     {point.id: point for point in run.points}) == []  # fmt: skip


def test_shared_links_appear_in_every_output(run_of_jorda_a: File, capsys) -> None:
    assert main(["report", str(run_of_jorda_a), "--shared"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("MODELLED") and "GPU 2 and 3 share 4.7" in text and "GB/s each" in text
    assert main(["report", str(run_of_jorda_a), "--shared", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["modelled"] and len(output["groups"]) == 10 and output["unexplained"] == []
    group = next(of for of in output["groups"] if of["paths"] == ["numa:0->gpu:2", "numa:0->gpu:3"])
    assert group["low_gbps"] <= group["gbps"] <= group["high_gbps"] and group["gbps"] == pytest.approx(4.74, rel=0.01)
    assert [part["share"] for part in group["parts"]] == pytest.approx([0.5, 0.5], abs=0.01) and group["fair"]
    slowed = [flow for of in output["sets"] for flow in of["flows"] if flow["slowed"]]
    assert slowed and all(flow["low"] <= flow["kept"] <= flow["high"] and flow["kept"] < 0.9 for flow in slowed)
    run = read_run(run_of_jorda_a)
    for page in (html.page(run), details.details(run), markdown.to_markdown(run)):
        assert "hared links" in page and "GPU 2 and 3 share" in " ".join(page.split())
    drawn = {name: svg for name, svg in figures(run).items() if name.startswith("shared")}
    assert len(drawn) == 10 and all("MODELLED" in svg and "concurrent" in svg for svg in drawn.values())


def test_the_page_the_summary_and_the_markdown_count_the_same_points(run_of_jorda_a: File) -> None:
    run = read_run(run_of_jorda_a)
    counted = f"{len(run.points)} points: "
    assert counted in html.page(run) and counted in details.details(run) and counted in markdown.to_markdown(run)


def test_rates_of_concurrent_flows_are_never_the_best_rate_of_a_path(run_of_jorda_a: File) -> None:
    run = read_run(run_of_jorda_a)
    page = html.page(run)
    assert "concurrent" not in page.replace("".join(point.id for point in run.points), "").split('id="shared"')[0]


def test_the_division_of_a_capacity_is_stated() -> None:
    paths = ("numa:0->gpu:2", "numa:0->gpu:3")
    fair = interference(points(dict.fromkeys(paths, 55.0), dict.fromkeys(paths, 35.5)))
    assert sentence(fair.groups[0]).startswith("GPU 2 and 3 share 71.0 GB/s [")
    assert sentence(fair.groups[0]).endswith("from numa:0: 2 flows of 55 GB/s alone get 35.5 GB/s each")
    uneven = points({"gpu:2->numa:0": 55.0, "gpu:3->numa:0": 55.0}, {"gpu:2->numa:0": 45.0, "gpu:3->numa:0": 26.0})
    (group,) = interference(uneven).groups
    assert not group.fair
    assert " to numa:0: " in sentence(group)
    assert sentence(group).endswith("in unequal parts: gpu:2 -> numa:0 63 %, gpu:3 -> numa:0 37 %")
    assert shares(points({"gpu:2->numa:0": 55.0})) is None


RESULTS = File(__file__).resolve().parents[2] / "results"


@pytest.mark.parametrize(
    "run, words",
    [
        (
            "h200x4-suite-nvbandwidth-b",
            "GPU 0 to 3 get 151.1 GB/s to numa:0 concurrently and 221.5 GB/s as the sum of single rates",
        ),
        ("h200x2-standard-b", "2 pairs of paths and 64 MiB per copy were measured concurrently; 0 of the pairs slow"),
    ],
)
def test_older_runs_report_what_their_points_show(run: str, words: str, capsys) -> None:
    """Four H200s share the links to the host, two do not. These runs show it by points of all GPUs concurrently."""
    assert main(["report", str(RESULTS / f"{run}.jsonl.gz"), "--shared"]) == 0
    assert words in capsys.readouterr().out


# --- bad input ---


@pytest.mark.parametrize(
    "id, code, words",
    [
        (id_of("numa:0->gpu:0", "numa:0->gpu:0"), 2, "the path numa:0->gpu:0 is there twice"),
        (id_of("numa:0->gpu:0", "gpu:1->gpu:1"), 2, "gpu:1->gpu:1 is not a possible path. Name a GPU"),
        (id_of("numa:0->gpu:0", "numa:0->gpu:all"), 2, "numa:0->gpu:all is not a possible path"),
        (id_of("numa:0->gpu:0", "numa:0->gpu:9"), 3, "gpu:9 is not on"),
        (id_of("numa:0->gpu:0") + "?with=gpu:1", 2, "'gpu:1' is not a path; write numa:0->gpu:1"),
    ],
)  # fmt: skip
def test_invalid_paths_get_one_sentence(id: str, code: int, words: str, capsys, tmp_path) -> None:
    assert main(["run", "--machine", "h200x4", "--only", id, "-o", str(tmp_path / "a.jsonl")]) == code
    assert words in capsys.readouterr().err


def test_a_set_given_by_its_id_is_measured(capsys, tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    ids = [id_of("numa:0->gpu:0", "gpu:1->numa:0"), id_of("numa:0->gpu:0"), id_of("gpu:1->numa:0")]
    only = [word for id in ids for word in ("--only", id)]
    assert main(["run", "--machine", "h200x4", "--rounds", "3", "-o", str(path), "--json", *only]) == 0
    run = read_run(path)
    assert {point.id for point in run.points} == set(ids)
    both = next(point for point in run.points if point.id == ids[0])
    assert [(flow.src, flow.dst) for flow in both.flows] == [("numa:0", "gpu:0"), ("gpu:1", "numa:0")]
    assert both.total_gbps == pytest.approx(110.5, rel=0.01)
    capsys.readouterr()
    assert main(["report", str(path), "--shared"]) == 0
    assert "No shared link" in capsys.readouterr().out


def test_a_run_without_sets_states_which_points_are_needed(capsys, tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    only = "h2d/ce/*pinned*/4096*"
    assert main(["run", "--machine", "h200x1", "--suite", "quick", "--only", only, "-o", str(path), "--json"]) == 0
    capsys.readouterr()
    assert main(["report", str(path), "--shared"]) == 3
    assert "points of `concurrent` and of the same paths alone are needed" in capsys.readouterr().err
    assert main(["report", str(path), "--json"]) == 2
    assert "--json needs --shared" in capsys.readouterr().err


def test_the_plan_lists_concurrent_points_with_their_reason(capsys) -> None:
    assert main(["run", "--machine", "h200x4", "--plan-only"]) == 0
    text = capsys.readouterr().out
    assert "concurrent flows, to find shared links:" in text and "numa:0 to all GPUs at once: 1" in text
    assert "concurrent: 28 points" in text and "concurrent: concurrent/ce/" in text
    assert main(["run", "--machine", "h200x4", "--plan-only", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert len(plan["together"]) == 88 and {"id", "why", "first"} == plan["together"][0].keys()
    assert sum(point.get("role") == "concurrent" for point in plan["points"]) == 28
