"""Saving of files and checkpoints: exact data, the format that others read, and errors that change nothing."""

import json
import resource
import signal
import zlib
from pathlib import Path

import numpy as np
import pytest

import linkscope
from linkscope import native
from test_safetensors import model
from test_transfer import LIBRARY, python

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")


def test_a_saved_checkpoint_is_loaded_with_its_values_names_and_metadata(tmp_path) -> None:
    arrays = model(tmp_path / "other") | {"one": np.array(2.5, "float32"), "flag": np.array([True, False])}
    path, seen, sums = tmp_path / "checkpoint", list[tuple[int, int]](), dict[str, int]()
    counts = linkscope.save_safetensors(
        arrays, path, {"step": "7"}, progress=lambda done, whole: seen.append((done, whole)), checksums=sums
    )
    assert counts.direct + counts.buffered == path.stat().st_size == seen[-1][1] == seen[-1][0]
    loaded = linkscope.load_safetensors(path)
    assert loaded.keys() == arrays.keys()
    for name, one in arrays.items():
        assert loaded[name].dtype == one.dtype and loaded[name].shape == one.shape
        assert np.array_equal(loaded[name], one) and sums[name] == zlib.crc32(one.tobytes())
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"step": "7"} and length % 8 == 0
    assert all(one["data_offsets"][0] % arrays[name].itemsize == 0 for name, one in header.items())
    assert [one.name for one in tmp_path.iterdir() if ".part" in one.name] == []


def test_an_empty_checkpoint_is_a_file_without_tensors(tmp_path) -> None:
    linkscope.save_safetensors({}, tmp_path / "a")
    assert linkscope.load_safetensors(tmp_path / "a") == {}


FROM_GPU = """
from pathlib import Path
import subprocess, zlib
def on_tmpfs(path): return subprocess.check_output(["stat", "-f", "-c", "%T", path], text=True).strip() == "tmpfs"
path = Path(PATH)
whole = np.random.default_rng(1).integers(0, 255, 5_000_077, dtype=np.uint8)
on_gpu = Array(whole.size)
linkscope.copy(on_gpu, whole, stream=STREAM)
counts = linkscope.save_file(path / "raw", on_gpu, stream=STREAM)
assert (path / "raw").read_bytes() == whole.tobytes()
assert counts.direct + counts.buffered == whole.size
assert native.knobs("write_file", whole.size).uring == 32
assert counts.uring == counts.direct or counts.uring_refused or on_tmpfs(path)
native.set_knobs("write_file", whole.size, uring=0)
second = linkscope.save_file(path / "raw", on_gpu, stream=STREAM)
assert (path / "raw").read_bytes() == whole.tobytes() and second.direct == counts.direct and second.uring == 0
native.set_knobs("write_file", whole.size, uring=32)
back = Array(1000)
linkscope.read_file(path / "raw", back, offset=4321, stream=STREAM)
driver.ok("cuStreamSynchronize", c_void_p(STREAM))
assert linkscope.to_cpu(back).tobytes() == whole[4321:5321].tobytes()
sums = {}
linkscope.save_safetensors({"gpu": on_gpu, "host": whole[:100]}, path / "model", checksums=sums)
loaded = linkscope.load_safetensors(path / "model")
assert loaded["gpu"].tobytes() == whole.tobytes() and loaded["host"].tobytes() == whole[:100].tobytes()
assert sums == {"gpu": zlib.crc32(whole.tobytes()), "host": zlib.crc32(whole[:100].tobytes())}
print(native.arena_bytes() > 0)
"""


def test_a_gpus_memory_goes_to_files_through_the_ring(tmp_path) -> None:
    assert python(FROM_GPU.replace("PATH", repr(str(tmp_path)))).strip() == "True"


TENSORS = """
import fake_torch
import torch
path = PATH
tensors = {"a": torch.Tensor(np.arange(300_000, dtype="float32")), "b": torch.Tensor(np.arange(9, dtype="int8"))}
linkscope.save_safetensors(tensors, path)
loaded = linkscope.load_safetensors(path)
assert all(np.array_equal(loaded[name], one.array) and loaded[name].dtype == one.dtype for name, one in tensors.items())
"""


def test_tensors_of_pytorch_are_saved_with_their_types(tmp_path) -> None:
    python(TENSORS.replace("PATH", repr(str(tmp_path / "a"))))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"a": [1, 2]}, "tensor 'a' is a list; pass an array or a tensor"),
        ({"a": np.zeros((3, 4))[:, ::2]}, "tensor 'a' is an array with gaps"),
        ({"a": np.zeros((3, 4), order="F")}, "lies in Fortran order; pass numpy.ascontiguousarray"),
        ({"a": np.zeros(3, ">f4")}, "tensor 'a' has the type >f4, which the format lacks"),
        ({"a": np.zeros(3, "complex64")}, "the type complex64, which the format lacks"),
        ({"__metadata__": np.zeros(3)}, "cannot be the name of a tensor"),
        ({1: np.zeros(3)}, "1 cannot be the name of a tensor"),
    ],
)
def test_what_the_format_cannot_hold_is_refused_with_the_cure(tmp_path, tensors, message) -> None:
    with pytest.raises(ValueError, match=message):
        linkscope.save_safetensors(tensors, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_what_the_progress_function_raises_ends_the_saving_and_keeps_the_old_file(tmp_path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def stop(done: int, whole: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        linkscope.save_safetensors({"a": np.zeros(1 << 20)}, path, progress=stop)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_missing_is_refused(tmp_path) -> None:
    with pytest.raises(ValueError, match="cannot be made: No such file or directory"):
        linkscope.save_file(tmp_path / "missing" / "a", np.zeros(3))


def test_a_file_beyond_the_limit_is_an_error_that_names_the_bytes(tmp_path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(native.TransferError, match=r"has no room for 976\.6 KiB: File too large"):
            linkscope.save_file(tmp_path / "a", np.zeros(1_000_000, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_reading_into_an_array_says_how_and_refuses_a_short_file(tmp_path) -> None:
    path, held = Path(tmp_path / "a"), np.zeros(10, np.uint8)
    path.write_bytes(bytes(range(20)))
    counts = linkscope.read_file(path, held, offset=5)
    assert held.tolist() == list(range(5, 15)) and counts.buffered == 10 and counts.uring == 0
    with pytest.raises(ValueError, match="it is truncated"):
        linkscope.read_file(path, held, offset=11)
    held.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        linkscope.read_file(path, held)
