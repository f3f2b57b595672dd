"""Wrong names of knobs and of files are refused."""

import numpy as np
import pytest

import linkscope
from linkscope import native
from test_transfer import LIBRARY

pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")


def test_an_unknown_knob_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'sm_block' is no knob; knobs: plain, threads, chunk, "):
        native.set_knobs("ring_to_gpu", 1 << 20, sm_block=0)


@pytest.mark.parametrize("name", ["", "kept\0longer"])
def test_a_path_that_would_name_another_file_is_refused(tmp_path, monkeypatch, name) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").write_bytes(b"old data")
    for call in (linkscope.save_file, linkscope.read_file):
        with pytest.raises(ValueError, match="is no path of a file"):
            call(name, np.zeros(1))
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"old data"]
