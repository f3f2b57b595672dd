"""The slides of rai-project/microbench: its tests, its systems and its findings."""

# ruff: noqa: E501 (a row is a line)
from linkscope.plan.papers.entry import Source, powers, row

_ONE = "mode=single&after=wait"

MICROBENCH = Source(
    "microbench",
    "rai-project/microbench (Pearson et al., slides, 2018)",
    "sizes of its successor Comm|Scope",
    powers(8, 30),
    (
        row(
            "MB-1",
            "explicit: host to GPU",
            f"h2d/ce/numa.pageable->gpu.device?{_ONE}",
            f"h2d/ce/numa.pinned->gpu.device?{_ONE}",
        ),
        row(
            "MB-1",
            "explicit: GPU to host",
            f"d2h/ce/gpu.device->numa.pageable?{_ONE}",
            f"d2h/ce/gpu.device->numa.pinned?{_ONE}",
        ),
        row("MB-1", "explicit: GPU to GPU", f"d2d/ce/gpu.device->gpu.device?{_ONE}&peer=*"),
        row(
            "MB-1",
            "unified memory, coherence: all combinations",
            "demand/fault/numa.managed->gpu.managed",
            "demand/fault/gpu.managed->numa.managed?threads=*",
            "demand/fault/gpu.managed->gpu.managed",
        ),
        row(
            "MB-1",
            "unified memory, prefetch: all combinations",
            "prefetch/prefetch/numa.managed->gpu.managed",
            "prefetch/prefetch/gpu.managed->numa.managed",
            "prefetch/prefetch/gpu.managed->gpu.managed",
        ),
        row(
            "MB-2",
            "CUDA primitives: kernel launch",
            "launch/cpu/numa.pageable->gpu.device?arguments=*",
            "launch/cpu/numa.pageable->gpu.device?threads=*",
            "launch_to_end/cpu/numa.pageable->gpu.device",
        ),
        row(
            "MB-2",
            "CUDA primitives: synchronization, events, streams, copies, graphs",
            "synchronize/cpu/numa.pageable->gpu.device?what=*",
            "event/cpu/numa.pageable->gpu.device?what=*",
            "stream/cpu/numa.pageable->gpu.device",
            "copy_call/cpu/numa.pinned->gpu.device?size=*",
            "copy_call/cpu/gpu.device->numa.pinned?size=*",
            "graph/cpu/numa.pageable->gpu.device?what=*",
        ),
        row("MB-3", "page-fault latency: the GPU faults", "fault_latency/fault/numa.managed->gpu.managed"),
        row("MB-3", "page-fault latency: the CPU faults", "fault_latency/fault/gpu.managed->numa.managed"),
        row("MB-4", "full-duplex GPU to GPU", "d2d/ce/gpu.device->gpu.device?bidirectional=true"),
        row(
            "MB-4",
            "contention",
            "host_to_all/ce/numa.pinned->gpu.device",
            "all_to_host/ce/gpu.device->numa.pinned",
            "one_to_all/ce/gpu.device->gpu.device",
            "all_to_one/ce/gpu.device->gpu.device",
        ),
        row("MB-4", "models of machines", instead="machines/, docs/reference/machine-file.md; `linkscope predict`"),
        row(
            "MB-4",
            "collectives of several GPUs",
            "all_reduce/nccl/gpu.device->same.device?ranks=*",
            "all_gather/nccl/gpu.device->same.device?ranks=*",
            "reduce_scatter/nccl/gpu.device->same.device?ranks=*",
            "broadcast/nccl/gpu.device->same.device?ranks=*",
            "reduce/nccl/gpu.device->same.device?ranks=*",
            "all_to_all/nccl/gpu.device->same.device?ranks=*",
            "send_receive/nccl/gpu.device->same.device?ranks=*",
        ),
        row("MB-4", "neural networks: products of matrices", "gemm/sm/gpu.device->same.device?element=*&n=*"),
        row(
            "MB-4",
            "neural networks: tensor cores, by mma.sync of our own kernel",
            "gemm_floor/sm/gpu.device->same.device?element=*&n=*",
        ),
        row(
            "MB-4",
            "neural networks: convolution, attention, softmax",
            "convolution/sm/gpu.device->same.device?element=*&channels=*",
            "attention/sm/gpu.device->same.device?element=*&length=*",
            "softmax/sm/gpu.device->same.device?element=*&length=*",
        ),
        row("MB-4", "hosted results", instead="`linkscope site` (docs/reference/site.md)"),
        row("MB-4", "disk, network, several nodes"),
        row(
            "MB-5",
            "filter, timing, iterations, repetitions, JSON, plots",
            instead="`linkscope run --only`, `--precision`, `--rounds`; docs/reference/run-file.md; `linkscope report`",
        ),
        row("MB-6", "Minsky", instead="machines/minsky.toml"),
        row("MB-6", "Newell", instead="machines/newell.toml"),
        row(
            "MB-7",
            "findings on its systems",
            instead="tests/python/test_paper_microbench.py and tests/core/test_managed_papers.cpp, on the modelled machines",
        ),
    ),
)
