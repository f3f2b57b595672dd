"""Copies while the application captures a stream into a graph, by Python."""

import pytest

from fake_driver import needs_fake
from test_transfer import LIBRARY, python

needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")
pytestmark = [needs_fake, needs_library]

CAPTURE = """
from ctypes import byref, c_int, c_uint64, c_void_p
source = np.random.default_rng(1).integers(0, 255, 1 << 20, dtype=np.uint8)
on_gpu, graph, ready = Array(source.size), c_void_p(), c_void_p()
driver.ok("cuStreamBeginCapture", c_void_p(STREAM), c_int(0))
"""
END = """
driver.ok("cuStreamEndCapture", c_void_p(STREAM), byref(graph))
driver.ok("cuGraphInstantiateWithFlags", byref(ready), graph, c_uint64(0))
driver.ok("cuGraphLaunch", ready, c_void_p(STREAM))
driver.ok("cuStreamSynchronize", c_void_p(STREAM))
assert np.array_equal(linkscope.to_cpu(on_gpu), source)
"""


def test_a_copy_in_the_background_is_refused_in_a_capture_and_a_copy_of_the_stream_is_captured() -> None:
    code = """
try: linkscope.start_copy(on_gpu, source, stream=STREAM)
except ValueError as e: print(e)
linkscope.copy(on_gpu, source, stream=STREAM)
"""
    assert "or make a copy of the stream (ls_copy, linkscope.copy), which the graph repeats" in python(
        CAPTURE + code + END
    )


def test_blocks_are_captured_and_repeated_by_the_graph() -> None:
    code = """
to, here = (transfer.strided(at, 4096, 256) for at in (on_gpu.address, source.ctypes.data))
linkscope.copy_blocks(to, here, 4096, stream=STREAM)
"""
    python(CAPTURE + code + END)


def test_blocks_without_a_stream_are_refused_while_a_stream_is_captured() -> None:
    code = """
try: linkscope.copy_blocks([on_gpu.address], [source.ctypes.data], 4096)
except ValueError as e: print(e)
linkscope.copy(on_gpu, source, stream=STREAM)
"""
    assert "name the captured stream" in python(CAPTURE + code + END)


def test_files_are_refused_in_a_capture(tmp_path) -> None:
    code = f"""
path = {str(tmp_path / "file")!r}
source.tofile(path)
for go in (lambda: linkscope.read_file(path, on_gpu, stream=STREAM),
           lambda: linkscope.save_file(path, on_gpu, stream=STREAM)):
    try: go()
    except ValueError as e: print(e)
linkscope.copy(on_gpu, source, stream=STREAM)
"""
    assert python(CAPTURE + code + END).count("that is not captured") == 2
