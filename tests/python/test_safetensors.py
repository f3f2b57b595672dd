"""Loading of safetensors files: exact data, and hostile headers that end in one sentence."""

import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import linkscope
from linkscope import native
from linkscope.safetensors import HeaderError, read_header
from test_transfer import LIBRARY, python

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")


def write(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(shape: list, begin: int, end: int, dtype: str = "U8") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def model(path: Path, seed: int = 1, prefix: str = "") -> dict[str, np.ndarray]:
    """Writes a file of several tensors; one is larger than a slot, one is empty."""
    random = np.random.default_rng(seed)
    arrays = {
        f"{prefix}weight": random.standard_normal((1100, 1000)).astype("float32"),
        f"{prefix}bias": random.integers(0, 255, 333).astype("uint8"),
        f"{prefix}none": np.zeros((0, 7), "float16"),
        f"{prefix}scale": random.standard_normal(5),
        f"{prefix}large": random.integers(0, 1 << 40, 700_001),
    }
    kinds = {"float32": "F32", "uint8": "U8", "float16": "F16", "float64": "F64", "int64": "I64"}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, one in arrays.items():
        header[name] = entry(list(one.shape), at, at + one.nbytes, kinds[one.dtype.name])
        at += one.nbytes
    write(path, header, b"".join(one.tobytes() for one in arrays.values()))
    return arrays


def test_arrays_of_several_files_are_exact(tmp_path) -> None:
    expected = model(tmp_path / "a") | model(tmp_path / "b", 2, "second.")
    seen: list[tuple[int, int]] = []
    sums, counts = dict[str, int](), dict[str, int]()
    loaded = linkscope.load_safetensors(
        [tmp_path / "a", str(tmp_path / "b")],
        progress=lambda done, whole: seen.append((done, whole)),
        checksums=sums,
        counts=counts,
    )
    bytes_read = sum(one.nbytes for one in expected.values())
    assert counts == {"cached": 0, "direct": 0, "buffered": bytes_read, "uring": 0, "cufile": 0, "mapped": 0}
    assert loaded.keys() == expected.keys()
    for name, one in expected.items():
        assert loaded[name].dtype == one.dtype and np.array_equal(loaded[name], one)
        assert sums[name] == zlib.crc32(one.tobytes())
    whole = sum(one.nbytes for one in expected.values())
    assert seen[-1] == (whole, whole) and sorted(seen) == seen


def test_what_the_progress_function_raises_ends_the_loading(tmp_path) -> None:
    model(tmp_path / "a")

    def stop(done: int, whole: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        linkscope.load_safetensors(tmp_path / "a", progress=stop)


LOAD = """
from linkscope import safetensors
import test_safetensors
from pathlib import Path
path = Path(PATH)
expected = test_safetensors.model(path)
entries = safetensors.read_header(path)
buffers = {one.name: Array(max(one.nbytes, 1)) for one in entries}
seen = []
counts = native.read_file(
    path, [(one.offset, one.nbytes, buffers[one.name].address) for one in entries], STREAM, seen.append
)
driver.ok("cuStreamSynchronize", c_void_p(STREAM))
for name, one in expected.items():
    assert linkscope.to_cpu(buffers[name])[: one.nbytes].tobytes() == one.tobytes(), name
whole = sum(one.nbytes for one in expected.values())
read = counts.cached + counts.direct + counts.buffered
assert whole <= read <= whole + (len(expected) + 5) * 4096, (whole, read)
print(native.arena_bytes())
"""


def test_a_file_goes_to_a_gpu_through_a_ring_that_is_smaller_than_the_file(tmp_path) -> None:
    code, bound = LOAD.replace("PATH", repr(str(tmp_path / "a"))), 8 << 20
    assert 0 < int(python(code, transfer_arena=bound)) <= bound < (tmp_path / "a").stat().st_size


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": entry([4], 0, 5)}, "tensor 'a' needs 4 bytes by its shape, and its data_offsets span 5"),
        ({"a": entry([40], 0, 40)}, r"the file has .*; it is truncated"),
        ({"a": entry([8], 0, 8), "b": entry([8], 4, 12)}, "tensors 'a' and 'b' overlap"),
        ({"a": entry([4], 8, 4)}, "data_offsets that are no range"),
        ({"a": entry([-4], 0, 4)}, "no list of sizes"),
        ({"a": entry([True], 0, 1)}, "no list of sizes"),
        ({"a": entry([1 << 61, 8], 0, 8)}, "needs 18446744073709551616 bytes"),
        ({"a": entry([1 << 70], 0, 8)}, "no list of sizes"),
        ({"a": entry([4], 0, 4, "F5")}, "unknown dtype 'F5'"),
        ({"a": [1]}, "lacks dtype, shape or data_offsets"),
        ([], "not a JSON object"),
        (b'{"a": 1, "a": 2}', "a name occurs twice"),
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
    ],
)
def test_hostile_headers_are_refused(tmp_path, header, message) -> None:
    with pytest.raises(HeaderError, match=message):
        read_header(write(tmp_path / "a", header, bytes(16)))


@pytest.mark.parametrize("length", [10 << 30, (1 << 64) - 1, 1000])
def test_a_header_longer_than_the_file_is_refused(tmp_path, length) -> None:
    with pytest.raises(HeaderError, match=f"the header claims {length} bytes"):
        read_header(write(tmp_path / "a", {}, length=length))


def test_files_that_are_none_are_refused(tmp_path) -> None:
    (tmp_path / "short").write_bytes(b"1234")
    with pytest.raises(HeaderError, match="has 4 bytes and no header"):
        linkscope.load_safetensors(tmp_path / "short")
    with pytest.raises(HeaderError, match="No such file"):
        linkscope.load_safetensors(tmp_path / "missing")


def test_one_name_in_two_files_is_refused(tmp_path) -> None:
    model(tmp_path / "a"), model(tmp_path / "b")
    with pytest.raises(HeaderError, match=r"is in .*a and in .*b; load one of them"):
        linkscope.load_safetensors([tmp_path / "a", tmp_path / "b"])


def test_a_type_that_numpy_lacks_names_the_cure(tmp_path) -> None:
    path = write(tmp_path / "a", {"a": entry([4], 0, 8, "BF16")}, bytes(8))
    with pytest.raises(ValueError, match="pass device='cpu' for PyTorch tensors"):
        linkscope.load_safetensors(path)


def test_a_file_that_shrank_after_its_header_was_read_is_refused(tmp_path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    held = np.zeros(200, np.uint8)
    with pytest.raises(ValueError, match="200 from byte 0 are needed; it is truncated"):
        native.read_file(tmp_path / "a", [(0, 200, held.ctypes.data)])


@pytest.mark.parametrize(
    ("names", "metadata", "message"),
    [
        (["a"], {"step": 7}, "metadata 'step' is 7; the format keeps only texts"),
        (["a"], {7: "step"}, "metadata 7 is 'step'; the format keeps only texts"),
        (["\ud800"], None, "cannot be the name of a tensor"),
    ],
)
def test_a_header_that_the_formats_own_library_cannot_read_is_not_saved(tmp_path, names, metadata, message) -> None:
    with pytest.raises(ValueError, match=message):
        linkscope.save_safetensors({name: np.zeros(2) for name in names}, tmp_path / "a", metadata=metadata)
    assert not list(tmp_path.iterdir())


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(HeaderError, match="is no regular file"):
        linkscope.load_safetensors(tmp_path / "a")
