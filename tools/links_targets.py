"""The targets of copies over several GPUs' links, as a table, from the rows that tools/links_bench.py measured.

Usage: python tools/links_targets.py FILE.json[.gz]...     a table of each transfer, then one of the targets

A file of an interrupted call has fewer rows: a target without its rows has no line.
"""

import gzip
import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from issue_table import Row, Verdict, lines_of

_MIB, _GIB = 1 << 20, 1 << 30
_LARGE = 256 * _MIB
# Times the driver's rate at 256 MiB and more, over all links.
_RATIOS = {"pinned to gpu": 3.3, "pinned to host": 2.5, "pageable to gpu": 11.0}
_JOINT = {"pinned to gpu": "driver, to all gpus at once", "pinned to host": "driver, from all gpus at once"}
_SLOWER, _SLOWER_S = 0.02, 150e-9  # than a plain copy, at most
# From here a pinned copy goes over the links of helpers. Its call feeds them and returns when most data has gone, so it
# says nothing about the cost of a call; the copy as a whole is among the others.
_OVER_LINKS = 16 * _MIB


def verdicts(rows: Sequence[Row]) -> Iterator[Verdict]:
    """A verdict for each target that the rows can answer."""
    of = [row for row in rows if row.get("section") == "links"]
    yield from _over_links(of)
    yield from _processes(of)
    yield from _between(of)
    yield from _of_a_helper(of)
    yield from _never_slower(of)
    yield from _short(rows)


def _rate(rows: Iterable[Row], **facts: Any) -> float | None:
    """The largest rate of the rows with these facts."""
    return max((row["gbps"] for row in rows if facts.items() <= row.items()), default=None)


def _text(nbytes: int) -> str:
    return f"{nbytes // _GIB} GiB" if nbytes >= _GIB else f"{nbytes // _MIB} MiB"


def _sizes(rows: Iterable[Row], method: str) -> list[int]:
    return sorted({row["bytes"] for row in rows if row["method"] == method})


def _over_links(rows: list[Row]) -> Iterator[Verdict]:
    for method, target in _RATIOS.items():
        joint = _rate(rows, method=_JOINT.get(method))
        for nbytes in (one for one in _sizes(rows, method) if one >= _LARGE):
            ours, theirs = (_rate(rows, method=name, bytes=nbytes) for name in (method, f"driver, {method}"))
            name = f"{method}, {_text(nbytes)}, all links"
            if ours and theirs:
                text = f"{ours / theirs:.2f} times the driver ({ours:.1f} of {theirs:.1f} GB/s)"
                yield Verdict(name, text, f"{target:g} times", ours / theirs >= target)
            if ours and joint:
                text = f"{ours / joint:.1%} of {joint:.1f} GB/s"
                is_target = method == "pinned to gpu"
                yield Verdict(name, text, "95 % of all at once" if is_target else "stated", _or(is_target, ours, joint))


def _or(is_target: bool, ours: float, joint: float) -> bool | None:
    return ours / joint >= 0.95 if is_target else None


def _processes(rows: list[Row]) -> Iterator[Verdict]:
    for row in rows:
        name = row["method"]
        if name.startswith("linkscope") and name.endswith(" processes"):
            met = row["gbps"] >= 125 if name.startswith("linkscope, from") else None
            yield Verdict(f"pageable to all GPUs: {name}", f"{row['gbps']:.1f} GB/s", "125 GB/s", met)


def _between(rows: list[Row]) -> Iterator[Verdict]:
    for nbytes in (one for one in _sizes(rows, "linkscope, gpu to gpu") if one >= _LARGE):
        ours, theirs = (_rate(rows, method=f"{who}, gpu to gpu", bytes=nbytes) for who in ("linkscope", "driver"))
        if ours and theirs:
            name = f"GPU to GPU without peer access, {_text(nbytes)}"
            yield Verdict(name, f"{ours / theirs:.2f} times the driver", "1.3 times", ours / theirs >= 1.3)


def _of_a_helper(rows: list[Row]) -> Iterator[Verdict]:
    alone, helping = (_rate(rows, method=f"a helper's own copies, {how}") for how in ("alone", "helping"))
    if alone and helping:
        yield Verdict("a helper's own copies", f"{helping / alone - 1:+.1%} while helping", "stated", None)


def _never_slower(rows: list[Row]) -> Iterator[Verdict]:
    """Of all copies with helpers, the one that is slowest against the driver's."""
    worst: tuple[float, str] | None = None
    for row in rows:
        theirs = _middle(rows, f"driver, {row['method']}", row["bytes"])
        if theirs is None or not row.get("helpers"):
            continue
        ours = statistics.median(row["seconds"])
        over = _over(ours, theirs)
        text = f"{row['method']}, {_text(row['bytes'])}: {ours / theirs - 1:+.1%}"
        worst = max(worst or (over, text), (over, text))
    if worst:
        yield Verdict("slowest against a plain copy, with helpers", worst[1], "+2 % or 150 ns", worst[0] <= 1)


def _middle(rows: list[Row], method: str, nbytes: int) -> float | None:
    times = [row["seconds"] for row in rows if row["method"] == method and row["bytes"] == nbytes]
    return statistics.median(times[0]) if times else None


def _short(rows: Sequence[Row]) -> Iterator[Verdict]:
    of = [row for row in rows if row.get("section") == "small" and row.get("helpers") and row["bytes"] < _OVER_LINKS]
    if of:
        over, worst = max(
            ((_over(row["run_ns"] / 1e9, row["driver_ns"] / 1e9), row) for row in of), key=lambda one: one[0]
        )
        name = f"prepared copy while helpers are allowed, {worst['bytes']} B"
        yield Verdict(name, f"{worst['run_ns'] - worst['driver_ns']:+.0f} ns", "+2 % or 150 ns", over <= 1)


def _over(ours_s: float, theirs_s: float) -> float:
    """How much longer we take than the driver, as a multiple of what is allowed."""
    return (ours_s - theirs_s) / max(_SLOWER * theirs_s, _SLOWER_S)


def transfers(rows: Sequence[Row]) -> Iterator[str]:
    """A line of Markdown for each transfer and number of helpers: GB/s by size."""
    of = [row for row in rows if row.get("section") == "links"]
    sizes = sorted({row["bytes"] for row in of})
    yield f"| transfer, GB/s | helpers | {' | '.join(map(_text, sizes))} |"
    yield "|---|---|" + "---|" * len(sizes)
    for method, helpers in dict.fromkeys((row["method"], row.get("helpers", "")) for row in of):
        facts = {"method": method} | ({"helpers": helpers} if helpers != "" else {})
        rates = [_rate(of, bytes=nbytes, **facts) for nbytes in sizes]
        yield f"| {method} | {helpers} | {' | '.join(f'{one:.1f}' if one else '' for one in rates)} |"


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of Markdown: the transfers, then the targets."""
    yield from transfers(rows)
    yield ""
    yield from lines_of(verdicts(rows))


def read(path: str) -> list[Row]:
    """The rows of a file."""
    data = Path(path).read_bytes()
    rows: list[Row] = json.loads(gzip.decompress(data) if path.endswith(".gz") else data)["rows"]
    return rows


if __name__ == "__main__":
    print(*table([row for path in sys.argv[1:] for row in read(path)]), sep="\n")
