"""An explanation as text."""

from statistics import median

from linkscope.explain.by_step import by_step
from linkscope.explain.events import Copy
from linkscope.explain.expect import kind_of
from linkscope.explain.findings import Explanation, Finding
from linkscope.units import format_bytes, format_fraction, format_seconds

_MOST_GROUPS = 15


def to_lines(found: Explanation) -> list[str]:
    """The summary, the findings with the largest worth first, and the table of transfers."""
    recorded, steps = found.recorded, len(found.recorded.steps)
    mark = "MODELLED: " if found.expected.modelled else ""
    each = f"{steps} steps of {format_seconds(found.span_s / steps)}, " if steps else ""
    span = f"{each}{format_seconds(found.span_s)} in all"
    lines = [
        f"{span}: kernels take {format_seconds(found.kernels_s)}, copies {format_seconds(found.copies_s)}, of which "
        f"{format_seconds(found.alone_s)} pass while no kernel runs",
        f"expected times: {mark}{found.expected.name}",
    ]
    lines += [f"WARNING: {text}" for text in recorded.left_out]
    if not found.findings:
        lines.append("No finding: every copy takes about as long as it should, or runs beside kernels.")
    for number, one in enumerate(found.findings, 1):
        share = format_fraction(one.worth_s / found.span_s)
        worth = f"{format_seconds(one.worth_s)} of {format_seconds(found.span_s)} ({share})"
        worth += f", {format_seconds(one.worth_s / steps)} a step" if steps else ""
        lines.append(f"{number}. {one.advice.title}: {worth}")
        lines += [f"   {text}" for text in _details(one)]
    return lines


def _details(one: Finding) -> list[str]:
    took = f"they took {format_seconds(one.took_s)}"
    if one.should_s is not None:
        took += f" and should take {format_seconds(one.should_s)}"
    paths = list(dict.fromkeys(_path(copy) for copy in one.copies))
    shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more paths" if len(paths) > 3 else "")
    return [f"{len(one.copies)} copies, {format_bytes(one.bytes)}: {took} ({shown})", f"how: {one.advice.how}"]


def table(found: Explanation) -> list[tuple[str, ...]]:
    """Groups of equal copies, the longest first: path, bytes, number, median time, expected time, and their ratio."""
    groups: dict[tuple[str, int], list[tuple[Copy, float | None]]] = {}
    for copy, expected in zip(found.recorded.copies, found.expected_s, strict=True):
        groups.setdefault((_path(copy), copy.bytes), []).append((copy, expected))
    rows: list[tuple[float, tuple[str, ...]]] = []
    for (path, size), members in groups.items():
        took, expected = median(copy.seconds for copy, _ in members), members[0][1]
        ratio = f"{took / expected:.2f}" if expected else "not known"
        rows.append((took * len(members), (path, format_bytes(size), str(len(members)), format_seconds(took),
                     format_seconds(expected) if expected else "not known", ratio)))  # fmt: skip
    rows.sort(key=lambda row: -row[0])
    return [
        ("path", "bytes", "copies", "median", "expected", "times expected"),
        *(cells for _, cells in rows[:_MOST_GROUPS]),
    ]


def as_json(found: Explanation) -> dict[str, object]:
    """All numbers, and every copy."""
    return {
        "against": found.expected.name, "modelled": found.expected.modelled, "steps": len(found.recorded.steps),
        "span_s": found.span_s, "kernels_s": found.kernels_s, "copies_s": found.copies_s, "alone_s": found.alone_s,
        "left_out": list(found.recorded.left_out),
        "findings": [
            {"name": one.advice.name, "title": one.advice.title, "how": one.advice.how, "worth_s": one.worth_s,
             "worth_s_a_step": one.worth_s / len(found.recorded.steps) if found.recorded.steps else None,
             "copies": len(one.copies), "bytes": one.bytes, "took_s": one.took_s, "should_s": one.should_s}
            for one in found.findings
        ],
        "by_step": [
            {"step": step.name, "kind": kind, "copies": of.copies, "bytes": of.bytes, "took_s": of.took_s,
             "expected_s": of.expected_s}
            for step in by_step(found)
            for kind, of in step.kinds.items()
        ],
        "transfers": [
            {"src": copy.src, "dst": copy.dst, "src_memory": copy.src_memory, "dst_memory": copy.dst_memory,
             "bytes": copy.bytes, "start_s": copy.start_s, "seconds": copy.seconds, "expected_s": expected}
            for copy, expected in zip(found.recorded.copies, found.expected_s, strict=True)
        ],
    }  # fmt: skip


def _path(copy: Copy) -> str:
    kind = kind_of(copy)
    return f"{kind.src}.{kind.src_memory} -> {kind.dst}.{kind.dst_memory}"
