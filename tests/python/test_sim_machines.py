"""Complete runs on the bundled machines agree with closed forms: every family of copies, batched and single.

The numbers are written here, from the sources of the machine files (the papers and our own measurements), and never
read from the machine files, so that a mistake in a file, in the simulation, in the sampler or in the statistics shows.
Without noise every point is within 1 % of its closed form; with noise within 1 % or two standard errors, plus the
tick of the event clock.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from linkscope.machine import model as models
from linkscope.plan import make_plan
from linkscope.run import benchmark_table, measure
from linkscope.run.target import modelled
from linkscope.runfile import Point, PointId, read_run

WORKER = Path(__file__).resolve().parents[2] / "src" / "linkscope" / "_native" / "linkscope-worker"
KIB, MIB = 1 << 10, 1 << 20
NS = 1e-9  # seconds per byte at 1 GB/s
EVENT_TICK_S = 32e-9

pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="the worker is not built")


@dataclass(frozen=True)
class TransferMethod:
    """The links between two places: their latency in s, and the rate of the slowest in GB/s, uni- and bidirectional."""

    latency_s: float
    gbps: float
    both_gbps: float


@dataclass(frozen=True)
class Machine:
    """Constants of closed forms, in s and GB/s. `route` joins two places, `of_host` names the node next to a GPU."""

    pairs: tuple[str, ...]
    route: Callable[[str, str], TransferMethod]
    of_host: Callable[[str], str]
    memcpy: Callable[[str, str], float]
    memcpy_call_s: float
    to_device_s: float
    from_device_s: float
    peer_s: float
    small_peer_s: float
    local_s: float
    local_gbps: float
    inline_s: float
    inline_gbps: float
    channel_s: float
    call_s: float
    pageable_chunk: int
    pageable_gbps: tuple[float, float]  # to the device and from it
    pageable_call_s: tuple[float, float]
    pageable_both: float  # the most that bidirectional copies reach, as a multiple of unidirectional ones
    staged_chunk_s: float
    pull: Callable[[float], float]  # additional s if the destination queues the copy, from the s that the bytes take
    load_s: tuple[float, float] | None = None  # loads from host memory and from a GPU's memory; None: unknown
    memcpy_stream_gbps: float = 0.0  # from three quarters of a last-level cache of 300 MiB; 0: no other rate
    bidirectional_s: float = 0.0
    arrive_s: float = 0.0
    late_s: tuple[float, float] = (0.0, 0.0)  # from a GPU and within a GPU, per doubling of the number of 4 KiB parts
    small_pageable: tuple[float, float, float] | None = None  # GB/s, s of set-up, s until a waiting copy continues


def h200x4_route(src: str, dst: str) -> TransferMethod:
    if "numa" in src + dst:
        return TransferMethod(0.53e-6, 55.5, 102.2 / 2)
    return TransferMethod(0.33e-6, 390, 390)


def ac922_route(src: str, dst: str) -> TransferMethod:
    crossing = ac922_host(src) != ac922_host(dst)
    hops = sum(place.startswith("gpu") for place in (src, dst)) if crossing else 1
    latency_s = 0.5e-6 * hops + 0.2e-6 * crossing
    return TransferMethod(latency_s, 41, 41) if crossing else TransferMethod(latency_s, 72, 72)


def ac922_host(place: str) -> str:
    return "numa:0" if place in ("numa:0", "gpu:0", "gpu:1") else "numa:1"


MACHINES = {
    "h200x4": Machine(
        pairs=("numa:0>numa:0", "numa:0>gpu:0", "gpu:2>numa:0", "gpu:0>gpu:1", "gpu:0>gpu:0"),
        route=h200x4_route, of_host=lambda place: "numa:0",
        memcpy=lambda src, dst: 7.9, memcpy_call_s=0.025e-6,
        to_device_s=1.92e-6, from_device_s=1.56e-6, peer_s=2.2e-6, small_peer_s=2.04e-6,
        local_s=1.97e-6, local_gbps=2145,
        inline_s=1.69e-6, inline_gbps=3.0, channel_s=4.9e-6,
        call_s=1.3e-6, pageable_chunk=MIB, pageable_gbps=(10.55, 19.8), pageable_call_s=(0.1e-6, 4e-6),
        pageable_both=3.0, staged_chunk_s=8.3e-6, pull=lambda bytes_s: max(6.75e-6, 10.6e-6 - 0.55 * bytes_s),
        load_s=(0.108e-6, 0.341e-6), memcpy_stream_gbps=12.8, bidirectional_s=0.9e-6, arrive_s=0.31e-6,
        late_s=(0.08e-6, 0.096e-6), small_pageable=(6.8, 1.1e-6, 2.2e-6),
    ),
    "ac922": Machine(
        pairs=(
            "numa:0>numa:0", "numa:0>numa:1", "numa:0>gpu:1", "numa:0>gpu:2", "gpu:3>numa:1", "gpu:3>numa:0",
            "gpu:0>gpu:1", "gpu:1>gpu:2", "gpu:3>gpu:3",
        ),
        route=ac922_route, of_host=ac922_host,
        memcpy=lambda src, dst: 12 if src == dst else 8, memcpy_call_s=0.1e-6,
        to_device_s=1.8e-6, from_device_s=1.5e-6, peer_s=1.8e-6, small_peer_s=1.8e-6,
        local_s=1.8e-6, local_gbps=395,
        inline_s=1.6e-6, inline_gbps=2.0, channel_s=5.0e-6,
        call_s=2.0e-6, pageable_chunk=512 * KIB, pageable_gbps=(12, 12), pageable_call_s=(2.0e-6, 2.0e-6),
        pageable_both=1.95, staged_chunk_s=8.0e-6, pull=lambda bytes_s: 0.0,
    ),
}  # fmt: skip


def closed_form(machine: Machine, point: PointId) -> float | None:
    """Seconds of one operation; None if its streams share more than a link (tested as inequalities)."""
    single = point.param("mode") == "single"
    channel_s = machine.channel_s if single and point.param("after") == "kernel" else 0.0
    if point.benchmark == "latency":
        if machine.load_s is None or (point.engine == "cpu" and "gpu" in point.src):
            return None
        there_and_back = 0.0 if point.src == point.dst else 2 * machine.route(point.src, point.dst).latency_s
        return there_and_back + machine.load_s["gpu" in point.src]
    if point.benchmark not in FAMILIES:
        return None  # accesses and pages: tests/core/test_sim_kernels.cpp, test_sim_managed.cpp
    if point.benchmark == "h2h":
        past = point.bytes >= 0.75 * 300 * MIB and machine.memcpy_stream_gbps > 0
        gbps = machine.memcpy_stream_gbps if past else machine.memcpy(point.src, point.dst)
        first = machine.load_s[0] if single and machine.load_s else 0.0
        return machine.memcpy_call_s + max(point.bytes * NS / gbps, first)
    if point.benchmark == "local":
        return machine.local_s + late(machine.late_s[1], point.bytes) + point.bytes * NS / machine.local_gbps
    if "pageable" in (point.src_memory, point.dst_memory):
        return None if point.bidirectional else pageable(machine, point, single)
    if point.param("peer") == "off":
        return None if point.bidirectional else staged(machine, point)
    if point.bidirectional and point.bytes < 16 * MIB:
        return None  # the two directions overlap only partly
    inline = point.benchmark == "h2d" and point.bytes <= KIB
    arrive_s = machine.arrive_s if single and point.benchmark == "d2h" else 0.0
    return crossing(machine, point, point.bytes) + (0 if inline else channel_s) + arrive_s


def late(each_s: float, size: int) -> float:
    """The delay of the last 4 KiB part behind the first."""
    return each_s * math.log2(1 + size / 4096)


def crossing(machine: Machine, point: PointId, size: int) -> float:
    """One transfer over the links between two places: by copy engine, or inside the command itself."""
    route = machine.route(point.src, point.dst)
    if point.benchmark == "h2d" and size <= KIB:
        return route.latency_s + machine.inline_s + size * NS / machine.inline_gbps
    pulled = point.benchmark == "d2d" and point.param("initiator") == "dst"
    peer_s = machine.small_peer_s if size <= KIB and not pulled else machine.peer_s
    set_up = {"h2d": machine.to_device_s, "d2h": machine.from_device_s, "d2d": peer_s}[point.benchmark]
    more_s = machine.pull(size * NS / route.gbps) if pulled else 0.0
    more_s += late(machine.late_s[0], size) if point.benchmark == "d2h" else 0.0
    more_s += machine.bidirectional_s if point.bidirectional and point.benchmark == "h2d" else 0.0
    return route.latency_s + set_up + more_s + size * NS / (route.both_gbps if point.bidirectional else route.gbps)


def pageable(machine: Machine, point: PointId, single: bool) -> float:
    """Chunk by chunk: a CPU thread copies a chunk while the previous one crosses the link."""
    chunks = math.ceil(point.bytes / machine.pageable_chunk)
    in_flight = crossing(machine, point, min(point.bytes, machine.pageable_chunk))
    (to, back), (call_to_s, call_back_s) = machine.pageable_gbps, machine.pageable_call_s
    if point.benchmark == "d2h":
        copying = chunks * machine.call_s + point.bytes * NS / back
        return call_back_s + in_flight + copying
    end_s = 0.0
    if machine.small_pageable:
        small_gbps, small_s, end_s = machine.small_pageable
        if point.bytes <= 64 * KIB:
            route = machine.route(point.src, point.dst)
            to, in_flight = small_gbps, route.latency_s + small_s + point.bytes * NS / route.gbps
    copying = chunks * machine.call_s + point.bytes * NS / to
    return call_to_s + copying + in_flight + end_s if single else max(call_to_s + copying, chunks * in_flight)


def staged(machine: Machine, point: PointId) -> float:
    """1 MiB at a time through the host of the stream's GPU: the slower stage for all chunks, the other for one."""
    host = machine.of_host(point.src if point.param("initiator") == "src" else point.dst)
    chunks = math.ceil(point.bytes / MIB)
    stages = []
    for route in (machine.route(point.src, host), machine.route(host, point.dst)):
        stages.append(machine.staged_chunk_s + route.latency_s + min(point.bytes, MIB) * NS / route.gbps)
    return chunks * max(stages) + min(stages)


def measured(name: str, path: Path, *, noise: bool) -> list[tuple[PointId, Point]]:
    """The points of suite standard between the pairs of places, from a run with or without noise."""
    content = models.load(name).to_json()
    if not noise:
        del content["noise"]
        content["costs"]["event_tick_ns"]["v"] = 0
    target = modelled(msgspec.convert(content, models.Model), seed=3)
    pairs = [pair.split(">") for pair in MACHINES[name].pairs]
    only = [f"*/{src}.*->{dst}.*" for src, dst in pairs]
    plan = make_plan(target.facts, benchmark_table(), only=only, seed=3)
    measure(target, plan, path)
    return [(PointId.parse(point.id), point) for point in read_run(path).points]


Points = list[tuple[PointId, Point]]


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Points]:
    folder = tmp_path_factory.mktemp("noisy")
    return {name: measured(name, folder / f"{name}.jsonl", noise=True) for name in MACHINES}


@pytest.fixture(scope="module", params=sorted(MACHINES))
def exact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Points]:
    path = tmp_path_factory.mktemp("exact") / "run.jsonl"
    return request.param, measured(request.param, path, noise=False)


def test_a_run_agrees_with_the_closed_forms(exact: tuple[str, Points]) -> None:
    name, points = exact
    wrong = []
    for id, point in points:
        expected = closed_form(MACHINES[name], id)
        for flow in point.flows if expected else ():
            if flow.median_s != pytest.approx(expected, rel=0.01):
                wrong.append(f"{id}: {flow.median_s} for {expected}")
    assert not wrong


def test_every_family_is_measured(exact: tuple[str, Points]) -> None:
    """Without this, the test above could pass with few points."""
    name, points = exact
    families = {
        (id.benchmark, id.src_memory, id.dst_memory, id.param("peer"), id.bidirectional, size)
        for id, _ in points
        if closed_form(MACHINES[name], id)
        for size in [("small" if id.bytes <= 4 * KIB else "large", id.param("mode"))]
    }
    for size in (("small", "batched"), ("small", "single"), ("large", "batched"), ("large", "single")):
        for benchmark, memories in FAMILIES.items():
            for src_memory, dst_memory in memories:
                for peer in ("on", "off") if benchmark == "d2d" else ("",):
                    assert (benchmark, src_memory, dst_memory, peer, False, size) in families
    for both in (
        ("h2d", "pinned", "device", ""),
        ("h2d", "registered", "device", ""),
        ("d2d", "device", "device", "on"),
    ):
        assert (*both, True, ("large", "batched")) in families


FAMILIES = {
    "h2h": [("pageable", "pinned"), ("pinned", "pageable")],
    "h2d": [(kind, "device") for kind in ("pageable", "pinned", "registered")],
    "d2h": [("device", kind) for kind in ("pageable", "pinned", "registered")],
    "d2d": [("device", "device")],
    "local": [("device", "device")],
}


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_with_noise_points_are_within_two_standard_errors(name: str, noisy: dict[str, Points]) -> None:
    """A few may be further off: two standard errors of six rounds contain 90 %, and the machine differs by 0.2 %."""
    missed, far, count = [], [], 0
    for id, point in noisy[name]:
        expected = closed_form(MACHINES[name], id)
        if expected is None or point.median_s is None:
            continue
        count += 1
        rounds = point.flows[0].round_medians_s
        error = 1.2533 * statistics.stdev(rounds) / math.sqrt(len(rounds))  # of a median
        off = abs(point.median_s - expected) - EVENT_TICK_S
        line = f"{id}: {point.median_s} for {expected}"
        missed += [line] if off > max(0.01 * expected, 2 * error) else []
        far += [line] if off > max(0.02 * expected, 4 * error) else []
    assert count > 200
    assert not far
    assert len(missed) <= 0.06 * count, missed


JOINT = {  # GB/s in total, uni- and bidirectional: uplinks, one engine that serves all in turn, one link into one GPU
    "host_to_all": (182.0, 188.0), "all_to_host": (150.0, None),
    "one_to_all": (390.0, None), "all_to_one": (390.0, None),
}  # fmt: skip


def test_concurrent_flows_of_all_gpus_share_their_links(tmp_path: Path) -> None:
    content = models.load("h200x4").to_json()
    del content["noise"]
    target = modelled(msgspec.convert(content, models.Model), seed=3)
    plan = make_plan(target.facts, benchmark_table(), suite="nvbandwidth", only=["*/ce/*gpu:all*"])
    measure(target, plan, tmp_path / "joint.jsonl")
    points = read_run(tmp_path / "joint.jsonl").points
    assert {point.benchmark for point in points} == set(JOINT)
    for point in points:
        expected = JOINT[point.benchmark][point.bidirectional]
        assert point.total_gbps == pytest.approx(expected, rel=0.02), point.id
        in_turn = point.benchmark == "one_to_all"  # the source's only engine serves all flows, with either initiator
        assert ("in_turn" in point.guards, point.status) == (in_turn, "missed_precision" if in_turn else "ok"), point.id


def test_transfers_without_a_closed_form_keep_their_order(exact: tuple[str, Points]) -> None:
    """Bidirectional copies through the driver's rings: between one and two times the unidirectional rate."""
    name, points = exact
    unidirectional = {id: point for id, point in points if not id.bidirectional}
    compared = 0
    for id, both in points:
        ring = "pageable" in (id.src_memory, id.dst_memory) or id.param("peer") == "off"
        if not (id.bidirectional and ring and id.bytes >= 16 * MIB):
            continue
        params = tuple((key, "false" if key == "bidirectional" else value) for key, value in id.params)
        one = unidirectional[dataclasses.replace(id, params=params)]
        most = MACHINES[name].pageable_both if "pageable" in (id.src_memory, id.dst_memory) else 1.95
        assert 0.98 * one.gbps <= both.total_gbps < most * one.gbps
        compared += 1
    assert compared >= 3


def test_ac922_orders_its_methods_as_in_the_paper(noisy: dict[str, Points]) -> None:
    """CS-28 to CS-30 at 256 MiB: local pinned 72 GB/s, remote 41, pageable below both in either direction."""
    rates: dict[tuple[str, str, bool], set[float]] = {}
    for id, point in noisy["ac922"]:
        if id.bytes == 256 * MIB and id.benchmark in ("h2d", "d2h") and not id.bidirectional:
            near = ac922_host(id.src) == ac922_host(id.dst)
            host_memory = id.src_memory if id.benchmark == "h2d" else id.dst_memory
            rates.setdefault((id.benchmark, host_memory, near), set()).add(point.gbps or 0.0)
    for benchmark in ("h2d", "d2h"):
        for kind in ("pinned", "registered"):
            assert list(rates[benchmark, kind, True]) == pytest.approx([72], rel=0.01)
            assert list(rates[benchmark, kind, False]) == pytest.approx([41], rel=0.01)
        for near in (True, False):
            assert max(rates[benchmark, "pageable", near]) < 0.5 * 41
