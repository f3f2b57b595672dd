"""Spafford, Meredith, Vetter: NUMA and multi-GPU contention on Keeneland."""

from linkscope.plan.papers.entry import Source, powers, row

_CONTENDED = (
    "h2d/ce/numa.pinned->gpu.device",
    "d2h/ce/gpu.device->numa.pinned",
    "message/cpu/numa.pageable->same.pageable",
    "host/cpu/numa.pageable->same.pinned",
)

_SHOC = ("sgemm", "dgemm", "fft", "fft_double", "md", "md_double", "reduction", "scan", "sort", "stencil")

SPAFFORD = Source(
    "spafford",
    "Quantifying NUMA and Contention Effects in Multi-GPU Systems (Spafford, Meredith, Vetter, GPGPU 2011)",
    "1 KiB to 64 MiB (its 3.1)",
    powers(10, 26),
    (
        row("SP-1", "host to GPU, short and long path", "h2d/ce/numa.pinned->gpu.device"),
        row("SP-1", "GPU to host, short and long path", "d2h/ce/gpu.device->numa.pinned"),
        row(
            "SP-2",
            "penalty of the long path",
            instead="`linkscope report`: far and near NUMA nodes; tests/python/test_paper_spafford.py",
        ),
        row(
            "SP-3 SP-4",
            "latency between two nodes, right and wrong NUMA node",
            instead="on models, docs/notes/network-on-models.md",
        ),
        row(
            "SP-5 SP-6",
            "SHOC level 1, right and wrong NUMA node",
            *(f"compute_{name}/sm/numa.pinned->gpu.device" for name in _SHOC),
            note="`run --suite sp-5`, beside copies `--suite sp-6`; docs/notes/computations-on-models.md",
        ),
        row(
            "SP-7",
            "HPL by pinning scheme",
            "lu_update/sm/gpu.device->same.device?nodes=*&slots=*",
            "lu/sm/gpu.device->same.device",
            "lu_gpus/sm/gpu.device->same.device?gpus=*&node=*&by=*",
            note="an LU over GPUs and its update by placement, and an LU on one GPU; `run --suite sp-7`",
        ),
        row(
            "SP-8",
            "GPU transfers and messages, sequential and concurrent",
            "message/cpu/numa.pageable->same.pageable?channel=*",
            *(f"contended_{kind}?beside=none,h2d,d2h,message,host" for kind in _CONTENDED),
            note="messages of 8 B by shared memory; `run --suite sp-8`; under mpiexec also a transfer and MPI",
        ),
        row(
            "SP-9",
            "a transfer task for each GPU, and message tasks",
            "tasks/ce/numa.pinned->gpu.device?messages=each,cores&message=*",
            note="`run --suite sp-9`; under mpiexec also by MPI",
        ),
        row(
            "SP-11",
            "transfers and messages by one thread or by two",
            "tasks/ce/numa.pinned->gpu.device?sets=1,2,3,4&threads=*&message=*",
            note="`run --suite sp-11`; under mpiexec also by MPI",
        ),
        row(
            "SP-10",
            "several tasks for each GPU",
            "host_to_all/ce/numa.pinned->gpu.device?tasks=*",
            note="also `linkscope predict --with`, tests/python/test_paper_spafford.py; `run --suite sp-10`",
        ),
        row(
            "SP-12",
            "all GPUs concurrently",
            "host_to_all/ce/numa.pinned->gpu.device",
            "all_to_host/ce/gpu.device->numa.pinned",
        ),
        row(
            "SP-13",
            "applications on the right and the wrong node",
            *(f"compute_stand_in_{name}/sm/numa.pinned->gpu.device?second=*" for name in ("lammps", "dca", "openmm")),
            note="stand-ins of one and two tasks from SHOC's computations, without CPU work; `run --suite sp-13`",
        ),
        row("SP-14", "Keeneland SL390 and DL160", instead="machines/sl390.toml and machines/dl160.toml"),
    ),
)
