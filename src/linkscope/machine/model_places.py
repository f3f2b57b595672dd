"""The places of a model, and what a plan needs of them."""

from dataclasses import dataclass

from linkscope.machine.model_types import Model


@dataclass(frozen=True)
class Places:
    """What a plan needs of a model: places, sizes of memories and caches, and peer access."""

    numa: tuple[str, ...]
    gpus: tuple[str, ...]
    gpu_numa: dict[str, str]
    memory_bytes: dict[str, int]
    cache_bytes: dict[str, int]  # the last-level cache of a NUMA node, the L2 of a GPU
    peers: frozenset[tuple[str, str]]
    sms: dict[str, int]
    nics: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()


def places(model: Model) -> Places:
    memory: dict[str, int] = {}
    cache: dict[str, int] = {}
    for node in model.numa:
        memory |= dict.fromkeys(node.places, int(node.memory_gib * 2**30))
        cache |= dict.fromkeys(node.places, int(node.llc_mib * 2**20))
    gpu_numa: dict[str, str] = {}
    for kind in model.gpu:
        gpu_numa |= {gpu: numa for numa, gpus in kind.at.items() for gpu in gpus}
        memory |= dict.fromkeys(kind.places(), int(kind.memory_gib * 2**30))
        cache |= dict.fromkeys(kind.places(), int(kind.l2_mib * 2**20))
    groups = model.peer.groups if model.peer else []
    return Places(
        numa=tuple(sorted((place for node in model.numa for place in node.places), key=order)),
        gpus=tuple(sorted(gpu_numa, key=order)),
        gpu_numa=gpu_numa,
        memory_bytes=memory,
        cache_bytes=cache,
        peers=frozenset((a, b) for group in groups for a in group for b in group if a != b),
        sms={place: kind.sms for kind in model.gpu for place in kind.places()},
        nics=tuple(sorted((place for nic in model.nic for place in nic.places), key=order)),
        disks=tuple(sorted((place for disk in model.disk for place in disk.places), key=order)),
    )


def host_of(place: str) -> str:
    """'host:1/gpu:0' -> 'host:1'; '' on a machine with one host. The path of a disk may have slashes, too."""
    head, slash, _ = place.partition("/")
    return head if slash and head.startswith("host:") else ""


def order(place: str) -> tuple[str, int]:
    """Sort key: gpu:2 before gpu:10."""
    head, _, number = place.rpartition(":")
    return head, int(number) if number.isdigit() else 0
