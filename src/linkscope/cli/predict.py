"""Predict the rate of one transfer, or of several concurrent transfers, on a modelled machine.

linkscope predict --machine ac922 --src numa:0 --dst gpu:0 --bytes 64MiB
linkscope predict --machine h200x4 --src numa:0 --dst gpu:0 --with "numa:0 -> gpu:1" --with "gpu:2 -> numa:0"
linkscope predict --machine h200x4 --src numa:0 --dst gpu:0 --with "numa:0.pageable -> gpu:1 16MiB x2; gpu:2 -> gpu:3"
linkscope predict --machine h200x4 --src numa:0 --dst gpu:0 --bytes 256MiB --helpers 3
linkscope predict --machine h200x4 --flow "numa:0 -> gpu:0 x2; gemm gpu:0 bf16 8192" --json
linkscope predict --machine sl390 --computation md:full
linkscope predict --machine jorda-a "host:0/gpu:0 -> host:1/gpu:0" --bytes 16MiB

--with and --flow take lists of flows (docs/reference/flows.md). --bytes, --memory, --engine, --peer and --threads apply
to transfers that do not state their own. --helpers applies to a single transfer. A transfer between hosts has a rank
for each method. Rates are those while all transfers run. Predictions are MODELLED; a file from `linkscope model` states
its accuracy.
"""

import argparse
import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from linkscope.cli import options
from linkscope.errors import FINE, NOT_HERE, UserError
from linkscope.flow import MOST_THREADS, Transfer, is_place, parse_flows, wrong
from linkscope.units import format_bytes, format_fraction, format_seconds, with_signs

if TYPE_CHECKING:
    from linkscope.machine.model import Model
    from linkscope.run.steady import Steady
    from linkscope.runfile import PointId

SUMMARY = "predict the rate of transfers on a modelled machine"
TOO_MANY = "predict takes one transfer; write several as --flow 'numa:0 -> gpu:0; numa:0 -> gpu:1'"
_HOST_MEMORY = ("pinned", "pageable", "registered")
_ENGINES = ("ce", "sm", "tma")
_FILE_CHUNK = 1 << 20
_PATHS_NAMED = 6
_MOST_TIMES = 64
_HELPERS = (1, 3, 7)  # those of benchmark relayed


def _words(numbers: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `predict`."""
    add = parser.add_argument
    add("--machine", metavar="NAME|FILE", required=True, help="a bundled model or a machine file")
    add("transfer", metavar="'SRC -> DST'", nargs="?", help="the transfer, instead of --src and --dst")
    add("--flow", metavar="TEXT", help="predict these concurrent flows, written as for `linkscope flow`")
    add("--computation", metavar="NAME", help="a computation of suite sp-5, from each node")
    add("--src", metavar="PLACE", help="source: numa:0, gpu:1")
    add("--dst", metavar="PLACE", help="destination")
    add("--bytes", metavar="SIZE", default="64MiB", help="size of each transfer (default 64MiB)")
    add("--memory", choices=_HOST_MEMORY, default="pinned", help="host memory (default pinned)")
    add("--engine", choices=_ENGINES, default="ce", help="engine of copies with GPUs (default ce)")
    add("--peer", choices=("on", "off"), default="on", help="direct access between GPUs (default on)")
    add("--threads", metavar="N", default="1", help="CPU threads that share a copy between host memories (default 1)")
    add(
        "--helpers",
        metavar="N",
        help=f"GPUs whose links carry parts of a pinned copy: {_words(_HELPERS)} (default none)",
    )
    add("--bidirectional", action="store_true", help="also run the opposite transfer concurrently")
    add(
        "--with",
        metavar="'SRC -> DST'",
        dest="others",
        action="append",
        default=[],
        help="run these transfers concurrently, such as 'numa:0 -> gpu:1 64MiB x2'; repeatable",
    )
    add("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope predict`."""
    from linkscope.machine.choose import Modelled, resolve
    from linkscope.machine.model_hosts import joined_for
    from linkscope.machine.model_places import host_of
    from linkscope.model.known import deviation
    from linkscope.run.steady import steady_rates

    choice = resolve(arguments.machine, None) if arguments.machine != "auto" else None
    if not isinstance(choice, Modelled):
        raise UserError(
            f"--machine {arguments.machine}: predict needs a model; `linkscope list machines` lists the bundled models"
        )
    if arguments.computation:
        from linkscope.cli.predict_computation import computation

        return computation(arguments, choice.model)
    if arguments.transfer:
        _take_transfer(arguments)
    if arguments.flow:
        from linkscope.cli.predict_flows import flows

        return flows(arguments, choice.model)
    size = options.size("--bytes", arguments.bytes)
    if not (arguments.src and arguments.dst):
        raise UserError("give --src and --dst of one transfer, or --flow with several")
    transfers = [
        Transfer(arguments.src, None, arguments.dst, None),
        *itertools.chain(*map(other_transfers, arguments.others)),
    ]
    if arguments.bidirectional:
        transfers += list(map(_opposite, transfers))
    ends = [(one.src, one.dst) for one in transfers]
    model = joined_for(choice.model, itertools.chain(*ends))
    refuse_unknown(model, ends)
    if len(ends) == 1 and host_of(arguments.src) != host_of(arguments.dst):
        from linkscope.cli.predict_network import between_hosts

        return between_hosts(arguments, model, ends[0], size)
    parts = [points_of_transfer(arguments, model, one, size) for one in transfers]
    points = [point for part in parts for point in part]
    _refuse_unused(arguments, points)
    _refuse_mixed_access(transfers, points)
    refuse_unmeasured(model, arguments.machine, points)
    found = steady_rates(model, points)
    made = [_summed(part, found) for part in parts]
    accuracy = deviation(model.to_json(), parts, bidirectional=arguments.bidirectional and not arguments.others)
    _print_flows(model, made, accuracy, as_json=arguments.json)
    return FINE


def _print_flows(
    model: "Model",
    made: list[dict[str, float | int | str]],
    accuracy: tuple[str, dict[str, Any]] | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        off = {"of": accuracy[0], **accuracy[1]} if accuracy else None
        print(json.dumps({"modelled": True, "machine": model.machine.name, "flows": made, "deviation": off}))
        return
    print(f"MODELLED: {model.machine.title}")
    for flow in made:
        took = format_seconds(float(flow["seconds"]))
        size = format_bytes(int(flow["bytes"]))
        print(with_signs(f"{flow['src']} -> {flow['dst']}  {flow['gbps']:.4g} GB/s  ({size} in {took})"))
    if len(made) > 1:
        print(f"total  {sum(float(flow['gbps']) for flow in made):.4g} GB/s")
    print(_accuracy_text(accuracy))


def _take_transfer(arguments: argparse.Namespace) -> None:
    """Takes the ends, and the size where it has one, from 'SRC -> DST 16MiB'."""
    if arguments.src or arguments.dst or arguments.flow:
        several = "; in --flow, a semicolon separates transfers" if arguments.flow else ""
        raise UserError(
            f"{arguments.transfer!r}: name the transfer once, so leave out --src, --dst and --flow{several}"
        )
    one, *more = other_transfers(arguments.transfer, "the transfer")
    if more or replace(one, bytes=None) != Transfer(one.src, None, one.dst, None):
        raise UserError(f"{arguments.transfer!r}: name one transfer by its ends; options state the rest, --with more")
    arguments.src, arguments.dst = one.src, one.dst
    arguments.bytes = str(one.bytes) if one.bytes else arguments.bytes


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


def other_transfers(text: str, option: str = "--with") -> list[Transfer]:
    """The transfers of an option, each as often as its count says."""
    found = []
    for flow in parse_flows(text, option):
        if not isinstance(flow, Transfer):
            raise wrong(flow, "flow", "this is not a transfer: write it like numa:1 -> gpu:1")
        if flow.times > _MOST_TIMES:
            raise wrong(flow, "times", f"at most x{_MOST_TIMES} transfers of one flow")
        if flow.option("mode") == "single":
            raise wrong(flow, "mode=", "predictions are of batched copies only")
        found += [replace(flow, times=1)] * flow.times
    return found


def _opposite(flow: Transfer) -> Transfer:
    swapped = replace(flow, src=flow.dst, dst=flow.src, written=None)
    return replace(swapped, src_memory=flow.dst_memory, dst_memory=flow.src_memory)


def refuse_unknown(model: "Model", ends: list[tuple[str, str]]) -> None:
    from linkscope.machine.model import places
    from linkscope.plan.facts import kind_of

    there = places(model)
    known = (*there.numa, *there.gpus, *there.disks)
    for src, dst in ends:
        for place in (src, dst):
            if place in known:
                continue
            if place.endswith(":all"):
                raise UserError(f"{place} stands for several places: name one, and the others by --with")
            name = model.machine.name
            if not is_place(place) or kind_of(place) not in ("numa", "gpu", "disk"):
                raise UserError(
                    f"{place}: this is not a place of a transfer. {name} has {', '.join(known)}; host memory is numa:0"
                )
            raise UserError(f"{src} -> {dst}: {name} has no {place}; it has {', '.join(known)}", NOT_HERE)
        if "disk" in (kinds := (kind_of(src), kind_of(dst))) and "gpu" not in kinds:
            raise UserError(f"{src} -> {dst}: benchmarks copy files from and to GPUs only", NOT_HERE)


def _refuse_unused(arguments: argparse.Namespace, points: "list[PointId]") -> None:
    """Refuses options that apply to none of the transfers, instead of ignoring them."""
    of_host = [point for point in points if point.benchmark in ("h2d", "d2h")]
    if arguments.memory != "pinned" and not of_host:
        raise UserError(f"--memory {arguments.memory}: host memory applies only to copies to or from a GPU")
    if arguments.peer == "off" and all(point.benchmark != "d2d" for point in points):
        raise UserError("--peer off applies only to copies between GPUs")
    if arguments.helpers is not None and all(point.benchmark != "relayed" for point in points):
        raise UserError(f"--helpers {arguments.helpers} applies only to copies between host memory and a GPU")
    if arguments.engine != "ce" and all(point.benchmark == "h2h" for point in points):
        raise UserError(f"--engine {arguments.engine}: CPU threads copy between host memories; leave it out")


def _refuse_mixed_access(transfers: list[Transfer], points: "list[PointId]") -> None:
    """Refuses copies with and without peer access at once: a simulated machine has peer access enabled or not."""
    if len({point.param("peer", "on") for point in points if point.benchmark == "d2d"}) > 1:
        one = next(flow for flow in transfers if flow.option("peer"))
        raise wrong(one, "peer=", "other transfers between GPUs differ: state peer for all of them, or use --peer")


def refuse_unmeasured(model: "Model", name: str, points: "list[PointId]") -> None:
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


def points_of_transfer(arguments: argparse.Namespace, model: "Model", flow: Transfer, size: int) -> "list[PointId]":
    """The transfer as points: one, or one per thread between host memories. The options hold for what the flow does not
    state. Network cards make a transfer between hosts."""
    from linkscope.machine.model import places
    from linkscope.machine.model_places import host_of
    from linkscope.model.network import network_point
    from linkscope.runfile import PointId

    size, src, dst = flow.bytes or size, flow.src, flow.dst
    if host_of(src) != host_of(dst) and "disk" not in flow.kinds:
        return [network_point(src, dst, size, places(model).gpu_numa)]
    if flow.kinds == ("numa", "numa"):
        return _host_points(arguments, model, flow, size)
    if options.whole("--threads", arguments.threads, least=1, most=MOST_THREADS) > 1:
        raise UserError("--threads applies to copies between host memories: one thread queues other transfers")
    engine = _stated(flow, "engine", flow.engine, _ENGINES) or arguments.engine
    if "disk" in flow.kinds:
        return [_file_point(arguments, model, flow, size)]
    if flow.kinds == ("gpu", "gpu"):
        for part, memory in (("src_memory", flow.src_memory), ("dst_memory", flow.dst_memory)):
            _stated(flow, part, memory, ("device",))
        name = "local" if src == dst else "d2d"
        access = flow.option("peer") or arguments.peer
        peer = (("peer", access),) if (name, engine) == ("d2d", "ce") else ()
        if name == "d2d" and not peer and access == "off":
            if flow.option("peer"):
                raise wrong(flow, "peer=", f"--engine {engine} needs peer access: write by ce, or leave out peer=off")
            raise UserError(f"--engine {engine} needs --peer on: SMs access the other GPU's memory directly")
        return [PointId(name, engine, src, "device", dst, "device", size, peer)]
    if helpers := _helpers(arguments, model, flow, engine):
        return [_relayed_point(flow, size, helpers)]
    if flow.kinds[0] == "numa":
        host = _host_memory(arguments, flow, "src_memory", flow.src_memory, engine)
        _stated(flow, "dst_memory", flow.dst_memory, ("device",))
        return [PointId("h2d", engine, src, host, dst, "device", size)]
    host = _host_memory(arguments, flow, "dst_memory", flow.dst_memory, engine)
    _stated(flow, "src_memory", flow.src_memory, ("device",))
    return [PointId("d2h", engine, src, "device", dst, host, size)]


def _helpers(arguments: argparse.Namespace, model: "Model", flow: Transfer, engine: str) -> int:
    """The helpers of a copy between host memory and a GPU; 0: none are asked for."""
    from linkscope.machine.model import places

    if arguments.helpers is None:
        return 0
    count = options.whole("--helpers", arguments.helpers, least=1, most=_HELPERS[-1])
    gpus = len(places(model).gpus)
    if count not in _HELPERS:
        raise UserError(f"--helpers {count}: the benchmark relayed has {_words(_HELPERS)} helpers")
    if count >= gpus:
        raise UserError(
            f"--helpers {count}: {model.machine.name} has {gpus} GPUs, one of which is the copy's own", NOT_HERE
        )
    memories = {arguments.memory, flow.src_memory, flow.dst_memory} - {None, "device"}
    if engine != "ce" or memories != {"pinned"}:
        raise UserError(f"--helpers {count}: helpers relay copies of pinned memory by copy engine only")
    if arguments.bidirectional or arguments.others:
        raise UserError(
            f"--helpers {count}: a transfer with helpers is predicted by itself: leave out --bidirectional and --with"
        )
    return count


def _relayed_point(flow: Transfer, size: int, helpers: int) -> "PointId":
    """A copy of pinned memory whose parts go over the links of several GPUs."""
    from linkscope.runfile import PointId

    memories = ["pinned" if kind == "numa" else "device" for kind in flow.kinds]
    params = (("chunk", "4MiB"), ("helpers", str(helpers)), ("mode", "batched"))
    return PointId("relayed", "ce", flow.src, memories[0], flow.dst, memories[1], size, params)


def _file_point(arguments: argparse.Namespace, model: "Model", flow: Transfer, size: int) -> "PointId":
    """A copy of a file from or to a GPU through two pinned slots on the GPU's NUMA node."""
    from linkscope.machine.model import places
    from linkscope.runfile import PointId

    _stated(flow, "engine", flow.engine, ("file",))
    if arguments.engine != "ce":
        raise UserError(f"--engine {arguments.engine}: CPU threads read and write files; leave it out")
    memories = ["file" if kind == "disk" else "device" for kind in flow.kinds]
    _stated(flow, "src_memory", flow.src_memory, (memories[0],))
    _stated(flow, "dst_memory", flow.dst_memory, (memories[1],))
    if size >= _FILE_CHUNK and size % _FILE_CHUNK:
        raise UserError(f"{flow.src} -> {flow.dst}: files are copied in chunks of 1 MiB; {size} B is not a multiple")
    ring = places(model).gpu_numa[flow.dst if flow.kinds[0] == "disk" else flow.src]
    params = (("bidirectional", "false"), ("chunk", "1MiB"), ("mode", "batched"), ("ring", ring), ("slots", "2"))
    return PointId("file_copies", "file", flow.src, memories[0], flow.dst, memories[1], size, params)


def _host_points(arguments: argparse.Namespace, model: "Model", flow: Transfer, size: int) -> "list[PointId]":
    """A copy between host memories: from pageable to pinned memory by default, one point per CPU thread."""
    from linkscope.runfile import PointId

    _stated(flow, "engine", flow.engine, ("cpu",))
    src = _stated(flow, "src_memory", flow.src_memory, ("pageable", "pinned"))
    dst = _stated(flow, "dst_memory", flow.dst_memory, ("pageable", "pinned"))
    if src == dst and src is not None:
        raise wrong(flow, "dst_memory", "predict knows copies from pageable to pinned memory, and back")
    back = src == "pinned" or dst == "pageable"
    text = flow.option("threads") or arguments.threads
    threads = options.whole("--threads", text, least=1, most=MOST_THREADS)
    cpus = next(numa.cpus for numa in model.numa if flow.src in numa.places)
    if threads > cpus and flow.option("threads"):
        raise wrong(flow, "threads=", f"{flow.src} of {model.machine.name} has {cpus} CPUs")
    if threads > cpus:
        raise UserError(f"--threads {threads}: {flow.src} of {model.machine.name} has {cpus} CPUs")
    each = max(size // threads // 8 * 8, 8)
    memories = ("pinned", "pageable") if back else ("pageable", "pinned")
    return [PointId("h2h", "cpu", flow.src, memories[0], flow.dst, memories[1], each)] * threads


def _stated(flow: Transfer, part: str, word: str | None, known: tuple[str, ...]) -> str | None:
    """The word that the flow states, refused if predict does not know it here."""
    if word not in (None, *known):
        raise wrong(flow, part, f"predict knows only {', '.join(known)} here")
    return word


def _host_memory(arguments: argparse.Namespace, flow: Transfer, part: str, memory: str | None, engine: str) -> str:
    found = _stated(flow, part, memory, _HOST_MEMORY) or str(arguments.memory)
    if found == "pageable" and engine != "ce":
        if memory or flow.engine:
            where = part if memory else "engine"
            raise wrong(flow, where, "SMs cannot access pageable memory: write registered, or by ce")
        raise UserError("--memory pageable: SMs cannot access it. Use --engine ce, or --memory registered")
    return found


def _summed(points: "list[PointId]", found: "list[Steady]") -> dict[str, float | int | str]:
    """The total of the points of one transfer; removes their flows from the front of `found`."""
    flows = [found.pop(0) for point in points for _ in range(1 + int(point.param("helpers", "0")))]
    size, gbps = sum(flow.bytes for flow in flows), sum(flow.gbps for flow in flows)
    return {"src": flows[0].src, "dst": flows[0].dst, "bytes": size, "gbps": gbps, "seconds": size / gbps / 1e9}
