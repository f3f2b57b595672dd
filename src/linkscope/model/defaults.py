"""Default values of constants, from a node with H200s, by table and key.

They have the order of magnitude of current drivers and operating systems on any link. Constants that a run does not
determine stay in the file as `assumed`, with this reason.
"""

from typing import Any

from linkscope.model.skeleton import quantity

WHY = "as on nodes of H200 (machines/h200x4.toml)"

VALUES: dict[str, dict[str, float | str]] = {
    "costs": {
        "call_us": 1.3,
        "launch_us": 3.1,
        "sync_us": 5.0,
        "event_us": 1.25,
        "event_tick_ns": 32.0,
        "host_stamp_us": 0.03,
        "cpu_copy_us": 0.025,
        "stream_wait_us": 5.0,
    },
    "copy": {
        "to_device_us": 1.92,
        "from_device_us": 1.56,
        "peer_us": 2.2,
        "local_us": 1.97,
        "inline_kib": 1.0,
        "inline_us": 1.69,
        "inline_gbps": 3.0,
        "channel_us": 4.9,
    },
    "pageable": {
        "chunk_kib": 1024.0,
        "slots": 4.0,
        "to_device_gbps": 10.55,
        "from_device_gbps": 19.8,
        "to_device_us": 0.1,
        "from_device_us": 4.0,
        "copied_by": "caller",
    },
    "staged_peer": {"chunk_kib": 1024.0, "slots": 4.0, "chunk_us": 8.3},
    "pull": {"extra_us": 10.6, "overlap": 0.55, "least_us": 6.75},
    "kernel": {
        "launch_us": 1.8,
        "load_us": 0.341,
        "read_tile_us": 0.19,
        "write_tile_us": 0.15,
        "memory_efficiency": 0.79,
        "packet_bytes": 20.0,
    },
    "batch": {"issue_us": 0.02, "host_us": 0.87},
    "graph": {"launch_us": 0.1, "node_us": 0.0},
    "managed": {
        "page_kib": 4.0,
        "launch_us": 55.0,
        "gpu_batch_pages": 256.0,
        "gpu_batch_us": 0.5,
        "gpu_page_us": 0.05,
        "gpu_region_us": 2.5,
        "gpu_block_us": 22.0,
        "cpu_fault_pages": 16.0,
        "cpu_block_pages": 512.0,
        "cpu_fault_us": 18.5,
        "cpu_page_us": 0.45,
        "to_device_gbps": 30.0,
        "from_device_gbps": 17.5,
        "prefetch_us": 50.0,
        "piece_kib": 2048.0,
        "to_device_piece_us": 7.2,
        "from_device_piece_us": 83.0,
    },
    "calls": {
        "locked_us": 1.1,
        "argument_kib_us": 0.13,
        "end_us": 5.5,
        "synchronize_us": 1.5,
        "record_us": 1.2,
        "query_us": 1.4,
        "create_stream_us": 3.8,
        "destroy_stream_us": 2.0,
        "instantiate_us": 0.8,
        "instantiate_node_us": 1.6,
        "upload_us": 1.3,
        "upload_node_us": 1.04,
        "graph_us": 1.5,
        "graph_node_us": 0.001,
    },
    "atomic": {
        "gpu_us": 0.22,
        "host_us": 0.15,
        "gpu_gops": 190.0,
        "same_gops": 1.5,
        "host_gops": 6.0,
        "link_bytes": 10.0,
    },
    "memory": {
        "page_kib": 4.0,
        "block_kib": 2048.0,
        "map_us": 2.3,
        "fault_us": 0.9,
        "clear_gbps": 7.8,
        "free_page_us": 0.16,
        "pin_us": 60.0,
        "pin_page_us": 0.23,
        "unpin_page_us": 0.062,
        "pinned_page_us": 1.68,
        "free_pinned_page_us": 0.39,
        "host_pointer_us": 0.2,
        "device_us": 2.0,
        "device_block_us": 8.4,
        "free_block_us": 6.5,
        "pool_us": 3.0,
        "device_map_us": 25.0,
        "map_block_us": 1.8,
        "wc_read_gbps": 7.9,
        "wc_write_gbps": 7.9,
    },
    "numa": {"memcpy_gbps": 7.9, "load_us": 0.108},
    "gpu": {"local_copy_gbps": 2145.0},
    "link": {"efficiency": 0.9, "latency_us": 0.3},
}

# Keys that a file may omit, and the values that the simulation uses instead.
STANDS_FOR = {
    "back_gbps": "gbps",
    "kernel_efficiency": "efficiency",
    "kernel_back_efficiency": "kernel_efficiency",
    "memcpy_remote_gbps": "memcpy_gbps",
    "memcpy_stream_gbps": "memcpy_gbps",
    "small_gbps": "to_device_gbps",
    "small_peer_us": "peer_us",
    "peer_launch_us": "launch_us",
    "peer_gbps": "to_device_gbps",
    "same_peer_gops": "same_gops",
}


def table(name: str) -> dict[str, Any]:
    """A table of constants, all assumed."""
    return {
        key: value if isinstance(value, str) else quantity(value, "assumed", why=WHY)
        for key, value in VALUES[name].items()
    }
