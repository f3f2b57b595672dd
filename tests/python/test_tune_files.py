"""The tuner races io_uring against threads for files, and the library loads what it chose."""

import json
import os
import re
import subprocess
import sys

import pytest

from fake_driver import ROOT, environment, needs_fake
from linkscope.cli.tune import _knobs
from linkscope.tune import Job, Ring, Row, tune
from linkscope.tune.bench import why_no_uring
from linkscope.tune.grids import beside_in_grid, grid
from test_transfer import python
from test_tune import HOSTS, MIB, SimulatedBench
from test_tune_command import linkscope_tune, needs_library

SAVE, READ = Job("saved-file", 16 * MIB, 64 * MIB), Job("cold-file", 16 * MIB, 64 * MIB)
BOTH = pytest.mark.parametrize("job", [SAVE, READ], ids=["saves", "reads"])


class DiskBench(SimulatedBench):
    """A disk that `wants` requests in flight by io_uring to reach `rate`. 16 threads reach 1 GB/s."""

    wants, rate = 48, 2e9

    def default(self, method: str, nbytes: int) -> Ring:
        return Ring(8, 4 * MIB, 2, 0, 1, uring={"write_file": 32, "read_cold": 16}[method])

    def staged(self, job: Job, ring: Ring | None, repeats: int) -> float:
        if ring is None:
            return self._timed(job.total_bytes / 0.5e9)
        if ring.cufile:
            return self._timed(job.total_bytes / self.cufile_rate)
        rate = self.rate * min(ring.uring / self.wants, 1) if ring.uring else 1e9 * min(ring.threads / 16, 1)
        return self._timed(job.total_bytes / rate)


def chosen(bench: DiskBench, job: Job = SAVE) -> Ring:
    (row,) = tune(bench, [job], 120.0, now=bench.now)
    assert isinstance(row.choice, Ring)
    return row.choice


@BOTH
def test_files_take_io_uring_where_it_is_faster_with_as_many_requests_as_the_disk_needs(job) -> None:
    found = chosen(DiskBench(HOSTS["fast CPUs"], 6e9, 0.01), job)
    assert found.uring >= 48 and not found.cufile


@BOTH
def test_files_take_threads_where_they_are_faster(job) -> None:
    bench = DiskBench(HOSTS["fast CPUs"], 6e9, 0.01)
    bench.rate = 0.6e9
    found = chosen(bench, job)
    assert found.uring == 0 and found.threads == 16 and bench.chosen[job.method, 64 * MIB] == found


def test_one_thread_is_the_cost_of_requests_by_io_uring() -> None:
    assert Ring(16, MIB, 2, uring=8).cost() == (1, 1, 0, 8 * MIB) < Ring(4, MIB, 2).cost()


@pytest.mark.parametrize("path", ["saved-file", "cold-file"])
def test_where_the_kernel_refuses_io_uring_threads_are_raced(path) -> None:
    bench = DiskBench(HOSTS["fast CPUs"], 6e9, 0.01)
    bench.why_no_uring = "the kernel refuses io_uring: Operation not permitted"
    job = Job(path, 16 * MIB, 64 * MIB)
    default = bench.default("write_file" if path == "saved-file" else "read_cold", 64 * MIB)
    first = grid(job, bench, default)
    assert {one.uring for one in first} == {0}
    assert {4, 8, 16} <= {one.threads for one in first}
    assert {12, 16} & {one.threads for one in beside_in_grid(job, Ring(8, MIB, 2, 0, 1), bench)}
    assert chosen(bench, job).threads == 16


@BOTH
def test_no_setting_has_more_requests_in_flight_than_the_arena_has_slots(job) -> None:
    bench = DiskBench(HOSTS["fast CPUs"], 6e9)
    bench.slots = 40
    near = list(beside_in_grid(job, Ring(8, MIB, 2, uring=32), bench))
    for one in [*grid(job, bench, Ring(8, MIB, 2)), *near]:
        assert one.uring <= 40 and one.uring <= 64
    assert {one.uring for one in near} >= {24} and all(one.threads == 8 for one in near)


def test_the_table_says_how_many_reads_and_writes_are_in_flight() -> None:
    for job, text in (
        (SAVE, "io_uring, 24 writes of 1 MiB in flight"),
        (READ, "io_uring, 24 reads of 1 MiB in flight"),
    ):
        row = Row(job, Ring(8, MIB, 2, uring=24), 2.0, 1.0, 0.5, None)
        assert _knobs(row) == text


@needs_fake
@needs_library
@BOTH
def test_the_tuned_files_are_in_the_tuning_and_the_library_uses_it(tmp_path, job) -> None:
    file = tmp_path / "mine.tuning"
    words = ["--budget", "3s", "--largest", "1MiB", "--directory", str(tmp_path), "--paths", job.path, "--json"]
    done = linkscope_tune(*words, "-o", str(file))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["why_no_uring"] == why_no_uring()
    row = found["classes"][0]
    knobs = row["knobs"]
    (line,) = re.findall(rf"copies {job.method} from {row['from_bytes']} .*", file.read_text())
    if knobs["method"] == "plain":  # as fast on this disk
        assert " plain " in line
        return
    assert line.endswith(f"uring {knobs['uring']}") and f"threads {knobs['threads']} " in line
    show = f"one = native.knobs('{job.method}', {row['bytes']}); print(one.uring, one.threads, one.chunk)"
    read = python(show, transfer_tuning=str(file)).split()
    assert read == [str(knobs[name]) for name in ("uring", "threads", "chunk")]


@needs_fake
@needs_library
@pytest.mark.parametrize("uring", [0, 16])
def test_a_file_with_the_choice_decides_who_writes(tmp_path, uring) -> None:
    """The counts of a save say who wrote what passed the page cache."""
    file, target = tmp_path / "mine.tuning", tmp_path / "saved"
    python(
        f"native.set_knobs('write_file', 2 << 20, uring={uring}, plain=0); native.save_tuning({str(file)!r})",
        transfer_tuning="none",
    )
    code = f"""
counts = linkscope.save_file({str(target)!r}, Array(2 << 20))
print(counts.direct, counts.uring, counts.uring_refused, *native.tuning())
"""
    direct, by_uring, refused, used = python(code, transfer_tuning=str(file)).split()[:4]
    assert used == str(file) and target.stat().st_size == 2 << 20
    possible = uring and refused == "0" and direct != "0"
    assert int(by_uring) == (int(direct) if possible else 0)


@needs_fake
@needs_library
@pytest.mark.parametrize("uring", [0, 16])
def test_a_file_with_the_choice_decides_who_reads(tmp_path, uring) -> None:
    """The counts of a read say who read what was not in the page cache."""
    file, source = tmp_path / "mine.tuning", tmp_path / "data"
    source.write_bytes(bytes(range(256)) * (8 << 10))
    python(
        f"native.set_knobs('read_cold', 2 << 20, uring={uring}, plain=0); native.save_tuning({str(file)!r})",
        transfer_tuning="none",
    )
    code = f"""
import os
descriptor = os.open({str(source)!r}, os.O_RDWR)
os.fsync(descriptor)
os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
to = Array(2 << 20)
counts = linkscope.read_file({str(source)!r}, to)
print(counts.direct, counts.uring, counts.uring_refused, *native.tuning())
"""
    direct, by_uring, refused, used = python(code, transfer_tuning=str(file)).split()[:4]
    assert used == str(file)
    possible = uring and refused == "0" and direct != "0"
    assert int(by_uring) == (int(direct) if possible else 0)


def test_the_reason_of_the_kernel_is_named() -> None:
    """In a process that may open no more files, io_uring cannot be set up."""
    code = (
        "import resource; from linkscope.tune.bench import why_no_uring; import os, ctypes, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)); print(why_no_uring())"
    )
    env = environment() | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("the kernel refuses io_uring: "), done.stderr


def test_the_threads_that_call_cufile_count_as_its_cost_though_io_uring_was_tuned_before() -> None:
    assert Ring(16, MIB, 2, uring=8, cufile=1).cost() == Ring(16, MIB, 2, cufile=1).cost()


def test_the_question_for_io_uring_leaves_no_descriptor_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        why_no_uring()
    assert len(os.listdir("/proc/self/fd")) == before
