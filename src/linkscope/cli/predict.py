"""Predict the rate of one transfer, or of several concurrent transfers, on a modelled machine.

linkscope predict --machine ac922 --src numa:0 --dst gpu:0 --bytes 64MiB
linkscope predict --machine h200x4 --src numa:0 --dst gpu:0 --with "numa:0 -> gpu:1" --with "gpu:2 -> numa:0"
linkscope predict --machine h200x4 --src gpu:0 --dst gpu:1 --peer off --json

Rates are those of the steady state with all transfers running. Predictions are MODELLED; a file from `linkscope model`
states its accuracy.
"""

import argparse
import json
from typing import TYPE_CHECKING, Any

from linkscope.cli import options
from linkscope.errors import FINE, NOT_HERE, UserError
from linkscope.units import format_bytes, format_fraction, format_seconds

if TYPE_CHECKING:
    from linkscope.machine.model import Model
    from linkscope.run.steady import Steady
    from linkscope.runfile import PointId

SUMMARY = "predict the rate of transfers on a modelled machine"
_HOST_MEMORY = ("pinned", "pageable", "registered")
_ENGINES = ("ce", "sm", "tma")
_PATHS_NAMED = 6
_MOST_THREADS = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `predict`."""
    add = parser.add_argument
    add("--machine", metavar="NAME|FILE", required=True, help="a bundled model or a machine file")
    add("--src", metavar="PLACE", required=True, help="source: numa:0, gpu:1")
    add("--dst", metavar="PLACE", required=True, help="destination")
    add("--bytes", metavar="SIZE", default="64MiB", help="size of each transfer (default 64MiB)")
    add("--memory", choices=_HOST_MEMORY, default="pinned", help="host memory (default pinned)")
    add("--engine", choices=_ENGINES, default="ce", help="engine of copies with GPUs (default ce)")
    add("--peer", choices=("on", "off"), default="on", help="direct access between GPUs (default on)")
    add("--threads", metavar="N", default="1", help="CPU threads that share a copy between host memories (default 1)")
    add("--bidirectional", action="store_true", help="also the opposite transfer, concurrently")
    add(
        "--with",
        metavar="'SRC -> DST'",
        dest="others",
        action="append",
        default=[],
        help="another concurrent transfer; repeatable",
    )
    add("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope predict`."""
    from linkscope.machine.choose import Modelled, resolve
    from linkscope.model.known import deviation
    from linkscope.run.steady import steady_rates

    size = options.size("--bytes", arguments.bytes)
    choice = resolve(arguments.machine, None) if arguments.machine != "auto" else None
    if not isinstance(choice, Modelled):
        raise UserError(
            f"--machine {arguments.machine}: predict needs a model; `linkscope list machines` lists the bundled models"
        )
    ends = [(arguments.src, arguments.dst), *map(_pair, arguments.others)]
    if arguments.bidirectional:
        ends += [(dst, src) for src, dst in ends]
    _refuse_unknown(choice.model, ends)
    parts = [_points(arguments, choice.model, src, dst, size) for src, dst in ends]
    points = [point for part in parts for point in part]
    _refuse_unused(arguments, points)
    _refuse_unmeasured(choice.model, arguments.machine, points)
    found = steady_rates(choice.model, points)
    flows = [_summed(part, found) for part in parts]
    accuracy = deviation(choice.model.to_json(), parts, bidirectional=arguments.bidirectional and not arguments.others)
    if arguments.json:
        off = {"of": accuracy[0], **accuracy[1]} if accuracy else None
        print(json.dumps({"modelled": True, "machine": choice.model.machine.name, "flows": flows, "deviation": off}))
        return FINE
    print(f"MODELLED: {choice.model.machine.title}")
    for flow in flows:
        took = format_seconds(float(flow["seconds"]))
        print(
            f"{flow['src']} -> {flow['dst']}  {flow['gbps']:.4g} GB/s  ({format_bytes(int(flow['bytes']))} in {took})"
        )
    if len(flows) > 1:
        print(f"total  {sum(float(flow['gbps']) for flow in flows):.4g} GB/s")
    print(_accuracy_text(accuracy))
    return FINE


def _accuracy_text(accuracy: tuple[str, dict[str, Any]] | None) -> str:
    if accuracy is None:
        return "accuracy: unknown, since the machine file is not based on measurements of this kind"
    from linkscope.model.text import count_text

    name, row = accuracy
    which = "held out of the fit" if row["held_out"] else "used for the fit"
    return (
        f"accuracy: median {format_fraction(row['median'])}, p90 {format_fraction(row['ninety'])} over "
        f"{count_text(row['points'], 'point')} {which} ({name})"
    )


def _pair(text: str) -> tuple[str, str]:
    src, arrow, dst = map(str.strip, text.partition("->"))
    if not arrow or not src or not dst:
        raise UserError(f"--with {text}: write it as 'numa:1 -> gpu:1'")
    return src, dst


def _refuse_unknown(model: "Model", ends: list[tuple[str, str]]) -> None:
    from linkscope.machine.model import places
    from linkscope.plan import is_place
    from linkscope.plan.facts import kind_of

    there = places(model)
    known = (*there.numa, *there.gpus)
    for src, dst in ends:
        for place in (src, dst):
            if place in known:
                continue
            if place in there.disks:
                raise UserError(f"{src} -> {dst}: no benchmark moves data from or to a disk yet", NOT_HERE)
            if place.endswith(":all"):
                raise UserError(f"{place} stands for several places: name one, and the others by --with")
            name = model.machine.name
            if not is_place(place) or kind_of(place) not in ("numa", "gpu", "disk"):
                raise UserError(
                    f"{place}: this is not a place of a transfer. {name} has {', '.join(known)}; host memory is numa:0"
                )
            raise UserError(f"{src} -> {dst}: {name} has no {place}, but {', '.join(known)}", NOT_HERE)


def _refuse_unused(arguments: argparse.Namespace, points: "list[PointId]") -> None:
    """Refuses options that apply to none of the transfers, instead of ignoring them."""
    of_host = [point for point in points if point.benchmark in ("h2d", "d2h")]
    if arguments.memory != "pinned" and not of_host:
        raise UserError(f"--memory {arguments.memory}: host memory applies only to copies to or from a GPU")
    if arguments.memory == "pageable" and arguments.engine != "ce" and of_host:
        raise UserError("--memory pageable: SMs cannot access it. Use --engine ce, or --memory registered")
    if arguments.peer == "off" and all(point.benchmark != "d2d" for point in points):
        raise UserError("--peer off applies only to copies between GPUs")
    if arguments.engine != "ce" and all(point.benchmark == "h2h" for point in points):
        raise UserError(f"--engine {arguments.engine}: CPU threads copy between host memories; leave it out")


def _refuse_unmeasured(model: "Model", name: str, points: "list[PointId]") -> None:
    """Refuses paths and methods that the run of a fitted file did not measure."""
    from linkscope.model.known import unmeasured

    content = model.to_json()
    for point in points:
        missing = unmeasured(content, point)
        if not missing:
            continue
        if missing == "this path":
            known = [path for path in model.machine.measured if " -> " in path]
            more = len(known) - _PATHS_NAMED
            missing += f"; it has {', '.join(known[:_PATHS_NAMED])}{f' and {more} more' if more > 0 else ''}"
        ids = f"{point.benchmark}/{point.engine}/{point.src}.{point.src_memory}->{point.dst}.{point.dst_memory}/*"
        cure = f"measure it (linkscope run --suite full --only '{ids}') and fit again (linkscope model)"
        raise UserError(f"{point.src} -> {point.dst}: {name} was fitted without {missing}; {cure}", NOT_HERE)


def _points(arguments: argparse.Namespace, model: "Model", src: str, dst: str, size: int) -> "list[PointId]":
    """The transfer as points: one, or one per thread between host memories."""
    from linkscope.plan.facts import kind_of
    from linkscope.runfile import PointId

    kinds = (kind_of(src), kind_of(dst))
    if kinds == ("numa", "numa"):
        threads = options.whole("--threads", arguments.threads, least=1, most=_MOST_THREADS)
        cpus = next(numa.cpus for numa in model.numa if src in numa.places)
        if threads > cpus:
            raise UserError(f"--threads {threads}: {src} of {model.machine.name} has {cpus} CPUs")
        each = max(size // threads // 8 * 8, 8)
        return [PointId("h2h", "cpu", src, "pageable", dst, "pinned", each)] * threads
    if options.whole("--threads", arguments.threads, least=1, most=_MOST_THREADS) > 1:
        raise UserError("--threads applies to copies between host memories: one thread queues other transfers")
    if kinds == ("gpu", "gpu"):
        name = "local" if src == dst else "d2d"
        peer = (("peer", arguments.peer),) if (name, arguments.engine) == ("d2d", "ce") else ()
        if name == "d2d" and not peer and arguments.peer == "off":
            raise UserError(f"--engine {arguments.engine} needs --peer on: SMs access the other GPU's memory directly")
        return [PointId(name, arguments.engine, src, "device", dst, "device", size, peer)]
    if kinds[0] == "numa":
        return [PointId("h2d", arguments.engine, src, arguments.memory, dst, "device", size)]
    return [PointId("d2h", arguments.engine, src, "device", dst, arguments.memory, size)]


def _summed(points: "list[PointId]", found: "list[Steady]") -> dict[str, float | int | str]:
    """The total of the points of one transfer; removes their flows from the front of `found`."""
    flows = [found.pop(0) for _ in points]
    size, gbps = sum(flow.bytes for flow in flows), sum(flow.gbps for flow in flows)
    return {"src": flows[0].src, "dst": flows[0].dst, "bytes": size, "gbps": gbps, "seconds": size / gbps / 1e9}
