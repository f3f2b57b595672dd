"""tools/ucx_bench.py without a GPU and without UCX: a program that answers as ucx_perftest does."""

from pathlib import Path

import pytest
import ucx_bench as tool

from linkscope.runfile import PointId

ANSWER = """iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
20000,1.500,1.601,1.600,4.90,4.80,600000,625000
"""
GPU_TO_HOST = tool.ways(1)[0]


def program(folder: Path, script: str) -> tool.Ucx:
    """A stand-in: it answers as a client if it is given an address, and waits as a server otherwise."""
    path = folder / "bin" / "ucx_perftest"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\ncase "$3" in 127.0.0.1) ;; *) exec sleep 20 ;; esac\n{script}\n')
    path.chmod(0o755)
    return tool.Ucx(folder, 0)


def test_the_latency_and_the_number_of_messages_are_read_from_what_ucx_prints(tmp_path) -> None:
    ucx = program(tmp_path, f"cat <<'END'\nsome notice\n{ANSWER}END")
    assert ucx.measure(GPU_TO_HOST, "lat", 8) == (pytest.approx(1.5e-6), 625000)


@pytest.mark.parametrize("per_s, puts", [(625_000, 20_000), (5_000, 1_500), (166, 100)])
def test_a_test_has_as_many_puts_as_fit_into_a_third_of_a_second(tmp_path, per_s: int, puts: int) -> None:
    asked = tmp_path / "asked"
    ucx = program(tmp_path, f"echo \"$*\" > {asked}; cat <<'END'\n{ANSWER.replace('625000', str(per_s))}END")
    ucx.measure(GPU_TO_HOST, "bw", 8)
    assert f"-n {puts} -w {puts // 10}" in asked.read_text()


def test_one_gpu_is_compared_with_host_memory_and_two_with_each_other() -> None:
    assert {way.memories for way in tool.ways(1)} == {"cuda,host"} and {way.memories for way in tool.ways(4)} == {
        "cuda,cuda"
    }


# UCX prints the heading before it looks for a GPU.
@pytest.mark.parametrize("before", ["", f"echo '{ANSWER.splitlines()[0]}'; "])
@pytest.mark.parametrize("error", ["UCX  ERROR no such device", "UCX  ERROR no device, use a, b, c, d, e, f, g or h"])
def test_a_test_that_ucx_refuses_says_why_in_its_cell(tmp_path, before: str, error: str) -> None:
    ucx = program(tmp_path, f"{before}echo '{error}'; exit 255")
    latency, _ = tool.compared(ucx, [GPU_TO_HOST], [8], {})
    assert error in latency["ucx"]["reason"] and error in tool.line_of(latency)


def test_a_round_trip_counts_as_two_puts_and_a_stream_as_one(tmp_path) -> None:
    ucx = program(tmp_path, f"cat <<'END'\n{ANSWER}END")
    of = tool.points_of(GPU_TO_HOST.ends, 4096)
    ours = {of["lat"]["a block"]: 3e-6, of["bw"]["a block"]: 2.048e-6}
    rows = list(tool.compared(ucx, [GPU_TO_HOST], [4096], ours))
    assert rows[0]["ucx"] == {"put_s": pytest.approx(1.5e-6), "per_s": 625000}
    assert rows[0]["linkscope_s"]["a block"] == 3e-6 and rows[1]["linkscope_s"]["the host"] is None
    latency, rate = ([cell.strip() for cell in tool.line_of(row).strip("|").split("|")] for row in rows)
    assert latency[2:5] == ["1.5 us", "1.5 us", "-"]
    assert rate[2:5] == ["2.56 GB/s", "2 GB/s", "-"]


def test_every_point_that_is_compared_belongs_to_the_suite() -> None:
    for way in tool.ways(2):
        for ids in tool.points_of(way.ends, 4096).values():
            for id in ids.values():
                assert PointId.parse(id).bytes == 4096


def test_ucx_that_is_not_there_is_named_with_its_package(capsys, tmp_path) -> None:
    with pytest.raises(SystemExit):
        tool.main(["--ucx", str(tmp_path)])
    assert "libucx-cu13" in capsys.readouterr().err
