"""Files that the GPU copies from the page cache itself: `read_file`, the loader, and the tuner's choice."""

import json
import re

import pytest

from fake_driver import needs_fake
from linkscope.cli.tune import _knobs
from linkscope.tune import Job, Ring, Row, tune
from linkscope.tune.grids import beside_in_grid, grid
from test_transfer import python
from test_tune import HOSTS, MIB, SimulatedBench
from test_tune_command import linkscope_tune, needs_library

CACHED = Job("cached-file", 16 * MIB, 64 * MIB)
MAPPED = "for start in native.file_classes(): native.set_knobs('read_cached', start, mapped=1, chunk=1 << 20)\n"


class CacheBench(SimulatedBench):
    """A host whose page cache the GPU reads at `mapped_rate` with at least four threads and windows of 16 MiB."""

    mapped_rate = 50e9

    def default(self, method: str, nbytes: int) -> Ring:
        return Ring(16, 2 * MIB)

    def staged(self, job: Job, ring: Ring | None, repeats: int) -> float:
        if ring is None:
            return self._timed(job.total_bytes / 4e9)
        if not ring.mapped:
            return self._timed(job.total_bytes / (20e9 * min(ring.threads / 16, 1)))
        rate = self.mapped_rate * min(ring.threads / 4, 1) * min(ring.chunk / (16 * MIB), 1)
        return self._timed(job.total_bytes / rate)


def chosen(bench: CacheBench) -> Ring:
    (row,) = tune(bench, [CACHED], 120.0, now=bench.now)
    assert isinstance(row.choice, Ring)
    return row.choice


def test_the_mapped_page_cache_is_chosen_where_it_is_faster() -> None:
    bench = CacheBench(HOSTS["fast CPUs"], 6e9, 0.01)
    found = chosen(bench)
    assert found.mapped and found.threads >= 4 and found.chunk >= 16 * MIB
    assert bench.chosen["read_cached", 64 * MIB] == found


def test_the_ring_is_chosen_where_the_mapped_page_cache_is_slower() -> None:
    bench = CacheBench(HOSTS["fast CPUs"], 6e9, 0.01)
    bench.mapped_rate = 12e9
    assert not chosen(bench).mapped


def test_no_candidate_pins_more_than_the_arena_and_windows_have_no_depth() -> None:
    bench = CacheBench(HOSTS["fast CPUs"], 6e9)
    mapped = [one for one in grid(CACHED, bench, Ring(16, 2 * MIB)) if one.mapped]
    near = list(beside_in_grid(CACHED, Ring(8, 16 * MIB, mapped=1), bench))
    assert mapped and {4 * MIB, 16 * MIB} == {one.chunk for one in mapped}
    assert {8 * MIB, 32 * MIB} <= {one.chunk for one in near} and {one.depth for one in near} == {2}
    assert all(one.threads * one.chunk <= bench.slots * 4 * MIB for one in [*mapped, *near])
    assert Ring(4, 16 * MIB, 2, mapped=1).cost() == (1, 4, 0, 64 * MIB)


def test_the_table_says_that_the_page_cache_is_mapped() -> None:
    row = Row(CACHED, Ring(8, 16 * MIB, 2, mapped=1), 2.0, 1.0, 0.5, None)
    assert _knobs(row) == "mapped page cache, 8 threads, windows of 16 MiB"


READ = """
source = np.random.default_rng(1).integers(0, 255, (6 << 20) + 77, dtype=np.uint8)
source.tofile(path)
on_gpu = Array(source.size)
seen = []
for offset in (0, 4096, 12_345):
    part = on_gpu[: source.size - offset]
    counts = linkscope.read_file(path, part, offset, stream=STREAM)
    back = np.zeros(source.size - offset, np.uint8)
    linkscope.copy(back, part, stream=STREAM)
    assert np.array_equal(back, source[offset:]), offset
    seen.append(counts.mapped >= source.size - offset - 2 * 65536 and counts.mapped <= counts.cached)
print(*seen, native.latest_fallback(), sep="|")
"""


@needs_fake
@needs_library
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, ""),
        ({"CUDA_REFUSE": "cuMemHostRegister:801"}, "cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED"),
        ({"CUDA_MISSING": "cuMemHostRegister"}, "this driver has no cuMemHostRegister"),
    ],
)
def test_read_file_counts_what_the_gpu_read_itself_or_says_why_it_did_not(tmp_path, settings, reason) -> None:
    *mapped, why = python(f"path = {str(tmp_path / 'file')!r}\n{MAPPED}{READ}", **settings).strip().split("|")
    assert mapped == [str(not reason)] * 3
    assert why.startswith(f"mapped: {reason}") if reason else not why


@needs_fake
@needs_library
def test_a_model_in_the_page_cache_is_loaded_from_there_and_counted(tmp_path) -> None:
    code = f"""
import zlib, fake_torch as torch
{MAPPED}
expected = {{f"layer{{i}}": np.full(1000 * i + 3, i, np.uint8) for i in range(1, 40)}}
expected["large"] = np.arange(5 << 20, dtype=np.uint32).view(np.uint8)
linkscope.save_safetensors(expected, {str(tmp_path / "model")!r})
counts = {{}}
sums = {{}}
loaded = linkscope.load_safetensors({str(tmp_path / "model")!r}, "cuda", counts=counts, checksums=sums)
assert sums == {{name: zlib.crc32(array) for name, array in expected.items()}} and set(loaded) == set(expected)
print(counts["mapped"], counts["cached"])
"""
    mapped, cached = map(int, python(code).split())
    assert 20 << 20 >= mapped >= (20 << 20) - 131_072 and cached > mapped


@needs_fake
@needs_library
@pytest.mark.parametrize("refused", [False, True])
def test_the_mapped_page_cache_is_raced_and_a_refusal_is_said(tmp_path, refused) -> None:
    words = ["--budget", "2s", "--largest", "1MiB", "--paths", "cached-file", "-o", str(tmp_path / "mine.tuning")]
    settings = {"FAKE_CUDA_REFUSE": "cuMemHostRegister:801"} if refused else {}
    done = linkscope_tune(*words, "--json", **settings)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["why_no_mapped"].startswith("cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED") == refused
    assert not (refused and any(row["knobs"].get("mapped") for row in found["classes"]))
    if refused:
        said = linkscope_tune(*words, **settings).stdout
        assert "not raced: files from the mapped page cache (cuMemHostRegister" in said


@needs_fake
@needs_library
def test_a_tuning_file_decides_who_reads_the_page_cache_and_one_without_the_word_still_loads(tmp_path) -> None:
    mapped, older = tmp_path / "mine.tuning", tmp_path / "older.tuning"
    python(f"{MAPPED}native.save_tuning({str(mapped)!r})", transfer_tuning="none")
    text = mapped.read_text()
    older.write_text(re.sub(r"(copies read_cached from \d+) mapped ", r"\1 ring ", text))
    assert " mapped " in text and " mapped " not in older.read_text()
    for file, expected in ((mapped, "1"), (older, "0")):
        used = python("print(native.knobs('read_cached', 2 << 20).mapped, *native.tuning())", transfer_tuning=str(file))
        assert used.split()[:2] == [expected, str(file)]
