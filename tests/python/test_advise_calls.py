"""`linkscope advise` ranks many small copies by the longer of two times: that of the GPU, and that of the calls."""

from pathlib import Path

import pytest

from invented import point
from linkscope.cli.main import main
from linkscope.runfile import Point, read_run
from test_advise import h2d, saved
from test_advise_models import advised, way
from test_advise_transfer import TRANSFER, answer, pieces
from test_break_even import US
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

RUN = Path(__file__).parents[2] / "results" / "h200x1-full.jsonl.gz"
KIB = 1 << 10


def batch(size: int, seconds: float, ends: str = "numa:0.pinned->gpu:0.device", name: str = "h2d") -> Point:
    return point(f"{name}/batch/{ends}/{size}?mode=batched", seconds)


def launch(seconds: float) -> Point:
    return point("launch/cpu/numa:0.pageable->gpu:0.device/0?arguments=0&threads=1", seconds)


def by_engine(found: dict, memory: str = "pinned") -> dict[str, dict]:
    return {one["engine"]: one for one in found["ways"] if one["src_memory"] == memory}


def test_a_batch_takes_the_time_of_its_calls_where_the_gpu_is_faster(tmp_path, capsys) -> None:
    called = pieces("batch", 4 * KIB, 1900 * US)
    points = [h2d("pinned", 4 * KIB, 2.5 * US), batch(4 * KIB, 0.074 * US), called]
    found = by_engine(answer(tmp_path, capsys, points, "--memory", "pinned", size="4KiB"))
    assert found["batch"]["seconds"] == pytest.approx(1.9 * US) and found["batch"]["points"] == [called.id]
    assert found["batch"]["measured"]["interval_s"] == pytest.approx([0.98 * 1.9 * US, 1.02 * 1.9 * US])
    assert found["batch"]["gain"]["ratio"] == pytest.approx(2.5 / 1.9)
    long = [h2d("pinned", 64 * KIB, 3.7 * US), batch(64 * KIB, 2.5 * US), called]
    assert by_engine(answer(tmp_path, capsys, long, size="64KiB"))["batch"]["seconds"] == pytest.approx(2.5 * US)


def test_the_calls_of_a_size_lie_between_those_of_its_neighbours(tmp_path, capsys) -> None:
    called = [pieces("batch", KIB, 1000 * US), pieces("batch", 4 * KIB, 1600 * US)]
    for size, expected in ((2 * KIB, 1.2), (512, 1.0), (8 * KIB, 1.6)):
        points = [h2d("pinned", size, 2.5 * US), batch(size, 0.05 * US), *called]
        found = by_engine(answer(tmp_path, capsys, points, size=str(size)))
        assert found["batch"]["seconds"] == pytest.approx(expected * US)


def test_calls_of_sizes_that_lie_far_apart_are_not_interpolated(tmp_path, capsys) -> None:
    points = [h2d("pinned", 4 * KIB, 2.5 * US), batch(4 * KIB, 0.05 * US)]
    for large, expected in ((8 * KIB, 1 + 3968 / 8064), (16 * KIB, 1.0)):  # 64 and 128 times the smaller one
        called = [pieces("batch", 128, 1000 * US), pieces("batch", large, 2000 * US)]
        found = by_engine(answer(tmp_path, capsys, [*points, *called], size="4KiB"))
        assert found["batch"]["seconds"] == pytest.approx(expected * US)


def test_calls_of_a_path_between_the_same_kinds_of_places_count_before_longer_ones_of_others(tmp_path, capsys) -> None:
    ends = ("numa:1.pinned->gpu:1.device", "gpu:0.device->numa:0.pinned")
    calls = [
        point(f"pieces/batch/{of}/{4000 * KIB}?mode=batched&piece={4 * KIB}&clock=host", seconds)
        for of, seconds in zip(ends, (1200 * US, 1900 * US), strict=True)
    ]
    points = [h2d("pinned", 4 * KIB, 2.5 * US), batch(4 * KIB, 0.05 * US), *calls]
    found = by_engine(answer(tmp_path, capsys, points, "--memory", "pinned", size="4KiB"))
    assert found["batch"]["seconds"] == pytest.approx(1.2 * US)


def test_calls_of_another_path_count_where_this_one_has_none(tmp_path, capsys) -> None:
    within = point(f"local/ce/gpu:0.device->gpu:0.device/{4 * KIB}?after=kernel&mode=batched", 2 * US)
    ends = "gpu:0.device->gpu:0.device"
    points = [within, batch(4 * KIB, 0.2 * US, ends, "local"), pieces("batch", 4 * KIB, 1800 * US)]
    found = by_engine(answer(tmp_path, capsys, points, size="4KiB", src="gpu:0"), "device")
    assert found["batch"]["seconds"] == pytest.approx(1.8 * US)


def test_the_launch_of_a_graph_counts_on_its_own_path_only(tmp_path, capsys) -> None:
    """The launch takes a few ns for each copy, and that of another path would hide the time of this one."""
    ends = "numa:0.pinned->gpu:0.device"
    graph = point(f"h2d/graph/{ends}/{4 * KIB}?mode=batched", 0.5 * US)
    elsewhere = f"pieces/graph/gpu:0.device->numa:0.pinned/{4000 * KIB}?mode=batched&piece={4 * KIB}&clock=host"
    points = [h2d("pinned", 4 * KIB, 2.5 * US), graph, point(elsewhere, 900 * US)]
    assert by_engine(answer(tmp_path, capsys, points, size="4KiB"))["graph"]["seconds"] == pytest.approx(0.5 * US)
    here = [*points, pieces("graph", 4 * KIB, 800 * US)]
    assert by_engine(answer(tmp_path, capsys, here, size="4KiB"))["graph"]["seconds"] == pytest.approx(0.8 * US)


def test_a_kernel_takes_the_time_of_its_launch_and_a_copy_that_of_its_call(tmp_path, capsys) -> None:
    kernel = point(f"h2d/sm/numa:0.pinned->gpu:0.device/{4 * KIB}?blocks=sms&mode=batched&threads=512", 2.4 * US)
    call = point("copy_call/cpu/numa:0.pinned->gpu:0.device/0?size=4KiB", 2.1 * US)
    points = [h2d("pinned", 4 * KIB, 1.5 * US), h2d("pageable", 4 * KIB, 2 * US), kernel, launch(3.8 * US), call]
    found = answer(tmp_path, capsys, points, size="4KiB")
    pinned = by_engine(found)
    assert pinned["sm"]["seconds"] == pytest.approx(3.8 * US) and pinned["ce"]["seconds"] == pytest.approx(2.1 * US)
    # The calling thread copies pageable memory, so its time has the call.
    assert by_engine(found, "pageable")["ce"]["seconds"] == pytest.approx(2 * US)


def test_a_short_batch_of_unknown_calls_is_not_ranked_and_a_long_one_is(tmp_path, capsys) -> None:
    short = answer(tmp_path, capsys, [h2d("pinned", 4 * KIB, 2.5 * US), batch(4 * KIB, 0.07 * US)], size="4KiB")
    assert "batch" not in by_engine(short)
    assert short["not_listed"][0]["ways"] == 1 and "host's calls" in short["not_listed"][0]["reason"]
    assert any("times are those of the GPU alone" in note for note in short["notes"])
    long = answer(tmp_path, capsys, [h2d("pinned", 1 << 20, 21 * US), batch(1 << 20, 19 * US)], size="1MiB")
    assert by_engine(long)["batch"]["rank"] == 1 and long["not_listed"] == []
    assert not any("times are those of the GPU alone" in note for note in long["notes"])


def test_a_run_with_nothing_but_a_batch_of_unknown_calls_is_refused_with_the_cure(tmp_path, capsys) -> None:
    assert main(["advise", str(saved(tmp_path, [batch(4 * KIB, 0.07 * US)])), *TRANSFER, "4KiB"]) == 3
    assert "linkscope run --suite full measures them" in capsys.readouterr().err


def test_a_single_copy_has_its_call_in_its_time(tmp_path, capsys) -> None:
    single = point(f"h2d/batch/numa:0.pinned->gpu:0.device/{4 * KIB}?mode=single", 7 * US)
    points = [single, pieces("batch", 4 * KIB, 9000 * US)]
    assert by_engine(answer(tmp_path, capsys, points, "--alone", size="4KiB"))["batch"]["seconds"] == 7 * US


@pytest.mark.parametrize("words", [[], ["--with", "numa:0 -> gpu:1"]])
def test_on_a_model_a_batch_of_copies_is_as_fast_as_its_pieces(capsys, words) -> None:
    """cuMemcpyBatchAsync takes the host 0.87 us for each copy (machines/h200x4.toml, host_us)."""
    alone = way(advised(capsys, "--bytes", "4KiB", *words), "h2d", "batch")
    of_pieces = way(advised(capsys, "--bytes", "4096000", "--pieces", "4KiB"), "pieces", "batch")
    assert alone["seconds"] == pytest.approx(0.87 * US) == pytest.approx(of_pieces["seconds"] / 1000)
    assert alone["predicted"]["interval_s"] and alone["measured"] is None


def test_the_table_marks_times_of_the_host(capsys) -> None:
    assert main(["advise", "--machine", "h200x4", *TRANSFER, "4KiB"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("h2d by batch, pinned → device ^" in line for line in lines)
    assert any(line.strip().startswith("^ the calls of the host take longer") for line in lines)


def test_in_the_run_of_an_h200_a_batch_of_small_copies_is_no_more_than_twice_as_fast() -> None:
    from linkscope.advise.host_calls import HostCalls, with_calls
    from linkscope.advise.methods import transfer_methods

    points = read_run(RUN, rounds=False).points
    found, left_out = with_calls(transfer_methods(points, "numa:0", "gpu:0", 4 * KIB), HostCalls(points), 4 * KIB)
    ce, by_batch = (
        min(one.time.value for one in found if one.curve.method.family.engine == name) for name in ("ce", "batch")
    )
    assert left_out == 0 and 1 < ce / by_batch < 2
