"""The facts of a machine, probed or modelled, that a plan needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from linkscope.flow import kind_of as kind_of


@dataclass(frozen=True)
class MachineFacts:
    """The facts of a machine. `places`: `numa:0` or `gpu:1` (`host:N/gpu:1` on models of several hosts), in canonical
    order.

    `cache_bytes`: largest cache of a place, the last level of a NUMA node or the L2 of a GPU. `kinds`: a text for each
    path, equal for paths that are expected to perform alike; paths without a text are unknown. `sms`: number of
    multiprocessors of a GPU, where known. `cpus`: number of CPUs of a NUMA node that this process may use.
    `ranks`: the places of each rank, `numa` and, if it has a GPU, `gpu`. `has_mpi`: whether MPI carries their messages.
    """

    name: str
    modelled: bool
    places: tuple[str, ...]
    cache_bytes: dict[str, int] = field(default_factory=dict)
    kinds: Callable[[], Mapping[tuple[str, str], str]] = field(default=dict, compare=False)
    sms: dict[str, int] = field(default_factory=dict)
    cpus: dict[str, int] = field(default_factory=dict)
    ranks: tuple[dict[str, str], ...] = ()
    has_mpi: bool = True

    def kind_of_path(self, src: str, dst: str) -> str:
        """Returns the kind of a path as text. Without information, it names only the kinds of both ends."""
        known = self.kinds().get((src, dst))
        if known:
            return known
        ends = ["all GPUs" if place.endswith("gpu:all") else kind_of(place) for place in (src, dst)]
        return f"within {ends[0]}" if src == dst else " -> ".join(ends)

    def gpus_but(self, place: str) -> list[str]:
        """Returns the GPUs that `gpu:all` stands for if `place` is the other end: all other GPUs of its host."""
        return [gpu for gpu in self.of_kind("gpu") if host_of(gpu) == host_of(place) and gpu != place]

    def of_kind(self, kind: str) -> list[str]:
        """Returns the places of one kind: `numa`, `gpu`, …"""
        return [place for place in self.places if kind_of(place) == kind]


def all_gpus(place: str) -> str:
    """Returns the name of all GPUs of the host that `place` belongs to: 'gpu:0' -> 'gpu:all'."""
    return f"{host_of(place)}/gpu:all" if host_of(place) else "gpu:all"


def host_of(place: str) -> str:
    """Returns the host of a place: 'host:0/gpu:1' -> 'host:0'; '' on a machine of one host."""
    head, slash, _ = place.partition("/")
    return head if slash and head.startswith("host:") else ""
