"""Candidates of jobs that have few knobs: a coarse grid, and the steps beside a candidate."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from linkscope.tune.bench import Bench, Ring
from linkscope.tune.jobs import Job
from linkscope.tune.prior import CHUNKS, DEPTHS, SM_BLOCKS, THREADS, beside

_KIB, _MIB = 1 << 10, 1 << 20
_IN_FLIGHT = (1, 2, 4, 8, 16, 24, 32, 48, 64)  # requests of io_uring
_CHUNKS_OF_RELAY = (*CHUNKS, 8 * _MIB)  # to a slot in memory of a helper
_WINDOWS = (*_CHUNKS_OF_RELAY, 16 * _MIB, 32 * _MIB, 64 * _MIB)  # of a mapped file, that a thread has at once
_SLOT = 4 * _MIB  # of the arena
_BLOCKS_OF_COPY = (8, 16, 32, 48, 64, 96, 128, 192, 256, 512)  # of a kernel between memories of GPUs


def grid(job: Job, bench: Bench, default: Ring) -> list[Ring]:
    """The default and a coarse grid around what probes found, without what the copy or the machine is too small for."""
    if bench.why_no_uring:
        default = replace(default, uring=0)
    helped = replace(default, links=bench.helpers + 1)
    large, fine = (_MIB // 2, _MIB, 2 * _MIB, 4 * _MIB), (256 * _KIB, _MIB, 4 * _MIB)
    found: list[Ring]
    if job.is_relay:  # threads only queue chunks
        found = [replace(helped, threads=t, chunk=c) for t, c in itertools.product((1, 2, 4), (*large[1:], 8 * _MIB))]
        found = [helped, *(one for one in found if 2 * one.chunk <= job.nbytes)]
    elif job.path == "gpu-to-gpu":
        found = [replace(default, chunk=c, depth=d, chunks_each=1) for c, d in itertools.product(large, (2, 3))]
    elif job.is_by_kernel:
        found = [replace(default, sm_blocks=b, tma=t) for b, t in itertools.product((16, 32, 64, 128, 256), (0, 1))]
    elif job.path in ("cold-file", "saved-file"):
        found = _of_disk(job, bench, default, large[1:])
    elif job.path == "cached-file":
        found = [replace(default, threads=t, chunk=c) for t, c in itertools.product((2, 4, 8, 12, 16), fine)]
        windows = itertools.product((2, 4, 8, 16), (4 * _MIB, 16 * _MIB))
        found += [replace(default, threads=t, chunk=c, mapped=1) for t, c in windows]
    else:
        found = [replace(default, threads=t, chunk=c) for t, c in itertools.product((2, 4, 8, 16), fine)]
    if job.is_file:  # a short one is a single chunk
        found = [replace(one, chunk=min(one.chunk, job.total_bytes)) for one in found]
    first = [] if job.is_relay else [default]
    return list(dict.fromkeys([*first, *(one for one in found if _fits(one, job, bench))]))


def _of_disk(job: Job, bench: Bench, default: Ring, chunks: Sequence[int]) -> list[Ring]:
    """Files past the page cache: by io_uring where the kernel allows it, with several threads, and by cuFile."""
    in_threads = replace(default, uring=0)
    threaded = [replace(in_threads, threads=t, chunk=c) for t, c in itertools.product((4, 8, 16), chunks)]
    by_cufile = [replace(default, chunk=c, cufile=1) for c in chunks]
    if bench.why_no_uring:
        return [*threaded, *by_cufile]
    in_flight = (4, 16, 32) if job.path == "cold-file" else (16, 32, 48)
    by_uring = [replace(default, uring=one, chunk=c) for one, c in itertools.product(in_flight, chunks)]
    return [*by_uring, *threaded, *by_cufile]


def _is_one_thread(job: Job, ring: Ring) -> bool:
    """Whether one thread queues for the kernel, so that more of them change nothing."""
    return job.path == "gpu-to-gpu" or _is_by_uring(ring)


def _is_by_uring(ring: Ring) -> bool:
    return bool(ring.uring) and not ring.cufile


def beside_in_grid(job: Job, ring: Ring, bench: Bench) -> Iterator[Ring]:
    """Those that differ in one knob by one step."""
    if job.is_by_kernel:
        yield from (replace(ring, sm_blocks=one) for one in beside(_BLOCKS_OF_COPY, ring.sm_blocks))
        yield replace(ring, tma=1 - ring.tma)
        return
    chunks = _WINDOWS if ring.mapped else _CHUNKS_OF_RELAY if job.is_relay else CHUNKS
    near = [replace(ring, chunk=one) for one in beside(chunks, ring.chunk)]
    if not _is_one_thread(job, ring):
        near += [replace(ring, threads=one) for one in beside(THREADS, ring.threads)]
    if job.is_relay:
        steps = (ring.links - 1, ring.links + 1)
        near += [replace(ring, links=one) for one in steps if 2 <= one <= bench.helpers + 1]
    elif _is_by_uring(ring):
        near += [replace(ring, uring=one) for one in beside(_IN_FLIGHT, ring.uring)]
    elif not ring.cufile and not ring.mapped:
        most = 3 if job.path == "gpu-to-gpu" else DEPTHS[-1]
        near += [replace(ring, depth=one) for one in beside(DEPTHS, ring.depth) if one <= most]
    if job.is_packed:
        near += [replace(ring, sm_blocks=one) for one in beside((2, *SM_BLOCKS), ring.sm_blocks)]
    yield from (one for one in near if _fits(one, job, bench))


def _fits(ring: Ring, job: Job, bench: Bench) -> bool:
    slots = ring.threads * ring.depth
    if job.path == "gpu-to-gpu":
        slots = ring.depth
    elif _is_by_uring(ring):
        slots = ring.uring
    elif ring.mapped:
        slots = ring.threads * -(-ring.chunk // _SLOT)  # no slots, but as much pinned memory
    return ring.threads <= bench.cpus and ring.chunk <= job.total_bytes and slots <= bench.slots
