"""Arrays of PyTorch and CuPy themselves, on a GPU: one line copies them, in the order of their library's streams."""

import importlib.util
import subprocess
import sys

import pytest

from on_gpus import ENVIRONMENT, FAKE, needs

pytestmark = [needs(1), pytest.mark.skipif(FAKE, reason="PyTorch and CuPy do not run on the fake driver")]

COUNT = 5_000_011

TORCH = f"""
import torch, linkscope
count = {COUNT}
source = torch.randint(-9, 9, (count,), dtype=torch.int32)
on_gpu, back = torch.empty_like(source, device="cuda"), torch.zeros_like(source)
linkscope.copy(on_gpu, source)
assert torch.equal(on_gpu.cpu(), source)
linkscope.copy(back, on_gpu)
assert torch.equal(back, source)
for kind in (torch.bfloat16, torch.float64, torch.bool, torch.complex64):
    one = source.to(kind).cuda().reshape(-1, 1)
    home = linkscope.to_cpu(one)
    assert home.dtype == kind and home.shape == one.shape and torch.equal(home, one.cpu()), kind
square = on_gpu[: 1000 * 1000].reshape(1000, 1000)
assert torch.equal(linkscope.to_cpu(square.t()), square.t().cpu())
try: linkscope.copy(torch.empty_like(square), square.t())
except ValueError as error: print("refused:", error)
# Work that is on the current stream comes first, and memory that is freed at once is not used again too early.
stream, large = torch.cuda.Stream(), torch.rand(6000, 6000, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(stream):
    for i in range(8):
        for _ in range(3): large @ large
        one = torch.full((count,), i, dtype=torch.int32, device="cuda")
        there = torch.full((count,), i + 100, dtype=torch.int32).pin_memory()
        linkscope.copy(on_gpu, there)
        home = linkscope.to_cpu(one)
        del one, there
        again = torch.full((count,), -1, dtype=torch.int32, device="cuda"), torch.full((count,), -1).pin_memory()
        assert (home == i).all(), i
        assert (linkscope.to_cpu(on_gpu) == i + 100).all(), i
"""

CUPY = f"""
import cupy, numpy as np, linkscope
from pathlib import Path
count = {COUNT}
source = np.random.default_rng(5).standard_normal(count)
on_gpu, back = cupy.zeros(count), np.zeros(count)
linkscope.copy(on_gpu, source)
cupy.cuda.Device().synchronize()
assert np.array_equal(cupy.asnumpy(on_gpu), source)
linkscope.copy(back, on_gpu)
assert np.array_equal(back, source)
shaped = on_gpu[: 6 * 1000].reshape(6, 1000).astype(cupy.float16)
home = linkscope.to_cpu(shaped)
assert home.dtype == np.float16 and home.shape == (6, 1000) and np.array_equal(home, cupy.asnumpy(shaped))
try: linkscope.copy(on_gpu[: count // 2], on_gpu[1::2][: count // 2])
except ValueError as error: print("refused:", error)
large = cupy.ones((4000, 4000), cupy.float32)
cupy.cuda.Device().synchronize()
with cupy.cuda.Stream(non_blocking=True):
    for i in range(5):
        for _ in range(3): large @ large
        on_gpu.fill(i)
        assert (linkscope.to_cpu(on_gpu) == i).all(), i
path = Path(PATH)
linkscope.save_safetensors({{"one": on_gpu}}, path)
assert np.array_equal(linkscope.load_safetensors(path)["one"], cupy.asnumpy(on_gpu))
"""


def printed(code: str, library: str) -> str:
    """What a process of its own prints. Skips without the library."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_line_copies_tensors_of_pytorch_in_the_order_of_its_streams() -> None:
    assert printed(TORCH, "torch").count("refused:") == 1


def test_one_line_copies_arrays_of_cupy_in_the_order_of_its_streams(tmp_path) -> None:
    assert printed(CUPY.replace("PATH", repr(str(tmp_path / "model"))), "cupy").count("refused:") == 1
