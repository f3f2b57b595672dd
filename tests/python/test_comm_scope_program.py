"""tools/comm_scope_program.py: all benchmarks of Comm|Scope fit into a time, and an interruption loses few of them."""

import json
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import comm_scope_names as names
import comm_scope_program as tool
import pytest

TOOL = Path("comm_scope")


def rows(name: str, repetitions: int) -> list[dict[str, Any]]:
    one = {"name": name, "run_name": name, "run_type": "iteration", "repetitions": repetitions, "time_unit": "us"}
    mean = one | {"name": f"{name}_mean", "run_type": "aggregate", "real_time": 9.0, "note": "] } [ {"}
    return [one | {"real_time": 5.0 + number} for number in range(repetitions)] + [mean]


def printed(found: list[dict[str, Any]]) -> str:
    return json.dumps({"context": {"load_avg": [1.0, 2.0]}, "benchmarks": found}, indent=2)


def test_a_file_that_ends_anywhere_has_the_benchmarks_before_that_place(tmp_path: Path) -> None:
    text, output = printed([row for name in "abc" for row in rows(name, 3)]), tmp_path / "cut.json"
    whole = []
    for end in range(text.index("benchmarks") + 20, len(text) + 1, 11):
        output.write_text(text[:end])
        found = {one.name: one for one in names.measurements(output)}
        measured = {name: one for name, one in found.items() if one.seconds}
        assert all(one.seconds == pytest.approx([5e-6, 6e-6, 7e-6]) for one in measured.values())
        assert len(found) - len(measured) <= 1  # at most one benchmark is cut off
        for one in found.values():
            assert bool(one.seconds) != bool(re.fullmatch("interrupted after [12] of 3 repetitions", one.why_not))
        whole.append(len(measured))
    assert whole == sorted(whole) and set(whole) == {0, 1, 2, 3}


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    output = tmp_path / "other.json"
    output.write_text('{"results": [1, 2]}')
    with pytest.raises(SystemExit, match=r"other\.json is not Google Benchmark's JSON"):
        names.measurements(output)


@pytest.mark.parametrize(
    ("count", "seconds", "repetitions", "least_s"),
    [(10, 2000.0, 5, 1.0), (30, 300.0, 5, 0.09), (30, 120.0, 3, 0.06), (30, 1.0, 3, 0.05)],
)
def test_repetitions_are_as_long_as_the_time_allows_and_fewer_where_the_shortest_do_not_fit(
    count: int, seconds: float, repetitions: int, least_s: float
) -> None:
    found = tool.share(count * tool.PACE, seconds)
    assert (found.repetitions, found.least_s) == (repetitions, pytest.approx(least_s))
    assert found.expected_s == pytest.approx(count * repetitions * least_s * tool.PACE)
    assert found.expected_s < seconds or found.least_s == tool.SHORTEST_S


def test_benchmarks_with_a_shorter_least_repetition_keep_all_repetitions_where_it_fits() -> None:
    assert tool.share(600.0, 20.0).repetitions == 3
    assert tool.share(600.0, 20.0, 0.003).repetitions == 5


class Slow:
    """A program on a clock of its own, each benchmark of which takes `pace` seconds for a second of its times."""

    def __init__(self, benchmarks: list[str], pace: float) -> None:
        self.benchmarks, self.pace, self.now = benchmarks, pace, 0.0
        self.counted_s: list[float] = []  # of a benchmark in each group

    def run(self, words: list[str], seconds: float) -> int:
        given = dict(word.split("=", 1) for word in words[1:])
        repetitions, least_s = int(given["--benchmark_repetitions"]), float(given["--benchmark_min_time"])
        self.counted_s.append(repetitions * least_s)
        end, found = self.now + seconds, []
        for name in (name for name in self.benchmarks if re.search(given["--benchmark_filter"], name)):
            self.now += self.pace * repetitions * least_s
            if self.now > end:
                self.now = end
                break
            found += rows(name, repetitions)
        Path(given["--benchmark_out"]).write_text(printed(found).removesuffix("]\n}"))
        return 1


@pytest.mark.parametrize(("pace", "least", "most"), [(3.0, 30, 30), (40.0, 30, 30), (200.0, 1, 5)])
def test_groups_after_a_slow_one_are_shorter_and_benchmarks_that_do_not_fit_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pace: float, least: int, most: int
) -> None:
    benchmarks = [f"Comm_ZeroCopy_HostToGPU/0/{gpu}/log2(N):24/manual_time" for gpu in range(30)]
    slow = Slow(benchmarks, pace)
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: slow.now))
    (tmp_path / "h100-9.json").write_text("of an earlier call")
    found = tool.measured(TOOL, benchmarks, tmp_path / "h100", 250.0, slow.run)
    assert sorted(one.name for one in found) == sorted(benchmarks) and slow.now <= 250.0
    measured = [one for one in found if one.seconds]
    assert least <= len(measured) <= most
    assert all(one.why_not.startswith("not run: ") and one.id for one in found if not one.seconds)
    assert all((second > first) == (pace < tool.PACE) for first, second in pairwise(slow.counted_s[:2]))
    assert not (tmp_path / "h100-9.json").exists()


def test_benchmarks_that_do_more_than_they_time_come_last_and_leave_the_others_their_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = [f"Comm_ZeroCopy_HostToGPU/0/{gpu}/log2(N):24/manual_time" for gpu in range(12)]
    flushing = [f"Comm_ZeroCopy_HostToGPU_flush/0/{gpu}/log2(N):24/manual_time" for gpu in range(4)]
    demanding = ["Comm_UM_Demand_GPUToHost/0/0/log2(N):24"]
    slow = Slow([*demanding, *flushing, *quick], 3.0)
    plain = slow.run

    def run(words: list[str], seconds: float) -> int:
        slow.pace = 500.0 if "_flush" in words[1] else 2000.0 if "Demand" in words[1] else 3.0
        return plain(words, seconds)

    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: slow.now))
    found = tool.measured(TOOL, slow.benchmarks, tmp_path / "h100", 120.0, run)
    assert all(one.seconds for one in found) and slow.now <= 120.0
    assert min(slow.counted_s[:3]) > 10 * max(slow.counted_s[3:]) and len(slow.counted_s) == 5


class Trying:
    """A program on a clock of its own that tries growing numbers of iterations, as Google Benchmark does.

    Each benchmark has the seconds that an iteration counts, and those that it takes.
    """

    def __init__(self, benchmarks: dict[str, tuple[float, float]]) -> None:
        self.benchmarks, self.now, self.starts = benchmarks, 0.0, 0

    def iterations(self, counted_s: float, least_s: float) -> tuple[int, int]:
        """Iterations of a repetition, and those of the trials before it."""
        tried, count = 0, 1
        while (total_s := count * counted_s) < least_s:
            tried += count
            factor = 1.4 * least_s / total_s if total_s > 0.1 * least_s else 10.0
            count = max(count + 1, round(factor * count))
        return count, tried

    def run(self, words: list[str], seconds: float) -> int:
        given = dict(word.split("=", 1) for word in words[1:])
        repetitions, least_s = int(given["--benchmark_repetitions"]), float(given["--benchmark_min_time"])
        end, found = self.now + seconds, []
        self.starts += 1
        for name, (counted_s, takes_s) in self.benchmarks.items():
            if re.search(given["--benchmark_filter"], name):
                count, tried = self.iterations(counted_s, least_s)
                self.now += (tried + repetitions * count) * takes_s
                if self.now > end:
                    self.now = end
                    break
                found += rows(name, repetitions)
        Path(given["--benchmark_out"]).write_text(printed(found))
        return 0


# Seconds that an iteration counted and took on an H100 at 16 MiB (results/h100x1-beside-*.json.gz). Those of
# `Duplex_Pinned_flush`: the counted ones without a flush, and two flushes.
FLUSHING = {
    "Comm_cudaMemcpyAsync_GPUToHost_flush/0/0/log2(N):24/manual_time": (1.21e-3, 0.186),
    "Comm_cudaMemcpyAsync_HostToGPU_flush/0/0/log2(N):24/manual_time": (1.92e-3, 0.187),
    "Comm_cudaMemcpyAsync_Duplex_Host_flush/0/0/log2(N):24/manual_time": (3.18e-3, 0.349),
    "Comm_cudaMemcpyAsync_HostToPinned_flush/0/0/log2(N):24/manual_time": (1.80e-3, 0.369),
    "Comm_cudaMemcpyAsync_GPUToPinned_flush/0/0/log2(N):24/manual_time": (0.33e-3, 0.199),
    "Comm_ZeroCopy_HostToGPU_flush/0/0/log2(N):24/manual_time": (0.40e-3, 0.253),
    "Comm_cudaMemcpyAsync_Duplex_Pinned_flush/0/0/log2(N):24/manual_time": (0.36e-3, 0.5),
}
PINNED_BOTH = list(FLUSHING)[-1]


@pytest.mark.parametrize(("doublings", "seconds"), [(0, 20.0), (0, 65.0), (0, 300.0), (2, 65.0), (6, 200.0)])
def test_a_flushing_benchmark_alone_ends_within_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doublings: int, seconds: float
) -> None:
    larger = {
        name.replace(":24", f":{24 + doublings}"): tuple(time * 2**doublings for time in times)
        for name, times in FLUSHING.items()
    }
    trying = Trying(larger)
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: trying.now))
    for name in larger:
        begin = trying.now
        (found,) = tool.measured(TOOL, [name], tmp_path / "h100", seconds, trying.run)
        assert found.seconds and trying.now - begin <= seconds, name


def test_flushing_benchmarks_together_end_within_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trying = Trying(FLUSHING)
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: trying.now))
    found = tool.measured(TOOL, list(FLUSHING), tmp_path / "h100", 120.0, trying.run)
    assert all(one.seconds for one in found) and 60.0 < trying.now <= 120.0


def test_a_benchmark_that_cannot_fit_does_not_start_and_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trying = Trying(FLUSHING)
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: trying.now))
    (found,) = tool.measured(TOOL, [PINNED_BOTH], tmp_path / "h100", 5.0, trying.run)
    assert trying.starts == 0 and not found.seconds
    assert found.why_not == "not run: its shortest measurement takes about 8 s, and 5 s were left"
    few = [PINNED_BOTH, next(iter(FLUSHING))]
    by_name = {one.name: one for one in tool.measured(TOOL, few, tmp_path / "h100", 5.0, trying.run)}
    assert not by_name[few[0]].seconds and by_name[few[1]].seconds


def test_a_copy_from_a_gpu_to_itself_has_no_point() -> None:
    assert names.point_of("Comm_cudaMemcpyAsync_GPUToGPU/0/0/1/log2(N):24/manual_time")
    assert not names.point_of("Comm_cudaMemcpyAsync_GPUToGPU/0/1/1/log2(N):24/manual_time")
