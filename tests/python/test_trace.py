"""A trace of transfers (CS-27): parsed, measured as points, and summed by kind of transfer; sums made by hand."""

import re
from pathlib import Path

import pytest

from invented import point, run
from linkscope.cli.main import main
from linkscope.errors import UserError
from linkscope.report.figures import standalone
from linkscope.report.replay import bars_svg, cells, replay
from linkscope.runfile import read_run
from linkscope.trace import point_ids, read_trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "training.trace"
TRACE = """
numa:0 -> gpu:0 4KiB x 10   # without a name: the file's
[second]
numa:0 -> gpu:0 4KiB x 5
numa:0 -> gpu:0 4097 pageable
gpu:0 -> gpu:1  1MiB x2 peer=off
gpu:0 -> gpu:1  1MiB batched
gpu:1 -> gpu:1  8
[empty]
[third]
gpu:1->numa:0 3
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "first.trace"
    path.write_text(TRACE)
    return path


def test_lines_become_points_and_counts(trace: Path) -> None:
    parts = read_trace(trace)
    assert [part.name for part in parts] == ["first", "second", "third"]
    found = [(str(one.point), one.count) for part in parts for one in part.transfers]
    single, among = "call=memcpy&initiator=src&mode=single", "call=memcpy&initiator=src&mode=batched"
    assert found == [
        ("h2d/ce/numa:0.pinned->gpu:0.device/4096?after=kernel&bidirectional=false&mode=single", 10),
        ("h2d/ce/numa:0.pinned->gpu:0.device/4096?after=kernel&bidirectional=false&mode=single", 5),
        ("h2d/ce/numa:0.pageable->gpu:0.device/4097?after=kernel&bidirectional=false&mode=single", 1),
        (f"d2d/ce/gpu:0.device->gpu:1.device/1048576?after=kernel&bidirectional=false&{single}&peer=off", 2),
        (f"d2d/ce/gpu:0.device->gpu:1.device/1048576?after=kernel&bidirectional=false&{among}&peer=on", 1),
        ("local/ce/gpu:1.device->gpu:1.device/8?after=kernel&mode=single", 1),
        ("d2h/ce/gpu:1.device->numa:0.pinned/3?after=kernel&mode=single", 1),
    ]
    assert len(point_ids(parts)) == 6  # one of them occurs twice


def test_a_line_takes_every_form_of_the_grammar_of_flows(tmp_path: Path) -> None:
    old, new = tmp_path / "old.trace", tmp_path / "new.trace"
    old.write_text("numa:0 -> gpu:0 4MiB x 3 pageable\ngpu:0 -> gpu:1 8 peer=off batched\ngpu:0 -> numa:0 8\n")
    new.write_text(
        "numa:0.pageable→gpu:0.device by ce x3 4MiB; gpu:0->gpu:1 mode=batched peer=off 8B\n"
        "gpu:0 -> numa:0.pinned mode=single 8 # a comment\n"
    )
    of_old, of_new = (parts[0].transfers for parts in (read_trace(old), read_trace(new)))
    assert of_old == of_new and len(of_old) == 3


def test_times_are_summed_by_kind_with_the_ends_of_their_intervals(trace: Path) -> None:
    parts = read_trace(trace)
    seconds = dict(zip(point_ids(parts), (2e-6, 3e-6, 100e-6, 50e-6, 1e-6, 4e-6), strict=True))
    bars, missing = replay(parts, [point(id, time) for id, time in seconds.items()])  # intervals from 98 to 102 %
    assert missing == [] and [bar.name for bar in bars] == ["first", "second", "third"]
    second = bars[1]
    assert {kind: one.time.value for kind, one in second.kinds.items()} == pytest.approx(
        {"h2d": 5 * 2e-6 + 3e-6, "d2d": 2 * 100e-6 + 50e-6, "local": 1e-6}
    )
    assert second.total.count == 10 and second.total.bytes == 5 * 4096 + 4097 + 3 * (1 << 20) + 8
    assert (second.total.time.low, second.total.time.high) == pytest.approx((0.98 * 264e-6, 1.02 * 264e-6))
    assert ("second", "GPU to GPU", "3", "3 MiB", "250 us [245, 255]", "95 %") in cells(bars)
    one = next(iter(seconds))
    bars, missing = replay(parts, [point(id, time) for id, time in seconds.items() if id != one])
    assert missing == [one] and "h2d" not in bars[0].kinds


def test_bars_are_as_long_as_their_times(trace: Path) -> None:
    parts = read_trace(trace)
    bars, _ = replay(parts, [point(id, 1e-6) for id in point_ids(parts)])  # 10, 10 and 1 transfers
    svg = bars_svg(bars, modelled=True)
    widths = [float(wide) for wide in re.findall(r'width="([\d.]+)" height="20"', svg)]
    assert widths == pytest.approx([520, 312, 156, 52, 52], abs=0.1)
    assert "MODELLED" in svg and 'xmlns="http' in standalone(svg)
    assert "MODELLED" not in bars_svg(bars, modelled=False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("numa:0 gpu:0 4096", "^^^^^ the arrow is missing; write it like numa:0 -> gpu:0 64MiB"),
        ("numa:0 -> gpu:0", "^ the size is missing: write it like numa:0 -> gpu:0 4MiB x 100"),
        ("numa:0 -> gpu:0 4k", "^^ not a size; write 4KB or 4KiB"),
        ("numa:0 -> gpu:0 0", "^ a transfer has 1 byte to 1 TiB"),
        ("numa:0 -> gpu:0 8 x 0", "^^^ a flow occurs at least once"),
        ("numa:0 -> gpu:0 8 fast", "^^^^ not known here"),
        ("numa:0 -> numa:1 8", "^ one end of a transfer is a GPU"),
        ("nic:0 -> gpu:0 8", "^ one end of a transfer is a GPU"),
        ("gpu:0 -> gpu:1 8 pinned", "^^^^^^ no end is host memory; leave out pinned"),
        ("numa:0 -> gpu:0 8 pinned pageable", "^^^^^^^^ the host memory is given twice; the first is pinned"),
        ("numa:0.wc -> gpu:0 8", "^^ a trace has pinned, pageable, registered memory here"),
        ("numa:0 -> gpu:0.pool 8", "^^^^ a trace has device memory here"),
        ("numa:0 -> gpu:0 8 peer=off", "^^^^^^^^ peer applies only to transfers between two GPUs"),
        ("gpu:0 -> gpu:1 8 by sm", "^^ a trace is measured by ce: leave out the engine"),
        ("gemm gpu:0 8192", "^ this is not a transfer: write it like numa:0 -> gpu:0 4MiB x 100"),
    ],
)
def test_an_invalid_line_is_named_with_the_cure(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.trace"
    path.write_text(f"# a comment\n{line}\n")
    with pytest.raises(UserError) as refused:
        read_trace(path)
    where, text, pointer = str(refused.value).split("\n")
    assert where.endswith("bad.trace, line 2:") and text.strip() == line and message in pointer


def test_a_file_without_transfers_or_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty.trace", tmp_path / "binary.trace"
    empty.write_text("[epoch]\n# nothing\n")
    binary.write_bytes(b"\xff\xfe\x00")
    for path, message in (
        (empty, "holds no transfer"),
        (binary, "not a text file. `linkscope explain"),
        (tmp_path / "none", "cannot be read"),
    ):
        with pytest.raises(UserError, match=message):
            read_trace(path)


def test_the_example_is_measured_and_shows_the_effects_of_the_paper(tmp_path: Path, capsys) -> None:
    """CS-27: most of an epoch's time goes to transfers between GPUs. They take longer without peer access, and loading
    the pictures takes longer from memory that is not pinned."""
    target, picture = tmp_path / "t.jsonl", tmp_path / "t.svg"
    where = ["--machine", "h200x2", "--rounds", "1", "--output", str(target)]
    assert main(["run", *where, "--trace", str(EXAMPLE)]) == 0
    points = read_run(target, rounds=False).points
    assert {point.id for point in points} == set(point_ids(read_trace(EXAMPLE)))
    bars, missing = replay(read_trace(EXAMPLE), points)
    assert not missing
    pinned, pageable, staged, _ = bars
    times = {bar.name: {kind: one.time.value for kind, one in bar.kinds.items()} for bar in bars}
    assert times[pinned.name]["d2d"] > 0.5 * pinned.total.time.value
    assert times[staged.name]["d2d"] > 3 * times[pinned.name]["d2d"]
    assert times[pageable.name]["h2d"] > 3 * times[pinned.name]["h2d"]
    assert times[pageable.name]["d2d"] == times[pinned.name]["d2d"]
    # 200 steps of the largest layer in each direction singly are bytes over the rate of a copy of a few milliseconds.
    assert times[pinned.name]["d2d"] == pytest.approx(2 * 200 * (411041792 + 67108864 + 3 * 9437184) / 395e9, rel=0.1)
    capsys.readouterr()
    assert main(["explain", str(EXAMPLE), "--against", str(target)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("MODELLED\n") and re.search(r"^VGG-16, pinned +GPU to GPU +2000 ", printed, re.MULTILINE)
    assert main(["explain", str(EXAMPLE), "--against", str(target), "-o", str(picture)]) == 0
    assert "ResNet-50, pinned" in picture.read_text()


def test_only_some_options_go_with_a_trace(trace: Path, tmp_path: Path, capsys) -> None:
    target = tmp_path / "r.jsonl"
    assert main(["run", "--machine", "h200x2", "--trace", str(trace), "--only", "h2d/*"]) == 2
    assert "names everything that is measured: leave out --only" in capsys.readouterr().err
    assert main(["run", "--machine", "h200x1", "--trace", str(trace)]) == 3
    assert f"--trace {trace}: gpu:1 is not here: h200x1 has numa:0, gpu:0" in capsys.readouterr().err
    quick = ["--suite", "quick", "--only", "h2d/*pinned*/4096?*", "--rounds", "1", "--output", str(target)]
    assert main(["run", "--machine", "h200x2", *quick]) == 0
    capsys.readouterr()
    assert main(["explain", str(trace), "--against", str(target)]) == 3
    assert f"`run --trace {trace}` measures them" in capsys.readouterr().err
    assert (
        main(["run", "--machine", "h200x2", "--trace", str(trace), "--rounds", "1", "-o", str(target), "--force"]) == 0
    )
    assert main(["explain", str(trace), "--against", str(target), "-o", str(tmp_path / "x.png")]) == 2
    assert "is an .svg file" in capsys.readouterr().err


def test_points_without_a_value_are_missing_in_a_trace(trace: Path) -> None:
    parts = read_trace(trace)
    failed = [point(id, status="failed", reason="the test says so") for id in point_ids(parts)]
    bars, missing = replay(parts, run(failed).points)
    assert len(missing) == 6 and all(not bar.kinds for bar in bars)
