"""Tensors of PyTorch as linkscope.copy sees them, by a stand-in for PyTorch (fake_torch.py)."""

import pytest

from test_transfer import LIBRARY, python

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")

TORCH = """
import fake_torch
from fake_torch import Tensor, current, empty, uses
host = Tensor(np.random.default_rng(1).standard_normal((600, 1000)))
on_gpu = empty((600, 1000), "float64", "cuda:0")
"""


def test_tensors_go_to_a_gpu_and_back_on_their_current_stream() -> None:
    code = """
current.cuda_stream = STREAM
linkscope.copy(on_gpu, host)
back = linkscope.to_cpu(on_gpu)
assert isinstance(back, Tensor) and back.shape == host.shape and back.dtype == host.dtype
assert np.array_equal(back.array, host.array) and linkscope.to_cpu(host) is host
linkscope.copy(on_gpu, host.array)
assert uses == []
print(native.count("ring_to_gpu"), native.latest_fallback())
"""
    assert python(TORCH + code).strip() == "2"


def test_the_allocator_learns_of_a_stream_that_is_not_current() -> None:
    code = """
linkscope.copy(on_gpu, host, stream=STREAM)
assert uses == [(on_gpu.data_ptr(), STREAM)]
"""
    python(TORCH + code)


def test_the_default_stream_is_that_of_the_gpu_that_has_the_tensor() -> None:
    code = """
seen = []
native.copy = lambda dst, src, nbytes, stream: seen.append(stream)
linkscope.copy(on_gpu, host)
linkscope.copy(host, on_gpu, stream=0)
assert seen == [native.STREAM_OF_MEMORY, 0]
"""
    python(TORCH + code)


def test_a_copy_between_two_gpus_waits_for_the_current_streams_of_both() -> None:
    code = """
from fake_torch import on_second, waits
other = Tensor(host.array.copy(), "cuda:1")
current.cuda_stream, on_second.cuda_stream = STREAM, 7
native.copy = lambda dst, src, nbytes, stream: waits.append(("copied on", stream))
linkscope.copy(on_gpu, other)
assert waits == [(STREAM, 7), ("copied on", STREAM), (7, STREAM)] and uses == []
waits.clear()
linkscope.copy(on_gpu, host)
assert waits == [("copied on", STREAM)]
"""
    python(TORCH + code)


def test_a_prepared_copy_between_two_gpus_waits_for_the_streams_of_both_at_each_run() -> None:
    code = """
from fake_torch import on_second, waits
other = Tensor(host.array.copy(), "cuda:1")
current.cuda_stream, on_second.cuda_stream = STREAM, 7
native.Prepared.run = lambda self: waits.append("copied")
between, alone = linkscope.prepare(on_gpu, other), linkscope.prepare(on_gpu, host)
assert waits == []
for _ in range(2): between.run()
assert waits == [(STREAM, 7), "copied", (7, STREAM)] * 2
waits.clear()
alone.run()
assert waits == ["copied"]
"""
    python(TORCH + code)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ("Tensor(host.array[:, ::2])", "not contiguous; pass tensor.contiguous()"),
        ("Tensor(host.array, 'meta')", "pass one on 'cpu' or 'cuda'"),
        ("Tensor(host.array); wrong.layout = 'sparse_coo'", "layout sparse_coo"),
        ("Tensor(host.array); wrong.is_lazy = True", "resolve_conj"),
    ],
)
def test_tensors_that_are_no_plain_memory_are_refused_with_the_cure(tensor, message) -> None:
    code = f"wrong = {tensor}\ntry: linkscope.copy(on_gpu, wrong)\nexcept ValueError as e: print(e)"
    assert message in python(TORCH + code)


def test_a_model_is_loaded_as_tensors_of_a_gpu(tmp_path) -> None:
    code = f"""
import test_safetensors
from pathlib import Path
path, sums = Path({str(tmp_path / "a")!r}), {{}}
expected = test_safetensors.model(path)
tensors = linkscope.load_safetensors(path, "cuda:0", checksums=sums)
driver.ok("cuStreamSynchronize", c_void_p())
for name, one in expected.items():
    assert tensors[name].device.type == "cuda" and np.array_equal(tensors[name].array, one), name
assert sums.keys() == expected.keys()
"""
    python(TORCH + code)


@pytest.mark.parametrize("spread", ["where", "where.get"], ids=["dictionary", "function"])
def test_a_model_is_spread_over_devices(tmp_path, spread) -> None:
    code = f"""
import test_safetensors
from pathlib import Path
path, reported = Path({str(tmp_path / "a")!r}), []
expected = test_safetensors.model(path)
names = sorted(expected)
where = {{name: ("cpu", "cuda:0", "cuda:1")[i % 3] for i, name in enumerate(names)}}
tensors = linkscope.load_safetensors(path, {spread}, progress=lambda done, all: reported.append((done, all)))
for name, one in expected.items():
    on = tensors[name].device
    assert where[name] == (f"cuda:{{on.index}}" if on.type == "cuda" else "cpu"), name
    assert np.array_equal(linkscope.to_cpu(tensors[name]).array, one), name
whole = sum(one.nbytes for one in expected.values())
assert reported == sorted(reported) and reported[-1] == (whole, whole)
try: linkscope.load_safetensors(path, {{names[0]: "cpu"}})
except ValueError as e: print(e)
"""
    assert "device names no device for tensor" in python(TORCH + code)


def test_a_model_needs_pytorch_for_a_device(tmp_path) -> None:
    code = f"""
import sys, test_safetensors
from pathlib import Path
sys.modules["torch"] = None
test_safetensors.model(Path({str(tmp_path / "a")!r}))
try: linkscope.load_safetensors({str(tmp_path / "a")!r}, "cuda")
except ValueError as e: print(e)
"""
    assert "PyTorch is not installed" in python(code)
