"""Turns the rounds of one point into its record: medians, intervals, rates and status."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from linkscope.plan import RULES, Inheritance, Plan, footprint, moved_bytes, precision_target, rounds_wanted, share_s
from linkscope.plan.facts import MachineFacts
from linkscope.run.batches import EVENT_TICK_S, HOST_TICK_S
from linkscope.run.calibrate import NEARLY_TOGETHER
from linkscope.run.states import INTERRUPTED
from linkscope.runfile import TOO_SHORT, Flow, Point, PointId, Round, Spread, flows_by_path, half_width
from linkscope.stats import (
    EARLY_ROUNDS,
    CiMethod,
    Interval,
    Noise,
    bimodal,
    median,
    median_interval,
    rounds_interval,
    student_interval,
    trend,
    variance_split,
)
from linkscope.units import format_against, format_seconds

Limit = Callable[[PointId], tuple[float, str] | None]  # GB/s and its source; None: unknown
NoiseOf = Callable[[PointId], Noise | None]  # of the family of a point; None: unknown
LIMIT_MARGIN = 0.01


CLEAR_TREND = 4.0  # standard deviations: by chance, one in 16,000 points exceeds them


class Assembler:
    """Makes the point records of one run. `noise_of` gives intervals to few rounds, in plans that need them."""

    def __init__(self, plan: Plan, machine: MachineFacts, limit: Limit, noise_of: NoiseOf = lambda point: None) -> None:
        self._plan = plan
        self._machine = machine
        self._limit = limit
        self._noise_of = noise_of

    def point(self, id: str, rounds: Sequence[Round], stopped: str | None = None) -> Point:
        """Makes the record of a point. `stopped`: why the point gets no more rounds although it needs them."""
        point = self.empty(id)
        kept = [round for round in rounds if "throttled" not in round.guards]
        throttled = bool(rounds) and not kept
        if throttled:
            # The supervisor repeats a throttled round once, and the later record counts.
            kept = list({round.round: round for round in rounds}.values())
        if not kept:
            return point
        _fill_values(point, kept, rounds)
        by_other_rule = self._plan.rule != "linkscope" and kept[0].longer is None
        point.precision_target = precision_target(self._plan, point, _resolution(kept[0], point))
        intervals = _Intervals(self._plan.early, self._noise_of(PointId.parse(id)))
        _give_intervals(point, intervals)
        _give_single_intervals(point, kept)
        _set_total(point, kept, intervals, by_other_rule=by_other_rule)
        if RULES[self._plan.rule].mean:
            _set_means(point)
        point.spread = _spread(point.flows[0], point.precision_target)
        self._judge(point, len(kept), stopped, by_other_rule=by_other_rule)
        self._look_for_a_trend(point)
        if throttled and point.status == "ok":
            point.status, point.reason = "missed_precision", "the GPU was throttled in every round"
        self._check_limit(point)
        return point

    def failed(self, id: str, rounds: Sequence[Round], reason: str, *, verified: bool | None = None) -> Point:
        """Makes the record of a failed point: samples but no value."""
        point = self.point(id, rounds)
        point.status, point.reason, point.verified = "failed", reason, verified
        _drop_values(point)
        return point

    def without_value(self, id: str, status: Any, reason: str) -> Point:
        """Makes the record of a point that was not measured: `unsupported` or `skipped`."""
        point = self.empty(id)
        point.status, point.reason = status, reason
        return point

    def inherited(self, inheritance: Inheritance, source: Point) -> Point:
        """Makes the record of a point that inherits the value of another path of its class."""
        point = self.empty(inheritance.id)
        ours, theirs = PointId.parse(inheritance.id), PointId.parse(source.id)
        places = {theirs.src: ours.src, theirs.dst: ours.dst}
        point.flows = [_inherited_flow(flow, places, inheritance) for flow in source.flows]
        main = point.flows[0]
        point.status, point.inherited_from, point.reason = "inherited", source.id, _inherit_reason(inheritance, theirs)
        point.median_s, point.ci95_s, point.gbps = main.median_s, main.ci95_s, main.gbps
        point.total_gbps, point.ci_level, point.ci_method = source.total_gbps, source.ci_level, source.ci_method
        point.precision_target = source.precision_target
        point.guards = {"alike": [float(f"{inheritance.low:.5g}"), float(f"{inheritance.high:.5g}")]}
        if "together_ci95_s" in source.guards:
            low, high = source.guards["together_ci95_s"]
            point.guards["together_s"] = source.guards["together_s"]
            point.guards["together_ci95_s"] = [
                float(f"{end:.9g}") for end in (low * inheritance.low, high * inheritance.high)
            ]
        return point

    def empty(self, id: str) -> Point:
        """Makes the record of an id before its first round."""
        point_id = PointId.parse(id)
        limit = self._limit(point_id)
        return Point(
            id=id, status="skipped", reason="not measured", benchmark=point_id.benchmark, engine=point_id.engine,
            src=point_id.src, dst=point_id.dst, src_memory=point_id.src_memory, dst_memory=point_id.dst_memory,
            bytes=point_id.bytes, bidirectional=point_id.bidirectional, params=dict(point_id.params),
            precision_target=precision_target(self._plan, point_id),
            limit_gbps=limit[0] if limit else None, limit_source=limit[1] if limit else None,
            footprint_bytes=footprint(point_id, self._machine), guards={},
        )  # fmt: skip

    def _judge(self, point: Point, rounds: int, stopped: str | None, *, by_other_rule: bool) -> None:
        """Sets status and reason from the intervals of the measured flows."""
        point.status, point.reason = "ok", None
        in_turn = not by_other_rule and _ran_in_turn(point)
        if in_turn and point.total_gbps:
            _drop_times_of_waiting_flows(point)
        elif not all(flow.median_s is not None and flow.median_s > 0 for flow in point.flows):
            # A call may cost almost nothing, but moving bytes takes time.
            point.status = "failed" if point.bytes else "unsupported"
            point.reason = f"{TOO_SHORT}: the batch took no longer than an empty one"
            if stopped:
                point.guards["stopped"] = stopped
                point.reason += f" in {rounds} of {self._plan.rounds} rounds; {stopped}"
            _drop_values(point)
            return
        widths = [half_width(flow) for flow in point.flows if flow.role == "measured"]
        known = [width for width in widths if width is not None]
        if len(known) < len(widths):
            point.status = "missed_precision"
            enough = "two" if self._plan.early else "six"
            point.reason = f"{rounds} of {self._plan.rounds} rounds: too few for an interval, {enough} are enough"
            if any(seconds <= 0 for flow in point.flows for seconds in flow.round_medians_s):
                point.reason = "noise is as large as the value: in a round the batch took no longer than an empty one"
        elif max(known) > point.precision_target:
            point.status = "missed_precision"
            point.reason = (
                f"after {rounds} rounds the interval is {format_against(max(known), point.precision_target)}"
                f"{self._share_reason(point, rounds)}"
            )
        if in_turn:
            point.status = "missed_precision"
            point.guards["in_turn"] = True
            point.reason = (
                f"the flows ran together for only {point.guards['joint_overlap']:.0%} of the time that the longest "
                "took: the total holds for the whole time, not for flows that run at once"
            )
        few = rounds < self._plan.rounds
        # An interrupted point still gets its other rounds after a resume, even if it is precise already.
        if stopped and (point.status == "missed_precision" or few or stopped == INTERRUPTED):
            point.guards["stopped"] = stopped
            if point.status == "ok" and (not few or (self._plan.early and rounds >= EARLY_ROUNDS)):
                return  # these rounds are enough for status ok
            point.status = "missed_precision"
            point.reason = f"{point.reason or f'{rounds} of {self._plan.rounds} rounds'}; {stopped}"

    def _share_reason(self, point: Point, rounds: int) -> str:
        """Returns why the point gets no more rounds: an expensive, scattered point would use up the time of others."""
        if not self._plan.classes or rounds_wanted(self._plan, point) > rounds:
            return ""
        share = format_seconds(share_s(self._plan))
        return f"; more rounds would exceed its share of the budget, {share}"

    def _look_for_a_trend(self, point: Point) -> None:
        """Reports samples that rise or fall within their rounds: the operation was not warm, or its state changed."""
        for flow in point.flows:
            if point.status not in ("ok", "missed_precision") or not flow.median_s:
                return
            drift = median([(of[-1] - of[0]) / flow.median_s for of in flow.samples_s if of])
            if abs(trend(flow.samples_s)) >= CLEAR_TREND and abs(drift) > point.precision_target:
                point.guards["trend"] = float(f"{drift:.4g}")
                point.status = "missed_precision"
                how = "rise" if drift > 0 else "fall"
                before = f"{point.reason}; " if point.reason else ""
                point.reason = f"{before}the samples of a round {how} by {abs(drift):.0%}: not converged"
                return

    def _check_limit(self, point: Point) -> None:
        """Fails a rate whose whole interval exceeds the hardware limit, since the measurement must be wrong.

        Flows on one path have one joint rate.
        """
        point_id = PointId.parse(point.id)
        for (src, dst), flows in flows_by_path(point.flows).items():
            src_memory, dst_memory = flows[0].src_memory, flows[0].dst_memory
            path_id = dataclasses.replace(point_id, src=src, dst=dst, src_memory=src_memory, dst_memory=dst_memory)
            limit = self._limit(path_id)
            gbps = sum(flow.gbps or 0.0 for flow in flows)
            if len(flows) > 1 or "in_turn" in point.guards:
                # Flows that run in turn each reach the rate of all flows together, so their sum may exceed the limit.
                gbps = min(gbps, point.total_gbps or math.inf)
            if limit is None or gbps <= limit[0] * (1 + LIMIT_MARGIN):
                continue
            point.guards["above_limit"] = gbps
            least = sum(flow.bytes / _upper_end_s(flow) / 1e9 for flow in flows if flow.gbps is not None)
            least = min(least, gbps)
            is_certain = least > limit[0] * (1 + LIMIT_MARGIN)
            point.status = "failed" if is_certain else "missed_precision"
            how = "faster than" if is_certain else "possibly faster than"
            point.reason = (
                f"{how} the hardware allows: {gbps:.4g} GB/s from {src} to {dst}, where the "
                f"limit is {limit[0]:.4g} GB/s ({limit[1]})"
            )
            if is_certain:
                _drop_values(point)
                return


def _ran_in_turn(point: Point) -> bool:
    """Returns whether several flows overlapped for less than 85 % of the time. Parts of one transfer or of one
    computation do not count: they have one rate in either case."""
    parts_of_one = point.bytes > 0 and len(flows_by_path(point.flows)) == 1
    measured = [flow for flow in point.flows if flow.role == "measured"]
    computation = len(measured) == 1 and measured[0].operations and not any(flow.bytes for flow in point.flows)
    return point.guards.get("joint_overlap", 1.0) < NEARLY_TOGETHER and not (parts_of_one or computation)


def _drop_times_of_waiting_flows(point: Point) -> None:
    """Drops times that are not positive: an engine may serve the flows of the longer batch in another order."""
    for flow in point.flows:
        if flow.median_s is not None and flow.median_s <= 0:
            flow.median_s = flow.ci95_s = flow.gbps = None
    main = point.flows[0]
    point.median_s, point.ci95_s, point.gbps = main.median_s, main.ci95_s, main.gbps


def _upper_end_s(flow: Flow) -> float:
    """Returns the upper end of the interval, or the slowest sample if there is no interval."""
    return flow.ci95_s[1] if flow.ci95_s else max(max(of_round) for of_round in flow.samples_s)


def _fill_values(point: Point, kept: Sequence[Round], rounds: Sequence[Round]) -> None:
    first = kept[0]
    point.flows = [_flow(kept, index) for index in range(len(first.flows))]
    main = point.flows[0]
    point.median_s, point.gbps = main.median_s, main.gbps
    point.batch, point.longer, point.timing = first.batch, first.longer, first.timing
    overheads = [round.overhead_s for round in kept if round.overhead_s is not None]
    point.overhead_s = median(overheads) if overheads else None
    checks = [round.verified for round in kept]
    point.verified = all(checks) if None not in checks else None
    point.guards = _guards(kept, rounds)
    if padding := moved_bytes(PointId.parse(point.id)) - point.bytes:
        point.guards["padding_bytes"] = padding
    point.device_s = float(f"{sum(round.device_s for round in rounds):.9g}")


def _flow(rounds: Sequence[Round], index: int) -> Flow:
    facts = rounds[0].flows[index]
    samples = [round.flows[index].samples_s for round in rounds]
    medians = [median(of_round) for of_round in samples]
    value = median(medians)
    return Flow(
        src=facts.src, dst=facts.dst, src_memory=facts.src_memory, dst_memory=facts.dst_memory, bytes=facts.bytes,
        role=facts.role, round_medians_s=medians, samples_s=samples, median_s=value, ci95_s=None,
        gbps=facts.bytes / value / 1e9 if facts.bytes and value > 0 else None,
        p50_s=_median_of_all([round.flows[index].p50_s for round in rounds]),
        p99_s=_median_of_all([round.flows[index].p99_s for round in rounds]),
        operations=facts.operations,
    )  # fmt: skip


def _median_of_all(values: Sequence[float | None]) -> float | None:
    """None if a round lacks its value: the others alone may be the fast ones, which had enough operations."""
    known = [value for value in values if value is not None]
    return median(known) if len(known) == len(values) else None


@dataclasses.dataclass(frozen=True)
class _Intervals:
    """Computes the intervals of a point. `early`: a point may have few rounds, and `noise` is that of its family."""

    early: bool
    noise: Noise | None

    def of(self, medians: Sequence[float]) -> tuple[Interval, CiMethod] | None:
        """Returns the interval of the median of the rounds; None for too few rounds, or if the interval reaches
        zero."""
        if self.early:
            found = rounds_interval(medians, self.noise)
        else:
            interval = median_interval(medians)
            found = (interval, "order_statistics") if interval else None
        # Every operation takes time. An interval that contains zero only shows that noise hides the value.
        return None if found is None or found[0].low <= 0 else found


def _give_intervals(point: Point, intervals: _Intervals) -> None:
    for flow in point.flows:
        found = intervals.of(flow.round_medians_s)
        flow.ci95_s = (found[0].low, found[0].high) if found else None
        if found and flow is point.flows[0]:
            point.ci95_s, point.ci_level, point.ci_method = flow.ci95_s, found[0].level, found[1]


def _give_single_intervals(point: Point, kept: Sequence[Round]) -> None:
    """Gives the median and the p99 of single operations intervals by their own rounds: a family's noise is of means."""
    for index, flow in enumerate(point.flows):
        flow.p50_ci95_s = _interval_of_all([round.flows[index].p50_s for round in kept])
        flow.p99_ci95_s = _interval_of_all([round.flows[index].p99_s for round in kept])


def _interval_of_all(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    found = median_interval(known) or student_interval(known)
    if found is None or len(known) < len(values):
        return None
    middle = median(known)  # which rounding of logarithms can leave outside, where the rounds are equal
    return min(found.low, middle), max(found.high, middle)


def _set_total(point: Point, kept: Sequence[Round], intervals: _Intervals, *, by_other_rule: bool) -> None:
    """Sets the rate of all measured flows: their bytes over the time from the common start to the end of the last flow.

    Every round uses this definition, however well its flows overlap. The sum of the flows' own rates is not the joint
    rate: the flow that ends last runs alone at the end, so the sum exceeds the bytes over the elapsed time (by 12 % on
    H200 at an overlap of 0.9).
    """
    measured = [flow for flow in point.flows if flow.role == "measured"]
    rates = [flow.gbps for flow in measured if flow.gbps is not None]
    point.total_gbps = sum(rates) if rates else None
    if len(point.flows) < 2 or not rates or (by_other_rule and "together_s" not in kept[-1].guards):
        return
    rounds_s = [_joint_s(round) for round in kept]
    together_s, found = median(rounds_s), intervals.of(rounds_s)
    point.guards["together_s"] = float(f"{together_s:.9g}")
    if found:
        point.guards["together_ci95_s"] = [float(f"{end:.9g}") for end in (found[0].low, found[0].high)]
    point.total_gbps = sum(flow.bytes for flow in measured) / together_s / 1e9 if together_s > 0 else None


def _joint_s(round: Round) -> float:
    """Returns the seconds until the last measured flow ended, for the bytes of one operation of each flow.

    Older run files hold each flow's own time instead. The time of the longest batch is the same.
    """
    if "together_s" in round.guards:
        return float(round.guards["together_s"])
    counts = [round.batch[at * len(round.batch) // len(round.flows)] for at in range(len(round.flows))]
    measured = [(count, flow) for count, flow in zip(counts, round.flows, strict=True) if flow.role == "measured"]
    moved = sum(count * flow.bytes for count, flow in measured)
    longest_s = max(count * median(flow.samples_s) for count, flow in measured)
    return longest_s * sum(flow.bytes for _, flow in measured) / moved


def _set_means(point: Point) -> None:
    for flow in point.flows:
        samples = [sample for of_round in flow.samples_s for sample in of_round]
        flow.mean_s = statistics.fmean(samples)
        flow.stddev_s = statistics.stdev(samples) if len(samples) > 1 else None


def _spread(flow: Flow, precision: float) -> Spread | None:
    """Returns the spread within and between rounds, and two modes if several rounds have samples on both sides of a
    gap.

    If each round lies wholly on one side, the processes differ, and one process has no modes. Modes closer than the
    target count as one: they may be two neighbouring readings of a clock.
    """
    split = variance_split(flow.samples_s)
    if split is None or not flow.median_s or flow.median_s <= 0:
        return None
    modes = bimodal([sample for samples in flow.samples_s for sample in samples])
    if modes is not None:
        border = sum(modes) / 2
        straddling = sum(min(samples) < border < max(samples) for samples in flow.samples_s)
        modes = modes if straddling >= 2 and modes[1] - modes[0] > precision * flow.median_s else None
    return Spread(
        within_rounds=float(f"{split.within**0.5 / flow.median_s:.4g}"),
        between_rounds=float(f"{split.between**0.5 / flow.median_s:.4g}"),
        modes_s=modes,
    )


def _guards(kept: Sequence[Round], rounds: Sequence[Round]) -> dict[str, Any]:
    """Merges the guards of all rounds (the latest value of each), and lists throttled rounds with their samples."""
    guards: dict[str, Any] = {}
    for round in kept:
        guards.update(round.guards)
    overlaps = [round.guards["joint_overlap"] for round in kept if "joint_overlap" in round.guards]
    if overlaps:
        guards["joint_overlap"] = float(f"{median(overlaps):.4g}")
    costs = [round.guards["stamp_cost_s"] for round in kept if "stamp_cost_s" in round.guards]
    if costs:
        guards["stamp_cost_s"] = float(f"{median(costs):.4g}")
    spent = [round.guards["spent"] for round in rounds if "spent" in round.guards]
    if spent:
        guards["spent"] = {name: float(f"{sum(of[name] for of in spent):.3g}") for name in spent[0]}
    timings = sorted({round.timing for round in kept})
    if len(timings) > 1:
        guards["timings"] = timings
    ours = {id(round) for round in kept}  # by identity: a repeated round of a model has the same content
    excluded = [round for round in rounds if id(round) not in ours]
    if excluded:
        guards["throttled_rounds"] = [
            {
                "round": round.round,
                "reasons": round.guards["throttled"],
                "samples_s": [flow.samples_s for flow in round.flows],
            }
            for round in excluded
        ]
    return guards


def _inherited_flow(flow: Flow, places: dict[str, str], inheritance: Inheritance) -> Flow:
    """Returns the flow between the places of the inheriting path. The difference between the paths widens the
    interval."""
    ends = flow.ci95_s
    return Flow(
        src=places.get(flow.src, flow.src), dst=places.get(flow.dst, flow.dst), src_memory=flow.src_memory,
        dst_memory=flow.dst_memory, bytes=flow.bytes, role=flow.role, round_medians_s=[], samples_s=[],
        median_s=flow.median_s, ci95_s=(ends[0] * inheritance.low, ends[1] * inheritance.high) if ends else None,
        gbps=flow.gbps, operations=flow.operations,
    )  # fmt: skip


def _inherit_reason(inheritance: Inheritance, source: PointId) -> str:
    checks = "spot checks show that both perform alike" if inheritance.shown else "spot checks show no difference"
    return f"not measured: value of {source.src} -> {source.dst}, a path of the same class; {checks}"


def _resolution(round: Round, point: Point) -> float:
    """Returns one clock tick over the extra operations of the longer batch, as a fraction of the value."""
    tick = HOST_TICK_S if round.timing == "host" else EVENT_TICK_S
    more = min(round.batch) * max((round.longer or 2) - 1, 1)
    return tick / more / point.median_s if point.median_s and point.median_s > 0 else 0.0


def _drop_values(point: Point) -> None:
    point.median_s = point.ci95_s = point.gbps = point.total_gbps = point.spread = None
    point.ci_level = point.ci_method = None
    for flow in point.flows:
        flow.median_s = flow.ci95_s = flow.gbps = flow.mean_s = flow.stddev_s = None
