"""A small invented run for the tests of the report: exact numbers, every status, bidirectional points, a slow pair."""

from pathlib import Path
from typing import Any

from linkscope.runfile import End, Flow, Header, Point, PointId, Run, Spread

SIZES = (8, 4096, 1 << 20, 64 << 20)
ROUNDS = (0.98, 0.99, 1.0, 1.0, 1.01, 1.02)  # of the median


def flow(src: str, dst: str, memories: tuple[str, str], count: int, seconds: float) -> Flow:
    medians = [seconds * factor for factor in ROUNDS]
    return Flow(
        src=src, dst=dst, src_memory=memories[0], dst_memory=memories[1], bytes=count, role="measured",
        round_medians_s=medians, samples_s=[[median, median] for median in medians], median_s=seconds,
        ci95_s=(medians[0], medians[-1]), gbps=count / seconds / 1e9 if count else None,
    )  # fmt: skip


def point(id: str, seconds: float | None = None, **fields: Any) -> Point:
    """With `seconds` None the point has no value."""
    what = PointId.parse(id)
    made = Point(
        id=id, status="ok", benchmark=what.benchmark, engine=what.engine, src=what.src, dst=what.dst,
        src_memory=what.src_memory, dst_memory=what.dst_memory, bytes=what.bytes, bidirectional=what.bidirectional,
        params=dict(what.params), precision_target=0.01,
    )  # fmt: skip
    if seconds is not None:
        memories = (what.src_memory, what.dst_memory)
        made.flows = [flow(what.src, what.dst, memories, what.bytes, seconds)]
        if what.bidirectional:
            made.flows.append(flow(what.dst, what.src, memories[::-1], what.bytes, seconds))
        made.median_s, made.ci95_s, made.gbps = seconds, made.flows[0].ci95_s, made.flows[0].gbps
        made.total_gbps = sum(one.gbps for one in made.flows if one.gbps) or None
        made.ci_level, made.spread = 0.969, Spread(within_rounds=0.001, between_rounds=0.002, modes_s=None)
        made.timing, made.batch, made.verified = "virtual", [16], True
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def run(points: list[Point], *, modelled: bool = True, **machine: Any) -> Run:
    header = Header(
        modelled=modelled, machine={"name": "invented", "title": "two GPUs that nobody has", **machine},
        environment={"governor": "performance"}, plan={"suite": "quick", "rounds": 6, "seed": 1},
        tool={"name": "linkscope", "version": "0.1.0"}, started="2026-11-21T00:00:00+00:00",
    )  # fmt: skip
    end = End(wall_s=1.5, complete=True, counts={})
    return Run(Path("invented.jsonl"), header, points, {}, [], end, [], 0, False)


def small_run() -> Run:
    return run([*_host_points(), *_peer_points(), *_problem_points()])


def _host_points() -> list[Point]:
    made = []
    for gpu in (0, 1):
        for size in SIZES:
            for mode, start in (("batched", 2e-6), ("single", 8e-6)):
                id = f"h2d/ce/numa:0.pinned->gpu:{gpu}.device/{size}?bidirectional=false&mode={mode}"
                made.append(point(id, start + size / 56e9, limit_gbps=63.0, limit_source="PCIe 5.0 x16"))
            id = f"h2d/ce/numa:0.pageable->gpu:{gpu}.device/{size}?bidirectional=false&mode=batched"
            made.append(point(id, 3e-6 + size / 9e9, limit_gbps=63.0, limit_source="PCIe 5.0 x16"))
        id = f"h2d/ce/numa:0.pinned->gpu:{gpu}.device/{SIZES[-1]}?bidirectional=true&mode=batched"
        made.append(point(id, 2e-6 + SIZES[-1] / 50e9, limit_gbps=63.0, limit_source="PCIe 5.0 x16"))
    return made


def _peer_points() -> list[Point]:
    """Between four GPUs; gpu:2 -> gpu:3 is slow, and `initiator` makes no difference."""
    made = []
    for src in range(4):
        for dst in range(4):
            if src == dst:
                continue
            rate = 200e9 if (src, dst) == (2, 3) else 390e9
            for initiator in ("src", "dst"):
                ends = f"gpu:{src}.device->gpu:{dst}.device"
                id = f"d2d/ce/{ends}/{SIZES[-1]}?initiator={initiator}&mode=batched&peer=on"
                made.append(point(id, 2e-6 + SIZES[-1] / rate, limit_gbps=478.0, limit_source="18 NVLink links"))
    return made


def _problem_points() -> list[Point]:
    id = "local/ce/gpu:0.device->gpu:0.device/{}?mode=batched"
    return [
        point(id.format(8), 1.6e-6, spread=Spread(within_rounds=0.001, between_rounds=0.05, modes_s=(1.5e-6, 1.7e-6))),
        point(id.format(16), status="failed", reason="wrong data: byte 3 of 16", verified=False),
        point(id.format(32), status="failed", reason="wrong data: byte 7 of 32", verified=False),
        point(id.format(64), status="unsupported", reason="not here, because the test says so"),
        point(id.format(128), 1.6e-6, status="missed_precision", reason="the interval is +-2.00% after 9 rounds"),
        point(id.format(256), status="skipped", reason="the budget of 1 s is spent"),
    ]
