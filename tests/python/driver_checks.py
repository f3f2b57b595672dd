"""What linkscope relies on in a CUDA driver, one function each, by ctypes alone. They hold of the fake driver
(test_fake_cuda.py) and have to hold of a real one (tests/gpu/test_driver.py), so that the fake is no invention.

Usage: python driver_checks.py FOLDER_OF_DEVICE_CODE NAME...      (no name: all; exit code 1: one did not hold)
"""

import ctypes
import sys
import time
import traceback
from collections.abc import Callable
from ctypes import byref, c_char, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_CONTEXT, NO_BINARY, INVALID_HANDLE = 1, 2, 200, 201, 209, 400
NOT_FOUND, NOT_READY, PEER_ALREADY_ENABLED, PEER_NOT_ENABLED = 500, 600, 704, 705
ALREADY_REGISTERED, NOT_REGISTERED = 712, 713
NON_BLOCKING = 1
PORTABLE_AND_MAPPED = 3
MIB = 1 << 20

# The version with which linkscope asks for each (core/platform/cuda/driver.hpp).
VERSIONS = {
    "cuDeviceGetCount": 2000, "cuDeviceGetAttribute": 2000, "cuDeviceGetPCIBusId": 4010,
    "cuDevicePrimaryCtxRetain": 7000, "cuCtxSetCurrent": 4000, "cuCtxEnablePeerAccess": 4000,
    "cuCtxDisablePeerAccess": 4000, "cuMemGetInfo": 3020, "cuMemAlloc": 3020, "cuMemFree": 3020,
    "cuMemHostAlloc": 2020, "cuMemFreeHost": 2000, "cuMemHostRegister": 6050, "cuMemHostUnregister": 4000,
    "cuMemHostGetDevicePointer": 3020, "cuMemcpyHtoDAsync": 3020, "cuMemcpyDtoHAsync": 3020,
    "cuMemcpyDtoDAsync": 3020, "cuMemcpyPeerAsync": 4000, "cuMemcpyHtoD": 3020, "cuMemcpyDtoH": 3020,
    "cuMemsetD8Async": 3020, "cuStreamCreate": 2000, "cuStreamDestroy": 4000, "cuStreamSynchronize": 2000,
    "cuStreamQuery": 2000, "cuStreamWaitEvent": 3020, "cuStreamWaitValue32": 11070, "cuEventCreate": 2000,
    "cuEventRecord": 2000, "cuEventQuery": 2000, "cuEventSynchronize": 2000, "cuEventElapsedTime": 2000,
    "cuModuleLoadData": 2000, "cuModuleGetFunction": 2000, "cuLaunchKernel": 4000,
    "cuMemAllocManaged": 6000, "cuMemPrefetchAsync": 12020, "cuMemAdvise": 12020, "cuMemPrefetchBatchAsync": 13000,
    "cuMemDiscardBatchAsync": 13000, "cuMemDiscardAndPrefetchBatchAsync": 13000,
    "cuMemcpy2DAsync": 3020, "cuMemcpy3DAsync": 3020,
    "cuMemcpyBatchAsync": 13000, "cuCtxSynchronize": 2000, "cuGraphCreate": 10000, "cuGraphAddMemcpyNode": 10000,
    "cuGraphAddKernelNode": 12000, "cuGraphInstantiateWithFlags": 11040, "cuGraphUpload": 11010,
    "cuGraphLaunch": 10000, "cuGraphExecMemcpyNodeSetParams": 10020, "cuGraphExecDestroy": 10000,
    "cuGraphDestroy": 10000,
    "cuMemAllocAsync": 11020, "cuMemFreeAsync": 11020, "cuDeviceGetDefaultMemPool": 11020,
    "cuMemPoolSetAttribute": 11020, "cuMemPoolSetAccess": 11020, "cuMemPoolTrimTo": 11020,
    "cuMemGetAllocationGranularity": 10020, "cuMemCreate": 10020, "cuMemRelease": 10020, "cuMemAddressReserve": 10020,
    "cuMemAddressFree": 10020, "cuMemMap": 10020, "cuMemUnmap": 10020, "cuMemSetAccess": 10020,
}  # fmt: skip


class Driver:
    """Calls by name; `driver.cuMemAlloc(...)` gives the status, `driver.ok("cuMemAlloc", ...)` insists on success."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        self.get_proc_address = library.cuGetProcAddress_v2
        self.get_proc_address.argtypes = [c_void_p, c_void_p, c_int, c_uint64, c_void_p]
        self.version = c_int()
        library.cuDriverGetVersion(byref(self.version))
        assert library.cuInit(0) == 0

    def find(self, symbol: str, version: int) -> tuple[int, int | None, int]:
        """Status, address and what the search says of itself."""
        address, result = c_void_p(), c_int(-1)
        status = self.get_proc_address(symbol.encode(), byref(address), version, 0, byref(result))
        return status, address.value, result.value

    def __getattr__(self, symbol: str) -> Callable[..., int]:
        _, address, _ = self.find(symbol, VERSIONS[symbol])
        assert address, f"{symbol} is missing"
        return ctypes.CFUNCTYPE(c_int)(address)

    def ok(self, symbol: str, *arguments: object) -> None:
        status = getattr(self, symbol)(*arguments)
        assert status == 0, f"{symbol}: {status}"


class Gpu:
    """A device with its context current, and what the checks need of it."""

    def __init__(self, driver: Driver, code: Path, ordinal: int = 0) -> None:
        self.driver, self.context = driver, c_void_p()
        driver.ok("cuDevicePrimaryCtxRetain", byref(self.context), c_int(ordinal))
        self.use()
        major, minor = c_int(), c_int()
        driver.ok("cuDeviceGetAttribute", byref(major), c_int(75), c_int(ordinal))
        driver.ok("cuDeviceGetAttribute", byref(minor), c_int(76), c_int(ordinal))
        self.arch, self.code = major.value * 10 + minor.value, code

    def use(self) -> None:
        self.driver.ok("cuCtxSetCurrent", self.context)

    def stream(self) -> c_void_p:
        stream = c_void_p()
        self.driver.ok("cuStreamCreate", byref(stream), c_uint(NON_BLOCKING))
        return stream

    def event(self) -> c_void_p:
        event = c_void_p()
        self.driver.ok("cuEventCreate", byref(event), c_uint(0))
        return event

    def memory(self, size: int) -> c_uint64:
        pointer = c_uint64()
        self.driver.ok("cuMemAlloc", byref(pointer), c_size_t(size))
        return pointer

    def pinned(self, size: int) -> "ctypes.Array[c_char]":
        address = c_void_p()
        self.driver.ok("cuMemHostAlloc", byref(address), c_size_t(size), c_uint(PORTABLE_AND_MAPPED))
        return (c_char * size).from_address(address.value or 0)

    def function(self, module: str, name: str) -> c_void_p:
        image, handle, function = (self.code / f"{module}.sm_{self.arch}").read_bytes(), c_void_p(), c_void_p()
        self.driver.ok("cuModuleLoadData", byref(handle), image)
        self.driver.ok("cuModuleGetFunction", byref(function), handle, name.encode())
        return function

    def launch(self, function: c_void_p, stream: c_void_p, *arguments: object) -> int:
        addresses = (c_void_p * max(1, len(arguments)))(*(ctypes.addressof(a) for a in arguments))  # type: ignore[arg-type]
        shape = [c_uint(1)] * 3 + [c_uint(32), c_uint(1), c_uint(1), c_uint(0)]
        return self.driver.cuLaunchKernel(function, *shape, stream, addresses, None)


class Gate:
    """linkscope's gate kernel, closed until `open`."""

    def __init__(self, gpu: Gpu) -> None:
        self.page, self.gpu = gpu.pinned(4096), gpu
        self.kernel = gpu.function("gate", "linkscope_gate")
        # The first launch of a kernel may wait for the device: not behind a closed gate.
        stream = gpu.stream()
        self.open()
        self.close_on(stream, 1.0)
        gpu.driver.ok("cuStreamSynchronize", stream)

    def close_on(self, stream: c_void_p, timeout_s: float) -> None:
        word, flag = c_uint64(ctypes.addressof(self.page)), c_uint64(ctypes.addressof(self.page) + 256)
        assert self.gpu.launch(self.kernel, stream, word, c_uint64(int(timeout_s * 1e9)), flag) == 0

    def close(self) -> None:
        ctypes.memset(self.page, 0, 512)

    def open(self) -> None:
        self.page[0] = b"\x01"

    @property
    def timed_out(self) -> bool:
        return self.page[256] != b"\x00"


def seconds(call: Callable[[], None]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


# --- the checks ---------------------------------------------------------------------------------------------------


def symbols_have_versions(driver: Driver, gpu: Gpu) -> None:
    assert driver.find("cuNoSuchThing", 12000) == (0, None, 1)
    assert driver.find("cuMemcpyPeerAsync", 3000) == (0, None, 2)
    assert driver.find("cuMemcpyPeerAsync", driver.version.value)[0] == 0
    for symbol, version in VERSIONS.items():
        assert driver.find(symbol, version)[1] or version > driver.version.value, symbol


def buses_are_upper_case(driver: Driver, gpu: Gpu) -> None:
    text = ctypes.create_string_buffer(32)
    driver.ok("cuDeviceGetPCIBusId", text, c_int(32), c_int(0))
    assert len(text.value) == 12 and text.value == text.value.upper() and text.value[-2:-1] == b".", text.value


def calls_need_a_context(driver: Driver, gpu: Gpu) -> None:
    driver.ok("cuCtxSetCurrent", c_void_p())
    assert driver.cuMemAlloc(byref(c_uint64()), c_size_t(8)) == INVALID_CONTEXT
    gpu.use()


def queued_work_waits_for_the_gate(driver: Driver, gpu: Gpu) -> None:
    gate, stream, host, device = Gate(gpu), gpu.stream(), gpu.pinned(MIB), gpu.memory(MIB)
    before, after, back = gpu.event(), gpu.event(), gpu.pinned(MIB)
    ctypes.memset(host, 0x5A, MIB)
    gate.close()
    gate.close_on(stream, 10.0)
    driver.ok("cuEventRecord", before, stream)
    driver.ok("cuMemcpyHtoDAsync", device, host, c_size_t(MIB), stream)
    driver.ok("cuMemcpyDtoHAsync", back, device, c_size_t(MIB), stream)
    driver.ok("cuEventRecord", after, stream)
    time.sleep(0.05)
    assert driver.cuStreamQuery(stream) == NOT_READY and driver.cuEventQuery(after) == NOT_READY
    assert driver.cuEventElapsedTime(byref(c_float()), before, after) == NOT_READY
    gate.open()
    driver.ok("cuStreamSynchronize", stream)
    assert driver.cuStreamQuery(stream) == 0 and not gate.timed_out and back.raw == host.raw
    elapsed = c_float(-1)
    driver.ok("cuEventElapsedTime", byref(elapsed), before, after)
    assert 0 < elapsed.value < 1000  # not the gate's 10 s


def gates_time_out(driver: Driver, gpu: Gpu) -> None:
    gate, stream = Gate(gpu), gpu.stream()
    gate.close()
    gate.close_on(stream, 0.1)
    assert 0.08 < seconds(lambda: driver.ok("cuStreamSynchronize", stream)) < 5.0
    assert gate.timed_out


def streams_wait_for_values(driver: Driver, gpu: Gpu) -> None:
    word, stream = gpu.pinned(4096), gpu.stream()
    ctypes.memset(word, 0, 4096)
    driver.ok("cuStreamWaitValue32", stream, c_uint64(ctypes.addressof(word)), c_uint(1), c_uint(0))
    time.sleep(0.05)
    assert driver.cuStreamQuery(stream) == NOT_READY
    word[0] = b"\x01"
    driver.ok("cuStreamSynchronize", stream)


def only_pageable_copies_block(driver: Driver, gpu: Gpu) -> None:
    large = 64 * MIB  # less fits into the driver's staging buffers, and then a copy to the GPU need not wait for it
    gate, stream, device = Gate(gpu), gpu.stream(), gpu.memory(large)
    pageable, registered, pinned = (c_char * large)(), (c_char * (4 * MIB))(), gpu.pinned(MIB)
    driver.ok("cuMemHostRegister", registered, c_size_t(4 * MIB), c_uint(PORTABLE_AND_MAPPED))

    def behind_gate(name: str, *arguments: object, count: int = MIB) -> float:
        gate.close()
        gate.close_on(stream, 0.2)
        took = seconds(lambda: driver.ok(name, *arguments, c_size_t(count), stream))
        driver.ok("cuStreamSynchronize", stream)
        return took

    behind_gate("cuMemcpyHtoDAsync", device, pageable)  # the first one makes the driver's staging buffers
    assert behind_gate("cuMemcpyHtoDAsync", device, pageable, count=large) > 0.15
    assert behind_gate("cuMemcpyDtoHAsync", pageable, device) > 0.15
    for host in (registered, pinned):
        assert behind_gate("cuMemcpyHtoDAsync", device, host) < 0.1
        assert behind_gate("cuMemcpyDtoHAsync", host, device) < 0.1
    driver.ok("cuMemHostUnregister", registered)


def streams_wait_for_events(driver: Driver, gpu: Gpu) -> None:
    gate, first, second, event, last = Gate(gpu), gpu.stream(), gpu.stream(), gpu.event(), gpu.event()
    gate.close()
    gate.close_on(first, 10.0)
    driver.ok("cuEventRecord", event, first)
    driver.ok("cuStreamWaitEvent", second, event, c_uint(0))
    driver.ok("cuEventRecord", last, second)
    time.sleep(0.05)
    assert driver.cuEventQuery(last) == NOT_READY
    gate.open()
    driver.ok("cuEventSynchronize", last)
    elapsed = c_float(-1)
    driver.ok("cuEventElapsedTime", byref(elapsed), event, last)
    assert elapsed.value >= 0


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS of CUDA 12."""

    _fields_ = (
        ("function", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint),
        ("parameters", c_void_p), ("extra", c_void_p), ("kernel", c_void_p), ("context", c_void_p),
    )  # fmt: skip


def graphs_run_in_their_stream_as_often_as_they_are_launched(driver: Driver, gpu: Gpu) -> None:
    """Calls that queue a graph return while its stream is held; a destroyed graph leaves what it was made into."""
    gate, stream, pinned = Gate(gpu), gpu.stream(), gpu.pinned(4096)
    ctypes.memset(pinned, 0, 4096)
    word, steps, system = c_uint64(ctypes.addressof(pinned)), c_uint64(5), c_uint(0)
    parameters = (c_void_p * 3)(*(ctypes.addressof(argument) for argument in (word, steps, system)))
    node = KernelNode(gpu.function("atomics", "linkscope_add_chain"), (1, 1, 1), (1, 1, 1), 0)
    node.parameters = ctypes.addressof(parameters)
    graph, ready, before = c_void_p(), c_void_p(), c_void_p()
    driver.ok("cuGraphCreate", byref(graph), c_uint(0))
    for count in (0, 1, 1):
        added = c_void_p()
        driver.ok("cuGraphAddKernelNode", byref(added), graph, byref(before), c_size_t(count), byref(node))
        before = added
    driver.ok("cuGraphInstantiateWithFlags", byref(ready), graph, c_uint64(0))
    driver.ok("cuGraphDestroy", graph)
    driver.ok("cuGraphUpload", ready, stream)
    driver.ok("cuGraphLaunch", ready, stream)  # the first one may wait for the device
    driver.ok("cuCtxSynchronize")
    gate.close()
    gate.close_on(stream, 10.0)
    for _ in range(3):
        driver.ok("cuGraphLaunch", ready, stream)
    assert driver.cuStreamQuery(stream) == NOT_READY
    assert int.from_bytes(pinned[:8], "little") == 3 * 5
    gate.open()
    driver.ok("cuStreamSynchronize", stream)
    assert int.from_bytes(pinned[:8], "little") == (1 + 3) * 3 * 5
    driver.ok("cuGraphExecDestroy", ready)


def words_go_round_and_who_waits_in_vain_gives_up(driver: Driver, gpu: Gpu) -> None:
    pinned, flags = gpu.pinned(4096), gpu.function("flags", "linkscope_flags")
    ctypes.memset(pinned, 0, 4096)
    start = ctypes.addressof(pinned)
    ping, pong, first_gave_up, second_gave_up = (c_uint64(start + 512 * at) for at in range(4))
    one, count, timeout = c_uint64(1), c_uint64(1000), c_uint64(2 * 10**9)

    def value(at: int) -> int:
        return int.from_bytes(pinned[512 * at : 512 * at + 8], "little")

    def start_on(stream: c_void_p, put: c_uint64, look: c_uint64, waits: int, gave_up: c_uint64) -> None:
        arguments = (put, one, one, look, one, one, count, c_uint(waits), timeout, gave_up)
        addresses = (c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        shape = [c_uint(1)] * 6 + [c_uint(0)]
        assert driver.cuLaunchKernel(flags, *shape, stream, addresses, None) == 0

    streams = gpu.stream(), gpu.stream()
    start_on(streams[0], ping, pong, 0, first_gave_up)
    start_on(streams[1], pong, ping, 1, second_gave_up)
    driver.ok("cuCtxSynchronize")
    assert [value(at) for at in range(4)] == [1000, 1000, 0, 0]
    ctypes.memset(pinned, 0, 4096)
    timeout = c_uint64(50 * 10**6)
    began = time.monotonic()
    start_on(streams[0], ping, pong, 0, first_gave_up)
    driver.ok("cuCtxSynchronize")
    assert 0.05 <= time.monotonic() - began < 5
    assert [value(at) for at in range(4)] == [1, 0, 1, 0]


def events_without_a_record_have_no_time(driver: Driver, gpu: Gpu) -> None:
    event = gpu.event()
    assert driver.cuEventQuery(event) == 0
    assert driver.cuEventElapsedTime(byref(c_float()), event, event) == INVALID_HANDLE


def memory_ends(driver: Driver, gpu: Gpu) -> None:
    free, total, pointer = c_size_t(), c_size_t(), gpu.memory(64 * MIB)
    driver.ok("cuMemGetInfo", byref(free), byref(total))
    assert free.value <= total.value - 64 * MIB
    assert driver.cuMemAlloc(byref(c_uint64()), c_size_t(total.value)) == OUT_OF_MEMORY
    assert driver.cuMemAlloc(byref(c_uint64()), c_size_t(0)) == INVALID_VALUE
    driver.ok("cuMemFree", pointer)


def copies_stay_inside(driver: Driver, gpu: Gpu) -> None:
    stream, host, device = gpu.stream(), gpu.pinned(4 * MIB), gpu.memory(2 * MIB)
    assert driver.cuMemcpyHtoDAsync(device, host, c_size_t(4 * MIB), stream) == INVALID_VALUE
    assert driver.cuMemcpyHtoDAsync(c_uint64(0), host, c_size_t(8), stream) == INVALID_VALUE
    driver.ok("cuMemcpyHtoDAsync", device, host, c_size_t(0), stream)


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("type", c_int), ("id", c_int)]


def managed_pages_go_where_they_are_told_to(driver: Driver, gpu: Gpu) -> None:
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


class Pitched(ctypes.Structure):
    """CUDA_MEMCPY3D, of which a CUDA_MEMCPY2D lacks some."""

    _fields_ = [
        *((f"src{name}", c_size_t) for name in ("X", "Y", "Z", "LOD")), ("srcType", c_int), ("srcHost", c_void_p),
        ("srcDevice", c_uint64), ("srcArray", c_void_p), ("reserved0", c_void_p), ("srcPitch", c_size_t),
        ("srcHeight", c_size_t),
        *((f"dst{name}", c_size_t) for name in ("X", "Y", "Z", "LOD")), ("dstType", c_int), ("dstHost", c_void_p),
        ("dstDevice", c_uint64), ("dstArray", c_void_p), ("reserved1", c_void_p), ("dstPitch", c_size_t),
        ("dstHeight", c_size_t),
        ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t),
    ]  # fmt: skip


UNIFIED = 4  # CU_MEMORYTYPE_UNIFIED: also an address of pinned memory


def rows_of(dst: c_uint64, src: "ctypes.Array[c_char]") -> Pitched:
    """Two planes of four rows of 8 bytes: every 32 bytes, planes 256 apart, go to every 16 bytes, planes 64 apart."""
    return Pitched(
        srcType=UNIFIED, srcDevice=ctypes.addressof(src), srcPitch=32, srcHeight=8,
        dstType=UNIFIED, dstDevice=dst.value, dstPitch=16, dstHeight=4, width=8, height=4, depth=2,
    )  # fmt: skip


def seen_on(driver: Driver, device: c_uint64, size: int) -> bytes:
    back = ctypes.create_string_buffer(size)
    driver.ok("cuMemcpyDtoH", back, device, c_size_t(size))
    return back.raw


def rows_lie_where_they_are_told_to(driver: Driver, gpu: Gpu) -> None:
    stream, host, device = gpu.stream(), gpu.pinned(4096), gpu.memory(4096)
    for i in range(512):
        host[i] = bytes([i // 2])
    driver.ok("cuMemsetD8Async", device, ctypes.c_ubyte(0xEE), c_size_t(256), stream)
    copy = rows_of(device, host)
    driver.ok("cuMemcpy3DAsync", byref(copy), stream)
    driver.ok("cuStreamSynchronize", stream)
    rows = [host.raw[256 * plane + 32 * row :][:8] for plane in range(2) for row in range(4)]
    assert seen_on(driver, device, 256) == b"".join(row + b"\xee" * 8 for row in rows) + b"\xee" * 128
    copy.dstPitch = 4
    assert driver.cuMemcpy3DAsync(byref(copy), stream) == INVALID_VALUE


class Attributes(ctypes.Structure):
    """CUmemcpyAttributes."""

    _fields_ = [("order", c_int), ("src", Location), ("dst", Location), ("flags", c_uint)]


def a_batch_is_queued_by_one_call(driver: Driver, gpu: Gpu) -> None:
    if driver.version.value < VERSIONS["cuMemcpyBatchAsync"]:
        return
    gate, stream, host, device = Gate(gpu), gpu.stream(), gpu.pinned(4096), gpu.memory(4096)
    ctypes.memset(host, 0x5A, 4096)
    addresses, sizes = c_uint64 * 2, c_size_t * 2
    dsts = addresses(device.value, device.value + 64)
    srcs = addresses(ctypes.addressof(host), ctypes.addressof(host) + 512)
    how = Attributes(order=1)
    ends: tuple[object, ...] = (sizes(8, 16), c_size_t(2), byref(how), byref(c_size_t(0)), c_size_t(1))
    driver.ok("cuMemsetD8Async", device, ctypes.c_ubyte(0xEE), c_size_t(128), stream)
    gate.close()
    gate.close_on(stream, 10.0)
    took = seconds(lambda: driver.ok("cuMemcpyBatchAsync", dsts, srcs, *ends, stream))
    assert took < 1 and driver.cuStreamQuery(stream) == NOT_READY
    gate.open()
    driver.ok("cuStreamSynchronize", stream)
    assert seen_on(driver, device, 96) == b"Z" * 8 + b"\xee" * 56 + b"Z" * 16 + b"\xee" * 16
    assert driver.cuMemcpyBatchAsync(dsts, srcs, *ends, c_void_p()) != 0  # it wants a stream of its own


def graphs_of_copies_are_launched_again(driver: Driver, gpu: Gpu) -> None:
    stream, host, device = gpu.stream(), gpu.pinned(4096), gpu.memory(4096)
    graph, ready, nodes = c_void_p(), c_void_p(), [c_void_p(), c_void_p()]
    driver.ok("cuGraphCreate", byref(graph), c_uint(0))
    source = ctypes.addressof(host)
    copy = Pitched(
        srcType=UNIFIED, srcDevice=source, srcPitch=64, srcHeight=1, dstType=UNIFIED, dstDevice=device.value,
        dstPitch=64, dstHeight=1, width=64, height=1, depth=1,
    )  # fmt: skip
    driver.ok("cuGraphAddMemcpyNode", byref(nodes[0]), graph, None, c_size_t(0), byref(copy), gpu.context)
    copy.dstDevice += 128
    driver.ok("cuGraphAddMemcpyNode", byref(nodes[1]), graph, byref(nodes[0]), c_size_t(1), byref(copy), gpu.context)
    driver.ok("cuGraphInstantiateWithFlags", byref(ready), graph, c_uint64(0))
    driver.ok("cuGraphUpload", ready, stream)
    for value, second in ((1, 128), (2, 128), (3, 192)):
        ctypes.memset(host, value, 4096)
        driver.ok("cuMemsetD8Async", device, ctypes.c_ubyte(0xEE), c_size_t(256), stream)
        copy.dstDevice = (device.value or 0) + second  # between launches a node may be told of another copy
        driver.ok("cuGraphExecMemcpyNodeSetParams", ready, nodes[1], byref(copy), gpu.context)
        driver.ok("cuGraphUpload", ready, stream)
        driver.ok("cuGraphLaunch", ready, stream)
        driver.ok("cuStreamSynchronize", stream)
        copied = bytes([value]) * 64
        expected = bytearray(b"\xee" * 256)
        expected[:64] = expected[second : second + 64] = copied
        assert seen_on(driver, device, 256) == bytes(expected)
    driver.ok("cuGraphExecDestroy", ready)
    driver.ok("cuGraphDestroy", graph)


def advice_is_taken_and_taken_back(driver: Driver, gpu: Gpu) -> None:
    if driver.version.value < VERSIONS["cuMemAdvise"]:
        return
    pointer, size = c_uint64(), 4 * MIB
    driver.ok("cuMemAllocManaged", byref(pointer), c_size_t(size), c_uint(1))
    on_gpu, on_host, on_node = Location(1, 0), Location(2, 0), Location(3, 0)
    for unset in (2, 4, 6, 2):  # also what was never given
        driver.ok("cuMemAdvise", pointer, c_size_t(size), c_uint(unset), on_gpu)
    for advice, place in ((1, on_node), (3, on_node), (3, on_gpu), (5, on_gpu), (5, on_host)):
        driver.ok("cuMemAdvise", pointer, c_size_t(size), c_uint(advice), place)
        driver.ok("cuMemAdvise", pointer, c_size_t(size), c_uint(advice + 1), place)
    assert driver.cuMemAdvise(pointer, c_size_t(size), c_uint(5), on_node) != 0  # who accesses is no node
    driver.ok("cuMemFree", pointer)


def batches_of_prefetches_bring_what_is_not_discarded(driver: Driver, gpu: Gpu) -> None:
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
    ctypes.memset(seen, 9, size)  # any content until then, and this from now on
    assert bytes(seen) == bytes([9]) * size
    driver.ok("cuMemFree", pointer)


def registering_is_kept_in_books(driver: Driver, gpu: Gpu) -> None:
    memory, pointer = (c_char * (4 * MIB))(), c_uint64()
    arguments = (memory, c_size_t(4 * MIB), c_uint(PORTABLE_AND_MAPPED))
    driver.ok("cuMemHostRegister", *arguments)
    assert driver.cuMemHostRegister(*arguments) == ALREADY_REGISTERED
    driver.ok("cuMemHostGetDevicePointer", byref(pointer), memory, c_uint(0))
    assert pointer.value == ctypes.addressof(memory)
    driver.ok("cuMemHostUnregister", memory)
    assert driver.cuMemHostUnregister(memory) == NOT_REGISTERED


def patterns_are_filled_and_checked(driver: Driver, gpu: Gpu) -> None:
    words, stream, device, result = 4096, gpu.stream(), gpu.memory(8 * 4096), gpu.memory(16)
    fill, check = gpu.function("pattern", "linkscope_fill"), gpu.function("pattern", "linkscope_check")
    seed, first, count, found = c_uint64(42), c_uint64(7), c_uint64(words), (c_uint64 * 2)()

    def wrong() -> tuple[int, int]:
        driver.ok("cuMemsetD8Async", result, c_uint(0), c_size_t(8), stream)
        driver.ok("cuMemsetD8Async", c_uint64(result.value + 8), c_uint(255), c_size_t(8), stream)
        assert gpu.launch(check, stream, device, count, seed, first, result) == 0
        driver.ok("cuStreamSynchronize", stream)
        driver.ok("cuMemcpyDtoH", found, result, c_size_t(16))
        return found[0], found[1]

    assert gpu.launch(fill, stream, device, count, seed, first) == 0
    assert wrong() == (0, 2**64 - 1)
    for word in (100, 3000):
        driver.ok("cuMemsetD8Async", c_uint64(device.value + 8 * word + 3), c_uint(0), c_size_t(1), stream)
    driver.ok("cuStreamSynchronize", stream)
    assert wrong() == (2, 100)


def code_has_to_fit(driver: Driver, gpu: Gpu) -> None:
    module, function = c_void_p(), c_void_p()
    other = (gpu.code / ("gate.sm_70" if gpu.arch != 70 else "gate.sm_80")).read_bytes()
    assert driver.cuModuleLoadData(byref(module), other) == NO_BINARY
    assert driver.cuModuleLoadData(byref(module), b"neither PTX nor machine code" + bytes(256)) == INVALID_IMAGE
    driver.ok("cuModuleLoadData", byref(module), (gpu.code / f"gate.sm_{gpu.arch}").read_bytes())
    assert driver.cuModuleGetFunction(byref(function), module, b"linkscope_fill") == NOT_FOUND
    if gpu.arch >= 90:
        driver.ok("cuModuleLoadData", byref(module), (gpu.code / "gate.compute_90").read_bytes() + b"\0")
        driver.ok("cuModuleGetFunction", byref(function), module, b"linkscope_gate")


def peers_are_kept_in_books(driver: Driver, gpu: Gpu) -> None:
    other = Gpu(driver, gpu.code, 1)
    gpu.use()
    assert driver.cuCtxDisablePeerAccess(other.context) == PEER_NOT_ENABLED
    driver.ok("cuCtxEnablePeerAccess", other.context, c_uint(0))
    assert driver.cuCtxEnablePeerAccess(other.context, c_uint(0)) == PEER_ALREADY_ENABLED
    driver.ok("cuCtxDisablePeerAccess", other.context)


def devices_do_not_mix(driver: Driver, gpu: Gpu) -> None:
    other = Gpu(driver, gpu.code, 1)
    stream, event = other.stream(), other.event()
    gpu.use()
    mine, empty = gpu.event(), gpu.function("gate", "linkscope_empty")
    assert driver.cuEventRecord(mine, stream) == INVALID_HANDLE
    assert gpu.launch(empty, stream) == INVALID_HANDLE
    driver.ok("cuEventRecord", event, stream)
    own = gpu.stream()
    driver.ok("cuEventRecord", mine, own)
    for handle in (stream, own):
        driver.ok("cuStreamSynchronize", handle)
    assert driver.cuEventElapsedTime(byref(c_float()), event, mine) == INVALID_HANDLE


def data_goes_between_devices(driver: Driver, gpu: Gpu) -> None:
    other = Gpu(driver, gpu.code, 1)
    target = other.memory(MIB)
    gpu.use()
    stream, host, back, source = gpu.stream(), gpu.pinned(MIB), gpu.pinned(MIB), gpu.memory(MIB)

    def arrives(value: int, name: str, *arguments: object) -> None:
        ctypes.memset(host, value, MIB)
        driver.ok("cuMemcpyHtoDAsync", source, host, c_size_t(MIB), stream)
        driver.ok(name, *arguments, c_size_t(MIB), stream)
        driver.ok("cuMemcpyDtoHAsync", back, target, c_size_t(MIB), stream)
        driver.ok("cuStreamSynchronize", stream)
        assert back.raw == host.raw

    arrives(1, "cuMemcpyDtoDAsync", target, source)
    arrives(2, "cuMemcpyPeerAsync", target, other.context, source, gpu.context)
    driver.ok("cuCtxEnablePeerAccess", other.context, c_uint(0))
    arrives(3, "cuMemcpyDtoDAsync", target, source)
    driver.ok("cuCtxDisablePeerAccess", other.context)


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of a device, no handle to export."""

    _fields_ = [
        ("type", c_int), ("handles", c_int), ("location", Location), ("security", c_void_p), ("flags", c_uint64)
    ]  # fmt: skip


DEVICE, READ_AND_WRITE, PINNED, RELEASE_THRESHOLD = 1, 3, 1, 4


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
    assert before - free() >= large, "it is the pool's"
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


CHECKS = [
    symbols_have_versions, buses_are_upper_case, calls_need_a_context, queued_work_waits_for_the_gate, gates_time_out,
    streams_wait_for_values, only_pageable_copies_block, streams_wait_for_events, events_without_a_record_have_no_time,
    memory_ends, copies_stay_inside, managed_pages_go_where_they_are_told_to, advice_is_taken_and_taken_back,
    batches_of_prefetches_bring_what_is_not_discarded, rows_lie_where_they_are_told_to,
    a_batch_is_queued_by_one_call, graphs_of_copies_are_launched_again, registering_is_kept_in_books,
    patterns_are_filled_and_checked, code_has_to_fit, peers_are_kept_in_books, devices_do_not_mix,
    data_goes_between_devices, pools_keep_what_is_freed, virtual_memory_is_made_mapped_and_granted,
    words_go_round_and_who_waits_in_vain_gives_up,
]  # fmt: skip


def main() -> int:
    code, names = Path(sys.argv[1]), sys.argv[2:]
    failed = 0
    for check in CHECKS:
        if names and check.__name__ not in names:
            continue
        try:
            driver = Driver()
            check(driver, Gpu(driver, code))
            print(f"holds: {check.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"DOES NOT HOLD: {check.__name__}\n{traceback.format_exc()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
