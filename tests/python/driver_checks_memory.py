"""Checks (driver_checks.py) of memory: allocated, registered, managed, from pools and mapped virtual memory."""

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p

import driver_shares
from driver_by_ctypes import (
    ALREADY_REGISTERED,
    INVALID_CONTEXT,
    INVALID_VALUE,
    MIB,
    NOT_REGISTERED,
    OUT_OF_MEMORY,
    PORTABLE_AND_MAPPED,
    VERSIONS,
    Driver,
    Gpu,
    Location,
)
from driver_shares import IpcHandle


def memory_ends(driver: Driver, gpu: Gpu) -> None:
    free, total, pointer = c_size_t(), c_size_t(), gpu.memory(64 * MIB)
    driver.ok("cuMemGetInfo", byref(free), byref(total))
    assert free.value <= total.value - 64 * MIB
    assert driver.cuMemAlloc(byref(c_uint64()), c_size_t(total.value)) == OUT_OF_MEMORY
    assert driver.cuMemAlloc(byref(c_uint64()), c_size_t(0)) == INVALID_VALUE
    driver.ok("cuMemFree", pointer)


def prefetches_move_managed_pages_to_their_target(driver: Driver, gpu: Gpu) -> None:
    if driver.version.value < VERSIONS["cuMemPrefetchAsync"]:
        return
    pointer, size, stream = c_uint64(), 4 * MIB, gpu.stream()
    driver.ok("cuMemAllocManaged", byref(pointer), c_size_t(size), c_uint(1))
    seen = (c_char * size).from_address(pointer.value or 0)
    ctypes.memset(seen, 7, size)
    on_gpu, on_host = Location(1, 0), Location(2, 0)
    for place in (on_gpu, on_host, on_gpu):
        driver.ok("cuMemPrefetchAsync", pointer, c_size_t(size), place, c_uint(0), stream)
    driver.ok("cuStreamSynchronize", stream)
    assert bytes(seen) == bytes([7]) * size
    assert driver.cuMemPrefetchAsync(pointer, c_size_t(size), on_gpu, c_uint(1), stream) == INVALID_VALUE
    assert driver.cuMemPrefetchAsync(gpu.memory(MIB), c_size_t(MIB), on_host, c_uint(0), stream) == INVALID_VALUE
    driver.ok("cuMemFree", pointer)


def advice_is_set_and_unset(driver: Driver, gpu: Gpu) -> None:
    if driver.version.value < VERSIONS["cuMemAdvise"]:
        return
    pointer, size = c_uint64(), 4 * MIB
    driver.ok("cuMemAllocManaged", byref(pointer), c_size_t(size), c_uint(1))
    on_gpu, on_host, on_node = Location(1, 0), Location(2, 0), Location(3, 0)
    for unset in (2, 4, 6, 2):  # also advice that was never set
        driver.ok("cuMemAdvise", pointer, c_size_t(size), c_uint(unset), on_gpu)
    for advice, place in ((1, on_node), (3, on_node), (3, on_gpu), (5, on_gpu), (5, on_host)):
        driver.ok("cuMemAdvise", pointer, c_size_t(size), c_uint(advice), place)
        driver.ok("cuMemAdvise", pointer, c_size_t(size), c_uint(advice + 1), place)
    assert (
        driver.cuMemAdvise(pointer, c_size_t(size), c_uint(5), on_node) != 0
    )  # the accessing processor cannot be a NUMA node
    driver.ok("cuMemFree", pointer)


def batched_prefetches_move_pages_that_are_not_discarded(driver: Driver, gpu: Gpu) -> None:
    if driver.version.value < VERSIONS["cuMemPrefetchBatchAsync"]:
        return
    pointer, size, stream, count = c_uint64(), 4 * MIB, gpu.stream(), 4
    driver.ok("cuMemAllocManaged", byref(pointer), c_size_t(size), c_uint(1))
    start = pointer.value or 0
    seen = (c_char * size).from_address(start)
    ctypes.memset(seen, 7, size)
    starts = (c_uint64 * count)(*(start + at * MIB for at in range(count)))
    lengths, first, flags = (c_size_t * count)(*[MIB] * count), c_size_t(0), c_uint64(0)
    for place in (Location(1, 0), Location(2, 0)):
        ranges = (starts, lengths, c_size_t(count), byref(place), byref(first), c_size_t(1), flags, stream)
        driver.ok("cuMemPrefetchBatchAsync", *ranges)
    driver.ok("cuStreamSynchronize", stream)
    assert bytes(seen) == bytes([7]) * size
    driver.ok("cuMemDiscardAndPrefetchBatchAsync", *ranges)
    driver.ok("cuMemDiscardBatchAsync", starts, lengths, c_size_t(count), flags, stream)
    driver.ok("cuMemPrefetchBatchAsync", *ranges)
    driver.ok("cuStreamSynchronize", stream)
    ctypes.memset(seen, 9, size)  # written after the discard, so these bytes must stay
    assert bytes(seen) == bytes([9]) * size
    driver.ok("cuMemFree", pointer)


def memory_is_registered_and_unregistered_once(driver: Driver, gpu: Gpu) -> None:
    memory, pointer = (c_char * (4 * MIB))(), c_uint64()
    arguments = (memory, c_size_t(4 * MIB), c_uint(PORTABLE_AND_MAPPED))
    driver.ok("cuMemHostRegister", *arguments)
    assert driver.cuMemHostRegister(*arguments) == ALREADY_REGISTERED
    driver.ok("cuMemHostGetDevicePointer", byref(pointer), memory, c_uint(0))
    assert pointer.value == ctypes.addressof(memory)
    driver.ok("cuMemHostUnregister", memory)
    assert driver.cuMemHostUnregister(memory) == NOT_REGISTERED


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of a device, and the handle types for its export."""

    _fields_ = [
        ("type", c_int), ("handles", c_int), ("location", Location), ("security", c_void_p), ("flags", c_uint64)
    ]  # fmt: skip


DEVICE, READ_AND_WRITE, PINNED, RELEASE_THRESHOLD, DESCRIPTOR = 1, 3, 1, 4, 1


def pools_keep_what_is_freed(driver: Driver, gpu: Gpu) -> None:
    pool, stream, pointer, large = c_void_p(), gpu.stream(), c_uint64(), 512 * MIB

    def free() -> int:
        now, total = c_size_t(), c_size_t()
        driver.ok("cuMemGetInfo", byref(now), byref(total))
        return now.value

    driver.ok("cuDeviceGetDefaultMemPool", byref(pool), c_int(0))
    driver.ok("cuMemPoolSetAttribute", pool, c_int(RELEASE_THRESHOLD), byref(c_uint64(2**64 - 1)))
    before = free()
    driver.ok("cuMemAllocAsync", byref(pointer), c_size_t(large), stream)
    driver.ok("cuMemsetD8Async", pointer, c_uint(1), c_size_t(large), stream)
    driver.ok("cuMemFreeAsync", pointer, stream)
    driver.ok("cuStreamSynchronize", stream)
    assert before - free() >= large, "the pool keeps the memory"
    driver.ok("cuMemPoolTrimTo", pool, c_size_t(0))
    assert before - free() < large // 2
    assert driver.cuMemFreeAsync(pointer, stream) == INVALID_VALUE


def virtual_memory_is_made_mapped_and_granted(driver: Driver, gpu: Gpu) -> None:
    what, granule, handle, at = Properties(PINNED, 0, Location(DEVICE, 0)), c_size_t(), c_uint64(), c_uint64()
    driver.ok("cuMemGetAllocationGranularity", byref(granule), byref(what), c_uint(0))
    assert granule.value % (64 << 10) == 0
    size, stream = c_size_t(granule.value), gpu.stream()
    driver.ok("cuMemCreate", byref(handle), size, byref(what), c_uint64(0))
    assert driver.cuMemCreate(byref(c_uint64()), c_size_t(granule.value + 8), byref(what), c_uint64(0)) == INVALID_VALUE
    driver.ok("cuMemAddressReserve", byref(at), size, c_size_t(0), c_uint64(0), c_uint64(0))
    driver.ok("cuMemMap", at, size, c_size_t(0), handle, c_uint64(0))
    access = Access(Location(DEVICE, 0), READ_AND_WRITE)
    driver.ok("cuMemSetAccess", at, size, byref(access), c_size_t(1))
    driver.ok("cuMemsetD8Async", at, c_uint(7), size, stream)
    driver.ok("cuStreamSynchronize", stream)
    back = gpu.pinned(granule.value)
    driver.ok("cuMemcpyDtoH", back, at, size)
    assert back.raw == b"\x07" * granule.value
    driver.ok("cuMemUnmap", at, size)
    driver.ok("cuMemAddressFree", at, size)
    driver.ok("cuMemRelease", handle)


def an_exported_descriptor_maps_the_same_memory(driver: Driver, gpu: Gpu) -> None:
    what, granule = Properties(PINNED, DESCRIPTOR, Location(DEVICE, 0)), c_size_t()
    handle, again = c_uint64(), c_uint64()
    driver.ok("cuMemGetAllocationGranularity", byref(granule), byref(what), c_uint(0))
    size, stream, access = c_size_t(granule.value), gpu.stream(), Access(Location(DEVICE, 0), READ_AND_WRITE)
    number, at, back = c_int(-1), (c_uint64 * 2)(), gpu.pinned(granule.value)
    driver.ok("cuMemCreate", byref(handle), size, byref(what), c_uint64(0))
    driver.ok("cuMemExportToShareableHandle", byref(number), handle, c_int(DESCRIPTOR), c_uint64(0))
    driver.ok("cuMemImportFromShareableHandle", byref(again), c_void_p(number.value), c_int(DESCRIPTOR))
    os.close(number.value)
    for i, one in enumerate((handle, again)):
        start = c_uint64()
        driver.ok("cuMemAddressReserve", byref(start), size, c_size_t(0), c_uint64(0), c_uint64(0))
        at[i] = start.value
        driver.ok("cuMemMap", start, size, c_size_t(0), one, c_uint64(0))
        driver.ok("cuMemSetAccess", start, size, byref(access), c_size_t(1))
    driver.ok("cuMemsetD8Async", c_uint64(at[1]), c_uint(9), size, stream)
    driver.ok("cuStreamSynchronize", stream)
    driver.ok("cuMemcpyDtoH", back, c_uint64(at[0]), size)
    assert back.raw == b"\x09" * granule.value
    for start, one in zip(at, (handle, again), strict=True):
        driver.ok("cuMemUnmap", c_uint64(start), size)
        driver.ok("cuMemAddressFree", c_uint64(start), size)
        driver.ok("cuMemRelease", one)


def a_process_does_not_open_its_own_handles(driver: Driver, gpu: Gpu) -> None:
    pointer, handle = c_uint64(), IpcHandle()
    driver.ok("cuMemAlloc", byref(pointer), c_size_t(2 * MIB))
    driver.ok("cuIpcGetMemHandle", byref(handle), pointer)
    assert driver.cuIpcOpenMemHandle(byref(c_uint64()), handle, c_uint(1)) == INVALID_CONTEXT
    driver.ok("cuMemFree", pointer)


LAZY_PEER_ACCESS, ILLEGAL_ADDRESS = c_uint(1), 700


@contextlib.contextmanager
def shared_by_another_process() -> Iterator[tuple[IpcHandle, list[int]]]:
    """The IPC handle. At the end, the list holds the first word as the other process sees it."""
    command = [sys.executable, driver_shares.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin and other.stdout
        seen: list[int] = []
        yield IpcHandle.from_buffer_copy(bytes.fromhex(other.stdout.readline())), seen
        other.stdin.close()
        seen.append(int(other.stdout.read()))


def fill(driver: Driver, gpu: Gpu, at: c_uint64) -> int:
    """The status of waiting for a kernel that fills 2 MiB with a pattern."""
    gpu.use()
    stream = gpu.stream()
    words, seed, first = c_uint64(2 * MIB // 8), c_uint64(42), c_uint64(7)
    assert gpu.launch(gpu.function("pattern", "linkscope_fill"), stream, at, words, seed, first) == 0
    return driver.cuStreamSynchronize(stream)


def shared_memory_of_another_process_is_opened_by_each_gpu(driver: Driver, gpu: Gpu) -> None:
    peer, at, again, word = Gpu(driver, gpu.code, 1), (c_uint64(), c_uint64()), c_uint64(), c_uint64()
    with shared_by_another_process() as (handle, seen):
        for one, pointer in zip((gpu, peer), at, strict=True):
            one.use()
            driver.ok("cuIpcOpenMemHandle", byref(pointer), handle, LAZY_PEER_ACCESS)
        driver.ok("cuIpcOpenMemHandle", byref(again), handle, LAZY_PEER_ACCESS)
        assert again.value == at[1].value
        assert fill(driver, peer, at[1]) == 0
        gpu.use()
        driver.ok("cuMemcpyDtoH", byref(word), at[0], c_size_t(8))
        for one, pointer, times in ((peer, at[1], 2), (gpu, at[0], 1)):
            one.use()
            for _ in range(times):
                driver.ok("cuIpcCloseMemHandle", pointer)
    assert seen == [word.value] != [0]


def shared_memory_opened_by_one_gpu_is_out_of_reach_of_another(driver: Driver, gpu: Gpu) -> None:
    """Peer access does not help. The error stays in the context."""
    peer, at = Gpu(driver, gpu.code, 1), c_uint64()
    with shared_by_another_process() as (handle, _):
        driver.ok("cuCtxEnablePeerAccess", gpu.context, c_uint(0))
        gpu.use()
        driver.ok("cuIpcOpenMemHandle", byref(at), handle, LAZY_PEER_ACCESS)
        assert fill(driver, peer, at) == ILLEGAL_ADDRESS
