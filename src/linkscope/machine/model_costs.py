"""The tables of a machine file that hold the cost of operations."""

from typing import Annotated, Literal

from linkscope.machine.model_schema import Key, Quantity, Table

CopiedBy = Literal["driver", "caller"]
Turns = Literal["copy", "stream"]


class Costs(Table, frozen=True):
    call_us: Annotated[Quantity, Key("queueing a copy, or a chunk of a pageable copy")]
    launch_us: Annotated[Quantity, Key("launching a kernel without arguments")]
    sync_us: Annotated[Quantity, Key("from the end of the last copy until the waiting thread runs")]
    event_us: Annotated[Quantity, Key("between two consecutive events")]
    event_tick_ns: Annotated[Quantity, Key("resolution of event times")]
    host_stamp_us: Annotated[Quantity, Key("reading the host's clock; calling memcpy")]
    cpu_copy_us: Quantity
    context_switch_us: Annotated[
        Quantity | None, Key("switching a GPU to another context", default="several processes per GPU unsupported")
    ] = None
    time_slice_us: Annotated[
        Quantity | None, Key("time slice of a context while another waits", needs="context_switch_us")
    ] = None
    message_shm_us: Annotated[
        Quantity | None,
        Key(
            "a message to another process of the host, one direction: shared memory, local socket, TCP; bytes are "
            "copied twice at `memcpy_gbps`",
            default="0.3, 3 and 7",
        ),
    ] = None
    message_local_us: Annotated[Quantity | None, Key(row="message_shm_us")] = None
    message_tcp_us: Annotated[Quantity | None, Key(row="message_shm_us")] = None
    stream_wait_us: Annotated[
        Quantity | None,
        Key("from an event until a waiting stream continues", default="one actor on several GPUs unsupported"),
    ] = None


class Copy(Table, frozen=True):
    to_device_us: Annotated[Quantity, Key("set-up of a copy: host to GPU, GPU to host, between peers, within a GPU")]
    from_device_us: Quantity
    peer_us: Quantity
    local_us: Quantity
    inline_kib: Annotated[Quantity, Key("copies to a GPU up to this size travel in the command")]
    inline_us: Annotated[Quantity, Key("their set-up and highest rate")]
    inline_gbps: Quantity
    channel_us: Annotated[Quantity, Key("a stream's [change of channel](../notes/single-copies.md)")]
    small_peer_us: Annotated[
        Quantity | None, Key("set-up between GPUs up to `inline_kib`, queued by the source", default="as `peer_us`")
    ] = None
    row_us: Annotated[
        Quantity | None, Key("least time from one row to the next", default="2D and 3D copies unsupported")
    ] = None
    both_ways_us: Annotated[
        Quantity | None, Key("added while the engine of the other direction is busy", default="0")
    ] = None
    arrive_us: Annotated[
        Quantity | None, Key("from the last bytes of a copy to the host until their arrival is known", default="0")
    ] = None
    from_device_late_us: Annotated[
        Quantity | None, Key("added per doubling of the size from 4 KiB, to the host and within a GPU", default="0")
    ] = None
    local_late_us: Quantity | None = None
    turns: Annotated[
        Turns,
        Key(
            "how an engine serves several streams: `copy`, one copy of each in turn; `stream`, all queued copies "
            "of a stream ([H200](../notes/shared-links-evidence.md#what-one-engine-serves))"
        ),
    ] = "copy"


class Batch(Table, frozen=True):
    """Copies that one call queues together: the GPU sets up one while earlier bytes flow."""

    issue_us: Annotated[Quantity, Key("from one set-up to the next")]
    host_us: Annotated[Quantity, Key("host time per copy, besides `call_us`")]


class Graph(Table, frozen=True):
    """Copies that are nodes of a graph, one after the other."""

    launch_us: Annotated[Quantity, Key("from the graph's turn to its first node")]
    node_us: Annotated[Quantity, Key("cost of a node beyond a copy")]


class Pull(Table, frozen=True):
    """The additional cost of a copy between GPUs that the destination's stream queues."""

    extra_us: Annotated[Quantity, Key("added to `peer_us`")]
    overlap: Annotated[Quantity, Key("part of the transfer time subtracted from `extra_us`")]
    least_us: Annotated[Quantity, Key("lower bound of the rest")]


class Kernel(Table, frozen=True):
    """How a GPU's SMs access memory; a tile is what a block of 512 threads has in flight, 32 KiB."""

    launch_us: Annotated[Quantity, Key("from one kernel to the next in a stream")]
    load_us: Annotated[Quantity, Key("a load from own memory that misses all caches")]
    read_tile_us: Annotated[Quantity, Key("a block's own time for a tile")]
    write_tile_us: Quantity
    memory_efficiency: Annotated[Quantity, Key("part of `memory_gbps` that SMs get")]
    host_reach_mib: Annotated[Quantity | None, Key("host memory with cached translations", default="all")] = None
    host_page_kib: Annotated[
        Quantity | None, Key("size of a translation; time to find a missing one", needs="host_reach_mib")
    ] = None
    host_walk_us: Annotated[Quantity | None, Key(row="host_page_kib", needs="host_reach_mib")] = None
    packet_bytes: Annotated[Quantity | None, Key("overhead of a request on a link", default="0")] = None


class Managed(Table, frozen=True, kw_only=True):
    """How managed pages move: by faults of GPU or CPU threads, or in pieces by prefetch."""

    page_kib: Annotated[Quantity, Key("page size")]
    launch_us: Annotated[Quantity, Key("a kernel that touches pages of a host, besides faults")]
    peer_launch_us: Annotated[Quantity | None, Key("the same for pages of another GPU", default="as `launch_us`")] = (
        None
    )
    gpu_batch_pages: Annotated[Quantity, Key("pages in a batch", whole=True)]
    gpu_batch_us: Annotated[Quantity, Key("time of a batch, and of each page")]
    gpu_page_us: Quantity
    gpu_region_us: Annotated[
        Quantity | None, Key("per region of 64 KiB, and block of 2 MiB, without a page before", default="0")
    ] = None
    gpu_block_us: Quantity | None = None
    cpu_fault_pages: Annotated[Quantity, Key("pages of the first CPU fault in a block", whole=True)]
    cpu_block_pages: Annotated[
        Quantity | None,
        Key("pages of a block; a multiple of `cpu_fault_pages`", default="as `cpu_fault_pages`", whole=True),
    ] = None
    cpu_fault_us: Annotated[Quantity, Key("a CPU fault, before its pages move")]
    cpu_page_us: Annotated[Quantity | None, Key("per touched page", default="0")] = None
    to_device_gbps: Annotated[Quantity, Key("highest rate of faults to a GPU, and to all CPU threads")]
    from_device_gbps: Quantity
    peer_gbps: Annotated[Quantity | None, Key("from another GPU", default="as `to_device_gbps`")] = None
    cpu_reach_gbps: Annotated[
        Quantity | None, Key("rate of a CPU thread on GPU pages in place", default="pages move")
    ] = None
    modified_mib: Annotated[Quantity | None, Key("modified pages in a host's caches", default="none")] = None
    modified_far_gbps: Annotated[Quantity | None, Key("their rate to far GPUs", needs="modified_mib")] = None
    prefetch_us: Annotated[Quantity, Key("a prefetch, per range")]
    piece_kib: Annotated[Quantity, Key("size of a piece; a multiple of `page_kib`")]
    to_device_piece_us: Annotated[Quantity, Key("set-up of a piece")]
    from_device_piece_us: Quantity


class Calls(Table, frozen=True):
    """Cost of calls for the calling CPU thread."""

    locked_us: Annotated[Quantity, Key("part of `costs.launch_us` that holds the driver's lock")]
    argument_kib_us: Annotated[Quantity, Key("per KiB of kernel arguments")]
    end_us: Annotated[Quantity, Key("from the return of a launch to the end of the kernel")]
    synchronize_us: Annotated[Quantity, Key("waiting for a completed stream, device or event")]
    record_us: Annotated[Quantity, Key("the call of that name for an event or a stream")]
    query_us: Quantity
    create_stream_us: Quantity
    destroy_stream_us: Quantity
    instantiate_us: Annotated[
        Quantity | None, Key("instantiating, uploading and launching a graph", default="no graphs", needs="graph_us")
    ] = None
    instantiate_node_us: Annotated[
        Quantity | None, Key("the same, per node", default="no graphs", needs="graph_us")
    ] = None
    upload_us: Annotated[Quantity | None, Key(row="instantiate_us", needs="graph_us")] = None
    upload_node_us: Annotated[Quantity | None, Key(row="instantiate_node_us", needs="graph_us")] = None
    graph_us: Annotated[Quantity | None, Key(row="instantiate_us")] = None
    graph_node_us: Annotated[Quantity | None, Key(row="instantiate_node_us", needs="graph_us")] = None


class Atomic(Table, frozen=True, kw_only=True):
    """Atomic operations of GPU threads: the time of one, and their rates."""

    gpu_us: Annotated[Quantity, Key("a dependent atomic in GPU or host memory")]
    host_us: Quantity
    cpu_us: Annotated[Quantity | None, Key("a CPU's addition to a cached word", default="not supported")] = None
    gpu_gops: Annotated[Quantity, Key("independent atomics on different words of GPU or host memory")]
    same_gops: Annotated[Quantity, Key("all on one word")]
    same_peer_gops: Annotated[Quantity | None, Key("all on one word of another GPU", default="as `same_gops`")] = None
    host_gops: Annotated[Quantity, Key(row="gpu_gops")]
    link_bytes: Annotated[Quantity, Key("bytes of an atomic on a link")]


class Memory(Table, frozen=True, kw_only=True):
    """Cost of memory besides its rate: pages of the kernel, pinned pages, GPU blocks, memory of another process.

    It also holds the rates of a CPU thread on write-combined memory.
    """

    page_kib: Annotated[Quantity, Key("an ordinary page; the unit of GPU memory")]
    block_kib: Quantity
    map_us: Annotated[Quantity, Key("mapping or unmapping host memory")]
    fault_us: Annotated[Quantity, Key("first touch of a page, and clearing it")]
    clear_gbps: Quantity
    free_page_us: Annotated[Quantity, Key("returning a page")]
    pin_us: Annotated[Quantity, Key("pinning, unpinning or allocating pinned memory")]
    pin_page_us: Annotated[Quantity, Key("the same, per touched page")]
    unpin_page_us: Quantity
    pinned_page_us: Annotated[Quantity, Key("allocating a pinned page; returning it")]
    free_pinned_page_us: Quantity
    host_pointer_us: Annotated[Quantity, Key("query of the GPU address of pinned memory")]
    device_us: Annotated[Quantity, Key("allocating or freeing GPU memory")]
    device_block_us: Annotated[Quantity, Key("the same, per block")]
    free_block_us: Quantity
    pool_us: Annotated[Quantity, Key("memory that a pool keeps")]
    device_map_us: Annotated[Quantity, Key("mapping addresses; per block")]
    map_block_us: Quantity
    wc_read_gbps: Annotated[Quantity, Key("CPU thread on write-combined memory")]
    wc_write_gbps: Quantity
    export_us: Annotated[
        Quantity | None, Key("making a handle for another process", default="shared GPU memory unsupported")
    ] = None
    open_us: Annotated[
        Quantity | None, Key("opening an IPC handle; importing a file descriptor", needs="export_us")
    ] = None
    import_us: Annotated[Quantity | None, Key(row="open_us", needs="export_us")] = None


class Pageable(Table, frozen=True):
    """Copies through a ring of pinned chunks, by one thread of the driver or by the calling thread."""

    chunk_kib: Annotated[Quantity, Key("size of a chunk")]
    slots: Annotated[Quantity, Key("chunks in a ring", whole=True)]
    to_device_gbps: Annotated[Quantity, Key("rate of the thread")]
    from_device_gbps: Quantity
    to_device_us: Annotated[Quantity | None, Key("the call, besides its chunks", default="as `call_us`")] = None
    from_device_us: Quantity | None = None
    small_us: Annotated[
        Quantity | None,
        Key("set-up and rate of copies to a GPU up to 64 KiB, which travel in the command", default="as larger copies"),
    ] = None
    small_gbps: Quantity | None = None
    end_us: Annotated[
        Quantity | None, Key("from the last bytes to a GPU until the waiting thread runs", default="0")
    ] = None
    copied_by: Annotated[
        CopiedBy, Key("`driver`: one thread per process copies; `caller`: each calling thread copies")
    ] = "driver"


class StagedPeer(Table, frozen=True):
    chunk_kib: Annotated[Quantity, Key("size of a chunk")]
    slots: Annotated[Quantity, Key("chunks in the ring", whole=True)]
    chunk_us: Annotated[Quantity, Key("set-up of a chunk, in and out")]
