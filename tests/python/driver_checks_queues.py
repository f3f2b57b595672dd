"""Checks (driver_checks.py) of streams, events, the gate, kernel graphs and words that the GPU waits for."""

import ctypes
import struct
import time
from ctypes import byref, c_float, c_size_t, c_uint, c_uint64, c_void_p

from driver_by_ctypes import INVALID_HANDLE, INVALID_VALUE, MIB, NOT_READY, Driver, Gate, Gpu, seconds


def queued_work_waits_for_the_gate(driver: Driver, gpu: Gpu) -> None:
    gate, stream, host, device = Gate(gpu), gpu.stream(), gpu.pinned(MIB), gpu.memory(MIB)
    before, after, back = gpu.event(), gpu.event(), gpu.pinned(MIB)
    ctypes.memset(host, 0x5A, MIB)
    gate.close()
    gate.close_on(stream, 300.0)
    driver.ok("cuEventRecord", before, stream)
    driver.ok("cuMemcpyHtoDAsync", device, host, c_size_t(MIB), stream)
    driver.ok("cuMemcpyDtoHAsync", back, device, c_size_t(MIB), stream)
    driver.ok("cuEventRecord", after, stream)
    time.sleep(0.05)
    assert driver.cuStreamQuery(stream) == NOT_READY and driver.cuEventQuery(after) == NOT_READY
    assert driver.cuEventElapsedTime(byref(c_float()), before, after) == NOT_READY

    def open_and_wait() -> None:
        gate.open()
        driver.ok("cuStreamSynchronize", stream)

    open_s = seconds(open_and_wait)
    assert driver.cuStreamQuery(stream) == 0 and not gate.timed_out and back.raw == host.raw
    elapsed = c_float(-1)
    driver.ok("cuEventElapsedTime", byref(elapsed), before, after)
    assert 0 < elapsed.value * 1e-3 <= open_s  # without the 50 ms before


def gates_time_out(driver: Driver, gpu: Gpu) -> None:
    gate, stream = Gate(gpu), gpu.stream()
    gate.close()
    gate.close_on(stream, 0.1)
    assert seconds(lambda: driver.ok("cuStreamSynchronize", stream)) > 0.08
    assert gate.timed_out


def streams_wait_for_values(driver: Driver, gpu: Gpu) -> None:
    word, stream = gpu.pinned(4096), gpu.stream()
    ctypes.memset(word, 0, 4096)
    driver.ok("cuStreamWaitValue32", stream, c_uint64(ctypes.addressof(word)), c_uint(1), c_uint(0))
    time.sleep(0.05)
    assert driver.cuStreamQuery(stream) == NOT_READY
    word[0] = b"\x01"
    driver.ok("cuStreamSynchronize", stream)


def streams_wait_for_events(driver: Driver, gpu: Gpu) -> None:
    gate, first, second, event, last = Gate(gpu), gpu.stream(), gpu.stream(), gpu.event(), gpu.event()
    gate.close()
    gate.close_on(first, 300.0)
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
    """Launching a graph returns while its stream is held. Destroying a graph leaves its executable usable."""
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
    driver.ok("cuGraphLaunch", ready, stream)  # the first launch may wait for the device
    driver.ok("cuCtxSynchronize")
    gate.close()
    gate.close_on(stream, 300.0)
    for _ in range(3):
        driver.ok("cuGraphLaunch", ready, stream)
    assert driver.cuStreamQuery(stream) == NOT_READY
    assert int.from_bytes(pinned[:8], "little") == 3 * 5
    gate.open()
    driver.ok("cuStreamSynchronize", stream)
    assert int.from_bytes(pinned[:8], "little") == (1 + 3) * 3 * 5
    driver.ok("cuGraphExecDestroy", ready)


def _op(kind: int, word: int, timeout_ns: int = 0) -> bytes:
    """Iteration i sets (kind 0) or awaits (kind 1) the value i + 1: ActorOp of core/base/actor_ops.hpp."""
    one, none = (word, 0, 1), (0, 0, 1)
    source, target = (none, one) if kind == 0 else (one, none)
    return struct.pack("<I4x18Q", kind, *source, *target, 8, 1, 1, timeout_ns, *[0] * 8)


def ping_pong_passes_words_and_gives_up_at_its_limit(driver: Driver, gpu: Gpu) -> None:
    pinned, block = gpu.pinned(4096), gpu.function("block", "linkscope_block")
    ctypes.memset(pinned, 0, 4096)
    start = ctypes.addressof(pinned)
    ping, pong = start, start + 512
    results = start + 1024, start + 1536  # of each: the sum of what was read, and the op that waited in vain

    def value(at: int) -> int:
        return int.from_bytes(pinned[at - start : at - start + 8], "little")

    def start_on(stream: c_void_p, ops: list[bytes], result: int) -> None:
        table = struct.pack("<I4x", len(ops)) + b"".join(ops)
        numbers = (c_uint64(0), c_uint64(1000), c_uint64(result), c_uint64(0))  # no further blocks
        arguments = ctypes.create_string_buffer(table, 8 + 16 * 152), *numbers
        addresses = (c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        shape = [c_uint(1)] * 6 + [c_uint(0)]
        assert driver.cuLaunchKernel(block, *shape, stream, addresses, None) == 0

    streams, timeout = (gpu.stream(), gpu.stream()), 300 * 10**9
    start_on(streams[0], [_op(0, ping), _op(1, pong, timeout)], results[0])
    start_on(streams[1], [_op(1, ping, timeout), _op(0, pong)], results[1])
    driver.ok("cuCtxSynchronize")
    assert [value(at) for at in (ping, pong, *(result + 8 for result in results))] == [1000, 1000, 0, 0]
    ctypes.memset(pinned, 0, 4096)
    began = time.monotonic()
    start_on(streams[0], [_op(0, ping), _op(1, pong, 50 * 10**6)], results[0])
    driver.ok("cuCtxSynchronize")
    assert time.monotonic() - began >= 0.05
    assert [value(at) for at in (ping, pong, results[0] + 8)] == [1, 0, 2]  # the second op of the first iteration


def blocks_with_all_shared_memory_cover_every_sm(driver: Driver, gpu: Gpu) -> None:
    """One block on each SM. The chosen SM's thread follows a pointer chase of one word, and the launch is counted."""
    sms, shared = (gpu.attribute(number) for number in (16, 97))
    page, chase, stream = gpu.pinned(4096), gpu.function("access", "linkscope_chase_on"), gpu.stream()
    start = ctypes.addressof(page)
    position, turns, steps = c_uint64(start), c_uint64(start + 512), c_uint64(3)

    def launch(sm: int, turn: int) -> int:
        arguments = (position, steps, c_uint(sm), turns, c_uint64(turn))
        addresses = (c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        shape = [c_uint(sms), *[c_uint(1)] * 5, c_uint(shared)]
        status = driver.cuLaunchKernel(chase, *shape, stream, addresses, None)
        driver.ok("cuStreamSynchronize", stream)
        return status

    page[:8] = start.to_bytes(8, "little")
    assert launch(0, 0) == INVALID_VALUE
    driver.ok("cuFuncSetAttribute", chase, c_uint(8), c_uint(shared))
    assert driver.cuFuncSetAttribute(chase, c_uint(8), c_uint(shared + 65536)) == INVALID_VALUE
    for sm in range(sms):
        assert launch(sm, sm) == 0
        assert int.from_bytes(page[512:520], "little") == sm + 1, f"SM {sm}"
    assert int.from_bytes(page[:8], "little") == start


def events_without_a_record_have_no_time(driver: Driver, gpu: Gpu) -> None:
    event = gpu.event()
    assert driver.cuEventQuery(event) == 0
    assert driver.cuEventElapsedTime(byref(c_float()), event, event) == INVALID_HANDLE
