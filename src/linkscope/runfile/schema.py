"""The records of a run file (docs/reference/run-file.md). Times in seconds, sizes in bytes, rates in GB/s (1e9 B/s).

Records that occur by the hundred thousand in a run are `gc=False`. They hold no other records, so cycles are
impossible.
"""

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

import msgspec

SCHEMA = 1
TOO_SHORT = "too short for the clock"  # in the reason of such a point

Status = Literal["ok", "inherited", "missed_precision", "unsupported", "failed", "skipped"]
Timing = Literal["gate+slope", "events", "host", "kernel_clock", "virtual"]


class Header(msgspec.Struct, kw_only=True, tag_field="record", tag="run"):
    """The first line: plan, machine and tool."""

    schema: int = SCHEMA
    modelled: bool
    machine: dict[str, Any]
    environment: dict[str, Any]
    plan: dict[str, Any]
    tool: dict[str, Any]
    started: str


class ClassShape(msgspec.Struct):
    """What readers need of a class of paths."""

    kind: str
    paths: list[str]


class PlanShape(msgspec.Struct):
    """The types of what readers use of `Header.plan`. A key may be missing; other keys may hold anything."""

    suite: str = ""
    only: list[str] = []
    points: list[str] = []
    rounds: int = 0
    seed: int = 0
    rule: str = ""
    precision: float | None = None
    budget_s: float | None = None
    early: bool = False
    more_rounds: bool = True
    classes: list[ClassShape] | None = None


class LinkShape(msgspec.Struct):
    """What readers use of an NVLink of a GPU."""

    active: bool
    version: str | None = None
    remote: str | None = None
    remote_gpu: int | None = None


class GpuShape(msgspec.Struct):
    """What readers use of a GPU."""

    index: int
    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    sms: int | None = None
    l2_bytes: int | None = None
    copy_engines: int | None = None
    compute_capability: str | None = None
    memory_mhz: int | None = None
    memory_bus_bits: int | None = None
    numa: int | None = None
    pcie: dict[str, Any] | None = None
    nvlinks: list[LinkShape] = []
    nvlink_gbps: float | None = None
    c2c_gbps: float | None = None


class MachineShape(msgspec.Struct):
    """The types of what readers use of `Header.machine`, likewise."""

    name: str = ""
    title: str | None = None
    places: list[str] = []
    gpus: list[GpuShape] = []
    numa: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    cpu: dict[str, Any] | None = None
    driver: dict[str, Any] | None = None
    model: dict[str, Any] | None = None


class ToolShape(msgspec.Struct):
    """The types of what readers use of `Header.tool`, likewise."""

    name: str = ""
    version: str = ""
    commit: str | None = None
    methods: dict[str, int] = {}
    worker: dict[str, Any] | None = None


class RoundFlow(msgspec.Struct, gc=False, omit_defaults=True):
    """The samples of one flow in one round.

    `p50_s`, `p99_s`: of the durations of single operations, where each waits for the one before or is stamped.
    """

    src: str
    dst: str
    src_memory: str
    dst_memory: str
    bytes: int
    role: Literal["measured", "background"]
    samples_s: list[float]
    operations: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None


class Round(msgspec.Struct, kw_only=True, gc=False, omit_defaults=True, tag_field="record", tag="round"):
    """One point in one round, written at once. Readers need it only for points without a record.

    A sample is the slope between batches of `batch` and `longer` * `batch` operations. If `longer` is 1, the shorter
    batch is empty. Under another tool's rule, `longer` is absent. Older files lack it too.
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
    """One transfer of a point; a point has several concurrent ones.

    `mean_s`, `stddev_s`: of the samples, under a rule that reports them. `operations`: arithmetic operations of one
    iteration of a computation. `p50_s`, `p99_s`: medians of those of the rounds. Their intervals are by order
    statistics of six rounds or more, and by Student's t of the logarithms of fewer.
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
    operations: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    p50_ci95_s: tuple[float, float] | None = None
    p99_ci95_s: tuple[float, float] | None = None


AnyFlow = TypeVar("AnyFlow", RoundFlow, Flow)


def flows_by_path(flows: Iterable[AnyFlow]) -> dict[tuple[str, str], list[AnyFlow]]:
    """Returns the flows by path; the flows of one path have one joint rate."""
    found: dict[tuple[str, str], list[AnyFlow]] = {}
    for flow in flows:
        found.setdefault((flow.src, flow.dst), []).append(flow)
    return found


def is_too_short(point: "Point") -> bool:
    """Returns whether a point has no value because its time was lost in the noise of the clock."""
    return point.status in ("failed", "unsupported") and TOO_SHORT in (point.reason or "")


def shown_status(point: "Point") -> str:
    """Returns the status for people: `too_short` where the time of a point was lost in the noise of the clock."""
    return "too_short" if is_too_short(point) else point.status


def half_width(of: "Flow | Point") -> float | None:
    """Returns half of the time interval as a fraction of its median; None without an interval."""
    if of.ci95_s is None or not of.median_s or of.median_s <= 0:
        return None
    return (of.ci95_s[1] - of.ci95_s[0]) / 2 / of.median_s


class Spread(msgspec.Struct, gc=False):
    """Standard deviations of flow 0 as fractions of its median; two modes if the samples have them."""

    within_rounds: float
    between_rounds: float
    modes_s: tuple[float, float] | None


class Point(msgspec.Struct, kw_only=True, gc=False, tag_field="record", tag="point"):
    """The result for one id. Flat fields repeat those of flow 0, except `bytes`, the size in the id."""

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
    ci_method: str | None = None
    spread: Spread | None = None
    timing: Timing | None = None
    verified: bool | None = None
    limit_gbps: float | None = None
    limit_source: str | None = None
    footprint_bytes: int | None = None
    guards: dict[str, Any] = {}
    device_s: float = 0.0


class Resume(msgspec.Struct, kw_only=True, tag_field="record", tag="resume"):
    """The start of a later session."""

    started: str
    tool: dict[str, Any]
    points_done: int


class ContextsTally(msgspec.Struct, kw_only=True):
    """The contexts of a GPU. `made`: number made; `kept`: number measured in; `dear`: number that is clearly more
    expensive than the cheapest; `dear_kept`: number of expensive ones among those kept. `kept_s` and `dear_s`:
    median seconds of an operation in both."""

    made: int
    kept: int
    kept_s: float
    dear: int
    dear_s: float | None
    dear_kept: int = 0


class End(msgspec.Struct, kw_only=True, tag_field="record", tag="end"):
    """The last line of a run that ended by itself; `complete` is false if it was stopped.

    `gained`: increases of the GPUs' error counters, by place, and `cpu_steal`, the share of CPU time that a hypervisor
    took. `contexts`: by GPU, where cheap contexts were selected (docs/notes/context-effects.md).
    """

    wall_s: float
    complete: bool
    counts: dict[str, int]
    gained: dict[str, Any] = {}
    contexts: dict[str, ContextsTally] = {}


Record = Header | Round | Point | Resume | End
