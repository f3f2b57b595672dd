"""tools/nvshmem_bench.py without a GPU and without NVSHMEM: a script that prints as the program does, and a model."""

import fnmatch
import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import nvshmem_bench as tool
import pytest

from fake_driver import needs_worker
from linkscope.report.put_get import seconds_of
from linkscope.runfile import read_run

SLOW_S, FAST_S = 40e-6, 4e-6


def line(test: str, way: str, size: int, seconds: list[float], **others: object) -> dict[str, object]:
    """A line of the program."""
    made = {"test": test, "way": way, "bytes": size, "blocks": 1, "threads": 1, "seconds": seconds, "p99_s": []}
    return {**made, **others}


TRIPS = (("signal, a thread", SLOW_S), ("signal, a block", FAST_S), ("word", 1e-6))
WAYS = ("plain", "signal")
LINES = [
    {"nvshmem": "3.8.0", "gpu": "a GPU"},
    *(line("ping_pong", way, 8, [s, 2 * s, 3 * s], p99_s=[4 * s]) for way, s in TRIPS),
    *(
        line("put", way, size, [size / blocks / 1e9], blocks=blocks, threads=1024)
        for way in WAYS
        for size in tool.SIZES
        for blocks in (1, 32)
    ),
    *(
        line("put", "signal, several at once", size, [size / 200e9], blocks=64, threads=1024)
        for size in tool.SIZES[:-1]
    ),
    line("messages", "plain", 64, [1e-9], blocks=132, threads=32),
    {"test": "messages", "way": "signal", "bytes": 64, "blocks": 132, "threads": 32, "reason": "the data are wrong"},
]


def program(folder: Path, script: str) -> Path:
    """A stand-in for the compiled program: a shell script that gets the number of its process and a file."""
    path = folder / "nvshmem_puts"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def prints(lines: list[dict[str, object]]) -> str:
    return "[ $1 = 1 ] && exit 0\ncat <<'END'\nsome notice\n" + "\n".join(map(json.dumps, lines)) + "\nEND"


def cells(text: str, start: str) -> list[str]:
    (row,) = [row for row in text.splitlines() if row.startswith(f"| {start} |")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_each_test_shows_the_fastest_way_of_nvshmem() -> None:
    shown = "\n".join(tool.printed(tool.rows(LINES, [])))
    assert cells(shown, "8 B there and back, p50")[1] == "8.00 us [4.00, 12.00] (signal, a block)"
    assert "16.0" in cells(shown, "8 B there and back, p99")[1]
    assert "32 blocks of 1024" in cells(shown, "put of 64 KiB")[1] and "32.0" in cells(shown, "put of 64 KiB")[1]
    assert "1000 M/s" in cells(shown, "messages of 64 B")[1]
    assert cells(shown, "put of 64 KiB, NVSHMEM with signals")[1].startswith("32.0")
    assert cells(shown, "put of 64 KiB, several at once, with signals")[1].startswith("200")
    assert cells(shown, "messages of 64 B, NVSHMEM with signals")[1:] == ["not measured", "not measured", "-"]


def test_a_rate_of_nvshmem_has_the_slowest_and_the_fastest_round_in_this_order() -> None:
    rounds = [line("messages", "plain", 64, [1e-9, 4e-9, 2e-9], blocks=132, threads=32)]
    shown = "\n".join(tool.printed(tool.rows(rounds, [])))
    assert cells(shown, "messages of 64 B")[1] == "500 M/s [250, 1000] (132 blocks of 32)"


@pytest.mark.parametrize("ours_s, answer", [(3.9e-6, "yes"), (4.1e-6, "no")])
def test_half_of_the_round_trip_of_nvshmem_is_the_limit(ours_s: float, answer: str) -> None:
    test = "8 B there and back, p50"
    of = [
        tool.Row(test, False, tool.Side(8e-6, ""), tool.Side(ours_s, "")) if row.test == test else row
        for row in tool.rows(LINES, [])
    ]
    shown = "\n".join(tool.printed(of))
    assert cells(shown, "8 B there and back: at most half of NVSHMEM's")[2] == answer
    assert cells(shown, "8 B there and back, p50 at most 1.5 us")[2] == "no"
    assert cells(shown, "8 B there and back, p99 at most 2 us")[1:] == ["not measured", "-"]


@needs_worker
def test_a_model_of_two_gpus_is_compared_and_both_sides_are_kept(tmp_path, capsys, monkeypatch) -> None:
    # A few of the points, because a simulation of many blocks takes seconds.
    monkeypatch.setattr(tool, "_MESSAGES", tool._MESSAGES.replace("connections=*", "connections=4"))
    monkeypatch.setattr(tool, "_PUTS", tool._PUTS.replace("?*connections", "?*blocks=8&connections"))
    monkeypatch.setattr(tool, "SIZES", tool.SIZES[2:])
    run, kept = tmp_path / "run.jsonl", tmp_path / "both.json"
    words = ["--machine", "h200x2", "--program", str(program(tmp_path, prints(LINES))), "--budget", "6s"]
    assert tool.main([*words, "-o", str(run), "--json", str(kept)]) == 1  # a test of NVSHMEM failed
    out, err = capsys.readouterr()
    assert "the data are wrong" in err
    for shown in out.splitlines():
        if re.match(r"\| (8 B|bare|put|messages of 64 B \|)", shown):
            assert "not measured" not in shown, shown
    points = {point.id: point for point in read_run(run).points}
    assert all(point.benchmark in ("put", "put_ping_pong", "ping_pong") for point in points.values())
    both = json.loads(kept.read_text())
    assert both["nvshmem"] == LINES
    by_test = {row["test"]: row for row in both["rows"]}
    put = by_test["put of 4 MiB"]
    best_s = min(seconds_of(point) for point in points.values() if point.bytes == 4 << 20)
    assert put["linkscope"] == pytest.approx((4 << 20) / best_s) and put["nvshmem"] == pytest.approx(32e9)
    assert put["ratio"] == pytest.approx(put["linkscope"] / 32e9)


@needs_worker
def test_suite_putget_has_packed_words_and_all_blocks_between_two_gpus() -> None:
    words = ["run", "--machine", "h200x2", "--suite", "putget", "--plan-only", "--json"]
    done = subprocess.run([sys.executable, "-m", "linkscope", *words], capture_output=True, text=True, check=True)
    ids = [point["id"] for point in json.loads(done.stdout)["points"]]
    for params in ("threads=1&word=packed", "threads=1024&word=separate"):
        assert f"put_ping_pong/sm/{tool.ENDS}/8?control=direct&{params}" in ids
    assert f"put/sm/{tool.ENDS}/64?connections=132&control=direct&threads=32&word=packed" in ids
    assert f"put/sm/{tool.ENDS}/64?at_once=128&connections=132&control=direct&threads=1024&word=packed" in ids
    for size in tool.SIZES[:-1]:
        several = [id for id in fnmatch.filter(ids, tool._PUTS.format(size)) if "at_once=" in id]
        assert len(several) > 1, size
    for size in tool.SIZES:
        for blocks in (8, 32, 132):
            assert any(f"/{size}?blocks={blocks}&" in id for id in fnmatch.filter(ids, tool._PUTS.format(size)))


def test_a_program_that_fails_is_named_with_its_last_words(tmp_path) -> None:
    failing = program(tmp_path, "[ $1 = 0 ] && exec sleep 60\necho 'no direct access' >&2; exit 1")
    with pytest.raises(tool.Failed, match="ended with -9 and 1: no direct access"):
        tool.measured(failing, None, tmp_path)


def test_a_program_that_a_signal_ends_is_named_with_its_last_words(tmp_path) -> None:
    crashing = program(tmp_path, "[ $1 = 0 ] && exec sleep 60\necho 'a bad address' >&2; kill -SEGV $$")
    with pytest.raises(tool.Failed, match="ended with -9 and -11: a bad address"):
        tool.measured(crashing, None, tmp_path)


def test_lines_before_a_failure_count_and_the_failure_is_kept(tmp_path) -> None:
    failing = program(tmp_path, prints(LINES[:2]) + "\necho 'the heap is full' >&2; exit 3")
    *lines, last = tool.measured(failing, None, tmp_path)
    assert lines == LINES[:2] and "the heap is full" in last["reason"]


def test_without_a_compiler_the_user_reads_what_to_name(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="--program"):
        tool.main(["--machine", "h200x2", "--nvshmem", str(tmp_path)])


def test_a_machine_with_one_gpu_has_nothing_to_compare(capsys) -> None:
    with pytest.raises(SystemExit):
        tool.main(["--machine", "h200x1"])
    assert "two GPUs" in capsys.readouterr().err
