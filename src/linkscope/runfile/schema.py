"""The records of a run file (docs/reference/run-file.md). Times in seconds, sizes in bytes, rates in GB/s (1e9 B/s).

Those of which a run has hundreds of thousands are `gc=False`: a record holds no other one, so there are no cycles.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec

SCHEMA = 1

Status = Literal["ok", "inherited", "missed_precision", "unsupported", "failed", "skipped"]
Timing = Literal["gate+slope", "events", "host", "kernel_clock", "virtual"]


class Header(msgspec.Struct, kw_only=True, tag_field="record", tag="run"):
    """The first line: what was to be measured, where, with what."""

    schema: int = SCHEMA
    modelled: bool
    machine: dict[str, Any]
    environment: dict[str, Any]
    plan: dict[str, Any]
    tool: dict[str, Any]
    started: str


class RoundFlow(msgspec.Struct, gc=False):
    """The samples of one flow in one round."""

    src: str
    dst: str
    src_memory: str
    dst_memory: str
    bytes: int
    role: Literal["measured", "background"]
    samples_s: list[float]


class Round(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True, tag_field="record", tag="round"):
    """One point in one round, written at once; readers need it only where the point has no record of its own yet.

    A sample is the slope between `batch` operations and `longer` times as many; or, where that is 1, none. By the rule
    of another tool it is something else, and versions before this field did not say.
    """

    id: str
    round: int
    flows: list[RoundFlow]
    batch: list[int]
    overhead_s: float | None
    timing: Timing
    verified: bool | None
    guards: dict[str, Any]
    device_s: float
    longer: int | None = None


class Flow(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True):
    """One transfer of a point; a point has several where several run at once.

    `mean_s`, `stddev_s`: of the samples, where the rule that was measured by reports these.
    """

    src: str
    dst: str
    src_memory: str
    dst_memory: str
    bytes: int
    role: Literal["measured", "background"]
    round_medians_s: list[float]
    samples_s: list[list[float]]
    median_s: float | None
    ci95_s: tuple[float, float] | None
    gbps: float | None
    mean_s: float | None = None
    stddev_s: float | None = None


AnyFlow = TypeVar("AnyFlow", RoundFlow, Flow)


def by_way(flows: Iterable[AnyFlow]) -> dict[tuple[str, str], list[AnyFlow]]:
    """Flows by where they go from and to: what goes one way together is one rate."""
    found: dict[tuple[str, str], list[AnyFlow]] = {}
    for flow in flows:
        found.setdefault((flow.src, flow.dst), []).append(flow)
    return found


def half_width(of: "Flow | Point") -> float | None:
    """Half of the interval of the time as a fraction of its median; None without one."""
    if of.ci95_s is None or not of.median_s or of.median_s <= 0:
        return None
    return (of.ci95_s[1] - of.ci95_s[0]) / 2 / of.median_s


class Spread(msgspec.Struct, gc=False):
    """Standard deviations of flow 0 as fractions of its median, and its modes where the samples have two."""

    within_rounds: float
    between_rounds: float
    modes_s: tuple[float, float] | None


class Point(msgspec.Struct, kw_only=True, gc=False, tag_field="record", tag="point"):
    """The result for one id. Flat fields repeat flow 0, so that simple things stay simple."""

    id: str
    status: Status
    reason: str | None = None
    benchmark: str
    engine: str
    src: str
    dst: str
    src_memory: str
    dst_memory: str
    bytes: int
    bidirectional: bool
    params: dict[str, str]
    median_s: float | None = None
    ci95_s: tuple[float, float] | None = None
    gbps: float | None = None
    total_gbps: float | None = None
    flows: list[Flow] = []
    inherited_from: str | None = None
    batch: list[int] | None = None
    longer: int | None = None
    overhead_s: float | None = None
    precision_target: float
    ci_level: float | None = None
    spread: Spread | None = None
    timing: Timing | None = None
    verified: bool | None = None
    limit_gbps: float | None = None
    limit_source: str | None = None
    footprint_bytes: int | None = None
    guards: dict[str, Any] = {}
    device_s: float = 0.0


class Resume(msgspec.Struct, kw_only=True, tag_field="record", tag="resume"):
    """Where a run that had stopped went on."""

    started: str
    tool: dict[str, Any]
    points_done: int


class ContextsTally(msgspec.Struct, kw_only=True):
    """How many contexts were made of a GPU, how many of them were measured in, how many cost clearly more than the
    least; and what an operation costs in the middle one of these two, in seconds. `dear_kept`: how many were both."""

    made: int
    kept: int
    kept_s: float
    dear: int
    dear_s: float | None
    dear_kept: int = 0


class End(msgspec.Struct, kw_only=True, tag_field="record", tag="end"):
    """The last line of a run that ended by itself; `complete` is false where it was stopped.

    `gained`: what the error counters of the GPUs gained meanwhile, by place, and `cpu_steal`, the share of CPU time
    that a hypervisor took. `contexts`: by GPU, where they were made alike (docs/notes/context-effects.md).
    """

    wall_s: float
    complete: bool
    counts: dict[str, int]
    gained: dict[str, Any] = {}
    contexts: dict[str, ContextsTally] = {}


Record = Header | Round | Point | Resume | End
