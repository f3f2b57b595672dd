"""Run several transfers and work at once, and show the rate of each.

linkscope flow "numa:0 -> gpu:0 256MiB x2; gpu:0 -> numa:0; gemm gpu:0 bf16 8192"
linkscope flow --preset ring --seconds 2 --json
linkscope flow --machine h200x4 --file flows.txt         MODELLED

docs/reference/flows.md describes flows and work: gemm, memory, launch, ping_pong, read, message. A rate is the median
of the rounds, with its 95 % interval. Jain's index is 1 if all transfers are equally fast.

Presets: all-to-host, host-to-all, both, own-thread, ring, all-to-all, one-to-all, same-path:N.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkscope.cli import options
from linkscope.errors import FINE, UserError
from linkscope.flow import Transfer, parse_flows
from linkscope.units import format_fraction, format_seconds, parse_duration, with_interval

if TYPE_CHECKING:
    from linkscope.run.flows import FlowRates, Measured
    from linkscope.run.target import Target

SUMMARY = "run several transfers and work at once"
_MOST_ROUNDS = 100
_MOST_SECONDS = 600.0
_LEAST_SECONDS = 0.02  # two intervals


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `flow`."""
    add = parser.add_argument
    add("text", metavar="TEXT", nargs="?", help="the flows: 'numa:0 -> gpu:0 64MiB; gemm gpu:0'")
    add("--file", metavar="FILE", help="read the flows from a file")
    add("--preset", metavar="NAME", help="a named set of flows")
    add("--machine", metavar="auto|NAME|FILE", default="auto", help="this machine (auto, the default), or a model")
    add("--bytes", metavar="SIZE", default="64MiB", help="size of transfers that state none (default 64MiB)")
    add("--seconds", metavar="TIME", default="1", help="time of each round (default 1)")
    add("--rounds", metavar="N", default="6", help="rounds (default 6); fewer than 6 give no interval")
    add("--seed", metavar="N", default="1", help="seed of the noise of a model (default 1)")
    add("--json", action="store_true", help="print JSON, with the rate in each interval of 10 ms")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope flow`."""
    size = options.size("--bytes", arguments.bytes)
    if size % 8:
        raise UserError(f"--bytes {arguments.bytes}: sizes are multiples of 8 B")
    rounds = options.whole("--rounds", arguments.rounds, least=1, most=_MOST_ROUNDS)
    seconds = _seconds(arguments.seconds)
    seed = options.whole("--seed", arguments.seed, least=0, most=2**63 - 1)
    text, where = _text(arguments)
    flows = parse_flows(text, where) if text is not None else None
    from linkscope.run import benchmark_table
    from linkscope.run.flows import asked_flows, measure_flows, preset_text
    from linkscope.run.target import choose

    target = choose(arguments.machine, seed)
    if flows is None:
        flows = parse_flows(preset_text(arguments.preset, target), f"--preset {arguments.preset}")
    measured = measure_flows(target, asked_flows(flows, target, benchmark_table(), size), seconds, rounds)
    if arguments.json:
        print(json.dumps(_as_json(measured, target)))
    else:
        print("\n".join(_lines(measured, target)))
    return FINE


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


def _value(flow: "FlowRates") -> tuple[float, str, float]:
    """The rate of a flow in its unit, the unit, and operations a second in one of the unit."""
    if flow.bytes:
        return flow.gbps or 0.0, "GB/s", 1e9 / flow.bytes
    if flow.asked.operations:
        each = 1e12 / flow.asked.operations
        return 1 / flow.seconds / each, "TFLOP/s", each
    return 1 / flow.seconds, "/s", 1.0


def _lines(measured: "Measured", target: "Target") -> list[str]:
    lines = [f"{'MODELLED: ' if target.modelled else ''}{target.machine.get('title') or target.facts.name}"]
    rows = [_cells(flow) for flow in measured.flows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    totals = measured.total_gbps
    if sum(flow.bytes > 0 for flow in measured.flows) > 1:
        from linkscope.stats import median, median_interval

        ends = median_interval(totals)
        value, width = with_interval(median(totals), ends.low if ends else None, ends.high if ends else None)
        jain = "" if measured.jain is None else f", Jain's index {measured.jain:.4f}"
        lines.append(f"total  {value} GB/s {width}".rstrip() + jain)
    rounds = len(measured.common_s)
    lines.append(
        f"all ran for {format_seconds(min(measured.common_s))} or more in {rounds} round{'s' * (rounds != 1)}; "
        f"starts differed by at most {format_seconds(max(measured.start_skew_s))}, "
        f"ends by {format_seconds(max(measured.end_skew_s))}"
    )
    return lines


def _cells(flow: "FlowRates") -> list[str]:
    rate, unit, each = _value(flow)
    ends = flow.interval
    value, width = with_interval(rate, ends.low / each if ends else None, ends.high / each if ends else None)
    spread = [per_s / each for of_round in flow.interval_per_s for per_s in of_round]
    peak = f"{format_fraction(rate / flow.limit_gbps)} of peak" if flow.limit_gbps and flow.bytes else ""
    parts = f"{min(spread):.4g} to {max(spread):.4g} in 10 ms"
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


def _as_json(measured: "Measured", target: "Target") -> dict[str, Any]:
    from linkscope.stats import median, median_interval

    totals = measured.total_gbps
    ends = median_interval(totals)
    return {
        "modelled": target.modelled,
        "machine": target.facts.name,
        "flows": [_entry(flow) for flow in measured.flows],
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


def _entry(flow: "FlowRates") -> dict[str, Any]:
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
