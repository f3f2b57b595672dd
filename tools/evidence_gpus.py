"""The steps of tools/evidence.py for machines with several GPUs. Each is one command of another tool of this folder.

In the order of their value on four GPUs:

links          copies over the links of helpers, between GPUs, and of a process for each GPU (links_bench.py), with the
               settings that the library has before a tuning
tune-links     `linkscope tune` of large copies over all links
links-tuned    the same as links with that tuning
loaders-gpus   a safetensors file to all GPUs at once (loaders_on_gpus.py)
lu-gpus        a blocked LU on 1, 2 and 4 GPUs (contention_bench.py)
lu-large       the same of 16384 rows, three rounds, so without intervals
puts           puts beside NVSHMEM (nvshmem_bench.py; --nvshmem-program, --nvshmem)
puts-library   round trips, messages and large puts of the library, and a million random messages (tests/gpu)
queues-gpus    puts through descriptors, with the queue on either GPU and on the host (suite putget-queues)
buffers        sums of NCCL beside nccl-tests, with buffers of two allocators (collectives_bench.py; --nccl-tests)
send-receive   send-receive beside nccl-tests on all GPUs
mpi-gpus       two ranks with a GPU each: staged, double-buffered and passed to MPI
all-gather     an all-gather beside copies to the host (contention_bench.py)
ucx            puts beside ucx_perftest (ucx_bench.py; --ucx)
contention-gpus  presets of flows twice (contention_bench.py)
across-gpus    joint capacity to and from the host, who slows whom across GPUs (contention_bench.py)
nvbandwidth    its tests of several GPUs at once (contention_bench.py; --nvbandwidth)

A step for which a program is missing, or GPUs, says so and is left out. What a step has goes to FOLDER when it ends,
also when it is cut off: to the files and folders FOLDER/MACHINE-STEP…. Most steps go on in a later call.
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evidence_step import ROOT, Action, Call, Step, gpus, logged, machine

TOOLS = ROOT / "tools"
NOT_HERE = 3  # exit code of a step for which something is missing
_ENDING_S = 10.0  # of a tool, after the time that it is given
_WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "NVSHMEM_DISABLE_NVLS": "1"}
_LARGEST, _SMALL = 1024, 16  # MiB of a copy, and with --small


@dataclass(frozen=True)
class Work:
    """What the command of a step is made from. `folder`: of the step, which a later call finds again."""

    call: Call
    folder: Path
    gpus: int

    @property
    def given(self) -> argparse.Namespace:
        return self.call.given

    @property
    def limit(self) -> str:
        """The seconds that the tool may use."""
        return f"{max(self.call.seconds - _ENDING_S, 1):.0f}"

    @property
    def largest(self) -> int:
        return _SMALL if self.given.small else _LARGEST

    @property
    def helpers(self) -> str:
        return ",".join(f"gpu:{number}" for number in range(1, self.gpus))

    @property
    def tuning(self) -> Path:
        """The file that step tune-links writes."""
        return self.call.unfinished / f"{machine()}-tune-links" / "links.tuning"

    def file(self, name: str) -> str:
        return str(self.folder / f"{machine()}-{name}")


Words = Callable[[Work], list[str]]


def several(
    words: Words, needs: str = "", settings: Callable[[Work], dict[str, str]] | None = None, after: str = ""
) -> Action:
    """The action of a step on two GPUs or more. `words`: its command after the interpreter. `needs`: an option with a
    path. `after`: the step whose tuning it uses. `settings`: environment variables. NVLink multicast stays off.
    """

    def action(call: Call) -> int:
        of = Work(call, call.unfinished / f"{machine()}-{call.name}", len(gpus()))
        if reason := _why_not(of, needs, after):
            print(f"{call.name}: left out: {reason}")
            return NOT_HERE
        of.folder.mkdir(parents=True, exist_ok=True)
        variables = _WITHOUT_MULTICAST | (settings(of) if settings else {})
        try:
            return logged([sys.executable, *words(of)], call.seconds, call.log, variables)
        finally:
            shutil.copytree(of.folder, call.folder / of.folder.name, dirs_exist_ok=True)

    return action


def _why_not(of: Work, needs: str, after: str) -> str:
    """Why a step cannot be started here; '' if it can."""
    if of.gpus < 2:
        return f"it needs two GPUs, and this machine has {of.gpus}"
    if after and not of.tuning.exists():
        return f"step {after} left no tuning"
    path: Path | None = getattr(of.given, needs) if needs else None
    if needs and not (path and path.exists()):
        return f"give --{needs.replace('_', '-')}, a path that exists"
    return ""


def _tool(name: str, *words: str) -> list[str]:
    return [str(TOOLS / f"{name}.py"), *words]


def _links(name: str) -> Words:
    return lambda of: _tool(
        "links_bench", "-o", of.file(f"{name}.json"), "--seconds", of.limit, "--largest", str(of.largest)
    )


def _tune(of: Work) -> list[str]:
    budget = f"{max(float(of.limit) - 10, 1):.0f}s"  # the last class may take longer
    sizes = ["--largest", f"{of.largest}MiB", "--smallest", f"{max(of.largest // 4, 1)}MiB"]
    paths = ["--paths", "to-gpu,pinned-to-gpu,pinned-from-gpu,to-warm", "--helpers", of.helpers]
    return ["-m", "linkscope", "tune", *paths, *sizes, "--budget", budget, "-o", str(of.tuning), "--json"]


def _contention(sections: str) -> Words:
    def words(of: Work) -> list[str]:
        against = ["--against", of.given.against] if of.given.against else []
        binary = ["--nvbandwidth", str(of.given.nvbandwidth)] if of.given.nvbandwidth else []
        few = ["--seconds", "0.02", "--rounds", "1"] if of.given.small else ["--seconds", "0.1"]
        options = ["--sections", sections, "--limit", of.limit, *against, *binary, *few]
        return _tool("contention_bench", str(of.folder), *options)

    return words


def _collectives(section: str, *more: str, ranks: int | None = None) -> Words:
    def words(of: Work) -> list[str]:
        tests = ["--nccl-tests", str(of.given.nccl_tests)] if of.given.nccl_tests else []
        options = ["--sections", section, "--budget", of.limit, "--gpus", str(ranks or of.gpus), *tests, *more]
        return _tool("collectives_bench", str(of.folder), *options)

    return words


def _puts(of: Work) -> list[str]:
    budget = f"{float(of.limit) / 2:.0f}s"  # NVSHMEM's program comes first
    places = ["--nvshmem", str(of.given.nvshmem)] if of.given.nvshmem else []
    files = ["-o", of.file("puts.jsonl"), "--json", of.file("nvshmem.json")]
    return _tool("nvshmem_bench", "--program", str(of.given.nvshmem_program), *places, *files, "--budget", budget)


def _library_puts(_: Work) -> list[str]:
    chosen = "8_bytes_go or 64_bytes or large_puts or between_gpus or million"
    return ["-m", "pytest", "-s", "-q", "-n0", "-rs", str(ROOT / "tests" / "gpu" / "test_put_get.py"), "-k", chosen]


def _queues(of: Work) -> list[str]:
    only = ["--only", "queued_put*/*->gpu:1.device/*"]
    run = ["-m", "linkscope", "run", "--suite", "putget-queues", *only, "--budget", f"{of.limit}s", "-q", "--force"]
    return [*run, "-o", of.file("putget-queues.jsonl")]


def _lu_large(of: Work) -> list[str]:
    sets = [found for found in ("01", "0123") if len(found) <= of.gpus]
    chosen = [("0", "host", "0"), *((found, by, "1") for by in ("peer", "host") for found in sets)]
    ids = [
        f"lu_gpus/sm/gpu:0.device->gpu:0.device/0?ahead={ahead}&by={by}&gpus={found}&n=16384&node=0&panels=urgent"
        "&threads_on=near"
        for found, by, ahead in chosen
    ]
    only = [word for one in ids for word in ("--only", one)]
    run = ["-m", "linkscope", "run", *only, "--rounds", "3", "--budget", f"{of.limit}s", "-q", "--force"]
    return [*run, "-o", of.file("lu-16384.jsonl")]


def _ucx(of: Work) -> list[str]:
    budget = f"{float(of.limit) * 0.65:.0f}s"  # UCX needs about a second a row
    files = ["-o", of.file("ucx.jsonl"), "--json", of.file("ucx.json")]
    return _tool("ucx_bench", "--ucx", str(of.given.ucx), *files, "--budget", budget)


def _loaders(of: Work) -> list[str]:
    gib = f"{of.largest * 4 / 1024:g}"
    return _tool("loaders_on_gpus", "-o", of.file("loaders.json"), "--gib", gib, "--seconds", of.limit)


def _untuned(_: Work) -> dict[str, str]:
    return {"LINKSCOPE_TRANSFER_TUNING": "none"}


def _tuned(of: Work) -> dict[str, str]:
    return {"LINKSCOPE_TRANSFER_TUNING": str(of.tuning)}


def _long(_: Work) -> dict[str, str]:
    return {"LINKSCOPE_TESTS": "long"}


# In the order of their value. `least`: where less time is left than the limit, a step gets what is left.
STEPS = {
    "links": Step(150, several(_links("links"), settings=_untuned), least=60),
    "tune-links": Step(80, several(_tune), least=45),
    "links-tuned": Step(80, several(_links("links-tuned"), settings=_tuned, after="tune-links"), least=35),
    "loaders-gpus": Step(90, several(_loaders), least=45),
    "lu-gpus": Step(180, several(_contention("lu")), least=100),
    "lu-large": Step(270, several(_lu_large), least=150),
    "puts": Step(130, several(_puts, needs="nvshmem_program"), least=90),
    "puts-library": Step(90, several(_library_puts, settings=_long), least=40),
    "queues-gpus": Step(60, several(_queues), least=30),
    "buffers": Step(290, several(_collectives("buffers", ranks=2), needs="nccl_tests"), least=230),
    "send-receive": Step(
        60, several(_collectives("beside", "--collectives", "send_receive"), needs="nccl_tests"), least=40
    ),
    "mpi-gpus": Step(270, several(_collectives("mpi")), least=90),
    "all-gather": Step(60, several(_contention("nccl")), least=40),
    "ucx": Step(130, several(_ucx, needs="ucx"), least=60),
    "contention-gpus": Step(420, several(_contention("presets")), least=120),
    "across-gpus": Step(500, several(_contention("capacity,across")), least=120),
    "nvbandwidth": Step(120, several(_contention("nvbandwidth"), needs="nvbandwidth"), least=60),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the steps need from elsewhere."""
    add = parser.add_argument
    add("--against", default="", help="a model whose predictions stand beside the rates of several GPUs")
    add("--nccl-tests", type=Path, help="the folder of nccl-tests, for buffers and send-receive")
    add("--nvbandwidth", type=Path, help="its program, for nvbandwidth")
    add("--nvshmem-program", type=Path, help="nvshmem_puts.cu as a program, for puts")
    add("--nvshmem", type=Path, help="the folder of NVSHMEM's libraries, for puts")
    add("--ucx", type=Path, help="the folder of UCX, for ucx")
