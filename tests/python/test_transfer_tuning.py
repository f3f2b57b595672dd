"""The library uses the tuning file of its machine, unless a variable or its own checks say otherwise."""

import pytest

from fake_driver import needs_fake
from test_transfer import LIBRARY, python

pytestmark = [
    needs_fake,
    pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it"),
]

WRITE = """
native.set_knobs("ring_to_gpu", 64 << 10, plain=0, threads=1, chunk=4 << 20, depth=1, chunks_each=1, piece=0)
native.set_block_knobs(True, 4096, "batch", 3)
"""
SHOW = "print(native.knobs('ring_to_gpu', 100 << 10).plain, native.block_knobs(True, 4096), *native.tuning(), sep='|')"


@pytest.fixture
def tuned(tmp_path):
    """A tuning file of the fake machine, with a ring for the smallest class."""
    file = tmp_path / "mine.tuning"
    python(WRITE + f"native.save_tuning({str(file)!r})", transfer_tuning="none")
    return file


def shown(**settings: str) -> list[str]:
    return python(SHOW, **settings).strip().split("|")


def test_the_variable_names_the_file_and_none_reads_no_file(tuned) -> None:
    plain, blocks, file, note = shown(transfer_tuning=str(tuned))
    assert (plain, blocks, file) == ("0", "('batch', 3)", str(tuned)) and note.startswith("made 2")
    assert shown(transfer_tuning="none") == ["1", "('kernel', 32)", "", "no tuning was asked for"]


def test_a_machine_with_other_gpus_or_another_driver_ignores_the_file(tuned) -> None:
    plain, _, file, note = shown(transfer_tuning=str(tuned), CUDA_VERSION="12040")
    assert (plain, file) == ("1", "") and ":2: made for another machine or version (Fake H200, driver 13000" in note


def test_a_missing_file_is_named(tmp_path) -> None:
    assert "does not exist" in shown(transfer_tuning=str(tmp_path / "none"))[3]


def test_the_file_of_this_machine_is_found_in_the_cache_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "has no tuning; `linkscope tune` makes one" in shown()[3]
    written = python(WRITE + "print(native.save_tuning())").strip()
    assert written.startswith(f"{tmp_path}/linkscope/transfer-") and shown()[2] == written


def test_the_variable_for_plain_copies_wins_over_the_file(tuned) -> None:
    code = """
host, on_gpu = np.ones(64 << 10, np.uint8), Array(64 << 10)
print(native.method_of(on_gpu.address, host.ctypes.data, host.size, STREAM))
"""
    assert python(code, transfer_tuning=str(tuned)).strip() == "ring_to_gpu"
    assert python(code, transfer_tuning=str(tuned), transfer="plain").strip() == "plain"


SLOW_RING = """
host, on_gpu = np.arange(64 << 10).astype(np.uint8), Array(64 << 10)
for copies in range(3000):
    linkscope.copy(on_gpu, host, stream=STREAM)
    driver.ok("cuStreamSynchronize", c_void_p(STREAM))
    if "plain" in native.tuning()[1]: break
assert np.array_equal(linkscope.to_cpu(on_gpu), host)
print(copies, native.method_of(on_gpu.address, host.ctypes.data, host.size, STREAM), native.tuning()[1], sep="|")
"""


def test_a_class_whose_ring_became_slow_is_plain_after_three_checks(tuned) -> None:
    copies, method, note = python(SLOW_RING, transfer_tuning=str(tuned), CUDA_SLOW="cuMemcpyHtoDAsync:3000").split("|")
    assert int(copies) >= 2 * 256 and method == "plain"
    assert "copies by ring_to_gpu from 64 KiB are plain in this process" in note
