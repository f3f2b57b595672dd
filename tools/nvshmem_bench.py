"""Compares puts of linkscope between two GPUs with those of NVSHMEM, in one call of this tool.

Usage: python tools/nvshmem_bench.py [-o RUN.jsonl] [--json FILE] [--nvshmem FOLDER] [--program FILE] [--budget 60s]
                                     [--machine auto|NAME]

FOLDER holds include/ and lib/ of NVSHMEM. The default is the folder that the PyPI wheel `nvidia-nvshmem-cu13` installs.
FILE is tools/nvshmem_puts.cu, compiled for these GPUs and this NVSHMEM. Without it, nvcc on the search path compiles
the source.
--json keeps both tools' numbers; RUN.jsonl has linkscope's. Prints two Markdown tables: both sides of each test by the
fastest of their ways, and whether each figure is reached that was asked for. NVSHMEM runs in two processes, a GPU each,
and NVLink multicast stays off. Latencies are round trips. Exit code 1: NVSHMEM's program failed.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.report.put_get import TOGETHER, at_once, per_s, seconds_of
from linkscope.run.target import choose
from linkscope.runfile import Point, read_run
from linkscope.stats import median
from linkscope.units import format_bytes, format_rate, format_rate_interval, format_seconds, format_seconds_interval

SOURCE = Path(__file__).with_name("nvshmem_puts.cu")
ENDS = "gpu:0.device->gpu:1.device"
KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 64 * MIB)
# Points by suite putget, as globs of ids.
_TRIPS = f"put_ping_pong/sm/{ENDS}/8?control=direct&threads=*&word=*"
_WORDS = f"ping_pong/sm/{ENDS}/0?word=waiter"
_PUTS = f"put/sm/{ENDS}/{{}}?*connections=1&control=direct&threads=1024&word=separate"
_MESSAGES = f"put/sm/{ENDS}/64?*connections=*&control=direct&threads=*&word=*"
_AT_ONCE = "several at once"  # in the ways of NVSHMEM's program
_PROGRAM_LIMIT_S, _COMPILER_LIMIT_S, _LOOK_S = 110.0, 180.0, 0.05


class Failed(Exception):
    """What kept NVSHMEM's program from its numbers, in words for a user."""


@dataclass(frozen=True)
class Side:
    """The best of a tool's ways in one test: `value` in s, byte/s or messages/s, and what to show."""

    value: float
    shown: str


@dataclass(frozen=True)
class Row:
    """One test. `more_is_better`: for rates. None: this side has no number."""

    test: str
    more_is_better: bool
    nvshmem: Side | None
    linkscope: Side | None

    @property
    def ratio(self) -> float | None:
        """linkscope's value over NVSHMEM's."""
        return self.linkscope.value / self.nvshmem.value if self.linkscope and self.nvshmem else None


# --- NVSHMEM ----------------------------------------------------------------------------------------------------------


def installed() -> Path | None:
    """The folder of the wheel, if it is installed."""
    try:
        found = importlib.util.find_spec("nvidia.nvshmem")
    except ModuleNotFoundError:
        return None
    return Path(next(iter(found.submodule_search_locations))) if found and found.submodule_search_locations else None


def compiled(nvcc: str, nvshmem: Path, target: Path) -> Path:
    """Compiles the program for the GPUs of this machine. Raises Failed with the compiler's last lines."""
    libraries = sorted((nvshmem / "lib").glob("libnvshmem_host.so*"))
    if not libraries:
        raise Failed(f"{nvshmem}/lib has no libnvshmem_host.so")
    links = [f"-L{nvshmem / 'lib'}", "-lnvshmem_device", f"-l:{libraries[0].name}"]
    words = [nvcc, "-std=c++17", "-O3", "-arch=native", "-rdc=true", "-cudart", "static"]
    words += [f"-I{nvshmem / 'include'}", str(SOURCE), "-o", str(target), *links]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_COMPILER_LIMIT_S, check=False)
    if done.returncode:
        raise Failed(f"nvcc cannot compile {SOURCE.name}: {_last_lines(done.stderr + done.stdout)}")
    return target


def measured(program: Path, nvshmem: Path | None, folder: Path) -> list[dict[str, Any]]:
    """The lines of the program, which runs once for each GPU. Raises Failed."""
    library_path = [str(nvshmem / "lib")] if nvshmem else []
    library_path += [path for path in (os.environ.get("LD_LIBRARY_PATH"),) if path]
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(library_path)}
    outputs = [folder / f"pe{pe}.out" for pe in (0, 1)]
    errors = [folder / f"pe{pe}.err" for pe in (0, 1)]
    processes = []
    for pe in (0, 1):
        with outputs[pe].open("wb") as output, errors[pe].open("wb") as error:
            words = [str(program), str(pe), str(folder / "id")]
            processes.append(subprocess.Popen(words, stdout=output, stderr=error, env=environment))
    codes, ended_first = _codes(processes)
    lines = [line for line in outputs[0].read_text(errors="replace").splitlines() if line.startswith("{")]
    found = [json.loads(line) for line in lines]
    said = _last_lines(errors[ended_first].read_text(errors="replace"))
    if codes != [0, 0] and not any("test" in line for line in found):
        raise Failed(f"NVSHMEM's program ended with {' and '.join(map(str, codes))}: {said}")
    if codes != [0, 0]:
        found.append({"test": "end", "way": "program", "reason": f"ended with {codes[0]} and {codes[1]}: {said}"})
    return found


def _codes(processes: Sequence["subprocess.Popen[bytes]"]) -> tuple[list[int], int]:
    """Exit codes, and the number of the first process that failed. If a process fails or takes too long, the other is
    killed, because it waits for it."""
    deadline, codes = time.monotonic() + _PROGRAM_LIMIT_S, list[int | None]()
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        if any(codes) or None not in codes:
            break
        time.sleep(_LOOK_S)
    for process in processes:
        if process.poll() is None:
            process.kill()
    failed = next((pe for pe, code in enumerate(codes) if code), 0)
    return [process.wait() for process in processes], failed


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-3:])[-400:] if lines else "it printed nothing"


def _of(lines: Iterable[Mapping[str, Any]], test: str, way: str, size: int) -> Iterator[Mapping[str, Any]]:
    together = _AT_ONCE in way
    for line in lines:
        if line.get("test") != test or line["bytes"] != size or "seconds" not in line:
            continue
        if way in line["way"] and together == (_AT_ONCE in line["way"]):
            yield line


def _theirs(lines: Iterable[Mapping[str, Any]], tail: bool = False) -> Side | None:
    """The fastest round trip: the median of the rounds, with their range."""
    sides = []
    for line in lines:
        rounds = line["p99_s" if tail else "seconds"]
        text = format_seconds_interval(median(rounds), min(rounds), max(rounds))
        sides.append(Side(median(rounds), f"{text} ({line['way']})"))
    return min(sides, key=lambda side: side.value, default=None)


def _their_rate(lines: Iterable[Mapping[str, Any]], in_bytes: bool) -> Side | None:
    sides = []
    for line in lines:
        per = line["bytes"] if in_bytes else 1
        low, middle, high = (per / f(line["seconds"]) for f in (max, median, min))
        sides.append(Side(middle, f"{_rate_text(middle, low, high, in_bytes)} ({_who(line)})"))
    return max(sides, key=lambda side: side.value, default=None)


def _who(line: Mapping[str, Any]) -> str:
    blocks = f"{line['blocks']} blocks of {line['threads']}" if line["blocks"] > 1 else f"1 block of {line['threads']}"
    return blocks + (f", {_AT_ONCE}" if _AT_ONCE in line["way"] else "")


def _rate_text(middle: float, low: float | None, high: float | None, in_bytes: bool) -> str:
    if in_bytes:
        return format_rate_interval(middle / 1e9, *(value and value / 1e9 for value in (low, high)))
    between = f" [{low / 1e6:.0f}, {high / 1e6:.0f}]" if low and high else ""
    return f"{middle / 1e6:.0f} M/s{between}"


# --- linkscope --------------------------------------------------------------------------------------------------------


def linkscope(path: Path, machine: str, budget: str) -> list[Point]:
    """The points of suite putget that are compared. Raises SystemExit with what linkscope said if it left no file."""
    globs = [_TRIPS, _WORDS, _MESSAGES, *(_PUTS.format(size) for size in SIZES)]
    only = [word for glob in globs for word in ("--only", glob)]
    words = [
        "run",
        "--machine",
        machine,
        "--suite",
        "putget",
        *only,
        "--budget",
        budget,
        "-o",
        str(path),
        "-q",
        "--force",
    ]
    done = subprocess.run([sys.executable, "-m", "linkscope", *words], capture_output=True, text=True, check=False)
    if not path.exists():
        raise SystemExit(done.stderr)
    return [point for point in read_run(path).points if point.median_s]


def _points(points: Iterable[Point], glob: str) -> list[Point]:
    return [one for one in points if fnmatchcase(one.id, glob)]


def _single_s(point: Point) -> float:
    """The median of stamped round trips, or of batches where none was stamped."""
    return point.flows[0].p50_s or point.median_s or 0.0


def _ours(points: Sequence[Point], tail: bool = False) -> Side | None:
    sides = []
    for point in points:
        way = ", ".join(f"{name}={point.params[name]}" for name in ("word", "threads") if name in point.params)
        if tail and point.flows[0].p99_s:
            sides.append(Side(point.flows[0].p99_s, f"{format_seconds(point.flows[0].p99_s)} ({way})"))
        elif not tail:
            low, high = point.ci95_s or (None, None)
            sides.append(Side(_single_s(point), f"{format_seconds_interval(_single_s(point), low, high)} ({way})"))
    return min(sides, key=lambda side: side.value, default=None)


def _our_put_rate(points: Sequence[Point], size: int) -> Side | None:
    sides = []
    for point in points:
        middle, moved = size / seconds_of(point), size * at_once(point)
        low, high = (moved / point.ci95_s[1], moved / point.ci95_s[0]) if point.ci95_s else (None, None)
        sides.append(Side(middle, f"{_rate_text(middle, low, high, True)} ({_blocks(point)})"))
    return max(sides, key=lambda side: side.value, default=None)


def _blocks(point: Point) -> str:
    """The blocks of a put, and how many puts the connection has under way at once."""
    blocks = point.params.get("blocks", "1")
    together = f", {at_once(point)} puts at once" if at_once(point) > 1 else ""
    return f"{blocks} block{'s' * (blocks != '1')}{together}"


def _our_message_rate(points: Sequence[Point]) -> Side | None:
    together = [point for point in points if float(point.guards.get("joint_overlap", 1.0)) >= TOGETHER]
    best = max(together, key=per_s, default=None)
    if best is None:
        return None
    way = f"{best.params['connections']} connections, word={best.params['word']}, at_once={at_once(best)}"
    return Side(per_s(best), f"{_rate_text(per_s(best), None, None, False)} ({way})")


# --- both -------------------------------------------------------------------------------------------------------------


def rows(lines: Sequence[Mapping[str, Any]], points: Sequence[Point]) -> list[Row]:
    """Each test with the fastest way of both tools."""
    trips, words, messages = (_points(points, glob) for glob in (_TRIPS, _WORDS, _MESSAGES))
    signals = list(_of(lines, "ping_pong", "signal", 8))
    found = [
        Row("8 B there and back, p50", False, _theirs(signals), _ours(trips)),
        Row("8 B there and back, p99", False, _theirs(signals, tail=True), _ours(trips, tail=True)),
        Row("bare word there and back", False, _theirs(_of(lines, "ping_pong", "word", 8)), _ours(words)),
    ]
    for way, name in (("plain", "put of {}"), ("signal", "put of {}, NVSHMEM with signals")):
        for size in SIZES:
            theirs = _their_rate(_of(lines, "put", way, size), in_bytes=True)
            ours = _our_put_rate(_points(points, _PUTS.format(size)), size)
            found.append(Row(name.format(format_bytes(size)), True, theirs, ours))
    for size in SIZES[:-1]:
        theirs = _their_rate(_of(lines, "put", f"signal, {_AT_ONCE}", size), in_bytes=True)
        ours = _our_put_rate([one for one in _points(points, _PUTS.format(size)) if at_once(one) > 1], size)
        found.append(Row(f"put of {format_bytes(size)}, {_AT_ONCE}, with signals", True, theirs, ours))
    for way, name in (("plain", "messages of 64 B"), ("signal", "messages of 64 B, NVSHMEM with signals")):
        theirs = _their_rate(_of(lines, "messages", way, 64), in_bytes=False)
        found.append(Row(name, True, theirs, _our_message_rate(messages)))
    return found


def targets(of: Sequence[Row]) -> Iterator[tuple[str, str, bool | None]]:
    """What was asked for, what is so, and whether that reaches it; None: not measured."""
    by_test = {row.test: row for row in of}
    p50, p99 = by_test["8 B there and back, p50"], by_test["8 B there and back, p99"]
    yield _judged("8 B there and back: at most half of NVSHMEM's", p50.ratio, "{:.3g}", most=0.5)
    yield _judged("8 B there and back, p50 at most 1.5 us", _us(p50), "{:.3g} us", most=1.5)
    yield _judged("8 B there and back, p99 at most 2 us", _us(p99), "{:.3g} us", most=2.0)
    for size in SIZES[:-1]:
        for name in ("put of {}", "put of {}, NVSHMEM with signals"):
            row = by_test[name.format(format_bytes(size))]
            yield _judged(f"{row.test}: above NVSHMEM's rate", row.ratio, "{:.3g} times", least=1.0)
    for size, least in ((4 * MIB, 310.0), (64 * MIB, 350.0)):
        side = by_test[f"put of {format_bytes(size)}"].linkscope
        text = f"put of {format_bytes(size)}: at least {format_rate(least)}"
        yield _judged(text, side and side.value / 1e9, "{:.4g} GB/s", least=least)
    side = by_test["messages of 64 B"].linkscope
    yield _judged("messages of 64 B: at least 1,000 M/s", side and side.value / 1e6, "{:.0f} M/s", least=1000.0)


def _us(row: Row) -> float | None:
    return row.linkscope and row.linkscope.value * 1e6


def _judged(
    text: str, value: float | None, shown: str, *, least: float = 0.0, most: float = float("inf")
) -> tuple[str, str, bool | None]:
    if value is None:
        return text, "not measured", None
    return text, shown.format(value), least <= value <= most


def printed(of: Sequence[Row]) -> Iterator[str]:
    """Both Markdown tables."""
    yield "| between two GPUs | NVSHMEM [range of rounds] | linkscope [95 %] | linkscope / NVSHMEM |"
    yield "|---|---|---|---|"
    for row in of:
        sides = " | ".join(side.shown if side else "not measured" for side in (row.nvshmem, row.linkscope))
        yield f"| {row.test} | {sides} | {'-' if row.ratio is None else f'{row.ratio:.3g}'} |"
    yield ""
    yield "| asked for | here | reached |"
    yield "|---|---|---|"
    for text, value, is_reached in targets(of):
        yield f"| {text} | {value} | {'-' if is_reached is None else 'yes' if is_reached else 'no'} |"


def kept(lines: Sequence[Mapping[str, Any]], of: Sequence[Row]) -> dict[str, Any]:
    """What --json keeps: the lines of NVSHMEM's program and the rows, in s, byte/s and messages/s."""
    values = [
        {"test": row.test, **{name: side and side.value for name, side in _sides(row)}, "ratio": row.ratio}
        for row in of
    ]
    return {"nvshmem": list(lines), "rows": values}


def _sides(row: Row) -> tuple[tuple[str, Side | None], ...]:
    return ("nvshmem", row.nvshmem), ("linkscope", row.linkscope)


def _program(given: argparse.Namespace, folder: Path) -> Path:
    """The compiled program. Raises SystemExit for what the user can mend, and Failed."""
    if given.program:
        return Path(given.program.absolute())
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise SystemExit("nvcc is not on the search path: add it, or name the compiled program by --program")
    if given.nvshmem is None:
        raise SystemExit("NVSHMEM is missing: install the wheel `nvidia-nvshmem-cu13`, or name its folder by --nvshmem")
    return compiled(nvcc, given.nvshmem, folder / "nvshmem_puts")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=Path, dest="path")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--nvshmem", type=Path, default=installed())
    parser.add_argument("--program", type=Path)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--machine", default="auto")
    given = parser.parse_args(words)
    if given.program and not given.program.exists():
        parser.error(f"--program {given.program}: there is no such file")
    if len(choose(given.machine, 1).facts.of_kind("gpu")) < 2:
        parser.error("this machine has no two GPUs")
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            lines = measured(_program(given, Path(folder)), given.nvshmem, Path(folder))
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            lines = [{"test": "end", "way": "program", "reason": str(error)}]
        points = linkscope(given.path or Path(folder) / "run.jsonl", given.machine, given.budget)
    reasons = [f"{line['test']}, {line['way']}: {line['reason']}" for line in lines if "reason" in line]
    of = rows(lines, points)
    print("\n".join(printed(of)))
    for reason in reasons:
        print(f"NVSHMEM failed: {reason}", file=sys.stderr)
    if given.json:
        given.json.write_text(json.dumps(kept(lines, of), indent=1) + "\n")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
