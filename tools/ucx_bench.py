"""Compares puts of linkscope with those of UCX's `ucx_perftest` on one node, in one call of this tool.

Usage: python tools/ucx_bench.py [-o RUN.jsonl] [--json FILE] [--ucx FOLDER] [--budget 60s]
                                 [--sizes 8,4096,65536,1048576,4194304]

FOLDER holds bin/ucx_perftest and lib/. The default is package `libucx`, as the PyPI wheel `libucx-cu13` installs it.
--json keeps both tools' numbers as a list of JSON objects, one a row; RUN.jsonl has linkscope's with their intervals.
Prints Markdown: the latency of a put, which is half of a round trip, and the rate of puts in a row. UCX runs in two
processes. A CPU thread posts its puts, or a kernel where the row says so. linkscope's are posted by a block of the GPU,
as separate or as packed words, or by a CPU thread that asks the copy engine. With one GPU, puts to host memory are
compared, and with two, puts between them.
"""

import argparse
import csv
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.run.target import choose
from linkscope.runfile import PointId, read_run
from linkscope.units import format_bytes, format_rate, format_seconds, parse_sizes

_LIMIT_S = 30.0
_TRIAL, _TEST_S = 100, 0.3  # puts of a first test, and what the second should take
_MOST = 20_000  # puts of a test


@dataclass(frozen=True)
class Way:
    """UCX's memories and who posts its puts; the ends of linkscope's points; the GPUs that both need."""

    title: str
    memories: str
    by_kernel: bool
    ends: str
    gpus: int


@dataclass(frozen=True)
class Ucx:
    """The folder of the program, and the GPU of the server's process."""

    folder: Path
    server_gpu: int

    def measure(self, way: Way, test: str, size: int) -> tuple[float, float] | str:
        """Seconds of a put (the median, for latencies) and puts a second, or why there are none."""
        words = [
            "-t",
            f"ucp_put_{test}",
            "-s",
            str(size),
            "-m",
            way.memories,
            *(["-a", "cuda"] if way.by_kernel else []),
        ]
        trial = self._run([*words, "-n", str(_TRIAL), "-w", str(_TRIAL // 10)])
        if isinstance(trial, str):
            return trial
        # A put over a slow path may take milliseconds, and over a fast one a microsecond.
        count = min(_MOST, int(_TEST_S * trial[1]))
        return self._run([*words, "-n", str(count), "-w", str(count // 10)]) if count > _TRIAL else trial

    def _run(self, words: Sequence[str]) -> tuple[float, float] | str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        program = str(self.folder / "bin" / "ucx_perftest")
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.folder / "lib")}
        of_server = {**environment, "CUDA_VISIBLE_DEVICES": f"{self.server_gpu},{1 - self.server_gpu}"}
        server = subprocess.Popen(
            [program, "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=of_server
        )
        try:
            client = [program, "-p", port, "127.0.0.1", *words, "-f", "-v"]
            for _ in range(20):  # until the server listens
                done = subprocess.run(client, capture_output=True, text=True, env=environment, timeout=_LIMIT_S)
                if done.returncode == 0 or "connect" not in (done.stdout + done.stderr).lower():
                    break
        except subprocess.TimeoutExpired:
            return f"no end within {_LIMIT_S:.0f} s"
        finally:
            server.kill()
            server.wait()
        return printed(done.stdout) or (done.stdout + done.stderr).strip().splitlines()[-1][-100:]


def printed(text: str) -> tuple[float, float] | None:
    """The median latency in seconds and the messages a second of ucx_perftest's CSV; None if it has no values."""
    lines = text.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("iterations,")]
    if not starts:
        return None
    row = next(csv.DictReader(lines[starts[0] : starts[0] + 2]), {})
    try:
        return float(row["50.0_percentile_lat"]) * 1e-6, float(row["overall_mr"])
    except (KeyError, TypeError, ValueError):  # an error of UCX stands below the heading; it may have commas
        return None


def ways(gpus: int) -> list[Way]:
    found = [
        Way("GPU to host memory", "cuda,host", False, "gpu:0.device->numa:0.pinned", 1),
        Way("between two GPUs", "cuda,cuda", False, "gpu:0.device->gpu:1.device", 2),
        Way("between two GPUs, UCX by a kernel", "cuda,cuda", True, "gpu:0.device->gpu:1.device", 2),
    ]
    return [way for way in found if way.gpus == min(gpus, 2)]


def points_of(ends: str, size: int) -> Mapping[str, Mapping[str, str]]:
    """Ids of linkscope's points, by test and by who posts."""
    by = {
        "a block": f"sm/{ends}/{size}?threads=1024&word=separate",
        "a block, packed words": f"sm/{ends}/{size}?threads=1024&word=packed",
        "the host": f"ce/{ends}/{size}?control=host",
    }
    return {test: {who: f"{name}/{rest}" for who, rest in by.items()} for test, name in _NAMES.items()}


_NAMES = {"lat": "put_ping_pong", "bw": "put"}


def linkscope(path: Path, sizes: Sequence[int], of: Sequence[Way], budget: str) -> Mapping[str, float]:
    """Seconds of an operation by point id; points that could not be measured are missing."""
    ids = {id for way in of for size in sizes for ids in points_of(way.ends, size).values() for id in ids.values()}
    only = [word for id in sorted(ids) for word in ("--only", id)]
    words = ["run", *only, "--budget", budget, "-o", str(path), "-q"]
    done = subprocess.run([sys.executable, "-m", "linkscope", *words], capture_output=True, text=True, check=False)
    if not path.exists():
        raise SystemExit(done.stderr)
    points = [(PointId.parse(point.id), point.median_s) for point in read_run(path).points if point.median_s]
    return {id: seconds for id in ids for point, seconds in points if _is_named(point, PointId.parse(id))}


def _is_named(point: PointId, by: PointId) -> bool:
    """Whether an id that leaves out defaults names the point."""
    return replace(point, params=by.params) == by and set(by.params) <= set(point.params)


def compared(ucx: Ucx, of: Sequence[Way], sizes: Sequence[int], ours: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """A row for each way, test and size: `ucx` has seconds of a put (the median, for latencies) and puts a second, or a
    reason; `linkscope_s` the seconds of an operation, which is a round trip for latencies, by who posts."""
    for way in of:
        for test in _NAMES:
            for size in sizes:
                theirs = ucx.measure(way, test, size)
                found = {"reason": theirs} if isinstance(theirs, str) else {"put_s": theirs[0], "per_s": theirs[1]}
                seconds = {who: ours.get(id) for who, id in points_of(way.ends, size)[test].items()}
                yield {"put": way.title, "test": test, "size": size, "ucx": found, "linkscope_s": seconds}


def heading() -> Iterator[str]:
    names = list(points_of("", 0)["lat"])
    yield f"| put | size | UCX | {' | '.join(f'linkscope, by {name}' for name in names)} |"
    yield "|---|---|---|" + "---|" * len(names)


def line_of(row: Mapping[str, Any]) -> str:
    """A row of the Markdown table."""
    is_latency, size, ucx = row["test"] == "lat", row["size"], row["ucx"]

    def shown(seconds: float | None) -> str:
        if seconds is None:
            return "-"
        return format_seconds(seconds / 2) if is_latency else format_rate(size / seconds / 1e9)

    theirs = ucx.get("reason") or shown(2 * ucx["put_s"] if is_latency else 1 / ucx["per_s"])
    cells = " | ".join(map(shown, row["linkscope_s"].values()))
    return f"| {row['put']}, {'latency' if is_latency else 'rate'} | {format_bytes(size)} | {theirs} | {cells} |"


def installed() -> Path | None:
    """The folder of package `libucx`, if it is installed."""
    found = importlib.util.find_spec("libucx")
    return Path(found.origin).parent if found and found.origin else None


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", type=Path, dest="path")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--ucx", type=Path, default=installed())
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--sizes", default="8,4096,65536,1048576,4194304")
    given = parser.parse_args(words)
    if given.ucx is None or not (given.ucx / "bin" / "ucx_perftest").exists():
        parser.error("ucx_perftest is missing: install the wheel `libucx-cu13`, or name its folder by --ucx")
    sizes = parse_sizes(given.sizes)
    if sizes is None:
        parser.error(f"{given.sizes} is no list of sizes")
    gpus = len(choose("auto", 1).facts.of_kind("gpu"))
    if gpus == 0:
        parser.error("this machine has no GPU")
    of = ways(gpus)
    with tempfile.TemporaryDirectory() as folder:
        ours = linkscope(given.path or Path(folder) / "run.jsonl", sizes, of, given.budget)
    for line in heading():
        print(line)
    kept = []
    for row in compared(Ucx(given.ucx.absolute(), 1 if gpus > 1 else 0), of, sizes, ours):
        print(line_of(row), flush=True)
        kept.append(row)
        if given.json:  # after each row, as a call may be cut off
            given.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
