"""`linkscope tune` on the fake driver: its file, its options, and one sentence for each mistake."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from fake_driver import BUILD, ROOT, environment, needs_fake
from test_tune import KIB, MIB

LIBRARY = ROOT / "src" / "linkscope" / "_native" / "liblinkscope.so"
needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "linkscope", "tune", *words]


def linkscope_tune(*words: str, library: str = "driver", **settings: str) -> subprocess.CompletedProcess[str]:
    env = environment(library) | {"PYTHONPATH": str(ROOT / "src")} | settings
    return subprocess.run(command(*words), env=env, capture_output=True, text=True, timeout=300)


@needs_fake
@needs_library
def test_the_command_tunes_every_path_and_the_library_loads_the_file(tmp_path) -> None:
    home = {"XDG_CACHE_HOME": str(tmp_path)}
    done = linkscope_tune("--budget", "6s", "--largest", "256KiB", "--json", **home)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {row["path"] for row in found["classes"]} <= {
        "to-gpu", "to-warm", "to-fresh", "blocks-to-gpu", "blocks-from-gpu", "packed-to-gpu", "packed-from-gpu",
        "cached-file", "within-gpu",
    }  # fmt: skip
    assert found["classes"] and os.path.dirname(found["file"]) == str(tmp_path / "linkscope")
    code = "from linkscope import native; print(*native.tuning(), native.fingerprint(), sep='\\n')"
    env = environment() | {"PYTHONPATH": str(ROOT / "src")} | home
    read = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    file, note, fingerprint = read.stdout.splitlines()
    assert file == found["file"] and "by linkscope" in note and fingerprint == found["fingerprint"]


@needs_fake
@needs_library
def test_the_table_shows_gains_and_names_the_file(tmp_path) -> None:
    file = tmp_path / "mine.tuning"
    done = linkscope_tune("--budget", "3s", "--largest", "128KiB", "--paths", "to-warm", "-o", str(file))
    assert done.returncode == 0, done.stderr
    assert "gain [95 % CI]" in done.stdout and f"tuning: {file}" in done.stdout and "1 of 1: to-warm" in done.stderr
    assert file.read_text().startswith("linkscope transfer tuning, format 1\nfingerprint: ")


@needs_fake
@needs_library
def test_helpers_add_pinned_copies_to_the_race_and_their_knobs_to_the_file(tmp_path) -> None:
    file = tmp_path / "mine.tuning"
    words = ["--budget", "2s", "--largest", "1MiB", "--paths", "pinned-to-gpu", "--json", "-o", str(file)]
    done = linkscope_tune(*words, "--helpers", "gpu:1,3", FAKE_CUDA_GPUS="4")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["helpers"] == [1, 3] and {row["path"] for row in told["classes"]} == {"pinned-to-gpu"}
    assert "copies relay_to_gpu from 65536 " in file.read_text()


@needs_fake
@needs_library
def test_blocks_files_and_copies_between_gpus_are_raced_and_the_library_loads_their_knobs(tmp_path) -> None:
    file = tmp_path / "mine.tuning"
    words = ["--budget", "12s", "--largest", "256KiB", "--other-gpu", "1", "--json", "-o", str(file)]
    done = linkscope_tune(*words, "--paths", "packed-to-gpu,packed-from-gpu,cached-file,gpu-to-gpu")
    assert done.returncode == 0, done.stderr
    rows = {row["path"]: row for row in json.loads(done.stdout)["classes"]}
    assert set(rows) == {"packed-to-gpu", "packed-from-gpu", "cached-file", "gpu-to-gpu"}
    code = """
from linkscope import native
for name, nbytes in (("packed_to_gpu", 0), ("read_cached", 0), ("between_gpus", 1 << 18)):
    print(native.knobs(name, nbytes).plain)
"""
    env = environment() | {"PYTHONPATH": str(ROOT / "src"), "LINKSCOPE_TRANSFER_TUNING": str(file)}
    read = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    text, found = file.read_text(), read.stdout.split()
    for name, start, plain in zip(("packed_to_gpu", "read_cached", "between_gpus"), (0, 0, 262144), found, strict=True):
        assert f"copies {name} from {start} {'plain' if plain == '1' else 'ring'} " in text


@needs_fake
@needs_library
def test_copies_within_a_gpu_and_from_a_peer_are_raced_where_the_gpus_reach_each_other(tmp_path) -> None:
    file = tmp_path / "mine.tuning"
    words = ["--budget", "4s", "--largest", "256KiB", "--other-gpu", "1", "--paths", "within-gpu,peer-to-gpu"]
    done = linkscope_tune(*words, "--json", "-o", str(file))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {row["path"] for row in found["classes"]} == {"within-gpu", "peer-to-gpu"} and found["why_no_peer"] == ""
    assert "copies within_gpu from 65536 " in file.read_text()
    done = linkscope_tune(*words, "-o", str(file), FAKE_CUDA_NO_PEER="1")
    assert done.returncode == 0, done.stderr
    assert "not raced: peer-to-gpu (gpu:0 does not reach memory of gpu:1 by peer access)" in done.stdout
    assert "(2 of 2 classes)" in done.stdout


@needs_fake
@needs_library
@pytest.mark.parametrize("has_cufile", [True, False])
def test_files_on_a_disk_are_raced_with_cufile_if_it_is_there(tmp_path, has_cufile) -> None:
    words = ["--budget", "2s", "--largest", "256KiB", "--directory", str(tmp_path), "--json"]
    libraries = os.pathsep.join([environment()["LD_LIBRARY_PATH"], str(BUILD / "tests" / "fake_cuda" / "libraries")])
    settings = {"LD_LIBRARY_PATH": libraries} if has_cufile else {}
    done = linkscope_tune(*words, "--paths", "saved-file", "-o", str(tmp_path / "mine.tuning"), **settings)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["classes"][0]["path"] == "saved-file" and found["classes"][0]["tried"] > 1
    assert has_cufile or "libcufile.so.0 cannot be loaded" in found["why_no_cufile"]
    code = f"""
import numpy as np, linkscope
from linkscope import native
from fake_gpu import Array
native.set_knobs("write_file", 1 << 20, cufile=1)
counts = linkscope.save_file({str(tmp_path / "saved")!r}, Array(1 << 20))
print(counts.cufile, native.latest_fallback(), sep="|")
"""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "python")])
    env = environment() | {"PYTHONPATH": paths} | settings
    read = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)
    moved, why = read.stdout.strip().split("|")
    if has_cufile:
        assert (moved, why) == (str(1 << 20), "") or "refuses O_DIRECT" in why
    else:
        assert (moved, why) == ("0", "cufile: cuFile is not here: libcufile.so.0 cannot be loaded")


@needs_fake
@needs_library
def test_ctrl_c_keeps_the_classes_so_far(tmp_path) -> None:
    file = tmp_path / "mine.tuning"
    words = command("--budget", "100s", "--largest", "64MiB", "-o", str(file))
    env = environment() | {"PYTHONPATH": str(ROOT / "src")}
    running = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None and running.stderr.readline().startswith("1 of ")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=300)
    assert running.returncode == 4, err
    assert "were not reached" in out and file.read_text().endswith("end\n")


@needs_fake
@needs_library
def test_classes_that_a_later_run_does_not_measure_keep_their_tuning(tmp_path) -> None:
    file = tmp_path / "mine.tuning"
    words = ["--largest", "256KiB", "--budget", "2s", "-o", str(file)]
    assert linkscope_tune("--paths", "to-gpu", *words).returncode == 0
    first = file.read_text()
    blocks, copies = "blocks to_gpu from 4096 loop sm_blocks 5\n", "copies ring_to_host from 65536 ring threads 3 "
    other = re.sub(r"blocks to_gpu from 4096 .*\n", blocks, first)
    file.write_text(re.sub(r"copies ring_to_host from 65536 \w+ threads \d+ ", copies, other))
    done = linkscope_tune("--paths", "to-gpu,packed-to-gpu", "--json", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["earlier"].startswith("made ") and blocks in file.read_text()
    assert copies in file.read_text()
    file.write_text(file.read_text().replace("fingerprint: ", "fingerprint: another machine, "))
    assert linkscope_tune("--paths", "to-gpu", *words).returncode == 0
    assert blocks not in file.read_text() and copies not in file.read_text()


@needs_fake
@needs_library
def test_a_file_that_is_no_tuning_is_not_replaced(tmp_path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("my notes\n")
    done = linkscope_tune("--budget", "2s", "--largest", "64KiB", "--paths", "to-gpu", "-o", str(other))
    assert done.returncode == 2 and "notes.txt: this file is no tuning" in done.stderr
    assert "1 of 1" not in done.stderr and other.read_text() == "my notes\n"


@needs_fake
@needs_library
def test_rates_are_printed_even_if_the_file_of_this_machine_cannot_be_written(tmp_path) -> None:
    (tmp_path / "cache").write_text("no folder")
    words = ["--budget", "1s", "--largest", "64KiB", "--paths", "to-gpu"]
    done = linkscope_tune(*words, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode == 2 and "cannot be written" in done.stderr and "to-gpu " in done.stdout


@needs_fake
@needs_library
def test_the_plan_lists_the_classes_and_measures_nothing(tmp_path) -> None:
    done = linkscope_tune("--plan-only", "--paths", "to-gpu,blocks-to-gpu", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0 and "16 classes in at most 2 min" in done.stdout and not list(tmp_path.iterdir())
    listed = json.loads(linkscope_tune("--plan-only", "--json", "--paths", "to-fresh").stdout)
    assert [one["from_bytes"] for one in listed["classes"]][:2] == [64 * KIB, 256 * KIB]
    large = ("--paths", "to-fresh", "--smallest", "256MiB")
    listed = json.loads(linkscope_tune("--plan-only", "--json", *large).stdout)
    assert [one["bytes"] for one in listed["classes"]] == [512 * MIB, 1 << 30]
    done = linkscope_tune("--plan-only", *large, "--largest", "128MiB")
    assert done.returncode == 2 and "--smallest 256MiB: no size class is left" in done.stderr


@needs_fake
@needs_library
@pytest.mark.parametrize(
    ("words", "settings", "code", "message"),
    [
        (["--budget", "0s"], {}, 2, "write a time above zero"),
        (["--budget", "soon"], {}, 2, "write a time above zero"),
        (["--gpu", "x"], {}, 2, "--gpu x: write a whole number"),
        (["--gpu", "9"], {}, 3, "gpu:9 is not here"),
        (["--largest", "1KiB"], {}, 2, "always plain"),
        ([], {"FAKE_CUDA_MEMORY": "1000000"}, 1, "choose a smaller --largest"),
        (["--paths", "to-gpus"], {}, 2, "did you mean to-gpu?"),
        (["--paths", "pinned-to-gpu"], {}, 2, "this path also needs --helpers"),
        (["--paths", "gpu-to-gpu"], {}, 2, "this path also needs --other-gpu"),
        (["--paths", "cold-file"], {}, 2, "this path also needs --directory"),
        (["--other-gpu", "gpu:0"], {}, 2, "gpu:0 is measured itself"),
        (["--other-gpu", "7", "--largest", "1MiB"], {}, 3, "gpu:7 is not here"),
        (["--directory", "/nowhere", "--largest", "1MiB"], {}, 2, "--directory /nowhere: /nowhere cannot be used"),
        (["--helpers", "gpu:0"], {}, 2, "gpu:0 is measured itself"),
        (["--helpers", "one"], {}, 2, "--helpers one: write a whole number"),
        (["-o", "-"], {}, 2, "-o -: the library reads a tuning from a file"),
        (["--helpers", "gpu:7"], {}, 3, "helper gpu:7 is not here; this process sees 2 GPUs"),
        ([], {"LINKSCOPE_TRANSFER": "plain"}, 2, "unset it to tune"),
        ([], {"LINKSCOPE_TRANSFER": "slow"}, 2, "'plain' or 'auto'"),
        ([], {"FAKE_CUDA_GPUS": "0"}, 3, "no GPU to tune"),
        (
            ["--largest", "64KiB", "--budget", "1s", "--paths", "to-gpu", "-o", "/proc/no/file"],
            {},
            2,
            "cannot be written",
        ),
        (["--largest", "64KiB"], {"FAKE_CUDA_REFUSE": "cuMemcpyAsync"}, 1, "copies on gpu:0 fail"),
    ],
)
def test_bad_input_has_a_sentence_and_an_exit_code(words, settings, code, message) -> None:
    done = linkscope_tune(*words, **settings)
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr, done.stderr


@needs_library
def test_without_a_driver_there_is_no_gpu_to_tune() -> None:
    done = linkscope_tune(library="broken")
    assert done.returncode == 3 and "no GPU to tune" in done.stderr
