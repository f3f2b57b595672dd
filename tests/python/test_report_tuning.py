"""The section "What tuning gains here": at each size the best method against the plain copy and the peak."""

import json
from pathlib import Path

import pytest

from linkscope.report.tuning import tuning_rows
from linkscope.runfile import Point, read_run
from test_cli import linkscope

MIB = 1 << 20


def point(id: str, gbps: float, *, width: float = 0.01, **more: object) -> Point:
    head, _, params = id.partition("?")
    benchmark, engine, ends, size = head.split("/")
    (src, src_memory), (dst, dst_memory) = (end.split(".") for end in ends.split("->"))
    seconds = int(size) / gbps / 1e9
    facts = {
        "id": id, "status": "ok", "benchmark": benchmark, "engine": engine, "src": src, "dst": dst,
        "src_memory": src_memory, "dst_memory": dst_memory, "bytes": int(size), "bidirectional": False,
        "params": dict(pair.split("=") for pair in params.split("&")), "median_s": seconds, "gbps": gbps,
        "ci95_s": (seconds * (1 - width), seconds * (1 + width)), "limit_gbps": 58.0, "precision_target": 0.01,
    }  # fmt: skip
    return Point(**(facts | more))


PATH = "numa:0.pageable->gpu:0.device"
PLAIN = f"h2d/ce/{PATH}/{{}}?mode=batched&after=kernel&bidirectional=false"
STAGED = f"staged/ce/{PATH}/{{}}?mode=batched&bidirectional=false&chunk={{}}&slots=2&threads=8"


def test_the_best_method_of_each_size_is_compared_with_the_plain_copy_and_the_peak() -> None:
    points = [
        point(PLAIN.format(MIB), 10.0),
        point(STAGED.format(MIB, "1MiB"), 8.0),
        point(PLAIN.format(64 * MIB), 10.0),
        point(STAGED.format(64 * MIB, "1MiB"), 37.0),
        point(STAGED.format(64 * MIB, "4MiB"), 50.0),
    ]
    small, large = tuning_rows(points)
    assert (small.bytes, small.method, small.gain, small.shows) == (MIB, "plain copy", 1.0, False)
    assert (large.where, large.bytes) == ("numa:0 pageable -> gpu:0 device", 64 * MIB)
    assert large.method == "staged by copy engine (chunk 4MiB, slots 2, threads 8)"
    assert large.gain == pytest.approx(5.0) and large.share == pytest.approx(50 / 58) and large.shows
    assert large.ids == (points[2].id, points[4].id)


def test_a_copy_of_pieces_has_their_number_and_size() -> None:
    pieces = "pieces/{}/numa:0.pinned->gpu:0.device/64000?mode=batched&piece=64"
    (row,) = tuning_rows([point(pieces.format("ce"), 0.03), point(pieces.format("batch"), 12.0)])
    assert (row.where, row.size) == ("numa:0 pinned -> gpu:0 device", "1000 × 64 B")
    assert row.method == "gathered by one batch call"


def test_pieces_are_compared_with_the_cost_of_their_calls_if_it_was_measured() -> None:
    pieces = "pieces/{}/numa:0.pinned->gpu:0.device/4096000?{}mode=batched&piece=4096"
    by_gpu = [point(pieces.format(engine, ""), gbps) for engine, gbps in (("ce", 1.6), ("batch", 55.0), ("sm", 48.8))]
    by_host = [
        point(pieces.format(engine, "clock=host&"), gbps)
        for engine, gbps in (("ce", 1.6), ("batch", 2.1), ("sm", 48.9))
    ]
    (row,) = tuning_rows(by_gpu + by_host)
    assert row.method == "gathered by GPU threads" and row.ids == (by_host[0].id, by_host[2].id)
    (row,) = tuning_rows(by_gpu + by_host[1:])  # the loop has no such time
    assert row.method == "gathered by one batch call" and row.ids == (by_gpu[0].id, by_gpu[1].id)


def test_copies_to_untouched_memory_are_compared_with_the_plain_call_to_such_memory() -> None:
    ends = "gpu:0.device->numa:0.{}"
    points = [
        point(f"d2h/ce/{ends.format('pageable')}/{MIB}?mode=batched&after=kernel", 12.0),
        point(f"fresh/ce/{ends.format('pageable')}/{MIB}?mode=batched", 1.5),
        point(f"fresh/ce/{ends.format('hugepage')}/{MIB}?mode=batched", 4.0),
        point(f"fresh_staged/ce/{ends.format('hugepage')}/{MIB}?chunk=1MiB&mode=batched&threads=8", 30.0),
    ]
    (row,) = tuning_rows(points)
    assert row.where == "gpu:0 device -> numa:0 untouched memory" and row.gain == pytest.approx(20)
    assert row.method == "GPU → untouched memory, staged by copy engine (chunk 1MiB, threads 8, huge pages)"
    (row,) = tuning_rows(points[:3])
    assert row.method == "GPU → untouched memory by copy engine (huge pages)" and row.plain.value == 1.5


def test_copies_of_files_are_compared_with_one_read_and_one_copy() -> None:
    ends = "disk:0.file->gpu:0.device"
    copies = f"file_copies/file/{ends}/{MIB}?bidirectional=false&chunk={{}}&mode=batched&ring=numa:0&slots={{}}"
    points = [
        point(copies.format("whole", 1), 1.8),
        point(copies.format("1MiB", 2), 2.0),
        point(copies.format("1MiB", 2) + "&depth=4", 2.4),
        point(copies.format("1MiB", 2) + "&cache=hot", 9.0),  # another question
        point(f"file_direct/file/{ends}/{MIB}?mode=batched&node=numa:0", 2.2),
    ]
    (row,) = tuning_rows(points)
    assert row.where == "disk:0 file -> gpu:0 device" and row.gain == pytest.approx(2.4 / 1.8)
    assert row.method == "file copies by file calls (chunk 1MiB, depth 4, slots 2)"
    (row,) = tuning_rows([points[0], points[4]])
    assert row.method == "cuFile by file calls"


def test_files_in_the_page_cache_are_a_path_of_their_own_with_the_mapped_copy() -> None:
    ends = "disk:0.file->gpu:0.device"
    cached = (
        f"file_copies/file/{ends}/{MIB}?bidirectional=false&cache=hot&chunk={{}}&mode=batched&ring=numa:0&slots={{}}"
    )
    cold = cached.replace("cache=hot&", "")
    mapped = f"file_mapped/file/{ends}/{MIB}?chunk=1MiB&mode=batched&node=numa:0&threads=8"
    points = [
        point(cached.format("whole", 1), 5.0),
        point(cached.format("1MiB", 2), 9.0),
        point(mapped, 20.0),
        point(cold.format("whole", 1), 1.8),
        point(cold.format("1MiB", 2), 2.0),
    ]
    by = {row.where: row for row in tuning_rows(points)}
    assert by["disk:0 file -> gpu:0 device in the page cache"].gain == pytest.approx(20 / 5)
    assert by["disk:0 file -> gpu:0 device in the page cache"].method.startswith("mapped page cache by file calls")
    assert by["disk:0 file -> gpu:0 device"].gain == pytest.approx(2.0 / 1.8)


def test_a_gain_within_the_intervals_is_none() -> None:
    points = [point(PLAIN.format(MIB), 10.0, width=0.05), point(STAGED.format(MIB, "1MiB"), 10.5, width=0.05)]
    (row,) = tuning_rows(points)
    assert not row.shows


def test_single_and_bidirectional_copies_and_sizes_without_a_tuned_copy_are_left_out() -> None:
    staged = STAGED.format(MIB, "1MiB")
    assert not tuning_rows([point(PLAIN.format(MIB), 10.0)])
    assert not tuning_rows([point(staged, 10.0)])
    assert not tuning_rows([point(PLAIN.format(MIB), 10.0), point(staged.replace("batched", "single"), 12.0)])
    assert not tuning_rows([point(PLAIN.format(MIB), 10.0), point(staged.replace("false", "true"), 12.0)])
    assert not tuning_rows([point(PLAIN.format(MIB), 10.0), point(staged, 12.0, status="failed")])


def test_staged_copies_between_gpus_are_compared_with_copies_without_peer_access() -> None:
    ends = "gpu:0.device->gpu:1.device"
    points = [
        point(f"d2d/ce/{ends}/{MIB}?mode=batched&peer=on&initiator=src", 300.0),
        point(f"d2d/ce/{ends}/{MIB}?mode=batched&peer=off&initiator=src", 20.0),
        point(f"staged/ce/{ends}/{MIB}?mode=batched&bidirectional=false&chunk=1MiB&ring=numa:0&slots=2", 40.0),
    ]
    (row,) = tuning_rows(points)
    assert row.where.endswith("gpu:1 device, without peer access") and row.gain == pytest.approx(2.0)


def test_the_section_is_on_the_page_in_the_terminal_and_in_markdown(tmp_path: Path) -> None:
    run, page, text = tmp_path / "run.jsonl", tmp_path / "run.html", tmp_path / "run.md"
    plain = "h2d/ce/numa:0.pageable*/67108864*bidirectional=false*mode=batched*"
    staged = "staged/ce/numa:0.pageable*/67108864*bidirectional=false*chunk=4MiB*mode=batched*threads=8*"
    only = ("--only", plain, "--only", staged)
    made = linkscope("run", "--machine", "h200x1", "--suite", "full", *only, "--rounds", "6", "-o", str(run), "-q")
    assert made.returncode == 0, made.stderr
    points = [one for one in map(json.loads, run.read_text().splitlines()) if one["record"] == "point"]
    assert all(one["verified"] for one in points)
    assert linkscope("report", str(run), "-o", str(page)).returncode == 0
    assert "What tuning gains here" in page.read_text()
    assert "What tuning gains here" in linkscope("report", str(run), "--summary=full").stdout
    assert linkscope("report", str(run), "--markdown", str(text)).returncode == 0
    assert "| staged by copy engine (chunk 4MiB, slots 2, threads 8) |" in text.read_text()


def test_the_rate_of_a_copy_over_several_links_is_that_of_all_its_parts(tmp_path: Path) -> None:
    run, only = tmp_path / "run.jsonl", ("--only", "*/numa:0.pinned->gpu:2.device/268435456*")
    done = linkscope("run", "h2d", "relayed", "--machine", "h200x4", "--suite", "full", *only, "-o", str(run), "-q")
    assert done.returncode == 0, done.stderr
    (row,) = tuning_rows(read_run(run).points)
    assert row.method == "relayed by copy engine (chunk 4MiB, helpers 3)"
    assert 2.5 < row.gain < 4 and row.share is None and row.shows
