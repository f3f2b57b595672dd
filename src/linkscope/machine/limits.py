"""The peak of each path in GB/s (1e9) in one direction, with its derivation.

A peak is never below what can be measured: a higher rate shows an error in the measurement or in the facts about the
machine. Costs that depend on traffic (acknowledgements, credits, read requests) are left out, so real rates stay some
per cent below. Links are full duplex, so bidirectional flows keep their peaks; flows inside one memory share it.
"""

import re
from dataclasses import dataclass

from linkscope.errors import NOT_HERE, UserError
from linkscope.machine.facts import Fact, Gpu, Machine

# By PCIe generation: GT/s of a lane and the part that carries packets, as a number and as text. From 6.0, lanes carry
# flits of 256 B, of which packets have 236.
_PCIE = {
    1: (2.5, 8 / 10, "8/10"), 2: (5.0, 8 / 10, "8/10"), 3: (8.0, 128 / 130, "128/130"),
    4: (16.0, 128 / 130, "128/130"), 5: (32.0, 128 / 130, "128/130"), 6: (64.0, 236 / 256, "236/256"),
}  # fmt: skip
_ASSUMED_PAYLOAD = 256  # common on server platforms; desktops have 128 or 256
# Bytes around a payload. A completion (the GPU reads from the host) has a header of three words, a write with a 64 bit
# address one of four. Framing, sequence number and checksum take 8 B up to 5.0 and are part of the flit from 6.0.
_COMPLETION, _WRITE, _FRAMING = 12, 16, 8


class Limit(Fact, frozen=True):
    """`gbps` with its derivation in `source`; None if unknown, with the reason."""

    gbps: float | None
    source: str


@dataclass(frozen=True)
class Transfer:
    """What moves bytes between two places, or within one. `peer` False: without direct access between GPUs; None: as
    the machine is."""

    src: str
    dst: str
    src_memory: str
    dst_memory: str
    engine: str
    bidirectional: bool = False
    peer: bool | None = None


def limit(machine: Machine, transfer: Transfer) -> Limit:
    """The peak of one flow of a transfer.

    Managed pages use NVLink in any case, because the driver makes linked GPUs peers. Raises UserError for a place that
    the machine lacks.
    """
    src, dst, memories = transfer.src, transfer.dst, (transfer.src_memory, transfer.dst_memory)
    for place in (src, dst):
        if place not in machine.places and re.match(r"(?:numa|gpu):", place):
            raise _not_here(place, machine.name, machine.places)
    if "file" in (transfer.engine, *memories) or not {src, dst} <= {*machine.places}:
        return Limit(None, "what a disk or a network card allows is not known here")
    ends = [_gpu(machine, place) for place in (src, dst)]
    match ends:
        case [None, None]:
            return Limit(None, "DRAM bandwidth is not visible here")
        case [None, Gpu() as gpu]:
            return _host_link(gpu, to_gpu=True)
        case [Gpu() as gpu, None]:
            return _host_link(gpu, to_gpu=False)
        case [Gpu() as one, Gpu() as other] if one.index != other.index:
            return _between(machine, one, other, transfer.peer, managed="managed" in memories)
        case [Gpu() as gpu, _]:
            return _local(gpu, transfer.bidirectional)
    raise AssertionError(f"two places have two ends: {ends}")


def _gpu(machine: Machine, place: str) -> Gpu | None:
    kind, _, number = place.partition(":")
    return machine.gpus[int(number)] if kind == "gpu" else None


def _host_link(gpu: Gpu, *, to_gpu: bool) -> Limit:
    if gpu.c2c_gbps:
        return Limit(gpu.c2c_gbps, f"chip-to-chip link: {gpu.c2c_gbps:.4g} GB/s (NVML)")
    to_cpu = [link for link in gpu.nvlinks if link.active and link.remote == "npu" and link.gbps]
    if to_cpu:
        gbps = sum(link.gbps or 0.0 for link in to_cpu)
        each = f"{len(to_cpu)} links x {to_cpu[0].gbps:.4g} GB/s ({to_cpu[0].gbps_source})"
        return Limit(round(gbps, 2), f"NVLink to the CPU: {each} = {gbps:.4g} GB/s")
    return _pcie(gpu, _COMPLETION if to_gpu else _WRITE)


def _between(machine: Machine, src: Gpu, dst: Gpu, peer: bool | None, *, managed: bool) -> Limit:
    pair = machine.pair(src.index, dst.index)
    asked = peer is not False or (managed and pair is not None and pair.nvlinks != 0)  # None: hidden links
    if asked and (pair is None or pair.peer is not False):
        if pair and pair.nvlink_gbps is not None:
            return Limit(round(pair.nvlink_gbps, 2), f"{pair.nvlink_source} = {pair.nvlink_gbps:.4g} GB/s")
        if pair and pair.nvlinks is None:
            return Limit(None, "whether NVLinks join these GPUs is not visible here")
        how = "directly over PCIe"
    else:
        how = "without peer access, staged in host memory"
    ways = [_host_link(src, to_gpu=False), _host_link(dst, to_gpu=True)]
    for way in ways:
        if way.gbps is None:
            return way
    narrow = min(ways, key=lambda way: way.gbps or 0.0)
    return Limit(narrow.gbps, f"{how}: {narrow.source}")


def _pcie(gpu: Gpu, header: int) -> Limit:
    # Idle GPUs lower the generation, and a slot may have fewer lanes than the GPU. The peak is that of a healthy
    # machine, so that the share of it reveals the fault.
    link = gpu.pcie
    generation, width = link.max_generation or link.generation, link.max_width or link.width
    if generation not in _PCIE or width is None:
        return Limit(None, "generation and width of the PCIe link are not visible here")
    rate, part, encoding = _PCIE[generation]
    raw = rate * width / 8 * part
    payload = link.max_payload_bytes or _ASSUMED_PAYLOAD
    overhead = header + (_FRAMING if generation < 6 else 0)
    gbps = raw * payload / (payload + overhead)
    origin = "" if link.max_payload_bytes else " (assumed: not visible here)"
    now = f", now x{link.width}" if link.width and link.width < width else ""
    return Limit(
        round(gbps, 2),
        f"PCIe {generation}.0 x{width}{now}: {rate:g} GT/s x {width} lanes x {encoding} / 8 = {raw:.4g} GB/s; "
        f"packets of {payload} B{origin} with {overhead} B around: {gbps:.4g} GB/s",
    )


def _local(gpu: Gpu, bidirectional: bool) -> Limit:
    if gpu.memory_mhz is None or gpu.memory_bus_bits is None:
        return Limit(None, "memory clock and bus width of the GPU are not visible here")
    memory = gpu.memory_mhz * 2 * gpu.memory_bus_bits / 8 / 1000
    gbps = memory / (4 if bidirectional else 2)
    return Limit(
        round(gbps, 2),
        f"device memory: {gpu.memory_mhz} MHz x 2 x {gpu.memory_bus_bits} bit / 8 = {memory:.4g} GB/s, read and written"
        f"{', shared by both flows' if bidirectional else ''}: {gbps:.4g} GB/s",
    )


def _not_here(place: str, name: str, places: tuple[str, ...]) -> UserError:
    return UserError(f"{place} is not here: {name} has {', '.join(places)}", NOT_HERE)
