"""Sections of tools/contention_bench.py that one GPU is enough for."""

import math
import sys
from collections.abc import Mapping

from contention_parts import ROOT, Bench, Table

from linkscope.runfile import Point, read_run
from linkscope.units import format_fraction, format_seconds

_PREFIX = "compute_"


def matrix(bench: Bench) -> Table:
    """Each of two runs has half of the time."""
    first = bench.run_file("contention-a", "--suite", "contention", share=0.5)
    yield from bench.report(first, "contention")
    again = bench.run_file("contention-b", "--suite", "contention")
    if first and again:
        yield from ["", "Both runs:", "", "```text"]
        yield from bench.linkscope("compare", str(first), str(again)).stdout.splitlines()
        yield "```"


def loaded(bench: Bench) -> Table:
    yield from bench.report(bench.run_file("loaded-latency", "--suite", "loaded-latency"), "loaded")


def tasks(bench: Bench) -> Table:
    """Suite `sp-10` needs most: the duration of a point grows with its tasks."""
    for suite, share, anchor in (
        ("sp-10", 0.45, "tasks"), ("sp-8", 0.3, "contention"), ("sp-9", 0.35, "task-sets"), ("sp-11", 1.0, "task-sets"),
    ):  # fmt: skip
        yield f"\n### Suite `{suite}`"
        yield from bench.report(bench.run_file(suite, "--suite", suite, share=share), anchor)


def sharing(bench: Bench) -> Table:
    yield from bench.report(bench.run_file("sharing", "--suite", "sharing"), "sharing")


def computation(bench: Bench) -> Table:
    files = [
        bench.run_file("sp-5", "--suite", "sp-5", share=0.35),
        bench.run_file("sp-6", "--suite", "sp-6", share=0.5),
    ]
    points = [point for path in files if path for point in read_run(path).points]
    yield from _penalties({point.id: point for point in points if point.median_s})


def _penalties(points: Mapping[str, Point]) -> Table:
    """Of a rate, over the good value: (good - bad) / good, and over the bad one: (good - bad) / bad."""
    yield "Times are from the best NUMA node. Penalties of rates: (good - bad) / good, in brackets (good - bad) / bad."
    yield ""
    yield "| computation | alone | pinned | pageable | penalty of pageable | beside nothing | beside copies | penalty |"
    yield "|---|---|---|---|---|---|---|---|"
    times: dict[str, dict[str, float]] = {}
    for point in points.values():
        if point.benchmark.startswith(_PREFIX):
            place = point.src_memory if point.src != point.dst else "alone"
            key = point.params.get("beside") or place
            of = times.setdefault(point.benchmark, {})
            of[key] = min(of.get(key, math.inf), point.median_s or 0.0)
    for name, of in times.items():
        cells = [format_seconds(of[key]) if key in of else "-" for key in ("alone", "pinned", "pageable")]
        cells += [_penalty(of, "pinned", "pageable")]
        cells += [format_seconds(of[key]) if key in of else "-" for key in ("none", "same")]
        yield f"| {name.removeprefix(_PREFIX)} | {' | '.join(cells)} | {_penalty(of, 'none', 'same')} |"


def _penalty(times: Mapping[str, float], good: str, bad: str) -> str:
    if good not in times or bad not in times:
        return "-"
    return f"{format_fraction(1 - times[good] / times[bad])} ({format_fraction(times[bad] / times[good] - 1)})"


def libraries(bench: Bench) -> Table:
    """The table of tools/library_rates.py, which is kept once it is whole."""
    if bench.target.modelled:
        bench.missing.append("libraries: a model has no PyTorch")
        return
    kept = bench.folder / "libraries.md"
    if not kept.exists():
        tool = str(ROOT / "tools" / "library_rates.py")
        done = bench.command([sys.executable, tool, "-o", str(bench.folder), "--budget", f"{bench.left_s:.0f}s"])
        if done.returncode != 0:
            bench.fails("libraries", done)
            return
        kept.write_text(done.stdout)
    yield from kept.read_text().splitlines()


# Title, function, and the seconds that it needs on one H100.
SECTIONS = {
    "matrix": ("Who slows whom, twice", matrix, 300.0),
    "loaded": ("Latency under load", loaded, 130.0),
    "tasks": ("Tasks of Spafford 5", tasks, 150.0),
    "sharing": ("One GPU for several clients", sharing, 160.0),
    "computation": ("Computations with their transfers", computation, 150.0),
    "libraries": ("Computations beside the vendor's libraries", libraries, 90.0),
}
