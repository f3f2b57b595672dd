"""`linkscope advise` finds a planted gain with its size and gives no advice that the data do not support."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from invented import point, run
from linkscope.advise import advice, transfer_methods, untried
from linkscope.cli.main import main
from linkscope.cli.screen import filled
from linkscope.report.details import details
from linkscope.report.html import page
from linkscope.report.markdown import to_markdown
from linkscope.runfile import Point
from test_break_even import PAGEABLE, PINNED, copy, life

MIB = 1 << 20
BATCHED = "after=kernel&bidirectional=false&mode=batched"


def h2d(memory: str, size: int, seconds: float, gpu: int = 0, params: str = BATCHED, src: str = "numa:0") -> Point:
    return point(f"h2d/ce/{src}.{memory}->gpu:{gpu}.device/{size}?{params}", seconds)


def found(points, name):
    return next((one for one in advice(points) if one.recommendation.name == name), None)


def saved(folder: Path, points, **machine) -> Path:
    made = run(points, **machine)
    records = [made.header, *points, made.end]
    path = folder / "run.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))
    return path


def test_the_gain_of_pinning_is_the_ratio_of_the_measured_times():
    one = found([h2d("pageable", MIB, 8e-5), h2d("pinned", MIB, 2e-5)], "pin")
    (gain,) = one.gains
    assert gain.ratio == pytest.approx(4, rel=1e-9) and gain.change == "pinned"
    assert gain.interval.low < 4 < gain.interval.high and gain.interval.high < 4.3
    assert one.sizes == (MIB, MIB) and [str(path) for path in one.paths] == ["numa:0 -> gpu:0"]


@pytest.mark.parametrize("pinned_s", [2e-5, 1.98e-5, 1.93e-5, 2.4e-5])  # rounds differ by 2 %
def test_a_gain_not_shown_to_reach_five_percent_is_no_advice(pinned_s):
    one = found([h2d("pageable", MIB, 2e-5), h2d("pinned", MIB, pinned_s)], "pin")
    assert len(one.compared) == 1 and not one.gains


def test_only_points_that_differ_in_the_habit_alone_are_compared():
    pageable = h2d("pageable", MIB, 8e-5)
    others = [
        h2d("pinned", 2 * MIB, 2e-5), h2d("pinned", MIB, 2e-5, gpu=1), h2d("pinned", MIB, 2e-5, src="numa:1"),
        h2d("pinned", MIB, 2e-5, params=BATCHED.replace("batched", "single")),
        h2d("pinned", MIB, 2e-5, params=BATCHED + "&cache=hot"),
        h2d("pinned", MIB, 2e-5, params=BATCHED.replace("false", "true")),
    ]  # fmt: skip
    assert found([pageable, *others], "pin") is None


def test_the_fastest_of_several_cures_is_counted_and_named():
    ends = "gpu:0.managed->numa:0.managed"
    points = [
        point(f"demand/fault/{ends}/{64 * MIB}?access=write&bidirectional=false&threads={threads}", seconds)
        for threads, seconds in ((1, 9e-3), (4, 5e-3), (16, 3e-3))
    ]
    points.append(point(f"prefetch/prefetch/{ends}/{64 * MIB}", 2e-3))
    threads = found(points, "touching threads")
    assert [(gain.change, round(gain.ratio, 6)) for gain in threads.gains] == [("threads 16", 3.0)]
    prefetch = found(points, "prefetch")
    assert max(round(gain.ratio, 6) for gain in prefetch.gains) == 4.5
    assert {gain.change for gain in prefetch.gains} == {"prefetch"}


def test_every_recommendation_is_found_where_it_is_planted():
    d2d = "gpu:0.device->gpu:1.device"
    copy = "bidirectional=false&call=memcpy&initiator=src&mode=batched"
    pieces = "pinned->gpu:0.device"
    planted = {
        "peer": (f"d2d/ce/{d2d}/{MIB}?{copy}&peer=off", f"d2d/ce/{d2d}/{MIB}?{copy}&peer=on"),
        "node": (f"h2d/ce/numa:1.pinned->gpu:0.device/{MIB}?{BATCHED}", f"h2d/ce/numa:0.{pieces}/{MIB}?{BATCHED}"),
        "node back": (f"d2h/ce/gpu:0.device->numa:1.pinned/{MIB}", f"d2h/ce/gpu:0.device->numa:0.pinned/{MIB}"),
        "queue": (f"local/ce/gpu:0.device->gpu:0.device/{MIB}?mode=single",
                  f"local/ce/gpu:0.device->gpu:0.device/{MIB}?mode=batched"),
        "kernel": (f"d2d/ce/{d2d}/{MIB}?after=kernel&{copy}&peer=on",
                   f"d2d/sm/{d2d}/{MIB}?bidirectional=false&blocks=sms&initiator=src&mode=batched&threads=512"),
        "pieces at once": (f"pieces/ce/numa:0.{pieces}/{MIB}?clock=host&piece=64",
                           f"pieces/batch/numa:0.{pieces}/{MIB}?clock=host&piece=64"),
        "prefetch": (f"demand/fault/numa:0.managed->gpu:0.managed/{MIB}?access=write",
                     f"prefetch/prefetch/numa:0.managed->gpu:0.managed/{MIB}?bidirectional=false"),
        "advice": (f"demand/fault/numa:0.managed->gpu:0.managed/{MIB}?access=write",
                   f"demand/fault/numa:0.managed->gpu:0.managed/{MIB}?access=write&advice=read_mostly"),
        "pool": ("allocation/cpu/gpu:0.device->gpu:0.device/0?phase=allocate&size=1MiB",
                 "allocation/cpu/gpu:0.pool->gpu:0.pool/0?phase=allocate&size=1MiB"),
    }  # fmt: skip
    for name, (now, then) in planted.items():
        points = [point(now, 3e-4), point(then, 1e-4)]
        one = found(points, name)
        assert one is not None and [round(gain.ratio, 6) for gain in one.gains] == [3.0], name
        assert one.gains[0].current.id == now and one.gains[0].recommended.id == then
        assert name not in {one.name for one in untried(advice(points))}
        backwards = found([point(now, 1e-4), point(then, 3e-4)], name)
        assert backwards is None or all(gain.recommended.id != then for gain in backwards.gains), name


def test_pieces_by_the_device_clock_give_no_advice():
    ends = f"numa:0.pinned->gpu:0.device/{MIB}"
    points = [point(f"pieces/ce/{ends}?piece=64", 3e-4), point(f"pieces/batch/{ends}?piece=64", 1e-5)]
    assert found(points, "pieces at once") is None


def test_a_kernel_of_few_blocks_is_never_recommended():
    ends = f"gpu:0.device->gpu:1.device/{MIB}"
    slow = "bidirectional=false&blocks=8&initiator=src&mode=batched&threads=512"
    points = [
        point(f"d2d/ce/{ends}?after=kernel&bidirectional=false&call=memcpy&initiator=src&mode=batched&peer=on", 3e-4),
        point(f"d2d/sm/{ends}?{slow}", 1e-4),
    ]
    assert found(points, "kernel") is None


def test_inherited_points_and_points_without_time_are_not_compared():
    pageable = h2d("pageable", MIB, 8e-5)
    inherited = msgspec.structs.replace(h2d("pinned", MIB, 2e-5), status="inherited")
    zero = h2d("pinned", MIB, 2e-5)
    zero.flows[0].round_medians_s[2] = 0.0
    assert found([pageable, inherited], "pin") is None and found([pageable, zero], "pin") is None


def test_pinning_states_the_number_of_copies_after_which_it_pays():
    points = [*life("pageable", "1MiB", PAGEABLE), *life("pinned", "1MiB", PINNED)]  # 250 us more
    points += [copy("pageable", MIB, 100e-6), copy("pinned", MIB, 20e-6)]
    one = found(points, "pin")
    assert one.paid_after is not None and one.paid_after.first == 4


# --- one transfer -------------------------------------------------------------------------------------------------


def transfer_points():
    points = [h2d("pinned", size, 2e-6 + size / 50e9) for size in (MIB, 4 * MIB, 64 * MIB)]
    points += [h2d("pageable", size, 3e-6 + size / 10e9) for size in (MIB, 64 * MIB)]
    return [*points, h2d("pinned", MIB, 9e-6 + MIB / 50e9, params=BATCHED.replace("batched", "single"))]


def test_methods_are_sorted_and_name_the_points_they_rest_on():
    exact = transfer_methods(transfer_points(), "numa:0", "gpu:0", MIB)
    assert [method.curve.method.family.src_memory for method in exact] == ["pinned", "pageable"]
    assert exact[0].time.value == pytest.approx(2e-6 + MIB / 50e9) and len(exact[0].points) == 1
    between = transfer_methods(transfer_points(), "numa:0", "gpu:0", 16 * MIB)
    (pinned,) = between  # the neighbouring sizes of pageable memory are a factor of 64 apart
    assert pinned.time.value == pytest.approx(2e-6 + 16 * MIB / 50e9) and len(pinned.points) == 2
    assert pinned.time.low < pinned.time.value < pinned.time.high
    assert not transfer_methods(transfer_points(), "numa:0", "gpu:0", 128 * MIB)
    assert not transfer_methods(transfer_points(), "numa:0", "gpu:1", MIB)
    (alone,) = transfer_methods(transfer_points(), "numa:0", "gpu:0", MIB, alone=True)
    assert alone.time.value == pytest.approx(9e-6 + MIB / 50e9)


def test_no_time_is_interpolated_across_a_break():
    points = [h2d("pinned", MIB, 20e-6), h2d("pinned", 4 * MIB, 400e-6)]
    assert not transfer_methods(points, "numa:0", "gpu:0", 2 * MIB)


def test_methods_with_unknown_parameters_are_left_out():
    ends = f"numa:0.pinned->gpu:0.device/{MIB}"
    points = [point(f"read/sm/{ends}?blocks=8&threads=512", 1e-6), point(f"read/sm/{ends}?order=random", 1e-6)]
    points.append(h2d("pinned", MIB, 1e-6, params=BATCHED.replace("false", "true")))
    assert not transfer_methods(points, "numa:0", "gpu:0", MIB)


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_prints_a_summary_and_its_json_has_everything(tmp_path, capsys):
    dip = [h2d("registered", size, size / rate) for size, rate in ((MIB, 50e9), (2 * MIB, 20e9))]
    path = saved(tmp_path, [*transfer_points(), *dip])
    assert main(["advise", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())  # lines are wrapped
    assert text.startswith("MODELLED invented") and "Pin host memory" in text and "cudaMallocHost" in text
    assert (
        "Sizes slower than a smaller size" in text
        and "60 % slower at 2 MiB" in text
        and "enable peer access between GPUs" in text
    )
    assert main(["advise", str(path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["modelled"] and {one["habit"] for one in answer["advice"]} == {"pin", "queue"}
    pin = next(one for one in answer["advice"] if one["habit"] == "pin")
    large = next(gain for gain in pin["gains"] if gain["bytes"] == 64 * MIB)
    assert large["ratio"] == pytest.approx((3e-6 + 64 * MIB / 10e9) / (2e-6 + 64 * MIB / 50e9)) and large["worth"]
    assert [one["lost"] for one in answer["irregular"]] == [pytest.approx(0.6)]


@pytest.mark.parametrize(
    ("plan", "sent_there"),
    [({"suite": "quick"}, True), ({"suite": "full", "only": ["h2d/*"]}, True), ({"suite": "full"}, False)],
    ids=str,
)
def test_unmeasured_habits_point_to_suite_full_unless_it_was_measured(tmp_path, capsys, plan, sent_there):
    made = run(transfer_points())
    made.header.plan = plan
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in (made.header, *made.points, made.end)))
    assert main(["advise", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "this run measured only one of the two practices" in text and ("suite full measures both" in text) is sent_there
    )


def test_one_transfer_on_the_command_line(tmp_path, capsys):
    path = saved(tmp_path, transfer_points())
    words = ["advise", str(path), "--src", "numa:0", "--dst", "gpu:0", "--bytes"]
    assert main([*words, "2MiB"]) == 0
    text = capsys.readouterr().out
    assert "h2d by ce, pinned → device *" in text and "* interpolated between" in text
    assert main([*words, "1MiB", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [method["src_memory"] for method in answer["ways"]] == ["pinned", "pageable"]
    assert answer["ways"][0]["gbps"] == pytest.approx(MIB / (2e-6 + MIB / 50e9) / 1e9)


def test_a_value_interpolated_from_an_inherited_point_is_marked(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("linkscope.cli.advise_transfer_text.columns", lambda: 200)
    inherited = msgspec.structs.replace(h2d("pinned", 4 * MIB, 80e-6), status="inherited", inherited_from="another")
    path = saved(tmp_path, [h2d("pinned", MIB, 20e-6), inherited])
    words = ["advise", str(path), "--src", "numa:0", "--dst", "gpu:0", "--bytes"]
    signs = []
    for size in ("1MiB", "2MiB", "4MiB"):
        assert main([*words, size]) == 0
        line = next(line for line in capsys.readouterr().out.splitlines() if "pinned → device" in line)
        signs.append("^" in line)
    assert signs == [False, True, True]


def test_accesses_by_sm_are_no_methods_of_a_single_copy(tmp_path, capsys):
    """Accesses were measured in batches. A prefetch is always waited for, so it counts as a single copy too."""
    ends = "numa:0.{0}->gpu:0.{1}/1048576?{2}"
    ids = ("h2d/ce/" + ends.format("pinned", "device", "bidirectional=false&mode=single"),
           "read/sm/" + ends.format("pinned", "device", "blocks=sms&threads=512"),
           "prefetch/prefetch/" + ends.format("managed", "managed", "").rstrip("?"))  # fmt: skip
    path = saved(tmp_path, [point(id, 20e-6) for id in ids])
    words = ["advise", str(path), "--src", "numa:0", "--dst", "gpu:0", "--bytes", "1MiB", "--json"]
    answer = {}
    for option in ([], ["--alone"]):
        assert main([*words, *option]) == 0
        answer[bool(option)] = {method["benchmark"] for method in json.loads(capsys.readouterr().out)["ways"]}
    assert answer == {False: {"read", "prefetch"}, True: {"h2d", "prefetch"}}


def test_methods_of_a_transfer_show_rank_gain_and_missed_precision(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("linkscope.cli.advise_transfer_text.columns", lambda: 200)
    slow = h2d("pageable", MIB, 100e-6)  # an invented point has an interval of 2 % on either side of the median
    missed = msgspec.structs.replace(slow, status="missed_precision")
    path = saved(tmp_path, [h2d("pinned", MIB, 20e-6), missed])
    assert main(["advise", str(path), "--src", "numa:0", "--dst", "gpu:0", "--bytes", "1MiB"]) == 0
    lines = capsys.readouterr().out.splitlines()
    words = ("rank  method", "pinned →", "pageable →")
    heads, pinned, pageable = (next(line for line in lines if word in line) for word in words)
    assert heads.split()[0] == "rank" and "gain" in heads and heads.rstrip().endswith("pays off")
    low, high = slow.ci95_s
    ends = (low / (20e-6 * high / 100e-6), high / (20e-6 * low / 100e-6))
    assert pinned.split()[0] == "1" and f"×5.00 [{ends[0]:.2f}, {ends[1]:.2f}]" in pinned
    assert pageable.split()[0] == "2" and pageable.endswith("present") and " ~100" in pageable
    assert any(line.strip().startswith("~ before a number: missed") for line in lines)


def test_the_numbers_of_a_method_stand_below_its_name_where_the_table_is_wider_than_the_terminal(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    path = saved(tmp_path, [h2d("pinned", MIB, 20e-6), h2d("pageable", MIB, 100e-6)])
    assert main(["advise", str(path), "--src", "numa:0", "--dst", "gpu:0", "--bytes", "1MiB"]) == 0
    table = capsys.readouterr().out.splitlines()[2:8]
    assert max(map(len, table)) <= 80 and table[0].split() == ["rank", "method"]
    assert table[1].endswith("pays off") and table[2].endswith("pinned → device") and "52.43 GB/s" in table[3]


def test_lines_fit_a_narrow_terminal(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["advise", str(saved(tmp_path, transfer_points()))]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]  # the first has the file's name
    assert max(map(len, lines)) <= 70
    for width in range(40, 90):
        monkeypatch.setenv("COLUMNS", str(width))
        for line in filled("it takes 64 KiB, 2.09 ms [1.85, 2.22] and 95 % of peak of 58 GB/s there").splitlines():
            assert not re.match(r"KiB|ms|%|GB/s|2.22", line) and not re.search(r"64$|2\.09$|1\.85,$|95$|58$", line)


def transfer_text(tmp_path, capsys, points, *options, src="numa:0", dst="gpu:0", size="1MiB"):
    path = saved(tmp_path, points)
    assert main(["advise", str(path), "--src", src, "--dst", dst, "--bytes", size, *options]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("ends", "call"),
    [
        ("h2d/ce/numa:0.pinned->gpu:0.device", "cudaMemcpyAsync from cudaMallocHost memory"),
        ("h2d/ce/numa:0.registered->gpu:0.device", "cudaMemcpyAsync from malloc memory after cudaHostRegister"),
        ("d2h/ce/gpu:0.device->numa:0.pageable", "cudaMemcpyAsync to malloc memory"),
        ("h2d/batch/numa:0.pinned->gpu:0.device", "cudaMemcpyBatchAsync from cudaMallocHost memory"),
        ("prefetch/prefetch/numa:0.managed->gpu:0.managed", "cudaMemPrefetchAsync of cudaMallocManaged memory"),
        ("read/sm/numa:0.pinned->gpu:0.device", "a kernel that reads the source in place from cudaMallocHost memory"),
        ("d2d/ce/gpu:0.device->gpu:1.device", "cudaMemcpyAsync, after cudaDeviceEnablePeerAccess"),
    ],
)
def test_the_call_of_the_fastest_method_is_named(tmp_path, capsys, ends, call):
    src, dst = (end.rpartition(".")[0] for end in ends.split("/")[-1].split("->"))
    peer = "?peer=on" if ends.startswith("d2d") else ""
    text = transfer_text(tmp_path, capsys, [point(f"{ends}/{MIB}{peer}", 20e-6)], src=src, dst=dst)
    assert f"fastest: {call}" in text


def test_terms_are_explained_only_where_they_appear(tmp_path, capsys):
    text = transfer_text(tmp_path, capsys, transfer_points())
    assert "ce: a copy engine" in text and "pinned: host memory that cudaMallocHost" in text
    assert "registered:" not in text and "tma:" not in text and "after kernel" not in text
    single = transfer_text(tmp_path, capsys, transfer_points(), "--alone")
    assert "(after kernel)" in single and "after kernel: a single copy on a stream that has just run a kernel" in single


def test_batched_copies_name_what_went_before_only_where_it_distinguishes_them(tmp_path, capsys):
    """The cost of the kernel or wait in front of a batch cancels in the slope."""
    kernel = h2d("pinned", MIB, 20e-6)
    assert "(after" not in transfer_text(tmp_path, capsys, [kernel])
    wait = h2d("pinned", MIB, 21e-6, params=BATCHED.replace("kernel", "wait"))
    text = transfer_text(tmp_path, capsys, [kernel, wait])
    assert "(after kernel)" in text and "(after wait)" in text


def test_methods_without_single_copies_of_this_size_are_counted(tmp_path, capsys):
    single = [h2d("pinned", size, size / 40e9, params=BATCHED.replace("batched", "single")) for size in (MIB, 16 * MIB)]
    managed = point(f"prefetch/prefetch/numa:0.managed->gpu:0.managed/{64 * MIB}", 5e-3)
    points = [*transfer_points(), *single[1:], managed]
    text = transfer_text(tmp_path, capsys, points, "--alone", size="64MiB")
    assert "prefetch by prefetch" in text
    assert "1 method is not listed: not measured as single copies above 16 MiB" in text  # pinned
    assert "1 method is not listed: measured only in batches" in text  # pageable
    assert "not listed" not in transfer_text(tmp_path, capsys, points, size="64MiB")
    answer = json.loads(transfer_text(tmp_path, capsys, points, "--alone", "--json", size="64MiB"))
    assert {(one["ways"], one["reason"]) for one in answer["not_listed"]} == {
        (1, "not measured as single copies above 16 MiB"), (1, "measured only in batches")}  # fmt: skip


@pytest.mark.parametrize("words, code, sentence", [
    (["--src", "numa:0"], 2, "give all three"),
    (["--alone"], 2, "add --src, --dst"),
    (["--src", "numa:0", "--dst", "gpu:0", "--bytes", "much"], 2, "--bytes much: this is not a size"),
    (["--src", "numa:0", "--dst", "gpu:0", "--bytes", "0"], 2, "this is not a size"),
    (["--src", "numa:0", "--dst", "gpu:0", "--bytes", "10TiB"], 2, "at most 1 TiB"),
    (["--src", "numa:0", "--dst", "gpu:7", "--bytes", "1MiB"], 3, "it has numa:0 -> gpu:0; measure it: linkscope run"),
    (["--src", "disk:/data", "--dst", "gpu:0", "--bytes", "1MiB"], 3,
     "; measure it: linkscope run file_copies --directory /data"),
    (["--src", "gpus", "--dst", "gpu:0", "--bytes", "1MiB"], 2, "--src gpus: this is not a place"),
    (["--src", "numa:0", "--dst", "gpu:0", "--bytes", "1MiB", "--memory", "wc"], 3,
     "with wc memory; it has pageable, pinned"),
    (["--src", "numa:0", "--dst", "gpu:0", "--bytes", "1GiB"], 3, "it has 1 MiB to 64 MiB; write 'numa:0 -> gpu:0"),
    (["--src", "numa:0", "--dst", "gpu:0", "--bytes", "4MiB", "--alone"], 3, "of 4 MiB (single)"),
    (["--src", "numa:0", "--dst", "gpu:0", "--bytes", "64MiB", "--alone"], 3, "(single), and no neighbouring sizes"),
])  # fmt: skip
def test_a_question_without_an_answer_gets_the_reason(tmp_path, capsys, words, code, sentence):
    assert main(["advise", str(saved(tmp_path, transfer_points())), *words]) == code
    assert sentence in capsys.readouterr().err


def test_a_run_without_any_transfer_says_so(tmp_path, capsys):
    """A run of computations has points without bytes."""
    path = str(saved(tmp_path, [point("compute_bf16/cublas/gpu:0.device->gpu:0.device/0?n=8192", 1e-3)]))
    assert main(["advise", path, "--src", "numa:0", "--dst", "gpu:0", "--bytes", "1MiB"]) == 3
    assert "it has no path; measure it" in capsys.readouterr().err


def test_a_run_without_a_value_has_no_advice(tmp_path, capsys):
    path = saved(tmp_path, [point(f"h2d/ce/numa:0.pinned->gpu:0.device/{MIB}", status="failed", reason="lost")])
    assert main(["advise", str(path)]) == 2 and "no point with a value" in capsys.readouterr().err
    assert main(["advise", str(tmp_path / "none.jsonl")]) == 2


def test_a_simulated_ac922_gets_the_advice_to_pin_and_to_use_the_near_node(tmp_path, capsys):
    """AC922: 72 GB/s from a GPU's own node, 41 GB/s from the other (Comm|Scope, 4.2)."""
    path = tmp_path / "ac922.jsonl"
    only = ["--only", f"h2d/ce/*->gpu:0.device/{64 * MIB}?*batched*"]
    assert (
        main(["run", "--machine", "ac922", *only, "--rounds", "3", "--precision", "5%", "-o", str(path), "--json"]) == 0
    )
    capsys.readouterr()
    assert main(["advise", str(path), "--json"]) == 0
    answer = {one["habit"]: one for one in json.loads(capsys.readouterr().out)["advice"]}
    node = [gain for gain in answer["node"]["gains"] if gain["worth"] and ".pinned" in gain["now"]]
    assert node and {(gain["src"], gain["instead"]) for gain in node} == {("numa:1", "numa:0")}
    assert all(gain["interval"][0] <= 72 / 41 * 1.03 and gain["ratio"] > 1.6 for gain in node)
    assert any(gain["worth"] for gain in answer["pin"]["gains"])


def test_the_report_the_summary_and_the_markdown_contain_the_advice():
    made = run(transfer_points())
    for text in (page(made), details(made), to_markdown(made)):
        flat = " ".join(text.split())
        assert ("Recommendations" in flat or "Recommended actions" in flat) and "Pin host memory that is copied" in flat
    assert "cudaMallocHost" in page(made) and 'href="#actions"' in page(made)
    same = run([h2d("pageable", MIB, 2e-5), h2d("pinned", MIB, 2e-5)])
    assert not any(
        "Recommendations (how" in text or "### Recommendations" in text or "<h2>Recommended" in text
        for text in (page(same), details(same), to_markdown(same))
    )


def test_a_run_that_was_stopped_after_two_rounds_can_be_read(tmp_path, capsys):
    """Two rounds that differ, and no others of the class, give no ratio."""
    points = [h2d(memory, MIB, 1e-4, params=f"{BATCHED}&lane={lane}") for memory in ("pinned", "pageable")
              for lane in range(24)]  # fmt: skip
    for one in points:
        one.flows[0].round_medians_s[:] = [1e-4] if one.src_memory == "pinned" else [1e-6, 1e-2]
    path = saved(tmp_path, points)
    assert main(["advise", str(path)]) == 0
    assert "No recommendation gains 5 % or more in this run" in capsys.readouterr().out
    assert main(["report", str(path), "--summary"]) == 0 and main(["compare", str(path), str(path)]) == 5
    assert "no change seen" in capsys.readouterr().out
