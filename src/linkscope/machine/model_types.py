"""The machine file of a model (machines/*.toml) as typed values.

A constant that somebody measured, published or assumed is a table `{ v = 75, from = "published", ref = "CS-24" }`; its
unit is part of its key. Facts (names, counts, sizes, places) are plain values. `Key` describes each key once, for the
checks and for docs/reference/machine-file.md.
"""

from typing import Annotated, Any, Literal

import msgspec

from linkscope.machine.model_costs import (
    Atomic,
    Batch,
    Calls,
    Copy,
    Costs,
    Graph,
    Kernel,
    Managed,
    Memory,
    Pageable,
    Pull,
    StagedPeer,
)
from linkscope.machine.model_schema import From, Key, Quantity, Table

Shape = Literal["lognormal", "autocorrelated", "bimodal"]
Queues = Literal["card", "memory"]
FaultKind = Literal["corrupt", "hang", "die", "ramp", "throttle", "slow", "flaky", "lie"]


class Head(Table, frozen=True):
    """What the machine is called, and what a fitted file covers."""

    name: Annotated[str, Key("short name (for bundled files the file name); one line for people")]
    title: str
    notes: Annotated[str, Key("for readers")] = ""
    measured: Annotated[
        list[str],
        Key(
            'the paths that a [fitted](../method/model.md) file covers, as `"numa:0 -> gpu:1"`; `predict` '
            "refuses others",
            default="all",
        ),
    ] = msgspec.field(default_factory=list)


class Numa(Table, frozen=True):
    """Equal NUMA nodes. Memory rates count reads plus writes; memcpy rates are of one thread."""

    places: Annotated[list[str], Key('`["numa:0", "numa:1"]`')]
    cpus: Annotated[int, Key("CPUs of a node, and threads with `threads=all`")]
    memory_gib: Annotated[float, Key("memory of a node")]
    llc_mib: Annotated[float, Key("last-level cache")]
    dram_gbps: Annotated[Quantity, Key("memory rate, reads plus writes, of all flows")]
    memcpy_gbps: Annotated[Quantity, Key("copy rate of a CPU thread within its node")]
    memcpy_remote_gbps: Annotated[
        Quantity | None, Key("copy rate with one side on another node", default="as `memcpy_gbps`")
    ] = None
    memcpy_stream_gbps: Annotated[
        Quantity | None,
        Key(
            "copy rate from three quarters of `llc_mib`, where memcpy writes past the caches (glibc)",
            default="as `memcpy_gbps`",
        ),
    ] = None
    load_us: Annotated[
        Quantity | None,
        Key("a load that misses all caches; a lower bound of a cold memcpy", default="latencies unsupported"),
    ] = None
    llc_gbps: Annotated[
        Quantity | None,
        Key("copy rate of a CPU thread within the last-level cache", default="cached copies unsupported"),
    ] = None
    dirty_gbps: Annotated[
        Quantity | None, Key("the same for data modified in another core's cache", default="dirty copies unsupported")
    ] = None
    huge_2mib_pages: Annotated[int | None, Key("reserved huge pages", default="none")] = None
    huge_1gib_pages: int | None = None


class Gpu(Table, frozen=True):
    """Equal GPUs."""

    title: Annotated[str, Key("product name")]
    at: Annotated[
        dict[str, list[str]], Key('GPUs by NUMA node: `{ "numa:0" = ["gpu:0", "gpu:1"] }`', kind="table of lists")
    ]
    memory_gib: Annotated[float, Key("memory of a GPU")]
    sms: Annotated[int, Key("multiprocessors, and default blocks of a kernel")]
    l2_mib: Annotated[float, Key("L2 cache")]
    copy_engines: Annotated[
        int, Key("1: one for all copies; 2: one in, one for all others; 3 or more: one in, one out, the rest to GPUs")
    ]
    memory_gbps: Annotated[Quantity, Key("memory rate, reads plus writes, of all flows")]
    local_copy_gbps: Annotated[Quantity, Key("highest rate of a copy within the GPU")]
    l2_gbps: Annotated[
        Quantity | None,
        Key("rate of SM accesses, reads plus writes, to data in the L2", default="cached accesses unsupported"),
    ] = None
    f64_tflops: Annotated[
        Quantity | None,
        Key("10¹² operations a second, by element", default="computations unsupported"),
    ] = None
    f32_tflops: Annotated[Quantity | None, Key(row="f64_tflops")] = None
    bf16_tflops: Annotated[Quantity | None, Key(row="f64_tflops")] = None
    f16_tflops: Annotated[Quantity | None, Key(row="f64_tflops")] = None
    tf32_tflops: Annotated[Quantity | None, Key(row="f64_tflops")] = None
    fp8_tflops: Annotated[Quantity | None, Key(row="f64_tflops")] = None
    reached_share: Annotated[
        Quantity | None, Key("the part of the operations a second that computations reach", default="1")
    ] = None
    wake_us: Annotated[
        Quantity | None, Key("delay of the first work after a long idle gap (`idle_gap_s`)", default="0")
    ] = None
    wake_after_us: Annotated[
        Quantity | None, Key("after a gap t the delay is `wake_us` × (1 - exp(-t / this))", needs="wake_us")
    ] = None
    compute_capability: Annotated[
        float | None, Key("9.0 for H200; TMA is unsupported below 9.0", default="all operations work")
    ] = None

    def places(self) -> list[str]:
        return [gpu for gpus in self.at.values() for gpu in gpus]


class Nic(Table, frozen=True, kw_only=True):
    """Equal network cards; links place them. Rates and times are of messages to another host."""

    places: Annotated[list[str], Key('`["nic:0"]`; product name')]
    title: Annotated[str, Key(row="places")] = ""
    message_us: Annotated[Quantity | None, Key("a message without bytes", default="unsupported")] = None
    gpu_read_gbps: Annotated[Quantity | None, Key("access to GPU memory without staging", default="unsupported")] = None
    gpu_write_gbps: Annotated[Quantity | None, Key(row="gpu_read_gbps")] = None
    gpu_short_kib: Annotated[
        Quantity | None, Key("rate of reading longer messages from a GPU", default="as `gpu_read_gbps`")
    ] = None
    gpu_long_read_gbps: Annotated[Quantity | None, Key(row="gpu_short_kib", needs="gpu_short_kib")] = None
    eager_kib: Annotated[
        Quantity | None, Key("up to this size both hosts copy; larger messages ask first", default="neither")
    ] = None
    eager_gbps: Annotated[Quantity | None, Key("rate of these copies", needs="eager_kib")] = None
    eager_far_gbps: Annotated[Quantity | None, Key("from a farther NUMA node", default="as `eager_gbps`")] = None
    queues: Annotated[
        Queues | None,
        Key(
            "threads post descriptors in registers (`card`; notified in host memory) or rings (`memory`)",
            default="posts unsupported",
        ),
    ] = None
    descriptor_bytes: Annotated[
        int | None, Key("size of a descriptor: a multiple of 8 B, at most 128", needs="queues")
    ] = None
    cpu_post_us: Annotated[
        Quantity | None, Key("a thread's time for a descriptor, and for a notification", needs="queues")
    ] = None
    gpu_post_us: Annotated[Quantity | None, Key(row="cpu_post_us", needs="queues")] = None
    cpu_take_us: Annotated[Quantity | None, Key(row="cpu_post_us", needs="queues")] = None
    gpu_take_us: Annotated[Quantity | None, Key(row="cpu_post_us", needs="queues")] = None
    gpu_message_us: Annotated[
        Quantity | None,
        Key("if a GPU posts in registers", default="as `message_us`"),
    ] = None


class Network(Table, frozen=True, kw_only=True):
    """The network that joins equal hosts; rates and latency are from card to card."""

    kind: Annotated[str, Key("as for a link")]
    lanes: Annotated[int, Key(row="kind")] = 1
    gbps: Annotated[Quantity, Key("as for a link, from card to card")]
    efficiency: Annotated[Quantity, Key(row="gbps")]
    latency_us: Annotated[Quantity, Key(row="gbps")]


class Disk(Table, frozen=True):
    """Equal disks; a link places them and gives their write and read rates."""

    places: list[str]
    title: str = ""


class Switch(Table, frozen=True):
    places: list[str]
    title: str = ""


class Link(Table, frozen=True, kw_only=True):
    """Equal links."""

    name: Annotated[str, Key("first part of the names")]
    kind: Annotated[str, Key("`pcie`, `nvlink`, …; managed pages move over `nvlink` even without peer access")]
    between: Annotated[
        list[tuple[str, str]], Key('both ends of each link: `[["numa:0", "gpu:0"]]`', kind="list of pairs")
    ]
    lanes: Annotated[int, Key("for display only")] = 1
    gbps: Annotated[Quantity, Key("raw rate from first to second end; the source of peaks")]
    back_gbps: Annotated[Quantity | None, Key("raw rate in the other direction", default="as `gbps`")] = None
    efficiency: Annotated[Quantity, Key("part of the raw rate that copies get")]
    kernel_efficiency: Annotated[Quantity | None, Key("part that SM accesses get", default="as `efficiency`")] = None
    kernel_back_efficiency: Annotated[
        Quantity | None, Key("the same in the other direction", default="as `kernel_efficiency`")
    ] = None
    latency_us: Annotated[Quantity, Key("added to each copy or chunk, except memcpy")]
    both_ways_gbps: Annotated[Quantity | None, Key("joint capacity of both directions", default="no limit")] = None
    wake_us: Annotated[Quantity | None, Key("as for a GPU", default="0")] = None
    wake_after_us: Annotated[Quantity | None, Key(row="wake_us", needs="wake_us")] = None


class Share(Table, frozen=True):
    """A capacity that several directed links ("pcie numa:0->gpu:1", globs allowed) share."""

    name: Annotated[str, Key("for readers")]
    links: Annotated[list[str], Key('names of directed links: `["pcie numa:0->gpu:*"]`', kind="list of globs")]
    gbps: Annotated[Quantity, Key("joint capacity")]


class Route(Table, frozen=True):
    """A path other than the one of fewest links, then the widest."""

    start: Annotated[str, Key("start and end")] = msgspec.field(name="from")
    to: str
    via: Annotated[list[str], Key("places between them, in order")] = msgspec.field(default_factory=list)


class Peer(Table, frozen=True):
    """Groups of GPUs with peer access to each other."""

    groups: Annotated[
        list[list[str]], Key('`[["gpu:0", "gpu:1"]]`: all GPUs of a group are peers', kind="list of lists")
    ]
    origin: Annotated[From, Key("as for a constant, but not `fitted`", default="as for a constant")] = msgspec.field(
        name="from"
    )
    ref: str = ""
    why: str = ""


class Spread(Table, frozen=True):
    """One level of noise: sigmas of log-normal factors, and the correlation of samples."""

    origin: Annotated[From, Key("as for a constant, but not `fitted`", default="as for a constant")] = msgspec.field(
        name="from"
    )
    ref: str = ""
    why: str = ""
    shape: Annotated[Shape, Key("`lognormal`, `autocorrelated` (AR(1), samples only) or `bimodal`")] = "lognormal"
    correlation: Annotated[
        float | None,
        Key("with the previous sample, from 0 to below 1", kind="fraction", default="with `autocorrelated`"),
    ] = None
    second: Annotated[
        float | None,
        Key("factor of the second mode, above 1; its probability", kind="factor, fraction", default="with `bimodal`"),
    ] = None
    share: float | None = None
    compute: Annotated[float, Key("`local_us`, `inline_us`", kind="sigma")] = 0.0
    engine: Annotated[float, Key("`to_device_us`, `from_device_us`, `peer_us`, `[pull]`, `chunk_us`", kind="sigma")] = (
        0.0
    )
    channel: Annotated[float, Key("`channel_us`", kind="sigma")] = 0.0
    rate: Annotated[float, Key("rates of copies; for `machine`, of links", kind="sigma")] = 0.0
    host: Annotated[float, Key("speed of CPU threads", kind="sigma")] = 0.0


class Noise(Table, frozen=True):
    machine: Spread | None = None
    round: Spread | None = None
    sample: Spread | None = None


class Fault(Table, frozen=True):
    """A planted fault for points whose id and round ("ID#ROUND") match `match`. The kind determines the other keys."""

    kind: Annotated[FaultKind, Key("one of the above")]
    match: Annotated[str, Key("points by id and round: `h2d/*#0` is the first round of `h2d`", kind="glob")] = "*"
    after_samples: Annotated[int, Key("samples of a session before the fault")] = 0
    samples: Annotated[int | None, Key("number of samples", default="none")] = None
    factor: Annotated[
        float | None, Key("above 1 for `ramp`, `throttle`; below 1 for `slow`, `flaky`", default="none")
    ] = None
    links: Annotated[list[str] | None, Key("names of directed links", kind="list of globs", default="none")] = None
    share: Annotated[float | None, Key("part of slow samples", kind="fraction", default="none")] = None


class Deviation(Table, frozen=True):
    """The relative error of the simulation of a fitted file for one operation."""

    points: Annotated[int, Key("points compared")]
    median: Annotated[float, Key("median and p90 of the error", kind="fraction")]
    ninety: float
    held_out: Annotated[bool, Key("true: the fit excluded these points")] = False


class Model(Table, frozen=True, kw_only=True):
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
    network: Network | None = None
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


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list | tuple) else value
