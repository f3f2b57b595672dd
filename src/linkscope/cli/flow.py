"""Run several transfers and computations concurrently, and show the rate of each.

linkscope flow "numa:0 -> gpu:0 256MiB x2; gpu:0 -> numa:0; gemm gpu:0 bf16"
linkscope flow --preset ring --seconds 2 --json
linkscope flow --machine h200x4 --file flows.txt     on a model, MODELLED

A flow is a transfer, SRC -> DST, or work: gemm, memory, triad, launch, ping_pong,
read, message. docs/reference/flows.md has the options of each, and the results.
Presets: all-to-host, host-to-all, both, own-thread, ring, all-to-all, one-to-all,
same-path:N.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkscope.cli import options
from linkscope.errors import FINE, UserError
from linkscope.flow import Flow, Transfer, kind_of, parse_flows
from linkscope.units import format_change, format_fraction, format_seconds, parse_duration, with_interval, with_signs

if TYPE_CHECKING:
    from linkscope.run.flows import FlowRates, Measured
    from linkscope.run.target import Target

SUMMARY = "run several transfers and computations concurrently"
TOO_MANY = "write all flows in one text, separated by `;`, as in 'numa:0 -> gpu:0; numa:0 -> gpu:1'"
_MOST_ROUNDS = 100
_MOST_SECONDS = 600.0
_LEAST_SECONDS = 0.02  # two intervals
_MISSED = 0.1  # a prediction that is off by more is said


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `flow`."""
    add = parser.add_argument
    add("text", metavar="TEXT", nargs="?", help="the flows: 'numa:0 -> gpu:0 64MiB; gemm gpu:0'")
    add("--file", metavar="FILE", help="read the flows from a file")
    add("--preset", metavar="NAME", help="run a named set of flows")
    add("--machine", metavar="auto|NAME|FILE", default="auto", help="use this machine (auto, the default), or a model")
    add("--bytes", metavar="SIZE", default="64MiB", help="size of transfers that state none (default 64MiB)")
    add("--seconds", metavar="TIME", default="1", help="time of each round (default 1)")
    add("--rounds", metavar="N", default="6", help="number of rounds (default 6); fewer than 6 give no interval")
    add("--seed", metavar="N", default="1", help="seed of the noise of a model (default 1)")
    add("--against", metavar="NAME|FILE", help="show the prediction of this model beside each rate")
    add("--json", action="store_true", help="print JSON, with the rate in each interval of 10 ms")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope flow`."""
    size = options.size("--bytes", arguments.bytes)
    if size % 8:
        raise UserError(f"--bytes {arguments.bytes}: write a multiple of 8 B")
    rounds = options.whole("--rounds", arguments.rounds, least=1, most=_MOST_ROUNDS)
    seconds = _seconds(arguments.seconds)
    seed = options.whole("--seed", arguments.seed, least=0, most=2**63 - 1)
    text, where = _text(arguments)
    flows = parse_flows(text, where) if text is not None else None
    from linkscope.run import benchmark_table
    from linkscope.run.flows import asked_flows, measure_flows, preset_text
    from linkscope.run.target import choose, with_directory

    target = choose(arguments.machine, seed)
    if flows is None:
        flows = parse_flows(preset_text(arguments.preset, target), f"--preset {arguments.preset}")
    for path in _directories(flows) if not target.modelled else ():
        target = with_directory(target, path, f"disk:{path}")
    measured = measure_flows(target, asked_flows(flows, target, benchmark_table(), size), seconds, rounds)
    predicted = _predicted(arguments.against, target, flows, size)
    if arguments.json:
        print(json.dumps(_as_json(measured, target, predicted)))
    else:
        print("\n".join(_lines(measured, target, predicted)))
    return FINE


def _directories(flows: Sequence[Flow]) -> list[str]:
    """The paths of the disks that the flows name."""
    ends = [end for flow in flows if isinstance(flow, Transfer) for end in (flow.src, flow.dst)]
    return sorted({end.partition(":")[2] for end in ends if kind_of(end) == "disk"})


@dataclass(frozen=True)
class _Prediction:
    """Operations a second of each flow by the model `by`; none for a `reason`."""

    by: str
    per_s: list[float]
    reason: str = ""

    def deviation(self, at: int, flow: "FlowRates") -> float | None:
        """The predicted rate over the measured one, minus 1."""
        return self.per_s[at] * flow.seconds - 1 if self.per_s else None


def _predicted(against: str | None, target: "Target", flows: Sequence[Flow], size: int) -> _Prediction | None:
    """The prediction of the model that `against` names, otherwise of the bundled model of these GPUs.

    None without one, and for a model as the target: its own prediction says nothing.
    """
    from linkscope.cli.predictions import CURE
    from linkscope.machine.choose import bundled_for, model_named
    from linkscope.run.flows import predicted_flows

    if against:
        model = model_named("--against", against, CURE)
        return _Prediction(model.machine.name, [1 / one.seconds for one in predicted_flows(model, flows, size)])
    gpus = () if target.modelled else target.machine.get("gpus", ())
    bundled = bundled_for({f"gpu:{gpu['index']}": gpu.get("name") or "" for gpu in gpus})
    if bundled is None:
        return None
    try:
        return _Prediction(bundled.machine.name, [1 / one.seconds for one in predicted_flows(bundled, flows, size)])
    except UserError as problem:
        return _Prediction(bundled.machine.name, [], str(problem))


def _seconds(text: str) -> float:
    found = parse_duration(text)
    if found is None or not _LEAST_SECONDS <= found <= _MOST_SECONDS:
        raise UserError(f"--seconds {text}: write a time from 0.02 s to 600 s")
    return found


def _text(arguments: argparse.Namespace) -> tuple[str | None, str]:
    """The text of the flows and the name of its place; None for a preset."""
    given = [arguments.text, arguments.file, arguments.preset]
    if sum(one is not None for one in given) != 1:
        raise UserError("give the flows as one of TEXT, --file and --preset; `linkscope flow --help` shows each")
    if arguments.file is None:
        return arguments.text, "flows"
    try:
        return Path(arguments.file).read_text(encoding="utf-8"), arguments.file
    except UnicodeDecodeError:
        raise UserError(f"--file {arguments.file}: this is not a text in UTF-8") from None
    except OSError as error:
        raise UserError(f"--file {arguments.file}: cannot be read: {error.strerror}") from None


def rate_of(flow: "FlowRates") -> tuple[float, str, float]:
    """The rate of a flow in its unit, the unit, and operations a second in one of the unit."""
    if flow.bytes:
        return flow.gbps or 0.0, "GB/s", 1e9 / flow.bytes
    if flow.asked.operations:
        each = 1e12 / flow.asked.operations
        return 1 / flow.seconds / each, "TFLOP/s", each
    return 1 / flow.seconds, "/s", 1.0


def _lines(measured: "Measured", target: "Target", predicted: _Prediction | None) -> list[str]:
    lines = [f"{'MODELLED: ' if target.modelled else ''}{target.machine.get('title') or target.facts.name}"]
    rows = [
        [with_signs(cell) for cell in (*_cells(flow), _model_cell(at, flow, predicted))]
        for at, flow in enumerate(measured.flows)
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    totals = measured.total_gbps
    if sum(flow.bytes > 0 for flow in measured.flows) > 1:
        from linkscope.stats import median, median_interval

        ends = median_interval(totals)
        value, width = with_interval(median(totals), ends.low if ends else None, ends.high if ends else None)
        jain = "" if measured.jain is None else f", fairness {measured.jain:.4f} (Jain's index; 1: equal shares)"
        lines.append(f"total  {value} GB/s {width}".rstrip() + jain)
    rounds = len(measured.common_s)
    ran = f"ran for {format_seconds(min(measured.common_s))} or more in {rounds} round{'s' * (rounds != 1)}"
    if len(measured.flows) > 1:
        ran = (
            f"all {ran}; starts differed by at most {format_seconds(max(measured.start_skew_s))}, "
            f"ends by {format_seconds(max(measured.end_skew_s))}"
        )
    lines.append(with_signs(ran))
    return lines + ([] if predicted is None else [_model_line(measured, predicted)])


def _model_cell(at: int, flow: "FlowRates", predicted: _Prediction | None) -> str:
    off = predicted.deviation(at, flow) if predicted else None
    if predicted is None or off is None:
        return ""
    _, unit, each = rate_of(flow)
    return f"model {predicted.per_s[at] / each:.4g} {unit} ({format_change(off)})"


def _model_line(measured: "Measured", predicted: _Prediction) -> str:
    """How many rates the model misses."""
    if predicted.reason:
        return f"the model {predicted.by} predicts nothing here: {predicted.reason}"
    off = [predicted.deviation(at, flow) or 0.0 for at, flow in enumerate(measured.flows)]
    missed = [str(measured.flows[at].asked.flow) for at, one in enumerate(off) if abs(one) > _MISSED]
    if not missed:
        return f"predictions are MODELLED by {predicted.by}; all are within {format_fraction(_MISSED)}"
    counted = (f"{text} x{count}" if count > 1 else text for text, count in Counter(missed).items())
    listed = with_signs("; ".join(counted))
    return f"predictions are MODELLED by {predicted.by}; off by more than {format_fraction(_MISSED)}: {listed}"


def _cells(flow: "FlowRates") -> list[str]:
    rate, unit, each = rate_of(flow)
    ends = flow.interval
    value, width = with_interval(rate, ends.low / each if ends else None, ends.high / each if ends else None)
    spread = [per_s / each for of_round in flow.interval_per_s for per_s in of_round]
    peak = f"{format_fraction(rate / flow.limit_gbps)} of peak" if flow.limit_gbps and flow.bytes else ""
    parts = f"{min(spread):.4g} to {max(spread):.4g} over 10 ms"
    each_time = f"{format_seconds(flow.seconds)} each"
    if flow.p50_s is not None and flow.p99_s is not None:
        each_time = f"median {format_seconds(flow.p50_s)}, p99 {format_seconds(flow.p99_s)}"
    return [
        str(flow.asked.flow),
        f"{value} {unit} {width}".rstrip(),
        each_time,
        parts,
        peak,
    ]


def _as_json(measured: "Measured", target: "Target", predicted: _Prediction | None) -> dict[str, Any]:
    from linkscope.stats import median, median_interval

    totals = measured.total_gbps
    ends = median_interval(totals)
    return {
        "modelled": target.modelled,
        "machine": target.facts.name,
        "flows": [as_entry(flow) | _predicted_json(at, flow, predicted) for at, flow in enumerate(measured.flows)],
        "predicted_by": predicted.by if predicted else None,
        "not_predicted": predicted.reason or None if predicted else None,
        "total_gbps": median(totals),
        "total_ci95_gbps": [ends.low, ends.high] if ends else None,
        "jain": measured.jain,
        "interval_s": 0.01,
        "rounds": len(measured.common_s),
        "common_s": measured.common_s,
        "start_skew_s": measured.start_skew_s,
        "end_skew_s": measured.end_skew_s,
        "timing": measured.timing,
    }


def _predicted_json(at: int, flow: "FlowRates", predicted: _Prediction | None) -> dict[str, Any]:
    off = predicted.deviation(at, flow) if predicted else None
    per_s = predicted.per_s[at] if predicted and off is not None else None
    gbps = per_s * flow.bytes / 1e9 if per_s and flow.bytes else None
    return {"predicted_per_s": per_s, "predicted_gbps": gbps, "deviation": off}


def as_entry(flow: "FlowRates") -> dict[str, Any]:
    """One flow of the contract. Work has `work` and `place`, and null ends."""
    asked, ends = flow.asked, flow.interval
    of = asked.flow
    unit = flow.bytes / 1e9 if flow.bytes else 1.0
    rate_ends = [ends.low * unit, ends.high * unit] if ends else None
    moves = isinstance(of, Transfer) or asked.work is None
    first = asked.points[0]
    return {
        "src": first.src if moves else None,
        "dst": first.dst if moves else None,
        "src_memory": first.src_memory if moves else None,
        "dst_memory": first.dst_memory if moves else None,
        "engine": first.engine,
        **({"work": asked.work, "place": of.place} if not moves and not isinstance(of, Transfer) else {}),
        "text": str(of),
        "bytes": flow.bytes,
        "gbps": flow.gbps,
        "ci95_gbps": rate_ends if flow.bytes else None,
        "per_s": 1 / flow.seconds,
        "ci95_per_s": [ends.low, ends.high] if ends else None,
        "tflops": asked.operations / flow.seconds / 1e12 if asked.operations else None,
        "seconds": flow.seconds,
        **({"p50_s": flow.p50_s, "p99_s": flow.p99_s} if flow.p50_s is not None else {}),
        "limit_gbps": flow.limit_gbps,
        "of_peak": flow.gbps / flow.limit_gbps if flow.gbps and flow.limit_gbps else None,
        "interval_gbps" if flow.bytes else "interval_per_s": [
            [per_s * unit for per_s in of_round] for of_round in flow.interval_per_s
        ],
    }
