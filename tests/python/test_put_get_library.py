"""Puts and gets by the C interface, on the fake driver: peers, processes, the header for device code, examples."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fake_driver import ROOT, environment, needs_fake

pytestmark = needs_fake

NATIVE = ROOT / "src" / "linkscope" / "_native"
PRELUDE = "from put_get_script import *\nfrom put_get_script import PROXY, PUT_SIGNAL, QUIET, GET, ADD\n"


def script(code: str, **settings: int) -> str:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "python")])
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env=environment(**settings) | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


ON_TWO_GPUS = """
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from driver_by_ctypes import Driver, ordinals
driver = Driver()

def on_gpu(number, count):
    ordinal = ordinals(driver)[number]
    context, pointer = c_void_p(), c_uint64()
    driver.ok("cuDevicePrimaryCtxRetain", byref(context), c_int(ordinal))
    driver.ok("cuCtxSetCurrent", context)
    driver.ok("cuMemAlloc", byref(pointer), c_size_t(count))
    return pointer.value

"""


@pytest.mark.parametrize(
    "no_peer, transport",
    [(0, "memory"), (1, "proxy (copy engine): GPU 0 and GPU 1 have no peer access")],
    ids=["peers", "no peers"],
)
def test_a_kernel_puts_to_another_gpu_by_itself_or_by_a_proxy_that_says_why(no_peer: int, transport: str) -> None:
    code = (
        ON_TWO_GPUS
        + """
first, second = Region(on_gpu(0, 4096), 4096), Region(on_gpu(1, 4096), 4096)
seen = Region(size=4096)
seen.write(0, bytes(range(200)))
ok(Channel(seen, first).call("ls_put", 0, 0, 200))
fill = Channel(seen, first); ok(fill.call("ls_put", 0, 0, 200)); ok(fill.call("ls_quiet"))
channel = Channel(first, second, gpu=0)
for threads in (1, 32, 256):
    channel.run(threads, (PUT_SIGNAL, 0, 64 + threads, 200, 1024, threads), (QUIET,))
    back = Channel(seen, second)
    ok(back.call("ls_get", 2048, 64 + threads, 200)); ok(back.call("ls_get", 3000, 1024, 8)); ok(back.call("ls_quiet"))
    assert seen.bytes(2048, 200) == bytes(range(200)), threads
    assert int.from_bytes(seen.bytes(3000, 8), "little") == threads
print(channel.transport())
"""
    )
    settings = {"CUDA_NO_PEER": 1} if no_peer else {}
    assert script(code, CUDA_GPUS=2, **settings) == transport


def test_a_kernel_puts_to_memory_of_a_gpu_of_another_process() -> None:
    code = (
        ON_TWO_GPUS
        + """
import subprocess, sys
if len(sys.argv) > 1:
    remote = Region(handle=sys.argv[1], gpu=0)
    local = Region(size=4096)
    local.write(0, b"across processes")
    channel = Channel(local, remote, gpu=0)
    channel.run(32, (PUT_SIGNAL, 0, 100, 16, 1024, 5))
    print(channel.transport())
else:
    mine = Region(on_gpu(0, 4096), 4096)
    done = subprocess.run([sys.executable, "-c", open("/proc/self/cmdline").read().split("\\0")[2], mine.handle()],
                          capture_output=True, text=True)
    assert done.stdout == "memory\\n", done.stdout + done.stderr
    seen = Region(size=4096)
    channel = Channel(seen, mine)
    ok(channel.call("ls_get", 0, 100, 16)); ok(channel.call("ls_get", 64, 1024, 8)); ok(channel.call("ls_quiet"))
    print(seen.bytes(0, 16).decode(), seen.bytes(64, 1)[0])
"""
    )
    assert script(code, CUDA_GPUS=1) == "across processes 5"


def test_a_region_is_closed_after_its_channels() -> None:
    code = """
a, b = Region(size=64), Region(size=64)
channel = Channel(a, b)
print(error(a.close()))
channel.close()
ok(a.close()); ok(b.close()); ok(library.ls_close())
"""
    assert script(code, CUDA_GPUS=1) == "1 open channels use the region: close them first"


def test_channels_of_host_memory_need_no_gpu() -> None:
    code = """
a, b = Region(size=4096), Region(size=4096)
b = Region(handle=b.serve("127.0.0.1")) if TCP else b
a.write(0, b"no GPU")
channel = Channel(a, b, transport=PROXY)
ok(channel.call("ls_put", 8, 0, 6)); ok(channel.call("ls_add", 64, 40)); ok(channel.call("ls_add", 64, 2))
ok(channel.call("ls_get", 100, 8, 6)); ok(channel.call("ls_get", 128, 64, 8)); ok(channel.call("ls_quiet"))
print(channel.transport(), a.bytes(100, 6), a.bytes(128, 1)[0], sep="; ")
"""
    for tcp, name in ((False, "proxy (CPU)"), (True, "proxy (TCP): the region is behind TCP")):
        shown = script(code.replace("TCP", str(tcp), 1), CUDA_GPUS=0)
        assert shown == f"{name}; b'no GPU'; 42"


@pytest.mark.parametrize("key, said", [(2, ""), (3, "remote access error: the remote key, or the range,")])
def test_a_cpu_thread_posts_to_a_network_card(key: int, said: str) -> None:
    code = """
from ctypes import addressof
from card_script import Card
SIZE, BLOCKS = 1 << 16, 16
queues, here, there = Region(size=Card.size(BLOCKS)), Region(size=SIZE), Region(size=SIZE)
card = Card(queues.start(), BLOCKS, [(region.start(), SIZE) for region in (here, there)])
here.write(0, bytes(range(250)) * 40)
with card:
    channel = Channel(here, Region(handle=there.card_handle(KEY)), pair=addressof(card.pair), timeout_s=300.0)
    for i in range(1, 40):
        channel.call("ls_put_signal", i, 0, 100 * i, SIZE - 64, i)
    channel.call("ls_add", SIZE - 56, 42)
    channel.call("ls_get", 9000, SIZE - 64, 16)
    print(error(channel.call("ls_quiet")) if KEY != 2 else ok(channel.call("ls_quiet")) or "")
assert not card.problems, card.problems
assert KEY != 2 or there.bytes(39, 3900) == here.bytes(0, 3900)
assert KEY != 2 or here.bytes(9000, 16) == bytes([39, *7 * [0], 42, *7 * [0]])
print(channel.transport())
"""
    shown = script(code.replace("KEY", str(key)), CUDA_GPUS=1)
    assert said in shown and shown.endswith("network card (queue pair 7)")


@pytest.fixture(scope="module")
def nvrtc():
    sys.path.insert(0, str(ROOT / "cmake"))
    from embed_device_code import Nvrtc

    return Nvrtc()


@pytest.mark.parametrize("arch", ["sm_70", "sm_90"])
def test_the_device_header_compiles_alone(nvrtc, arch: str) -> None:
    code = nvrtc.compile(ROOT / "examples" / "put_get_kernel.cu", [str(NATIVE)], arch)
    assert b"send_and_wait" in code


@pytest.mark.parametrize("group", ["Lanes<1>", "Warp", "Block"])
def test_a_group_of_a_kernel_polls_a_word_without_a_wait(nvrtc, tmp_path: Path, group: str) -> None:
    kernel = tmp_path / "poll.cu"
    kernel.write_text(f"""#include "linkscope_device.hpp"
extern "C" __global__ void poll_once(linkscope::Channel channel, unsigned* there) {{
  using Group = linkscope::{group};
  linkscope::DevicePoster<Group> poster{{channel, linkscope::DeviceMemoryWords{{}}, Group{{}}}};
  bool found = false;
  if (poster.poll(64, 7, found) == linkscope::Posted::ok) *there = found;
}}
""")
    assert b"poll_once" in nvrtc.compile(kernel, [str(NATIVE)], "sm_90")


def test_the_example_sends_a_message_and_waits_for_the_answer(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    program = tmp_path / "put_get"
    command = [compiler, "-std=c99", "-Wall", "-Werror", "-I", str(NATIVE), str(ROOT / "examples" / "put_get.c")]
    subprocess.run([*command, "-L", str(NATIVE), "-llinkscope", "-lpthread", "-o", str(program)], check=True)
    variables = environment(CUDA_GPUS=1)
    variables["LD_LIBRARY_PATH"] += f":{NATIVE}"
    done = subprocess.run([program], env=variables, capture_output=True, text=True, timeout=300)
    assert done.stdout == "received: a message\ncarried by memory\n", done.stdout + done.stderr
