"""Command lines that bind processes to the CPUs, the memory and the GPU of their place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linkscope.errors import NOT_HERE, UserError


@dataclass(frozen=True)
class Seat:
    """One process: its GPU, and the NUMA node whose CPUs and memory it uses; None where the node is not known.

    `numa` is linkscope's number; `os_numa` and `cpus` are the kernel's, which `numactl` and Slurm use.
    """

    gpu: str
    numa: int | None
    os_numa: int | None = None
    cpus: tuple[int, ...] = ()

    @property
    def number(self) -> str:
        """The number of the GPU: '1' for gpu:1."""
        return self.gpu.rpartition(":")[2]


def seats_of(
    gpus: Sequence[str], numa: Mapping[str, int | None], nodes: Mapping[int, tuple[int, Sequence[int]]]
) -> list[Seat]:
    """A seat for each GPU. `numa`: the node of each GPU. `nodes`: the kernel's number and the CPUs of each node."""
    made = []
    for gpu in gpus:
        node = numa.get(gpu)
        os_numa, cpus = (None, ()) if node is None else nodes.get(node, (node, ()))
        made.append(Seat(gpu, node, os_numa, tuple(cpus)))
    return made


def single_line(seat: Seat) -> str:
    """The start of a command for one process on one GPU."""
    bound = "" if seat.os_numa is None else f" numactl --cpunodebind={seat.os_numa} --membind={seat.os_numa}"
    return f"CUDA_VISIBLE_DEVICES={seat.number}{bound} COMMAND"


def slurm_line(seats: Sequence[Seat]) -> str:
    """A job step with a process for each seat. CUDA numbers GPUs as Slurm does in PCI bus order."""
    numbers = ",".join(seat.number for seat in seats)
    gpus = len({seat.gpu for seat in seats})
    text = f"srun --ntasks={len(seats)} --gres=gpu:{gpus} --gpu-bind=map_gpu:{numbers}"
    nodes = [seat.os_numa for seat in seats]
    if None in nodes:
        return text
    listed = ",".join(map(str, nodes))
    return f"{text} --cpu-bind=map_ldom:{listed} --mem-bind=map_mem:{listed}"


def map_by_line(seats: Sequence[Seat]) -> str | None:
    """Open MPI's command without a rank file: as many processes on each NUMA node, each bound to its whole node.

    None where that is not the placement: Open MPI fills the nodes 0, 1, … in order.
    """
    nodes = [seat.os_numa for seat in seats]
    count = len(set(nodes))
    if None in nodes or len(nodes) % count or nodes != [at // (len(nodes) // count) for at in range(len(nodes))]:
        return None
    return f"mpirun -n {len(nodes)} --map-by ppr:{len(nodes) // count}:numa --bind-to numa"


def mpi_lines(seats: Sequence[Seat]) -> list[str]:
    """Open MPI's command with a rank file, and how each process finds its GPU."""
    numbers = " ".join(seat.number for seat in seats)
    return [
        f"mpirun -n {len(seats)} --rankfile FILE, and in each process",
        f"CUDA_VISIBLE_DEVICES=$(echo {numbers} | cut -d' ' -f$((OMPI_COMM_WORLD_LOCAL_RANK + 1)))",
    ]


def rank_file(title: str, seats: Sequence[Seat]) -> str:
    """Lines of an Open MPI rank file. Ranks of one NUMA node share its CPUs equally.

    Raises UserError (exit code 3) if the CPUs of a seat are not known.
    """
    unknown = [seat.gpu for seat in seats if not seat.cpus]
    if unknown:
        raise UserError(
            f"{title}: the NUMA node of {unknown[0]} is not known, so a rank file has no CPUs to name. "
            "Leave out -o: the GPUs of the ranks are printed", NOT_HERE,
        )  # fmt: skip
    nodes = [seat.numa for seat in seats]
    lines = [f"# {title}; rank -> GPU: {' '.join(f'{rank}->{seat.number}' for rank, seat in enumerate(seats))}"]
    seen: dict[int | None, int] = {}
    for rank, seat in enumerate(seats):
        sharers, turn = nodes.count(seat.numa), seen.get(seat.numa, 0)
        seen[seat.numa] = turn + 1
        each = max(len(seat.cpus) // sharers, 1)
        first = turn * each % len(seat.cpus)
        lines.append(f"rank {rank}=localhost slot={','.join(map(str, seat.cpus[first : first + each]))}")
    return "\n".join(lines) + "\n"


def cpu_ranges(cpus: Sequence[int]) -> str:
    """'0-15,32-47'."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
