"""Rows on states that spoil samples: the first operation of a process, a throttled GPU, two modes, caches."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linkscope.plan.cases import HOST_FOOTPRINT
from linkscope.run.services import Services
from linkscope.run.supervisor import Supervisor
from linkscope.runfile import Header, RunWriter, read_run
from linkscope.selftest.bench import D2H, H2D, KIB, MIB, command, measured, near, plan_of, watched
from linkscope.selftest.machine import FROM_DEVICE_S, LOAD_S, PCIE, PCIE_LATENCY_S, target
from linkscope.selftest.rows import Finding, Row
from linkscope.units import format_bytes, format_seconds

_COPY = D2H.format(64 * KIB)
TRUTH = FROM_DEVICE_S + PCIE_LATENCY_S + 64 * KIB / PCIE


def _warm_up(folder: Path) -> Finding:
    """Every process first loads code, and then runs on a rising clock."""
    late_s, rising = 1e-3, {"kind": "ramp", "samples": 6, "factor": 3.0}
    point = measured(folder, target(fault=[rising]), [_COPY], [{"first_s": late_s}])[_COPY]
    planted = (
        f"a copy of {format_seconds(TRUTH)}; in each process the first takes {format_seconds(late_s)} more, and six "
        "samples up to 3 × slower"
    )
    found = f"{format_seconds(point.median_s or 0.0)} ({point.status})"
    return Finding(planted, found, near(point.median_s, TRUTH) and point.status == "ok")


class _Throttled:
    """A monitor that reports throttling in certain blocks of its run."""

    def __init__(self, blocks: Sequence[int]) -> None:
        self._block, self._throttled = 0, blocks

    def guards(self, places: Sequence[str], since: float) -> dict[str, Any]:
        self._block += 1
        return {"throttled": ["hw_thermal"]} if self._block in self._throttled else {}

    def stop(self) -> None: ...


def _throttled(folder: Path) -> Finding:
    """Every round is taken twice: the first time it is twice as slow, and the monitor reports why. Rounds run in
    processes of their own, as on hardware."""
    slow = [1, 3, 5, 7, 9, 11]
    where = dataclasses.replace(target(), facts=dataclasses.replace(target().facts, modelled=False))
    plan = plan_of(where, [_COPY])
    count = folder / "blocks"
    meddling = [{"factor": 2.0, "blocks": slow, "count": str(count)}]
    header = Header(modelled=True, machine=where.machine, environment={}, plan={}, tool={}, started="")
    with RunWriter.create(folder / "run.jsonl", header, force=True) as writer:
        services = Services(command=command(meddling), monitor=_Throttled(slow))
        Supervisor(where, plan, writer, services).carry_out()
    point = read_run(folder / "run.jsonl").points[0]
    apart = len(point.guards.get("throttled_rounds", []))
    holds = near(point.median_s, TRUTH) and apart == len(slow) and point.status == "ok"
    return Finding(
        f"a copy of {format_seconds(TRUTH)}; throttled and 2 × slower when a round begins",
        f"{format_seconds(point.median_s or 0.0)} ({point.status}), {apart} rounds excluded", holds,
    )  # fmt: skip


def _two_modes(folder: Path) -> Finding:
    """Every process has two modes, as copies have that meet a memory refresh or not. A point with one mode must not
    report two."""
    point = measured(folder, target(), [_COPY], [{"two_modes": 1.3}])[_COPY]
    plain = measured(folder, target(noise=_SCATTER), [_COPY])[_COPY]
    modes = point.spread.modes_s if point.spread else None
    none = plain.spread is not None and plain.spread.modes_s is None
    found = f"{' and '.join(format_seconds(mode) for mode in modes)}" if modes else "one"
    holds = modes is not None and near(modes[0], TRUTH) and near(modes[1], 1.3 * TRUTH) and none
    return Finding(
        f"samples of {format_seconds(TRUTH)} and {format_seconds(1.3 * TRUTH)} in turn; without them one mode",
        f"{found}; {'one' if none else 'two'}", holds,
    )  # fmt: skip


_CHASE = "latency/cpu/numa:0.pageable->numa:0.pageable/0?cache={}&range=2MiB"
_HOT_S = 10e-9
_SCATTER = {
    "round": {"from": "assumed", "why": "selftest", "engine": 0.03, "rate": 0.03},
    "sample": {"from": "assumed", "why": "selftest", "engine": 0.01, "rate": 0.01},
}


def _two_kinds(folder: Path) -> Finding:
    """Pages are placed well or badly for the lifetime of a process: a value of one kind must not count as that of the
    machine."""
    noise = {"round": {"from": "assumed", "why": "selftest", "shape": "bimodal", "second": 1.3, "share": 0.4}}
    ids = [D2H.format(size * KIB) for size in (16, 32, 64, 128, 256)]
    points = measured(folder, target(noise=noise), ids).values()
    rounds = {point.id: point.flows[0].round_medians_s for point in points}
    mixed = [point for point in points if max(rounds[point.id]) > 1.2 * min(rounds[point.id])]
    missed = [point for point in mixed if point.status == "missed_precision"]
    between = min((point.spread.between_rounds for point in mixed if point.spread), default=0.0)
    return Finding(
        "two of five processes are 30 % slower throughout",
        f"{len(mixed)} of {len(ids)} points have rounds of both kinds, {len(missed)} of these miss their precision; "
        f"their rounds scatter by {between:.0%} or more",
        len(mixed) >= 3 and missed == mixed and between > 0.05,
    )


def _caches(folder: Path) -> Finding:
    """A cold chase runs over flushed lines, a hot one does not."""
    ids = {name: _CHASE.format(name) for name in ("cold", "hot")}
    points = measured(folder, target(), list(ids.values()), [{"hot": _HOT_S}])
    found = {name: points[id].median_s or 0.0 for name, id in ids.items()}
    return Finding(
        f"a load of {format_seconds(LOAD_S)} that misses all caches, {format_seconds(_HOT_S)} without a flush",
        ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in found.items()),
        near(found["cold"], LOAD_S) and near(found["hot"], _HOT_S),
    )


def _footprint(folder: Path) -> Finding:
    """Batches never meet a cached line: they rotate over three times the largest cache on the path, or over the
    footprint of host copies, slice by slice."""
    found, least = [], []
    where = target()
    cache = max(where.facts.cache_bytes.values())
    for size in (4 * KIB, MIB):
        seen = watched(where, H2D.format(size, "false", "batched"))
        found.append(seen.prepared.slices * size)
        least.append(min(3 * cache, HOST_FOOTPRINT, 512 * size))
    return Finding(
        f"caches of {format_bytes(cache)}; footprint: {' and '.join(map(format_bytes, least))}",
        " and ".join(map(format_bytes, found)),
        all(have >= wanted for have, wanted in zip(found, least, strict=True)),
    )


ROWS = (
    Row("warm_up", _warm_up), Row("throttled", _throttled, cost_s=1), Row("two_modes", _two_modes),
    Row("two_kinds", _two_kinds),    Row("caches", _caches), Row("footprint", _footprint),
)  # fmt: skip
