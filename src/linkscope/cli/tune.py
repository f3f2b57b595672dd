"""Find the fastest way to copy on this machine, and keep it for linkscope.copy and the C library.

linkscope tune                      all paths of the first GPU, at most two minutes
linkscope tune --paths to-gpu,to-warm --budget 30s
linkscope tune --helpers gpu:1,gpu:2,gpu:3 --smallest 256MiB --budget 60s   large copies over the links of four GPUs
linkscope tune --plan-only          what would be measured

For each path and size class, likely settings race against each other and against plain copies. A class keeps plain
copies unless a setting is faster.

Paths of every run:
  to-gpu                             pageable memory to the GPU
  to-warm, to-fresh                  the GPU to pageable memory, and to memory that nobody has touched
  within-gpu                         the GPU's SMs and TMA against its copy engine
  blocks-to-gpu, blocks-from-gpu     many scattered blocks of pinned memory
  packed-to-gpu, packed-from-gpu     many scattered blocks of pageable memory
  cached-file                        a file in the page cache to the GPU
With an option:
  --directory: cold-file, saved-file          from and to that disk, also by cuFile
  --other-gpu: gpu-to-gpu, peer-to-gpu        without peer access, and with it
  --helpers: pinned-to-gpu, pinned-from-gpu   and the links of these GPUs for the other paths

The result is a text file in $XDG_CACHE_HOME/linkscope or ~/.cache/linkscope. The library loads it on a machine with the
same GPUs, driver and CPUs. LINKSCOPE_TRANSFER_TUNING=FILE|none chooses another file or none. A later run replaces the
classes that it measures.

Exit codes: 0 the file is written; 1 copies fail; 3 no GPU; 4 stopped early, with the classes so far in the file.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkscope.cli import options, target
from linkscope.errors import FINE, NOT_HERE, SOMETHING_FAILED, STOPPED_EARLY, UserError, suggestion
from linkscope.units import (
    format_bytes,
    format_fraction,
    format_rate,
    format_seconds,
    parse_duration,
    with_interval,
)

if TYPE_CHECKING:
    from linkscope.tune import Job, Row

SUMMARY = "find the fastest way to copy for linkscope.copy"
_BUDGET, _LARGEST = "120s", "1GiB"
_SMALLEST = 64 << 10
_MOST_GPUS = 1024
_FIRST_WORDS = b"linkscope transfer tuning"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tune`."""
    add = parser.add_argument
    add("--budget", metavar="TIME", default=_BUDGET, help=f"longest time to measure (default {_BUDGET})")
    add("--gpu", metavar="N", default="0", help="the GPU that is measured, in PCI bus order (default 0)")
    add("--paths", metavar="PATHS", help="paths, separated by commas (default: all)")
    add(
        "--largest",
        metavar="SIZE",
        default=_LARGEST,
        help=f"largest copy, and memory of each kind that the measurement uses (default {_LARGEST})",
    )
    add("--smallest", metavar="SIZE", default="64KiB", help="leave out size classes of smaller copies (default 64KiB)")
    add("--helpers", metavar="GPUS", help="GPUs whose links copies may use: gpu:1,gpu:3 (default: none)")
    add("--other-gpu", metavar="N", help="another GPU, from which copies are measured (default: none)")
    add("--directory", metavar="DIR", help="where files of at most 256 MiB are measured (default: none)")
    add("-o", "--output", metavar="FILE", help="the file to write, in place of that of this machine")
    add("--plan-only", action="store_true", help="print what would be measured")
    add("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope tune`."""
    budget_s = parse_duration(arguments.budget)
    if budget_s is None or budget_s <= 0:
        raise UserError(f"--budget {arguments.budget}: write a time above zero, such as 120s")
    gpu = options.whole("--gpu", arguments.gpu, least=0, most=_MOST_GPUS)
    largest = options.size("--largest", arguments.largest)
    if largest < _SMALLEST:
        raise UserError(f"--largest {arguments.largest}: smaller copies than 64 KiB are always plain")

    from linkscope import native

    given = _Given(gpu, _helpers(arguments.helpers, gpu), _other(arguments.other_gpu, gpu), arguments.directory or "")
    paths = _paths(arguments.paths, given)
    _use_defaults()
    if reason := native.why_no_gpu():
        raise UserError(f"no GPU to tune: {reason}. Copies here need no tuning; tune on a node with GPUs", NOT_HERE)
    jobs = _jobs(arguments, paths, largest)
    if arguments.output is not None:
        _check_output(Path(arguments.output))
    if arguments.plan_only:
        _print_plan(jobs, budget_s, as_json=arguments.json)
        return FINE
    return _tune(arguments, jobs, budget_s, given)


def _check_output(output: Path) -> None:
    """Refuses, before minutes of measuring, a file that cannot be written or that is no tuning."""
    if output == target.STANDARD_OUTPUT:
        raise UserError("-o -: the library reads a tuning from a file; name one")
    target.check_writable(output, [])
    if output.is_file() and output.stat().st_size:
        with output.open("rb") as file:
            if file.read(len(_FIRST_WORDS)) != _FIRST_WORDS:
                raise UserError(f"-o {output}: this file is no tuning; name another file, or remove it")


@dataclass(frozen=True)
class _Given:
    """What is measured: the GPU, and what its paths need."""

    gpu: int
    helpers: list[int]
    other: int | None
    directory: str

    def has(self, option: str) -> bool:
        return {"--helpers": bool(self.helpers), "--other-gpu": self.other is not None}.get(
            option, bool(self.directory)
        )


def _other(text: str | None, gpu: int) -> int | None:
    """The GPU that --other-gpu names."""
    if text is None:
        return None
    number = options.whole("--other-gpu", text.removeprefix("gpu:"), least=0, most=_MOST_GPUS)
    if number == gpu:
        raise UserError(f"--other-gpu {text}: gpu:{gpu} is measured itself; name another GPU")
    return number


def _helpers(text: str | None, gpu: int) -> list[int]:
    """The GPUs that --helpers names, as numbers."""
    found = []
    for name in text.split(",") if text else []:
        number = options.whole("--helpers", name.strip().removeprefix("gpu:"), least=0, most=_MOST_GPUS)
        if number == gpu:
            raise UserError(f"--helpers {text}: gpu:{gpu} is measured itself; name other GPUs")
        found.append(number)
    return list(dict.fromkeys(found))


def _paths(text: str | None, given: _Given) -> list[str]:
    from linkscope.tune import NEEDS, PATHS

    if text is None:
        return [name for name in PATHS if name not in NEEDS or given.has(NEEDS[name])]
    for name in (chosen := text.split(",")):
        if name not in PATHS:
            raise UserError(f"--paths: '{name}' is not a path{suggestion(name, PATHS)}; paths: {', '.join(PATHS)}")
        if name in NEEDS and not given.has(NEEDS[name]):
            raise UserError(f"--paths {name}: this path also needs {NEEDS[name]}")
    return list(dict.fromkeys(chosen))


def _jobs(arguments: argparse.Namespace, paths: list[str], largest: int) -> "list[Job]":
    """What is measured of these paths. Raises UserError if nothing is left."""
    from linkscope import native
    from linkscope.tune import Classes, make_jobs

    classes = Classes(native.size_classes(), native.block_classes(), native.packed_classes(), native.file_classes())
    smallest = options.size("--smallest", arguments.smallest)
    jobs = [job for job in make_jobs(paths, classes, largest) if job.total_bytes >= smallest]
    if not jobs:
        raise UserError(f"--smallest {arguments.smallest}: no size class is left; --largest is {arguments.largest}")
    return jobs


def _use_defaults() -> None:
    """Starts the library without an earlier tuning, whose classes would be checked during the measurement."""
    from linkscope import native

    if os.environ.get("LINKSCOPE_TRANSFER") == "plain":
        raise UserError("LINKSCOPE_TRANSFER=plain leaves every copy to the driver: unset it to tune")
    os.environ["LINKSCOPE_TRANSFER_TUNING"] = "none"
    native.close()
    try:
        native.tuning()
    except ValueError as error:  # of another variable
        raise UserError(str(error)) from None


def _print_plan(jobs: "list[Job]", budget_s: float, *, as_json: bool) -> None:
    if as_json:
        listed = [
            {"path": one.path, "from_bytes": one.from_bytes, "bytes": one.nbytes, "count": one.count} for one in jobs
        ]
        print(json.dumps({"budget_s": budget_s, "classes": listed}))
        return
    for job in jobs:
        print(f"{job.path:<16} from {format_bytes(job.from_bytes):>8}: {_size(job)}")
    print(f"{len(jobs)} classes in at most {format_seconds(budget_s)}")


def _tune(arguments: argparse.Namespace, jobs: "list[Job]", budget_s: float, given: _Given) -> int:
    from linkscope import native
    from linkscope.run import StopFlag
    from linkscope.tune import Failure, LibraryBench, tune

    rows: list[Row] = []
    gpu = given.gpu
    largest = max(job.total_bytes for job in jobs)
    try:
        with StopFlag(last=True) as stop, _opened(LibraryBench, largest, given) as bench:
            jobs = [job for job in jobs if job.path != "peer-to-gpu" or not bench.why_no_peer]
            for row in tune(bench, jobs, budget_s, stop):
                rows.append(row)
                print(f"{len(rows)} of {len(jobs)}: {_line(row)}", file=sys.stderr, flush=True)
            stopped = stop()
            why_not = {
                "why_no_cufile": bench.why_no_cufile,
                "why_no_peer": bench.why_no_peer,
                "why_no_uring": bench.why_no_uring,
                "why_no_mapped": bench.why_no_mapped,
            }
    except Failure as failure:
        raise UserError(f"copies on gpu:{gpu} fail: {failure}", SOMETHING_FAILED) from None
    file, earlier = _save(arguments, rows)
    if arguments.json:
        facts = {
            "file": file,
            "fingerprint": native.fingerprint(),
            "gpu": gpu,
            "helpers": given.helpers,
            **why_not,
            "complete": len(rows) == len(jobs),
            "earlier": earlier,
        }
        print(json.dumps(facts | {"classes": [_as_json(row) for row in rows]}))
    else:
        _print_table(rows)
        missing = len(jobs) - len(rows)
        kept = "the earlier tuning" if earlier else "their defaults"
        more = f"; {missing} classes were not reached and keep {kept}" if missing else ""
        names = ("files by cuFile", "peer-to-gpu", "files by io_uring", "files from the mapped page cache")
        for what, why in zip(names, why_not.values(), strict=True):
            if why:
                print(f"not raced: {what} ({why})")
        print(f"tuning: {file} ({len(rows)} of {len(jobs)} classes{more})")
    return STOPPED_EARLY if stopped else FINE


def _save(arguments: argparse.Namespace, rows: "list[Row]") -> tuple[str, str]:
    """Returns the path of the tuning, and when the earlier one was made that its other classes have."""
    from linkscope import native

    try:
        earlier = _load_earlier(arguments.output, rows)
        return native.save_tuning(arguments.output), earlier
    except native.TransferError as error:
        if not arguments.json:
            _print_table(rows)
        raise UserError(str(error)) from None


def _load_earlier(output: str | None, rows: "list[Row]") -> str:
    """Puts the choices of the rows over the tuning that the file has, whose other classes stay.

    Returns when that was made; '' if the file has none of this machine.
    """
    from linkscope import native

    jobs = [row.job for row in rows]
    blocks = [(job, native.block_knobs(job.to_gpu, job.nbytes)) for job in jobs if job.is_blocks]
    others = [(job, native.knobs(job.method, job.nbytes)) for job in jobs if not job.is_blocks]
    if output is None:
        del os.environ["LINKSCOPE_TRANSFER_TUNING"]
    else:
        os.environ["LINKSCOPE_TRANSFER_TUNING"] = os.path.abspath(output)
    native.close()
    file, note = native.tuning()
    for job, (method, sm_blocks) in blocks:
        native.set_block_knobs(job.to_gpu, job.nbytes, method, sm_blocks)
    for job, knobs in others:
        native.replace_knobs(job.method, job.nbytes, knobs)
    return note if file else ""


def _opened(bench: Any, nbytes: int, given: _Given) -> Any:
    from linkscope import native

    try:
        return bench(given.gpu, nbytes, given.helpers, given.other, given.directory)
    except ValueError as error:  # a GPU that is not here
        raise UserError(str(error), NOT_HERE) from None
    except MemoryError as error:
        raise UserError(f"{error}: free memory, or choose a smaller --largest", SOMETHING_FAILED) from None
    except native.TransferError as error:
        raise UserError(f"--directory {given.directory}: {error}" if given.directory else str(error)) from None


def _size(job: "Job") -> str:
    return f"{job.count} × {format_bytes(job.nbytes)}" if job.count > 1 else format_bytes(job.nbytes)


def _knobs(row: "Row") -> str:
    """'8 threads, 2 MiB × 2, pieces of 256 KiB', or '12 threads, kernel on 16 SMs, 64 KiB'."""
    from linkscope.tune import BlockMove

    if (choice := row.choice) is None:
        return "plain"
    if isinstance(choice, BlockMove):
        return f"kernel, {choice.sm_blocks} SMs" if choice.method == "kernel" else choice.method
    pieces = f", pieces of {format_bytes(choice.piece)}" if choice.piece else ""
    if row.job.is_by_kernel:
        return f"{'TMA' if choice.tma else 'SMs'}, {choice.sm_blocks} blocks"
    if choice.sm_blocks:
        return f"{choice.threads} threads, kernel on {choice.sm_blocks} SMs, {format_bytes(choice.sm_chunk)}"
    if choice.cufile:
        return f"cuFile, {choice.threads} threads, {format_bytes(choice.chunk)}"
    if choice.mapped:
        return f"mapped page cache, {choice.threads} threads, windows of {format_bytes(choice.chunk)}"
    if choice.uring:
        requests = "reads" if row.job.to_gpu else "writes"
        return f"io_uring, {choice.uring} {requests} of {format_bytes(choice.chunk)} in flight"
    links = f"{choice.links} links, " if choice.links > 1 else ""
    return f"{links}{choice.threads} threads, {format_bytes(choice.chunk)} × {choice.depth}{pieces}"


def _rates(row: "Row") -> tuple[float, float]:
    total = row.job.total_bytes / 1e9
    return total / row.plain_s, total / row.tuned_s


def _gain(row: "Row") -> str:
    if row.gain is None:
        return "1"
    return " ".join(with_interval(row.ratio, row.gain.low, row.gain.high))


def _line(row: "Row") -> str:
    _, tuned = _rates(row)
    gain = f", {_gain(row)} times plain" if row.gain else ""
    return f"{row.job.path} {_size(row.job)}: {format_rate(tuned)}{gain} ({_knobs(row)})"


def _print_table(rows: "list[Row]") -> None:
    """Rates in GB/s. The share is that of one pinned copy of as many bytes."""
    form = "{:<15} {:>14} {:>7} {:>7}  {:<19} {:>6} {:>8}  {}"
    print(form.format("path", "size", "plain", "tuned", "gain [95 % CI]", "pinned", "CPU", "knobs"))
    print(form.format("", "", "GB/s", "GB/s", "", "share", "s/GB", ""))
    for row in sorted(rows, key=lambda one: (one.job.path, one.job.nbytes)):
        plain, tuned = (f"{rate:.3g}" for rate in _rates(row))
        share, cpu = format_fraction(row.share), f"{row.cpu_s_per_gb:.2g}"
        print(form.format(row.job.path, _size(row.job), plain, tuned, _gain(row), share, cpu, _knobs(row)))


def _as_json(row: "Row") -> dict[str, object]:
    plain, tuned = _rates(row)
    chosen = {"method": "plain"} if row.choice is None else {"method": row.job.method} | row.choice.as_dict()
    return {
        "path": row.job.path,
        "from_bytes": row.job.from_bytes,
        "bytes": row.job.nbytes,
        "count": row.job.count,
        "plain_gbps": plain,
        "tuned_gbps": tuned,
        "gain": row.ratio,
        "gain_ci95": [row.gain.low, row.gain.high] if row.gain else None,
        "share_of_pinned": row.share,
        "cpu_s_per_gb": row.cpu_s_per_gb,
        "knobs": chosen,
        "tried": row.tried,
    }
