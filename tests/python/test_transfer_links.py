"""Copies over several GPUs' links, by Python and by environment, on the fake driver with four GPUs."""

import numpy as np
import pytest

import linkscope
from fake_driver import needs_fake
from linkscope import native
from test_transfer import LIBRARY, python

pytestmark = [
    needs_fake,
    pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it"),
]

# Pinned memory with random bytes goes to the first GPU in PCI bus order and back.
ROUND_TRIP = """
from ctypes import POINTER, c_uint8, cast
start = c_void_p()
driver.ok("cuMemHostAlloc", byref(start), c_size_t(32 << 20), c_uint(0))
pinned = np.ctypeslib.as_array(cast(start, POINTER(c_uint8)), (32 << 20,))
sent = np.random.default_rng(1).integers(0, 255, pinned.size, dtype=np.uint8)
pinned[:], on_gpu = sent, Array(pinned.size)
linkscope.copy(on_gpu, pinned, stream=STREAM)
driver.ok("cuStreamSynchronize", c_void_p(STREAM))
pinned[:] = 0
linkscope.copy(pinned, on_gpu, stream=STREAM)
driver.ok("cuStreamSynchronize", c_void_p(STREAM))
assert np.array_equal(pinned, sent)
print(native.count("relay_to_gpu"), native.count("relay_to_host"), native.latest_fallback())
"""
HELPED = "linkscope.use_helpers(range(4))\n" + ROUND_TRIP


def test_pinned_copies_use_helpers_only_with_leave() -> None:
    assert python(HELPED, CUDA_GPUS=4).split() == ["1", "1"]
    assert python(ROUND_TRIP, CUDA_GPUS=4, transfer_helpers="0,1,2,3").split() == ["1", "1"]
    assert python(ROUND_TRIP, CUDA_GPUS=4).split() == ["0", "0"]


def test_no_chunk_of_a_helper_is_staged_by_the_driver(tmp_path) -> None:
    log = tmp_path / "log"
    python(HELPED, CUDA_GPUS=4, CUDA_LOG=log)
    assert not [line for line in log.read_text().splitlines() if line.startswith("staged")]


def test_a_helper_that_the_gpu_cannot_reach_takes_no_part() -> None:
    assert python(HELPED, CUDA_GPUS=4, CUDA_NO_PEER=1).split() == ["0", "0"]


@pytest.mark.parametrize("missing", ["cuMemCreate", "cuMemSetAccess"])
def test_a_driver_that_cannot_grant_memory_copies_plainly(missing) -> None:
    assert python(HELPED, CUDA_GPUS=4, CUDA_MISSING=missing).split() == ["0", "0"]


def test_wrong_helpers_are_refused() -> None:
    code = "try: linkscope.use_helpers([4])\nexcept ValueError as e: print(e)"
    assert python(code, CUDA_GPUS=4) == "helper gpu:4 is not here; this process sees 4 GPUs\n"
    code = "try: linkscope.copy(np.zeros(1), np.ones(1))\nexcept ValueError as e: print(e)"
    for value in ("one", "1;2", ",1"):
        assert "is not the number of a GPU, as in 1,3" in python(code, transfer_helpers=value)
    with pytest.raises(TypeError):
        linkscope.use_helpers(["gpu:1"])


def test_a_copy_uses_1_to_64_links() -> None:
    with pytest.raises(ValueError, match="1 to 64 links"):
        native.set_knobs("relay_to_gpu", 1 << 20, links=0)
    assert native.knobs("relay_to_gpu", 16 << 20).links == 64
    assert [native.knobs("relay_to_gpu", size << 20).chunk >> 20 for size in (16, 64, 256, 1024)] == [4, 4, 8, 8]
    assert np.array([native.knobs(name, 64 << 20).links for name in ("ring_to_gpu", "ring_to_host")]).max() == 1
