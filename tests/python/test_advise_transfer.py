"""The answer of `linkscope advise` on one transfer, against numbers computed by hand."""

import json
from pathlib import Path

import msgspec
import pytest

from invented import flow, point
from linkscope.advise.pieces import piece_methods
from linkscope.cli.main import main
from linkscope.model.memory_costs import PHASES
from linkscope.runfile import Point
from test_advise import BATCHED, MIB, h2d, saved
from test_break_even import PAGEABLE, REGISTERED, US, at_1_mib, copy, cost, life

RESULTS = Path(__file__).parents[2] / "results"
TRANSFER = ["--src", "numa:0", "--dst", "gpu:0", "--bytes"]


def answer(tmp_path, capsys, points, *words, size="1MiB", src="numa:0", dst="gpu:0", **machine) -> dict:
    path = saved(tmp_path, points, **machine)
    capsys.readouterr()
    assert main(["advise", str(path), "--src", src, "--dst", dst, "--bytes", size, "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def by_memory(found: dict) -> dict[str, dict]:
    return {one["src_memory"]: one for one in found["ways"]}


# --- ranks ---


def test_methods_share_a_rank_unless_their_intervals_show_which_is_faster(tmp_path, capsys):
    """Intervals reach from -2 % to +2 %: 20 and 20.3 overlap, 20.3 and 21 overlap, 20 and 21 do not."""
    times = {"registered": 20, "pinned": 20.3, "mapped": 21, "pageable": 90}
    found = answer(tmp_path, capsys, [h2d(memory, MIB, time * US) for memory, time in times.items()])
    ranks = {memory: one["rank"] for memory, one in by_memory(found).items()}
    assert ranks == {"registered": 1, "pinned": 1, "mapped": 2, "pageable": 4}


def test_a_method_with_a_longer_time_never_has_a_better_rank(tmp_path, capsys):
    """Registered memory takes 25 us, but 10 to 60 us in its rounds: no method is certainly faster."""
    times = {"pinned": 20, "mapped": 22, "pageable": 24, "registered": 25}
    points = {memory: h2d(memory, MIB, time * US) for memory, time in times.items()}
    points["registered"].ci95_s = points["registered"].flows[0].ci95_s = (10 * US, 60 * US)
    found = answer(tmp_path, capsys, list(points.values()))["ways"]
    assert [one["src_memory"] for one in found] == list(times)
    assert [one["rank"] for one in found] == [1, 2, 3, 3]


@pytest.mark.parametrize("plan, has_cure", [({"suite": "standard"}, True), ({"suite": "full"}, False)])
def test_unknown_costs_name_the_suite_that_measures_them(tmp_path, capsys, plan, has_cure):
    path = saved(tmp_path, [h2d("pageable", MIB, 90 * US), h2d("pinned", MIB, 20 * US)])
    lines = path.read_text().splitlines()
    head = json.loads(lines[0])
    head["plan"].update(plan)
    path.write_text("\n".join([json.dumps(head), *lines[1:]]) + "\n")
    assert main(["advise", str(path), *TRANSFER, "1MiB"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "need costs that are not known" in text and ("run --suite full measures them" in text) == has_cure


def test_times_without_an_interval_count_as_three_percent(tmp_path, capsys):
    def ranks(second: float) -> list[int]:
        points = [h2d("pinned", MIB, 20 * US), h2d("registered", MIB, second * US)]
        for one in points:
            one.ci95_s = None
        return [one["rank"] for one in answer(tmp_path, capsys, points)["ways"]]

    assert ranks(21.2) == [1, 1] and ranks(21.3) == [1, 2]  # 20 * 1.03 is 20.6; 21.2 / 1.03 is 20.58


def test_the_table_shows_the_best_three_and_the_present_method_and_all_on_request(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("linkscope.cli.advise_transfer_text.columns", lambda: 200)
    many = [h2d("pinned", MIB, 20 * US, params=f"{BATCHED}&lane={lane}") for lane in range(14)]
    path = saved(tmp_path, [*many, h2d("pageable", MIB, 90 * US)])

    def shown(*words: str) -> tuple[list[str], list[str]]:
        assert main(["advise", str(path), *TRANSFER, "1MiB", *words]) == 0
        lines = capsys.readouterr().out.splitlines()
        start = next(at for at, line in enumerate(lines) if "rank  method" in line) + 1
        return [line for line in lines[start:] if line.split()[:1] in (["1"], ["15"])], lines

    rows, lines = shown()
    assert [row.split()[0] for row in rows] == ["1"] * 3 + ["15"] and rows[-1].endswith("present")
    assert "  and 11 more methods; --all shows all, --json lists them" in lines
    assert any(line.strip().startswith("methods share a rank") for line in lines)
    rows, lines = shown("--all")
    assert [row.split()[0] for row in rows] == ["1"] * 14 + ["15"]
    assert not any("more method" in line for line in lines)
    capsys.readouterr()
    assert main(["advise", str(path), *TRANSFER, "1MiB", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["ways"]) == 15


def test_an_uncertain_slow_method_is_not_among_the_best_three(tmp_path, capsys):
    """Its interval reaches to 10 us, so that no method is certainly faster and it shares the first rank."""
    points = [h2d("pinned", MIB, (20 + lane) * US, params=f"{BATCHED}&lane={lane}") for lane in range(3)]
    uncertain = point(f"split/ce/numa:0.pinned->gpu:0.device/{MIB}?streams=2", 90 * US)
    uncertain.ci95_s = (10 * US, 800 * US)
    path = saved(tmp_path, [*points, uncertain, h2d("pageable", MIB, 95 * US)])
    assert main(["advise", str(path), *TRANSFER, "1MiB"]) == 0
    text = capsys.readouterr().out
    assert "split by ce" not in text and "and 1 more method;" in text


def test_kernels_that_access_data_in_place_stand_apart_from_methods_that_copy(tmp_path, capsys):
    in_place = point(f"read/sm/numa:0.pinned->gpu:0.device/{MIB}?blocks=sms", 10 * US)
    points = [in_place, h2d("pinned", MIB, 20 * US), h2d("pageable", MIB, 90 * US)]
    found = answer(tmp_path, capsys, points)
    assert [(one["benchmark"], one["rank"], one["in_place"]) for one in found["ways"]] == [
        ("h2d", 1, False), ("h2d", 2, False), ("read", None, True)]  # fmt: skip
    assert found["fastest_call"].startswith("cudaMemcpyAsync")
    assert main(["advise", str(saved(tmp_path, points)), *TRANSFER, "1MiB"]) == 0
    text = capsys.readouterr().out
    before, _, after = text.partition("no copy: ")
    assert "read by sm" not in before and "h2d by ce, pageable" in before
    assert "stay in host memory, and each access crosses the link" in " ".join(after.split())
    assert "- read by sm, pinned → device" in " ".join(after.split())


def test_kernels_that_access_data_in_place_are_ranked_where_nothing_copies(tmp_path, capsys):
    reads = [point(f"read/sm/numa:0.{memory}->gpu:0.device/{MIB}?blocks=sms", time * US)
             for memory, time in (("pinned", 10), ("mapped", 20))]  # fmt: skip
    found = answer(tmp_path, capsys, reads)
    assert [(one["src_memory"], one["rank"]) for one in found["ways"]] == [("pinned", 1), ("mapped", 2)]


@pytest.mark.parametrize("words", [["--all"], ["--all", "--placement"]])
def test_all_methods_are_those_of_one_transfer(tmp_path, capsys, words):
    assert main(["advise", str(saved(tmp_path, [h2d("pinned", MIB, 20 * US)])), *words]) == 2
    assert "one transfer" in capsys.readouterr().err


# --- the present method ---


def test_the_gain_is_the_present_time_over_the_time_with_the_ends_of_both_intervals(tmp_path, capsys):
    found = answer(tmp_path, capsys, [h2d("pinned", MIB, 20 * US), h2d("pageable", MIB, 100 * US)])
    pinned, pageable = by_memory(found)["pinned"], by_memory(found)["pageable"]
    assert pageable["present"] and pageable["gain"] is None and not pinned["present"]
    assert pinned["gain"]["ratio"] == pytest.approx(5)
    assert pinned["gain"]["interval"] == pytest.approx([5 * 0.98 / 1.02, 5 * 1.02 / 0.98])


def test_the_present_method_is_the_plain_copy_of_the_stated_memory(tmp_path, capsys):
    points = [h2d("pinned", MIB, 20 * US), h2d("pageable", MIB, 100 * US)]
    points.append(
        point(f"h2d/sm/numa:0.pinned->gpu:0.device/{MIB}?bidirectional=false&blocks=sms&mode=batched", 19 * US)
    )
    found = answer(tmp_path, capsys, points, "--memory", "pinned")
    (now,) = [one for one in found["ways"] if one["present"]]
    assert (now["engine"], now["src_memory"]) == ("ce", "pinned")
    assert by_memory(found)["pageable"]["gain"]["ratio"] == pytest.approx(0.2)


def test_between_gpus_the_present_method_has_no_peer_access(tmp_path, capsys):
    ends = f"d2d/ce/gpu:0.device->gpu:1.device/{MIB}?bidirectional=false&call=memcpy&initiator=src&mode=batched&peer="
    found = answer(
        tmp_path, capsys, [point(ends + "on", 10 * US), point(ends + "off", 50 * US)], src="gpu:0", dst="gpu:1"
    )
    assert [(one["params"]["peer"], one["present"]) for one in found["ways"]] == [("on", False), ("off", True)]
    assert (
        found["ways"][0]["pays_off"]["from"] == 1
        and "peer access: cudaDeviceCanAccessPeer" in found["ways"][0]["needs"]
    )


def test_without_the_present_method_there_are_no_gains_and_a_note_says_so(tmp_path, capsys):
    points = [h2d("pinned", MIB, 20 * US), point(f"h2d/sm/numa:0.mapped->gpu:0.device/{MIB}?blocks=sms", 20 * US)]
    found = answer(tmp_path, capsys, points, "--memory", "mapped")
    assert all(one["gain"] is None for one in found["ways"])
    assert found["notes"] == ["no gains: a plain copy of mapped memory, the present method, is not among the methods"]


def test_a_present_method_of_pinned_memory_is_stated_unless_asked_for(tmp_path, capsys):
    points = [h2d("pinned", MIB, 20 * US), h2d("registered", MIB, 21 * US)]
    stated = "present: a copy of pinned memory, since none of pageable memory is known here (--memory)"
    assert answer(tmp_path, capsys, points)["notes"] == [stated]
    assert answer(tmp_path, capsys, points, "--memory", "pinned")["notes"] == []
    assert stated not in answer(tmp_path, capsys, [*points, h2d("pageable", MIB, 90 * US)])["notes"]


def test_a_run_with_the_present_method_alone_names_the_run_that_has_others(tmp_path, capsys):
    found = answer(tmp_path, capsys, [h2d("pageable", 4096, 90 * US)], size="4KiB")
    assert len(found["ways"]) == 1
    assert found["notes"][0].endswith("measure them: linkscope run --suite full --only '*/numa:0.*->gpu:0.*'")
    path = str(RESULTS / "h200x1-standard-f.jsonl.gz")
    assert main(["advise", path, *TRANSFER, "4MiB", "--pieces", "4KiB", "--json"]) == 0
    assert "linkscope run pieces strided --src numa:0 --dst gpu:0" in json.loads(capsys.readouterr().out)["notes"][0]


# --- reuse ---


def test_costs_that_are_paid_once_are_shared_among_the_copies(tmp_path, capsys):
    """Pageable 110 us once and 100 us per copy, pinned 360 and 20, registered as pageable and 90 more, and 20."""
    found = by_memory(answer(tmp_path, capsys, at_1_mib(0.1), "--reuse", "20"))
    once = {memory: one["once_s"] / US for memory, one in found.items()}
    assert once == pytest.approx({"pageable": 110, "pinned": 360, "registered": 200})
    totals = {memory: one["total_s"] / US for memory, one in found.items()}
    assert totals == pytest.approx({"pageable": 2110, "pinned": 760, "registered": 600})
    assert found["pinned"]["per_copy_s"] == pytest.approx(38 * US)
    assert found["pinned"]["total_interval_s"] == pytest.approx([0.9 * 760 * US, 1.1 * 760 * US])
    assert {memory: one["rank"] for memory, one in found.items()} == {"registered": 1, "pinned": 2, "pageable": 3}
    assert found["pinned"]["gain"]["ratio"] == pytest.approx(2110 / 760)
    assert [part["what"] for part in found["registered"]["once"]] == ["pageable memory", "registering"]


def test_the_break_even_is_a_range_where_the_intervals_leave_one(tmp_path, capsys):
    found = by_memory(answer(tmp_path, capsys, at_1_mib(0.1)))
    pays = found["pinned"]["pays_off"]  # test_break_even.py computes it by hand
    assert (pays["from"], pays["at_best"]["from"], pays["at_worst"]["from"]) == (4, 3, 5)
    assert found["registered"]["pays_off"]["from"] == 2 and found["pageable"]["pays_off"] is None


def test_few_copies_do_not_pay_for_pinned_memory(tmp_path, capsys):
    found = answer(tmp_path, capsys, at_1_mib(), "--reuse", "1")
    assert [one["src_memory"] for one in found["ways"]] == ["pageable", "registered", "pinned"]
    assert [round(one["total_s"] / US) for one in found["ways"]] == [210, 220, 380]


def test_a_graph_costs_its_preparation_once(tmp_path, capsys):
    graph = "graph/cpu/numa:0.pageable->gpu:0.device/0?nodes={}&what=instantiate"
    points = [*at_1_mib(), point(graph.format(1), 50.5 * US), point(graph.format(100), 149.5 * US)]
    points.append(point(f"h2d/graph/numa:0.pinned->gpu:0.device/{MIB}?mode=batched", 19 * US))
    found = answer(tmp_path, capsys, points, "--reuse", "20", "--memory", "pinned")
    (of_graph,) = [one for one in found["ways"] if one["engine"] == "graph"]
    assert of_graph["once_s"] == pytest.approx(410.5 * US) and of_graph["pays_off"]["from"] == 51  # 50.5 us over 1 us
    assert of_graph["once"][-1]["what"] == "preparing the graph"


def test_a_method_of_unknown_cost_has_no_rank_and_is_last(tmp_path, capsys):
    managed = point(f"prefetch/prefetch/numa:0.managed->gpu:0.managed/{MIB}?bidirectional=false", 1 * US)
    found = answer(tmp_path, capsys, [*at_1_mib(), managed], "--reuse", "2")
    last = found["ways"][-1]
    assert last["src_memory"] == "managed" and last["rank"] is None and last["total_s"] is None
    assert last["once_missing"] == "the cost of managed memory" and last["pays_off"] is None


def test_the_cost_of_memory_may_be_that_of_another_gpu_and_says_so(tmp_path, capsys):
    points = [one for one in at_1_mib() if one.benchmark == "allocation"]
    points += [h2d("pageable", MIB, 100 * US, gpu=1), h2d("pinned", MIB, 20 * US, gpu=1)]
    pinned = by_memory(answer(tmp_path, capsys, points, "--reuse", "20", dst="gpu:1"))["pinned"]
    assert [part["what"] for part in pinned["once"]] == ["pinned memory, as on numa:0 -> gpu:0"]
    assert pinned["total_s"] == pytest.approx(760 * US)


def test_the_table_of_reuse_has_the_total_and_the_time_per_copy(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("linkscope.cli.advise_transfer_text.columns", lambda: 200)
    assert main(["advise", str(saved(tmp_path, at_1_mib())), *TRANSFER, "1MiB", "--reuse", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = next(line for line in lines if "rank  method" in line)
    assert all(word in heads for word in ("once", "20 copies", "per copy", "gain", "pays off"))
    (pinned,) = [line for line in lines if "pinned → device" in line and "×" in line]
    assert "360 µs" in pinned and "38 µs" in pinned and pinned.endswith("from 4")


def test_the_methods_that_are_shown_have_the_shortest_totals_of_all_copies(tmp_path, capsys):
    """Four memories copy faster than registered memory, and cost more once."""
    expensive = [
        one
        for memory, seconds in (("pinned", 20), ("mapped", 21), ("wc", 22), ("shm", 23))
        for one in (*life(memory, "1MiB", dict.fromkeys(PHASES[memory], 1000 * US)), copy(memory, MIB, seconds * US))
    ]
    points = [
        *life("pageable", "1MiB", PAGEABLE), *life("registered", "1MiB", REGISTERED),
        copy("pageable", MIB, 100 * US), copy("registered", MIB, 30 * US),
    ]  # fmt: skip
    assert main(["advise", str(saved(tmp_path, [*points, *expensive])), *TRANSFER, "1MiB", "--reuse", "2"]) == 0
    text = capsys.readouterr().out
    assert "registered → device" in text and "shm → device" not in text


# --- pieces ---


def pieces(engine: str, piece: int, seconds: float, count: int = 1000, clock: str = "&clock=host") -> Point:
    ends = f"numa:0.pinned->gpu:0.device/{count * piece}"
    return point(f"pieces/{engine}/{ends}?mode=batched&piece={piece}{clock}", seconds)


def seconds_of(points: list[Point], count: int, piece: int) -> dict[str, float]:
    found = piece_methods(points, "numa:0", "gpu:0", count * piece, piece)
    return {one.curve.method.family.engine: one.time.value / US for one in found}


def test_pieces_are_ranked_and_the_kernel_is_that_of_the_library(tmp_path, capsys):
    points = [pieces("ce", 4096, 2500 * US), pieces("batch", 4096, 1300 * US), pieces("sm", 4096, 100 * US)]
    found = answer(tmp_path, capsys, points, "--pieces", "4KiB", size="4096000")
    assert [(one["engine"], one["rank"]) for one in found["ways"]] == [("sm", 1), ("batch", 2), ("ce", 3)]
    kernel, batch, loop = found["ways"]
    assert loop["present"] and kernel["gain"]["ratio"] == pytest.approx(25)
    assert kernel["language"] == "Python" and "linkscope.copy_blocks(dst_pointers, src_pointers, 4096" in kernel["code"]
    assert any("driver 570" in need for need in batch["needs"]) and "for (size_t i" in loop["code"]


def test_times_of_pieces_are_proportional_to_their_number_up_to_a_factor_of_16():
    points = [pieces("ce", 4096, 2500 * US)]
    assert seconds_of(points, 2000, 4096) == pytest.approx({"ce": 5000})
    assert seconds_of(points, 16000, 4096) == pytest.approx({"ce": 40000})
    assert seconds_of(points, 16001, 4096) == {} and seconds_of(points, 62, 4096) == {}


def test_times_of_pieces_are_interpolated_between_two_sizes_of_pieces():
    points = [pieces("ce", 1024, 2000 * US), pieces("ce", 4096, 2600 * US)]
    assert seconds_of(points, 1000, 2048) == pytest.approx({"ce": 2200})
    assert seconds_of(points, 1000, 512) == {} and seconds_of(points, 1000, 8192) == {}


def test_the_clock_of_the_gpu_leaves_out_calls_so_it_does_not_count_for_pieces():
    assert seconds_of([pieces("batch", 4096, 70 * US, clock="")], 1000, 4096) == {}


def test_rows_at_equal_distances_are_pieces_with_a_condition(tmp_path, capsys):
    rows = f"strided/ce/numa:0.pinned->gpu:0.device/{MIB}?gaps={{}}&mode=batched&row=4096&shape={{}}"
    points = [point(rows.format("both", "2d"), 21 * US), point(rows.format("both", "3d"), 1 * US),
              point(rows.format("src", "2d"), 2 * US), pieces("ce", 4096, 640 * US, 256)]  # fmt: skip
    first, second = answer(tmp_path, capsys, points, "--pieces", "4KiB")["ways"]
    assert (first["benchmark"], second["benchmark"]) == ("strided", "pieces")
    assert first["gain"]["ratio"] == pytest.approx(640 / 21) and "cudaMemcpy2DAsync" in first["code"]
    assert "pieces at equal distances, at both ends" in first["needs"]


# --- beside other transfers ---


def beside(size: int = MIB, seconds: float = 40 * US) -> Point:
    made = point(f"concurrent/ce/numa:0.pinned->gpu:0.device/{size}?with=numa:0->gpu:1", seconds)
    made.flows.append(flow("numa:0", "gpu:1", ("pinned", "device"), size, 50 * US))
    return made


def test_a_run_answers_for_the_flows_that_it_measured_at_once(tmp_path, capsys):
    points = [h2d("pinned", MIB, 20 * US), beside()]
    found = answer(tmp_path, capsys, points, "--with", "numa:0 -> gpu:1")
    assert [one["seconds"] for one in found["ways"]] == pytest.approx([40 * US])
    assert found["ways"][0]["points"] == [points[1].id] and found["with"] == ["numa:0 -> gpu:1"]
    other_end = answer(tmp_path, capsys, [*points, h2d("pinned", MIB, 20 * US, gpu=1)], "--with", "numa:0 -> gpu:0",
                       dst="gpu:1")  # fmt: skip
    assert [one["seconds"] for one in other_end["ways"]] == pytest.approx([50 * US])


@pytest.mark.parametrize(
    "flows",
    ["numa:0 -> gpu:1 2MiB", "numa:0.pageable -> gpu:1", "numa:0 -> gpu:1 x2", "numa:0 -> gpu:1 by sm",
     "numa:0 -> gpu:1; gpu:1 -> numa:0", "gpu:1 -> numa:0"],
)  # fmt: skip
def test_a_run_does_not_answer_for_other_flows(tmp_path, capsys, flows):
    path = saved(tmp_path, [h2d("pinned", MIB, 20 * US), beside()])
    assert main(["advise", str(path), *TRANSFER, "1MiB", "--with", flows]) == 3
    message = capsys.readouterr().err
    assert "did not measure numa:0 -> gpu:0 of 1 MiB beside" in message and "--machine mine.toml" in message


# --- bad input ---


@pytest.mark.parametrize(("words", "code", "sentence"), [
    (["--reuse", "0"], 2, "--reuse 0: write a whole number from 1"),
    (["--reuse", "many"], 2, "--reuse many: write a whole number from 1"),
    (["--reuse", "2"], 3, "lacks the cost of pinned memory. Measure it"),
    (["--pieces", "2MiB"], 2, "--pieces 2MiB is larger than --bytes 1MiB"),
    (["--pieces", "1MiB"], 2, "--pieces 1MiB: one piece is an ordinary copy"),
    (["--pieces", "3000"], 2, "not a whole number of pieces of 3000: name --bytes 1047000 or --bytes 1050000"),
    (["--pieces", "0"], 2, "--pieces 0: this is not a size"),
    (["--pieces", "4KiB"], 3, "has no scattered pieces from numa:0 to gpu:0; measure them: linkscope run pieces"),
    (["--pieces", "4KiB", "--alone"], 2, "--pieces needs many: leave one of them out"),
    (["--alone", "--with", "numa:0 -> gpu:1"], 2, "--with needs many: leave one of them out"),
    (["--pieces", "4KiB", "--with", "numa:0 -> gpu:1"], 2, "--pieces and --with: the times of pieces beside"),
    (["--with", "numa:0 => gpu:1"], 2, "          ^^ not an arrow"),
    (["--with", "gemm gpu:0 bf16"], 2, "this is not a transfer"),
    (["--with", "numa:0 -> gpu:1 single"], 2, "predictions are of batched copies only"),
    (["--with", "numa:0 -> gpu:7"], 3, "              ^^^^^ the machine of the run has numa:0, gpu:0, gpu:1"),
    (["--memory", "pinnde"], 2, "--memory pinnde: this is not host memory (did you mean pinned?)"),
    (["--memory", "wc"], 3, "with wc memory; it has pinned"),
    (["--talk", "matrix.txt"], 2, "leave out the options of one transfer"),
])  # fmt: skip
def test_a_bad_question_gets_the_reason_and_the_cure(tmp_path, capsys, words, code, sentence):
    path = saved(tmp_path, [h2d("pinned", MIB, 20 * US)], places=["numa:0", "gpu:0", "gpu:1"])
    assert main(["advise", str(path), *TRANSFER, "1MiB", *words]) == code
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--reuse", "2"], ["--pieces", "4KiB"], ["--with", "numa:0 -> gpu:1"]], ids=str)
def test_options_of_a_transfer_need_a_transfer(tmp_path, capsys, words):
    assert main(["advise", str(saved(tmp_path, [h2d("pinned", MIB, 20 * US)])), *words]) == 2
    assert "describe one transfer: add --src, --dst and --bytes" in capsys.readouterr().err


def test_too_many_pieces_name_what_the_run_has(tmp_path, capsys):
    path = saved(tmp_path, [pieces("ce", 4096, 2500 * US)])
    assert main(["advise", str(path), *TRANSFER, "1GiB", "--pieces", "4KiB"]) == 3
    assert "near 262144 pieces of 4 KiB; it has 1000 to 1000 pieces of 4 KiB" in capsys.readouterr().err


def test_costs_of_a_size_that_cannot_be_interpolated_are_missing(tmp_path, capsys):
    lone = [cost("pinned", phase, "1MiB", 9 * US) for phase in ("allocate", "map", "touch", "free")]
    path = saved(tmp_path, [*lone, h2d("pinned", 64 * MIB, 20 * US)])
    assert main(["advise", str(path), *TRANSFER, "64MiB", "--reuse", "9"]) == 3
    assert "lacks the cost of pinned memory" in capsys.readouterr().err


def test_missed_precision_of_one_of_several_flows_is_no_reason_to_refuse(tmp_path, capsys):
    missed = msgspec.structs.replace(beside(), status="missed_precision")
    (one,) = answer(tmp_path, capsys, [missed], "--with", "numa:0 -> gpu:1")["ways"]
    assert one["rank"] == 1
