"""The CUDA calls that perform a method, for a programmer who wants to use it."""

from linkscope.advise.methods import FILES, reads_whole
from linkscope.flow import kind_of
from linkscope.model.curves import Method

ALLOCATION = {
    "pinned": "cudaMallocHost memory",
    "mapped": "cudaHostAlloc memory with cudaHostAllocMapped",
    "wc": "cudaHostAlloc memory with cudaHostAllocWriteCombined",
    "registered": "malloc memory after cudaHostRegister",
    "registered_hugepage": "huge pages (mmap) after cudaHostRegister",
    "hugepage": "huge pages (mmap)",
    "pageable": "malloc memory",
    "shm": "shared memory (mmap) after cudaHostRegister",
    "device": "cudaMalloc memory",
    "pool": "cudaMallocAsync memory",
    "vmm": "cuMemCreate and cuMemMap memory",
    "ipc": "cudaIpcOpenMemHandle memory",
    "posix_fd": "cuMemImportFromShareableHandle memory",
    "managed": "cudaMallocManaged memory",
    "system": "malloc memory, which the GPU accesses directly",
}
_CALL = {
    "batch": "cudaMemcpyBatchAsync",
    "graph": "cudaGraphLaunch of a graph of memcpy nodes",
    "sm": "a kernel whose threads load and store 16 B each",
    "tma": "a kernel that copies blocks with cp.async.bulk (TMA)",
    "cpu": "memcpy by a CPU thread",
    "prefetch": "cudaMemPrefetchAsync",
}
_ACCESS = {"read": "a kernel that reads the source in place", "write": "a kernel that writes the destination in place"}
_BLOCKS = "one kernel that copies all pieces (linkscope.copy_blocks)"
_OTHER = {
    ("pieces", "ce"): "cudaMemcpyAsync for each piece",
    ("pieces", "graph"): "cudaGraphLaunch of a graph with a memcpy node for each piece",
    ("pieces", "sm"): _BLOCKS,
    ("strided", "ce"): "cudaMemcpy2DAsync",
    ("strided", "sm"): _BLOCKS,
    ("staged", "ce"): "linkscope.copy, through pinned slots",
    ("fresh_staged", "ce"): "linkscope.to_cpu, through pinned slots",
    ("relayed", "ce"): "linkscope.copy, over the links of helper GPUs",
}


def _of_file(method: Method, reads: bool) -> str:
    if method.family.benchmark == "file_direct":
        return f"{'cuFileRead' if reads else 'cuFileWrite'}, past memory of the host"
    if method.family.benchmark == "file_mapped":
        return "linkscope.read_file, from the mapped page cache"
    way = "through" if dict(method.params).get("cache") == "hot" else "past"
    if reads_whole(method):
        return f"{'pread, then cudaMemcpyAsync' if reads else 'cudaMemcpyAsync, then pwrite'}, {way} the page cache"
    if way == "through" and not reads:
        return "cudaMemcpyAsync and pwrite in chunks, through the page cache"
    return f"{'linkscope.read_file' if reads else 'linkscope.save_file'}, {way} the page cache"


def call_text(method: Method, src: str, dst: str) -> str:
    """'cudaMemcpyAsync from cudaMallocHost memory': the call, and the memory at an end that is not plain GPU memory."""
    family, params = method.family, dict(method.params)
    if family.benchmark in FILES:
        return _of_file(method, kind_of(src) == "disk")
    if family.benchmark == "demand":
        return f"an access to {ALLOCATION.get(family.dst_memory, family.dst_memory)}, without a prefetch"
    other = _OTHER.get((family.benchmark, family.engine))
    call = other or _ACCESS.get(family.benchmark) or _CALL.get(family.engine, "")
    if not call:
        call = "cudaMemcpyPeerAsync" if params.get("call") == "peer" else "cudaMemcpyAsync"
    memories = []
    for word, place, memory in (("from", src, family.src_memory), ("to", dst, family.dst_memory)):
        ordinary = "gpu:" in place and memory == "device"
        if not ordinary and memory in ALLOCATION:
            memories.append((word, ALLOCATION[memory]))
    if len(memories) == 2 and memories[0][1] == memories[1][1]:
        memories = [("of", memories[0][1])]
    text = " ".join([call, *(f"{word} {memory}" for word, memory in memories)])
    between_gpus = "gpu:" in src and "gpu:" in dst and src != dst
    return f"{text}, after cudaDeviceEnablePeerAccess" if between_gpus and params.get("peer") == "on" else text
