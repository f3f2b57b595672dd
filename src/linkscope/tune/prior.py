"""A simple model of a copy through the ring: it orders the candidates, and the race decides."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from linkscope.tune.bench import Bench, Ring

_KIB, _MIB = 1 << 10, 1 << 20
THREADS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CHUNKS = tuple(64 * _KIB << power for power in range(7))  # to 4 MiB, a slot of the arena
DEPTHS = (1, 2, 3, 4)
PIECES = (0, 64 * _KIB, 256 * _KIB, _MIB)
SM_BLOCKS = (4, 8, 16, 32)
SM_CHUNKS = (32 * _KIB, 64 * _KIB, 128 * _KIB, 256 * _KIB)
_REPEATS = 7
# Of candidates over several links; threads are those of one link.
_SPREAD_THREADS, _SPREAD_CHUNKS = (4, 8, 12), (512 * _KIB, _MIB, 2 * _MIB)


@dataclass(frozen=True, slots=True)
class Prior:
    """What the time of a copy consists of; rates in bytes per second."""

    thread_rate: float  # of one CPU thread
    link_rate: float
    chunk_s: float  # of a thread, for each chunk
    wake_s: float  # of the caller, for each further thread
    start_s: float  # of a copy

    def seconds(self, nbytes: int, ring: Ring) -> float:
        """The predicted time: one chunk through the empty ring, then the others at the rate of the slower part."""
        workers = ring.threads * ring.links  # the library has the threads of one link for each
        chunk, chunk_s = max(min(ring.chunk, nbytes // (workers * ring.chunks_each)), 1), self.chunk_s
        if ring.sm_blocks:  # one launch replaces a call of the driver for each chunk
            chunk, chunk_s = min(ring.sm_chunk, nbytes), 0.0
        threads = min(workers, -(-nbytes // chunk))
        fill, drain = chunk / self.thread_rate + chunk_s, chunk / self.link_rate
        cycle = fill + (drain if ring.depth == 1 else 0.0)  # with one slot a thread waits for the GPU
        rate = min(threads * chunk / cycle, self.link_rate * ring.links)
        return self.start_s + self.wake_s * (threads - 1) + fill + drain + (nbytes - chunk) / rate


def measure_prior(bench: Bench, method: str, largest: int) -> Prior:
    """Measures the parameters of a path in less than a second. Raises Failure if the ring does not work."""
    small, large = min(64 * _KIB, largest), min(32 * _MIB, largest)
    work, chunk = min(8 * _MIB, largest), min(_MIB, largest)

    def slope(short_s: float, long_s: float, amount: float) -> float:
        return max(long_s - short_s, 1e-9) / max(amount, 1)

    start_s = bench.pinned(method, small, _REPEATS)
    link_rate = 1 / slope(start_s, bench.pinned(method, large, _REPEATS), large - small)
    bench.copy(method, Ring(1, chunk), work, 1)  # allocates the slots
    alone_s = bench.copy(method, Ring(1, chunk), work, _REPEATS)
    thread_rate = 1 / slope(start_s, alone_s, work)
    finer_s = bench.copy(method, Ring(1, max(chunk // 16, 1)), work, _REPEATS)
    chunk_s = max(finer_s - alone_s, 0.0) / max(15 * work / chunk, 1)
    threads = min(bench.cpus, 8)
    several = Ring(threads, small)
    bench.copy(method, several, small * threads, 1)  # starts the threads
    several_s = bench.copy(method, several, small * threads, _REPEATS) if threads > 1 else start_s
    without = Prior(thread_rate, link_rate, chunk_s, 0.0, start_s).seconds(small * threads, several)
    return Prior(thread_rate, link_rate, chunk_s, max(several_s - without, 0.0) / max(threads - 1, 1), start_s)


def first_candidates(prior: Prior, bench: Bench, default: Ring, nbytes: int, most: int) -> list[Ring]:
    """The default and the candidates with the shortest predicted times, as many by copy engine as by kernel."""
    by_engine = [
        Ring(threads, chunk, default.depth, default.piece)
        for threads, chunk in itertools.product(THREADS, CHUNKS)
        if threads <= bench.cpus and threads * chunk <= nbytes and threads * default.depth <= bench.slots
    ]
    by_kernel = [
        replace(default, threads=threads, sm_blocks=blocks, sm_chunk=chunk)
        for threads, blocks, chunk in itertools.product(THREADS, SM_BLOCKS[1:], SM_CHUNKS[1:3])
        if threads <= bench.cpus and threads * chunk <= nbytes
    ]

    def best(grid: list[Ring]) -> list[Ring]:
        return sorted(grid, key=lambda ring: (prior.seconds(nbytes, ring), ring.cost()))[: most // 2]

    found = [default, *best(by_engine), *best(by_kernel)]
    if links := bench.helpers + 1 if bench.helpers else 0:
        helped = [replace(ring, links=links) for ring in by_engine if ring.threads * links <= bench.cpus]
        # The model knows no caches, which decide how large a ring of several links may be.
        spread = [ring for ring in helped if ring.threads in _SPREAD_THREADS and ring.chunk in _SPREAD_CHUNKS]
        found += [*best(helped), *spread]
    return list(dict.fromkeys(found))


def neighbours(ring: Ring, bench: Bench, nbytes: int) -> Iterator[Ring]:
    """The candidates that differ in one knob by one step."""
    if ring.sm_blocks:
        yield from (replace(ring, threads=one) for one in beside(THREADS, ring.threads) if one <= bench.cpus)
        yield from (replace(ring, sm_blocks=one) for one in beside(SM_BLOCKS, ring.sm_blocks))
        yield from (replace(ring, sm_chunk=one) for one in beside(SM_CHUNKS, ring.sm_chunk) if one <= nbytes)
        return
    yield from (replace(ring, links=one) for one in (ring.links - 1, ring.links + 1) if 1 <= one <= bench.helpers + 1)
    for threads in beside(THREADS, ring.threads):
        if threads <= bench.cpus and threads * ring.depth <= bench.slots:
            yield replace(ring, threads=threads)
    yield from (replace(ring, chunk=chunk) for chunk in beside(CHUNKS, ring.chunk) if chunk <= nbytes)
    for depth in beside(DEPTHS, ring.depth):
        if ring.threads * depth <= bench.slots:
            yield replace(ring, depth=depth)
    yield from (replace(ring, piece=piece) for piece in PIECES if piece != ring.piece and piece < ring.chunk)
    if ring.chunks_each != 1:
        yield replace(ring, chunks_each=1)


def beside(steps: tuple[int, ...], value: int) -> list[int]:
    """The next smaller and the next larger step."""
    return [one for one in steps if one < value][-1:] + [one for one in steps if one > value][:1]
