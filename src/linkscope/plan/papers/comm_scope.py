"""Comm|Scope: the 29 ticked cells of its table 1, further measurements of its text, its method, its systems and its
findings."""

# ruff: noqa: E501 (a row is a line)
from linkscope.plan.papers.entry import Source, powers, row

_ONE = "mode=single&after=wait"  # one copy at a time, on an otherwise idle stream
# With and without flushed CPU caches (its figure 2). Without: the tool writes the buffer before each copy, except in
# both directions.
_HOST = f"{_ONE}&cache=cold,written"
_HOST_BOTH = f"{_ONE}&cache=cold,hot"
_BOTH = "&bidirectional=true"
_UNBOUND = "&binding=none"  # memory and thread are where the kernel puts them
_ON_EACH_NODE = "&cpu=numa:0,numa:1"  # of its systems: the host thread, near which the driver stages
_GRID = "blocks=256&threads=256&width=4"  # of its kernels

COMM_SCOPE = Source(
    "comm-scope",
    "Comm|Scope (Pearson et al., ICPE 2019)",
    "the tool's own, as far as memory allows; managed memory up to 2^28 bytes",
    powers(8, 32),
    (
        # Table 1
        row(
            "CS-1 CS-14",
            "cudaMemcpyAsync, pageable, NUMA-bound: host to GPU",
            f"h2d/ce/numa.pageable->gpu.device?{_HOST}",
        ),
        row("CS-1", "cudaMemcpyAsync, pageable, NUMA-bound: GPU to host", f"d2h/ce/gpu.device->numa.pageable?{_HOST}"),
        row(
            "CS-1",
            "cudaMemcpyAsync, pageable, NUMA-bound: bidirectional",
            f"h2d/ce/numa.pageable->gpu.device?{_HOST_BOTH}{_BOTH}",
        ),
        row(
            "CS-2",
            "cudaMemcpyAsync, pageable: host to GPU",
            f"h2d/ce/numa.pageable->gpu.device?{_HOST}{_UNBOUND}",
        ),
        row(
            "CS-2",
            "cudaMemcpyAsync, pageable: GPU to host",
            f"d2h/ce/gpu.device->numa.pageable?{_HOST}{_UNBOUND}",
        ),
        row(
            "CS-2",
            "cudaMemcpyAsync, pageable: bidirectional",
            f"h2d/ce/numa.pageable->gpu.device?{_HOST_BOTH}{_BOTH}{_UNBOUND}",
        ),
        row("CS-3", "cudaMemcpyAsync, pinned, NUMA-bound: host to GPU", f"h2d/ce/numa.registered->gpu.device?{_HOST}"),
        row("CS-3", "cudaMemcpyAsync, pinned, NUMA-bound: GPU to host", f"d2h/ce/gpu.device->numa.registered?{_HOST}"),
        row(
            "CS-3",
            "cudaMemcpyAsync, pinned, NUMA-bound: bidirectional",
            f"h2d/ce/numa.registered->gpu.device?{_HOST_BOTH}{_BOTH}",
        ),
        row(
            "CS-4",
            "cudaMemcpyAsync, pinned: host to GPU",
            f"h2d/ce/numa.registered->gpu.device?{_HOST}{_UNBOUND}",
        ),
        row(
            "CS-4",
            "cudaMemcpyAsync, pinned: GPU to host",
            f"d2h/ce/gpu.device->numa.registered?{_HOST}{_UNBOUND}",
        ),
        row(
            "CS-4",
            "cudaMemcpyAsync, pinned: bidirectional",
            f"h2d/ce/numa.registered->gpu.device?{_HOST_BOTH}{_BOTH}{_UNBOUND}",
        ),
        row(
            "CS-5 CS-14", "zero-copy, mapped host memory: the GPU reads", f"read/sm/numa.registered->gpu.device?{_GRID}"
        ),
        row(
            "CS-5 CS-14",
            "zero-copy, mapped host memory: the GPU writes",
            f"write/sm/gpu.device->numa.registered?{_GRID}",
        ),
        row(
            "CS-6",
            "zero-copy, GPU to GPU",
            f"read/sm/gpu.device->other.device?{_GRID}",
            f"write/sm/gpu.device->other.device?{_GRID}",
        ),
        row(
            "CS-6",
            "zero-copy, GPU to GPU: bidirectional",
            f"read/sm/gpu.device->other.device?{_GRID}{_BOTH}",
            f"write/sm/gpu.device->other.device?{_GRID}{_BOTH}",
        ),
        row("CS-7", "cudaMemcpyAsync, GPU to GPU, peer access on", f"d2d/ce/gpu.device->gpu.device?{_ONE}"),
        row(
            "CS-7",
            "cudaMemcpyAsync, GPU to GPU, peer access on: bidirectional",
            f"d2d/ce/gpu.device->gpu.device?{_ONE}{_BOTH}",
        ),
        row(
            "CS-8",
            "cudaMemcpyAsync, GPU to GPU, peer access off",
            f"d2d/ce/gpu.device->gpu.device?{_ONE}&peer=off{_ON_EACH_NODE}",
        ),
        row(
            "CS-8",
            "cudaMemcpyAsync, GPU to GPU, peer access off: bidirectional",
            f"d2d/ce/gpu.device->gpu.device?{_ONE}&peer=off{_BOTH}{_ON_EACH_NODE}",
        ),
        row("CS-9 CS-14", "unified memory on demand: host to GPU", "demand/fault/numa.managed->gpu.managed"),
        row("CS-9", "unified memory on demand: GPU to host", "demand/fault/gpu.managed->numa.managed"),
        row(
            "CS-9",
            "unified memory on demand: host and GPU, bidirectional",
            f"demand/fault/gpu.managed->numa.managed?{_BOTH[1:]}",
        ),
        row("CS-9", "unified memory on demand: GPU to GPU", "demand/fault/gpu.managed->gpu.managed"),
        row("CS-10", "unified memory, prefetched: host to GPU", "prefetch/prefetch/numa.managed->gpu.managed"),
        row("CS-10", "unified memory, prefetched: GPU to host", "prefetch/prefetch/gpu.managed->numa.managed"),
        row(
            "CS-10",
            "unified memory, prefetched: host and GPU, bidirectional",
            f"prefetch/prefetch/numa.managed->gpu.managed?{_BOTH[1:]}",
        ),
        row("CS-10", "unified memory, prefetched: GPU to GPU", "prefetch/prefetch/gpu.managed->gpu.managed"),
        row(
            "CS-10",
            "unified memory, prefetched: GPU to GPU, bidirectional",
            f"prefetch/prefetch/gpu.managed->gpu.managed?{_BOTH[1:]}",
        ),
        # The text
        row(
            "CS-9",
            "3.4: unified memory on demand: GPU to GPU, bidirectional",
            f"demand/fault/gpu.managed->gpu.managed?{_BOTH[1:]}",
            note="not ticked in table 1",
        ),
        row(
            "CS-12",
            "4.1: memcpy, pageable to pinned, on the host",
            "h2h/cpu/numa.pageable->numa.pinned?mode=single&cache=cold,hot",
        ),
        row(
            "CS-13 CS-14",
            "4.5: unified memory on demand, GPU to host, by several threads",
            "demand/fault/gpu.managed->numa.managed?threads=*",
        ),
        # Its method
        row(
            "CS-11",
            "27 microbenchmarks according to the text; table 1 has 29 ticked cells",
            instead="the first 29 rows are the 29 cells, each with points of its own",
        ),
        row(
            "CS-15",
            "threads and memory bound by libnuma; every pair of NUMA node and GPU, and of GPUs",
            instead="each row above has a point for each pair; `run --only` selects points",
        ),
        row(
            "CS-16",
            "CPU caches flushed or not",
            instead="parameter `cache` of the copies from and to host memory; `cache=cleaned` uses clwb",
        ),
        row(
            "CS-17",
            "governor and turbo of the CPU",
            instead="`linkscope doctor` and every run file report them, `run --governor` and `run --turbo` set them",
        ),
        row(
            "CS-18",
            "no leaks; all pages backed before the timing",
            instead="each round is a process of its own and touches its memory before the timing",
        ),
        row(
            "CS-19 CS-20 CS-21 CS-22",
            "events or the host's clock; bidirectional; 1 s, five repetitions; mean and standard deviation",
            instead="`run --rule comm-scope` (docs/notes/comm-scope.md)",
        ),
        row(
            "CS-23",
            "bandwidth against size with error bars; filter by name; a file for machines",
            instead="`linkscope report`, `run --only`, docs/reference/run-file.md",
        ),
        # Its systems
        row("CS-24", "AC922", instead="machines/ac922.toml"),
        row("CS-25", "S822LC 8335-GTB", instead="machines/s822lc.toml"),
        row("CS-26", "SuperMicro 4029GP-TVRT", instead="machines/4029gp.toml"),
        row(
            "CS-27",
            "figure 1: traces of communication in training",
            instead="`run --trace FILE`, `explain FILE`, docs/reference/trace.md; a synthetic one in examples/",
        ),
        # Its findings
        row(
            "CS-28 CS-29 CS-30 CS-31 CS-32 CS-33 CS-34 CS-35 CS-36 CS-37 CS-38",
            "findings on its systems",
            instead="tests/python/test_paper_comm_scope.py and tests/core/test_managed_papers.cpp, on the modelled machines; docs/notes/findings.md, on H200",
        ),
        row(
            "CS-39",
            "advice from measurements",
            instead="`linkscope advise` (docs/guide/speed-up-a-transfer.md): gains of recommendations, methods for one transfer, irregular sizes; `linkscope report`: break-even of pinning, slow pairs",
        ),
    ),
    beyond=(
        row(
            "CS-3",
            "3.1: cost of pinning by cudaHostRegister, by size",
            "allocation/cpu/numa.registered->gpu.device?phase=*&size=*",
            note="the tool does not time it",
        ),
        row(
            "CS-5",
            "zero-copy, host memory allocated as mapped",
            f"read/sm/numa.mapped->gpu.device?{_GRID}",
            f"write/sm/gpu.device->numa.mapped?{_GRID}",
            note="the tool registers memory instead",
        ),
        row(
            "CS-40",
            "zero-copy by access pattern",
            "read/sm/numa.registered->gpu.device?stride=*",
            "read/sm/numa.registered->gpu.device?order=*",
            "read/sm/numa.registered->gpu.device?width=*",
        ),
        row(
            "CS-40",
            "unified memory with driver hints",
            "demand/fault/numa.managed->gpu.managed?advice=*",
            "demand/fault/gpu.managed->numa.managed?advice=*",
        ),
        row(
            "CS-40",
            "atomic operations, system and GPU scope",
            "atomic/sm/gpu.device->numa.pinned?scope=*&words=*",
            "atomic/sm/gpu.device->gpu.device?scope=*&words=*",
            "atomic_latency/sm/gpu.device->numa.pinned?scope=*",
            "atomic_latency/sm/gpu.device->gpu.device?scope=*",
        ),
        row(
            "CS-40",
            "atomic operations of a GPU and a CPU at the same time, on one word or on two",
            "atomic_shared/sm/gpu.device->numa.pinned?by=*&words=*",
        ),
        row(
            "CS-40",
            "zero-copy by parallelism",
            "read/sm/numa.registered->gpu.device?blocks=*",
            "read/sm/numa.registered->gpu.device?threads=*",
        ),
        row(
            "CS-40",
            "unified memory by access pattern and parallelism",
            "demand/fault/numa.managed->gpu.managed?order=*",
            "demand/fault/numa.managed->gpu.managed?stride=*",
            "demand/fault/numa.managed->gpu.managed?blocks=*",
            "demand/fault/numa.managed->gpu.managed?block_threads=*",
        ),
        row(
            "CS-40",
            "simultaneous access of a GPU and a CPU to zero-copy and unified memory",
            "shared_access/sm/numa.pinned->gpu.device?by=*&bytes=*",
            "shared_access/fault/numa.managed->gpu.managed?by=*&bytes=*",
        ),
        row(
            "CS-31",
            "bidirectional copies of pageable memory, queued by one host thread",
            f"h2d/ce/numa.pageable->gpu.device?{_BOTH[1:]}&host_threads=*",
            note="one thread serializes the driver's copies; with two the driver decides",
        ),
        row("CS-40", "concurrent transfers", instead="`linkscope predict --with`; `host_to_all` and similar points"),
    ),
)
