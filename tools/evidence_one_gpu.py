"""Steps of tools/evidence.py for one GPU: measurements of put and get, ranks, contention and transfers for docs/notes.

A call with `--steps one-gpu` runs the steps in the order of the table. Steps without a result come first.
"""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from evidence_step import STOPPED, Call, Step, gpus, linkscope_run, logged, printed_tool, tests, tool
from launcher import installed, ranks_by

_PAIR = "rank:0.device->rank:1.device/16777216"
# Copies of two ranks that share the GPU: by the host, whole and in chunks, and by the libraries' own support of GPUs.
RANKS = (
    f"rank_rate/ucx/{_PAIR}?way=aware&window=64",
    f"rank_rate/nixl/{_PAIR}?window=64",
    f"rank_ping_pong/ucx/{_PAIR}?way=aware",
    f"rank_ping_pong/nixl/{_PAIR}",
    f"rank_rate/mpi/{_PAIR}?way=staged&window=64",
    f"rank_rate/ucx/{_PAIR}?way=staged&window=64",
    f"rank_rate/mpi/{_PAIR}?chunk=4MiB&way=double&window=64",
    f"rank_rate/mpi/{_PAIR}?chunk=4MiB&sends=one&way=double&window=64",
    f"rank_rate/mpi/{_PAIR}?slots=4&way=double&window=64",
    f"rank_ping_pong/mpi/{_PAIR}?way=staged",
    f"rank_ping_pong/mpi/{_PAIR}?way=double",
    f"rank_ping_pong/mpi/{_PAIR}?chunk=4MiB&slots=3&way=double",
)
# Needs an MPI that has support of GPUs. The staged messages beside it are of the same MPI.
AWARE = tuple(
    f"rank_{what}/mpi/rank:0.device->rank:1.device/*way={way}*"
    for what in ("ping_pong", "rate")
    for way in ("aware", "staged")
)
GETS = ("get/*/gpu:0.device->gpu:0.device/*",)
MAPPED = ("file_mapped*", "file_copies*hot*")
# Copies over all links, also between GPUs through the host: what NCCL's topology and settings are made from.
LINKS = ("--suite", "full", "--only", "?2?/ce/*/67108864[?]*")
PACKED = ("*word=packed*", "*/4[?]*")  # [?]: the character, so that 4 MiB (4194304) does not match
# With more than two ranks: collectives of MPI by all of them, and messages of two beside others that wait. Seconds for
# each number of ranks. More than four measure only some messages, whose times differ little by the number that waits.
_MORE_RANKS = {4: 55, 8: 75, 16: 115}
_ALL_MESSAGES = ("rank_*/mpi/*.pageable->*.pageable/*",)
_FEW_MESSAGES = (
    "rank_ping_pong/mpi/*.pageable->*.pageable/*",
    "rank_rate/mpi/*.pageable/8[?]bidirectional=false&window=64",
)
_FLOW_TURNS = 4  # even: each preset comes first as often as the other
_SMALL_BYTES, _BYTES = "1MiB", "256MiB"


def only(*globs: str) -> list[str]:
    """Options of `linkscope run` for the points of these globs."""
    return [word for one in globs for word in ("--only", one)]


def ranks(count: int = 2) -> Sequence[str]:
    """The launcher of ranks. Without any, it is a name that the shell says is missing."""
    return ranks_by(installed() or "mpiexec", count)


def flows(call: Call) -> int:
    """Copies in both directions by one thread and by a thread a direction, in turn, in an order that changes from turn
    to turn. An answer that is there stays."""
    kept = call.unfinished / call.base
    kept.mkdir(exist_ok=True)
    end, worst = time.monotonic() + call.seconds, 0
    for turn in range(1, _FLOW_TURNS + 1):
        for preset in ("both", "own-thread") if turn % 2 else ("own-thread", "both"):
            answer = kept / f"{preset}-{turn}.json"
            if answer.exists():
                continue
            words = ["--preset", preset, "--bytes", _SMALL_BYTES if call.given.small else _BYTES, "--seconds", "0.3"]
            chosen = ["--machine", call.given.machine] if call.given.machine else []
            status = _answer(call, ["flow", *words, *chosen, "--json"], answer, max(end - time.monotonic(), 0.0))
            worst = max(worst, status if status >= 0 else STOPPED)
    shutil.copytree(kept, call.result, dirs_exist_ok=True)
    return worst


def files(call: Call) -> int:
    """Searches settings for cold and saved files, also by cuFile of PyTorch's packages; the answer says why not."""
    found = find_spec("nvidia")
    places = [Path(place, "cu13", "lib") for place in (found.submodule_search_locations or [] if found else [])]
    known = [str(place) for place in places if place.is_dir()]
    settings = {"LD_LIBRARY_PATH": ":".join(filter(None, [*known, os.environ.get("LD_LIBRARY_PATH")]))}
    words = ["tune", "--directory", "/tmp", "--paths", "cold-file,saved-file", "--budget", f"{call.budget}s"]
    words += ["--largest", "16MiB"] if call.given.small else []
    words += ["-o", f"{call.result}.tuning", "--json"]
    return _answer(call, words, Path(f"{call.result}.json"), call.seconds, settings)


def nccl_topology(call: Call) -> int:
    """Lets NCCL read the topology and the settings that linkscope exports from a short run. What NCCL says becomes
    RESULT.txt; the exit code is 1 if it says that it did not read one of them, or if several GPUs gave no setting.
    """
    run, topology, said = call.unfinished / f"{call.base}.jsonl", f"{call.result}.xml", Path(f"{call.result}.txt")
    hints = call.unfinished / f"{call.base}.env"
    command = [sys.executable, "-m", "linkscope"]
    sums = ["run", "--suite", "collectives", "--rounds", "1", *only("all_reduce/nccl/*/1048576[?]mode=batched&ranks=*")]
    settings = {"NCCL_TOPO_FILE": topology, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH"}
    for words in (
        ["run", *LINKS, "--budget", "25s", "--force", "-o", str(run)],
        ["export", str(run), "--format", "nccl-topo", "--force", "-o", topology],
        ["export", str(run), "--format", "nccl-env", "--force", "-o", str(hints)],
        [*sums, "--force", "-o", str(run)],
    ):
        # By a file: workers answer on their standard output.
        environment = settings | _exported(hints) | {"NCCL_DEBUG_FILE": str(said)}
        if status := logged([*command, *words], call.seconds / 2, call.log, environment):
            return status
    text = said.read_text() if said.exists() else ""
    is_read = "Loading topology file" in text and "XML Parse" not in text
    is_set = all(f"{name} set by environment to {value}" in text for name, value in _exported(hints).items())
    return 0 if is_read and is_set and (len(gpus()) == 1 or _exported(hints)) else 1


def _exported(file: Path) -> dict[str, str]:
    """The variables that the lines `export NAME=VALUE` of a file set; none if there is no file."""
    lines = file.read_text().splitlines() if file.exists() else []
    found = [line.removeprefix("export ").partition("=") for line in lines if line.startswith("export ")]
    return {name: value for name, _, value in found}


def _answer(call: Call, words: list[str], path: Path, seconds: float, settings: dict[str, str] | None = None) -> int:
    """Runs a command of linkscope and keeps what it prints, if it succeeds."""
    new = path.with_suffix(".new")
    with new.open("w") as output:
        status = logged([sys.executable, "-m", "linkscope", *words], seconds, call.log, settings, output)
    if status in (0, STOPPED) and new.stat().st_size:
        new.rename(path)
    else:
        new.unlink()
    return status


def more_ranks(count: int) -> Step:
    """A run of messages and collectives of MPI in host memory by a number of ranks."""
    messages = _ALL_MESSAGES if count <= min(_MORE_RANKS) else _FEW_MESSAGES
    points = only(f"*/mpi/*.pageable/*ranks={count}", *messages)
    options = ("--suite", "mpi", "--budget", "{budget}s", *points)
    return Step(_MORE_RANKS[count], linkscope_run(*options, launcher=partial(ranks, count)), least=25)


_ISSUE = ("--issue", "--budget", "{budget}", "-o", "{result}.json", "--sections")
_CACHED = ("--sections", "file", "--file-mib", "1024", "-o", "{result}.json")
_LIBRARIES = ("{kept}", "--sections", "libraries", "--limit", "{budget}")
_LU = ("{kept}", "--sections", "lu", "--limit", "{budget}")
_LOADERS = ("--everything", "--repeats", "5", "--budget", "{budget}", "-o", "{result}.json")
_LONG = {"LINKSCOPE_TESTS": "long"}
_MAPPED = ("file_mapped", "file_copies", "--suite", "full", "--directory", "/tmp", "--budget", "{budget}s")
_UCX = ("--sizes", "8,4096,65536,1048576", "--budget", "25s", "-o", "{result}.jsonl", "--json", "{result}.json")

STEPS = {
    "nccl-topology": Step(60, nccl_topology),
    "ranks-beside": Step(100, tool("ranks_beside.py", "--json", "{result}.json", "--seconds", "{budget}"), least=40),
    **{f"ranks-{count}": more_ranks(count) for count in _MORE_RANKS},
    "ranks-aware": Step(60, linkscope_run("--suite", "mpi", "--budget", "{budget}s", *only(*AWARE), launcher=ranks)),
    "sp-10": Step(130, linkscope_run("--suite", "sp-10", "--budget", "{budget}s"), least=100),
    "mapped": Step(70, linkscope_run(*_MAPPED, *only(*MAPPED)), least=40),
    "gets": Step(70, linkscope_run("--suite", "putget", "--budget", "{budget}s", *only(*GETS)), least=40),
    "ucx-host": Step(60, tool("ucx_bench.py", *_UCX)),
    "counters": Step(100, printed_tool("put_get_counters.py"), least=50),
    "arrays": Step(60, tests("-n0", "test_arrays.py")),
    "sanitizer": Step(150, tests("-n0", "test_transfer.py"), least=60),
    "sp-5-full": Step(560, linkscope_run("--suite", "sp-5-full", "--budget", "{budget}s"), least=200),
    "put-get": Step(90, tests("test_put_get.py", settings=_LONG)),
    "proxies": Step(58, linkscope_run("--suite", "putget-queues", "--budget", "{budget}s", *only("*proxies=*"))),
    "ranks": Step(150, linkscope_run("--budget", "{budget}s", *only(*RANKS), launcher=ranks), least=90),
    "products": Step(120, tool("transfer_bench.py", *_ISSUE, "gemm", "cold",
                               small=("--largest", "16", "--file-mib", "16", "--repeats", "1")), least=60),
    "mps": Step(80, linkscope_run("--suite", "sharing", *only("shared_*way=mps*"), goes_on=True), least=40),
    "md": Step(60, linkscope_run("--suite", "sp-5", *only("compute_md_double/*size=shoc"), goes_on=True)),
    "flows": Step(80, flows, least=30),
    "issue": Step(200, tool("transfer_bench.py", *_ISSUE, "copies", "torch", "small", "c", "blocks",
                            small=("--largest", "16", "--repeats", "1")), least=90),
    "loaders": Step(160, tool("loader_bench.py", *_LOADERS, small=("--gib", "0.01")), least=90),
    "files": Step(75, files),
    "cached": Step(90, tool("transfer_bench.py", *_CACHED, small=("--file-mib", "16", "--repeats", "1")), least=40),
    "mps-queues": Step(45, linkscope_run("--suite", "sharing", "--rounds", "1", *only("shared_*clients=4&way=mps"),
                                         settings={"CUDA_DEVICE_MAX_CONNECTIONS": "32"})),
    "leaks": Step(90, tests("-n0", "test_leaks.py", "-k", "repeated", settings=_LONG), least=60),
    "lu": Step(190, tool("contention_bench.py", *_LU), least=90),
    "libraries": Step(120, tool("contention_bench.py", *_LIBRARIES), least=90),
    "packed": Step(90, linkscope_run("--suite", "putget", "--budget", "{budget}s", *only(*PACKED)), least=40),
    "sharing": Step(300, linkscope_run("--suite", "sharing", *only("shared_*"), goes_on=True), least=60),
    "matrix": Step(310, tool("contention_bench.py", "{kept}", "--sections", "matrix", "--limit", "{budget}",
                             "--against", "h200x1"), least=180),
}  # fmt: skip
