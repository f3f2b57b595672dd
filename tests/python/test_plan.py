"""Plans: the points of a suite, and the patterns that select some of them."""

import re
from dataclasses import replace

import msgspec
import pytest

from fakes import facts, plan, table
from linkscope.errors import UserError
from linkscope.plan import (
    SUITES,
    Benchmark,
    MachineFacts,
    Param,
    Plan,
    footprint,
    make_plan,
)
from linkscope.plan.enumerate import points_of
from linkscope.run import benchmark_table
from linkscope.runfile import PointId


def ids(**wishes) -> list[PointId]:
    return [PointId.parse(id) for id in plan(**wishes).points]


def test_every_ordered_pair_has_one_point_per_peer_and_initiator_setting() -> None:
    everything = [p for p in ids(gpus=4, suite="full") if p.benchmark == "d2d" and p.bytes == 1 << 20]
    points = [p for p in everything if p.param("mode") == "batched" and p.param("call", "memcpy") == "memcpy"]
    points = [p for p in points if p.param("after", "kernel") == "kernel"]
    unidirectional = {(p.src, p.dst, p.param("peer"), p.param("initiator")) for p in points if not p.bidirectional}
    both = [(p.src, p.dst, p.param("peer")) for p in points if p.bidirectional]
    assert {variant[2:] for variant in unidirectional} == {("on", "src"), ("on", "dst"), ("off", "src")}
    assert len(unidirectional) == 12 * 3  # ids name only the parameters that differ from their default
    assert {variant[:2] for variant in both} == {(f"gpu:{a}", f"gpu:{b}") for a in range(4) for b in range(a + 1, 4)}
    assert len(both) == 6 * 2 and len(points) == len(unidirectional) + len(both)


def test_standard_has_every_pair_with_both_initiators_and_without_peer_access() -> None:
    points = [p for p in ids(gpus=4) if p.benchmark == "d2d" and p.bytes == 1 << 20 and p.param("mode") == "batched"]
    unidirectional = {(p.param("peer"), p.param("initiator")) for p in points if not p.bidirectional}
    assert unidirectional == {("on", "src"), ("on", "dst"), ("off", "src")}
    assert {p.param("peer") for p in points if p.bidirectional} == {"on", "off"}
    assert len(points) == 12 * 3 + 6 * 2


def test_single_copies_are_on_every_path_and_their_variants_on_one_path_per_class() -> None:
    single = [p for p in ids(gpus=4) if p.benchmark == "d2d" and p.bytes == 4096 and p.param("mode") == "single"]
    paths: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for p in single:
        paths.setdefault((p.param("peer"), p.param("initiator")), set()).add((p.src, p.dst))
    pairs = {(f"gpu:{a}", f"gpu:{b}") for a in range(4) for b in range(4) if a != b}
    assert paths.pop(("on", "src")) == pairs
    assert {variant: len(of) for variant, of in paths.items()} == {("on", "dst"): 1, ("off", "src"): 1}


def test_above_ten_gpus_each_pair_has_one_bidirectional_point() -> None:
    points = [p for p in ids(gpus=12, suite="quick") if p.benchmark == "d2d" and p.bidirectional]
    assert len(points) == 12 * 11 // 2
    assert all(int(p.src[4:]) < int(p.dst[4:]) for p in points)


def test_the_initiator_has_one_value_if_both_ends_are_one_gpu() -> None:
    points = [p for p in ids() if p.benchmark == "h2h"]
    assert points and {p.param("initiator") for p in points} == {"src"}


def test_quick_is_part_of_standard_and_standard_of_full() -> None:
    quick, standard, full = (set(plan(suite=suite).points) for suite in ("quick", "standard", "full"))
    assert quick < standard < full
    assert {p.bytes for p in ids(suite="full")} == {1 << n for n in range(3, 31)}


def test_a_rule_with_a_parameter_skips_rows_without_it() -> None:
    both = [p for p in ids(suite="quick") if p.bidirectional]
    assert {p.benchmark for p in both} == {"h2d", "d2d"}


def test_full_varies_one_parameter_at_a_time_over_all_values() -> None:
    params = [Param("a", ["1", "2", "3"], ""), Param("b", ["x", "y"], "")]
    row = Benchmark("x", "", "", "ce", "numa", "gpu", "any", [("pinned", "device")], params, taken="unasked")
    points = [PointId.parse(id) for id in make_plan(facts(1), [row], suite="full").points]
    taken = {(p.param("a"), p.param("b")) for p in points if p.bytes == 1 << 20}
    assert taken == {("1", "x"), ("2", "x"), ("3", "x"), ("1", "y")}


@pytest.mark.parametrize(("name", "engine"), [("h2d", "batch"), ("d2h", "graph"), ("pieces", "ce"), ("strided", "ce")])
def test_batched_and_pitched_copies_are_in_full_only(name: str, engine: str) -> None:
    params = [Param("mode", ["batched", "single"], "")]
    params += [Param("piece", ["4096", "64"], "")] if name == "pieces" else []
    row = Benchmark(name, "", "", engine, "numa", "gpu", "any", [("pinned", "device")], params)
    for suite in ("quick", "standard", "sm", "nvbandwidth"):
        with pytest.raises(UserError):
            make_plan(facts(1), [row], suite=suite)
    taken = [PointId.parse(id) for id in make_plan(facts(1), [row], suite="full").points]
    assert taken and (name != "pieces" or {(p.bytes, p.param("piece")) for p in taken} == {
        (1000 * piece, str(piece)) for piece in (64, 4096)
    })  # fmt: skip


def test_a_new_parameter_keeps_its_default_except_in_full() -> None:
    params = [Param("mode", ["batched", "single"], ""), Param("cache", ["cold", "hot"], "")]
    row = Benchmark("x", "", "", "ce", "numa", "gpu", "any", [("pinned", "device")], params, taken="unasked")
    for suite, values in (("quick", {"cold"}), ("standard", {"cold"}), ("full", {"cold", "hot"})):
        made = make_plan(facts(), [row], suite=suite)
        assert {PointId.parse(id).param("cache") for id in made.points} == values


def test_ids_omit_a_default_if_the_row_says_so() -> None:
    """Ids of older runs, which lack the parameter, keep their meaning."""
    params = [Param("mode", ["batched", "single"], ""), Param("cache", ["cold", "hot"], "", default_in_id=False)]
    row = Benchmark("x", "", "", "ce", "numa", "gpu", "any", [("pageable", "device")], params, taken="unasked")
    made = make_plan(facts(1), [row], suite="full").points
    cold, hot = "x/ce/numa:0.pageable->gpu:0.device/1048576?mode=batched", "?cache=hot&mode=batched"
    assert cold in made and cold.replace("?mode=batched", hot) in made
    assert not any("cache=cold" in id for id in made)
    for given in ("", "?mode=batched", "?cache=cold&mode=batched"):
        named = cold.replace("?mode=batched", given)
        assert make_plan(facts(1), [row], suite="quick", only=[named]).points == [cold]
    for id in (cold, cold.replace("?mode=batched", hot)):
        assert make_plan(facts(1), [row], suite="quick", only=[id]).points == [id]
    for wrong, message in (
        ("?cache=warm&mode=batched", "cache is cold or hot, not 'warm'"),
        ("?colour=red&mode=batched", "x has no parameter 'colour'; it has mode, cache"),
    ):
        with pytest.raises(UserError) as refused:
            make_plan(facts(1), [row], only=[cold.replace("?mode=batched", wrong)])
        assert message.replace("it needs", "x needs") in str(refused.value)


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("h2d/ce/numa:0.pinned->gpu:7.device/8", "gpu:7 is not on"),
        ("h2d/ce/numa:0.pinned->gpu:0.device/8?mode=foo", "mode is batched or single, not 'foo'"),
        ("h2d/ce/numa:0.pinned->gpu:0.device/-5", "'-5' is not a size"),
        ("h2d/ce/numa:0.pinned->gpu:0.device/64MiB?mode=batched", "'64MiB' is not a size. Write the number of bytes"),
    ],
)
def test_an_id_with_one_wrong_part_gets_a_message_about_this_part(id: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        make_plan(facts(1), benchmark_table(), only=[id])


def on_sms(machine: MachineFacts) -> dict[tuple[str, str], set[str]]:
    """The SMs whose pointer chases are in suite `full`, by source and destination."""
    found: dict[tuple[str, str], set[str]] = {}
    for one in points_of(SUITES["full"], machine, benchmark_table()):
        if one.param("sm"):
            assert (one.benchmark, one.param("range"), one.param("cache")) == ("latency", "2MiB", "cold")
            found.setdefault((one.src, one.dst), set()).add(one.param("sm"))
    return found


def test_full_chases_pointers_on_some_sms_of_every_gpu_and_on_one_path_per_class_elsewhere() -> None:
    few, small = {"0", "33", "66", "99", "131"}, {"0", "33"}
    gpus = {(f"gpu:{n}", f"gpu:{n}"): few for n in range(4)}
    known = replace(facts(gpus=4), sms={f"gpu:{n}": 132 for n in range(4)})
    assert on_sms(known) == on_sms(facts(gpus=4)) == gpus | {("numa:0", "gpu:0"): few, ("gpu:0", "gpu:1"): few}
    # A smaller GPU uses its existing SMs.
    fewer = on_sms(replace(known, sms=known.sms | {"gpu:1": 66}))
    assert fewer[("gpu:1", "gpu:1")] == small and fewer[("gpu:2", "gpu:2")] == few
    for name in set(SUITES) - {"full"}:
        assert not any(one.param("sm") for one in points_of(SUITES[name], known, benchmark_table()))


def test_hot_copies_have_the_sizes_of_cold_ones() -> None:
    machine = MachineFacts("m", False, ("numa:0", "gpu:0"), {"numa:0": 10 << 20, "gpu:0": 1})
    what = PointId("h2d", "ce", "numa:0", "pageable", "gpu:0", "device", 1 << 20, (("cache", "hot"),))
    assert footprint(what, machine) == 1 << 20


def test_a_new_row_needs_no_code() -> None:
    """Suite `full` measures a new row at a few sizes with every parameter value; other rules name their rows."""
    params = [Param("depth", ["1", "2", "3"], ""), Param("kind", ["a", "b"], "", default_in_id=False)]
    row = Benchmark("chase", "", "", "load_store", "gpu", "numa", "any", [("device", "registered")], params)
    made = make_plan(facts(), [*table(), row], suite="full", only=["chase/*"])
    taken = {(p.bytes, p.param("depth"), p.param("kind")) for p in map(PointId.parse, made.points)}
    values = [("1", ""), ("2", ""), ("3", ""), ("1", "b")]
    assert taken == {(size, *pair) for size in (4096, 1 << 20, 16 << 20) for pair in values}
    for suite in set(SUITES) - {"full"}:
        assert points_of(SUITES[suite], facts(), [*table(), row]) == points_of(SUITES[suite], facts(), table())
    assert set(plan(suite="full").points) < set(make_plan(facts(), [*table(), row], suite="full").points)


@pytest.mark.parametrize(
    ("taken", "unasked", "by_name", "by_memory"),
    [("unasked", True, True, True), ("by_name", False, True, False), ("by_memory", False, False, True)],
)
def test_a_row_states_what_a_rule_must_name(taken: str, unasked: bool, by_name: bool, by_memory: bool) -> None:
    row = Benchmark("x", "", "", "ce", "numa", "gpu", "any", [("wc", "device")], [], taken=taken)
    rule = SUITES["full"].rules[0].__class__
    assert rule((8,)).takes(row) == unasked
    assert rule((8,), benchmarks=("x",)).takes(row) == rule((8,), engines=("ce",)).takes(row) == by_name
    assert rule((8,), memories=("wc", "device")).takes(row) == by_memory
    assert rule((8,), benchmarks=("x",), memories=("wc", "device")).takes(row)
    assert not rule((8,), benchmarks=("y",), memories=("wc", "device")).takes(row)


def test_a_plan_of_two_hosts_includes_paths_between_them() -> None:
    """No platform supports these paths, and each point has a reason. Without the points the gap would be invisible."""
    two = MachineFacts("two", True, ("host:0/numa:0", "host:0/gpu:0", "host:1/numa:0", "host:1/gpu:0"))
    points = [PointId.parse(id) for id in make_plan(two, table()).points]
    for benchmark, count in (("h2d", 4), ("d2h", 4), ("d2d", 2), ("local", 2)):
        assert len({(p.src, p.dst) for p in points if p.benchmark == benchmark}) == count, benchmark


def test_without_gpus_the_host_paths_are_measured() -> None:
    assert {p.benchmark for p in ids(gpus=0)} == {"h2h"}


# A row that needs a GPU, and a row within host memory, as in suite `nvbandwidth`.
TO_GPU = Benchmark("h2d", "", "", "sm", "numa", "gpu", "any", [("pinned", "device")], [])
IN_HOST = Benchmark("h2h", "", "", "cpu", "numa", "numa", "any", [("pinned", "pageable")], [], taken="unasked")


def test_a_suite_that_needs_gpus_says_so_on_a_machine_without_one() -> None:
    """The host's places exist even if CUDA_VISIBLE_DEVICES is empty or the driver is missing."""
    host = MachineFacts("bare", False, ("numa:0", "numa:1"))
    with pytest.raises(UserError) as caught:
        make_plan(host, [TO_GPU, IN_HOST], suite="nvbandwidth")
    message = str(caught.value)
    assert "suite nvbandwidth has no point on bare: the suite needs a GPU" in message and "no place" not in message
    assert caught.value.exit_code == 3
    assert make_plan(host, [TO_GPU, IN_HOST], suite="quick").points  # points without a GPU are measured
    with pytest.raises(UserError, match="no benchmark uses its places"):
        make_plan(MachineFacts("bare", True, ()), [TO_GPU], suite="nvbandwidth")
    with pytest.raises(UserError, match="no benchmark uses its places"):
        make_plan(MachineFacts("odd", True, ("gpu:0",)), [TO_GPU], suite="nvbandwidth")


@pytest.mark.parametrize("suite, example", [("nvbandwidth", ""), ("quick", "for example of h2h/cpu/numa:0.pinned")])
def test_a_glob_that_needs_gpus_says_so_on_a_machine_without_one(suite: str, example: str) -> None:
    host = MachineFacts("bare", False, ("numa:0",))
    with pytest.raises(UserError) as caught:
        make_plan(host, [TO_GPU, IN_HOST], suite=suite, only=["h2d/*"])
    message = str(caught.value)
    assert "--only h2d/* matches no point on bare, which has no GPU" in message and caught.value.exit_code == 3
    assert example in message and "like h2d" not in message and ("for example" in message) == bool(example)
    with pytest.raises(UserError) as caught:
        plan("nonsense*")
    assert "no GPU" not in str(caught.value)


def test_only_selects_points_and_accepts_sizes_outside_the_suite() -> None:
    assert all("gpu:1" in id for id in plan("*gpu:1*").points)
    assert len(plan("d2h/*", "local/*").points) == len(plan("d2h/*").points) + len(plan("local/*").points)
    exact = "h2d/ce/numa:0.pinned->gpu:0.device/12344?bidirectional=false&mode=batched"
    assert plan(exact).points == [exact]


@pytest.mark.parametrize(
    "pattern, words, code",
    [
        ("*gpu:7*", "gpu:7 is not on", 3),
        ("nonsense*", "matches no point", 3),
        ("*/536870912*", "of --suite full", 3),
        ("x2y/ce/numa:0.pinned->gpu:0.device/8?mode=batched", "unknown benchmark 'x2y'", 2),
        ("d2h/ce/gpu:0.device->numa:0.pinned/0?mode=batched", "0 B is not a possible size", 2),
        ("d2h/ce/gpu:0.device->numa:0.pinned/1180591620717411303424?mode=batched", "1 B to 1 EiB", 2),
        ("d2h/ce/numa:0.device->gpu:0.pinned/8?mode=batched", "d2h copies from gpu:N to numa:N", 2),
        ("local/ce/gpu:0.device->gpu:1.device/8?mode=batched", "local needs one place as source and destination", 2),
        ("d2h/ce/gpu:0.device->numa:0.managed/8?mode=batched", "managed", 2),
        ("d2h/ce/gpu:0.device->numa:0.pinned/8?mode=often", "not 'often'", 2),
        ("d2h/sm/gpu:0.device->numa:0.pinned/8?mode=batched", "no engine sm; it has ce", 2),
        ("d2h/ce/gpu:9.device->numa:0.pinned/8?mode=batched", "gpu:9 is not on", 3),
    ],
)
def test_an_only_pattern_without_a_match_is_refused(pattern: str, words: str, code: int) -> None:
    with pytest.raises(UserError, match=words.replace("?", "[?]")) as caught:
        plan(pattern)
    assert caught.value.exit_code == code and pattern in str(caught.value)


def test_an_unknown_suite_and_an_empty_machine_are_refused() -> None:
    with pytest.raises(UserError, match=f"available: {', '.join(SUITES)}"):
        plan(suite="thorough")
    with pytest.raises(UserError) as caught:
        make_plan(MachineFacts("bare", True, ()), table())
    assert caught.value.exit_code == 3


def test_a_plan_is_plain_data() -> None:
    made = plan("d2h/*", precision=0.02, budget_s=10.0)
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(made)), Plan) == made
