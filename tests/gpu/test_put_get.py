"""Puts and gets on GPUs: every transport is bit-exact, and random traffic loses, doubles and tears no message."""

import os
import subprocess
import sys

import pytest

from on_gpus import ENVIRONMENT, FAKE, ROOT, gpus, measured, needs, only, verified

pytestmark = needs(1)

PRELUDE = """
import ctypes, sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from driver_by_ctypes import Driver, ordinals
from put_get_script import *
from put_get_script import AWAIT, GET, PUT_SIGNAL, ADD, QUIET, DIRECT, KERNEL, PROXY
driver = Driver()
contexts = {}

def use(number):
    if number not in contexts:
        contexts[number] = c_void_p()
        driver.ok("cuDevicePrimaryCtxRetain", byref(contexts[number]), c_int(ordinals(driver)[number]))
    driver.ok("cuCtxSetCurrent", contexts[number])

def on_gpu(number, count):
    pointer = c_uint64()
    use(number)
    driver.ok("cuMemAlloc", byref(pointer), c_size_t(count))
    driver.ok("cuMemsetD8Async", pointer, c_int(0), c_size_t(count), c_void_p())
    driver.ok("cuStreamSynchronize", c_void_p())
    return pointer.value
"""


def script(code: str) -> str:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "python"), str(ROOT / "cmake")])
    environment = ENVIRONMENT | {"PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


# A stream of puts in turns with the host: 40 messages of growing sizes from a GPU, each answered by a word.
THERE_AND_BACK = """
import threading
SIZE, WORD = 1 << 20, (1 << 20) - 64
data = Region(size=SIZE)
data.write(0, bytes(i * 7 % 251 for i in range(SIZE - 4096)))
local, remote = Region(on_gpu(0, SIZE), SIZE), REMOTE
fill = Channel(data, local)
ok(fill.call("ls_put", 0, 0, SIZE - 4096)); ok(fill.call("ls_quiet"))
additions = 0
for transport in (DIRECT, KERNEL, PROXY):
    for threads in (1, 32, 1024):
        channel = Channel(local, remote, gpu=0, transport=transport, timeout_s=5.0)
        sizes = [(i * i * 641) % 200000 for i in range(40)]
        steps = [(PUT_SIGNAL, i * 16, 64 + i, count, WORD, i + 1) for i, count in enumerate(sizes)]
        channel.run(threads, *steps, (ADD, 0, WORD + 8, 0, 0, 2), (QUIET,))
        back = Channel(data, remote)
        ok(back.call("ls_get", SIZE - 4096, WORD, 16)); ok(back.call("ls_quiet"))
        words = data.bytes(SIZE - 4096, 16)
        additions += 2
        assert [int.from_bytes(words[at:at + 8], "little") for at in (0, 8)] == [40, additions], (transport, threads)
        last = 39
        ok(back.call("ls_get", 500000, 64 + last, sizes[last])); ok(back.call("ls_quiet"))
        assert data.bytes(500000, sizes[last]) == data.bytes(last * 16, sizes[last]), (transport, threads)
        back.close()
        channel.close()
print("same")
"""


def test_puts_of_a_gpu_to_host_memory_are_exact_by_every_transport() -> None:
    assert script(THERE_AND_BACK.replace("REMOTE", "Region(size=SIZE)")) == "same"


@needs(2)
def test_puts_between_gpus_are_exact_by_every_transport() -> None:
    assert script(THERE_AND_BACK.replace("REMOTE", "Region(on_gpu(1, SIZE), SIZE)")) == "same"


# Odd sizes and places: heads and tails that TMA cannot move. Two operations of a step list follow each other.
BY_BLOCKS = """
SIZE, WORD = 8 << 20, (8 << 20) - 64
data, back = Region(size=SIZE), Region(size=SIZE)
data.write(0, bytes(range(251)) * (SIZE // 251))
local, remote = Region(on_gpu(0, SIZE), SIZE), REMOTE
fill = Channel(data, local)
ok(fill.call("ls_put", 0, 0, SIZE - 4096)); ok(fill.call("ls_quiet"))
puts = [(0, 0, 4 << 20), (1, 17, 99_999), (5, 6, 77_777), (16, 4096, 3 << 20), (0, 0, 8), (3, 3, 5)]
value = 0
for tma in TMA:
    for blocks in (1, 2, 16):
        for transport, ring in RINGS:
            channel = Channel(local, remote, gpu=0, transport=transport, ring_gpu=ring, tma=tma, timeout_s=5.0)
            reader = Channel(back, remote)
            for source, target, count in puts:
                value += 1
                channel.run(512, (PUT_SIGNAL, source, target, count, WORD, value), (QUIET,), blocks=blocks)
                ok(reader.call("ls_get", target, target, count)); ok(reader.call("ls_get", WORD, WORD, 8))
                ok(reader.call("ls_quiet"))
                assert back.bytes(target, count) == data.bytes(source, count), (tma, blocks, transport, source, count)
                assert int.from_bytes(back.bytes(WORD, 8), "little") == value
            reader.close()
            channel.close()
print("same")
"""


def by_blocks(remote: str, rings: str) -> str:
    tma = "(0, 1)" if FAKE or capability() >= 9 else "(0,)"
    return script(BY_BLOCKS.replace("REMOTE", remote).replace("RINGS", rings).replace("TMA", tma))


def capability() -> int:
    code = """
major = c_int()
driver.ok("cuDeviceGetAttribute", byref(major), c_int(75), c_int(0))
print(major.value)
"""
    return int(script(code))


def test_puts_by_blocks_by_tma_and_from_rings_on_the_gpu_are_exact() -> None:
    assert by_blocks("Region(size=SIZE)", "((DIRECT, -1), (KERNEL, -1), (KERNEL, 0))") == "same"


@needs(2)
def test_puts_by_blocks_between_gpus_are_exact_with_the_ring_on_either_gpu() -> None:
    rings = "((DIRECT, -1), (KERNEL, 0), (KERNEL, 1))"
    assert by_blocks("Region(on_gpu(1, SIZE), SIZE)", rings) == "same"
    assert by_blocks("Region(size=SIZE, gpu=1, new=True)", rings) == "same"


# The card is a thread of this process, and the queues are in pinned memory, which both reach.
BY_CARD = """
from ctypes import addressof
from card_script import Card
SIZE, BLOCKS, WORD = 1 << 20, 32, (1 << 20) - 64
queues, here, there = Region(size=Card.size(BLOCKS)), Region(size=SIZE), Region(size=SIZE)
card = Card(queues.start(), BLOCKS, [(region.start(), SIZE) for region in (here, there)])
here.write(0, bytes(i * 7 % 251 for i in range(SIZE // 2)))
remote = Region(handle=there.card_handle(2))
with card:
    channel = Channel(here, remote, gpu=0, pair=addressof(card.pair), timeout_s=5.0)
    for lap, threads in enumerate((1, 32, 1024)):
        sizes = [(i * i * 641) % 2000 for i in range(100)]
        steps = [(PUT_SIGNAL, i * 16, 2100 * i, count, WORD, 100 * lap + i + 1) for i, count in enumerate(sizes)]
        channel.run(threads, *steps, (ADD, 0, WORD + 8, 0, 0, 2), (GET, WORD, WORD, 16), (QUIET,))
        for i, count in enumerate(sizes):
            assert there.bytes(2100 * i, count) == here.bytes(i * 16, count), (threads, i)
        words = here.bytes(WORD, 16)
        assert [int.from_bytes(words[at:at + 8], "little") for at in (0, 8)] == [100 * lap + 100, 2 * lap + 2]
        there.write(0, bytes(SIZE // 2))
assert not card.problems, card.problems
assert channel.transport() == "network card (queue pair 7)"
print("same")
"""


def test_elements_that_a_gpu_posts_to_a_network_card_are_exact() -> None:
    assert script(BY_CARD) == "same"


def test_packed_messages_are_measured_and_verified(tmp_path) -> None:
    run = measured(
        tmp_path / "run.jsonl",
        "--suite",
        "putget",
        *only("put_ping_pong/sm/*/64?*word=packed", "put/sm/*/64?connections=1&*word=packed"),
        "--rounds",
        "2",
    )
    verified(run)


many_blocks = pytest.mark.skipif(FAKE, reason="blocks of the fake driver that poll need a CPU each")


@many_blocks
def test_more_connections_than_hardware_queues_are_measured_and_verified(tmp_path) -> None:
    """64 rings to which one kernel posts, and which four threads of the host or another kernel serve."""
    ids = (
        "queued_put/cpu/numa:0.pinned->numa:0.pinned/64?connections=64&descriptor=32&proxies=4",
        "queued_put/ce/gpu:0.device->numa:0.pinned/64?connections=64&descriptor=32&proxies=4",
        "queued_put/sm/gpu:0.device->gpu:0.device/64?connections=64&descriptor=32&queue=own&threads=256",
    )
    assert len(verified(measured(tmp_path / "run.jsonl", "--rounds", "1", *only(*ids)))) == len(ids)


@many_blocks
def test_more_blocks_than_hardware_queues_poll_beside_a_product(tmp_path) -> None:
    id = "bystander/sm/gpu:0.device->numa:0.pinned/0?beside=poll&blocks=32"
    run = measured(tmp_path / "run.jsonl", "--rounds", "1", *only(id))
    assert [point.status for point in run.points] == ["ok"] or run.points[0].status == "missed_precision", run.points


# --- random traffic between warps: device code that the fake driver cannot run ----------------------------------------

KERNELS = """
from pathlib import Path
from embed_device_code import Nvrtc
root = Path(ROOT)
nvrtc = Nvrtc()
attribute = lambda which: (value := c_int(), driver.ok("cuDeviceGetAttribute", byref(value), c_int(which), c_int(0)))[0]
arch = f"sm_{attribute(75).value}{attribute(76).value}"
code = nvrtc.compile(root / "tests/gpu/messages.cu", [str(root / "src/linkscope/_native")], arch)

def function(ordinal, name):
    use(ordinal)
    module, found = c_void_p(), c_void_p()
    driver.ok("cuModuleLoadData", byref(module), code)
    driver.ok("cuModuleGetFunction", byref(found), module, name.encode())
    return found

def stream(ordinal):
    use(ordinal)
    made = c_void_p()
    driver.ok("cuStreamCreate", byref(made), c_uint(1))
    return made

def launch(ordinal, kernel, on, blocks, threads, *arguments):
    use(ordinal)
    pointers = (c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
    driver.ok("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, 0, on, pointers, None)

def wait(ordinal, on):
    use(ordinal)
    driver.ok("cuStreamSynchronize", on)

def numbers(address, count):
    made = (c_uint64 * count)()
    driver.ok("cuMemcpyDtoH", made, c_uint64(address), c_size_t(8 * count))
    return list(made)
"""

TRAFFIC = """
ACTORS = 8
EACH = -(-TOTAL // (ACTORS * (ACTORS - 1)))
rings = MEMORY
gpus = GPUS
results = [on_gpu(gpu, 8 * ACTORS) for gpu in gpus]
kernels, streams = [function(gpu, "exchange") for gpu in gpus], [stream(gpu) for gpu in gpus]
part = ACTORS // len(gpus)
for i, gpu in enumerate(gpus):
    launch(gpu, kernels[i], streams[i], part, 32, c_uint64(rings), c_uint(ACTORS), c_uint(i * part), c_uint64(EACH),
           c_uint64(5_000_000_000), c_uint64(results[i]))
for i, gpu in enumerate(gpus):
    wait(gpu, streams[i])
for i, gpu in enumerate(gpus):
    use(gpu)
    assert numbers(results[i], part) == [1] * part, numbers(results[i], part)
print(f"{ACTORS * (ACTORS - 1) * EACH} messages came once and whole")
"""

only_real = pytest.mark.skipif(FAKE, reason="the fake driver runs no device code")
BYTES = 8 * 8 * (128 + 5 * 9 * 16)
PLACES = {
    "memory of one GPU": (f"on_gpu(0, {BYTES})", "[0]"),
    "host memory": (f"Region(size={BYTES}).start()", "[0]"),
}


def all_come_once(capsys: pytest.CaptureFixture[str], place: str, memory: str, on: str, peers: str = "") -> None:
    """Prints the number of messages, each of which its receiver has compared."""
    total = 1_000_000 if os.environ.get("LINKSCOPE_TESTS") == "long" else 100_000
    code = KERNELS.replace("ROOT", repr(str(ROOT)), 1) + peers + TRAFFIC
    shown = script(code.replace("TOTAL", str(total)).replace("MEMORY", memory).replace("GPUS", on))
    with capsys.disabled():
        print(f"\nrandom traffic between warps, rings in {place}: {shown}")
    assert int(shown.split()[0]) >= total and shown.endswith("messages came once and whole")


@only_real
@pytest.mark.parametrize("place", PLACES)
def test_random_traffic_between_warps_arrives_once_and_whole(capsys, place: str) -> None:
    all_come_once(capsys, place, *PLACES[place])


PEERS = """
for one, other in ((0, 1), (1, 0)):
    use(other); use(one)
    driver.ok("cuCtxEnablePeerAccess", contexts[other], c_uint(0))
"""


@only_real
@needs(2)
def test_random_traffic_between_gpus_arrives_once_and_whole(capsys) -> None:
    all_come_once(capsys, "memory of the second of two GPUs", f"on_gpu(1, {BYTES})", "[0, 1]", PEERS)


LOOK = """
SIZE, WORD = 4096, 64
host, on = Region(size=SIZE), Region(on_gpu(0, SIZE), SIZE)
writer, looker = Channel(host, on), Channel(on, host, gpu=0, timeout_s=5.0)
view = (c_uint64 * 16)()
ok(library.ls_channel_view(looker.pointer, byref(view)))
kernel, stream, result = function(0, "look"), stream(0), on_gpu(0, 8)
for threads in (1, 32, 256):
    for number, expected in ((threads, 1), (threads - 1, 2)):
        launch(0, kernel, stream, 1, threads, view, c_uint64(WORD), c_uint64(number), c_uint64(result))
        wait(0, stream)
        assert numbers(result, 1) == [expected], (threads, number, numbers(result, 1))
        ok(writer.call("ls_signal", WORD, threads))
        ok(writer.call("ls_quiet"))
    launch(0, kernel, stream, 1, threads, view, c_uint64(WORD), c_uint64(threads), c_uint64(result))
    wait(0, stream)
    assert numbers(result, 1) == [2], threads
print("seen")
"""


@only_real
def test_a_kernel_looks_once_at_a_word_and_sees_it_when_it_has_its_value() -> None:
    assert script(KERNELS.replace("ROOT", repr(str(ROOT)), 1) + LOOK) == "seen"


PING_PONG = """
from statistics import quantiles
gpus = GPUS
PAGE, PAGES, COUNT = 2 << 20, 24, 4000
words = [on_gpu(gpu, PAGE * PAGES) for gpu in gpus]
results, clocks = [on_gpu(gpu, 16) for gpu in gpus], [on_gpu(gpu, 4 * COUNT) for gpu in gpus]
kernels, streams = [function(gpu, "ping_pong") for gpu in gpus], [stream(gpu) for gpu in gpus]
found = []
for page in range(PAGES):
    at = [start + page * PAGE for start in words]
    for i, gpu in enumerate(gpus):
        launch(gpu, kernels[i], streams[i], 1, 1, c_uint64(at[i]), c_uint64(at[1 - i]), c_uint(i), c_uint64(COUNT),
               c_uint64(2_000_000_000), c_uint64(results[i]), c_uint64(clocks[i]))
    for i, gpu in enumerate(gpus):
        wait(gpu, streams[i])
    use(gpus[0])
    ns, cycles = numbers(results[0], 2)
    assert ns > 0, page
    stamps = [half for both in numbers(clocks[0], COUNT // 2) for half in (both % 2**32, both >> 32)]
    trips = [(after - before) % 2**32 * ns / cycles for before, after in zip(stamps, stamps[1:])]
    cuts = quantiles(trips, n=100)
    found.append((cuts[49], cuts[98]))
    driver.ok("cuMemsetD8Async", c_uint64(results[0]), c_int(0), c_size_t(16), c_void_p())
    driver.ok("cuStreamSynchronize", c_void_p())
found.sort()
shown = [f"{name} {half:.0f} ns (p99 {most:.0f})" for name, (half, most) in
         zip(("fastest", "median", "slowest"), (found[0], found[PAGES // 2], found[-1]))]
print(f"p50 by page of 2 MiB: {', '.join(shown)}")
"""


@only_real
def test_messages_of_8_bytes_go_there_and_back(capsys) -> None:
    """Prints round trips of the library's messages; the benchmark `put_ping_pong` measures them with an interval."""
    on = "[0, 1]" if gpus() > 1 else "[0, 0]"
    code = KERNELS.replace("ROOT", repr(str(ROOT)), 1) + (PEERS if gpus() > 1 else "") + PING_PONG.replace("GPUS", on)
    shown = script(code)
    with capsys.disabled():
        print(f"\n8 B there and back between {'two GPUs' if gpus() > 1 else 'two blocks'}: {shown}")
    assert shown.startswith("p50")


STREAM = """
gpus = GPUS
THREADS, COUNT = 256, 4000
RINGS = THREADS // 8
kernels, streams = [function(gpu, "stream") for gpu in gpus], [stream(gpu) for gpu in gpus]
most = attribute(16).value // (1 if gpus[0] != gpus[1] else 2)
for blocks in sorted({1, 4, 16, 64, most}):
    slots, credits = on_gpu(gpus[1], blocks * RINGS * 32 * 128), on_gpu(gpus[0], blocks * RINGS * 128)
    results = [on_gpu(gpu, 24 * blocks) for gpu in gpus]
    for i, gpu in enumerate(gpus):
        launch(gpu, kernels[i], streams[i], blocks, THREADS, c_uint64(slots), c_uint64(credits), c_uint(1 - i),
               c_uint64(COUNT), c_uint64(5_000_000_000), c_uint64(results[i]))
    for i, gpu in enumerate(gpus):
        wait(gpu, streams[i])
    use(gpus[1])
    found = numbers(results[1], 3 * blocks)
    assert found[2::3] == [0] * blocks, found[2::3]
    print(f"{blocks} blocks: {1e3 * blocks * RINGS * COUNT / (max(found[1::3]) - min(found[::3])):.1f} M/s")
"""


PUTS = """
import time
SIZE = 64 << 20
local, remote = Region(on_gpu(0, SIZE), SIZE), Region(on_gpu(TARGET, SIZE), SIZE)
for size in (4 << 20, SIZE):
    for tma in TMA:
        channel = Channel(local, remote, gpu=0, transport=DIRECT, tma=tma, timeout_s=5.0)
        for blocks in (1, 8, 16, 32, 64):
            count = max(4, (1 << 30) // size)
            puts = [(PUT_SIGNAL, 0, 0, size - 64, SIZE - 64, i) for i in range(count)]
            channel.run(1024, *puts[:2], blocks=blocks)
            begin = time.perf_counter()
            channel.run(1024, *puts, blocks=blocks)
            seconds = time.perf_counter() - begin
            form = f"{size >> 20} MiB {'TMA' if tma else 'threads'} {blocks} blocks"
            print(f"{form}: {count * size / seconds / 1e9:.1f} GB/s")
        channel.close()
"""


@only_real
def test_large_puts_by_blocks_are_timed(capsys) -> None:
    """Prints the rate of puts with a signal each, with the launch of their kernel."""
    target, tma = str(min(gpus() - 1, 1)), "(0, 1)" if capability() >= 9 else "(0,)"
    shown = script(PUTS.replace("TARGET", target).replace("in TMA", f"in {tma}"))
    with capsys.disabled():
        print(f"\nputs {'between two GPUs' if target == '1' else 'within one GPU'}:\n{shown}")
    assert "GB/s" in shown


@only_real
def test_streams_of_64_bytes_arrive_whole_from_all_blocks(capsys) -> None:
    """Prints millions of messages a second: each is polled for by its receiver."""
    on = "[0, 1]" if gpus() > 1 else "[0, 0]"
    code = KERNELS.replace("ROOT", repr(str(ROOT)), 1) + (PEERS if gpus() > 1 else "") + STREAM.replace("GPUS", on)
    shown = script(code)
    with capsys.disabled():
        print(f"\n64 B between {'two GPUs' if gpus() > 1 else 'blocks of one GPU'}:\n{shown}")
    assert "M/s" in shown
