"""Recommend faster transfers on a machine, with their measured gains, from a run or a model.

linkscope advise run.jsonl                                             recommendations, the largest gain first
linkscope advise run.jsonl --src numa:0 --dst gpu:0 --bytes 48MiB      all methods for one transfer, fastest first
linkscope advise run.jsonl --src numa:0 --dst gpu:0 --bytes 48MiB --memory pageable --alone
linkscope advise --machine h200x4 --src numa:0 --dst gpu:1 --bytes 48MiB      the same, MODELLED
linkscope advise --machine jorda-a --talk matrix.txt -o ranks          the GPU of each process, and a rank file

--talk reads who sends how much to whom: one line per sending rank, one size per receiver.

Every gain is a ratio of measured times with a confidence interval. The intervals of a run are simultaneous at 95 %.
Suite `full` measures most recommendations, `standard` those of plain copies.
"""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from linkscope.cli import options, target
from linkscope.cli.runs import read
from linkscope.cli.screen import filled
from linkscope.errors import FINE, NOT_HERE, UserError
from linkscope.units import format_bytes, format_rate, format_seconds_interval

if TYPE_CHECKING:
    from linkscope.advise import Advice, Gain, TransferMethod
    from linkscope.advise.recommendations import Recommendation
    from linkscope.machine.model import Model
    from linkscope.model.curves import Curve
    from linkscope.model.dips import Dip
    from linkscope.runfile import Run

SUMMARY = "recommend faster transfers, with measured gains"
_MOST_METHODS, _MOST_DIPS = 12, 5
_HEADS = ("method", "time [95 % CI]", "rate", "time / fastest")
_INTERPOLATED = "*"  # "~" marks values that missed their precision


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `advise`."""
    add = parser.add_argument
    add("run", metavar="RUN.jsonl", nargs="?", help="the run file (.jsonl or .jsonl.gz)")
    add("--machine", metavar="NAME|FILE", help="a model instead of a run: its methods are simulated")
    add("--src", metavar="PLACE", help="source of one transfer: numa:0, gpu:1")
    add("--dst", metavar="PLACE", help="destination of the transfer")
    add("--bytes", metavar="SIZE", help="size of the transfer, such as 48MiB")
    add("--memory", metavar="KIND", default="", help="only with this kind of host memory, such as pageable")
    add("--alone", action="store_true", help="a single copy with its wait, instead of batched copies")
    add("--talk", metavar="MATRIX", help="place processes on GPUs by a matrix of the bytes they send")
    add("-o", "--output", metavar="FILE", help="write an Open MPI rank file (with --talk)")
    add("--json", action="store_true", help="print JSON")
    target.add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """`linkscope advise`."""
    asked = [arguments.src, arguments.dst, arguments.bytes]
    if (arguments.run is None) == (arguments.machine is None):
        raise UserError("give a run file, or --machine with a model")
    if arguments.output and not arguments.talk:
        raise UserError("-o writes a rank file: add --talk MATRIX")
    if arguments.talk and any((*asked, arguments.memory, arguments.alone)):
        raise UserError("--talk places processes: leave out the options of one transfer")
    if any(asked) and not all(asked):
        raise UserError("--src, --dst and --bytes describe one transfer: give all three, or none")
    if not any(asked) and (arguments.memory or arguments.alone):
        raise UserError("--memory and --alone describe one transfer: add --src, --dst and --bytes")
    size = options.size("--bytes", arguments.bytes) if arguments.bytes else None
    if arguments.talk:
        return _placed(arguments)
    if arguments.machine:
        return _modelled(arguments, size)
    run = read(arguments.run)
    if not any(point.median_s is not None for point in run.points):
        raise UserError(f"{run.path} has no point with a value. Measure again")
    return _one_transfer(arguments, run, size) if size else _everything(arguments, run)


def _placed(arguments: argparse.Namespace) -> int:
    from linkscope.cli import placement

    node = placement.of_model(_model(arguments.machine)) if arguments.machine else placement.of_run(read(arguments.run))
    return placement.place_ranks(arguments, node)


def _model(name: str) -> "Model":
    from linkscope.machine.choose import Modelled, resolve

    choice = resolve(name) if name != "auto" else None
    if not isinstance(choice, Modelled):
        raise UserError(f"--machine {name}: advise needs a model. Measure a machine first: linkscope run -o RUN.jsonl")
    return choice.model


def _modelled(arguments: argparse.Namespace, size: int | None) -> int:
    """Measures the methods of one transfer on a model, and answers from that run."""
    import tempfile
    from pathlib import Path

    from linkscope.plan import Selection, make_plan
    from linkscope.run import benchmark_table, measure
    from linkscope.run.target import modelled

    if size is None:
        raise UserError("--machine needs one transfer: add --src, --dst and --bytes, or --talk MATRIX")
    machine = modelled(_model(arguments.machine), seed=1)
    memory = (arguments.memory,) if arguments.memory else ()
    chosen = Selection((), arguments.src, arguments.dst, memory, (size,))
    plan = make_plan(machine.facts, benchmark_table(), suite="full", selection=chosen)
    with tempfile.TemporaryDirectory(prefix="linkscope-advise-") as folder:
        path = Path(folder) / f"{machine.facts.name}.jsonl"
        measure(machine, plan, path)
        return _one_transfer(arguments, read(path), size)


def _everything(arguments: argparse.Namespace, run: "Run") -> int:
    from linkscope.advise import advice, untried
    from linkscope.advise.text import ratio_text
    from linkscope.model.curves import curves
    from linkscope.model.dips import dips

    found = advice(run.points)
    irregular = sorted(dips(filter(_usual, curves(run.points))), key=lambda dip: -dip.lost)
    if arguments.json:
        print(json.dumps({**_of(run, arguments.run), "advice": [_advice_json(one) for one in found],
                          "irregular": [_dip_json(dip) for dip in irregular],
                          "not_measured": [one.name for one in untried(found)]}))  # fmt: skip
        return FINE
    print(_head(run, arguments.run))
    _print_advice([one for one in found if one.gains])
    none = [one for one in found if not one.gains]
    if none:
        print("\nNo worthwhile gain (less than 5 %, or not certain):")
        for one in none:
            best = max(one.compared, key=lambda gain: gain.interval.low)
            print(filled(f"{one.recommendation.title}: at best {ratio_text(best)}", "   ", "     "))
    _print_dips(irregular)
    _print_untried(untried(found), run)
    return FINE


def _usual(curve: "Curve") -> bool:
    """Whether a dip of the curve is unexpected. Dips are expected where hot caches end, and with few blocks."""
    params = dict(curve.method.params)
    return curve.batched and "cache" not in params and not params.get("blocks", "").isdecimal()


def _head(run: "Run", written: str | None) -> str:
    """The machine, and the run file that the user named."""
    mark = "MODELLED " if run.modelled else ""
    source = f", measured {run.header.started} ({written})" if written else ""
    return f"{mark}{run.header.machine.get('name', '')}{source}"


def _print_advice(found: "Sequence[Advice]") -> None:
    from linkscope.advise.text import details, headline

    if not found:
        print("\nNo recommendation gains 5 % or more in this run.")
    for number, one in enumerate(found, 1):
        print("\n" + filled(f"{number}. {headline(one)}", others="   "))
        for line in details(one):
            print(filled(line, "   ", "     "))
    if found:
        print(
            "\n"
            + filled("Speed-ups are ratios of geometric means of rounds; times are medians. Brackets are 95 % CIs.")
        )


def _print_dips(found: "Sequence[Dip]") -> None:
    from linkscope.model.text import dip_text

    if not found:
        return
    print("\nSizes slower than a smaller size (possible causes: a change of the driver's method, a cache, a setting):")
    for dip in found[:_MOST_DIPS]:
        print(filled(dip_text(dip), "   ", "     "))
    if len(found) > _MOST_DIPS:
        print(f"   and {len(found) - _MOST_DIPS} more; --json lists all")


def _print_untried(recommendations: "Sequence[Recommendation]", run: "Run") -> None:
    if recommendations:
        plan = run.header.plan
        whole = plan.get("suite") == "full" and not plan.get("only")
        cure = "" if whole else "; suite full measures both where the machine supports them"
        print("\n" + filled(f"Not compared, because this run measured only one of the two practices{cure}:"))
        print(filled("; ".join(one.title for one in recommendations), "   ", "   "))


def _one_transfer(arguments: argparse.Namespace, run: "Run", size: int) -> int:
    from linkscope.advise import transfer_methods
    from linkscope.advise.calls import call_text
    from linkscope.advise.transfer_text import names, tie_text, unlisted, unlisted_text
    from linkscope.report.glossary import terms_in
    from linkscope.report.trust import signs_mean

    found = transfer_methods(
        run.points, arguments.src, arguments.dst, size, memory=arguments.memory, alone=arguments.alone
    )
    if not found:
        _refuse(arguments, run, size)
    src, dst = arguments.src, arguments.dst
    missing = unlisted(run.points, src, dst, size, arguments.memory) if arguments.alone else []
    if arguments.json:
        print(json.dumps({**_of(run, arguments.run), "src": src, "dst": dst, "bytes": size,
                          "fastest_call": call_text(found[0].curve.method, src, dst),
                          "ways": [_method_json(method, size) for method in found],
                          "not_listed": [{"ways": count, "reason": reason} for count, reason in missing]}))  # fmt: skip
        return FINE
    print(_head(run, arguments.run))
    mode = "single copies" if arguments.alone else "batched copies"
    print(f"{src} -> {dst}, {format_bytes(size)}, {mode}, fastest first:")
    rows = [
        (name + _between(one), *_value_cells(one, size), _ratio_cell(one, found[0]))
        for name, one in zip(names(found, alone=arguments.alone), found, strict=True)
    ]
    table = [_HEADS, *rows[:_MOST_METHODS]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  " + "  ".join(cells))
    if len(rows) > _MOST_METHODS:
        print(f"  and {len(rows) - _MOST_METHODS} slower methods; --json lists all")
    if tie := tie_text(found):
        print(filled(tie, "  ", "    "))
    print(filled(f"fastest: {call_text(found[0].curve.method, src, dst)}", "  ", "    "))
    for count, reason in missing:
        print(filled(unlisted_text(count, reason), "  ", "    "))
    if missing:
        print("  without --alone, batched copies of all methods are compared")
    if any(len(method.points) > 1 for method in found[:_MOST_METHODS]):
        print(f"  {_INTERPOLATED} interpolated between the two neighbouring sizes")
    for means in signs_mean(" ".join(row[1] for row in rows[:_MOST_METHODS])):
        print(f"  {means}")
    for term, meaning in terms_in(" ".join(row[0] for row in rows[:_MOST_METHODS])):
        print(filled(f"{term}: {meaning}", "  ", "    "))
    return FINE


def _refuse(arguments: argparse.Namespace, run: "Run", size: int) -> NoReturn:
    """Raises UserError: what the run lacks, and how to measure it."""
    from linkscope.advise import kinds, sizes
    from linkscope.model.curves import Path
    from linkscope.model.text import paths_text
    from linkscope.plan import check_written

    src, dst, memory = arguments.src, arguments.dst, arguments.memory
    for option, place in (("--src", src), ("--dst", dst)):
        check_written(option, place)
    measured = [point for point in run.points if point.median_s and point.bytes]
    here = f"{run.path} has no transfer from {src} to {dst}"
    if (src, dst) not in {(point.src, point.dst) for point in measured}:
        there = paths_text(sorted({Path(point.src, point.dst) for point in measured}))
        places = run.header.machine.get("places") or [src, dst]
        if missing := [place for place in (src, dst) if place not in places]:
            raise UserError(f"{here}: its machine has no {missing[0]}, but {', '.join(places)}", NOT_HERE)
        cure = f"linkscope run --suite full --only '*/{src}.*->{dst}.*'"
        raise UserError(f"{here}; it has {there}; measure it: {cure}", NOT_HERE)
    known = kinds(measured, src, dst)
    if memory and memory not in known:
        known_text = f"; it has {', '.join(known)}" if known else ": neither end is on the host"
        raise UserError(f"{here} with {memory} memory{known_text}", NOT_HERE)
    found = sizes(measured, src, dst, memory=memory, alone=arguments.alone)
    mode = "single" if arguments.alone else "batched"
    words = [f"{src} -> {dst} {size}", memory]
    words += [] if arguments.alone else ["batched"]
    cure = f"write '{' '.join(filter(None, words))}' to a file and measure it: linkscope run --trace FILE"
    if not found:
        raise UserError(f"{here} ({mode}); {cure}", NOT_HERE)
    raise UserError(
        f"{here} of {format_bytes(size)} ({mode}), and no neighbouring sizes; it has {format_bytes(found[0])} to "
        f"{format_bytes(found[-1])}; {cure}", NOT_HERE,
    )  # fmt: skip


def _between(method: "TransferMethod") -> str:
    return f" {_INTERPOLATED}" if len(method.points) > 1 else ""


def _ratio_cell(method: "TransferMethod", first: "TransferMethod") -> str:
    """'5.28 [5.19, 5.36]': its time over the fastest time; the ends come from both intervals."""
    from linkscope.units import with_interval

    if method is first:
        return "1"
    ratio = method.time.value / first.time.value
    if method.time.low is None or method.time.high is None or first.time.low is None or first.time.high is None:
        return " ".join(with_interval(ratio, None, None)).strip()
    return " ".join(with_interval(ratio, method.time.low / first.time.high, method.time.high / first.time.low))


def _value_cells(method: "TransferMethod", size: int) -> tuple[str, str]:
    from linkscope.report.trust import inherited, sign_of

    sign = sign_of(method.points) or sign_of(filter(inherited, method.points))
    return (
        sign + format_seconds_interval(method.time.value, method.time.low, method.time.high),
        format_rate(size / method.time.value / 1e9),
    )


def _of(run: "Run", written: str | None) -> dict[str, Any]:
    return {"run": written, "machine": run.header.machine.get("name"), "modelled": run.modelled}


def _advice_json(one: "Advice") -> dict[str, Any]:
    return {
        "habit": one.recommendation.name, "title": one.recommendation.title, "how": one.recommendation.how,
        "typical_gain": one.typical_gain,
        "paid_after": one.paid_after.first if one.paid_after else None,
        "gains": [_gain_json(gain) for gain in sorted(one.compared, key=lambda gain: -gain.interval.low)],
    }  # fmt: skip


def _gain_json(gain: "Gain") -> dict[str, Any]:
    return {
        "now": gain.current.id, "then": gain.recommended.id, "instead": gain.change, "src": gain.current.src,
        "dst": gain.current.dst,
        "bytes": gain.current.bytes, "ratio": gain.ratio, "interval": [gain.interval.low, gain.interval.high],
        "worth": gain.is_worthwhile,
    }  # fmt: skip


def _dip_json(dip: "Dip") -> dict[str, Any]:
    return {"id": dip.point.id, "than": dip.top.id, "lost": dip.lost}


def _method_json(method: "TransferMethod", size: int) -> dict[str, Any]:
    family = method.curve.method.family
    time = method.time
    interval = None if time.low is None or time.high is None else [time.low, time.high]
    return {
        "benchmark": family.benchmark, "engine": family.engine, "src_memory": family.src_memory,
        "dst_memory": family.dst_memory, "params": dict(method.curve.method.params), "seconds": time.value,
        "ci95_s": interval, "gbps": size / time.value / 1e9, "points": [point.id for point in method.points],
    }  # fmt: skip
