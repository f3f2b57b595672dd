"""What linkscope relies on in a CUDA driver, one function each, by ctypes alone. They hold of the fake driver
(test_fake_cuda.py) and have to hold of a real one (tests/gpu/test_driver.py), so that the fake is no invention.

Usage: python driver_checks.py FOLDER_OF_DEVICE_CODE NAME...      (no name: all; exit code 1: one did not hold)
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
    rows_lie_where_they_are_told_to,
)
from driver_checks_memory import (
    a_process_does_not_open_its_own_handles,
    advice_is_taken_and_taken_back,
    batches_of_prefetches_bring_what_is_not_discarded,
    managed_pages_go_where_they_are_told_to,
    memory_ends,
    pools_keep_what_is_freed,
    registering_is_kept_in_books,
    virtual_memory_is_made_mapped_and_granted,
    what_another_process_shares_is_opened_by_each_gpu_for_itself,
    what_is_exported_is_a_descriptor_of_the_same_memory,
    what_one_gpu_opened_another_does_not_reach,
)
from driver_checks_queues import (
    blocks_with_all_shared_memory_come_to_every_sm,
    events_without_a_record_have_no_time,
    gates_time_out,
    graphs_run_in_their_stream_as_often_as_they_are_launched,
    queued_work_waits_for_the_gate,
    streams_wait_for_events,
    streams_wait_for_values,
    words_go_round_and_who_waits_in_vain_gives_up,
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


CHECKS = [
    symbols_have_versions, buses_are_upper_case, calls_need_a_context, queued_work_waits_for_the_gate, gates_time_out,
    streams_wait_for_values, only_pageable_copies_block, streams_wait_for_events, events_without_a_record_have_no_time,
    memory_ends, copies_stay_inside, managed_pages_go_where_they_are_told_to, advice_is_taken_and_taken_back,
    batches_of_prefetches_bring_what_is_not_discarded, rows_lie_where_they_are_told_to,
    a_batch_is_queued_by_one_call, graphs_of_copies_are_launched_again, registering_is_kept_in_books,
    patterns_are_filled_and_checked, code_has_to_fit, peers_are_kept_in_books, devices_do_not_mix,
    data_goes_between_devices, pools_keep_what_is_freed, virtual_memory_is_made_mapped_and_granted,
    what_is_exported_is_a_descriptor_of_the_same_memory, a_process_does_not_open_its_own_handles,
    what_another_process_shares_is_opened_by_each_gpu_for_itself, words_go_round_and_who_waits_in_vain_gives_up,
    graphs_run_in_their_stream_as_often_as_they_are_launched, blocks_with_all_shared_memory_come_to_every_sm,
    what_one_gpu_opened_another_does_not_reach,  # the last: nothing works after it
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
