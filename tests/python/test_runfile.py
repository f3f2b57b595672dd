"""Run files: round trips, truncated and damaged files, and one sentence for each unreadable file."""

import gzip
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fakes import flow, header, point, round_record
from invented import small_run
from linkscope.errors import UserError
from linkscope.report.outcome import run_text
from linkscope.runfile import End, PointId, Resume, Run, RunWriter, family_of, once, read_run
from linkscope.units import format_seconds

IDS = [f"h2d/ce/numa:0.pinned->gpu:0.device/{8 << n}?mode=batched" for n in range(3)]


@pytest.fixture
def run_path(tmp_path):
    path = tmp_path / "a.jsonl"
    with RunWriter.create(path, header()) as writer:
        for number, id in enumerate(IDS):
            writer.write(round_record(id, 0))
            writer.write(point(id, flows=[flow([1e-6 * (number + 1)] * 6)], ci95_s=(1e-6, 2e-6)))
        writer.write(round_record("h2d/ce/numa:0.pinned->gpu:0.device/64?mode=batched", 0))
        writer.write(End(wall_s=1.5, complete=True, counts={"ok": 3}))
    return path


def refused(path) -> str:
    with pytest.raises(UserError) as caught:
        read_run(path)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert str(path) in message and "\n" not in message
    return message


def test_a_run_survives_a_round_trip(run_path) -> None:
    run = read_run(run_path)
    assert [found.id for found in run.points] == IDS
    assert run.points[1].flows[0].round_medians_s == [2e-6] * 6
    assert run.points[0].ci95_s == (1e-6, 2e-6)
    assert run.modelled and run.warnings == [] and run.end is not None and run.end.complete
    assert set(run.rounds) == {*IDS, "h2d/ce/numa:0.pinned->gpu:0.device/64?mode=batched"}


def test_a_compressed_run_reads_the_same(run_path, tmp_path) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(run_path.read_bytes()))
    assert read_run(packed).points == read_run(run_path).points
    content, middle = run_path.read_bytes(), run_path.stat().st_size // 2
    packed.write_bytes(gzip.compress(content[:middle]) + gzip.compress(content[middle:]))  # as `cat` joins them
    assert read_run(packed) == replace(read_run(run_path), path=packed, compressed=True)
    packed.write_bytes(gzip.compress(content))
    half = tmp_path / "half.jsonl.gz"
    half.write_bytes(packed.read_bytes()[: packed.stat().st_size * 3 // 4])
    assert any("incomplete" in warning for warning in read_run(half).warnings)
    damaged = bytearray(packed.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    half.write_bytes(bytes(damaged))
    assert "damaged" in refused(half)


def test_a_run_read_without_rounds_has_everything_else(run_path) -> None:
    complete, lean = read_run(run_path), read_run(run_path, rounds=False)
    assert complete.rounds and not lean.rounds
    assert (lean.header, lean.points, lean.end, lean.valid_bytes) == (
        complete.header, complete.points, complete.end, complete.valid_bytes
    )  # fmt: skip


def test_a_truncated_end_is_dropped_with_a_warning(run_path, tmp_path) -> None:
    content = run_path.read_bytes()
    first = content.index(b"\n") + 1
    torn = tmp_path / "torn.jsonl"
    for cut in random.Random(2).sample(range(first, len(content)), 60):
        torn.write_bytes(content[:cut])
        run = read_run(torn)
        complete = content[cut - 1 : cut + 1].count(b"\n") > 0  # cut before or after the end of a line
        lines = content[:cut].splitlines() if complete else content[:cut].splitlines()[:-1]
        assert len(run.warnings) == (0 if complete else 1)
        assert len(run.points) == sum(b'"record":"point"' in line for line in lines)


@pytest.mark.parametrize("rounds", [True, False])
@pytest.mark.parametrize("kind", [b"round", b"point"])
def test_damage_within_the_file_is_refused(run_path, kind: bytes, rounds: bool) -> None:
    lines = run_path.read_bytes().split(b"\n")
    at = next(i for i, line in enumerate(lines[:-3]) if line.startswith(b'{"record":"' + kind))
    lines[at] = lines[at][:40]
    run_path.write_bytes(b"\n".join(lines))
    with pytest.raises(UserError, match=f"line {at + 1}\\b"):
        read_run(run_path, rounds=rounds)


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "is empty"),
        (bytes(range(256)), "binary"),
        (b"\xff\xfe\x80 no text\n", "not a linkscope run file"),
        (b"hello\nworld\n", "not a linkscope run file"),
        (b'{"record":"point"}\n', "not a run record"),
        (b"[1, 2]\n", "not a run record"),
        (b'{"record":"run","schema":2,"modelled":true}\n', "schema 2"),
        (b'{"record":"run","schema":1,"modelled":tr', "incomplete first line"),
        (b'{"record":"run","schema":1,"modelled":"perhaps"}\n{"record":"end"}\n', "line 1"),
    ],
)
def test_a_file_that_is_no_run_is_refused_with_a_sentence(tmp_path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    assert words in refused(path)


def test_missing_files_and_directories_are_refused(tmp_path) -> None:
    assert "does not exist" in refused(tmp_path / "none.jsonl")
    assert "is a directory" in refused(tmp_path)


def test_two_runs_in_one_file_are_refused(run_path) -> None:
    run_path.write_bytes(run_path.read_bytes() * 2)
    assert "second run" in refused(run_path)


def test_existing_files_and_impossible_paths_are_not_written(tmp_path, run_path) -> None:
    for path, words in ((run_path, "exists"), (tmp_path, "directory"), (tmp_path / "no" / "a.jsonl", "cannot write")):
        with pytest.raises(UserError, match=words):
            RunWriter.create(path, header())
    RunWriter.create(run_path, header(), force=True).close()
    assert read_run(run_path).points == []


@pytest.mark.parametrize("cut", [0, 1, 5, 50])
def test_resuming_removes_the_truncated_line(run_path, cut: int) -> None:
    os.truncate(run_path, run_path.stat().st_size - cut)
    before = read_run(run_path)
    with RunWriter.go_on(before, Resume(started="later", tool={}, points_done=3)) as writer:
        writer.write(point(IDS[0], status="failed", reason="again"))
    run = read_run(run_path)
    assert run.warnings == [] and len(run.resumes) == 1 and run.end is None
    assert [found.id for found in run.points] == IDS and run.points[0].reason == "again"


def test_resuming_removes_a_truncated_line_that_is_longer_than_the_next_record(run_path) -> None:
    with open(run_path, "ab") as file:
        file.write(b'{"record":"round","id":"' + b"x" * 100_000)
    with RunWriter.go_on(read_run(run_path), Resume(started="later", tool={}, points_done=3)):
        pass
    run = read_run(run_path)
    assert run.warnings == [] and len(run.resumes) == 1


def test_records_reach_the_disk_every_two_seconds_and_at_the_end(tmp_path, monkeypatch) -> None:
    path, now, synced = tmp_path / "a.jsonl", [0.0], []
    monkeypatch.setattr("linkscope.runfile.writer.time.monotonic", lambda: now[0])
    monkeypatch.setattr("linkscope.runfile.writer.os.fsync", lambda file: synced.append(path.stat().st_size))
    with RunWriter.create(path, header()) as writer:
        for seconds in (1.0, 2.5, 3.0):
            now[0] = seconds
            writer.write(point(IDS[0]))
        assert len(synced) == 1
    assert len(synced) == 2 and synced[-1] == path.stat().st_size


def test_the_time_of_a_resumed_run_is_the_sum_of_its_sessions(run_path) -> None:
    sessions = [(60.0, {"cpu_steal": 0.02, "gpu:0": {"pcie_replays": 2}}), (20.0, {"cpu_steal": 0.06}), (10.0, {})]
    for seconds, gained in sessions:
        with RunWriter.go_on(read_run(run_path), Resume(started="later", tool={}, points_done=3)) as writer:
            writer.write(
                End(wall_s=seconds, complete=False, counts={}, gained={**gained, "gpu:1": {"pcie_replays": 1}})
            )
    run = read_run(run_path)
    first_s = run.earlier_ends[0].wall_s
    assert run.wall_s == first_s + 90.0 and run.end is not None and run.end.wall_s == 10.0
    counters, stolen = run.gained()
    assert counters == {"gpu:0": {"pcie_replays": 2}, "gpu:1": {"pcie_replays": 3}}
    assert stolen == pytest.approx((60 * 0.02 + 20 * 0.06) / run.wall_s)
    assert f"simulated in {format_seconds(run.wall_s)} in 4 parts" in run_text(run)


def test_resuming_a_compressed_file_is_refused(run_path, tmp_path) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(run_path.read_bytes()))
    with pytest.raises(UserError, match="gunzip"):
        RunWriter.go_on(read_run(packed), Resume(started="later", tool={}, points_done=3))


places = st.one_of(
    st.sampled_from(["numa:0", "gpu:12", "host:1/gpu:0"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1).map(lambda path: f"disk:{path}"),
)
names = st.text("abcdefgh_", min_size=1, max_size=6)


@given(names, places, places, st.integers(0, 1 << 40), st.dictionaries(names, st.text(min_size=1), max_size=3))
@example("a", "gpu:0", "gpu:1", 8, {"first": "?a&b=c%26>d,e/f", "second": "&"})
def test_ids_parse_to_the_parts_that_they_were_built_from(name, src, dst, size, params) -> None:
    built = PointId(name, "ce", src, "pinned", dst, "device", size, tuple(sorted(params.items())))
    assert PointId.parse(str(built)) == built


@pytest.mark.parametrize(
    "text", ["", "h2d", "h2d/ce/numa:0->gpu:0/8", "h2d/ce/a.b->c.d/8?x", "h2d/ce/a.b->c.d/8?x=1&x=2"]
)
def test_a_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        PointId.parse(text)


WHOLE = Path(__file__).parents[2] / "results" / "h200x1-quick.jsonl.gz"


def _changed(tmp_path: Path, number: int, old: bytes, new: bytes) -> Path:
    """A run of which one line is another; without its rounds."""
    lines = [line for line in gzip.decompress(WHOLE.read_bytes()).splitlines(True) if b'"round",' not in line[:20]]
    assert old in lines[number]
    lines[number] = lines[number].replace(old, new, 1)
    path = tmp_path / "changed.jsonl"
    path.write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize(
    ("number", "old", "new", "words"),
    [
        (0, b'"places":[', b'"places":[7,', "first line is damaged"),
        (0, b'"classes":[', b'"classes":[5,', "first line is damaged"),
        (0, b'"gpus":[', b'"gpus":[5,', "first line is damaged"),
        (0, b'"schema":1', b'"schema":"1"', "schema '1'"),
        (1, b'"id":"', b'"id":"?', "line 2: the line is damaged"),
        (-1, b'"wall_s":', b'"wall_s":[],"x":', "the line is damaged"),  # it ends with a newline, so it is not torn
    ],
)
def test_values_of_a_wrong_type_are_damage(tmp_path: Path, number: int, old: bytes, new: bytes, words: str) -> None:
    with pytest.raises(UserError) as refused:
        read_run(_changed(tmp_path, number, old, new), rounds=False)
    assert words in str(refused.value) and "incomplete and was dropped" not in str(refused.value)


@pytest.mark.parametrize(("content", "words"), [(b"", "is empty"), (WHOLE.read_bytes()[:12], "before its first line")])
def test_an_archive_without_a_line_says_so(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(content or gzip.compress(b""))
    with pytest.raises(UserError, match=words):
        read_run(path)


def test_single_copies_borrow_no_noise_from_batched_ones_and_both_directions_do() -> None:
    def kin(params: str) -> tuple[str, str]:
        return family_of(PointId.parse(f"h2d/ce/numa:0.pinned->gpu:0.device/8?{params}")).kin

    assert kin("bidirectional=false&mode=single") != kin("bidirectional=false&mode=batched")
    assert kin("bidirectional=false&mode=batched") == kin("bidirectional=true&mode=batched")


def test_a_class_of_sizes_begins_with_its_smallest_size() -> None:
    sizes = ((64 << 10) - 1, 64 << 10, (1 << 20) - 1, 1 << 20)
    assert [family_of(PointId.parse(IDS[0].replace("/8?", f"/{size}?"))).size_class for size in sizes] == [0, 1, 1, 2]


def test_a_question_to_a_run_is_answered_once_and_anew_for_a_changed_run() -> None:
    asked = []

    @once
    def count(one: Run) -> int:
        asked.append(one)
        return len(one.points)

    whole = small_run()
    part = replace(whole, points=whole.points[:1])
    assert [count(whole), count(part), count(whole), count(part)] == [len(whole.points), 1, len(whole.points), 1]
    assert len(asked) == 2
