"""Measures contention on a node in one call: the evidence of docs/notes/contention-evidence.md and sharing-evidence.md.

Usage: python tools/contention_bench.py FOLDER [--sections NAMES] [--limit 540] [--machine auto|NAME]
       [--against NAME|FILE] [--nvbandwidth PATH] [--seconds 0.3] [--rounds 6]

One GPU, two calls:  --sections matrix,loaded,presets    and  --sections tasks,sharing,computation,libraries,lu
Several GPUs:        a call for each of presets, capacity, across, lu, nccl, nvbandwidth (the default is all of these)

Each section gets the part of the limit (seconds of the whole call) that it needs, and says if that was too short.
FOLDER gets the answers of `linkscope flow` as JSON, run files, and contention.md with all tables, which are also
printed. A call with the same folder on the same machine measures what is missing. On a model the rates are MODELLED;
`nccl`, `nvbandwidth` and `libraries` need hardware.

matrix       suite contention twice, and what `compare` finds
loaded       suite loaded-latency
presets      every preset of flows, twice: totals and Jain's index
tasks        suites sp-8 to sp-11: transfers, messages and CPU traffic, 1 to 16 tasks, one thread and two
sharing      threads, processes in turn, processes under MPS, green contexts (suite sharing)
computation  computations alone, with pinned and pageable transfers, beside copies (suites sp-5 and sp-6)
libraries    computations beside the vendor's libraries by PyTorch (library_rates.py)
capacity     joint rates to and from the host by number of GPUs, beside the model's prediction
across       work on the first GPU beside work on the second, in two rounds: who slows whom across GPUs
lu           a blocked LU on 1, 2 and 4 GPUs by placement (suite sp-7), and whether its residual passes
nccl         an all-gather by PyTorch beside copies to the host (all_gather_bench.py)
nvbandwidth  the tests of several GPUs at once by a given binary, side by side with suite nvbandwidth
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import contention_one_gpu
from bench_sections import all_lines, exit_code, write_and_print
from contention_parts import ROOT, Bench, Table, own_folder

from linkscope.errors import UserError
from linkscope.report.sections.lu import ranks_of
from linkscope.report.sections.lu_gpus import lu_placements
from linkscope.run.flows import PRESETS
from linkscope.run.target import choose
from linkscope.runfile import read_run
from linkscope.units import format_change, format_fraction, format_seconds

_TOGETHER = ("host_to_all*", "all_to_host*", "one_to_all*", "all_to_one*")
# The work of suite `contention` on a GPU, the NUMA node near it, and another GPU.
_WORK = {
    "h2d": "{node} -> {gpu} 16MiB", "d2h": "{gpu} -> {node} 16MiB", "peer": "{gpu} -> {other} 16MiB",
    "zero_copy": "read {gpu} 16MiB", "memory": "memory {gpu} 64MiB", "gemm": "gemm {gpu} bf16 8192",
    "launch": "launch {gpu}",
}  # fmt: skip


def presets(bench: Bench) -> Table:
    yield "| preset | flows | total, GB/s | again | change | Jain's index | predicted | deviation | largest of a flow |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in (*(name for name in PRESETS if ":" not in name), "same-path:2", "same-path:4"):
        file = name.replace(":", "-")
        one, two = (bench.flow(f"preset-{file}-{run}", "--preset", name, "--bytes", "256MiB") for run in "ab")
        if one is None or two is None:
            continue
        change = format_change(two["total_gbps"] / one["total_gbps"] - 1)
        off = max((abs(flow["deviation"]) for flow in one["flows"] if flow["deviation"] is not None), default=None)
        predicted = _predicted_total(one)
        jain = "-" if one["jain"] is None else f"{one['jain']:.4f}"
        yield (
            f"| {name} | {len(one['flows'])} | {one['total_gbps']:.1f} | {two['total_gbps']:.1f} | {change} | {jain} "
            f"| {f'{predicted:.1f}' if predicted else '-'} "
            f"| {format_change(predicted / one['total_gbps'] - 1) if predicted else '-'} "
            f"| {format_fraction(off) if off is not None else '-'} |"
        )


def _predicted_total(found: dict[str, Any]) -> float | None:
    """The model's rate of all flows together, in GB/s; None if it lacks one."""
    rates = [flow["predicted_gbps"] for flow in found["flows"]]
    return None if None in rates else sum(rates)


def capacity(bench: Bench) -> Table:
    yield "| direction | GPUs | joint rate, GB/s | 95 % | predicted, GB/s | deviation |"
    yield "|---|---|---|---|---|---|"
    for direction in ("to", "from"):
        for count in range(1, len(bench.gpus) + 1):
            pairs = [(bench.near(gpu), gpu) for gpu in bench.gpus[:count]]
            text = "; ".join(f"{a} -> {b}" for a, b in (pairs if direction == "to" else [(b, a) for a, b in pairs]))
            found = bench.flow(f"capacity-{direction}-{count}", text, "--bytes", "256MiB")
            if found is None:
                continue
            predicted = _predicted_total(found)
            ends = found["total_ci95_gbps"]
            yield (
                f"| {direction} GPUs | {count} | {found['total_gbps']:.1f} "
                f"| {f'{ends[0]:.1f} to {ends[1]:.1f}' if ends else '-'} | {f'{predicted:.1f}' if predicted else '-'} "
                f"| {format_change(predicted / found['total_gbps'] - 1) if predicted else '-'} |"
            )


def across(bench: Bench) -> Table:
    """The time of an operation beside work on the other GPU, over its time alone. On and right of the diagonal the work
    of the row runs on the first GPU, left of it on the second."""
    if len(bench.gpus) < 2:
        bench.missing.append("across: it needs two GPUs")
        return
    cells: dict[tuple[str, str], str] = {}
    try:
        for kind, other, ratio in _ratios(bench):
            cells[kind, other] = ratio
    finally:
        if cells:
            yield f"| work, beside work on the other of {' and '.join(bench.gpus[:2])} | {' | '.join(_WORK)} |"
            yield "|---|" + "---|" * len(_WORK)
            for kind in _WORK:
                yield f"| {kind} | {' | '.join(cells.get((kind, other), '-') for other in _WORK)} |"


def _ratios(bench: Bench) -> Iterator[tuple[str, str, str]]:
    """Each pair of kinds runs once, which gives the slowdown of both."""
    few = min(bench.rounds, 2)
    kinds = list(_WORK)
    sides = [_work_on(bench, at) for at in (0, 1)]
    alone: dict[tuple[int, str], float] = {}
    for at, side in enumerate(sides):
        for kind, text in side.items():
            if found := bench.flow(f"across-{kind}-on-{at}", text, rounds=few):
                alone[at, kind] = found["flows"][0]["seconds"]
    for first, kind in enumerate(kinds):
        for other in kinds[first:]:
            if (0, kind) not in alone or (1, other) not in alone:
                continue
            found = bench.flow(f"across-{kind}-{other}", f"{sides[0][kind]}; {sides[1][other]}", rounds=few)
            if found is None:
                continue
            times = [flow["seconds"] for flow in found["flows"]]
            yield kind, other, f"{times[0] / alone[0, kind]:.2f}"
            if kind != other:
                yield other, kind, f"{times[1] / alone[1, other]:.2f}"


def _work_on(bench: Bench, at: int) -> dict[str, str]:
    """Texts of the kinds of work. With four GPUs the peer copies of both sides have GPUs of their own."""
    gpu = bench.gpus[at]
    other = bench.gpus[at + 2] if len(bench.gpus) >= 4 else bench.gpus[1 - at]
    return {kind: text.format(gpu=gpu, node=bench.near(gpu), other=other) for kind, text in _WORK.items()}


def lu(bench: Bench) -> Table:
    sets = [of for of in ("0", "01", "0123") if len(of) <= len(bench.gpus)]
    # A round takes 4 to 9 s, most of it on the host. Where threads have one node, all of them are near.
    threads = "near" if len(bench.target.facts.of_kind("numa")) == 1 else "*"
    globs = ["lu/*", *(f"lu_gpus*gpus={gpus}&*node=0&*threads_on={threads}" for gpus in sets)]
    rates = ["h2d*", "d2h*", "compute_dgemm*"]
    if len(bench.gpus) > 1:
        rates += ["d2d*", "host_to_all*"]
    if len(bench.gpus) > 2:  # to one other GPU it is a d2d
        rates.append("one_to_all*")
    only = [word for one in (*globs, *rates) for word in ("--only", one)]
    paths = [bench.run_file("lu", "--suite", "sp-7", *only, share=0.75)]
    chosen = [
        ("0", "host", "0"),
        *((gpus, by, "1") for gpus in sets for by in ("peer", "host") if gpus + by != "0host"),
    ]
    ids = [
        f"lu_gpus/sm/gpu:0.device->gpu:0.device/0?ahead={ahead}&by={by}&gpus={gpus}&n=16384&node=0&panels=urgent"
        "&threads_on=near"
        for gpus, by, ahead in chosen
    ]
    paths.append(bench.run_file("lu-16384", *(word for one in ids for word in ("--only", one))))
    runs = [read_run(path) for path in paths if path]
    points = [point for run in runs for point in run.points if point.benchmark in ("lu", "lu_gpus") and point.median_s]
    for point in points:
        if point.benchmark == "lu":
            rate = (point.flows[0].operations or 0.0) / (point.median_s or 1.0) / 1e12
            taken = format_seconds(point.median_s or 0.0)
            yield f"{point.params['n']} rows in the memory of {point.src}: {taken}, {rate:.3g} TFLOP/s."
    passing = sum(point.verified is True for point in points)
    yield f"{passing} of {len(points)} factorizations have a residual within HPL's bound of 16."
    yield ""
    yield (
        "| rows | GPUs | matrix | threads | panels by | ahead | panel stream | time | 95 % | TFLOP/s | over best "
        "| predicted | its rank |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for (order, _), group in lu_placements(*runs).items():
        for one, rank in zip(group, ranks_of([one.predicted for one in group]), strict=True):
            of = one.params
            yield (
                f"| {order} | {one.gpus} | numa:{of['node']} | {of['threads_on']} | {of['by']} "
                f"| {'yes' if of['ahead'] == '1' else 'no'} | {of.get('panels', 'usual')} "
                f"| {format_seconds(one.seconds)} | {_ends(one.interval)} "
                f"| {one.operations / one.seconds / 1e12:.3g} | {format_fraction(one.seconds / group[0].seconds - 1)} "
                f"| {format_seconds(one.predicted) if one.predicted else '-'} | {rank or '-'} |"
            )


def _ends(interval: Sequence[float] | None) -> str:
    return " to ".join(map(format_seconds, interval)) if interval else "-"


def nccl(bench: Bench) -> Table:
    if bench.target.modelled:
        bench.missing.append("nccl: a model has no NCCL")
        return
    done = bench.command([sys.executable, str(ROOT / "tools" / "all_gather_bench.py"), "--gpus", str(len(bench.gpus))])
    if done.returncode != 0:
        bench.fails("nccl", done)
        return
    (bench.folder / "nccl.md").write_text(done.stdout)
    yield from done.stdout.splitlines()


def nvbandwidth(bench: Bench) -> Table:
    if bench.target.modelled or not bench.nvbandwidth:
        bench.missing.append("nvbandwidth: give its binary by --nvbandwidth, on hardware")
        return
    path = bench.folder / "nvbandwidth.txt"
    done = bench.command([bench.nvbandwidth, "-p", "host_to_all", "all_to_host", "one_to_all", "all_to_one"])
    path.write_text(done.stdout)
    only = [word for one in _TOGETHER for word in ("--only", one)]
    run = bench.run_file("suite-nvbandwidth", "--suite", "nvbandwidth", "--rule", "nvbandwidth", *only)
    if run is None:
        return
    beside = bench.command([sys.executable, str(ROOT / "tools" / "side_by_side.py"), str(run), str(path)])
    yield from beside.stdout.splitlines()
    if beside.returncode != 0:
        bench.fails("nvbandwidth", beside)


_OF_SEVERAL = {
    "presets": ("Presets of flows", presets),
    "capacity": ("Joint capacity to and from the host", capacity),
    "across": ("Who slows whom across GPUs", across),
    "lu": ("A blocked LU by placement", lu),
    "nccl": ("An all-gather beside copies to the host", nccl),
    "nvbandwidth": ("Side by side with nvbandwidth", nvbandwidth),
}
_OF_ONE = contention_one_gpu.SECTIONS
SECTIONS = {**{name: of[:2] for name, of in _OF_ONE.items()}, **_OF_SEVERAL}
_USUAL_S = 100.0  # of a section that states no time
_NEEDS_S = {**dict.fromkeys(_OF_SEVERAL, _USUAL_S), **{name: needs_s for name, (_, _, needs_s) in _OF_ONE.items()}}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=float, default=540.0)
    parser.add_argument("--machine", default="auto")
    parser.add_argument("--against")
    parser.add_argument("--sections", default=",".join(_OF_SEVERAL))
    parser.add_argument("--nvbandwidth")
    parser.add_argument("--seconds", default="0.3")
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args(arguments)
    names = given.sections.split(",")
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(f"there is no section {', '.join(unknown)}; sections are {', '.join(SECTIONS)}")
    try:
        target = choose(given.machine, 1)
        own_folder(given.folder, target)
    except UserError as problem:
        parser.error(str(problem))
    bench = Bench(
        target, given.machine, given.against, given.folder, given.seconds, given.rounds, given.nvbandwidth
    )  # fmt: skip
    lines = all_lines("Contention", SECTIONS, bench, names, given.limit, _NEEDS_S)
    write_and_print(lines, given.folder / "contention.md")
    return exit_code(bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
