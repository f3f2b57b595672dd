"""The code and the needs of each method that `linkscope advise` names."""

import json

import pytest

from invented import point
from linkscope.advise.question import Question
from linkscope.advise.recipes import recipe
from linkscope.cli.main import main
from linkscope.model.curves import method_of
from linkscope.run import benchmark_table
from linkscope.runfile import Point
from test_advise import MIB, h2d
from test_advise_transfer import answer, by_memory
from test_break_even import US


def test_every_method_of_the_table_has_a_recipe() -> None:
    moves = (
        "h2h",
        "h2d",
        "d2h",
        "d2d",
        "local",
        "split",
        "relayed",
        "read",
        "write",
        "demand",
        "prefetch",
        "pieces",
        "strided",
    )
    for row in benchmark_table():
        if row.name not in moves:
            continue
        src, dst = f"{row.src}:0", f"{row.dst}:{int(row.relation == 'different')}"
        params = "&".join(f"{param.name}={param.values[0]}" for param in row.params if param.default_in_id)
        for memories in row.memories:
            ends = f"{src}.{memories[0]}->{dst}.{memories[1]}"
            made = point(f"{row.name}/{row.engine}/{ends}/{MIB}" + (f"?{params}" if params else ""))
            piece = 4096 if row.name in ("pieces", "strided") else None
            how = recipe(method_of(made), Question(src, dst, MIB, piece=piece), several_nodes=False)
            assert how.call and "{" + "p}" not in how.code and how.language in ("C++", "Python"), made.id


def test_memory_that_holds_the_data_is_not_made_again(tmp_path, capsys):
    points = [h2d("pinned", MIB, 20 * US), h2d("pageable", MIB, 100 * US), h2d("registered", MIB, 20 * US)]
    codes = {
        memory: one["code"]
        for memory, one in by_memory(answer(tmp_path, capsys, points, "--memory", "pageable")).items()
    }
    assert codes["pageable"] == "cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream);"
    assert codes["registered"].startswith("cudaHostRegister(src, bytes") and codes["pinned"].startswith(
        "cudaMallocHost(&src"
    )


def test_threads_are_bound_where_the_host_has_several_nodes(tmp_path, capsys):
    bound = "memory and calling thread on numa:0: numactl --cpunodebind=0 --membind=0"
    for places, expected in ((["numa:0", "gpu:0"], False), (["numa:0", "numa:1", "gpu:0"], True)):
        (one,) = answer(tmp_path, capsys, [h2d("pinned", MIB, 20 * US)], places=places)["ways"]
        assert (bound in one["needs"]) is expected


def test_pageable_copies_of_a_mebibyte_point_to_the_library(tmp_path, capsys):
    points = [h2d("pageable", size, 100 * US) for size in (MIB // 2, MIB)]
    notes = {size: answer(tmp_path, capsys, points, size=size)["notes"] for size in ("512KiB", "1MiB")}
    said = {
        size: [note.startswith("linkscope.copy(dst, src) moves pageable memory") for note in notes[size]]
        for size in notes
    }
    assert not any(said["512KiB"]) and said["1MiB"].count(True) == 1


def staged(threads: int, chunk: str, seconds: float, ends: str = "numa:0.pageable->gpu:0.device") -> Point:
    return point(f"staged/ce/{ends}/{MIB}?chunk={chunk}&slots=2&threads={threads}", seconds)


def test_staged_copies_occur_once_with_their_best_knobs_and_are_made_by_the_library(tmp_path, capsys):
    points = [staged(1, "1MiB", 90 * US), staged(8, "256KiB", 25 * US), staged(8, "64KiB", 30 * US)]
    found = answer(tmp_path, capsys, [*points, h2d("pageable", MIB, 100 * US)])
    best, plain = found["ways"]
    assert best["seconds"] == pytest.approx(25 * US) and best["params"]["threads"] == "8" and plain["present"]
    assert (best["language"], best["code"]) == ("Python", "linkscope.copy(dst, src)  # C: ls_copy")
    assert {"2 pinned slots of 256KiB", "CPU threads: 8"} <= set(best["needs"]) and found["notes"] == []
    assert best["pays_off"]["from"] == 1  # the data stays in its memory


def test_a_relay_between_gpus_has_its_code(tmp_path, capsys):
    relay = staged(1, "1MiB", 90 * US, "gpu:0.device->gpu:1.device")
    (one,) = answer(tmp_path, capsys, [relay], src="gpu:0", dst="gpu:1")["ways"]
    assert one["language"] == "C++" and "i = (i + 1) % 2" in one["code"]


def test_copies_within_a_gpu_are_ranked_by_engine_and_name_the_tuning_that_uses_them(capsys) -> None:
    for dst, option in (("gpu:0", "--paths within-gpu"), ("gpu:1", "--paths peer-to-gpu --other-gpu N")):
        words = ["--src", "gpu:0", "--dst", dst, "--bytes", "4MiB", "--json"]
        assert main(["advise", "--machine", "h200x4", *words]) == 0
        ways = json.loads(capsys.readouterr().out)["ways"]
        codes = {way["engine"]: way["code"] for way in ways if way["benchmark"] in ("local", "d2d")}
        for engine in ("sm", "tma"):
            assert f"linkscope.copy(dst, src) after linkscope tune {option}, or:" in codes[engine]
        assert "linkscope tune" not in codes["ce"]


def test_registered_memory_is_ranked_with_its_break_even_and_names_the_function(capsys) -> None:
    words = ["--src", "numa:0", "--dst", "gpu:0", "--bytes", "48MiB", "--memory", "pageable", "--reuse", "20", "--json"]
    assert main(["advise", "--machine", "h200x4", *words]) == 0
    ways = json.loads(capsys.readouterr().out)["ways"]
    (one,) = [
        way for way in ways if (way["benchmark"], way["engine"], way["src_memory"]) == ("h2d", "ce", "registered")
    ]
    assert one["pays_off"] and one["gain"]["ratio"] > 2 and "linkscope.register" in one["code"]


def test_a_model_of_four_gpus_ranks_pinned_copies_over_the_links_of_helpers_first(capsys) -> None:
    words = ["--src", "numa:0", "--dst", "gpu:1", "--bytes", "256MiB", "--memory", "pinned", "--json"]
    assert main(["advise", "--machine", "h200x4", *words]) == 0
    ways = json.loads(capsys.readouterr().out)["ways"]
    (three, one), (plain,) = ways[:2], [way for way in ways if way["present"]]
    assert [way["benchmark"] for way in (three, one, plain)] == ["relayed", "relayed", "h2d"]
    assert three["gain"]["ratio"] > 2.5 and one["gain"]["ratio"] > 1.6
    assert three["code"].startswith("linkscope.use_helpers([0, 2, 3])") and "[0]" in one["code"]
    assert "leave to use the links of GPUs [0, 2, 3], whose own copies are slower meanwhile" in three["needs"]
