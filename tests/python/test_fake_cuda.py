"""The fake driver: it behaves like a real one where linkscope relies on it, and it obeys its settings."""

import subprocess
import sys
from pathlib import Path

import pytest

import driver_checks
from driver_by_ctypes import CONTEXT_IS_DESTROYED, INVALID_VALUE
from fake_driver import DEVICE_CODE, environment, needs_fake

pytestmark = needs_fake

CHECKS = Path(driver_checks.__file__)


def run(command: list[str], settings: dict[str, str]) -> str:
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(code: str, library: str = "driver", **settings: str | int) -> str:
    """Runs a few lines against the fake driver in a separate process, because settings are read once."""
    prelude = "import ctypes, driver_checks as c; from ctypes import *; from pathlib import Path\n"
    path = {"PYTHONPATH": str(CHECKS.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    extra = {name: str(settings.pop(name)) for name in list(settings) if name == "CUDA_VISIBLE_DEVICES"}
    return run([sys.executable, "-c", prelude + code], environment(library, **settings) | path | extra)


@pytest.mark.parametrize("name", [check.__name__ for check in driver_checks.CHECKS])
def test_the_fake_driver_passes_every_check_of_a_real_one(name):
    assert "holds" in run([sys.executable, str(CHECKS), str(DEVICE_CODE), name], environment())


@pytest.mark.parametrize("version", [12000, 12040, 12080])
def test_older_driver_versions_pass_the_same_checks(version):
    run([sys.executable, str(CHECKS), str(DEVICE_CODE)], environment(CUDA_VERSION=version))


@pytest.mark.parametrize("capability", [60, 70, 80, 90, 100, 120])
def test_device_code_is_checked_on_every_architecture(capability):
    names = ["device_code_must_match_the_gpu", "patterns_are_filled_and_checked"]
    run([sys.executable, str(CHECKS), str(DEVICE_CODE), *names], environment(CUDA_CAPABILITY=capability))


def test_a_symbol_is_returned_in_the_newest_variant_that_driver_and_caller_know():
    find = "d = c.Driver(); print([d.find('cuCtxSynchronize', v)[1] for v in (2000, 12080, 13000)])"
    old, middle, new = eval(python(find))
    assert old == middle != new
    beyond = "d = c.Driver(); print(d.find('cuCtxSynchronize', 13000)[0])"
    assert python(beyond, CUDA_VERSION=12080).strip() == str(INVALID_VALUE)


def test_missing_symbols_are_not_found():
    find = "d = c.Driver(); print(d.find('cuMemcpyPeerAsync', 4000))"
    assert eval(python(find, CUDA_MISSING="cuMemHostRegister,cuMemcpyPeerAsync")) == (0, None, 1)


def test_the_old_driver_reports_its_version_and_lacks_newer_symbols():
    code = """
library, version = CDLL("libcuda.so.1"), c_int()
assert library.cuInit(0) == 0 and library.cuDriverGetVersion(byref(version)) == 0
assert hasattr(library, "cuGetProcAddress") and not hasattr(library, "cuGetProcAddress_v2")
print(version.value)
"""
    assert python(code, library="old").strip() == "11040"


@pytest.mark.parametrize(
    ("visible", "buses"),
    [
        ("", []),
        ("1", ["1B"]),
        ("3,0", ["43", "9B"]),
        ("0,9,1", ["9B"]),
        ("GPU-fa4ec0da-0000-4200-8000-0000000000db", ["DB"]),
    ],
)
def test_visible_devices_are_selected_as_by_the_driver(visible, buses):
    code = """
library = CDLL("libcuda.so.1")
if library.cuInit(0) == 100:
    print([])
else:
    d, count, text, found = c.Driver(), c_int(), create_string_buffer(32), []
    d.ok("cuDeviceGetCount", byref(count))
    for i in range(count.value):
        d.ok("cuDeviceGetPCIBusId", text, c_int(32), c_int(i))
        found.append(text.value.decode()[5:7])
    print(found)
"""
    assert eval(python(code, CUDA_GPUS=4, CUDA_VISIBLE_DEVICES=visible)) == buses


def test_ordinals_are_not_in_bus_order():
    code = """
d, text = c.Driver(), create_string_buffer(32)
for i in range(8):
    d.ok("cuDeviceGetPCIBusId", text, c_int(32), c_int(i))
    print(text.value.decode())
"""
    buses = python(code, CUDA_GPUS=8).split()
    assert len(set(buses)) == 8 and buses != sorted(buses)


def test_a_kernel_outside_its_memory_makes_the_gpu_unusable():
    code = f"""
d = c.Driver(); g = c.Gpu(d, Path({str(DEVICE_CODE)!r})); s, p = g.stream(), g.memory(4096)
fill = g.function("pattern", "linkscope_fill")
assert g.launch(fill, s, p, c_uint64(513), c_uint64(1), c_uint64(0)) == 0
print(d.cuStreamSynchronize(s), d.cuMemAlloc(byref(c_uint64()), c_size_t(8)))
"""
    assert python(code).split() == ["700", "700"]


def test_a_kernel_reaches_another_gpu_only_with_peer_access():
    code = f"""
d = c.Driver(); code = Path({str(DEVICE_CODE)!r}); other = c.Gpu(d, code, 1); there = other.memory(4096)
g = c.Gpu(d, code); s = g.stream(); fill = g.function("pattern", "linkscope_fill")
arguments = (there, c_uint64(512), c_uint64(1), c_uint64(0))
d.ok("cuCtxEnablePeerAccess", other.context, c_uint(0))
g.launch(fill, s, *arguments); print(d.cuStreamSynchronize(s))
d.ok("cuCtxDisablePeerAccess", other.context)
g.launch(fill, s, *arguments); print(d.cuStreamSynchronize(s))
"""
    assert python(code).split() == ["0", "700"]


def test_destroyed_handles_are_errors():
    code = """
d = c.Driver(); g = c.Gpu(d, Path()); s = g.stream()
d.ok("cuStreamDestroy", s)
print(d.cuStreamDestroy(s), d.cuStreamSynchronize(s))
"""
    assert python(code).split() == ["400", "400"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_GPUS", "nine"),
        ("CUDA_GPUS", "9"),
        ("CUDA_MODE", "shared"),
        ("CUDA_NO_PEER", "yes"),
        ("CUDA_VERSION", "11040"),
    ],
)
def test_an_invalid_setting_ends_the_process(name, value):
    command = [sys.executable, "-c", "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"]
    done = subprocess.run(command, env=environment(**{name: value}), capture_output=True, text=True, timeout=300)
    assert done.returncode == 70 and f"FAKE_{name}='{value}'" in done.stderr


ENDED = """
from driver_by_ctypes import Gpu
d = c.Driver()
gpu = Gpu(d, Path('.'))
stream, word = gpu.stream(), c_uint64()
d.ok('cuDevicePrimaryCtxRelease', c_int(0))
print(d.cuMemAlloc(byref(word), c_size_t(8)))
d.ok('cuCtxSetCurrent', None)
d.cuStreamSynchronize(stream)
"""


def test_uses_of_a_context_that_ended_and_of_what_it_had_are_recorded(tmp_path):
    """A real driver may crash at each. A primary context that is released stays current."""
    log = tmp_path / "log"
    assert python(ENDED, CUDA_LOG=str(log)).split() == [str(CONTEXT_IS_DESTROYED)]
    recorded = [line for line in log.read_text().splitlines() if line.startswith("misuse ")]
    assert recorded == [
        "misuse a primary context that ends before 1 of its streams, events and openings",
        "misuse cuMemAlloc while the current context has ended",
        "misuse a stream that has ended, or whose context has",
    ]
