"""What a method needs, and the code that does it: C++ with the CUDA runtime, or Python with linkscope."""

import itertools
from dataclasses import dataclass

from linkscope.advise.calls import ALLOCATION
from linkscope.advise.file_recipes import call_of_file, needs_of_file
from linkscope.advise.methods import FILES, FRESH, RELAYED, STAGED, STAGED_FRESH
from linkscope.advise.question import Question
from linkscope.flow import kind_of
from linkscope.model.curves import Method

_PREPARE = {
    "pageable": "{p} = static_cast<char*>(malloc(bytes));  // once",
    "system": "{p} = static_cast<char*>(malloc(bytes));  // once",
    "pinned": "cudaMallocHost(&{p}, bytes);  // once",
    "mapped": "cudaHostAlloc(&{p}, bytes, cudaHostAllocMapped);  // once",
    "wc": "cudaHostAlloc(&{p}, bytes, cudaHostAllocWriteCombined);  // once; the CPU only writes it",
    "registered": "cudaHostRegister({p}, bytes, cudaHostRegisterDefault);  // once; linkscope.register in Python",
    "registered_hugepage": "madvise({p}, bytes, MADV_HUGEPAGE);  // once, before the first touch\n"
    "cudaHostRegister({p}, bytes, cudaHostRegisterDefault);  // once",
    "hugepage": "madvise({p}, bytes, MADV_HUGEPAGE);  // once, before the first touch",
    "shm": "{p} = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));  // once\n"
    "cudaHostRegister({p}, bytes, cudaHostRegisterDefault);  // once",
    "managed": "cudaMallocManaged(&{p}, bytes);  // once",
    "pool": "cudaMallocAsync(&{p}, bytes, stream);  // once",
}
_HUGE = ("hugepage", "registered_hugepage")
_POOL_OF_PAGES = """\
const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
{p} = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, how, -1, 0));  // once"""
_BY_DRIVER = "// {p} comes from these calls of the CUDA driver API, once"
_OF_MEMORY = {
    "pool": "driver 460 (CUDA 11.2) or newer",
    "system": "a GPU that reaches pageable memory, by HMM or ATS",
}
_KERNEL = """\
__global__ void copy(int4* dst, const int4* src, size_t n) {{
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) dst[i] = src[i];
}}
copy<<<sms, 512, 0, stream>>>(dst, src, bytes / 16);"""
_TMA = """\
// one thread of each block, for each tile of its part, with a barrier and the tile in shared memory:
cuda::device::memcpy_async_tx(tile, src + at, cuda::aligned_size_t<16>(size), barrier);
barrier.wait(cuda::device::barrier_arrive_tx(barrier, 1, size));
cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, dst + at, tile, size);
cuda::ptx::cp_async_bulk_commit_group();
cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());"""
_PLAIN = "cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);"
_GRAPH = """\
cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);  // once
{copies}
cudaStreamEndCapture(stream, &graph);  // once
cudaGraphInstantiate(&ready, graph, 0);  // once
cudaGraphLaunch(ready, stream);"""
_LOOP = "for (size_t i = 0; i < count; ++i) cudaMemcpyAsync(dst[i], src[i], {piece}, cudaMemcpyDefault, stream);"
_BATCH = """\
cudaMemcpyAttributes in_order{{}};
in_order.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
size_t first = 0;
cudaMemcpyBatchAsync({arguments}, &in_order, &first, 1, stream);  // CUDA 13"""
_BATCH_OF_ONE = "void* to = dst;\nconst void* from = src;\n" + _BATCH.format(arguments="&to, &from, &bytes, 1")
_SPLIT = """\
for (size_t i = 0; i < {streams}; ++i)
  cudaMemcpyAsync(dst + i * bytes / {streams}, src + i * bytes / {streams}, bytes / {streams}, cudaMemcpyDefault,
                  streams[i]);"""
_STRIDED = "cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, {piece}, count, cudaMemcpyDefault, stream);"
_PREFETCH = """\
cudaMemLocation there{{{kind}, {number}}};
cudaMemPrefetchAsync(src, bytes, there, 0, stream);  // CUDA 13"""
_IN_PLACE = {
    "read": "kernel<<<blocks, threads, 0, stream>>>(src);  // reads src where it is, and copies nothing",
    "write": "kernel<<<blocks, threads, 0, stream>>>(dst);  // writes dst where it is, and copies nothing",
}
_COPY = "linkscope.copy(dst, src)  # C: ls_copy"
_NEW = "array = linkscope.to_cpu(src)  # C: ls_copy to the new memory"
_HELPED = """\
linkscope.use_helpers({helpers})  # once; C: ls_set_helpers
linkscope.copy(dst, src)  # C: ls_copy"""
_RELAY = """\
for (size_t at = 0, i = 0; at < bytes; at += chunk, i = (i + 1) % {slots}) {{
  const size_t size = std::min(chunk, bytes - at);
  cudaStreamWaitEvent(from, emptied[i]);
  cudaMemcpyAsync(slot[i], src + at, size, cudaMemcpyDefault, from);
  cudaEventRecord(filled[i], from);
  cudaStreamWaitEvent(to, filled[i]);
  cudaMemcpyAsync(dst + at, slot[i], size, cudaMemcpyDefault, to);
  cudaEventRecord(emptied[i], to);
}}"""
# The paths of `linkscope tune` after which linkscope.copy moves the data so, if that is the fastest.
_TUNED = {"local": "--paths within-gpu", "d2d": "--paths peer-to-gpu --other-gpu N"}
_BLOCKS = "linkscope.copy_blocks(dst_pointers, src_pointers, {piece}, stream)  # C: ls_copy_blocks"


@dataclass(frozen=True)
class Recipe:
    """How to do a method. `memory`: for each memory kind its name in words, and the lines that make it; '' where
    the data is in such memory already. `needs`: other conditions. `language` of the call: 'C++' or 'Python'."""

    memory: tuple[tuple[str, str], ...]
    needs: tuple[str, ...]
    language: str
    call: str

    @property
    def code(self) -> str:
        """The lines that make the memory, and the call."""
        return "\n".join([*(lines for _, lines in self.memory if lines and self.language == "C++"), self.call])


def recipe(method: Method, asked: Question, *, several_nodes: bool) -> Recipe:
    """The recipe of a method. `several_nodes`: the host has more than one NUMA node, so that threads must be bound."""
    family = method.family
    if family.benchmark in FILES:
        reads = kind_of(asked.src) == "disk"
        return Recipe((), needs_of_file(method, reads=reads), *call_of_file(method, reads=reads))
    memory = tuple(_memory(method, asked).items())
    needs = tuple(_needs(method, asked, several_nodes=several_nodes))
    if family.benchmark == STAGED and "numa" in (kind_of(asked.src), kind_of(asked.dst)):
        return Recipe(memory, needs, "Python", _COPY)
    if family.benchmark == STAGED_FRESH:
        return Recipe(memory, needs, "Python", _NEW)
    if family.benchmark == RELAYED:
        return Recipe(memory, needs, "Python", _HELPED.format(helpers=_helpers(method, asked)))
    if family.engine == "sm" and family.benchmark in ("pieces", "strided"):
        return Recipe(memory, needs, "Python", _BLOCKS.format(piece=asked.piece))
    return Recipe(memory, needs, "C++", _call(method, asked))


def _helpers(method: Method, asked: Question) -> list[int]:
    """The numbers of the helper GPUs: the lowest ones, as in the program that was timed."""
    own = next(place for place in (asked.src, asked.dst) if kind_of(place) == "gpu")
    others = (number for number in itertools.count() if number != int(own.rpartition(":")[2]))
    return list(itertools.islice(others, int(dict(method.params).get("helpers", "1"))))


def _memory(method: Method, asked: Question) -> dict[str, str]:
    """The memory kinds of a method that are not plain GPU memory, in words, and the lines that make them. Data that
    the question says is in this memory already needs none."""
    family = method.family
    found: dict[str, str] = {}
    for name, place, memory in (("src", asked.src, family.src_memory), ("dst", asked.dst, family.dst_memory)):
        if kind_of(place) == "gpu" and memory == "device":
            continue
        if family.benchmark == "pieces":
            name = "memory"  # in which the pieces lie; src and dst are lists of pointers
        known = kind_of(place) == "numa" and memory == asked.memory
        lines = "" if known else _prepared(memory, name, dict(method.params).get("pages", ""))
        found.setdefault(ALLOCATION.get(memory, f"{memory} memory"), lines)
    return found


def _prepared(memory: str, name: str, pages: str) -> str:
    """The lines that make memory of a kind."""
    if memory in _HUGE and pages[:1].isdigit():  # pages of a stated size come from the pool of the administrator
        registered = [_PREPARE["registered"].format(p=name)] if memory == "registered_hugepage" else []
        return "\n".join([_POOL_OF_PAGES.format(p=name), *registered])
    return _PREPARE.get(memory, _BY_DRIVER).format(p=name)


def _needs(method: Method, asked: Question, *, several_nodes: bool) -> list[str]:
    family, params, needs = method.family, dict(method.params), list[str]()
    needs += [_OF_MEMORY[kind] for kind in (family.src_memory, family.dst_memory) if kind in _OF_MEMORY]
    nodes = dict.fromkeys(place for place in (asked.src, asked.dst) if kind_of(place) == "numa")
    if several_nodes:
        for node in nodes:
            number = node.rpartition(":")[2]
            needs.append(f"memory and calling thread on {node}: numactl --cpunodebind={number} --membind={number}")
    between_gpus = kind_of(asked.src) == kind_of(asked.dst) == "gpu" and asked.src != asked.dst
    if between_gpus and (params.get("peer") == "on" or family.engine in ("sm", "tma")):
        needs.append("peer access: cudaDeviceCanAccessPeer")
    if family.benchmark in (STAGED, STAGED_FRESH):
        of_each = f" for each of {params['sms']} multiprocessors" if "sms" in params else ""
        needs.append(f"{params.get('slots', '2')} pinned slots of {params.get('chunk', '1MiB')}{of_each}")
        needs += ["the library of linkscope, which chooses its own slots"] if nodes else []
    if family.benchmark == RELAYED:
        needs += ["the library of linkscope, which divides the copy itself", "peer access: cudaDeviceCanAccessPeer"]
        needs.append(f"leave to use the links of GPUs {_helpers(method, asked)}, whose own copies are slower meanwhile")
    if family.benchmark in FRESH and family.dst_memory == "hugepage":
        needs.append("transparent huge pages: /sys/kernel/mm/transparent_hugepage/enabled is madvise or always")
    is_pageable = "pageable" in (family.src_memory, family.dst_memory)
    if "threads" in params and (
        family.engine in ("cpu", "fault") or family.benchmark in (STAGED, STAGED_FRESH) or is_pageable
    ):
        needs.append(f"CPU threads: {params['threads']}")
    return list(dict.fromkeys([*needs, *_of_engine(method)]))


def _of_engine(method: Method) -> list[str]:
    """What the engine needs of driver, GPU and data."""
    engine, benchmark = method.family.engine, method.family.benchmark
    if engine == "batch":
        return ["driver 570 (CUDA 12.8) or newer; as written here, driver 580 (CUDA 13)"]
    if engine == "prefetch":
        return ["as written here, driver 580 (CUDA 13)"]
    if engine == "tma":
        return ["compute capability 9.0 or newer", "multiprocessors, which other kernels then lack"]
    if benchmark == "strided":
        return ["pieces at equal distances, at both ends", *(["the library of linkscope"] if engine == "sm" else [])]
    if benchmark == "pieces" and engine == "sm":
        return ["the library of linkscope, whose kernel occupies at most 32 multiprocessors"]
    if engine == "sm":
        return ["multiprocessors, which other kernels then lack", "addresses that are multiples of 16 B"]
    if benchmark == "split":
        return [f"{dict(method.params).get('streams', '2')} streams"]
    return ["the same addresses in every launch", "driver 525 (CUDA 12) or newer"] if engine == "graph" else []


def _call(method: Method, asked: Question) -> str:
    family, params = method.family, dict(method.params)
    if family.benchmark == "demand":
        return "kernel<<<blocks, threads, 0, stream>>>(src);  // its accesses move the pages"
    if family.benchmark in _IN_PLACE:
        return _IN_PLACE[family.benchmark]
    if family.engine == "prefetch":
        kind, number = asked.dst.rpartition("/")[2].split(":")
        place = "cudaMemLocationTypeDevice" if kind == "gpu" else "cudaMemLocationTypeHostNuma"
        return _PREFETCH.format(kind=place, number=number)
    if family.benchmark == "strided":
        return _STRIDED.format(piece=asked.piece)
    if family.benchmark == STAGED:
        return _RELAY.format(slots=params.get("slots", "2"))
    if family.benchmark == "split":
        return _SPLIT.format(streams=params.get("streams", "2"))
    call = _of_copies(family.engine, asked)
    if family.engine in ("sm", "tma") and family.benchmark in _TUNED:
        call = f"// linkscope.copy(dst, src) after linkscope tune {_TUNED[family.benchmark]}, or:\n{call}"
    if params.get("call") == "peer":
        numbers = [place.rpartition(":")[2] for place in (asked.dst, asked.src)]
        call = f"cudaMemcpyPeerAsync(dst, {numbers[0]}, src, {numbers[1]}, bytes, stream);"
    if params.get("peer") == "on":
        call = f"cudaDeviceEnablePeerAccess(other, 0);  // once, on each of the two GPUs\n{call}"
    return f"{call}\ncudaStreamSynchronize(stream);" if asked.alone and family.engine != "cpu" else call


def _of_copies(engine: str, asked: Question) -> str:
    copies = _LOOP.format(piece=asked.piece) if asked.piece else _PLAIN
    if engine == "graph":
        return _GRAPH.format(copies=copies)
    if engine == "batch":
        return _BATCH.format(arguments="dst, src, sizes, count") if asked.piece else _BATCH_OF_ONE
    other = {"sm": _KERNEL.format(), "tma": _TMA, "cpu": "memcpy(dst, src, bytes);"}
    return other.get(engine, copies)
