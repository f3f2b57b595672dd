"""Say what to do otherwise on a machine, and what it gains, from what a run measured there.

linkscope advise run.jsonl                                                  every habit that costs, and its cure
linkscope advise run.jsonl --src numa:0 --dst gpu:0 --bytes 48MiB           the ways of one transfer, the fastest first
linkscope advise run.jsonl --src numa:0 --dst gpu:0 --bytes 48MiB --memory pageable --alone
linkscope advise run.jsonl --json

Every gain is a ratio of times that this run has, with the interval of that ratio; all of them hold together in 95 % of
runs. Suite `full` has most habits both ways, `standard` those of plain copies.
"""

import argparse
import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from linkscope.cli.runs import read
from linkscope.cli.screen import filled
from linkscope.errors import FINE, NOT_HERE, UserError
from linkscope.units import format_bytes, format_rate, format_seconds_interval, parse_bytes

if TYPE_CHECKING:
    from linkscope.advise import Advice, Gain, TransferMethod
    from linkscope.advise.recommendations import Recommendation
    from linkscope.model.curves import Curve
    from linkscope.model.dips import Dip
    from linkscope.runfile import Run

SUMMARY = "say what to do otherwise, and what it gains, from what a run measured"
_MOST_WAYS, _MOST_DIPS = 12, 5
_HEADS = ("method", "time [interval]", "rate", "times the first")
_BETWEEN = "*"  # not "~", which stands before what missed its precision


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `advise`."""
    add = parser.add_argument
    add("run", metavar="RUN.jsonl", help="the run file (.jsonl or .jsonl.gz)")
    add("--src", metavar="PLACE", help="one transfer: from numa:0, gpu:1")
    add("--dst", metavar="PLACE", help="and to")
    add("--bytes", metavar="SIZE", help="of it, like 48MiB")
    add("--memory", metavar="KIND", default="", help="only from or to this kind of host memory, like pageable")
    add("--alone", action="store_true", help="one copy that is waited for, instead of one among many")
    add("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope advise`."""
    from linkscope.trace import MOST_BYTES

    asked = [arguments.src, arguments.dst, arguments.bytes]
    if any(asked) and not all(asked):
        raise UserError("--src, --dst and --bytes ask for one transfer together; give all three, or none")
    if not any(asked) and (arguments.memory or arguments.alone):
        raise UserError("--memory and --alone are of one transfer; say which with --src, --dst and --bytes")
    size = parse_bytes(arguments.bytes) if arguments.bytes else None
    if arguments.bytes and not size:
        raise UserError(f"--bytes {arguments.bytes}: a size is a number of bytes, like 48MiB")
    if size and (size % 8 or size > MOST_BYTES):
        raise UserError(f"--bytes {arguments.bytes}: what is copied here is a multiple of 8 B, and at most 1 TiB")
    run = read(arguments.run)
    if not any(point.median_s is not None for point in run.points):
        raise UserError(f"{run.path} has no point with a value, so there is nothing to advise; measure again")
    return _one_transfer(arguments, run, size) if size else _everything(arguments, run)


def _everything(arguments: argparse.Namespace, run: "Run") -> int:
    from linkscope.advise import advice, untried
    from linkscope.advise.text import ratio_text
    from linkscope.model.curves import curves
    from linkscope.model.dips import dips

    found = advice(run.points)
    irregular = sorted(dips(filter(_usual, curves(run.points))), key=lambda dip: -dip.lost)
    if arguments.json:
        print(json.dumps({**_of(run), "advice": [_advice_json(one) for one in found],
                          "irregular": [_dip_json(dip) for dip in irregular],
                          "not_measured": [habit.name for habit in untried(found)]}))  # fmt: skip
        return FINE
    print(_head(run))
    _print_advice([one for one in found if one.gains])
    none = [one for one in found if not one.gains]
    if none:
        print("\nNothing to gain, as far as this run shows:")
        for one in none:
            print(f"  {one.habit.title}: at best {ratio_text(max(one.compared, key=lambda gain: gain.interval.low))}")
    _print_dips(irregular)
    _print_untried(untried(found), run)
    return FINE


def _usual(curve: "Curve") -> bool:
    """Neither hot caches, whose end is a dip, nor few blocks, which are slow on purpose."""
    params = dict(curve.method.params)
    return curve.batched and "cache" not in params and not params.get("blocks", "").isdecimal()


def _head(run: "Run") -> str:
    mark = "MODELLED " if run.modelled else ""
    return f"{mark}{run.header.machine.get('name', '')}, measured {run.header.started} ({run.path})"


def _print_advice(found: "Sequence[Advice]") -> None:
    from linkscope.advise.text import details, headline

    if not found:
        print("\nNo habit that this run has both ways costs 5 % or more.")
    for number, one in enumerate(found, 1):
        print("\n" + filled(f"{number}. {headline(one)}", others="   "))
        for line in details(one):
            print(filled(line, "   ", "     "))
    if found:
        print(
            "\n"
            + filled("Gains are of geometric means of rounds, times are medians: they differ where rounds scatter.")
        )


def _print_dips(found: "Sequence[Dip]") -> None:
    from linkscope.model.text import dip_text

    if not found:
        return
    print("\nIrregular (a driver that changes its way, a cache, or something set up wrongly):")
    for dip in found[:_MOST_DIPS]:
        print(filled(dip_text(dip), "   ", "     "))
    if len(found) > _MOST_DIPS:
        print(f"   and {len(found) - _MOST_DIPS} more; --json has all")


def _print_untried(habits: "Sequence[Recommendation]", run: "Run") -> None:
    if habits:
        plan = run.header.plan
        whole = plan.get("suite") == "full" and not plan.get("only")
        cure = "" if whole else " (suite full has them, where the machine has what they need)"
        print("\n" + filled(f"Not measured both ways in this run{cure}:"))
        print(filled("; ".join(habit.title for habit in habits), "   ", "   "))


def _one_transfer(arguments: argparse.Namespace, run: "Run", size: int) -> int:
    from linkscope.advise import transfer_methods
    from linkscope.report.trust import signs_mean

    found = transfer_methods(
        run.points, arguments.src, arguments.dst, size, memory=arguments.memory, alone=arguments.alone
    )
    if not found:
        _refuse(arguments, run, size)
    if arguments.json:
        print(json.dumps({**_of(run), "src": arguments.src, "dst": arguments.dst, "bytes": size,
                          "ways": [_way_json(way, size) for way in found]}))  # fmt: skip
        return FINE
    print(_head(run))
    alone = "one copy that is waited for" if arguments.alone else "one of many, one behind the other"
    print(f"{arguments.src} -> {arguments.dst}, {format_bytes(size)}, {alone}; the fastest first:")
    rows = [(_way_text(way), *_way_values(way, size), _times_the_first(way, found[0])) for way in found]
    table = [_HEADS, *rows[:_MOST_WAYS]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        print("  " + "  ".join(cells))
    if len(rows) > _MOST_WAYS:
        print(f"  and {len(rows) - _MOST_WAYS} slower ones; --json has all")
    if any(len(way.points) > 1 for way in found[:_MOST_WAYS]):
        print(f"  {_BETWEEN} read between the two sizes next to it")
    for means in signs_mean(" ".join(row[1] for row in rows[:_MOST_WAYS])):
        print(f"  {means}")
    return FINE


def _refuse(arguments: argparse.Namespace, run: "Run", size: int) -> NoReturn:
    """Which part of the question the run has nothing of, and how to measure it."""
    from linkscope.advise import kinds, sizes
    from linkscope.model.curves import Path
    from linkscope.model.text import paths_text

    src, dst, memory = arguments.src, arguments.dst, arguments.memory
    for option, place in (("--src", src), ("--dst", dst)):
        if not re.fullmatch(r"(host:\d+/)?(numa|gpu):\d+", place):
            raise UserError(f"{option} {place}: a place is written like numa:0 or gpu:1")
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
        told = f"; it has {', '.join(known)}" if known else ": neither end is the host's"
        raise UserError(f"{here} with {memory} memory{told}", NOT_HERE)
    found = sizes(measured, src, dst, memory=memory, alone=arguments.alone)
    mode = "alone" if arguments.alone else "among many"
    words = [f"{src} -> {dst} {size}", memory]
    words += [] if arguments.alone else ["batched"]
    cure = f"write '{' '.join(filter(None, words))}' to a file and measure that: linkscope run --trace FILE"
    if not found:
        raise UserError(f"{here} that was measured {mode}; {cure}", NOT_HERE)
    raise UserError(
        f"{here} of {format_bytes(size)} {mode}, and none to read it between; it has {format_bytes(found[0])} to "
        f"{format_bytes(found[-1])}; {cure}", NOT_HERE,
    )  # fmt: skip


def _way_text(way: "TransferMethod") -> str:
    from linkscope.model.text import method_text

    between = f" {_BETWEEN}" if len(way.points) > 1 else ""
    return method_text(way.curve.method.without(("bidirectional",))) + between


def _times_the_first(way: "TransferMethod", first: "TransferMethod") -> str:
    """'5.28 [5.19, 5.36]': how many times as long as the fastest it takes; its interval has the ends of both."""
    from linkscope.units import with_interval

    if way is first:
        return "1"
    ratio = way.time.value / first.time.value
    if way.time.low is None or way.time.high is None or first.time.low is None or first.time.high is None:
        return " ".join(with_interval(ratio, None, None)).strip()
    return " ".join(with_interval(ratio, way.time.low / first.time.high, way.time.high / first.time.low))


def _way_values(way: "TransferMethod", size: int) -> tuple[str, str]:
    from linkscope.report.trust import inherited, sign_of

    sign = sign_of(way.points) or sign_of(filter(inherited, way.points))
    return (
        sign + format_seconds_interval(way.time.value, way.time.low, way.time.high),
        format_rate(size / way.time.value / 1e9),
    )


def _of(run: "Run") -> dict[str, Any]:
    return {"run": str(run.path), "machine": run.header.machine.get("name"), "modelled": run.modelled}


def _advice_json(one: "Advice") -> dict[str, Any]:
    return {
        "habit": one.habit.name, "title": one.habit.title, "how": one.habit.how,
        "paid_after": one.paid_after.first if one.paid_after else None,
        "gains": [_gain_json(gain) for gain in sorted(one.compared, key=lambda gain: -gain.interval.low)],
    }  # fmt: skip


def _gain_json(gain: "Gain") -> dict[str, Any]:
    return {
        "now": gain.now.id, "then": gain.then.id, "instead": gain.instead, "src": gain.now.src, "dst": gain.now.dst,
        "bytes": gain.now.bytes, "ratio": gain.ratio, "interval": [gain.interval.low, gain.interval.high],
        "worth": gain.worth,
    }  # fmt: skip


def _dip_json(dip: "Dip") -> dict[str, Any]:
    return {"id": dip.point.id, "than": dip.top.id, "lost": dip.lost}


def _way_json(way: "TransferMethod", size: int) -> dict[str, Any]:
    family = way.curve.method.family
    interval = None if way.time.low is None or way.time.high is None else [way.time.low, way.time.high]
    return {
        "benchmark": family.benchmark, "engine": family.engine, "src_memory": family.src_memory,
        "dst_memory": family.dst_memory, "params": dict(way.curve.method.params), "seconds": way.time.value,
        "ci95_s": interval, "gbps": size / way.time.value / 1e9, "points": [point.id for point in way.points],
    }  # fmt: skip
