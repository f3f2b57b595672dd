"""Jorda et al.: auto-tuning of data communication."""

from linkscope.plan.papers.entry import Source, powers, row

JORDA = Source(
    "jorda",
    "Auto-tuning of data communication (Jorda et al.)",
    "powers of two up to its largest transfer of 128 MB",
    powers(12, 27),
    (
        row("JO-1", "CPU and GPU, unidirectional", "h2d/ce/numa.pinned->gpu.device", "d2h/ce/gpu.device->numa.pinned"),
        row("JO-1", "CPU and GPU, bidirectional", "h2d/ce/numa.pinned->gpu.device?bidirectional=true"),
        row("JO-2", "GPU to GPU by CUDA, unidirectional", "d2d/ce/gpu.device->gpu.device?peer=*"),
        row("JO-2", "GPU to GPU by CUDA, bidirectional", "d2d/ce/gpu.device->gpu.device?peer=*&bidirectional=true"),
        row("JO-2", "GPU to GPU through a double buffer on the host", "staged/ce/gpu.device->other.device?slots=2"),
        row(
            "JO-3",
            "GPU to GPU between MPI processes of one node",
            instead="`mpiexec -n 2 linkscope run --suite mpi`; the launcher binds ranks to near or far cores",
        ),
        row("JO-4", "between nodes", instead="`linkscope predict` on models; docs/notes/network-on-models.md"),
        row(
            "JO-5",
            "disk and GPU",
            instead="`linkscope run file_copies --directory DIR`; on models with a disk: `--machine jorda-a`",
        ),
        row(
            "JO-6",
            "staged: whole, and double-buffered",
            "staged/ce/numa.pageable->gpu.device?chunk=whole,1MiB&slots=1,2",
            "staged/ce/gpu.device->numa.pageable?chunk=whole,1MiB&slots=1,2",
        ),
        row("JO-7", "percent of the best bandwidth at each size", instead="`linkscope report`: percent of the peak"),
        row(
            "JO-8",
            "its systems A, B and C",
            instead="machines/jorda-a.toml, machines/jorda-b.toml and machines/jorda-c.toml",
        ),
        row("JO-9 JO-10", "findings on CPU and GPU, and GPU to GPU", instead="tests/python/test_paper_jorda.py"),
        row(
            "JO-12 JO-13 JO-14 JO-16",
            "findings on disks, double buffers and gains",
            instead="docs/notes/jorda-on-models.md",
        ),
        row("JO-11", "findings on MPI"),
        row("JO-15", "findings on the network", instead="docs/notes/network-on-models.md"),
        row("JO-17", "a tuner: path and buffer size", instead="`linkscope tune` (tests/python/test_tune.py)"),
        row(
            "JO-17",
            "GPUs of one domain for the processes that talk most",
            instead="`linkscope advise --talk MATRIX` (tests/python/test_placement.py)",
        ),
    ),
)
