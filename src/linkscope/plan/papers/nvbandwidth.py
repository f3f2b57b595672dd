"""nvbandwidth 0.8: its 35 tests, at 512 MiB. report/nvbandwidth.py selects the numbers for its tables."""

from linkscope.plan.papers.entry import Source, row

_BOTH = "bidirectional=true"
_ALL_BOTH = "one bidirectional run gives both tables"
_NAMES = "data move from the one GPU to all others: the name refers to the copying GPU"
_NAMES_BACK = "data move from all others to the one GPU: the name refers to the copying GPU"

NVBANDWIDTH = Source(
    "nvbandwidth",
    "nvbandwidth 0.8",
    "its buffer size",
    (512 << 20,),
    (
        row("1", "host_to_device_memcpy_ce", "h2d/ce/numa.pinned->gpu.device"),
        row("2", "device_to_host_memcpy_ce", "d2h/ce/gpu.device->numa.pinned"),
        row("3", "host_to_device_bidirectional_memcpy_ce", f"h2d/ce/numa.pinned->gpu.device?{_BOTH}"),
        row("4", "device_to_host_bidirectional_memcpy_ce", f"h2d/ce/numa.pinned->gpu.device?{_BOTH}", note=_ALL_BOTH),
        row("5", "device_to_device_memcpy_read_ce", "d2d/ce/gpu.device->gpu.device?initiator=dst"),
        row("6", "device_to_device_memcpy_write_ce", "d2d/ce/gpu.device->gpu.device?initiator=src"),
        row(
            "7", "device_to_device_bidirectional_memcpy_read_ce", f"d2d/ce/gpu.device->gpu.device?initiator=dst&{_BOTH}"
        ),
        row(
            "8",
            "device_to_device_bidirectional_memcpy_write_ce",
            f"d2d/ce/gpu.device->gpu.device?initiator=src&{_BOTH}",
        ),
        row("9", "all_to_host_memcpy_ce", "all_to_host/ce/gpu.device->numa.pinned"),
        row(
            "10",
            "all_to_host_bidirectional_memcpy_ce",
            f"host_to_all/ce/numa.pinned->gpu.device?{_BOTH}",
            note=_ALL_BOTH,
        ),
        row("11", "host_to_all_memcpy_ce", "host_to_all/ce/numa.pinned->gpu.device"),
        row("12", "host_to_all_bidirectional_memcpy_ce", f"host_to_all/ce/numa.pinned->gpu.device?{_BOTH}"),
        row("13", "all_to_one_write_ce", "all_to_one/ce/gpu.device->gpu.device?initiator=src"),
        row("14", "all_to_one_read_ce", "one_to_all/ce/gpu.device->gpu.device?initiator=dst", note=_NAMES),
        row("15", "one_to_all_write_ce", "one_to_all/ce/gpu.device->gpu.device?initiator=src"),
        row("16", "one_to_all_read_ce", "all_to_one/ce/gpu.device->gpu.device?initiator=dst", note=_NAMES_BACK),
        row("17", "host_to_device_memcpy_sm", "h2d/sm/numa.pinned->gpu.device"),
        row("18", "device_to_host_memcpy_sm", "d2h/sm/gpu.device->numa.pinned"),
        row("19", "host_to_device_bidirectional_memcpy_sm", "exchange/sm/numa.pinned->gpu.device?threads=1024"),
        row(
            "20",
            "device_to_host_bidirectional_memcpy_sm",
            "exchange/sm/numa.pinned->gpu.device?threads=1024",
            note=_ALL_BOTH,
        ),
        row("21", "device_to_device_memcpy_read_sm", "d2d/sm/gpu.device->gpu.device?initiator=dst"),
        row("22", "device_to_device_memcpy_write_sm", "d2d/sm/gpu.device->gpu.device?initiator=src"),
        row(
            "23",
            "device_to_device_bidirectional_memcpy_read_sm",
            f"d2d/sm/gpu.device->gpu.device?initiator=dst&{_BOTH}",
        ),
        row(
            "24",
            "device_to_device_bidirectional_memcpy_write_sm",
            f"d2d/sm/gpu.device->gpu.device?initiator=src&{_BOTH}",
        ),
        row("25", "all_to_host_memcpy_sm", "all_to_host/sm/gpu.device->numa.pinned"),
        row(
            "26",
            "all_to_host_bidirectional_memcpy_sm",
            "exchange_all/sm/numa.pinned->gpu.device?threads=1024",
            note=_ALL_BOTH,
        ),
        row("27", "host_to_all_memcpy_sm", "host_to_all/sm/numa.pinned->gpu.device"),
        row("28", "host_to_all_bidirectional_memcpy_sm", "exchange_all/sm/numa.pinned->gpu.device?threads=1024"),
        row("29", "all_to_one_write_sm", "all_to_one/sm/gpu.device->gpu.device?initiator=src"),
        row("30", "all_to_one_read_sm", "one_to_all/sm/gpu.device->gpu.device?initiator=src", note=_NAMES),
        row("31", "one_to_all_write_sm", "one_to_all/sm/gpu.device->gpu.device?initiator=src"),
        row("32", "one_to_all_read_sm", "all_to_one/sm/gpu.device->gpu.device?initiator=src", note=_NAMES_BACK),
        row("33", "host_device_latency_sm", "latency/sm/numa.pinned->gpu.device"),
        row(
            "34",
            "device_to_device_latency_sm",
            "latency/sm/gpu.device->other.device?cache=cold,hot",
            note="its pointer chase stays in an L2, as with cache=hot",
        ),
        row("35", "device_local_copy", "local/ce/gpu.device->gpu.device"),
    ),
)
