"""Checks (driver_checks.py) of copies: pitched, batched, by graph, between devices, and which of them block."""

import ctypes
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p

from driver_by_ctypes import (
    INVALID_VALUE,
    MIB,
    NOT_READY,
    PORTABLE_AND_MAPPED,
    VERSIONS,
    Driver,
    Gate,
    Gpu,
    Location,
    seconds,
)


def only_pageable_copies_block(driver: Driver, gpu: Gpu) -> None:
    large = (
        64 * MIB
    )  # less fits into the driver's staging buffers, and then a copy to the GPU need not wait for the gate
    gate, stream, device = Gate(gpu), gpu.stream(), gpu.memory(large)
    pageable, registered, pinned = (c_char * large)(), (c_char * (4 * MIB))(), gpu.pinned(MIB)
    driver.ok("cuMemHostRegister", registered, c_size_t(4 * MIB), c_uint(PORTABLE_AND_MAPPED))

    def behind_gate(name: str, *arguments: object, count: int = MIB) -> float:
        gate.close()
        gate.close_on(stream, 0.2)
        took = seconds(lambda: driver.ok(name, *arguments, c_size_t(count), stream))
        driver.ok("cuStreamSynchronize", stream)
        return took

    behind_gate("cuMemcpyHtoDAsync", device, pageable)  # the first pageable copy allocates the driver's staging buffers
    assert behind_gate("cuMemcpyHtoDAsync", device, pageable, count=large) > 0.15
    assert behind_gate("cuMemcpyDtoHAsync", pageable, device) > 0.15

    def returns_before_the_gate_opens(name: str, *arguments: object) -> bool:
        gate.close()
        gate.close_on(stream, 60.0)
        driver.ok(name, *arguments, c_size_t(MIB), stream)
        before = driver.cuStreamQuery(stream) == NOT_READY
        gate.open()
        driver.ok("cuStreamSynchronize", stream)
        return before

    for host in (registered, pinned):
        assert returns_before_the_gate_opens("cuMemcpyHtoDAsync", device, host)
        assert returns_before_the_gate_opens("cuMemcpyDtoHAsync", host, device)
    driver.ok("cuMemHostUnregister", registered)


def copies_stay_inside(driver: Driver, gpu: Gpu) -> None:
    stream, host, device = gpu.stream(), gpu.pinned(4 * MIB), gpu.memory(2 * MIB)
    assert driver.cuMemcpyHtoDAsync(device, host, c_size_t(4 * MIB), stream) == INVALID_VALUE
    assert driver.cuMemcpyHtoDAsync(c_uint64(0), host, c_size_t(8), stream) == INVALID_VALUE
    driver.ok("cuMemcpyHtoDAsync", device, host, c_size_t(0), stream)


class Pitched(ctypes.Structure):
    """CUDA_MEMCPY3D; CUDA_MEMCPY2D has fewer fields."""

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
    """Two planes of four rows of 8 bytes: source rows 32 apart, planes 256; destination rows 16 apart, planes 64."""
    return Pitched(
        srcType=UNIFIED, srcDevice=ctypes.addressof(src), srcPitch=32, srcHeight=8,
        dstType=UNIFIED, dstDevice=dst.value, dstPitch=16, dstHeight=4, width=8, height=4, depth=2,
    )  # fmt: skip


def seen_on(driver: Driver, device: c_uint64, size: int) -> bytes:
    back = ctypes.create_string_buffer(size)
    driver.ok("cuMemcpyDtoH", back, device, c_size_t(size))
    return back.raw


def pitched_copies_place_rows_at_their_pitch(driver: Driver, gpu: Gpu) -> None:
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
    gate.close_on(stream, 60.0)
    driver.ok("cuMemcpyBatchAsync", dsts, srcs, *ends, stream)
    assert driver.cuStreamQuery(stream) == NOT_READY
    gate.open()
    driver.ok("cuStreamSynchronize", stream)
    assert seen_on(driver, device, 96) == b"Z" * 8 + b"\xee" * 56 + b"Z" * 16 + b"\xee" * 16
    assert driver.cuMemcpyBatchAsync(dsts, srcs, *ends, c_void_p()) != 0  # the default stream is refused


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
        copy.dstDevice = (
            device.value or 0
        ) + second  # a graph's copy node accepts another destination between launches
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
