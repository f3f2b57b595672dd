"""The assembler keeps the interval, peak, verification and clock of every flow in the point's record."""

import math
from typing import Any

import msgspec
import pytest

from fakes import H2D, facts, plan
from linkscope.plan import Inheritance, rounds_wanted
from linkscope.plan.classes import PathClass
from linkscope.run.assemble import Assembler
from linkscope.run.batches import EVENT_TICK_S
from linkscope.run.states import INTERRUPTED, finished
from linkscope.run.target import modelled, this_machine
from linkscope.runfile import PointId, Round, RoundFlow
from linkscope.stats import families

BOTH = H2D.format(1 << 20, "true", "batched")
ONE = H2D.format(8, "false", "batched")


def round_of(number: int, *samples: list[float], roles: tuple[str, ...] = ("measured",) * 2, **fields: Any) -> Round:
    """One round with a flow for each list of samples; the second flow has the opposite direction."""
    ends = [("numa:0", "gpu:0", "pinned", "device"), ("gpu:0", "numa:0", "device", "pinned")]
    size = 1 << 20 if len(samples) > 1 else 8
    flows = [RoundFlow(*ends[at], size, roles[at], list(of)) for at, of in enumerate(samples)]  # type: ignore[arg-type]
    made = {"batch": [64] * len(samples), "overhead_s": 1e-6, "timing": "gate+slope", "verified": True, "guards": {}}
    return Round(id=BOTH if len(samples) > 1 else ONE, round=number, flows=flows, device_s=1e-3, **{**made, **fields})


def assembler(limit: Any = None, **wishes: Any) -> Assembler:
    return Assembler(plan(BOTH, ONE, **wishes), facts(), limit or (lambda point: None))


def steady_and_restless() -> list[Round]:
    return [round_of(n, [20e-6] * 3, [20e-6 * (1 + 0.02 * n)] * 3) for n in range(6)]


def test_the_widest_interval_of_the_measured_flows_decides() -> None:
    assert assembler().point(BOTH, steady_and_restless()).status == "missed_precision"


@pytest.mark.parametrize("falling", [0, 1])
def test_a_trend_in_any_flow_of_a_point_misses_precision(falling: int) -> None:
    """Samples of one flow fall by 10 % in every round, and its round medians agree."""
    moving, still = [21e-6, 20.5e-6, 20e-6, 19.5e-6, 19e-6], [20e-6] * 5
    flows = [moving if at == falling else still for at in range(2)]
    found = assembler().point(BOTH, [round_of(n, *flows) for n in range(6)])
    assert found.status == "missed_precision" and found.guards["trend"] == pytest.approx(-0.1)
    assert assembler().point(BOTH, [round_of(n, still, still) for n in range(6)]).status == "ok"


def test_a_background_flow_has_no_precision_and_adds_nothing_to_the_total() -> None:
    rounds = [round_of(n, [20e-6], [20e-6 * (1 + 0.02 * n)], roles=("measured", "background")) for n in range(6)]
    found = assembler().point(BOTH, rounds)
    assert found.status == "ok" and found.total_gbps == found.gbps


def test_the_opposite_flow_has_a_limit_of_its_own() -> None:
    def limit(point: PointId) -> tuple[float, str]:
        return (60.0, "there") if point.src == "numa:0" else (40.0, "back")

    rounds = [round_of(n, [20e-6], [20e-6]) for n in range(6)]  # 52.4 GB/s
    found = assembler(limit).point(BOTH, rounds)
    assert found.status == "failed" and "from gpu:0 to numa:0" in (found.reason or "") and found.total_gbps is None


def test_a_flow_without_time_fails_the_point() -> None:
    found = assembler().point(BOTH, [round_of(n, [20e-6], [-1e-9]) for n in range(6)])
    assert found.status == "failed" and "too short for the clock" in (found.reason or "")
    assert all(flow.gbps is None and flow.median_s is None for flow in found.flows)


def test_a_point_without_time_in_a_stopped_run_is_measured_after_resume() -> None:
    rounds = [round_of(n, [seconds]) for n, seconds in enumerate((3e-6, -6e-6))]
    found = assembler().point(ONE, rounds, INTERRUPTED)
    assert found.status == "failed" and "in 2 of 6 rounds; the run was stopped" in (found.reason or "")
    assert finished([found, assembler().point(ONE, rounds)]).keys() == {
        ONE
    }  # only the point of the complete run is finished
    assert finished([found]) == {}


def test_a_negative_round_leaves_a_point_without_an_interval_and_the_run_continues() -> None:
    """A slope may be negative on a busy machine: three rounds of `quick`, one of them negative."""
    shared = with_early_stops(precision=None)
    found = shared.point(ONE, [round_of(n, [seconds]) for n, seconds in enumerate((2e-6, 3e-6, -1e-6))])
    assert found.status == "missed_precision" and found.median_s == 2e-6 and found.ci95_s is None
    assert "noise is as large" in (found.reason or "")
    positive = shared.point(ONE, [round_of(n, [seconds]) for n, seconds in enumerate((2e-6, 3e-6, 1e-6))])
    assert positive.ci95_s is not None and positive.ci95_s[0] < 2e-6 < positive.ci95_s[1]


def test_no_interval_has_a_negative_end() -> None:
    """Order statistics of six rounds, one of them negative because of noise."""
    seconds = [2.5e-6, 2.6e-6, 37.9e-6, 2.7e-6, -14.3e-6, 20e-6]
    found = assembler().point(ONE, [round_of(n, [of]) for n, of in enumerate(seconds)])
    assert found.status == "missed_precision" and found.ci95_s is None and found.median_s == 2.65e-6
    assert "noise is as large" in (found.reason or "") and found.flows[0].ci95_s is None


def test_a_rate_whose_interval_alone_exceeds_the_peak_misses_precision() -> None:
    def limit(point: PointId) -> tuple[float, str]:
        return 60.0, "the link"

    rounds = [round_of(n, [(17 + 0.2 * n) * 1e-6], [20e-6]) for n in range(6)]  # 61.7 to 58.3 GB/s
    found = assembler(limit).point(BOTH, rounds)
    assert found.gbps == pytest.approx(60.0, abs=0.1) and found.status != "failed"  # within the margin
    rounds = [round_of(n, [(16.4 + 0.2 * n) * 1e-6], [20e-6]) for n in range(6)]  # 63.9 to 60.2 GB/s
    found = assembler(limit).point(BOTH, rounds)
    assert found.status == "missed_precision" and "possibly faster than" in (found.reason or "")
    assert found.guards["above_limit"] == found.gbps
    rounds = [round_of(n, [(16.4 + 0.02 * n) * 1e-6], [20e-6]) for n in range(6)]  # 63.9 to 63.5 GB/s
    assert assembler(limit).point(BOTH, rounds).status == "failed"


def test_an_operation_of_no_cost_is_not_measured_and_not_failed() -> None:
    call = "allocation/cpu/numa:0.registered->gpu:0.device/0?phase=allocate&size=4KiB"
    flow = RoundFlow("numa:0", "gpu:0", "registered", "device", 0, "measured", [-1e-9])
    rounds = [msgspec.structs.replace(round_of(n, [-1e-9]), id=call, flows=[flow]) for n in range(6)]
    found = Assembler(plan(ONE), facts(), lambda point: None).point(call, rounds)
    assert (
        found.status == "unsupported" and "too short for the clock" in (found.reason or "") and found.median_s is None
    )


@pytest.mark.parametrize(
    "checks, verified", [([True] * 6, True), ([True] * 5 + [None], None), ([None] * 6, None)], ids=str
)
def test_a_point_is_verified_if_every_round_is(checks: list[bool | None], verified: bool | None) -> None:
    rounds = [round_of(n, [2e-6], verified=one) for n, one in enumerate(checks)]
    assert assembler().point(ONE, rounds).verified is verified


def test_the_target_of_short_operations_allows_two_clock_ticks() -> None:
    rounds = [round_of(n, [0.4e-6], batch=[2]) for n in range(6)]
    found = assembler().point(ONE, rounds)
    assert found.precision_target == pytest.approx(2 * EVENT_TICK_S / 2 / 0.4e-6)
    by_host = assembler().point(ONE, [msgspec.structs.replace(one, timing="host") for one in rounds])
    assert by_host.precision_target > 2 * found.precision_target


def test_overhead_covers_all_rounds_and_device_time_also_throttled_ones() -> None:
    rounds = [round_of(n, [2e-6], overhead_s=1e-6 * (9 if n == 0 else 1)) for n in range(6)]
    rounds.append(round_of(3, [9e-6], guards={"throttled": ["hw_thermal"]}))
    found = assembler().point(ONE, rounds)
    assert found.overhead_s == 1e-6 and found.device_s == pytest.approx(7e-3)
    assert found.median_s == 2e-6 and len(found.flows[0].round_medians_s) == 6


def test_every_round_has_the_same_weight_whatever_its_number_of_samples() -> None:
    rounds = [round_of(number, [2e-6] * 4) for number in range(5)] + [round_of(5, [9e-6] * 100)]
    assert assembler().point(ONE, rounds).median_s == 2e-6


def test_rounds_with_different_timings_list_all_of_them() -> None:
    rounds = [round_of(n, [2e-6], timing="host" if n == 4 else "gate+slope") for n in range(6)]
    assert assembler().point(ONE, rounds).guards["timings"] == ["gate+slope", "host"]


def test_modes_are_found_within_one_process() -> None:
    apart = [round_of(n, [2e-6 if n % 2 else 3e-6] * 4) for n in range(6)]
    assert assembler().point(ONE, apart).spread.modes_s is None
    each = [round_of(n, [2e-6, 2e-6, 3e-6, 3e-6]) for n in range(6)]
    assert assembler().point(ONE, each).spread.modes_s == (2e-6, 3e-6)


@pytest.mark.parametrize("apart, reported", [(1.003, False), (1.05, True)])
def test_modes_closer_than_the_precision_are_not_reported(apart: float, reported: bool) -> None:
    rounds = [round_of(n, [2e-6, 2e-6, 2e-6 * apart, 2e-6 * apart]) for n in range(6)]
    found = assembler(precision=0.01).point(ONE, rounds)
    assert found.precision_target == 0.01
    assert found.spread is not None and found.spread.modes_s == ((2e-6, 2e-6 * apart) if reported else None)


def test_peaks_of_a_model_follow_the_peer_setting() -> None:
    from linkscope.machine import model as models

    target = modelled(models.load("ac922"), 1)
    ends = "d2d/ce/gpu:0.device->gpu:2.device/8?peer={}"
    near = "d2d/ce/gpu:0.device->gpu:1.device/8?peer={}"
    on, off = (target.limit(PointId.parse(near.format(peer))) for peer in ("on", "off"))
    assert on is not None and off is not None and target.limit(PointId.parse(ends.format("off"))) is not None
    assert models.limit_through_host(models.load("ac922"), "gpu:0", "gpu:1").derivation == off[1] != on[1]
    assert target.limit(PointId.parse("staged/ce/gpu:0.device->gpu:1.device/8?ring=numa:0")) == off


@pytest.mark.parametrize("form", ["h2d/ce/numa:0.pinned->gpu:2.device/8{}", "d2h/ce/gpu:2.device->numa:0.pinned/8{}"])
def test_the_peak_of_memory_without_binding_is_that_of_the_best_node(form: str) -> None:
    from linkscope.machine import model as models

    target = modelled(models.load("ac922"), 1)
    bound, free, near = (
        target.limit(PointId.parse(id))
        for id in (form.format(""), form.format("?binding=none"), form.format("").replace("numa:0", "numa:1"))
    )
    assert bound is not None and near is not None and free == near and near[0] > bound[0]


def test_peaks_of_this_machine_receive_peer_and_direction(monkeypatch) -> None:
    requested: list[tuple[bool, bool | None]] = []

    def limit(machine, transfer):
        from linkscope.machine.limits import Limit

        requested.append((transfer.bidirectional, transfer.peer))
        return Limit(None, "not known")

    monkeypatch.setattr("linkscope.machine.limits.limit", limit)
    here = this_machine()
    for params in ("bidirectional=true&peer=on", "bidirectional=false&peer=off", "bidirectional=false"):
        here.limit(PointId.parse(f"d2d/ce/gpu:0.device->gpu:1.device/8?{params}"))
    assert requested == [(True, True), (False, False), (False, None)]


@pytest.mark.parametrize("pair", [("numa:0", "gpu:0"), ("gpu:0", "numa:0")])
def test_the_memory_of_either_end_limits_a_simulated_rate(pair: tuple[str, str]) -> None:
    from linkscope.machine import model as models

    content = models.load("h200x4").to_json()
    content["numa"][0]["dram_gbps"]["v"] = 10.0
    assert models.limits(msgspec.convert(content, models.Model))[pair].gbps == 10.0


def test_flows_that_ran_in_turn_have_a_total_and_a_reason_and_get_no_more_rounds() -> None:
    rounds = [round_of(n, [40e-6] * 3, [40e-6] * 3, guards={"joint_overlap": 0.5}) for n in range(6)]
    point = assembler().point(BOTH, rounds)
    assert point.total_gbps == pytest.approx(2 * (1 << 20) / 40e-6 / 1e9)
    assert point.status == "missed_precision" and "only 50%" in point.reason and point.guards["in_turn"] is True
    assert rounds_wanted(plan(BOTH), point) == 6


def test_one_round_whose_flows_ran_in_turn_does_not_mark_the_point() -> None:
    rounds = [round_of(n, [40e-6], [40e-6], guards={"joint_overlap": 0.5 if n == 5 else 0.96}) for n in range(6)]
    point = assembler().point(BOTH, rounds)
    assert point.guards["joint_overlap"] == 0.96 and point.status == "ok" and "in_turn" not in point.guards


def test_the_time_spent_includes_throttled_rounds() -> None:
    rounds = [round_of(n, [2e-6], guards={"spent": {"samples_s": 0.25}}) for n in range(6)]
    rounds.append(round_of(5, [9e-6], guards={"spent": {"samples_s": 0.5}, "throttled": ["hw_thermal"]}))
    point = assembler().point(ONE, rounds)
    assert point.guards["spent"] == {"samples_s": 2.0} and point.median_s == 2e-6


@pytest.mark.parametrize("limit, status", [(52.0, "ok"), (51.8, "failed")])
def test_a_rate_fails_from_one_percent_above_the_limit(limit: float, status: str) -> None:
    """1 MiB in 20 us is 52.43 GB/s, which exceeds the two limits by 0.8 % and 1.2 %."""
    made = assembler(lambda point: (limit, "the link"))
    point = made.point(BOTH, [round_of(n, [20e-6], [20e-6]) for n in range(6)])
    assert point.status == status and ("above_limit" in point.guards) is (status == "failed")


def test_a_point_that_failed_keeps_its_samples_and_no_value() -> None:
    made = assembler()
    made._plan = msgspec.structs.replace(made._plan, rule="comm-scope")
    rounds = [round_of(n, [20e-6, 21e-6], [22e-6, 20e-6]) for n in range(6)]
    point, complete = made.failed(BOTH, rounds, "wrong data", verified=False), made.point(BOTH, rounds)
    values = ("median_s", "ci95_s", "gbps", "total_gbps", "ci_level", "spread")
    assert all(getattr(complete, name) is not None and getattr(point, name) is None for name in values)
    for one, other in zip(complete.flows, point.flows, strict=True):
        for name in ("median_s", "ci95_s", "gbps", "mean_s", "stddev_s"):
            assert getattr(one, name) is not None and getattr(other, name) is None
        assert one.samples_s == other.samples_s != []


def test_an_inherited_point_has_the_precision_target_of_its_source() -> None:
    """Two clock ticks matter equally for both points."""
    source = assembler().point(ONE, [round_of(n, [0.4e-6], batch=[2]) for n in range(6)])
    assert source.precision_target > assembler().empty(ONE).precision_target
    found = assembler().inherited(Inheritance(ONE.replace("gpu:0", "gpu:1"), ONE, 1.0, 1.0, shown=True), source)
    assert found.precision_target == source.precision_target


def test_by_the_rule_of_nvbandwidth_the_total_is_all_bytes_over_the_joint_time() -> None:
    guards = {"joint_overlap": 0.5, "together_s": 50e-6}
    by_rule = assembler()
    by_rule._plan = msgspec.structs.replace(by_rule._plan, rule="nvbandwidth")
    point = by_rule.point(BOTH, [round_of(0, [40e-6] * 3, [20e-6] * 3, guards=guards)])
    assert point.total_gbps == pytest.approx(2 * (1 << 20) / 50e-6 / 1e9) and "in_turn" not in point.guards
    one = round_of(0, [40e-6] * 3, [20e-6] * 3, guards=guards, roles=("measured", "background"))
    assert by_rule.point(BOTH, [one]).total_gbps == pytest.approx((1 << 20) / 50e-6 / 1e9)


def test_the_reason_rules_out_more_rounds_only_where_none_are_wanted() -> None:
    classes = [PathClass("host to GPU", ["numa:0->gpu:0"])]
    shared = msgspec.structs.replace(plan(ONE, precision=0.01, budget_s=1e3), classes=classes, early=True)
    made = Assembler(shared, facts(), lambda point: None)
    for apart, wanted in ((0.008, 6), (0.5, 6)):
        point = made.point(ONE, [round_of(n, [2e-6 * (1 + apart * n)]) for n in range(3)])
        assert point.status == "missed_precision" and rounds_wanted(shared, point) == wanted
        assert "more rounds would exceed" not in (point.reason or "")
    point = made.point(ONE, [round_of(n, [2e-6 * (1 + 0.5 * n)]) for n in range(6)])
    assert rounds_wanted(shared, point) == 6 and "more rounds would exceed its share" in (point.reason or "")


def test_few_rounds_reach_the_precision_by_the_noise_of_their_family_and_the_record_names_the_method() -> None:
    calm, loud = with_early_stops(0.0005), with_early_stops(0.05)
    three = [round_of(number, [seconds] * 3) for number, seconds in enumerate((2e-6, 2.001e-6, 1.999e-6))]
    found = calm.point(ONE, three)
    assert (found.status, found.ci_method, found.ci_level) == ("ok", "pooled", 0.95)
    assert loud.point(ONE, three).status == "missed_precision"
    assert assembler().point(ONE, three).ci_method is None
    assert assembler().point(ONE, [round_of(n, [2e-6]) for n in range(6)]).ci_method == "order_statistics"


def test_few_rounds_that_were_not_throttled_are_enough_if_they_reach_the_precision() -> None:
    shared = with_early_stops(0.0005)
    three = [round_of(number, [2e-6] * 3) for number in range(3)]
    throttled = round_of(3, [2.3e-6] * 3, guards={"throttled": ["power"]})
    assert shared.point(ONE, [*three, throttled]).status == "ok"
    assert shared.point(ONE, [*three[:2], throttled], "the budget is spent").status == "missed_precision"


def with_early_stops(deviation: float = 0.01, precision: float | None = 0.01) -> Assembler:
    """An assembler of a plan whose points may stop early. Rounds of their family scatter by `deviation`."""
    classes = [PathClass("host to GPU", ["numa:0->gpu:0"])]
    rounds = [[1.0, math.exp(deviation), math.exp(-deviation)]] * 50
    noise = families({"": rounds}, str)[""]
    made = msgspec.structs.replace(plan(ONE, precision=precision), classes=classes, early=True)
    return Assembler(made, facts(), lambda point: None, lambda point: noise)
