"""Behaviour of a CUDA driver that linkscope relies on, one function each, through ctypes. The fake driver
(test_fake_cuda.py) and a real one (tests/gpu/test_driver.py) must both pass, so the fake behaves like a real driver.

Usage: python driver_checks.py FOLDER_OF_DEVICE_CODE NAME...      (no name: all; exit code 1: a check failed)
"""

import ctypes
import sys
import traceback
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

from driver_by_ctypes import (
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_IMAGE,
    MIB,
    NO_BINARY,
    NOT_FOUND,
    PEER_ALREADY_ENABLED,
    PEER_NOT_ENABLED,
    VERSIONS,
    Driver,
    Gpu,
)
from driver_checks_copies import (
    a_batch_is_queued_by_one_call,
    copies_stay_inside,
    data_goes_between_devices,
    graphs_of_copies_are_launched_again,
    only_pageable_copies_block,
    pitched_copies_place_rows_at_their_pitch,
)
from driver_checks_memory import (
    a_process_does_not_open_its_own_handles,
    advice_is_set_and_unset,
    an_exported_descriptor_maps_the_same_memory,
    batched_prefetches_move_pages_that_are_not_discarded,
    memory_ends,
    memory_is_registered_and_unregistered_once,
    pools_keep_what_is_freed,
    prefetches_move_managed_pages_to_their_target,
    shared_memory_of_another_process_is_opened_by_each_gpu,
    shared_memory_opened_by_one_gpu_is_out_of_reach_of_another,
    virtual_memory_is_made_mapped_and_granted,
)
from driver_checks_queues import (
    blocks_with_all_shared_memory_cover_every_sm,
    events_without_a_record_have_no_time,
    gates_time_out,
    graphs_run_in_their_stream_as_often_as_they_are_launched,
    ping_pong_passes_words_and_gives_up_at_its_limit,
    queued_work_waits_for_the_gate,
    streams_wait_for_events,
    streams_wait_for_values,
)


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


def device_code_must_match_the_gpu(driver: Driver, gpu: Gpu) -> None:
    module, function = c_void_p(), c_void_p()
    other = (gpu.code / ("gate.sm_70" if gpu.arch != 70 else "gate.sm_80")).read_bytes()
    assert driver.cuModuleLoadData(byref(module), other) == NO_BINARY
    assert driver.cuModuleLoadData(byref(module), b"neither PTX nor machine code" + bytes(256)) == INVALID_IMAGE
    driver.ok("cuModuleLoadData", byref(module), gpu.image("gate"))
    assert driver.cuModuleGetFunction(byref(function), module, b"linkscope_fill") == NOT_FOUND
    if gpu.arch >= 90:
        driver.ok("cuModuleLoadData", byref(module), (gpu.code / "gate.compute_90").read_bytes() + b"\0")
        driver.ok("cuModuleGetFunction", byref(function), module, b"linkscope_gate")


def peer_access_is_enabled_and_disabled_once(driver: Driver, gpu: Gpu) -> None:
    other = Gpu(driver, gpu.code, 1)
    gpu.use()
    assert driver.cuCtxDisablePeerAccess(other.context) == PEER_NOT_ENABLED
    driver.ok("cuCtxEnablePeerAccess", other.context, c_uint(0))
    assert driver.cuCtxEnablePeerAccess(other.context, c_uint(0)) == PEER_ALREADY_ENABLED
    driver.ok("cuCtxDisablePeerAccess", other.context)


def the_driver_knows_which_memory_a_gpu_reaches(driver: Driver, gpu: Gpu) -> None:
    other, asked, alias = Gpu(driver, gpu.code, 1), c_int(3), c_uint64()  # CU_POINTER_ATTRIBUTE_DEVICE_POINTER
    gpu.use()
    memory = c_uint64()
    driver.ok("cuMemAlloc", byref(memory), c_size_t(MIB))

    def reached_by(one: Gpu) -> bool:
        one.use()
        answers = (c_void_p * 1)(ctypes.addressof(alias))
        driver.ok("cuPointerGetAttributes", c_uint(1), byref(asked), answers, memory)
        assert alias.value in (0, memory.value)
        return alias.value != 0

    assert reached_by(gpu) and not reached_by(other)
    driver.ok("cuCtxEnablePeerAccess", gpu.context, c_uint(0))
    assert reached_by(other)
    driver.ok("cuCtxDisablePeerAccess", gpu.context)
    assert not reached_by(other)
    gpu.use()
    driver.ok("cuMemFree", memory)


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


CHECKS = [
    symbols_have_versions, buses_are_upper_case, calls_need_a_context, queued_work_waits_for_the_gate, gates_time_out,
    streams_wait_for_values, only_pageable_copies_block, streams_wait_for_events, events_without_a_record_have_no_time,
    memory_ends, copies_stay_inside, prefetches_move_managed_pages_to_their_target, advice_is_set_and_unset,
    batched_prefetches_move_pages_that_are_not_discarded, pitched_copies_place_rows_at_their_pitch,
    a_batch_is_queued_by_one_call, graphs_of_copies_are_launched_again, memory_is_registered_and_unregistered_once,
    patterns_are_filled_and_checked, device_code_must_match_the_gpu, peer_access_is_enabled_and_disabled_once,
    the_driver_knows_which_memory_a_gpu_reaches,
    devices_do_not_mix, data_goes_between_devices, pools_keep_what_is_freed, virtual_memory_is_made_mapped_and_granted,
    an_exported_descriptor_maps_the_same_memory, a_process_does_not_open_its_own_handles,
    shared_memory_of_another_process_is_opened_by_each_gpu, ping_pong_passes_words_and_gives_up_at_its_limit,
    graphs_run_in_their_stream_as_often_as_they_are_launched, blocks_with_all_shared_memory_cover_every_sm,
    shared_memory_opened_by_one_gpu_is_out_of_reach_of_another,  # last: this error makes the context unusable
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
