"""The transfer library on a GPU: every way of moving data is bit-exact, also with the choices of the tuner."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from on_gpus import ENVIRONMENT, FAKE, ROOT, needs

pytestmark = needs(1)

TESTS = ROOT / "tests" / "python"
PATHS = os.pathsep.join([str(ROOT / "src"), str(TESTS)])
PRELUDE = f"""
import ctypes, sys
from pathlib import Path
import numpy as np, linkscope
from linkscope import native, transfer
from fake_gpu import *
FAKE = {FAKE}
random = np.random.default_rng(7)

def data(count): return random.integers(0, 256, count, dtype=np.uint8)

def synchronize(): driver.ok("cuStreamSynchronize", c_void_p(STREAM))

def pinned(count):
    address = c_void_p()
    driver.ok("cuMemHostAlloc", byref(address), c_size_t(count), c_uint(3))
    return np.frombuffer((ctypes.c_char * count).from_address(address.value), np.uint8)

def there_and_back(count, at):
    # Between odd addresses; the bytes beside the copy keep their value.
    source, on_gpu, back = data(count + at)[at:], Array(count + 128), np.full(count + 128, 90, np.uint8)
    linkscope.copy(on_gpu, np.full(count + 128, 91, np.uint8), stream=STREAM)
    linkscope.copy(on_gpu[at + 1 : at + 1 + count], source, stream=STREAM)
    linkscope.copy(back[at : at + count], on_gpu[at + 1 : at + 1 + count], stream=STREAM)
    beside = np.zeros(count + 128, np.uint8)
    linkscope.copy(beside, on_gpu, stream=STREAM)
    assert np.array_equal(back[at : at + count], source), (count, at)
    assert (back[:at] == 90).all() and (back[at + count :] == 90).all(), (count, at)
    assert (beside[: at + 1] == 91).all() and (beside[at + 1 + count :] == 91).all(), (count, at)
    assert np.array_equal(linkscope.to_cpu(on_gpu)[at + 1 : at + 1 + count], source), (count, at)
    driver.ok("cuMemFree", c_uint64(on_gpu.address))

"""


def script(code: str, *under: str, **variables: str) -> str:
    """Runs lines in a process of its own, as an application does, under another program if it is named.

    Returns what they print.
    """
    settings = {"LINKSCOPE_TRANSFER_TUNING": "none"} | variables
    done = subprocess.run(
        [*under, sys.executable, "-c", PRELUDE + code],
        env={**ENVIRONMENT, "PYTHONPATH": PATHS, **settings},
        capture_output=True,
        text=True,
        timeout=600 if under else 300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_copies_are_exact_with_the_choices_of_the_tuner(tmp_path) -> None:
    size = ["--budget", "4s", "--largest", "1MiB"] if FAKE else ["--budget", "20s", "--largest", "256MiB"]
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "linkscope", "tune", *size, "--directory", str(tmp_path)],
        env={**ENVIRONMENT, **cache},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = Path(tmp_path / "linkscope").iterdir()
    code = """
assert native.tuning()[0] == FILE, native.tuning()
largest = (1 << 20) if FAKE else (256 << 20)
for count in (100_003, 300_001, (1 << 20) - 7, (5 << 20) + 3, (40 << 20) + 1, (300 << 20) + 9):
    if count <= 2 * largest: there_and_back(count, 3)
print(native.latest_fallback())
"""
    assert script(code.replace("FILE", repr(str(file))), LINKSCOPE_TRANSFER_TUNING=str(file)).strip() == ""


@pytest.mark.parametrize("sm_blocks", [0, 8], ids=["copy engine", "kernel"])
def test_staged_copies_between_odd_addresses_are_exact(sm_blocks) -> None:
    code = f"""
for method in ("ring_to_gpu", "ring_to_host", "ring_to_fresh"):
    for start in native.size_classes():
        kernel = {sm_blocks} if method != "ring_to_fresh" else 0
        native.set_knobs(method, start, plain=0, threads=3, sm_blocks=kernel, sm_chunk=1 << 16)
for count in (65_536, 70_001, (1 << 20) + 1, (9 << 20) - 5):
    for at in (0, 1, 37, 63): there_and_back(count, at)
print(native.count("ring_to_gpu") > 0, native.count("ring_to_host") > 0, native.latest_fallback(), sep="|")
"""
    assert script(code).strip() == "True|True|"


@pytest.mark.parametrize("memory", ["pinned", "pageable"])
@pytest.mark.parametrize("method", ["loop", "batch", "kernel"])
def test_scattered_blocks_are_exact_in_both_directions(memory, method) -> None:
    code = f"""
for to_gpu in (True, False):
    for mean in native.block_classes(): native.set_block_knobs(to_gpu, mean, {method!r}, 4)
count, space = 500, 20_000
make = pinned if {memory!r} == "pinned" else lambda n: np.zeros(n, np.uint8)
on_gpu, source, back = Array(count * space), make(count * space), make(count * space)
source[:] = data(count * space)
sizes = random.integers(0, 17_000, count)
at, odd, home = (np.arange(count) * space + random.integers(0, 64, count) for _ in range(3))
order = random.permutation(count)
linkscope.copy_blocks(on_gpu.address + odd[order], source.ctypes.data + at[order], sizes[order], STREAM)
linkscope.copy_blocks(back.ctypes.data + home, on_gpu.address + odd, sizes, STREAM)
synchronize()
expected = np.zeros(count * space, np.uint8)
for to, start, size in zip(home, at, sizes): expected[to : to + size] = source[start : start + size]
assert np.array_equal(back, expected)
print(native.latest_fallback())
"""
    fallback = script(code).strip()
    assert fallback == "" or (method == "batch" and "cuMemcpyBatchAsync" in fallback)


ON_GPUS = """
def choose(tma):
    for method in ("within_gpu", "between_peers"):
        for start in native.size_classes(): native.set_knobs(method, start, plain=0, sm_blocks=64, tma=tma)

# Every byte of the target is compared: what is beside the copy keeps its value.
def exact(target, source, sent, offsets):
    for tma in (0, 1):
        choose(tma)
        for at, to in offsets:
            for count in (65_536, 70_001, (1 << 20) + 15, sent.size - 64):
                expected = np.full(sent.size, 91, np.uint8)
                linkscope.copy(target, expected, stream=STREAM)
                linkscope.copy(target[to : to + count], source[at : at + count], stream=STREAM)
                back = np.zeros(sent.size, np.uint8)
                linkscope.copy(back, target, stream=STREAM)
                expected[to : to + count] = sent[at : at + count]
                assert np.array_equal(back, expected), (tma, at, to, count)

sent = data((3 << 20) if FAKE else (70 << 20))
"""


def test_copies_within_a_gpu_by_sms_and_by_tma_are_exact_at_any_offsets() -> None:
    code = """
source, target = Array(sent.size), Array(sent.size)
linkscope.copy(source, sent, stream=STREAM)
exact(target, source, sent, ((0, 0), (16, 32), (5, 21), (0, 4), (3, 0), (0, 1), (63, 10)))
print(native.count("within_gpu"), native.latest_fallback())
"""
    assert script(ON_GPUS + code).split() == ["56"]


@needs(2)
def test_copies_from_a_peer_by_sms_and_by_tma_are_exact() -> None:
    code = """
import fake_gpu
other, here = c_void_p(), fake_gpu._context
driver.ok("cuDevicePrimaryCtxRetain", byref(other), c_int(1))
if driver.cuCtxEnablePeerAccess(other, c_uint(0)) != 0: print("no peers"); sys.exit()
source, target = Array(sent.size, gpu=1), Array(sent.size)
linkscope.copy(source, sent)
driver.ok("cuCtxSetCurrent", other)
driver.ok("cuCtxSynchronize")
driver.ok("cuCtxSetCurrent", here)
exact(target, source, sent, ((0, 0), (5, 21), (0, 4), (3, 0)))
print(native.count("between_peers"), native.latest_fallback())
"""
    told = script(ON_GPUS + code).split()
    if told == ["no", "peers"]:
        pytest.skip("these GPUs have no peer access")
    assert told == ["32"]


def test_registered_memory_is_copied_as_pinned_memory() -> None:
    code = """
source = data((8 << 20) if FAKE else (512 << 20))
on_gpu, back = Array(source.size), np.zeros(source.size, np.uint8)
def method(): return native.method_of(on_gpu.address, source.ctypes.data, source.nbytes, STREAM)
assert method() == "ring_to_gpu", method()
with linkscope.register(source), linkscope.register(back):
    assert method() == "plain"
    linkscope.copy(on_gpu, source, stream=STREAM)
    linkscope.copy(back, on_gpu, stream=STREAM)
assert np.array_equal(back, source) and method() == "ring_to_gpu" and native.registered_bytes() == 0
"""
    script(code)


@pytest.mark.parametrize("mode", ["r", "c"])
def test_a_mapped_file_that_is_registered_is_copied_as_pinned_memory(tmp_path, mode: str) -> None:
    code = f"""
source, path = data((8 << 20) + 4096), Path({str(tmp_path)!r}) / "file"
source.tofile(path)
mapped, on_gpu = np.memmap(path, np.uint8, {mode!r}), Array(source.size)
with linkscope.register(mapped):
    print(native.method_of(on_gpu.address, mapped.ctypes.data, mapped.nbytes, STREAM))
    linkscope.copy(on_gpu, mapped, stream=STREAM)
    synchronize()
assert np.array_equal(linkscope.to_cpu(on_gpu), source)
"""
    assert script(code) == "plain\n"


def test_a_file_of_a_disk_that_is_mapped_for_writing_is_registered_or_refused_with_the_cure(tmp_path) -> None:
    code = f"""
source, path = data(8 << 20), Path({str(tmp_path)!r}) / "file"
source.tofile(path)
try:
    with linkscope.register(np.memmap(path, np.uint8, "r+")): pass
except ValueError as error:
    assert f"mapped from {{path}} for writing" in str(error), error
    print("refused")
"""
    assert script(code) in ("", "refused\n")


@pytest.mark.parametrize("threads", [1, 8])
def test_a_cached_file_is_copied_from_the_page_cache_itself_or_the_reason_is_said(tmp_path, threads) -> None:
    code = f"""
for start in native.file_classes(): native.set_knobs("read_cached", start, mapped=1, threads={threads}, chunk=1 << 20)
source, path = data((20 << 20) + 77), Path({str(tmp_path)!r}) / "file"
source.tofile(path)
on_gpu = Array(source.size)
for offset in (0, 4096, 12_345):
    part = on_gpu[: source.size - offset]
    counts = linkscope.read_file(path, part, offset, stream=STREAM)
    synchronize()
    assert np.array_equal(linkscope.to_cpu(part), source[offset:]), offset
    is_mapped, why = counts.mapped >= source.size - offset - 2 * 65536, native.latest_fallback()
    assert is_mapped or why.startswith("mapped: "), (counts.mapped, why)
    if why: print(why)
"""
    print(script(code))


def test_a_copy_of_freed_memory_of_the_gpu_is_an_error_that_says_so() -> None:
    code = """
host, kept, freed = np.ones(32 << 20, np.uint8), Array(32 << 20), Array(32 << 20)
driver.ok("cuMemFree", c_uint64(freed.address))
for count in (1 << 20, 4 << 20, 32 << 20):
    for pair in ((kept[:count], freed[:count]), (host[:count], freed[:count])):
        try: linkscope.copy(*pair, stream=STREAM)
        except ValueError as error: print(error)
"""
    told = script(code).splitlines()
    assert len(told) == 6 and all("was freed" in line for line in told)


@pytest.mark.parametrize("plain", [0, 1])
@pytest.mark.parametrize("cufile", [0, 1])
def test_files_are_exact_to_the_gpu_and_back(tmp_path, plain, cufile) -> None:
    code = f"""
import os
for name in ("read_cached", "read_cold", "write_file"):
    for start in native.file_classes(): native.set_knobs(name, start, plain={plain}, cufile={cufile})
source, path = data((20 << 20) + 77), Path({str(tmp_path)!r}) / "file"
on_gpu, again = Array(source.size), Array(source.size)
linkscope.copy(on_gpu, source, stream=STREAM)
linkscope.save_file(path, on_gpu, stream=STREAM, durable=True)
assert path.read_bytes() == source.tobytes()
for is_cold in (False, True):
    if is_cold:
        with path.open("rb") as file: os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for offset in (0, 4096, 12_345):
        part = again[: source.size - offset]
        linkscope.read_file(path, part, offset, stream=STREAM)
        synchronize()
        assert np.array_equal(linkscope.to_cpu(part), source[offset:]), (is_cold, offset)
linkscope.save_file(path, (source.ctypes.data + 1, 5001))
assert path.read_bytes() == source[1:5002].tobytes()
"""
    script(code)


def test_a_model_is_loaded_exactly(tmp_path) -> None:
    code = f"""
try: import torch
except ImportError:
    if not FAKE: print("no torch"); sys.exit()
    import fake_torch as torch
tensors = {{f"layer{{i}}": data(1000 * i + 3) for i in range(1, 40)}} | {{"large": data(30 << 20)}}
path = Path({str(tmp_path)!r}) / "model.safetensors"
linkscope.save_safetensors(tensors, path)
sums = {{}}
loaded = linkscope.load_safetensors(path, "cuda", checksums=sums)
assert set(loaded) == set(tensors)
import zlib
for name, one in tensors.items():
    assert sums[name] == zlib.crc32(one), name
"""
    if script(code).strip() == "no torch":
        pytest.skip("PyTorch is not installed")


def test_copies_in_the_background_are_exact_and_can_be_cancelled() -> None:
    code = """
count = (8 << 20) if FAKE else (512 << 20)
source, on_gpu, back = data(count), Array(count), np.zeros(count, np.uint8)
there = linkscope.start_copy(on_gpu, source, STREAM)
there.wait()
assert there.done_bytes == count and there.has_ended
home = linkscope.start_copy(back, on_gpu, STREAM)
home.wait()
assert np.array_equal(back, source)
for direction in ((on_gpu, source), (back, on_gpu)):
    cancelled = linkscope.start_copy(*direction, STREAM)
    cancelled.cancel()
    try: cancelled.wait()
    except native.Cancelled: assert cancelled.done_bytes < count
    else: assert cancelled.done_bytes == count
    cancelled.close()
linkscope.copy(on_gpu, source, stream=STREAM)
synchronize()
assert np.array_equal(linkscope.to_cpu(on_gpu), source)
"""
    script(code)


def test_kernels_touch_only_memory_of_their_copies() -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if not sanitizer and not FAKE:
        pytest.skip("compute-sanitizer of the CUDA toolkit is not installed")
    under = [] if FAKE else [str(sanitizer), "--error-exitcode", "9", "--target-processes", "all"]
    code = """
for to_gpu in (True, False):
    for mean in native.block_classes(): native.set_block_knobs(to_gpu, mean, "kernel", 4)
for method in ("ring_to_gpu", "ring_to_host"):
    for start in native.size_classes():
        native.set_knobs(method, start, plain=0, threads=3, sm_blocks=8, sm_chunk=1 << 16)
for count in (70_001, (3 << 20) + 1): there_and_back(count, 37)
for tma in (0, 1):
    native.set_knobs("within_gpu", 1 << 20, plain=0, sm_blocks=8, tma=tma)
    sent, source, target = data(1_500_001), Array(1_500_001), Array(1_500_001)
    linkscope.copy(source, sent, stream=STREAM)
    for at, to in ((0, 0), (5, 5), (1, 0), (0, 2)):
        linkscope.copy(target[to : to + 1_499_990], source[at : at + 1_499_990], stream=STREAM)
        synchronize()
        assert np.array_equal(linkscope.to_cpu(target[to : to + 1_499_990]), sent[at : at + 1_499_990])
expected, on_gpu = data(64 * 5000), Array(64 * 5000)
at = np.arange(64, dtype=np.uint64) * np.uint64(5000)
for memory in (expected.copy(), pinned(expected.size)):
    memory[:] = expected
    linkscope.copy_blocks(on_gpu.address + at, memory.ctypes.data + at, 4099, STREAM)
    synchronize()
    memory[:] = 0
    linkscope.copy_blocks(memory.ctypes.data + at, on_gpu.address + at, 4099, STREAM)
    synchronize()
    assert np.array_equal(memory.reshape(64, 5000)[:, :4099], expected.reshape(64, 5000)[:, :4099])
    assert not memory.reshape(64, 5000)[:, 4099:].any()
"""
    script(code, *under)
