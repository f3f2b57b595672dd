"""What linkscope asks of UCX: a library that writes down the calls, and passes them on to the real one.

It can also claim that it knows CUDA. The fake driver's memory is memory of the host, so the real library moves it.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from fake_driver import environment, needs_fake, needs_worker
from linkscope.run.ucx import libraries
from linkscope.runfile import Run, read_run
from test_ranks import LINKSCOPE, without_ranks
from test_ucx import TRIPS, needs_ucx, run_by_ucx

pytestmark = [needs_worker, needs_ucx]

SOURCE = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static void* real(const char* name) { return dlsym(dlopen(REAL, RTLD_NOW | RTLD_LOCAL), name); }
static long progress;
struct Request {
  unsigned mask;
  char before[44];
  int memory;
  char rest[92];
};
static int memory_of(const Request* of) { return of->mask & 64 ? of->memory : -1; }
static Request on_host(const Request* of) {
  Request copy = *of;
  if (memory_of(of) == 1) copy.memory = 0;
  return copy;
}
extern "C" unsigned ucp_worker_progress(void* worker) {
  static auto next = (unsigned (*)(void*))real("ucp_worker_progress");
  ++progress;
  return next(worker);
}
static void write_down(char what, unsigned long bytes, const Request* how) {
  static const int log = open(LOG, O_WRONLY | O_APPEND | O_CREAT, 0600);
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof cpus, &cpus);
  dprintf(log, "%c %d %lx %lu %ld %d\n", what, getpid(), *(unsigned long*)&cpus, bytes, progress, memory_of(how));
  progress = 0;
}
extern "C" void* ucp_tag_send_nbx(void* to, const void* at, unsigned long bytes, unsigned long tag,
                                  const Request* how) {
  static auto next = (void* (*)(void*, const void*, unsigned long, unsigned long, const Request*))real(__func__);
  write_down('s', bytes, how);
  const Request changed = on_host(how);
  return next(to, at, bytes, tag, &changed);
}
extern "C" void* ucp_tag_recv_nbx(void* worker, void* at, unsigned long bytes, unsigned long tag, unsigned long mask,
                                  const Request* how) {
  static auto next =
      (void* (*)(void*, void*, unsigned long, unsigned long, unsigned long, const Request*))real(__func__);
  if (memory_of(how) >= 0) write_down('r', bytes, how);
  const Request changed = on_host(how);
  return next(worker, at, bytes, tag, mask, &changed);
}
extern "C" int ucp_context_query(void* context, unsigned long* facts) {
  static auto next = (int (*)(void*, unsigned long*))real("ucp_context_query");
  const int status = next(context, facts);
  if (CUDA) facts[3] |= 2;
  return status;
}
"""


class Call(NamedTuple):
    """A call that sends or receives. `progress`: calls of progress since the one before. `memory`: its type, or -1."""

    what: str
    process: int
    cpus: int
    bytes: int
    progress: int
    memory: int


def real_library() -> Path:
    return next(Path(one["name"]) for one in libraries({}) if one["name"].startswith("/"))


def built(folder: Path, *, cuda: bool) -> Path:
    """A library that writes to the file `calls` of the folder."""
    source, library = folder / "calls.cpp", folder / "libucp.so.0"
    source.write_text(SOURCE)
    real = real_library()
    names = [f'-DREAL="{real}"', f'-DLOG="{folder / "calls"}"', f"-DCUDA={int(cuda)}"]
    subprocess.run(
        [
            "g++",
            "-shared",
            "-fPIC",
            f"-Wl,--no-as-needed,-rpath,{real.parent}",
            *names,
            str(source),
            str(real),
            "-o",
            str(library),
        ],
        check=True,
    )
    return library


def calls_of(folder: Path) -> list[Call]:
    words = [line.split() for line in (folder / "calls").read_text().splitlines()]
    return [Call(what, int(pid), int(cpus, 16), *map(int, numbers)) for what, pid, cpus, *numbers in words]


def cores() -> set[str]:
    """The cores of this process, by their CPUs."""
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return {Path(siblings.format(cpu)).read_text() for cpu in os.sched_getaffinity(0)}


def test_processes_that_poll_have_cores_of_their_own_and_have_used_what_messages_go_through_before_a_sample(tmp_path):
    library = built(tmp_path, cuda=False)
    (point,) = run_by_ucx(tmp_path, TRIPS.replace("/8", "/4096"), LINKSCOPE_UCX=str(library)).points
    assert point.verified, point.reason
    sends: dict[int, list[Call]] = {}
    for call in calls_of(tmp_path):
        if call.bytes == 4096:
            sends.setdefault(call.process, []).append(call)
    assert len(sends) == 2 * 2  # processes of two rounds
    if len(cores()) >= 2:
        masks = [of[0].cpus for of in sends.values()]
        assert all(sum(not mask & other for other in masks) == 2 for mask in masks), masks
    for of in sends.values():  # a ping-pong calls progress between its sends, and a window of many does not
        assert sum(call.progress == 0 for call in of[:512]) > 400


def ranks_by_ucx(folder: Path, ids: list[str], library: Path, rounds: int = 1) -> Run:
    """The run of two ranks that meet without MPI, as tasks of srun do, so that no library brings a UCX of its own."""
    path = folder / "run.jsonl"
    only = [word for id in ids for word in ("--only", id)]
    words = [*LINKSCOPE, "run", *only, "--rounds", str(rounds), "--precision", "99%", "-q", "-o", str(path)]
    settings = environment(CUDA_GPUS=2) | {"LINKSCOPE_UCX": str(library), "SLURM_STEP_NUM_TASKS": "2"}
    of_task = [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in (0, 1)]
    tasks = [
        subprocess.Popen(
            words, cwd=folder, env=without_ranks() | settings | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for own in of_task
    ]
    try:
        said = [one.communicate(timeout=300)[0].decode() for one in tasks]
    finally:
        for one in tasks:
            one.kill()
    assert path.exists(), said
    return read_run(path)


OF_GPUS = "rank_rate/ucx/rank:0.device->rank:1.device/"


@needs_fake
def test_buffers_of_gpus_are_passed_with_the_type_of_their_memory_and_their_bytes_arrive(tmp_path):
    ids = [f"{OF_GPUS}65536?way=aware&window=64", "rank_ping_pong/ucx/rank:0.device->rank:1.device/4096?way=aware"]
    run = ranks_by_ucx(tmp_path, ids, built(tmp_path, cuda=True))
    assert len(run.points) == 2 and all(point.verified for point in run.points), [one.reason for one in run.points]
    calls = calls_of(tmp_path)
    for size in (65536, 4096):
        assert {call.memory for call in calls if call.bytes == size} == {1}  # UCS_MEMORY_TYPE_CUDA
        assert {call.what for call in calls if call.bytes == size} == {"s", "r"}


@needs_fake
@pytest.mark.parametrize("slots", ["2", "4"])
def test_a_double_buffer_has_a_message_of_every_slot_but_one_under_way_and_the_bytes_arrive(tmp_path, slots):
    other = "" if slots == "2" else f"slots={slots}&"
    ids = [f"{OF_GPUS}1048576?chunk=64KiB&{other}way=double&window=64"]
    ids.append(ids[0].replace("chunk=64KiB&", "chunk=64KiB&sends=one&"))
    run = ranks_by_ucx(tmp_path, ids, built(tmp_path, cuda=False))
    assert len(run.points) == 2 and all(point.verified for point in run.points), [one.reason for one in run.points]
    assert {call.memory for call in calls_of(tmp_path)} == {-1}  # pinned slots


@needs_fake
def test_a_setting_that_leaves_out_the_cuda_of_ucx_is_named(tmp_path):
    library = real_library()
    run = ranks_by_ucx(tmp_path, [f"{OF_GPUS}65536?way=aware&window=64"], library)
    (point,) = run.points
    assert point.status == "unsupported"
    assert re.search(r"takes no buffers of GPUs: UCX_MODULES=\^cuda leaves out its CUDA", point.reason), point.reason


def test_a_later_round_of_ranks_says_how_ucx_was_found_as_the_first_one_does(tmp_path):
    """The processes stay, so UCX is loaded already when they open the machine for the next round."""
    library = real_library()
    run = ranks_by_ucx(tmp_path, ["rank_ping_pong/ucx/rank:0.pageable->rank:1.pageable/8"], library, rounds=2)
    (point,) = run.points
    said = [one.guards["ucx"] for one in run.rounds[point.id]]
    assert len(said) == 2 and said[0] == said[1] and said[0].endswith(": LINKSCOPE_UCX names it"), said
