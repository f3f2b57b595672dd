"""The first tensors of a model are read to a GPU while memory for the others is allocated."""

import pytest

from test_transfer import LIBRARY, python

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")

# Three allocations: tensors of 4.4 MB, of a few bytes, and of 5.6 MB. The second one waits until the first read has
# begun, and that read until the third one is made.
START = """
import threading, fake_torch, test_safetensors
from pathlib import Path
from linkscope import safetensors
path = Path(PATH)
expected = test_safetensors.model(path)
safetensors._FIRST_PART, safetensors._LARGEST_PART = 1 << 20, 2 << 20
log, began, all_allocated = [], threading.Event(), threading.Event()
reads, read_file = [], native.read_file
allocate = fake_torch.module.empty

def empty(*words, **named):
    assert threading.current_thread() is threading.main_thread()
    if log: assert began.wait(300)
    log.append("allocated")
    made = allocate(*words, **named)
    if log.count("allocated") == 3: all_allocated.set()
    return made

def reading(path, pieces, stream, report):
    log.append("reads")
    began.set()
    if len(reads) == 0: assert all_allocated.wait(300)
    reads.append([piece[1] for piece in pieces])
    return read_file(path, pieces, stream, report)

fake_torch.module.empty, native.read_file = empty, reading

def threads():
    return [one.name for one in threading.enumerate() if one.name == "linkscope-reading"]
"""


def loaded(tmp_path, code: str, arena: int = 8 << 20) -> str:
    return python(START.replace("PATH", repr(str(tmp_path / "a"))) + code, transfer_arena=arena)


def test_the_callers_thread_allocates_while_another_one_reads_and_the_data_is_exact(tmp_path) -> None:
    code = """
counts = {}
tensors = linkscope.load_safetensors(path, "cuda:0", counts=counts)
driver.ok("cuStreamSynchronize", c_void_p())
assert list(tensors) == list(expected)
for name, one in expected.items():
    assert tensors[name].device.type == "cuda" and np.array_equal(tensors[name].array, one), name
# What is allocated during a read is read by one further call.
assert log[0] == "allocated" and log.count("reads") == 2 and reads == [[4_400_000], [333, 40, 5_600_008]], log
read = counts["cached"] + counts["direct"] + counts["buffered"]
assert read >= sum(reads[0]) + sum(reads[1]) and threads() == []
"""
    loaded(tmp_path, code)


def test_the_read_is_on_the_current_stream_of_the_caller(tmp_path) -> None:
    code = """
seen = []
def on_stream(path, pieces, stream, report):
    seen.append(stream)
    return reading(path, pieces, stream, report)
native.read_file = on_stream
fake_torch.current.cuda_stream = STREAM
linkscope.load_safetensors(path, "cuda:0")
assert seen == [STREAM, STREAM]
"""
    loaded(tmp_path, code)


def test_progress_is_reported_by_the_callers_thread_and_never_falls(tmp_path) -> None:
    code = """
seen = []
def progress(done, whole):
    assert threading.current_thread() is threading.main_thread()
    seen.append((done, whole))
linkscope.load_safetensors(path, "cuda:0", progress=progress)
whole = sum(one.nbytes for one in expected.values())
assert len(seen) > 3 and seen == sorted(seen) and seen[-1] == (whole, whole)
"""
    loaded(tmp_path, code)


def test_no_thread_reads_any_longer_when_an_allocation_fails(tmp_path) -> None:
    code = """
def fails(*words, **named):
    if log.count("allocated") == 2:
        all_allocated.set()
        raise MemoryError("CUDA out of memory")
    return empty(*words, **named)
fake_torch.module.empty = fails
try: linkscope.load_safetensors(path, "cuda:0")
except MemoryError as error: assert "out of memory" in str(error)
else: assert False
assert threads() == []
fake_torch.module.empty = empty
tensors = linkscope.load_safetensors(path, "cuda:0")
driver.ok("cuStreamSynchronize", c_void_p())
assert np.array_equal(tensors["large"].array, expected["large"])
"""
    loaded(tmp_path, code)


def test_what_the_progress_function_raises_ends_the_reading(tmp_path) -> None:
    code = """
def stop(done, whole):
    all_allocated.set()
    raise KeyboardInterrupt
try: linkscope.load_safetensors(path, "cuda:0", progress=stop)
except KeyboardInterrupt: pass
else: assert False
assert threads() == []
"""
    loaded(tmp_path, code)


def test_a_file_that_shrinks_meanwhile_is_an_error_of_the_call(tmp_path) -> None:
    code = """
def cut(*words, **named):
    made = empty(*words, **named)
    if log.count("allocated") == 3: os.truncate(path, 1_000_000)
    return made
import os
fake_torch.module.empty = lambda *words, **named: cut(*words, **named)
all_allocated.wait = lambda seconds: True
try: linkscope.load_safetensors(path, "cuda:0")
except ValueError as error: assert "truncated" in str(error), error
else: assert False
assert threads() == []
"""
    loaded(tmp_path, code)


@pytest.mark.parametrize("device", ["None", "'cpu'"])
def test_memory_of_the_host_is_one_allocation(tmp_path, device) -> None:
    code = f"""
for event in (began, all_allocated): event.set()
tensors = linkscope.load_safetensors(path, {device})
assert log.count("reads") == 1 and log.count("allocated") <= 1
for name, one in expected.items():
    assert np.array_equal(getattr(tensors[name], "array", tensors[name]), one)
"""
    loaded(tmp_path, code)
