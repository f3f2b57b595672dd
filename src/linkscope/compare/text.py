"""A comparison as text: differences in machine and settings, then the paths, worst first."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from linkscope.compare.environment import Difference
from linkscope.compare.groups import Group
from linkscope.compare.history import Change
from linkscope.compare.verdict import CHANGED, Comparison, Pair, Verdict
from linkscope.model.curves import MODE, Estimate, Method, Path, natural, total_of
from linkscope.model.rounds import rounds_of
from linkscope.model.text import count_text, latency_text, method_text, point_text
from linkscope.report.outcome import STATUS_WORDS
from linkscope.runfile import Point, Run
from linkscope.stats import median
from linkscope.units import format_bytes, format_fraction, format_rate, with_signs

_MOST_DIFFERENCES = 12
_LONGEST = 60  # characters of a value
_RATES_FROM = 1 << 20  # bytes: smaller points are shown as times
_ORDER: tuple[Verdict, ...] = get_args(Verdict)  # worst first


@dataclass(frozen=True)
class PathVerdict:
    """One method on one path over all sizes, with the verdict of its worst point and that point.

    A path is `equivalent` only if all its sizes are.
    """

    path: Path
    method: Method
    mode: str
    verdict: Verdict
    worst: Pair
    pairs: tuple[Pair, ...]


def by_path(comparison: Comparison) -> list[PathVerdict]:
    """Paths with the worst verdict first, and within a verdict the largest change first."""
    groups: dict[tuple[Path, Method, str], list[Pair]] = {}
    for pair in comparison.pairs:
        groups.setdefault((pair.path, pair.method, pair.before.params.get(MODE, "")), []).append(pair)
    found = []
    for key, pairs in groups.items():
        worst = min(pairs, key=_badness)
        found.append(PathVerdict(*key, worst.verdict, worst, tuple(pairs)))
    return sorted(found, key=lambda one: (*_badness(one.worst), natural(one.path.src), natural(one.path.dst)))


def differences_text(found: Sequence[Difference], everything: bool) -> list[str]:
    """A line for each fact: 'driver.version: 580.65 → 580.159'."""
    if not found:
        return ["nothing else that linkscope records differs"]
    shown = found if everything else found[:_MOST_DIFFERENCES]
    lines = [f"{one.what}: {_value(one.what, one.before)} → {_value(one.what, one.after)}" for one in shown]
    if len(found) > len(shown):
        lines.append(f"and {len(found) - len(shown)} more (--all)")
    return lines


def groups_table(comparison: Comparison) -> list[str]:
    """A line for each group of points: how many have each verdict, and the smallest detectable change."""
    groups: dict[Group, list[Pair]] = {}
    for pair in comparison.pairs:
        groups.setdefault(pair.group, []).append(pair)
    found = {pair.verdict for pair in comparison.pairs}
    heads = ["points", *(verdict for verdict in _ORDER if verdict in found), "detectable"]
    rows = [("", heads)]
    for group, pairs in sorted(groups.items(), key=lambda item: (item[0].name, -item[0].size_class)):
        counts = Counter[str](pair.verdict for pair in pairs)
        known = [pair.detectable for pair in pairs if pair.detectable is not None]
        cells = [str(len(pairs)), *(str(counts[verdict] or "-") for verdict in heads[1:-1])]
        rows.append((group.text, [*cells, format_fraction(median(known)) if known else "-"]))
    first = max(len(name) for name, _ in rows)
    widths = [max(len(cells[column]) for _, cells in rows) for column in range(len(heads))]
    return [
        f"{name:<{first}}  {'  '.join(c.rjust(w) for c, w in zip(cells, widths, strict=True))}" for name, cells in rows
    ]


def table(paths: Iterable[PathVerdict], everything: bool, width: int) -> list[str]:
    """Aligned lines for the changed paths, or all with `everything`. A path stands below its numbers if both exceed
    `width`."""
    shown = [one for one in paths if everything or one.verdict in CHANGED]
    rows = [tuple(map(with_signs, (_said(one), *_change(one.worst), _what(one)))) for one in shown]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[3]]))
    if max(map(len, lines), default=0) > width:
        lines = [part for line, row in zip(lines, rows, strict=True) for part in _below(line, row[3], width)]
    return lines


def changes_text(found: Sequence[Change], runs: Sequence[Run]) -> list[str]:
    """A line for each change: the run since which, and the ratio; those that are judged come first."""
    lines = []
    for one in sorted(found, key=lambda change: (not change.judged, -max(change.ratio, 1 / change.ratio))):
        how = "slower" if one.ratio > 1 else "faster"
        how += "" if one.judged else ", not judged"
        if one.kind == "drift":
            lines.append(f"drifts, {how}, time {_percent(one.ratio)} from first to last: {point_text(one.point)}")
            continue
        since = run_text(runs[one.at])
        lines.append(f"{how}, time {change_text(one)} since {since}: {point_text(one.point)}")
    return lines or ["no path has changed"]


def change_text(one: Change) -> str:
    """'+5.3 % [+4.6 %, +6 %]' of time."""
    ends = f" [{_percent(one.interval.low)}, {_percent(one.interval.high)}]" if one.interval else ""
    return f"{_percent(one.ratio)}{ends}"


def run_text(run: Run) -> str:
    """'MODELLED b.jsonl (h200x4, 2026-11-22T05:38:29+00:00)'."""
    mark = "MODELLED " if run.modelled else ""
    return f"{mark}{run.path} ({run.header.machine.get('name', '')}, {run.header.started})"


def _below(line: str, path: str, width: int) -> list[str]:
    numbers = textwrap.wrap(line.removesuffix(path).rstrip(), width, initial_indent="  ", subsequent_indent=" " * 6)
    return [*(part[2:] for part in numbers), f"    {path}"]


def _said(one: PathVerdict) -> str:
    return one.verdict if one.worst.judged or one.verdict not in CHANGED else f"{one.verdict}, not judged"


def _badness(pair: Pair) -> tuple[int, float]:
    return _ORDER.index(pair.verdict), -max(pair.ratio, 1 / pair.ratio) if pair.ratio else 0.0


def _what(one: PathVerdict) -> str:
    alone = ", single" if one.mode == "single" else ""
    alike = [pair for pair in one.pairs if pair.verdict == one.verdict]
    sizes = f"; {len(alike)} of {len(one.pairs)} sizes" if len(one.pairs) > 1 else ""
    return f"{method_text(one.method)}{alone} on {one.path}{sizes}"


def _change(pair: Pair) -> tuple[str, str]:
    """('+5.3 % [4.6, 6.0]', '55.5 GB/s → 52.6 GB/s at 64 MiB')."""
    if pair.verdict in ("broken", "mended"):
        failed = pair.after if pair.verdict == "broken" else pair.before
        return "", failed.reason or "failed"
    as_rate = all(map(total_of, (pair.before, pair.after))) and pair.before.bytes >= _RATES_FROM
    values = " → ".join(_reached(point, as_rate=as_rate) for point in (pair.before, pair.after))
    values += f" at {format_bytes(pair.before.bytes)}" if pair.before.bytes else ""
    if pair.ratio is None or pair.interval is None:
        return "", values
    ends = f"[{_percent(pair.interval.low)}, {_percent(pair.interval.high)}]"
    return f"{_percent(pair.ratio)} of time {ends}", values


def _reached(point: Point, *, as_rate: bool) -> str:
    """The rate, or the time whose change the ratio is: that of all measured flows."""
    total = total_of(point)
    if as_rate and total:
        return format_rate(total.value)
    rounds = rounds_of(point)
    return latency_text(Estimate(median(rounds))) if rounds else "-"


def _percent(ratio: float) -> str:
    """'+5.3 %', '+0.16 %', '-0.00 %': at most two decimals, since no measurement shows more."""
    percent = 100 * (ratio - 1)
    decimals = 0 if abs(percent) >= 9.95 else 1 if abs(percent) >= 0.995 else 2
    return f"{percent:+.{decimals}f} %"


def cells(one: PathVerdict) -> tuple[str, ...]:
    """The cells of a path in a table: verdict, change, before, after, size, path and method."""
    change, values = _change(one.worst)
    change = change.replace(" of time ", " ")
    if one.worst.verdict in ("broken", "mended"):
        before, after = (values, "-") if one.worst.verdict == "mended" else ("-", values)
    else:
        before, _, after = values.partition(" at ")[0].partition(" → ")
    size = format_bytes(one.worst.before.bytes) if one.worst.before.bytes else "-"
    return (_said(one), change or "-", before, after, size, _what(one))


def difference_cells(one: Difference) -> tuple[str, str, str]:
    """The fact, and its values before and after."""
    return (one.what, _value(one.what, one.before), _value(one.what, one.after))


def left_out(compared: Comparison, runs: Sequence[Run]) -> list[str]:
    """What is not compared, and why: '3 points only in a.jsonl'."""
    found = [
        f"{count_text(count, 'point')} only in {run.path}"
        for count, run in ((compared.only_before, runs[0]), (compared.only_after, runs[-1]))
        if count
    ]
    if compared.unmeasured:
        why = ", ".join(f"{count} {STATUS_WORDS[status]}" for status, count in compared.unmeasured.items())
        count = count_text(sum(compared.unmeasured.values()), "point")
        found.append(f"{count} without a value in one of the runs ({why})")
    if compared.other_method:
        names = ", ".join(sorted(compared.other_method))
        count = count_text(sum(compared.other_method.values()), "point")
        found.append(f"{count} of {names}, which the runs measured by different methods (CHANGELOG.md)")
    return found


def _value(what: str, value: Any) -> str:
    text = "(not there)" if value is None else f"{value}"
    if what.endswith("_bytes") and isinstance(value, int):
        text = format_bytes(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
