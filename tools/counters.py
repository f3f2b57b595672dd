"""Compares the traffic that kernels state with the GPU's counters, as a Markdown table.
docs/notes/counters.md sums one up.

Usage: python tools/counters.py [POINT_ID...]     (needs a GPU, for kernels between GPUs two, and Nsight Compute's `ncu`
allowed to read counters)

A kernel of a point states in its program what it reads and writes, and where. ncu runs the worker with that point and
counts for every launch of the kernel the 32-byte sectors between the SMs and memory, and the bytes of user data on the
NVLinks, which are accesses to another GPU's memory. A step of a chase reads 8 bytes, for which the hardware moves a
sector. A kernel that touches managed pages moves them whole, as PCIe's counters show. These counters include 12 bytes
of header per packet: a read of 128 bytes of host memory counts 140, and pages move in packets of at most 256 bytes.
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.plan import case_of
from linkscope.run.answers import Prepared
from linkscope.run.target import Target, choose
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId
from linkscope.stats import median

SECTOR = 32
CHASE_STEPS = 4096
LIMIT_S = 90
KERNELS = "^linkscope_(copy|copy_tma|read|write|read_lines|write_lines|exchange|chase|chase_on|touch_read|touch_write)$"
POINTS = [
    f"{benchmark}?{params}"
    for size in (1 << 20, 64 << 20, 1000024)
    for benchmark, params in (
        (f"h2d/sm/numa:0.pinned->gpu:0.device/{size}", "blocks=sms&mode=batched&threads=512"),
        (f"d2h/sm/gpu:0.device->numa:0.pinned/{size}", "blocks=8&mode=batched&threads=1024"),
        (f"local/sm/gpu:0.device->gpu:0.device/{size}", "blocks=sms&mode=batched&threads=256"),
        (f"h2d/tma/numa:0.pinned->gpu:0.device/{size}", "blocks=sms&mode=batched"),
        (f"d2h/tma/gpu:0.device->numa:0.pinned/{size}", "blocks=8&mode=batched"),
        (f"local/tma/gpu:0.device->gpu:0.device/{size}", "blocks=sms&mode=batched"),
        (f"read/sm/numa:0.pinned->gpu:0.device/{size}", "blocks=sms&threads=512"),
        (f"read/sm/gpu:0.device->gpu:0.device/{size}", "blocks=8&threads=1024"),
        (f"write/sm/gpu:0.device->numa:0.pinned/{size}", "blocks=sms&threads=512"),
        (f"write/sm/gpu:0.device->gpu:0.device/{size}", "blocks=sms&threads=256"),
        (f"exchange/sm/numa:0.pinned->gpu:0.device/{size}", "blocks=sms&threads=512"),
    )
] + [
    "latency/sm/numa:0.pinned->gpu:0.device/0?cache=cold&range=2MiB",
    "latency/sm/gpu:0.device->gpu:0.device/0?cache=cold&range=64MiB",
    *(
        f"{way}/{1 << 26}?blocks=256&threads=256&{how}"
        for way in (
            "read/sm/numa:0.pinned->gpu:0.device",
            "read/sm/gpu:0.device->gpu:0.device",
            "write/sm/gpu:0.device->numa:0.pinned",
            "write/sm/gpu:0.device->gpu:0.device",
        )
        for how in ("width=4", "width=8", "width=4&stride=128", "stride=1024", "order=random", "order=random&width=4")
    ),
    *(f"demand/fault/numa:0.managed->gpu:0.managed/{1 << 26}?access={way}" for way in ("read", "write")),
]
OF_TWO_GPUS = [
    f"{benchmark}?{params}"
    for one, other in (("gpu:0.device", "gpu:1.device"), ("gpu:1.device", "gpu:0.device"))
    for benchmark, params in (
        *(
            (
                f"d2d/{engine}/{one}->{other}/{1 << 26}",
                f"bidirectional=false&blocks=sms&initiator={by}&mode=batched{more}",
            )
            for by in ("src", "dst")
            for engine, more in (("sm", "&threads=512"), ("tma", ""))
        ),
        (f"read/sm/{one}->{other}/{1 << 26}", "blocks=sms&threads=512"),
        (f"write/sm/{one}->{other}/{1 << 26}", "blocks=sms&threads=512"),
        (f"read/sm/{one}->{other}/{1 << 26}", "blocks=256&threads=256&width=4"),
        (f"read/sm/{one}->{other}/{1 << 26}", "blocks=sms&order=random&threads=512"),
        (f"write/sm/{one}->{other}/{1 << 26}", "blocks=sms&stride=128&threads=512"),
        (f"latency/sm/{one}->{other}/0", "cache=cold&range=64MiB"),
    )
]
ROUTES = {"sysmem": "host", "device": "own memory", "peer": "another GPU"}
LINKS = {("peer", "read"): "nvlrx__bytes_data_user.sum", ("peer", "write"): "nvltx__bytes_data_user.sum"}
METRICS = {
    (route, way): f"lts__t_sectors_srcunit_tex_aperture_{route}_op_{way}.sum"
    for route in ("sysmem", "device")
    for way in ("read", "write")
} | LINKS
MIGRATIONS = {("sysmem", "read"): "pcie__read_bytes.sum"} | LINKS
USER_BYTES = {"sectors": SECTOR, "pcie": 256 / (256 + 12)}  # scale of a counter; 1 for the others
LINK_TRIES = 3  # ncu sometimes misses one of the links for a whole run: 17 of 18 on H200


def stated(program: str) -> dict[tuple[str, str], int]:
    """Bytes that one iteration of the kernel reads and writes, by kind of memory as seen by its GPU."""
    regions = dict(re.findall(r"^region (r\d+) (\S+?)\.", program, re.MULTILINE))
    runs_on = re.search(r"stream (gpu:\d+)", program)
    loop = re.search(r"^  loop (.*)$", program, re.MULTILINE)
    assert runs_on and loop
    moved: dict[tuple[str, str], int] = {}
    span = r"(r\d+)\[\d+ \+(\d+)\]"
    found = [
        (way, region, moved or size)
        for way, region, size, moved in re.findall(rf"(read|write) {span}(?:[^[]* moves (\d+) B)?", loop[1])
    ]
    for move in re.findall(rf"{span}.* -> {span}", loop[1]):
        found += [("read", *move[:2]), ("write", *move[2:])]
    for way, region, size in found:
        place = regions[region]
        if "kernel touch " in loop[1]:  # a page moves whole, whatever the kernel accesses
            way = "read"
        route = "device" if place == runs_on[1] else "peer" if place.startswith("gpu") else "sysmem"
        moved[route, way] = moved.get((route, way), 0) + (SECTOR if "kernel chase" in loop[1] else int(size))
    return moved


def profile(
    case: dict[str, object], key: str, batch: list[int], metrics: Sequence[str], *, kernels: str, replay: str
) -> tuple[dict[str, list[float]], str]:
    """The values of each metric by launch of the kernels, in base units, and what ncu logged. `batch`: the operations
    of each actor. Exits if ncu counted nothing.
    """
    requests = [
        {"op": "open", "platform": "cuda"},
        {"op": "prepare", "case": case, "key": key},
        {"op": "run", "samples": 1, "batches": [batch], "verify": False},
    ]
    with tempfile.TemporaryDirectory() as folder:
        log, asked = Path(folder) / "ncu.csv", Path(folder) / "requests"
        command = ["ncu", "--clock-control", "none", "--csv", "--print-units", "base", "--log-file", str(log)]
        command += ["--replay-mode", replay]
        command += ["-k", f"regex:{kernels}", "--metrics", ",".join(metrics)]
        command += ["sh", "-c", f'exec "$@" < {asked}', "sh", *worker_command()]
        # ncu waits for every profiled launch, so no gate may hold work back.
        environment = {**os.environ, "CUDA_LAUNCH_BLOCKING": "1"}
        asked.write_text("\n".join(json.dumps(request) for request in requests) + "\n")
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, env=environment)
        lines = log.read_text().splitlines() if log.exists() else []
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        said = [*lines[-5:], done.stderr.decode(errors="replace")[-500:]]
        sys.exit(f"{key}: ncu counted nothing:\n" + "\n".join(said))
    by_metric: dict[str, list[float]] = {}
    for row in csv.DictReader(lines[start:]):
        if row["Metric Value"]:
            by_metric.setdefault(row["Metric Name"], []).append(float(row["Metric Value"].replace(",", "")))
    return by_metric, "\n".join(lines[:start])


def counted(point: PointId, case: dict[str, object], steps: int) -> dict[tuple[str, str], float]:
    """Bytes that each launch of the kernel moved, by ncu: the median over launches, for a chase the longest launch."""
    metrics = MIGRATIONS if point.benchmark == "demand" else METRICS
    # Pages move once, so a kernel that must run several times to be counted needs a new worker each time.
    replay = "application" if metrics is MIGRATIONS else "kernel"
    by_metric, _ = profile(case, str(point), [steps], list(metrics.values()), kernels=KERNELS, replay=replay)
    of_launches = max if steps > 1 else median
    units = {name: next((unit for part, unit in USER_BYTES.items() if part in name), 1) for name in by_metric}
    return {key: units[name] * of_launches(by_metric[name]) for key, name in metrics.items() if name in by_metric}


def prepared_alone(text: str, target: Target) -> tuple[PointId, dict[str, Any], Prepared]:
    """The point of an id, its case, and what a worker of its own says of its program."""
    point = PointId.parse(text)
    case = case_of(point, target.facts)
    worker = Worker(worker_command())
    worker.open(target.open_request)
    prepared = worker.prepare(case, f"{point}#0")
    worker.kill()
    return point, case, prepared


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("points", nargs="*", metavar="POINT_ID")
    asked = arguments.parse_args()
    if shutil.which("ncu") is None:
        sys.exit("counters.py needs Nsight Compute: ncu is not on the path")
    target = choose("auto", seed=1)
    several = len(target.facts.of_kind("gpu")) > 1
    print("| kernel of | memory | stated, B | counted, B | apart |\n|---|---|---|---|---|")
    for text in asked.points or POINTS + (OF_TWO_GPUS if several else []):
        point, case, prepared = prepared_alone(text, target)
        if not prepared.supported:
            print(f"| `{point}` | | | {prepared.reason} | |", flush=True)
            continue
        steps = CHASE_STEPS if point.benchmark == "latency" else 1
        says = {key: size * steps for key, size in stated(prepared.program).items()}
        tries = [counted(point, case, steps)]
        while len(tries) < LINK_TRIES and any(tries[-1].get(key, 0) < 0.98 * says.get(key, 0) for key in LINKS):
            tries.append(counted(point, case, steps))
        for (route, way), found in tries[-1].items():
            says_here = says.get((route, way), 0)
            if says_here or found > 4096:
                apart = f"{found / says_here - 1:+.2%}" if says_here else "not stated"
                before = "".join(f", {one[route, way]:.0f} in run {n} of ncu" for n, one in enumerate(tries[:-1], 1))
                shown = f"{found:.0f}{before if route == 'peer' else ''}"
                print(f"| `{point}` | {ROUTES[route]}, {way} | {says_here} | {shown} | {apart} |", flush=True)


if __name__ == "__main__":
    main()
