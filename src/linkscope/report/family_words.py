"""Operations, engines and memory kinds in words that need no list of terms, for the page."""

from linkscope.model.curves import Family
from linkscope.report.headline import COPIES

OPERATIONS = COPIES | {
    "host_to_all": "host → all GPUs",
    "all_to_host": "all GPUs → host",
    "one_to_all": "one GPU → all others",
    "all_to_one": "all others → one GPU",
    "exchange_all": "host ↔ all GPUs",
    "demand": "pages on demand",
    "file_direct": "cuFile",
    "file_mapped": "mapped page cache",
    "fresh": "GPU → untouched memory",
    "fresh_staged": "GPU → untouched memory, staged",
}
ENGINES = {
    "ce": "copy engine", "sm": "GPU threads", "tma": "TMA", "cpu": "CPU", "batch": "one batch call",
    "file": "file calls",
}  # fmt: skip
MEMORIES = {
    "wc": "write-combined",
    "shm": "shared memory",
    "hugepage": "huge pages",
    "registered_hugepage": "registered huge pages",
    "posix_fd": "file descriptor",
    "ipc": "IPC",
    "vmm": "mapped by VMM",
}
WORK = {
    "h2d": "copies to the GPU", "d2h": "copies to the host", "both": "copies in both directions",
    "local": "copies within the GPU", "peer": "copies between GPUs", "zero_copy": "zero-copy reads",
    "gemm": "matrix products", "triad": "triads", "memory": "memory-bound kernels", "launch": "kernel launches",
    "ping_pong": "GPU-CPU round trips", "host": "CPU copies", "message": "messages", "socket": "messages by socket",
    "disk": "disk reads", "mix": "copies and kernels in turn",
}  # fmt: skip
_NAMELESS = ("fault", "prefetch")  # engines that the operation says already


def operation_text(benchmark: str) -> str:
    """'host → all GPUs' for 'host_to_all'; other names without underscores."""
    return OPERATIONS.get(benchmark, benchmark.replace("_", " "))


def work_text(kind: str) -> str:
    """'zero-copy reads' for 'zero_copy', a kind of work of suite `contention`."""
    return WORK.get(kind, operation_text(kind))


def memory_text(kind: str) -> str:
    """'write-combined' for 'wc'."""
    return MEMORIES.get(kind, kind.replace("_", " "))


def family_text(family: Family) -> str:
    """'host → GPU, copy engine, pageable': memory of a GPU is left out beside another kind, and where nothing else
    occurs.
    """
    ends = dict.fromkeys((family.src_memory, family.dst_memory))
    ends.pop("device", None)
    engine = "" if family.engine in _NAMELESS else ENGINES.get(family.engine, family.engine)
    memories = " → ".join(map(memory_text, ends))
    return ", ".join(filter(None, (operation_text(family.benchmark), engine, memories)))
