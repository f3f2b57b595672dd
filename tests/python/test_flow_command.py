"""`linkscope flow`: known answers on models, the fake driver, and bad input."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from fake_driver import LIBRARIES, environment, needs_fake, needs_worker
from linkscope.cli.main import main
from linkscope.errors import NOT_HERE, SOMETHING_FAILED, WRONG_USAGE
from linkscope.stats import jain_index
from test_cli import linkscope

pytestmark = [needs_worker]
Captured = pytest.CaptureFixture[str]


def flow(capsys: Captured, *words: str, machine: str = "h200x4", rounds: int = 1) -> dict:
    options = ("--machine", machine, "--json", "--seconds", "0.05", "--rounds", str(rounds))
    assert main(["flow", *words, *options]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys: Captured, *words: str, machine: str = "h200x4") -> tuple[int, str]:
    status = main(["flow", *words, "--machine", machine, "--seconds", "0.02", "--rounds", "1"])
    return status, capsys.readouterr().err


def alone(capsys: Captured, text: str) -> float:
    (one,) = flow(capsys, text)["flows"]
    return one["gbps"]


def test_two_flows_on_one_link_get_half_each(capsys: Captured) -> None:
    one = alone(capsys, "numa:0 -> gpu:0 16MiB")
    found = flow(capsys, "numa:0 -> gpu:0 16MiB x2")
    assert [of["gbps"] for of in found["flows"]] == pytest.approx([one / 2, one / 2], rel=0.03)
    assert found["total_gbps"] == pytest.approx(one, rel=0.03)
    assert found["jain"] == pytest.approx(1, abs=0.001)


def test_flows_on_different_links_do_not_slow_each_other(capsys: Captured) -> None:
    texts = ["gpu:0 -> gpu:1 16MiB", "gpu:2 -> gpu:3 16MiB", "numa:0 -> gpu:0 16MiB"]
    found = flow(capsys, "; ".join(texts))
    assert [of["gbps"] for of in found["flows"]] == pytest.approx([alone(capsys, text) for text in texts], rel=0.02)


def test_reads_of_a_disk_are_flows(capsys: Captured) -> None:
    found = flow(capsys, "disk:0 -> numa:0 1MiB x2; numa:0 -> gpu:0 16MiB", machine="jorda-b")
    disk, other, copies = (of["gbps"] for of in found["flows"])
    assert disk == pytest.approx(other, rel=0.1)
    assert copies == pytest.approx(
        flow(capsys, "numa:0 -> gpu:0 16MiB", machine="jorda-b")["flows"][0]["gbps"], rel=0.05
    )
    status, problem = refused(capsys, "numa:0 -> disk:0", machine="jorda-b")
    assert status == WRONG_USAGE and "nothing here moves data from a numa to a disk" in problem
    status, problem = refused(capsys, "disk:0 -> numa:0")
    assert status == NOT_HERE and "has no disk:0" in problem


@needs_fake
def test_a_file_in_a_directory_is_read_beside_copies(tmp_path: Path) -> None:
    words = ["flow", f"disk:{tmp_path} -> numa:0 1MiB; numa:0 -> gpu:0 1MiB", "--rounds", "1", "--json"]
    for seconds in ("0.05", "0.3", "1"):  # on a busy machine, flows may not meet within a short time
        done = linkscope(*words, "--seconds", seconds, environment=environment(CUDA_GPUS=1))
        if done.returncode in (0, NOT_HERE):
            break
    if done.returncode == NOT_HERE:  # a directory in memory
        assert "page cache" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        read, copied = json.loads(done.stdout)["flows"]
        assert read["gbps"] > 0 and copied["gbps"] > 0 and read["engine"] == "file"
    assert not list(tmp_path.iterdir())
    done = linkscope("flow", "disk:/nowhere -> numa:0", environment=environment(CUDA_GPUS=1))
    assert done.returncode == NOT_HERE and "disk:/nowhere: this is not a directory" in done.stderr


def test_flows_of_unequal_rates_have_a_jain_index_below_one(capsys: Captured) -> None:
    found = flow(capsys, "gpu:0 -> gpu:1 16MiB; numa:0 -> gpu:2 16MiB")
    rates = [of["gbps"] for of in found["flows"]]
    assert found["jain"] == pytest.approx(sum(rates) ** 2 / (2 * sum(rate**2 for rate in rates)))
    assert found["jain"] < 0.9


def test_jains_index_of_equal_rates_is_one_and_of_a_single_winner_is_one_part() -> None:
    assert jain_index([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert jain_index([5.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)
    assert jain_index([0.0]) is None


def test_an_entry_states_ends_bytes_rate_and_time_with_intervals(capsys: Captured) -> None:
    found = flow(capsys, "gpu:1.device -> numa:0.pinned 16MiB", rounds=6)
    (one,) = found["flows"]
    assert (one["src"], one["dst"], one["bytes"]) == ("gpu:1", "numa:0", 16 << 20)
    assert one["seconds"] == pytest.approx(one["bytes"] / one["gbps"] / 1e9)
    assert one["ci95_gbps"][0] <= one["gbps"] <= one["ci95_gbps"][1]
    assert one["of_peak"] == pytest.approx(one["gbps"] / one["limit_gbps"]) and 0.8 < one["of_peak"] < 1
    assert found["modelled"] is True and len(found["start_skew_s"]) == len(one["interval_gbps"]) == found["rounds"] == 6
    assert flow(capsys, "gpu:1 -> numa:0 16MiB")["flows"][0]["ci95_gbps"] is None  # one round


def test_every_flow_has_a_rate_for_each_interval_of_the_common_time(capsys: Captured) -> None:
    found = flow(capsys, "numa:0 -> gpu:0 1MiB; gpu:0 -> numa:0 256MiB", rounds=2)
    for at, common_s in enumerate(found["common_s"]):
        counts = {len(of["interval_gbps"][at]) for of in found["flows"]}
        assert counts == {round(common_s / 0.01)} and common_s <= 0.051


def test_operations_that_wait_for_each_other_do_not_count_twice(capsys: Captured) -> None:
    one, many = (flow(capsys, f"numa:0 -> gpu:0 256MiB x{count}")["total_gbps"] for count in (1, 4))
    assert many == pytest.approx(one, rel=0.02)


def test_work_has_no_ends_and_slows_what_shares_its_memory(capsys: Captured) -> None:
    text = "gemm gpu:0 f32 1024; memory gpu:0; launch gpu:1; ping_pong gpu:1; memory numa:0 8MiB threads=4"
    found = flow(capsys, text)
    assert [(of["src"], of["dst"], of["work"]) for of in found["flows"]] == [
        (None, None, name) for name in ("gemm", "memory", "launch", "ping_pong", "memory")
    ]
    gemm, memory, launch, *_ = found["flows"]
    assert 0 < gemm["tflops"] <= 67 and gemm["gbps"] is None
    assert launch["seconds"] < 1e-4 and launch["gbps"] is None
    assert memory["gbps"] < alone(capsys, "memory gpu:0")


def test_computations_and_copies_within_a_gpu_take_turns_on_its_sms(capsys: Captured) -> None:
    """As one H100: a product and a triad run equally often, and a period takes the sum of their times."""
    product, triad = (flow(capsys, text)["flows"][0]["seconds"] for text in ("gemm gpu:0 bf16 4096", "triad gpu:0"))
    both = flow(capsys, "gemm gpu:0 bf16 4096; triad gpu:0")["flows"]
    assert [one["seconds"] for one in both] == pytest.approx([product + triad] * 2, rel=0.05)
    copy = flow(capsys, "gpu:0 -> gpu:0 64MiB")["flows"][0]["seconds"]
    beside = flow(capsys, "gpu:0 -> gpu:0 64MiB; triad gpu:0")["flows"]
    assert [one["seconds"] for one in beside] == pytest.approx([copy + triad] * 2, rel=0.05)
    others = flow(capsys, "gemm gpu:0 bf16 4096; triad gpu:1")["flows"]
    assert [one["seconds"] for one in others] == pytest.approx([product, triad], rel=0.02)


def test_a_product_of_large_matrices_runs_at_the_rate_of_the_machine_file(capsys: Captured) -> None:
    (one,) = flow(capsys, "gemm gpu:0 bf16 8192")["flows"]
    assert one["tflops"] == pytest.approx(989, rel=0.05)


def test_a_triad_runs_at_the_rate_of_the_memory_and_slows_work_that_memory_bounds(capsys: Captured) -> None:
    (one,) = flow(capsys, "triad gpu:0")["flows"]
    assert one["work"] == "triad" and one["bytes"] == 3 * 64 << 20 and one["src"] is None
    assert one["gbps"] == pytest.approx(12 * one["tflops"] * 1e3 / 2)  # two operations for three words of 4 B
    two = flow(capsys, "triad gpu:0; memory gpu:0")["flows"]
    assert two[0]["gbps"] < 0.8 * one["gbps"]


def test_zero_copy_reads_have_ends(capsys: Captured) -> None:
    (one,) = flow(capsys, "read gpu:0 16MiB")["flows"]
    assert (one["src"], one["dst"], one["engine"]) == ("numa:0", "gpu:0", "sm") and "work" not in one


@pytest.mark.parametrize(
    "name, count",
    [
        ("all-to-host", 4), ("host-to-all", 4), ("both", 8), ("own-thread", 8), ("ring", 4), ("all-to-all", 12),
        ("one-to-all", 3), ("same-path:3", 3),
    ],
)  # fmt: skip
def test_presets(capsys: Captured, name: str, count: int) -> None:
    found = flow(capsys, "--preset", name, "--bytes", "16MiB")
    assert len(found["flows"]) == count and all(of["bytes"] == 16 << 20 for of in found["flows"])


def test_each_gpu_of_own_thread_uses_its_near_node(capsys: Captured) -> None:
    found = flow(capsys, "--preset", "own-thread", "--bytes", "16MiB", machine="ac922")
    assert {(of["src"], of["dst"]) for of in found["flows"] if of["src"].startswith("numa")} == {
        ("numa:0", "gpu:0"), ("numa:0", "gpu:1"), ("numa:1", "gpu:2"), ("numa:1", "gpu:3"),
    }  # fmt: skip


def test_a_file_holds_flows_and_comments(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "flows.txt"
    path.write_text("# two flows\nnuma:0 -> gpu:0 16MiB\ngpu:1 -> numa:0 16MiB\n")
    assert len(flow(capsys, "--file", str(path))["flows"]) == 2


def test_the_text_shows_a_line_for_each_flow_the_total_and_the_skew(capsys: Captured) -> None:
    text = "numa:0 -> gpu:0 16MiB x2; gemm gpu:0 bf16 1024"
    assert main(["flow", text, "--machine", "h200x4", "--seconds", "50ms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("MODELLED: ") and "TFLOP/s" in lines[3] and "of peak" in lines[1]
    assert re.fullmatch(
        r"total  [\d.]+ GB/s \[[\d.]+, [\d.]+\], fairness [01]\.\d+ \(Jain's index; 1: equal shares\)", lines[4]
    )
    assert "starts differed by at most" in lines[5]


def test_one_flow_alone_has_no_skew_and_equal_flows_that_a_model_misses_are_named_once(capsys: Captured) -> None:
    for text, last in (("numa:0 -> gpu:0", ""), ("numa:0 -> gpu:0 x3", " x3")):
        assert main(["flow", text, "--machine", "ac922", "--against", "sl390", "--seconds", "50ms"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1].endswith(f"off by more than 10 %: numa:0 → gpu:0{last}")
        assert ("starts differed" in lines[-2]) == bool(last)


@pytest.mark.parametrize(
    "text, code, pointer, problem",
    [
        ("numa:0 => gpu:0", WRONG_USAGE, "=>", "not an arrow"),
        ("numa:0 -> gpu:9", NOT_HERE, "gpu:9", "h200x4 has no gpu:9"),
        ("gemm gpu:7", NOT_HERE, "gpu:7", "h200x4 has no gpu:7"),
        ("gemm gpu:0 int8", WRONG_USAGE, "int8", "gemm knows element: bf16, f32, f64"),
        ("gem gpu:0", WRONG_USAGE, "gem", "did you mean gemm"),
        ("gemm:gpu:0", WRONG_USAGE, "gemm:gpu:0", "write gemm gpu:0"),
        ("gemm numa:0", WRONG_USAGE, "numa:0", "gemm runs on a GPU"),
        ("launch gpu:0 size=3", WRONG_USAGE, "size=3", "launch has no option size"),
        ("memory gpu:0 many", WRONG_USAGE, "many", "not a size"),
        ("numa:0 -> numa:0 threads=65", WRONG_USAGE, "threads=65", "numa:0 has 64 CPUs"),
        ("numa:0 -> numa:0 threads=40 x2", WRONG_USAGE, "threads=40", "80 threads would copy on numa:0"),
        ("numa:0 -> gpu:0 single", WRONG_USAGE, "single", "one operation after the other"),
        ("numa:0 -> gpu:0 by cpu", WRONG_USAGE, "cpu", "cpu does not move data from numa:0 to gpu:0"),
        ("numa:0.pageable -> gpu:0 by sm", WRONG_USAGE, "pageable", "sm copies"),
        ("gpu:0 -> gpu:1 by batch peer=on", WRONG_USAGE, "peer=on", "copies between GPUs by ce"),
        ("numa:0 -> gpu:0 x65", WRONG_USAGE, "x65", "at most x64"),
    ],
)
def test_a_mistake_is_pointed_at(capsys: Captured, text: str, code: int, pointer: str, problem: str) -> None:
    status, error = refused(capsys, text)
    assert status == code and problem in error, error
    _, line, marks = error.splitlines()[:3]
    start = marks.index("^")
    assert line[start : start + marks.count("^")] == pointer


@pytest.mark.parametrize(
    "text, machine, reason",
    [
        ("gpu:0 -> gpu:1; gpu:1 -> gpu:0 peer=off", "h200x4", "one wants peer access"),
        ("numa:0.managed -> gpu:0.managed by fault", "h200x4", "no steady rate"),
        ("launch gpu:0", "dl160", "does not say"),
        ("numa:0 -> gpu:0 16GiB", "dl160", "gpu:0 has 4 GiB of memory"),
        ("gemm gpu:0 bf16", "ac922", "bf16_tflops"),
    ],
)
def test_flows_that_cannot_run_together_have_a_reason(capsys: Captured, text: str, machine: str, reason: str) -> None:
    status, error = refused(capsys, text, machine=machine)
    assert status == NOT_HERE and reason in error, error


def test_a_preset_needs_its_gpus(capsys: Captured) -> None:
    status, error = refused(capsys, "--preset", "ring", machine="h200x1")
    assert status == NOT_HERE and "needs 2 GPUs or more" in error
    status, error = refused(capsys, "--preset", "rings")
    assert status == WRONG_USAGE and "did you mean ring" in error
    status, error = refused(capsys, "--preset", "same-path:0")
    assert status == WRONG_USAGE and "same-path:N with N from 1 to 64" in error


@pytest.mark.parametrize(
    "words, problem",
    [
        ((), "give the flows as one of"),
        (("numa:0 -> gpu:0", "--preset", "ring"), "give the flows as one of"),
        (("numa:0 -> gpu:0", "numa:0 -> gpu:1"), "numa:0 -> gpu:1: write all flows in one text, separated by `;`"),
        (("--file", "/nonexistent/flows"), "cannot be read"),
        (("numa:0 -> gpu:0", "--bytes", "12"), "a multiple of 8 B"),
    ],
)
def test_bad_options(capsys: Captured, words: tuple[str, ...], problem: str) -> None:
    status, error = refused(capsys, *words)
    assert status == WRONG_USAGE and problem in error


def test_a_time_out_of_range_is_refused(capsys: Captured) -> None:
    assert main(["flow", "numa:0 -> gpu:0", "--machine", "h200x4", "--seconds", "0.001"]) == WRONG_USAGE
    assert "0.02 s to 600 s" in capsys.readouterr().err


def on_fake(text: str, seconds: str, **settings: str | int) -> subprocess.CompletedProcess[str]:
    words = ("flow", text, "--rounds", "1", "--bytes", "64KiB", "--seconds", seconds, "--json")
    return linkscope(*words, environment=environment(**settings))


@needs_fake
def test_flows_run_on_a_gpu() -> None:
    done = on_fake("numa:0 -> gpu:0; gpu:1 -> numa:0 by sm; gpu:0 -> gpu:1; launch gpu:0; read gpu:0", "0.2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["modelled"] is False and len(found["flows"]) == 5
    assert all(of["per_s"] > 0 for of in found["flows"]) and found["start_skew_s"][0] >= 0


@needs_fake
def test_products_run_on_a_gpu_whose_cublas_is_found() -> None:
    settings = environment()
    settings["LD_LIBRARY_PATH"] = f"{LIBRARIES / 'libraries'}:{settings['LD_LIBRARY_PATH']}"
    words = ("flow", "gemm gpu:0 f32 1024; numa:0 -> gpu:0 64KiB", "--rounds", "1", "--seconds", "0.1", "--json")
    done = linkscope(*words, environment=settings)
    assert done.returncode == 0, done.stderr
    gemm, copy = json.loads(done.stdout)["flows"]
    assert gemm["tflops"] > 0 and gemm["work"] == "gemm" and copy["gbps"] > 0


@needs_fake
@pytest.mark.parametrize(
    "text, settings, code, reason",
    [
        ("numa:0 -> gpu:0", {"CUDA_CORRUPT": "5+"}, SOMETHING_FAILED, "bytes are wrong"),
        ("gemm gpu:0 f32 1024", {}, NOT_HERE, "libcublas"),
        ("numa:0 -> gpu:0 by graph", {}, NOT_HERE, "issued together"),
        ("message numa:0 to=numa:1", {}, WRONG_USAGE, "no NUMA node numa:1"),
    ],
)
def test_flows_that_fail_on_a_gpu_have_a_reason(text: str, settings: dict, code: int, reason: str) -> None:
    done = on_fake(text, "0.05", **settings)
    assert done.returncode == code and reason in done.stderr, done.stderr


def test_messages_have_the_median_and_the_p99_of_single_round_trips(capsys: Captured) -> None:
    text = "message numa:0; message numa:0 64KiB via=tcp to=numa:1; numa:0 -> gpu:0 16MiB"
    found = flow(capsys, text, machine="sl390")
    small, large, copy = found["flows"]
    assert (small["work"], small["src"], small["bytes"]) == ("message", None, 8)
    assert small["p50_s"] == pytest.approx(1.2e-6, rel=0.1) and small["p50_s"] <= small["p99_s"]
    assert large["p50_s"] > 14e-6 and "p50_s" not in copy


@pytest.mark.parametrize(
    "text, words",
    [
        ("message gpu:0", "messages go between NUMA nodes"),
        ("message numa:0 via=pigeon", "via is shm, local, tcp"),
        ("message numa:0 to=numa:7", "h200x4 has no NUMA node numa:7"),
        ("message numa:0 threads=2", "message has no option threads"),
        ("message numa:0 12B", "whole words of 8 B"),
        ("message numa:0 x64", "threads would copy or exchange messages on numa:0"),
    ],
)
def test_messages_that_cannot_be_are_refused(capsys: Captured, text: str, words: str) -> None:
    status, error = refused(capsys, text, machine="h200x4")
    assert status == WRONG_USAGE and words in error


@needs_fake
def test_messages_and_memory_of_another_process_on_this_machine() -> None:
    done = on_fake("message numa:0 64B via=local", "0.05")
    assert done.returncode == 0, done.stderr
    (message,) = json.loads(done.stdout)["flows"]
    assert 0 < message["p50_s"] <= message["p99_s"] and message["per_s"] > 0
    done = on_fake("gpu:0 -> gpu:1.ipc", "0.05")
    assert done.returncode == 0 and json.loads(done.stdout)["flows"][0]["gbps"] > 0, done.stderr


def test_the_help_fits_one_screen_with_three_examples(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "84")
    with pytest.raises(SystemExit):
        main(["flow", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 84
    assert sum(line.startswith("linkscope flow ") for line in lines) == 3
    assert lines[0] == "usage: linkscope flow [OPTION ...] [TEXT]"
