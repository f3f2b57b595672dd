"""Recommend faster transfers on a machine, with their measured gains, from a run or a model.

linkscope advise run.jsonl                                             recommendations, the largest gain first
linkscope advise run.jsonl --src numa:0 --dst gpu:0 --bytes 48MiB      all methods for one transfer, fastest first
linkscope advise run.jsonl --src numa:0 --dst gpu:0 --bytes 48MiB --memory pageable --reuse 20
linkscope advise run.jsonl --src numa:0 --dst gpu:0 --bytes 4MiB --pieces 4KiB
linkscope advise --machine h200x4 --src numa:0 --dst gpu:1 --bytes 48MiB      the same, MODELLED
linkscope advise --machine h200x4 --src numa:0 --dst gpu:1 --bytes 48MiB --with "numa:0 -> gpu:2"
linkscope advise --machine jorda-a --src disk:0 --dst gpu:0 --bytes 64MiB               a file, MODELLED
linkscope advise --machine jorda-b --src gpu:0 --dst host:1/gpu:0 --bytes 4MiB      between hosts, MODELLED
linkscope advise run.jsonl --placement                                 the CPUs and the NUMA node of each GPU
linkscope advise --machine jorda-a --talk matrix.txt -o ranks          the GPU of each process, and a rank file

A run and --machine with a file that `linkscope model` fitted to it show measured and predicted times side by side.
--talk reads who sends how much to whom: one line per sending rank, one size per receiver.

Every gain is a ratio of measured times with a confidence interval. The intervals of a run are simultaneous at 95 %.
Suite `full` measures most recommendations, `standard` those of plain copies.
"""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from linkscope.cli import target
from linkscope.cli.runs import identity, measures_all, read, refuse_without_values, title
from linkscope.cli.screen import filled
from linkscope.errors import FINE, UserError
from linkscope.units import format_bytes

if TYPE_CHECKING:
    from linkscope.advise import Advice, Gain
    from linkscope.advise.recommendations import Recommendation
    from linkscope.model.curves import Curve
    from linkscope.model.dips import Dip
    from linkscope.runfile import Run

SUMMARY = "recommend faster transfers, with measured gains"
_MOST_DIPS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `advise`."""
    add = parser.add_argument
    add("run", metavar="RUN.jsonl", nargs="?", help="the run file (.jsonl or .jsonl.gz)")
    add("--machine", metavar="NAME|FILE", help="simulate the methods on this model, instead of a run or beside it")
    add("--src", metavar="PLACE", help="source of one transfer: numa:0, gpu:1")
    add("--dst", metavar="PLACE", help="destination of the transfer")
    add("--bytes", metavar="SIZE", help="size of the transfer, such as 48MiB")
    add(
        "--memory",
        metavar="KIND",
        default="",
        help="host memory that holds the data now (default: pageable); untouched: new memory",
    )
    add("--alone", action="store_true", help="rank single copies with their wait, instead of batched copies")
    add("--reuse", metavar="N", help="number of copies of the same memory, which share what is paid once")
    add("--pieces", metavar="SIZE", help="size of the scattered pieces in which the bytes lie, such as 4KiB")
    add("--with", metavar="'SRC -> DST'", dest="others", action="append", default=[],
        help="concurrent transfers beside this one, such as 'numa:0 -> gpu:1 64MiB x2'; repeatable")  # fmt: skip
    add("--all", action="store_true", help="print all methods, not only the best and the present one (--json has all)")
    add(
        "--placement",
        action="store_true",
        help="print the CPUs and the NUMA node of each GPU, and the lines that bind to them",
    )
    add("--talk", metavar="MATRIX", help="place processes on GPUs by a matrix of the bytes they send")
    add("-o", "--output", metavar="FILE", help="write an Open MPI rank file (with --talk or --placement)")
    add("--json", action="store_true", help="print JSON")
    target.add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """`linkscope advise`."""
    _refuse_contradictions(arguments)
    if arguments.placement:
        return _seated(arguments)
    if arguments.talk:
        return _placed(arguments)
    if arguments.bytes:
        from linkscope.cli import advise_hosts
        from linkscope.cli.advise_transfer import one_transfer

        if advise_hosts.names_hosts(arguments):
            return advise_hosts.between_hosts(arguments)
        return one_transfer(arguments)
    run = read(arguments.run)
    refuse_without_values(run)
    return _everything(arguments, run)


def _refuse_contradictions(arguments: argparse.Namespace) -> None:
    asked = [arguments.src, arguments.dst, arguments.bytes]
    of_transfer = [arguments.memory, arguments.alone, arguments.reuse, arguments.pieces, arguments.others,
                   arguments.all]  # fmt: skip
    if arguments.run is None and arguments.machine is None:
        raise UserError(
            "advise needs a run file, which `linkscope run -o RUN.jsonl` measures, or a model, such as "
            "--machine h200x4 (`linkscope list machines`)"
        )
    if arguments.placement:
        _refuse_with_placement(arguments)
        return
    if arguments.output and not arguments.talk:
        raise UserError("-o writes a rank file: add --talk MATRIX, or --placement")
    if arguments.talk and any((*asked, *of_transfer)):
        raise UserError("--talk places processes: leave out the options of one transfer")
    if arguments.talk and arguments.run and arguments.machine:
        raise UserError("--talk needs the costs of one machine: give a run file, or --machine with a model")
    if any(asked) and not all(asked):
        raise UserError("--src, --dst and --bytes describe one transfer: give all three, or none")
    if not any(asked) and any(of_transfer):
        names = "--memory, --alone, --reuse, --pieces, --with and --all"
        raise UserError(f"{names} describe one transfer: add --src, --dst and --bytes")
    if not any(asked) and not arguments.talk and arguments.machine:
        raise UserError("--machine needs one transfer: add --src, --dst and --bytes, or --talk MATRIX")
    if arguments.alone and (arguments.pieces or arguments.others):
        option = "--pieces" if arguments.pieces else "--with"
        raise UserError(f"--alone is the time of a single copy, and {option} needs many: leave one of them out")
    if arguments.pieces and arguments.others:
        raise UserError("--pieces and --with: the times of pieces beside other transfers are unknown. Leave one out")


def _refuse_with_placement(arguments: argparse.Namespace) -> None:
    others = (*(arguments.src, arguments.dst, arguments.bytes, arguments.memory, arguments.alone, arguments.reuse),
              *(arguments.pieces, arguments.others, arguments.talk, arguments.all))  # fmt: skip
    if any(others):
        raise UserError("--placement is about the whole machine: leave out the options of one transfer, and --talk")
    if arguments.run and arguments.machine:
        raise UserError("--placement needs one machine: give a run file, or --machine with a model")


def _seated(arguments: argparse.Namespace) -> int:
    """Prints the seat of each GPU, and writes the rank file if -o names one."""
    from pathlib import Path

    from linkscope.advise.binding import rank_file
    from linkscope.cli import seats
    from linkscope.cli.advise_transfer import modelled

    output = Path(arguments.output) if arguments.output else None
    if output:
        target.check_writable(output, [Path(arguments.run)] if arguments.run else [], force=arguments.force)
    if arguments.machine:
        found = seats.seating_of_model(modelled(arguments.machine))
    else:
        found = seats.seating_of_run(read(arguments.run))
    text = rank_file(found.title, found.seats) if output else ""
    print(seats.as_json(found) if arguments.json else "\n".join(seats.lines(found)))
    if output:
        target.write(output, text)
        if not arguments.json:
            target.name_output("rank file", output)
    return FINE


def _placed(arguments: argparse.Namespace) -> int:
    from linkscope.cli import placement
    from linkscope.cli.advise_transfer import modelled

    named = placement.of_model(modelled(arguments.machine)) if arguments.machine else None
    node = named or placement.of_run(read(arguments.run))
    return placement.place_ranks(arguments, node)


def _everything(arguments: argparse.Namespace, run: "Run") -> int:
    from linkscope.advise import advice, untried
    from linkscope.advise.text import ratio_text
    from linkscope.model.curves import curves
    from linkscope.model.dips import dips

    found = advice(run.points)
    irregular = sorted(dips(filter(_usual, curves(run.points))), key=lambda dip: -dip.lost)
    if arguments.json:
        print(json.dumps({**identity(run, arguments.run), "advice": [_advice_json(one) for one in found],
                          "irregular": [_dip_json(dip) for dip in irregular],
                          "not_measured": [one.name for one in untried(found)]}))  # fmt: skip
        return FINE
    print(title(run, arguments.run))
    _print_advice([one for one in found if one.is_general])
    none = [one for one in found if not one.is_general]
    if none:
        print("\nNo worthwhile gain on the median path (less than 5 %, or not certain):")
        for one in none:
            best = max(one.compared, key=lambda gain: gain.interval.low)
            where = f" on {best.path}" + (f" at {format_bytes(best.current.bytes)}" if best.current.bytes else "")
            print(filled(f"{one.recommendation.title}: at best {ratio_text(best)}{where}", "   ", "     "))
    _print_dips(irregular)
    _print_untried(untried(found), run)
    return FINE


def _usual(curve: "Curve") -> bool:
    """Whether a dip of the curve is unexpected. Dips are expected where hot caches end, and with few blocks."""
    params = dict(curve.method.params)
    return curve.batched and "cache" not in params and not params.get("blocks", "").isdecimal()


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
        cure = "" if measures_all(run) else "; suite full measures both where the machine supports them"
        print("\n" + filled(f"Not compared, because this run measured only one of the two practices{cure}:"))
        print(filled("; ".join(one.title for one in recommendations), "   ", "   "))


def _advice_json(one: "Advice") -> dict[str, Any]:
    return {
        "habit": one.recommendation.name, "title": one.recommendation.title, "how": one.recommendation.how,
        "typical_gain": one.typical_gain, "main_gain": one.main_gain, "listed": one.is_general,
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
