"""tools/loader_bench.py on the fake driver: one call has every row, data is compared, and the sentences are right."""

import json
from pathlib import Path

import loader_bench
import pytest

from test_transfer import LIBRARY, python

TOOLS = Path(loader_bench.__file__).parent

START = f"""
import fake_torch, sys, threading
from fake_gpu import driver
sys.path.insert(0, {str(TOOLS)!r})
import loader_bench
main = threading.main_thread()  # which has the context
fake_torch.module.cuda.synchronize = lambda: threading.current_thread() is main and driver.ok("cuCtxSynchronize")
loader_bench.LOADERS = {{name: loader_bench.LOADERS[name] for name in ("pinned copy", "linkscope", "safetensors")}}
"""


@pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")
def test_one_call_has_allocations_and_every_loader_on_tmpfs_and_from_the_page_cache(tmp_path) -> None:
    output = tmp_path / "rows.json"
    code = f"""
import tempfile
tempfile.tempdir = {str(tmp_path)!r}
sys.argv = ["loader_bench.py", "--everything", "--gib", "0.02", "--repeats", "1", "-o", {str(output)!r}]
sys.argv += ["--loaders", "pinned copy", "linkscope", "safetensors"]
assert loader_bench.main() == 0
"""
    said = python(START + code)
    rows = json.loads(output.read_text())["rows"]
    assert [row["allocation"] for row in rows[:3]] == [1, 8, 64] and all(len(row["seconds"]) == 4 for row in rows[:3])
    found = {(row["directory"], row["loader"], row["buffers"]) for row in rows[3:]}
    places = ("/dev/shm", str(tmp_path))
    # safetensors is not here: it is named once for each directory, and takes no further part.
    assert found == {(p, name, b) for p in places for name in ("pinned copy", "linkscope") for b in ("new", "kept")}
    assert said.count("safetensors: ") == 2 and "WRONG DATA" not in said
    assert said.count("% of the pinned copy") == 4


@pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")
def test_a_loader_with_a_wrong_byte_is_named(tmp_path) -> None:
    code = f"""
def wrong(path):
    tensors = loader_bench.linkscope(path)
    fake_torch.module.cuda.synchronize()
    next(iter(tensors.values())).array.reshape(-1)[7] += 1
    return tensors
loader_bench.LOADERS["wrong"] = ("torch", lambda _: wrong)
list(loader_bench.rows_of({str(tmp_path)!r}, 1 << 20, 1, ["wrong", "linkscope"]))
"""
    assert python(START + code).count("wrong: WRONG DATA") == 2


@pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")
def test_with_a_budget_a_slow_loader_repeats_less_often_and_none_passes_the_end(tmp_path) -> None:
    code = f"""
clock = [0.0]
loader_bench.time = type("Time", (), dict(monotonic=lambda: clock[0], perf_counter=lambda: clock[0]))
def taking(seconds):
    def load(path):
        clock[0] += seconds
        return loader_bench.linkscope(path)
    return ("torch", lambda _: load)
loader_bench.LOADERS |= dict(fast=taking(1.0), slow=taking(8.0))
rows = loader_bench.in_directories([{str(tmp_path)!r}], 1 << 20, 3, ["fast", "slow"], 52.0)
print({{(row["loader"], row["buffers"]): len(row["seconds"]) for row in loader_bench.latest(rows)}}, clock)
"""
    # New buffers, 26 s: four calls of the fast loader and two of the slow one. Kept buffers: 16 s for the fast one,
    # then all that is left for the slow one. The first call of each is not timed.
    said = python(START + code)
    assert "{('fast', 'new'): 3, ('slow', 'new'): 1, ('fast', 'kept'): 3, ('slow', 'kept'): 2} [48.0]" in said
    assert "slow                     buffers kept   0.00 GiB    8.000 s    0.00 GB/s from 2 calls" in said


def test_only_the_latest_row_of_a_loader_and_all_other_rows_are_kept() -> None:
    rows = [row("a", 1.0), {"allocation": 1}, row("a", 2.0), row("a", 3.0, "kept"), {"allocation": 1}]
    assert loader_bench.latest(rows) == [row("a", 2.0), {"allocation": 1}, row("a", 3.0, "kept"), {"allocation": 1}]


def row(loader: str, gbps: float, buffers: str = "new") -> dict:
    return {"directory": "/dev/shm", "loader": loader, "buffers": buffers, "gbps": gbps}


def test_the_sentence_compares_with_the_best_other_loader_and_with_the_pinned_copy() -> None:
    rows = [row("pinned copy", 50.0), row("linkscope", 46.0), row("b", 40.0), row("a", 20.0), row("a", 9.0, "kept")]
    rows.insert(0, {"allocation": 1})
    assert list(loader_bench.summary(rows)) == [
        "/dev/shm, buffers new: linkscope 46.00 GB/s, 1.15 times b, 92% of the pinned copy"
    ]
    assert list(loader_bench.summary([row("linkscope", 46.0)])) == ["/dev/shm, buffers new: linkscope 46.00 GB/s"]
