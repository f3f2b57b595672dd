"""The text of the summary's lines, without its table and its verdict."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.advise import worthwhile
from linkscope.advise.predicted import untested
from linkscope.model.curves import MODE, path_of, rate_of, total_of
from linkscope.model.text import count_text, sizes_text
from linkscope.report.findings import findings
from linkscope.report.headline import COPIES, RateRow, Rates, best_points, headline_rows, is_headline, rates_of
from linkscope.report.managed import managed_rates
from linkscope.report.outcome import APART, STATUS_WORDS, problems, suite_text, too_short_cure, took_text
from linkscope.report.shared import group_text, shares
from linkscope.report.terminal import HEAD, NOTABLE, Line, printable, wrap
from linkscope.report.trust import SIGN, flows_ran_apart, has_warning, missed, sign_of
from linkscope.runfile import Point, Run, shown_status
from linkscope.units import format_bytes

_LEAST_GAIN = 1.05
_MOST_RECOMMENDATIONS = 3
_MOST_REASONS = 3
_MOST_GROUPS, _MOST_UNTESTED = 1, 4
_NEAR = 4  # sizes that differ by a larger factor leave open where half of the peak is reached
_SPREAD = 0.1  # latencies of a group that differ by more are shown as a range
_UNSTEADY_MEMORY = frozenset({"pageable", "managed"})


def heading_lines(run: Run, width: int) -> Iterable[Line]:
    """The machine on the left, the suite and the time on the right."""
    if run.modelled:
        yield from wrap("MODELLED: a machine model gave these numbers, no hardware was measured.", width, NOTABLE)
    left, right = printable(machine_text(run)), printable(", ".join(filter(None, (suite_text(run), took_text(run)))))
    if len(left) + len(right) + 4 <= width:
        yield Line(left + right.rjust(max(len(right) + 4, min(width, 96) - len(left))), HEAD)
    else:
        yield from wrap(left, width, HEAD)
        yield from wrap(right, width)


def machine_text(run: Run) -> str:
    """'4 × NVIDIA H200, PCIe 5.0 x16, NVLink 4' for a probed machine; name and title for others."""
    machine = run.header.machine
    gpus = [gpu for gpu in machine.get("gpus") or [] if isinstance(gpu, dict) and gpu.get("name")]
    if not gpus:
        named = ": ".join(str(machine[key]) for key in ("name", "title") if machine.get(key))
        cpu = machine.get("cpu")
        if isinstance(cpu, dict) and cpu.get("model"):
            return f"{cpu['model']}, {cpu.get('cores', '?')} cores, no GPU"
        return named or "a machine without a name"
    counts = Counter(str(gpu["name"]) for gpu in gpus)
    parts = [f"{count} × {name}" for name, count in counts.items()]
    pcie = gpus[0].get("pcie") or {}
    if pcie.get("max_generation") and pcie.get("width"):
        parts.append(f"PCIe {pcie['max_generation']}.0 x{pcie['width']}")
    links = [link for link in gpus[0].get("nvlinks") or [] if link.get("active")]
    if links and links[0].get("version"):
        parts.append(f"NVLink {str(links[0]['version']).removesuffix('.0')}")
    return ", ".join(parts)


def slowest_text(run: Run, rows: Sequence[RateRow]) -> str:
    """'by % of peak gpu:2 → gpu:1, 391 GB/s (82 %); by rate gpu:3 → numa:0, 5.11 GB/s (managed)'.

    Links have different peaks, so both are given. Copies within one place use no link and do not count. '' for one path
    alone.
    """
    copies = [
        _Best(point, row.memory, value, value / peak if peak else None)
        for row in rows
        if row.unidirectional is not None
        for point, value, peak in _with_peaks(row.unidirectional)
        if point.src != point.dst
    ]
    managed = [
        _Best(point, "managed", value, None)
        for rates in managed_rates(run).values()
        for point, value, _ in _with_peaks(rates)
    ]
    direct = [one for one in copies if one.share is not None and one.memory not in ("pageable", "peer off")]
    parts = []
    if len(direct) > 1:
        slow = min(direct, key=lambda one: one.share or 0.0)
        parts.append(f"by % of peak {slow.text} ({100 * (slow.share or 0.0):.0f} %)")
    if len(copies + managed) > 1:
        slow = min(copies + managed, key=lambda one: one.gbps)
        parts.append(f"by rate {slow.text}" + (f" ({slow.memory})" if slow.memory else ""))
    return "; ".join(parts)


@dataclass(frozen=True)
class _Best:
    """The best point of one path and memory kind: its rate in GB/s, and its share of the peak if that is known."""

    point: Point
    memory: str
    gbps: float
    share: float | None

    @property
    def text(self) -> str:
        """'numa:0 → gpu:3, 55.1 GB/s'."""
        return f"{self.point.src} → {self.point.dst}, {SIGN if missed(self.point) else ''}{self.gbps:.3g} GB/s"


def _with_peaks(rates: Rates) -> Iterable[tuple[Point, float, float | None]]:
    return zip(rates.points, rates.values, rates.peaks, strict=True)


def managed_text(run: Run) -> str:
    """'prefetch to GPU 47.9 GB/s, to host 19.4 GB/s; on demand to GPU unstable, 6.9 to 21.4 GB/s'."""
    parts: dict[str, list[str]] = {}
    for (how, direction), rates in managed_rates(run).items():
        parts.setdefault(how, []).append(f"{direction} {_rates_text(rates)} GB/s")
    return "; ".join(f"{how} {', '.join(parts)}" for how, parts in parts.items())


def latency_text(run: Run) -> str:
    """'one load from own memory 332 ns, peer GPU 992 ns': the median of pointer chases for each location."""
    times: dict[str, list[float]] = {}
    for point in run.points:
        if point.benchmark == "latency" and point.median_s and point.params.get("cache", "cold") == "cold":
            times.setdefault(_latency_group(point), []).append(point.median_s)
    order = ("own memory", "peer GPU", "host", "CPU to host", "other")
    parts = [f"{group} {_ns(times[group])}" for group in order if group in times]
    return f"one load from {', '.join(parts)}" if parts else ""


def joint_text(run: Run) -> str:
    """'host → all GPUs 179 GB/s (45 each) at 64 MiB, all GPUs → host 155 GB/s (39 each) at 64 MiB'."""
    parts = []
    for label, benchmark, double in (
        ("host → all GPUs", "host_to_all", False),
        ("all GPUs → host", "all_to_host", False),
        ("both at once", "host_to_all", True),
        ("one GPU → all others", "one_to_all", False),
        ("all others → one GPU", "all_to_one", False),
    ):
        points = [
            p for p in run.points
            if (p.benchmark, p.engine, p.bidirectional) == (benchmark, "ce", double) and not has_warning(p)
        ]  # fmt: skip
        best = best_points((point for point in points if set(point.params) <= _JOINT_PARAMS), total_of)
        rates = rates_of(sorted(best), best, total_of)
        if rates is not None:
            flows = len(rates.points[0].flows)
            each = "" if double or not rates.alike or rates.unstable else f" ({rates.median / flows:.3g} each)"
            sign = "" if rates.unstable else sign_of(rates.points)
            parts.append(
                f"{label} {sign}{_rates_text(rates)} GB/s{each}{sizes_text(point.bytes for point in rates.points)}"
            )
    return ", ".join(parts)


_JOINT_PARAMS = frozenset({"bidirectional", "initiator", "after", "call", MODE, "peer"})


def shared_text(run: Run) -> str:
    """The groups of paths with a shared link; '' without concurrent flows."""
    found = shares(run.points)
    if found is None:
        return ""
    if not found.groups:
        return "" if found.slowed_pairs or not found.pairs else "no pair of paths slows the other"
    parts = "; ".join(map(group_text, found.groups[:_MOST_GROUPS]))
    more = len(found.groups) - _MOST_GROUPS
    return parts + (f"; and {more} more" if more > 0 else "")


def notes(run: Run, *, signed: bool) -> Iterable[str]:
    """How many points missed precision, were inherited or have no value."""
    if (rule := run.header.plan.get("rule", "linkscope")) != "linkscope":
        yield f"measured by the rule of {rule}"
    if run.modelled and (text := _accuracy_text(run)):
        yield text
    verb = "modelled" if run.modelled else "measured"
    counts = Counter[str](map(shown_status, run.points))
    measured = counts["ok"] + counts["missed_precision"]
    imprecise = [point for point in run.points if point.status == "missed_precision"]
    wide = [point for point in imprecise if not flows_ran_apart(point)]
    unsteady = sum(not _UNSTEADY_MEMORY.isdisjoint((point.src_memory, point.dst_memory)) for point in wide)
    parts = []
    if wide:
        named = "all" if unsteady == len(wide) > 1 else unsteady
        of_them = f", {named} of them pageable or managed" if unsteady else ""
        points = "point" if measured == 1 else "points"
        parts.append(f"{len(wide)} of {measured} {verb} {points} missed precision{of_them}")
    elif measured and not imprecise:
        parts.append(f"{count_text(measured, 'point')} {verb}, all within the target precision")
    if apart := len(imprecise) - len(wide):
        parts.append(f"{count_text(apart, 'point')} with {APART}")
    parts += [f"{counts[s]} {STATUS_WORDS[s]}" for s in ("inherited", "unsupported") if counts[s]]
    if not measured:  # without values the reasons matter most
        yield from (
            problem.text()
            for problem in problems(run.points, too_short_cure(run))[:_MOST_REASONS]
            if not problem.failed
        )
        return
    if parts:
        yield "; ".join(parts) + (f"; {SIGN} marks a value that missed it" if signed else "")
    found = problems(run.points)
    if counts["unsupported"] > measured:  # most of what was asked for
        yield next(problem.text() for problem in found if problem.status == "unsupported")
    skipped = [problem for problem in found if problem.status == "skipped"]
    yield from (f"{len(problem.ids)} not measured: {problem.reason}" for problem in skipped[:_MOST_REASONS])


def _accuracy_text(run: Run) -> str:
    """The operations for which the model was not compared with hardware; '' without any."""
    operations = [point.benchmark for point in run.points if point.median_s is not None]
    unknown = untested(str(run.header.machine.get("name")), operations)
    if unknown is None:
        return "the accuracy of this model is unknown: it was fitted to no run of hardware"
    if not unknown:
        return ""
    named = ", ".join(unknown[:_MOST_UNTESTED]) + (", …" if len(unknown) > _MOST_UNTESTED else "")
    of = count_text(len(set(operations)), "operation")
    return f"accuracy unknown for {len(unknown)} of {of}, not compared with hardware: {named}"


def recommendations_text(run: Run) -> str:
    """'enable peer access between GPUs ×11; … (median, 1 to 64 MiB; how: `linkscope advise`)'."""
    ranked = [one for one in worthwhile(run.points) if one.is_typical and one.typical_gain >= _LEAST_GAIN]
    if not ranked:
        return ""
    parts = "; ".join(f"{one.recommendation.title} ×{one.typical_gain:.2g}" for one in ranked[:_MOST_RECOMMENDATIONS])
    return f"{parts} (median, 1 to 64 MiB; how: `linkscope advise`)"


def pointers(run: Run) -> list[str]:
    """The commands that print more."""
    count = len(findings(run))
    anomalies = f"{count} anomalies and " if count > 1 else "1 anomaly and " if count else ""
    found = [f"{anomalies}all tables: add `--summary=full`; a page: `linkscope report RUN`"]
    plan = run.header.plan
    if not run.modelled and run.header.machine.get("gpus") == []:
        found.append("no GPU here: `linkscope doctor` says why; `linkscope run --machine h200x4` simulates four GPUs")
    if plan.get("suite") == "nvbandwidth":
        found.append("`linkscope report RUN --nvbandwidth` prints nvbandwidth's tables")
    if plan.get("rule") == "comm-scope":
        found.append("`linkscope report RUN --comm-scope` prints means and standard deviations")
    return found


def _rates_text(rates: Rates) -> str:
    if rates.unstable:
        return f"unstable, {rates.unstable[0]:.3g} to {rates.unstable[1]:.3g}"
    if rates.alike:
        return f"{rates.median:.3g}"
    return f"{min(rates.values):.3g} to {max(rates.values):.3g}"


def _latency_group(point: Point) -> str:
    if "gpu:" not in point.src and "gpu:" not in point.dst:
        return "CPU to host"
    if point.src == point.dst:
        return "own memory"
    if "gpu:" in point.src and "gpu:" in point.dst:
        return "peer GPU"
    return "host" if point.engine == "sm" else "other"


def _ns(seconds: Sequence[float]) -> str:
    low, high, middle = (f"{1e9 * of:.0f}" for of in (min(seconds), max(seconds), statistics.median(seconds)))
    return f"{middle} ns" if max(seconds) <= min(seconds) * (1 + _SPREAD) else f"{low} to {high} ns"


def half_peak_text(run: Run) -> str:
    """'from 256 KiB (host), 1 MiB (peer)'."""
    parts = []
    for benchmark, name in (("h2d", "host"), ("d2d", "peer")):
        row = next((row for row in headline_rows(run) if row.where == COPIES[benchmark]), None)
        if row is None or row.unidirectional is None:
            continue
        sizes = [size for point in row.unidirectional.points if (size := _half_peak_size(run, point)) is not None]
        if len(sizes) == len(row.unidirectional.points):
            parts.append(f"{format_bytes(max(sizes))} ({name})")
    return f"from {', '.join(parts)}" if parts else ""


def _half_peak_size(run: Run, best: Point) -> int | None:
    """The smallest size at which the path reaches half of its peak. None if the next smaller size is far away, or was
    not measured.
    """
    if best.limit_gbps is None:
        return None
    rates: dict[int, float] = {}
    for point in run.points:
        alike = (point.benchmark, point.engine, point.src_memory, point.dst_memory, point.params.get(MODE))
        if alike == (best.benchmark, best.engine, best.src_memory, best.dst_memory, best.params.get(MODE)):
            same = path_of(point) == path_of(best) and point.params.get("peer") == best.params.get("peer")
            if same and not point.bidirectional and is_headline(point) and (rate := rate_of(point)) is not None:
                rates[point.bytes] = max(rate.value, rates.get(point.bytes, 0.0))
    reached = min((size for size, rate in rates.items() if rate >= best.limit_gbps / 2), default=None)
    below = max((size for size in rates if reached and size < reached), default=None)
    return reached if reached and below and reached <= _NEAR * below else None
