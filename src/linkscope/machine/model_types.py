"""The machine file of a model (machines/*.toml) as typed values.

A constant that somebody measured, published or assumed is a table `{ v = 75, from = "published", ref = "CS-24" }`; its
unit is part of its key. Facts (names, counts, sizes, places) are plain values.
"""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

From = Literal["published", "derived", "fitted", "measured", "assumed"]


Shape = Literal["lognormal", "autocorrelated", "bimodal"]
CopiedBy = Literal["driver", "caller"]
Turns = Literal["copy", "stream"]
FaultKind = Literal["corrupt", "hang", "die", "ramp", "throttle", "slow", "flaky", "lie"]


class Quantity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A constant and its provenance."""

    v: float
    origin: From = msgspec.field(name="from")
    ref: str = ""
    fitted_to: list[str] = msgspec.field(default_factory=list)
    why: str = ""

    def source(self) -> str:
        """'published: CS-24'."""
        return f"{self.origin}: {self.ref or self.why or ', '.join(self.fitted_to)}"


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Head(_Table, frozen=True):
    """`measured`: the paths that a file from `linkscope model` is based on ("numa:0 -> gpu:1"); other paths are
    unknown."""

    name: str
    title: str
    notes: str = ""
    measured: list[str] = msgspec.field(default_factory=list)


class Numa(_Table, frozen=True):
    """Equal NUMA nodes. Memory rates count reads plus writes; memcpy rates are of one thread."""

    places: list[str]
    cpus: int
    memory_gib: float
    llc_mib: float
    dram_gbps: Quantity
    memcpy_gbps: Quantity
    memcpy_remote_gbps: Quantity | None = None
    memcpy_stream_gbps: Quantity | None = None
    load_us: Quantity | None = None
    llc_gbps: Quantity | None = None
    dirty_gbps: Quantity | None = None
    huge_2mib_pages: int | None = None
    huge_1gib_pages: int | None = None


class Gpu(_Table, frozen=True):
    """Equal GPUs; `at` names them by their NUMA node; `wake_us` as for links."""

    title: str
    at: dict[str, list[str]]
    memory_gib: float
    sms: int
    l2_mib: float
    copy_engines: int
    memory_gbps: Quantity
    local_copy_gbps: Quantity
    l2_gbps: Quantity | None = None
    wake_us: Quantity | None = None
    wake_after_us: Quantity | None = None
    compute_capability: float | None = None

    def places(self) -> list[str]:
        return [gpu for gpus in self.at.values() for gpu in gpus]


class Nic(_Table, frozen=True):
    """Equal network cards; links place them."""

    places: list[str]
    title: str = ""


class Disk(_Table, frozen=True):
    """Equal disks; a link places them and gives their write and read rates."""

    places: list[str]
    title: str = ""


class Switch(_Table, frozen=True):
    places: list[str]
    title: str = ""


class Link(_Table, frozen=True, kw_only=True):
    """Equal links. `gbps` is the raw rate of one direction and `back_gbps` that of the other.

    `efficiency` is the part that copies get, `kernel_efficiency` and `kernel_back_efficiency` the parts that SM
    accesses get. `both_ways_gbps` is the joint capacity of both directions. `wake_us` delays the first bytes after a
    long idle gap, 63 % of it after `wake_after_us`.
    """

    name: str
    kind: str
    between: list[tuple[str, str]]
    lanes: int = 1
    gbps: Quantity
    back_gbps: Quantity | None = None
    efficiency: Quantity
    kernel_efficiency: Quantity | None = None
    kernel_back_efficiency: Quantity | None = None
    latency_us: Quantity
    both_ways_gbps: Quantity | None = None
    wake_us: Quantity | None = None
    wake_after_us: Quantity | None = None


class Share(_Table, frozen=True):
    """A capacity that several directed links ("pcie numa:0->gpu:1", globs allowed) share."""

    name: str
    links: list[str]
    gbps: Quantity


class Route(_Table, frozen=True):
    """A path other than the one of fewest links, then the widest."""

    start: str = msgspec.field(name="from")
    to: str
    via: list[str] = msgspec.field(default_factory=list)


class Peer(_Table, frozen=True):
    """Groups of GPUs with peer access to each other."""

    groups: list[list[str]]
    origin: From = msgspec.field(name="from")
    ref: str = ""
    why: str = ""


class Costs(_Table, frozen=True):
    call_us: Quantity
    launch_us: Quantity
    sync_us: Quantity
    event_us: Quantity
    event_tick_ns: Quantity
    host_stamp_us: Quantity
    cpu_copy_us: Quantity
    context_switch_us: Quantity | None = None
    time_slice_us: Quantity | None = None
    stream_wait_us: Quantity | None = None


class Copy(_Table, frozen=True):
    to_device_us: Quantity
    from_device_us: Quantity
    peer_us: Quantity
    local_us: Quantity
    inline_kib: Quantity
    inline_us: Quantity
    inline_gbps: Quantity
    channel_us: Quantity
    small_peer_us: Quantity | None = None
    row_us: Quantity | None = None
    both_ways_us: Quantity | None = None
    arrive_us: Quantity | None = None
    from_device_late_us: Quantity | None = None
    local_late_us: Quantity | None = None
    turns: Turns = "copy"


class Batch(_Table, frozen=True):
    """Copies that one call queues together: the GPU sets up one while earlier bytes flow."""

    issue_us: Quantity
    host_us: Quantity


class Graph(_Table, frozen=True):
    """Copies that are nodes of a graph, one after the other."""

    launch_us: Quantity
    node_us: Quantity


class Pull(_Table, frozen=True):
    """The additional cost of a copy between GPUs that the destination's stream queues."""

    extra_us: Quantity
    overlap: Quantity
    least_us: Quantity


class Kernel(_Table, frozen=True):
    """How a GPU's SMs access memory; a tile is what a block of 512 threads has in flight, 32 KiB.

    The three `host_` keys, all or none: the host memory whose translations the GPU keeps, and the cost of a page beyond
    it. A request uses `packet_bytes` of a link in addition to its own bytes.
    """

    launch_us: Quantity
    load_us: Quantity
    read_tile_us: Quantity
    write_tile_us: Quantity
    memory_efficiency: Quantity
    host_reach_mib: Quantity | None = None
    host_page_kib: Quantity | None = None
    host_walk_us: Quantity | None = None
    packet_bytes: Quantity | None = None


class Managed(_Table, frozen=True, kw_only=True):
    """How managed pages move: by faults of GPU or CPU threads, or in pieces by prefetch."""

    page_kib: Quantity
    launch_us: Quantity
    peer_launch_us: Quantity | None = None
    gpu_batch_pages: Quantity
    gpu_batch_us: Quantity
    gpu_page_us: Quantity
    gpu_region_us: Quantity | None = None
    gpu_block_us: Quantity | None = None
    cpu_fault_pages: Quantity
    cpu_block_pages: Quantity | None = None
    cpu_fault_us: Quantity
    cpu_page_us: Quantity | None = None
    to_device_gbps: Quantity
    from_device_gbps: Quantity
    peer_gbps: Quantity | None = None
    cpu_reach_gbps: Quantity | None = None
    prefetch_us: Quantity
    piece_kib: Quantity
    to_device_piece_us: Quantity
    from_device_piece_us: Quantity


class Calls(_Table, frozen=True):
    """Cost of calls for the calling CPU thread; `locked_us` is the part of a launch (`costs.launch_us`) that threads
    take in turn."""

    locked_us: Quantity
    argument_kib_us: Quantity
    end_us: Quantity
    synchronize_us: Quantity
    record_us: Quantity
    query_us: Quantity
    create_stream_us: Quantity
    destroy_stream_us: Quantity
    instantiate_us: Quantity
    instantiate_node_us: Quantity
    upload_us: Quantity
    upload_node_us: Quantity
    graph_us: Quantity
    graph_node_us: Quantity


class Atomic(_Table, frozen=True, kw_only=True):
    """Atomic operations of GPU threads: the time of one, and their rates."""

    gpu_us: Quantity
    host_us: Quantity
    gpu_gops: Quantity
    same_gops: Quantity
    same_peer_gops: Quantity | None = None
    host_gops: Quantity
    link_bytes: Quantity


class Memory(_Table, frozen=True, kw_only=True):
    """Cost of memory besides its rate: pages of the kernel, pinned pages, GPU blocks, memory of another process.

    It also holds the rates of a CPU thread on write-combined memory.
    """

    page_kib: Quantity
    block_kib: Quantity
    map_us: Quantity
    fault_us: Quantity
    clear_gbps: Quantity
    free_page_us: Quantity
    pin_us: Quantity
    pin_page_us: Quantity
    unpin_page_us: Quantity
    pinned_page_us: Quantity
    free_pinned_page_us: Quantity
    host_pointer_us: Quantity
    device_us: Quantity
    device_block_us: Quantity
    free_block_us: Quantity
    pool_us: Quantity
    device_map_us: Quantity
    map_block_us: Quantity
    wc_read_gbps: Quantity
    wc_write_gbps: Quantity
    export_us: Quantity | None = None
    open_us: Quantity | None = None
    import_us: Quantity | None = None


class Pageable(_Table, frozen=True):
    """Copies through a ring of pinned chunks, by one thread of the driver or by the calling thread."""

    chunk_kib: Quantity
    slots: Quantity
    to_device_gbps: Quantity
    from_device_gbps: Quantity
    to_device_us: Quantity | None = None
    from_device_us: Quantity | None = None
    small_us: Quantity | None = None
    small_gbps: Quantity | None = None
    end_us: Quantity | None = None
    copied_by: CopiedBy = "driver"


class StagedPeer(_Table, frozen=True):
    chunk_kib: Quantity
    slots: Quantity
    chunk_us: Quantity


class Spread(_Table, frozen=True):
    """One level of noise: sigmas of log-normal factors, and the correlation of samples."""

    origin: From = msgspec.field(name="from")
    ref: str = ""
    why: str = ""
    shape: Shape = "lognormal"
    correlation: float | None = None
    second: float | None = None
    share: float | None = None
    compute: float = 0.0
    engine: float = 0.0
    channel: float = 0.0
    rate: float = 0.0
    host: float = 0.0


class Noise(_Table, frozen=True):
    machine: Spread | None = None
    round: Spread | None = None
    sample: Spread | None = None


class Fault(_Table, frozen=True):
    """A planted fault for points whose id and round ("ID#ROUND") match `match`. The kind determines the other keys."""

    kind: FaultKind
    match: str = "*"
    after_samples: int = 0
    samples: int | None = None
    factor: float | None = None
    links: list[str] | None = None
    share: float | None = None


class Deviation(_Table, frozen=True):
    """The relative error of the simulation of a fitted file: median and p90. `held_out`: for points that it was not
    fitted to."""

    points: int
    median: float
    ninety: float
    held_out: bool = False


class Model(_Table, frozen=True, kw_only=True):
    machine: Head
    deviation: dict[str, Deviation] = msgspec.field(default_factory=dict)  # "h2d by ce, pinned -> device"
    numa: list[Numa]
    gpu: list[Gpu] = msgspec.field(default_factory=list)
    nic: list[Nic] = msgspec.field(default_factory=list)
    disk: list[Disk] = msgspec.field(default_factory=list)
    switch: list[Switch] = msgspec.field(default_factory=list)
    link: list[Link] = msgspec.field(default_factory=list)
    share: list[Share] = msgspec.field(default_factory=list)
    route: list[Route] = msgspec.field(default_factory=list)
    peer: Peer | None = None
    costs: Costs
    copy: Copy | None = None
    pull: Pull | None = None
    batch: Batch | None = None
    graph: Graph | None = None
    kernel: Kernel | None = None
    managed: Managed | None = None
    calls: Calls | None = None
    atomic: Atomic | None = None
    memory: Memory | None = None
    pageable: Pageable | None = None
    staged_peer: StagedPeer | None = None
    noise: Noise | None = None
    fault: list[Fault] = msgspec.field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The content of the file, for the worker's pipe and the run file."""
        content: dict[str, Any] = _without_none(msgspec.to_builtins(self))
        return content


@dataclass(frozen=True)
class Places:
    """What a plan needs of a model: places, sizes of memories and caches, and peer access."""

    numa: tuple[str, ...]
    gpus: tuple[str, ...]
    gpu_numa: dict[str, str]
    memory_bytes: dict[str, int]
    cache_bytes: dict[str, int]  # the last-level cache of a NUMA node, the L2 of a GPU
    peers: frozenset[tuple[str, str]]
    sms: dict[str, int]
    nics: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()


def places(model: Model) -> Places:
    memory: dict[str, int] = {}
    cache: dict[str, int] = {}
    for node in model.numa:
        memory |= dict.fromkeys(node.places, int(node.memory_gib * 2**30))
        cache |= dict.fromkeys(node.places, int(node.llc_mib * 2**20))
    gpu_numa: dict[str, str] = {}
    for kind in model.gpu:
        gpu_numa |= {gpu: numa for numa, gpus in kind.at.items() for gpu in gpus}
        memory |= dict.fromkeys(kind.places(), int(kind.memory_gib * 2**30))
        cache |= dict.fromkeys(kind.places(), int(kind.l2_mib * 2**20))
    groups = model.peer.groups if model.peer else []
    return Places(
        numa=tuple(sorted((place for node in model.numa for place in node.places), key=order)),
        gpus=tuple(sorted(gpu_numa, key=order)),
        gpu_numa=gpu_numa,
        memory_bytes=memory,
        cache_bytes=cache,
        peers=frozenset((a, b) for group in groups for a in group for b in group if a != b),
        sms={place: kind.sms for kind in model.gpu for place in kind.places()},
        nics=tuple(sorted((place for nic in model.nic for place in nic.places), key=order)),
        disks=tuple(sorted((place for disk in model.disk for place in disk.places), key=order)),
    )


def host_of(place: str) -> str:
    """'host:1/gpu:0' -> 'host:1'; '' on a machine with one host."""
    return place.partition("/")[0] if "/" in place else ""


def order(place: str) -> tuple[str, int]:
    """Sort key: gpu:2 before gpu:10."""
    head, _, number = place.rpartition(":")
    return head, int(number) if number.isdigit() else 0


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value
