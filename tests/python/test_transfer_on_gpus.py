"""Copies between memories of GPUs by kernels that a tuning file chooses, and registered host memory, by Python."""

import pytest

from fake_driver import needs_fake
from test_transfer import LIBRARY, python

needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")
pytestmark = [needs_fake, needs_library]

KNOBS = """
for method in ("within_gpu", "between_peers"):
    native.set_knobs(method, 1 << 20, plain=0, sm_blocks=48, tma={tma})
native.save_tuning({file!r})
"""
COPIES = """
sent = np.random.default_rng(1).integers(0, 255, 2 << 20, dtype=np.uint8)
source, target = Array(3 << 20), Array(3 << 20)
linkscope.copy(source[: sent.size], sent, stream=STREAM)
for first in {offsets}:
    linkscope.copy(target[first : first + sent.size], source[: sent.size], stream=STREAM)
    driver.ok("cuStreamSynchronize", c_void_p(STREAM))
    assert np.array_equal(linkscope.to_cpu(target[first : first + sent.size]), sent)
print(native.count("within_gpu"), native.latest_fallback())
"""


@pytest.mark.parametrize(
    "tma, capability, kernels",
    [(0, 90, ["sm", "sm"]), (1, 90, ["tma", "sm"]), (1, 80, ["sm", "sm"])],
    ids=["SMs", "TMA and the offset that it lacks", "TMA on a GPU without it"],
)
def test_copies_within_a_gpu_use_what_the_tuning_file_chose(tmp_path, tma, capability, kernels) -> None:
    file, log, chosen = tmp_path / "tuning", tmp_path / "log", {"CUDA_CAPABILITY": capability}
    python(KNOBS.format(tma=tma, file=str(file)), **chosen, transfer_tuning="none")
    # The second copy of a tuned class is a check by the driver's own one.
    told = python(COPIES.format(offsets=(16, 0, 0, 3)), **chosen, CUDA_LOG=log, transfer_tuning=str(file))
    assert told.split() == ["3"]
    launched = [line.split() for line in log.read_text().splitlines() if "linkscope_copy_by" in line]
    assert [line[2].removeprefix("linkscope_copy_by_") for line in launched] == [kernels[0], *kernels]
    assert {line[3] for line in launched} == {"48"}


def test_before_tuning_copies_within_a_gpu_are_the_drivers(tmp_path) -> None:
    log = tmp_path / "log"
    assert python(COPIES.format(offsets=(0, 3)), CUDA_LOG=log, transfer_tuning="none").split() == ["0"]
    assert "linkscope_copy_by" not in log.read_text()


@pytest.mark.parametrize("method", ["ring_to_gpu", "ring_to_host"])
def test_a_kernel_that_moves_chunks_has_no_more_blocks_than_the_gpu_has_sms(tmp_path, method) -> None:
    code = f"""
native.set_knobs({method!r}, 4 << 20, sm_blocks=1000, sm_chunk=4096)
source, on_gpu, back = np.ones(4 << 20, np.uint8), Array(4 << 20), np.zeros(4 << 20, np.uint8)
linkscope.copy(on_gpu, source)
linkscope.copy(back, on_gpu)
assert native.count({method!r}) == 1 and np.array_equal(back, source)
"""
    log = tmp_path / "log"
    python(code, CUDA_LOG=log, transfer_tuning="none")
    launched = [line.split() for line in log.read_text().splitlines() if "linkscope_pump" in line]
    assert max(int(line[3]) for line in launched) == 132


def test_registered_arrays_are_copied_as_pinned_ones_until_the_end_of_the_registration() -> None:
    code = """
source = np.random.default_rng(1).integers(0, 255, 6 << 20, dtype=np.uint8)
on_gpu = Array(source.size)
def method(): return native.method_of(on_gpu.address, source.ctypes.data, source.nbytes, STREAM)
assert method() == "ring_to_gpu"
with linkscope.register(source):
    assert method() == "plain" and native.registered_bytes() == source.nbytes
    linkscope.copy(on_gpu, source, stream=STREAM)
assert method() == "ring_to_gpu" and native.registered_bytes() == 0
assert np.array_equal(linkscope.to_cpu(on_gpu), source)
kept = linkscope.register(source)
kept.close(), kept.close()
lost = linkscope.register(np.zeros(1 << 20, np.uint8))
del lost
assert native.registered_bytes() == 0
for wrong in (on_gpu, np.zeros(0), (source.ctypes.data, 1 << 60)):
    try: linkscope.register(wrong)
    except ValueError as e: print(e)
held = linkscope.register(source)
native.close()
held.close()
"""
    told = python(code).splitlines()
    assert [line.split()[0] for line in told] == ["memory", "a", "the"]


def test_the_bound_of_registered_memory_comes_from_the_environment() -> None:
    code = "try: linkscope.register(np.zeros(2 << 20, np.uint8))\nexcept MemoryError as e: print(e)"
    told = python(code, transfer_registered=1 << 20)
    assert "2 MiB more would exceed the bound of 1 MiB" in told and "LINKSCOPE_TRANSFER_REGISTERED" in told
    wrong = code.replace("MemoryError", "ValueError")
    assert "LINKSCOPE_TRANSFER_REGISTERED='some'" in python(wrong, transfer_registered="some")


def test_the_process_ends_the_registrations_that_it_left(tmp_path) -> None:
    log = tmp_path / "log"
    python("kept = linkscope.register(np.zeros(2 << 20, np.uint8))\nforget()", CUDA_LOG=log)
    assert [line for line in log.read_text().splitlines() if line.startswith(("left", "ended"))] == ["ended"]


def test_without_a_gpu_arrays_can_be_registered() -> None:
    code = """
with linkscope.register(np.zeros(2 << 20, np.uint8)): print(native.registered_bytes())
"""
    assert python(code, library="broken") == "0\n"
