"""`linkscope advise` ranks the methods between a file and the memory of a GPU, on models and from runs."""

import json

import pytest

from invented import point
from linkscope.advise.predicted import of_disk
from linkscope.cli.main import main
from linkscope.runfile import Point, PointId
from test_advise import MIB, saved
from test_advise_models import advised
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

DISK = "disk:/data/a b;->c"  # a path that ids must escape


def of_file(
    seconds: float, *, to_gpu: bool = True, name: str = "file_copies", disk: str = DISK, **params: str
) -> Point:
    ends = (disk, "file", "gpu:0", "device") if to_gpu else ("gpu:0", "device", disk, "file")
    given = {"bidirectional": "false", "mode": "batched", "ring": "numa:0"} | params
    return point(str(PointId(name, "file", *ends, 64 * MIB, tuple(sorted(given.items())))), seconds)


def of_run(tmp_path, capsys, points: list[Point], src: str, dst: str) -> dict:
    path = str(saved(tmp_path, points))
    capsys.readouterr()
    assert main(["advise", path, "--src", src, "--dst", dst, "--bytes", "64MiB", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("src", "dst"), [("disk:0", "gpu:0"), ("gpu:2", "disk:0")])
def test_on_a_model_a_file_in_chunks_is_compared_with_one_read_as_a_whole(capsys, src: str, dst: str) -> None:
    """The disk has 0.12 GB/s (JO-8). In chunks, only the slower leg counts, and no page cache is modelled."""
    found = advised(capsys, "--bytes", "64MiB", machine="jorda-a", src=src, dst=dst)
    by_cufile, chunks, in_flight, whole = found["ways"]
    assert by_cufile["benchmark"] == "file_direct" and by_cufile["gbps"] == pytest.approx(0.12, rel=0.01)
    assert in_flight["params"]["depth"] == "4" and in_flight["gbps"] <= 0.12
    assert whole["present"] and (whole["params"]["chunk"], whole["params"]["slots"]) == ("whole", "1")
    assert chunks["params"]["chunk"] != "whole" and chunks["gain"]["ratio"] > 1
    assert 0.115 < chunks["gbps"] <= 0.12
    assert chunks["language"] == "Python" and whole["language"] == "C++"
    assert ("linkscope.read_file" if src == "disk:0" else "linkscope.save_file") in chunks["code"]
    assert any("no page cache" in one["reason"] for one in found["not_listed"])
    # The file states that such disks have 0.11 to 0.14 GB/s.
    low, high = (chunks["predicted"]["seconds"] * 0.12 / rate for rate in (0.14, 0.11))
    assert chunks["predicted"]["interval_s"] == pytest.approx([low, high]) and found["notes"] == []


@pytest.mark.parametrize(
    ("src", "dst", "low", "high"), [("disk:0", "gpu:0", 0.25, 0.27), ("gpu:0", "disk:0", 0.17, 0.22)]
)
def test_the_interval_of_a_file_is_that_of_the_disks_rate_in_this_direction(capsys, src, dst, low, high) -> None:
    found = advised(capsys, "--bytes", "64MiB", machine="jorda-b", src=src, dst=dst)
    for way in found["ways"]:
        ends = way["predicted"]["interval_s"]
        assert ends[1] / ends[0] == pytest.approx(high / low) and ends[0] < way["predicted"]["seconds"] < ends[1]


def test_a_disk_whose_rate_has_no_range_gives_no_interval() -> None:
    rate = {"v": 2.0, "low": 1.0, "high": 4.0}
    content = {"link": [{"gbps": rate, "between": [["numa:0", "disk:0"]]}, {"gbps": {"v": 1.0}, "members": []}]}
    ids = [
        PointId("file_copies", "file", f"{host}disk:0", "file", "gpu:0", "device", MIB, ()) for host in ("", "host:1/")
    ]
    assert [of_disk(content, one, 8.0) for one in ids] == [(4.0, 16.0)] * 2
    content["link"][0]["back_gbps"] = {"v": 2.0}
    assert of_disk(content, ids[0], 8.0) is None


def test_a_run_ranks_the_page_cache_io_uring_and_cufile_with_what_they_need(tmp_path, capsys) -> None:
    points = [
        of_file(60e-3, chunk="whole", slots="1"),
        of_file(40e-3, chunk="1MiB", slots="2"),
        of_file(33e-3, chunk="1MiB", slots="4"),
        of_file(30e-3, chunk="1MiB", slots="2", depth="16"),
        of_file(3e-3, chunk="1MiB", slots="2", cache="hot"),
        of_file(5e-3, name="file_mapped", chunk="4MiB", threads="8", node="numa:0"),
        of_file(6e-3, name="file_mapped", chunk="1MiB", threads="1", node="numa:0"),
        of_file(20e-3, name="file_direct", node="numa:0"),
        of_file(1e-3, chunk="whole", slots="8"),  # overlaps several files only
    ]
    ways = of_run(tmp_path, capsys, points, DISK, "gpu:0")["ways"]
    assert [round(one["seconds"] * 1e3) for one in ways] == [3, 5, 20, 30, 33, 60]
    cached, mapped, cufile, uring, threads, whole = ways
    assert "CPU threads that map and register windows of 4MiB: 8" in mapped["needs"]
    assert "the file in the page cache" in cached["needs"]
    assert "libcufile.so.0 and the kernel module nvidia-fs" in cufile["needs"] and "cuFileRead(" in cufile["code"]
    assert "a kernel that allows io_uring" in uring["needs"] and "a file system with O_DIRECT" in uring["needs"]
    assert "4 pinned slots of 1MiB on numa:0" in threads["needs"]
    assert whole["present"] and threads["gain"]["ratio"] == pytest.approx(60 / 33)
    # The code says who reads, as the tuner chooses it.
    for way, choice in (
        (uring, 'set_knobs("read_cold", bytes, uring=16)'),
        (threads, "uring=0)"),
        (cached, "mapped=0)"),
        (mapped, "mapped=1, threads=8, chunk=4194304)"),
    ):
        assert choice in way["code"] and way["code"].count("set_knobs") == 1
        assert way["code"].endswith("linkscope.read_file(path, dst)  # C: ls_read_file")


def test_a_whole_file_by_requests_in_flight_is_ranked_and_is_not_the_present_method(tmp_path, capsys) -> None:
    whole = {"chunk": "whole", "slots": "1"}
    points = [of_file(60e-3, **whole), of_file(50e-3, depth="16", **whole)]
    in_flight, present = of_run(tmp_path, capsys, points, DISK, "gpu:0")["ways"]
    assert present["present"] and "depth" not in present["params"]
    assert "pinned memory of the size of the file on numa:0" in in_flight["needs"]
    assert in_flight["params"]["depth"] == "16" and in_flight["gain"]["ratio"] == pytest.approx(60 / 50)


def test_a_run_ranks_saves(tmp_path, capsys) -> None:
    points = [
        of_file(60e-3, to_gpu=False, chunk="whole", slots="1"),
        of_file(40e-3, to_gpu=False, chunk="4MiB", slots="2"),
        of_file(35e-3, to_gpu=False, name="file_direct", node="numa:0"),
    ]
    points.append(of_file(30e-3, to_gpu=False, chunk="1MiB", slots="2", cache="hot"))
    found = of_run(tmp_path, capsys, points, "gpu:0", DISK)
    cached, cufile, chunks, whole = found["ways"]
    # The library writes past the page cache.
    assert "linkscope" not in cached["code"] + found["fastest_call"] and "without O_DIRECT" in cached["code"]
    assert not any("linkscope" in need for need in cached["needs"])
    assert "std::min(chunk, bytes - at)" in cached["code"]  # the last chunk may be shorter
    assert "cuFileWrite(" in cufile["code"] and "linkscope.save_file" in chunks["code"] and "pwrite" in whole["code"]
    assert 'set_knobs("write_file", bytes, uring=0)' in chunks["code"]


def test_a_run_without_the_whole_read_gives_no_gains_and_says_so(tmp_path, capsys) -> None:
    found = of_run(tmp_path, capsys, [of_file(40e-3, chunk="1MiB", slots="2")], DISK, "gpu:0")
    assert found["ways"][0]["gain"] is None and "one read or write of the whole file" in found["notes"][0]


def test_the_table_names_the_best_way_of_a_file(tmp_path, capsys) -> None:
    start = ["advise", "--machine", "jorda-a", "--src", "disk:0", "--dst", "gpu:0", "--bytes", "64MiB"]
    assert main([*start, "--reuse", "3"]) == 0
    text = capsys.readouterr().out
    assert "the interval is what the machine file knows of the disk's rate" in text and "90 %" not in text
    assert "fastest: cuFileRead, past memory of the host" in text and "linkscope.read_file(path, dst)" in text


@pytest.mark.parametrize(("machine", "words", "code", "sentence"), [
    ("jorda-a", ["--src", "disk:9"], 3, "jorda-a has no disk:9"),
    ("h200x4", ["--src", "disk:0"], 3, "h200x4 has no disk:0"),
    ("jorda-a", ["--src", "file"], 2, "host memory is numa:0; a file is disk:PATH"),
    ("jorda-a", ["--src", "disk:0", "--dst", "numa:0"], 3, "benchmarks copy files from and to GPUs only"),
    ("jorda-a", ["--src", "disk:0", "--memory", "pinned"], 3, "neither end is on the host"),
    ("jorda-a", ["--src", "disk:0", "--pieces", "4KiB"], 3, "knows no pieces of 4 KiB from disk:0 to gpu:0"),
])  # fmt: skip
def test_a_bad_question_about_a_file_gets_the_reason(capsys, machine, words, code, sentence) -> None:
    start = ["advise", "--machine", machine, "--dst", "gpu:0", "--bytes", "64MiB"]
    assert main([*start, *words]) == code
    assert sentence in capsys.readouterr().err


def test_a_run_without_the_path_names_the_option_for_disks(tmp_path, capsys) -> None:
    path = str(saved(tmp_path, [of_file(1e-3, chunk="1MiB", slots="2")]))
    assert main(["advise", path, "--src", "gpu:0", "--dst", DISK, "--bytes", "64MiB"]) == 3
    assert "linkscope run file_copies --directory '/data/a b;->c'" in capsys.readouterr().err
