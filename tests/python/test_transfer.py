"""linkscope.copy and its kin on host memory: objects of every kind, and requests that are refused with the cure."""

import array
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import linkscope
from fake_driver import ROOT, environment
from linkscope import native, transfer

LIBRARY = ROOT / "src" / "linkscope" / "_native" / "liblinkscope.so"
pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")


class Interface:
    """An object that has an array interface and nothing else."""

    def __init__(self, owner: np.ndarray, **changed: object) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {**owner.__array_interface__, "version": 3, **changed}


class Dlpack:
    """An object that has DLPack and nothing else."""

    def __init__(self, owner: np.ndarray) -> None:
        self.owner = owner

    def __dlpack__(self) -> object:
        return self.owner.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.owner.__dlpack_device__()


def some(count: int = 1000, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(1).integers(0, 100, count).astype(dtype)


def address(one: np.ndarray) -> int:
    return one.__array_interface__["data"][0]


@pytest.mark.parametrize("wrap", [lambda a: a, memoryview, Dlpack, Interface, lambda a: (address(a), a.nbytes)])
@pytest.mark.parametrize("count", [1, 1000, 3_000_000])
def test_bytes_arrive_between_objects_of_every_kind(wrap, count) -> None:
    source, destination = some(count), np.zeros(count, "float32")
    linkscope.copy(wrap(destination), source)
    assert np.array_equal(source, destination)
    destination[:] = 0
    linkscope.copy(destination, wrap(source))
    assert np.array_equal(source, destination)


def test_python_buffers_are_sources_and_destinations() -> None:
    words = array.array("i", range(100))
    held = bytearray(400)
    linkscope.copy(held, words)
    assert bytes(held) == words.tobytes()
    linkscope.copy(held, bytes(400))
    assert bytes(held) == bytes(400)


def test_empty_arrays_are_copied() -> None:
    linkscope.copy(np.zeros(0), np.zeros(0))
    linkscope.copy(bytearray(), b"")


def test_arrays_of_one_order_are_copied_and_mixed_orders_refused() -> None:
    source = np.asfortranarray(some(600).reshape(20, 30))
    destination = np.zeros((20, 30), "float32", order="F")
    linkscope.copy(destination, source)
    assert np.array_equal(source, destination)
    with pytest.raises(ValueError, match="Fortran order"):
        linkscope.copy(np.zeros((20, 30), "float32"), source)


@pytest.mark.parametrize(
    ("destination", "source", "message"),
    [
        (np.zeros(10), np.zeros(20)[::2], "gaps; pass numpy.ascontiguousarray"),
        (np.zeros(10), np.zeros(11), "80 bytes and the source has 88"),
        (b"12345678", np.zeros(1), "read-only; pass a writable array"),
        (np.zeros(10, "float32"), np.zeros(5, "float64"), "does not convert"),
        (np.zeros(10), np.zeros(10, object), "Python objects"),
        (np.zeros(1), (1, 2, 3), "not \\(address, nbytes\\)"),
        (np.zeros(1), (0, 8), "the source has address 0"),
        (np.zeros(1), object(), "cannot find"),
        (memoryview(bytearray(16))[::2], np.zeros(1), "buffer with gaps"),
    ],
)
def test_wrong_requests_are_refused_with_the_cure(destination, source, message) -> None:
    with pytest.raises(ValueError, match=message):
        linkscope.copy(destination, source)


def test_overlapping_ranges_are_refused() -> None:
    whole = np.zeros(100)
    with pytest.raises(ValueError, match="overlap; copy through a third buffer"):
        linkscope.copy(whole[10:60], whole[:50])


def test_a_stream_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="not a CUDA stream"):
        linkscope.copy(np.zeros(1), np.zeros(1), stream="fast")


@pytest.mark.parametrize("make", [linkscope.copy, linkscope.prepare, linkscope.start_copy])
def test_arrays_whose_work_is_on_two_streams_need_a_stream_to_be_named(make) -> None:
    destination, source = (Interface(some(), stream=number) for number in (4096, 8192))
    with pytest.raises(ValueError, match="on stream 4096 and the source's on stream 8192; let one stream wait"):
        make(destination, source)


def test_arrays_that_name_a_default_stream_or_none_are_copied() -> None:
    for first, second in ((None, 1), (1, 1), (None, None)):
        destination = np.zeros(1000, "float32")
        linkscope.copy(Interface(destination, stream=first), Interface(some(), stream=second))
        assert np.array_equal(destination, some())


def test_a_copy_in_the_background_reports_its_progress() -> None:
    source, destination = some(5_000_000), np.zeros(5_000_000, "float32")
    under_way = linkscope.start_copy(destination, source)
    under_way.wait()
    assert under_way.has_ended and under_way.done_bytes == under_way.nbytes == source.nbytes
    assert np.array_equal(source, destination)


def test_a_prepared_copy_repeats() -> None:
    source, destination = some(), np.zeros(1000, "float32")
    prepared = linkscope.prepare(destination, source)
    for value in (1, 2):
        source[:] = value
        prepared.run()
        assert np.array_equal(source, destination)


def test_a_closed_handle_is_refused() -> None:
    prepared, under_way = (make(np.zeros(1000), np.ones(1000)) for make in (linkscope.prepare, linkscope.start_copy))
    prepared.close(), under_way.close()
    calls = (prepared.run, under_way.wait, under_way.cancel, lambda: under_way.has_ended, lambda: under_way.done_bytes)
    for call in calls:
        with pytest.raises(ValueError, match="is closed; make a new one"):
            call()


@pytest.mark.parametrize("make", [linkscope.prepare, linkscope.start_copy])
def test_a_buffer_cannot_be_resized_while_a_copy_has_its_address(make) -> None:
    held = bytearray(1 << 20)
    copies = make(held, bytes(1 << 20))
    with pytest.raises(BufferError):
        held.clear()
    copies.close()
    held.clear()


def test_a_registered_buffer_cannot_be_resized_before_the_registration_ends() -> None:
    held = bytearray(1 << 20)
    with transfer.register(held), pytest.raises(BufferError):
        held.clear()
    held.clear()


def test_a_buffer_may_be_resized_when_the_copy_in_the_background_has_ended() -> None:
    held = bytearray(1 << 20)
    under_way = linkscope.start_copy(held, bytes(1 << 20))
    under_way.wait()
    held.clear()


def test_host_arrays_are_returned_as_they_are() -> None:
    here = some()
    assert linkscope.to_cpu(here) is here


def test_the_library_starts_anew_after_close() -> None:
    native.close()
    test_a_prepared_copy_repeats()


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="write one of host, ring_to_gpu"):
        native.knobs("fastest", 1 << 20)


def python(code: str, library: str = "driver", **settings: str | int) -> str:
    """Runs lines in a process that has the fake driver, with `LINKSCOPE_` in front of lower-case settings."""
    ours = {f"LINKSCOPE_{name.upper()}": str(settings.pop(name)) for name in list(settings) if name.islower()}
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "python")])}
    prelude = "import numpy as np, linkscope\nfrom linkscope import native, transfer\n"
    prelude += "from fake_gpu import *\n" if library == "driver" else ""
    done = subprocess.run(
        [sys.executable, "-c", prelude + code],
        env=environment(library, **settings) | path | ours,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ROUND_TRIP = """
source = np.random.default_rng(1).integers(0, 255, 6 << 20, dtype=np.uint8)
on_gpu, back = Array(source.size), np.zeros_like(source)
linkscope.copy(on_gpu, source, stream=STREAM)
linkscope.copy(back, on_gpu, stream=STREAM)
assert np.array_equal(source, back)
assert np.array_equal(linkscope.to_cpu(on_gpu), source)
small = np.arange(10, dtype=np.uint8)
linkscope.copy(on_gpu[:10], small)
assert np.array_equal(linkscope.to_cpu(on_gpu[:10]), small)
linkscope.copy_blocks([on_gpu.address], [source.ctypes.data], [1000])
print(*(native.count(name) for name in ("ring_to_gpu", "ring_to_host", "ring_to_fresh")), native.latest_fallback())
"""


def test_arrays_go_to_a_gpu_and_back_through_the_ring() -> None:
    counts = python(ROUND_TRIP).split()
    assert counts[0] == "1" and int(counts[1]) + int(counts[2]) == 2 and len(counts) == 3


BLOCKS = """
host = np.random.default_rng(1).integers(0, 255, 1 << 20, dtype=np.uint8)
on_gpu, pages = Array(host.size), np.random.default_rng(2).permutation(256)
base = host.__array_interface__["data"][0]
to = transfer.strided(on_gpu.address, 4096, 256)
linkscope.copy_blocks(to, transfer.strided(base, 4096, pages), 4096, stream=STREAM)
driver.ok("cuStreamSynchronize", c_void_p(STREAM))  # to_cpu uses the legacy stream, which does not wait for this one
assert np.array_equal(linkscope.to_cpu(on_gpu), host.reshape(256, 4096)[pages].ravel())
linkscope.copy_blocks([base, base + 100], [on_gpu.address] * 2, [10, 20])
expected = host.reshape(256, 4096)[pages[0]]
driver.ok("cuStreamSynchronize", c_void_p())
assert np.array_equal(host[:10], expected[:10]) and np.array_equal(host[100:120], expected[:20])
print(native.latest_fallback())
"""


def test_scattered_blocks_go_to_a_gpu_and_back() -> None:
    assert python(BLOCKS).strip() == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1], 4), "names 2 blocks and src_pointers 1"),
        (([1, 2], [1, 2], [4, 4, 4]), "sizes has 3 values for 2 blocks"),
        (([1.5], [1], 4), "dst_pointers is no list of numbers"),
        (([-1], [1], 4), "dst_pointers is no list of numbers"),
    ],
)
def test_wrong_lists_of_blocks_are_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        linkscope.copy_blocks(*arguments)


def test_destinations_of_blocks_that_overlap_are_refused() -> None:
    held = np.zeros(3, np.uint8)
    with pytest.raises(ValueError, match="destinations of two blocks overlap; blocks have no order, so make two calls"):
        linkscope.copy_blocks([address(held), address(held) + 1], [address(some())] * 2, 2)
    with pytest.raises(ValueError, match="destination of a block overlaps the source of another"):
        linkscope.copy_blocks([address(held), address(held) + 2], [address(some()), address(held)], 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, path: linkscope.read_file(path, a, offset=-1), "the offset in the file is -1; pass a number of at"),
        (lambda a, path: linkscope.read_file(path, a, offset=1 << 64), f"the offset in the file is {1 << 64}; pass"),
        (lambda a, path: linkscope.read_file(path, a, offset=9), "the file has 8 bytes, and 8 from byte 9 are needed"),
        (lambda a, path: linkscope.copy(a, (-8, 8)), "the address of the source is -8"),
        (lambda a, path: linkscope.copy(a, (address(a), -8)), "the size of the source is -8"),
        (lambda a, path: linkscope.copy((0, (1 << 64) + 8), a), f"the size of the destination is {(1 << 64) + 8}"),
        (lambda a, path: linkscope.copy(a, np.ones(1), stream=-1), "the stream is -1"),
        (lambda a, path: linkscope.copy_blocks([8], [16], -1), "sizes is no list of numbers of at least 0"),
        (lambda a, path: linkscope.copy_blocks([8], [16], np.uint64((1 << 64) - 1)), "the size of a block is -1; pass"),
        (lambda a, path: linkscope.use_helpers([-1]), "the number of a GPU is -1"),
        (lambda a, path: linkscope.use_helpers([1 << 32]), f"the number of a GPU is {1 << 32}"),
        (lambda a, path: transfer.strided(4096, 64, -1), "the count of rows is -1"),
        (lambda a, path: transfer.strided(4096, 64, [3, -1]), "numbers is no list of numbers of at least 0"),
        (lambda a, path: transfer.strided(4096, -64, [1, 65]), "the address of a row is -64"),
        (lambda a, path: native.registered_bytes() or linkscope.register((address(a), (1 << 64) - 1)), "memory is -1"),
    ],
)
def test_numbers_below_0_and_beyond_64_bits_are_refused_in_plain_words(tmp_path, call, message) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8))
    with pytest.raises(ValueError) as refused:
        call(np.zeros(1), path)
    assert message in str(refused.value) and str((1 << 64) - 1) not in str(refused.value)


def test_rows_are_listed_by_a_count_or_by_numbers_and_a_stride_may_be_negative() -> None:
    assert transfer.strided(4096, 64, 3).tolist() == [4096, 4160, 4224]
    assert transfer.strided(4096, 64, np.array([5, 0])).tolist() == [4416, 4096]
    assert transfer.strided(4096, -64, [1, 64]).tolist() == [4032, 0]
    assert transfer.strided(1 << 63, 1 << 62, [1]).tolist() == [3 << 62]
    assert transfer.strided(4096, 64, []).size == transfer.strided(4096, 64, 0).size == 0


def test_blocks_between_host_arrays_are_copied() -> None:
    source, destination = some(100), np.zeros(100, "float32")
    linkscope.copy_blocks(
        [address(destination), address(destination) + 40], [address(source), address(source) + 40], 40
    )
    assert np.array_equal(destination[:20], source[:20]) and not destination[20:].any()


def test_one_variable_switches_to_plain_copies() -> None:
    assert python(ROUND_TRIP, transfer="plain").split() == ["0", "0", "0"]


def test_the_process_frees_everything_at_its_end(tmp_path) -> None:
    log = tmp_path / "log"
    keeps = "kept = linkscope.start_copy(back, on_gpu); kept.wait(); prepared = linkscope.prepare(back, on_gpu)\n"
    keeps += "forget(on_gpu)\n"
    python(ROUND_TRIP + keeps, CUDA_LOG=log)
    assert [line for line in log.read_text().splitlines() if line.startswith(("left", "ended"))] == ["ended"]


def test_a_wrong_variable_is_refused_with_its_values() -> None:
    code = "try: linkscope.copy(np.zeros(1), np.ones(1))\nexcept ValueError as e: print(e)"
    assert "LINKSCOPE_TRANSFER='slow' is not 'plain' or 'auto'" in python(code, transfer="slow")


def test_without_a_driver_host_copies_work_and_gpu_requests_name_the_reason() -> None:
    code = """
a, b = np.arange(2_000_000), np.zeros(2_000_000, int)
linkscope.copy(b, a)
assert np.array_equal(a, b)
try: linkscope.copy(b, a, stream=4096)
except ValueError as e: print(e)
print(native.why_no_gpu())
"""
    assert python(code, library="broken").count("the CUDA driver cannot be loaded") == 2


def test_a_child_of_fork_copies_on_the_host_and_refuses_gpus() -> None:
    code = """
import os
source, on_gpu = np.ones(1 << 21), Array(8 << 21)
linkscope.copy(on_gpu, source)
kept = linkscope.start_copy(on_gpu, source)
kept.wait()
under_way = linkscope.start_copy(on_gpu, source)
child = os.fork()
if child == 0:
    linkscope.copy(np.zeros(1 << 21), source)
    try: linkscope.copy((1 << 40, 8 << 21), source)
    except transfer.TransferError as e: print(e, flush=True)
    for call in (under_way.wait, under_way.cancel, lambda: under_way.has_ended):
        try: call()
        except ValueError as e: print(e, flush=True)
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
under_way.wait()
forget(on_gpu)
"""
    printed = python(code)
    assert "child of fork()" in printed
    assert printed.count("started by the parent process; wait for it there") == 3


def test_a_child_of_fork_refuses_blocks_and_files_of_a_gpu_and_reads_and_writes_those_of_the_host(tmp_path) -> None:
    code = f"""
import os, pathlib
source, on_gpu, path = np.arange(1 << 20, dtype=np.uint8), Array(1 << 20), {str(tmp_path / "file")!r}
linkscope.copy(on_gpu, source)
linkscope.save_file(path, on_gpu)
small = np.zeros(8, np.uint8)
prepared = linkscope.prepare(small, source[8:16])
child = os.fork()
if child == 0:
    back, sizes = np.zeros(1 << 20, np.uint8), [4096] * 8
    on_gpu = (1 << 40, 1 << 20)  # the fake's memory of a GPU is memory of the host
    there, here = [on_gpu[0] + i * 4096 for i in range(8)], [source.ctypes.data + i * 4096 for i in range(8)]
    host = [back.ctypes.data + i * 4096 for i in range(8)]
    for name, refused in (("blocks", lambda: linkscope.copy_blocks(there, here, sizes)),
                          ("read", lambda: linkscope.read_file(path, on_gpu)),
                          ("save", lambda: linkscope.save_file(path, on_gpu))):
        try: refused()
        except transfer.TransferError as e: print(name, e, flush=True)
    prepared.run()
    linkscope.copy_blocks(host, here, sizes)
    assert np.array_equal(back[:32768], source[:32768])
    linkscope.read_file(path, back)
    assert np.array_equal(back, source)
    linkscope.save_file(path, back)
    assert np.array_equal(small, source[8:16])
    linkscope.copy(small, source[:8])
    assert np.array_equal(small, source[:8])
    raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
forget(on_gpu)
assert pathlib.Path(path).read_bytes() == source.tobytes()
"""
    told = python(code).splitlines()
    assert [line.split()[0] for line in told] == ["blocks", "read", "save"]
    assert all("child of fork()" in line for line in told)


def bench_rows(tmp_path: Path, largest: int, *sections: str) -> list[dict]:
    command = [sys.executable, str(ROOT / "tools" / "transfer_bench.py"), "-o", str(tmp_path / "rows.json")]
    command += ["--largest", str(largest), "--repeats", "1", "--file-mib", "8", "--sections", *sections]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return list(json.loads((tmp_path / "rows.json").read_text())["rows"])


def test_the_bench_compares_what_it_copies_and_writes_its_rows(tmp_path) -> None:
    rows = bench_rows(tmp_path, 4, "copies", "local", "registered", "file")
    sections = {"to gpu", "to warm", "to fresh", "local", "local, in a row", "registered", "file"}
    assert sections == {row["section"] for row in rows}
    for section in ("to gpu", "to warm"):
        of = [row for row in rows if row["section"] == section and row["bytes"] == 4 << 20]
        assert {row["method"] for row in of} == {"driver, pageable", "driver, pinned", "linkscope"}
        assert all("core_s_per_gb" in row for row in of if row["method"] != "driver, pinned")


def test_the_bench_compares_blocks_with_one_large_copy_and_states_the_sms(tmp_path) -> None:
    rows = bench_rows(tmp_path, 1, "blocks")
    methods = {
        f"{name}, to {end}" for name in ("one copy", "loop", "batch", "kernel 12", "auto") for end in ("gpu", "host")
    }
    for block in (4, 8, 16, 24, 28, 32, 64):
        of = {row["method"]: row for row in rows if row["section"].endswith(f" x {block} KiB")}
        assert methods <= of.keys()
        assert of["kernel 12, to gpu"]["sms"] == 12 and of["loop, to host"]["sms"] == 0
        assert of["auto, to gpu"]["by"] in ("loop", "batch", "kernel")


def test_the_module_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'copies'"):
        _ = linkscope.copies
    assert {"copy", "to_cpu"} <= set(dir(linkscope)) and transfer.copy is linkscope.copy
