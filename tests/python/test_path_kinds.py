"""Paths of one class are equal in a simulation without noise, on every bundled machine."""

import itertools

import pytest

from linkscope.machine import model as models
from linkscope.machine.path_classes import classes_modelled
from linkscope.plan import MachineFacts, case_of
from linkscope.run.simulate import quiet
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId

KIB, MIB = 1 << 10, 1 << 20
COPY = "{}/ce/{}.{}->{}.{}/{}?after=kernel&{}mode=batched"


def ids(src: str, dst: str, size: int) -> list[str]:
    """The ids of copies by copy engine from one place to another."""
    kinds = tuple(place.rpartition("/")[2].partition(":")[0] for place in (src, dst))
    if kinds == ("numa", "gpu"):
        return [COPY.format("h2d", src, memory, dst, "device", size, "bidirectional=false&") for memory in
                ("pinned", "pageable")]  # fmt: skip
    if kinds == ("gpu", "numa"):
        return [COPY.format("d2h", src, "device", dst, memory, size, "") for memory in ("pinned", "pageable")]
    if kinds == ("numa", "numa"):
        return [f"h2h/cpu/{src}.pinned->{dst}.pageable/{size}?initiator=src&mode=batched"]
    if src == dst:
        return [COPY.format("local", src, "device", dst, "device", size, "")]
    rest = "bidirectional=false&call=memcpy&initiator={}&"
    return [
        COPY.format("d2d", src, "device", dst, "device", size, rest.format(who)) + f"&peer={peer}"
        for who, peer in itertools.product(("src", "dst"), ("on", "off"))
    ]


@pytest.mark.parametrize("name", sorted(models.bundled()))
def test_paths_share_a_class_exactly_if_the_machine_treats_them_equally(name: str) -> None:
    model = models.load(name)
    known = models.places(model)
    facts = MachineFacts(name, True, (*known.numa, *known.gpus), dict(known.cache_bytes))
    kinds = classes_modelled(model)
    worker = Worker(worker_command())
    try:
        worker.open({"platform": "sim", "machine": quiet(model.to_json()), "seed": 0})
        times = {path: signature(worker, facts, *path) for path in kinds}
    finally:
        worker.kill()
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for path, kind in kinds.items():
        by_kind.setdefault(kind, []).append(path)
    for paths in by_kind.values():
        first, *others = paths
        assert all(are_equal(times[first], times[other]) for other in others), (name, paths)
    for one, other in itertools.combinations([paths[0] for paths in by_kind.values()], 2):
        assert ends(one) != ends(other) or not are_equal(times[one], times[other]), (kinds[one], kinds[other])


def ends(path: tuple[str, str]) -> tuple[bool, list[str]]:
    """The properties that compared paths share: the kinds of their places, and whether both ends are one place."""
    return path[0] == path[1], [place.rpartition("/")[2].partition(":")[0] for place in path]


def signature(worker: Worker, facts: MachineFacts, src: str, dst: str) -> list[float | None]:
    """Seconds of an operation by every method at three sizes; None if it is not possible."""
    found: list[float | None] = []
    for size in (8, 64 * KIB, 16 * MIB):
        for id in ids(src, dst, size):
            prepared = worker.prepare(case_of(PointId.parse(id), facts), f"{id}#0")
            if not prepared.supported:
                found.append(None)
                continue
            trace = worker.run(1, [[2], [4]], verify=False)
            found.append((trace.seconds(0, 1, 0) - trace.seconds(0, 0, 0)) / 2)
    return found


def are_equal(one: list[float | None], other: list[float | None]) -> bool:
    return all(
        (a is None) == (b is None) and (a is None or b is None or abs(a / b - 1) < 1e-3)
        for a, b in zip(one, other, strict=True)
    )
