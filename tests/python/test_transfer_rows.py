"""The ways of core/transfer as rows of the table: known times on a model, every byte on the fake driver, and advice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fake_driver import environment, needs_fake, needs_worker, too_short
from invented import point
from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.run.simulate import quiet, simulation
from linkscope.runfile import PointId, read_run
from test_advise import saved

pytestmark = needs_worker
MIB = 1 << 20
TO_GPU, FROM_GPU = "numa:0.pageable->gpu:0.device", "gpu:0.device->numa:0.pageable"
RING = "staged/sm/{}/{}?chunk=64KiB&mode=batched&slots=2&sms=16&threads={}"
LINKS = "relayed/ce/{}/{}?chunk=4MiB&helpers={}&mode=batched&threads={}"
PACKED = "pieces/sm/{}/{}?chunk=1MiB&mode=batched&piece=4096&slots=2&sms=32&threads={}"
FRESH = "fresh/ce/gpu:0.device->numa:0.{}/{}?mode=batched"
FRESH_STAGED = "fresh_staged/ce/gpu:0.device->numa:0.{}/{}?chunk={}&mode=batched&threads={}"
BY_CALLS = "staged/ce/{}/{}?bidirectional=false&chunk={}&mode=batched&slots=2&threads={}"


def model() -> dict:
    return quiet(models.load("h200x4").to_json())


def seconds(*texts: str) -> list[float]:
    points = [PointId.parse(text) for text in texts]
    with simulation() as simulated:
        found = simulated.seconds(model(), points)
    assert not [one for one in found if isinstance(one, str)], found
    return [max(one) for one in found]


@pytest.mark.parametrize("ends", [TO_GPU, FROM_GPU])
def test_one_kernel_moves_small_slots_faster_than_a_call_for_each(ends: str) -> None:
    by_kernel, by_calls = seconds(RING.format(ends, 16 * MIB, 8), BY_CALLS.format(ends, 16 * MIB, "64KiB", 8))
    assert by_calls > 1.5 * by_kernel


def test_a_ring_that_one_kernel_drives_is_as_fast_as_its_threads() -> None:
    rate = model()["numa"][0]["memcpy_gbps"]["v"] * 1e9
    one, four = seconds(RING.format(TO_GPU, 16 * MIB, 1), RING.format(TO_GPU, 16 * MIB, 4))
    assert one == pytest.approx(16 * MIB / rate, rel=0.03) and four == pytest.approx(one / 4, rel=0.05)


@pytest.mark.parametrize("ends", [TO_GPU, FROM_GPU])
def test_pageable_memory_uses_the_links_of_helpers_at_the_rate_of_its_threads(ends: str) -> None:
    rate = model()["numa"][0]["memcpy_gbps"]["v"] * 1e9
    own, two, four, few = seconds(
        BY_CALLS.format(ends, 64 * MIB, "4MiB", 8), LINKS.format(ends, 64 * MIB, 1, 8),
        LINKS.format(ends, 64 * MIB, 3, 8), LINKS.format(ends, 64 * MIB, 3, 1),
    )  # fmt: skip
    assert own / two > 1.5 and own / four > 1.8  # the host's memory carries each byte three times: at most 100 GB/s
    assert few == pytest.approx(64 * MIB / (4 * rate), rel=0.05)  # a thread for each of four links


@pytest.mark.parametrize("ends", [TO_GPU, FROM_GPU])
def test_a_thread_that_packs_pieces_pays_a_call_for_each(ends: str) -> None:
    content = model()
    rate, call = content["numa"][0]["memcpy_gbps"]["v"] * 1e9, content["costs"]["cpu_copy_us"]["v"] * 1e-6
    one, four = seconds(PACKED.format(ends, 8 * MIB, 1), PACKED.format(ends, 8 * MIB, 4))
    assert one == pytest.approx(2048 * (call + 4096 / rate), rel=0.03) and one > 3.5 * four


@needs_fake
def test_every_byte_arrives_on_the_fake_driver(tmp_path: Path) -> None:
    few = [
        text.format(ends)
        for ends in (TO_GPU, FROM_GPU)
        for text in (
            "staged/sm/{}/1048576?chunk=64KiB&mode=batched&slots=2&sms=8&threads=1",
            "relayed/ce/{}/4194304?chunk=1MiB&helpers=1&mode=batched&threads=1",
            "pieces/sm/{}/819200?chunk=256KiB&mode=batched&piece=4096&slots=2&sms=32&threads=1",
        )
    ]
    # Two chunks of 2 MiB: threads that wait for each other take a time slice for each chunk on a busy machine.
    few += [FRESH.format("pageable", 1048576), FRESH_STAGED.format("pageable", 4194304, "2MiB", 1)]
    path = tmp_path / "run.jsonl"
    words = ["run", "--suite", "full", "--rounds", "1", "--contexts", "any", "--precision", "99%", "-o", str(path)]
    only = [word for text in few for word in ("--only", text)]
    done = subprocess.run(
        [sys.executable, "-m", "linkscope", *words, *only],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    points = read_run(path).points
    assert {point.id for point in points} == set(few)
    wrong = [(point.id, point.status, point.reason) for point in points if not point.verified and not too_short(point)]
    assert not wrong


def test_the_rows_are_listed(capsys) -> None:
    for name, summary in (
        ("staged", "one kernel empties"),
        ("relayed", "pinned slots, over the links of several GPUs"),
        ("pieces", "packed in pinned slots"),
        ("fresh", "host memory that nobody has touched"),
        ("file_direct", "cuFile reads a file into a GPU's memory"),
        ("file_mapped", "a GPU copies a file from the page cache"),
        ("read_file", "depth"),
        ("fresh_staged", "pinned slots that CPU threads empty"),
    ):
        assert main(["list", name]) == 0
        assert summary in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("src", "dst"), [("numa:0", "gpu:1"), ("gpu:1", "numa:0")])
def test_pieces_of_pageable_memory_are_ranked_against_a_call_for_each(capsys, src: str, dst: str) -> None:
    words = ["--src", src, "--dst", dst, "--bytes", "32MiB", "--memory", "pageable", "--pieces", "4KiB", "--json"]
    assert main(["advise", "--machine", "h200x4", *words]) == 0
    ways = json.loads(capsys.readouterr().out)["ways"]
    pageable = {
        (one["benchmark"], one["engine"]): one for one in ways if "pageable" in (one["src_memory"], one["dst_memory"])
    }
    loop, packed = pageable["pieces", "ce"], pageable["pieces", "sm"]
    assert loop["present"] and packed["gain"]["ratio"] > 5 and packed["rank"] < loop["rank"]
    assert "linkscope.copy_blocks" in packed["code"] and "CPU threads: 8" in packed["needs"]
    text = ("h2d" if src == "numa:0" else "d2h") + "/ce/{}/4096?after=kernel&bidirectional=false&mode=batched"
    ends = f"{src}.pageable->{dst}.device" if src == "numa:0" else f"{src}.device->{dst}.pageable"
    text = text.format(ends) if src == "numa:0" else text.format(ends).replace("bidirectional=false&", "")
    (one,) = seconds(text)
    assert loop["seconds"] == pytest.approx(8192 * one)


def test_the_ring_of_one_kernel_and_pageable_memory_over_several_links_are_in_the_advice(capsys) -> None:
    words = ["--src", "numa:0", "--dst", "gpu:2", "--bytes", "64MiB", "--memory", "pageable", "--json"]
    assert main(["advise", "--machine", "h200x4", *words]) == 0
    ways = json.loads(capsys.readouterr().out)["ways"]
    by = {(one["benchmark"], one["engine"]): one for one in ways if one["src_memory"] == "pageable"}
    ring, links = by["staged", "sm"], by["relayed", "ce"]
    assert any("for each of" in need and "multiprocessors" in need for need in ring["needs"])
    assert "linkscope.use_helpers" in links["code"] and links["seconds"] < ring["seconds"]


def untouched(capsys, *words: str, src: str = "gpu:1", memory: str = "untouched") -> list[dict]:
    asked = ["--src", src, "--dst", "numa:0", "--bytes", "64MiB", "--memory", memory, "--json", *words]
    assert main(["advise", "--machine", "h200x4", *asked]) == 0
    return json.loads(capsys.readouterr().out)["ways"]


def test_copies_to_untouched_memory_are_ranked_with_what_each_needs(capsys) -> None:
    ways = untouched(capsys)
    fresh = {(one["benchmark"], one["dst_memory"]): one for one in ways if one["benchmark"].startswith("fresh")}
    plain, threads = fresh["fresh", "pageable"], fresh["fresh_staged", "hugepage"]
    assert plain["present"] and threads["gain"]["ratio"] > 4
    assert any("transparent_hugepage" in need for need in threads["needs"])
    assert "CPU threads: 8" in threads["needs"] and "linkscope.to_cpu" in threads["code"]
    assert any("cudaMemcpyAsync" in one["code"] and "MADV_HUGEPAGE" in one["code"] for one in fresh.values())
    assert sum(one["benchmark"] == "fresh_staged" for one in ways) == 2  # of each memory with its best settings
    others = {one["dst_memory"] for one in ways if not one["benchmark"].startswith("fresh")}
    assert "pinned" in others and "pageable" not in others  # a copy to touched pageable memory is no answer
    pinned = next(one for one in ways if (one["benchmark"], one["engine"]) == ("d2h", "ce"))
    assert pinned["pays_off"]["from"] > 1  # pinned memory is paid once


def test_an_answer_says_that_the_question_was_about_untouched_memory(capsys) -> None:
    asked = ["advise", "--machine", "h200x4", "--src", "gpu:1", "--dst", "numa:0", "--bytes", "64MiB"]
    assert main([*asked, "--memory", "untouched", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory"] == "untouched"
    assert main([*asked, "--memory", "untouched"]) == 0
    assert "gpu:1 → numa:0, 64 MiB, batched copies to untouched memory, fastest first:" in capsys.readouterr().out


def test_a_run_without_copies_to_untouched_memory_names_the_benchmarks_that_measure_them(tmp_path, capsys) -> None:
    copies = {
        memory: point(f"d2h/ce/gpu:0.device->numa:0.{memory}/{MIB}?bidirectional=false&mode=batched", 1e-4)
        for memory in ("pageable", "pinned")
    }
    words = ["--src", "gpu:0", "--dst", "numa:0", "--bytes", "1MiB", "--memory", "untouched"]
    assert main(["advise", str(saved(tmp_path, [copies["pageable"]])), *words]) == 3
    assert "to untouched memory; measure it: linkscope run fresh fresh_staged" in capsys.readouterr().err
    assert main(["advise", str(saved(tmp_path, list(copies.values()))), *words]) == 0
    assert "no gains: a plain copy of untouched memory, the present method" in capsys.readouterr().out


def test_copies_to_untouched_memory_are_no_answer_for_touched_memory(capsys) -> None:
    assert not [one for one in untouched(capsys, memory="pageable") if one["benchmark"].startswith("fresh")]


@pytest.mark.parametrize(("words", "cure"), [
    (["--src", "numa:0", "--dst", "gpu:0"], "Write --src gpu:0 --dst numa:0"),
    (["--src", "gpu:0", "--dst", "numa:0", "--reuse", "3"], "Leave out --reuse"),
    (["--src", "gpu:0", "--dst", "numa:0", "--pieces", "4KiB"], "Leave out --pieces"),
    (["--src", "gpu:0", "--dst", "numa:0", "--with", "gpu:1 -> numa:0"], "Leave out --with"),
])  # fmt: skip
def test_questions_about_untouched_memory_that_no_operation_answers_are_refused(capsys, words, cure) -> None:
    assert main(["advise", "--machine", "h200x4", *words, "--bytes", "64MiB", "--memory", "untouched"]) != 0
    assert cure in capsys.readouterr().err


FILE = "read_file/file/disk:0.file->numa:0.pinned/{}{}"
DIRECT = "file_direct/file/{}/{}?mode=batched&node=numa:0"
WHOLE_FILE = "file_copies/file/{}/{}?bidirectional=false&chunk=whole&mode=batched&ring=numa:0&slots=1"
FROM_DISK, TO_DISK = "disk:0.file->gpu:0.device", "gpu:0.device->disk:0.file"


def disk_model() -> dict:
    return quiet(models.load("jorda-b").to_json())


def of_disk(*texts: str) -> list[float]:
    with simulation() as simulated:
        found = simulated.seconds(disk_model(), [PointId.parse(text) for text in texts])
    assert not [one for one in found if isinstance(one, str)], found
    return [max(one) for one in found]


def test_requests_in_flight_share_the_rate_of_a_models_disk_and_each_costs_a_call() -> None:
    call = disk_model()["costs"]["call_us"]["v"] * 1e-6
    one, four = of_disk(FILE.format(16 * MIB, ""), FILE.format(16 * MIB, "?depth=4"))
    assert four - one == pytest.approx(3 * call, rel=0.05)


@pytest.mark.parametrize("ends", [FROM_DISK, TO_DISK])
def test_cufile_moves_a_file_at_the_rate_of_the_disk_without_the_second_leg(ends: str) -> None:
    direct, twice, whole = of_disk(
        DIRECT.format(ends, 16 * MIB), DIRECT.format(ends, 32 * MIB), WHOLE_FILE.format(ends, 16 * MIB)
    )
    if ends == FROM_DISK:
        (read,) = of_disk(FILE.format(16 * MIB, ""))
        assert direct == pytest.approx(read, rel=0.01)
    assert twice == pytest.approx(2 * direct, rel=0.05) and direct < 0.97 * whole


@pytest.mark.parametrize(("src", "dst", "code"), [
    ("disk:0", "gpu:0", ("linkscope.read_file", "cuFileRead", "pread")),
    ("gpu:0", "disk:0", ("linkscope.save_file", "cuFileWrite", "pwrite")),
])  # fmt: skip
def test_copies_of_files_are_ranked_with_what_each_needs(capsys, src: str, dst: str, code: tuple[str, ...]) -> None:
    words = ["--src", src, "--dst", dst, "--bytes", "128MiB", "--json"]
    assert main(["advise", "--machine", "jorda-b", *words]) == 0
    ways = json.loads(capsys.readouterr().out)["ways"]
    whole = next(one for one in ways if one["present"])
    direct = next(one for one in ways if one["benchmark"] == "file_direct")
    ring = next(one for one in ways if one["benchmark"] == "file_copies" and not one["present"])
    assert code[0] in ring["code"] and code[1] in direct["code"] and code[2] in whole["code"]
    assert any("libcufile" in need for need in direct["needs"]) and direct["gain"]["ratio"] > 1
    assert any("pinned slots" in need for need in ring["needs"]) and ring["gain"]["ratio"] > 1
    assert whole["params"]["chunk"] == "whole" and ring["pays_off"]["at_best"]["from"] == 1


@pytest.mark.parametrize(("text", "why"), [
    ("file_direct/file/disk:0.file->gpu:0.device/1048576?chunk=1MiB&mode=batched&node=numa:0", "no parameter 'chunk'"),
    ("file_direct/file/disk:0.file->numa:0.pinned/1048576?mode=batched&node=numa:0", "is not possible"),
    ("read_file/file/disk:0.file->numa:0.pinned/1048576?depth=3", "depth is 1, 4, 16, 32"),
])  # fmt: skip
def test_wrong_points_of_files_are_refused_with_the_mistake(text: str, why: str) -> None:
    with simulation() as simulated:
        (found,) = simulated.seconds(disk_model(), [PointId.parse(text)])
    assert isinstance(found, str) and why in found


MAPPED = "file_mapped/file/disk:0.file->gpu:0.device/{}?chunk={}&mode=batched&node=numa:0&threads={}"


def pinning_model(**memory: float) -> dict:
    """A model with a disk, and with what pinning a page costs."""
    found = quiet(models.load("jorda-b").to_json())
    costs = {"call_us": 2.0, "pin_us": 10.0, "pin_page_us": 0.2, "unpin_page_us": 0.1} | memory
    other = quiet(models.load("h200x2").to_json())["memory"]
    return found | {"memory": other | {name: {"v": value, "from": "assumed"} for name, value in costs.items()}}


def test_on_a_model_a_mapped_file_takes_the_pinning_of_its_pages_and_one_copy_by_the_gpu() -> None:
    texts = [MAPPED.format(16 * MIB, chunk, 1) for chunk in ("4MiB", "1MiB")]
    texts.append(f"h2d/ce/numa:0.pinned->gpu:0.device/{16 * MIB}?after=kernel&bidirectional=false&mode=batched")
    with simulation() as simulated:
        times = simulated.seconds(pinning_model(), [PointId.parse(text) for text in texts])
        slower = simulated.seconds(pinning_model(pin_page_us=0.4), [PointId.parse(texts[0])])
    assert not [one for one in (*times, *slower) if isinstance(one, str)], (times, slower)
    four, sixteen, copy = (max(one) for one in times)
    pages = 16 * MIB / 4096
    assert four == pytest.approx(copy + pages * 0.3e-6 + 4 * 2 * 12e-6, rel=0.05)
    assert sixteen > four + 12 * 2 * 12e-6
    assert max(slower[0]) - four == pytest.approx(pages * 0.2e-6, rel=0.01)


@pytest.mark.parametrize(("model", "text", "why"), [
    (disk_model, MAPPED.format(MIB, "1MiB", 1), "its file has no [memory]"),
    (pinning_model, MAPPED.format(MIB, "64KiB", 8), "how several threads share the pinning of pages"),
    (pinning_model, MAPPED.format(MIB + 4096, "1MiB", 1), "no whole number of chunks"),
    (pinning_model, f"{FILE.format(MIB, '?cache=hot')}", "no page cache"),
])  # fmt: skip
def test_a_model_says_which_files_in_the_page_cache_it_does_not_know(model, text: str, why: str) -> None:
    with simulation() as simulated:
        (found,) = simulated.seconds(model(), [PointId.parse(text)])
    assert isinstance(found, str) and why in found
