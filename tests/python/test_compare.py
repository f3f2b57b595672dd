"""`linkscope compare` finds planted changes and nothing else, and explains what it cannot compare."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from invented import point, run
from linkscope.cli.main import main
from linkscope.compare import changes, compare, differences, same_machine
from linkscope.compare.text import by_path, left_out, table
from linkscope.compare.verdict import Comparison, Pair
from linkscope.model.rounds import rounds_of
from linkscope.runfile import read_run
from linkscope.stats import Interval

MACHINES = Path(__file__).parents[2] / "machines"
RESULTS = Path(__file__).parents[2] / "results"
ONLY = ["--only", "*ce/*.pinned*", "--only", "d2d/ce/*peer=on*", "--rounds", "6"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("compare")


def measured(folder: Path, name: str, machine: str | Path, seed: int) -> Path:
    path = folder / f"{name}.jsonl"
    words = ["run", "--machine", str(machine), "--suite", "quick", *ONLY, "--seed", str(seed), "-o", str(path)]
    assert main(words) == 0
    return path


@pytest.fixture(scope="module")
def first(folder) -> Path:
    return measured(folder, "first", "h200x2", 1)


@pytest.fixture(scope="module")
def second(folder) -> Path:
    return measured(folder, "second", "h200x2", 2)


@pytest.fixture(scope="module")
def slowed(folder) -> Path:
    """h200x2 with NVLink 5 % slower in both directions: a machine file with another number."""
    text = (MACHINES / "h200x2.toml").read_text()
    start = text.index('name = "nvlink"')
    efficiency = re.compile(r"(\nefficiency = \{ v = )([0-9.]+)")
    changed = efficiency.sub(lambda found: f"{found[1]}{float(found[2]) * 0.95:.6f}", text[start:], count=1)
    assert changed != text[start:]
    machine = folder / "h200x2.toml"
    machine.write_text(text[:start] + changed)
    return measured(folder, "slowed", machine, 3)


def test_two_runs_of_one_machine_show_no_difference(first, second, capsys) -> None:
    assert main(["compare", str(first), str(second)]) == 0
    shown = capsys.readouterr().out
    assert "MODELLED" in shown and "slower" not in shown and "faster" not in shown
    assert re.search(r"plan\.seed: 1 → 2", shown)
    compared = compare([read_run(first)], [read_run(second)])
    of_large = [pair.verdict for pair in compared.pairs if pair.before.bytes >= 1 << 20]
    assert of_large.count("equivalent") >= 0.9 * len(of_large)


def test_a_planted_slow_link_is_found_and_nothing_else(first, slowed, capsys) -> None:
    assert main(["compare", str(first), str(slowed), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["worse"] and answer["same_machine"]
    assert any(one["what"].endswith("efficiency.v") for one in answer["differs"])
    slower = {(one["src"], one["dst"]) for one in answer["paths"] if one["verdict"] == "slower"}
    assert slower == {("gpu:0", "gpu:1"), ("gpu:1", "gpu:0")}
    assert not [one for one in answer["paths"] if one["verdict"] == "faster"]
    large = [
        pair for one in answer["paths"] if one["src"][0] == one["dst"][0] == "g" and one["src"] != one["dst"]
        for pair in one["points"] if "/67108864?" in pair["id"]
    ]  # fmt: skip
    assert large
    for pair in large:
        assert pair["interval"][0] < pair["ratio"] < pair["interval"][1]
        assert pair["ratio"] == pytest.approx(1 / 0.95, rel=0.01)


def test_the_same_change_in_reverse_order_is_faster(first, slowed, capsys) -> None:
    assert main(["compare", str(slowed), str(first)]) == 0
    assert "faster  -5" in capsys.readouterr().out


def test_a_change_within_the_margin_is_no_difference(first, slowed, capsys) -> None:
    assert main(["compare", str(first), str(slowed), "--margin", "10%"]) == 0
    assert "slower" not in capsys.readouterr().out


def test_the_drawing_shows_the_interval_of_every_path(first, slowed, folder) -> None:
    target = folder / "changes.svg"
    main(["compare", str(first), str(slowed), "-o", str(target)])
    root = ElementTree.fromstring(target.read_text())
    texts = ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "MODELLED" in texts
    rows = [text for text in texts if text.startswith(("slower:", "equivalent:", "no change seen:", "faster:"))]
    assert rows and rows[0].startswith("slower: d2d")
    circles = [float(node.get("cx")) for node in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert len(circles) == len(rows) and circles[0] == max(circles)


ID = "h2d/ce/numa:0.pinned->gpu:0.device/67108864?bidirectional=false&mode=batched"
BOTH = "h2d/ce/numa:0.pinned->gpu:0.device/67108864?bidirectional=true&mode=batched"
OTHER = "d2h/ce/gpu:0.device->numa:0.pinned/67108864?mode=batched"


def test_a_new_failure_is_worse_and_a_previous_failure_is_mended() -> None:
    before = run([point(ID, 1e-3), point(OTHER, None, status="failed", reason="wrong bytes")])
    after = run([point(ID, None, status="failed", reason="a hang"), point(OTHER, 1e-3)])
    compared = compare([before], [after])
    assert [pair.verdict for pair in compared.pairs] == ["broken", "mended"]
    assert compared.worse() and not compare([after], [after]).worse()
    assert by_path(compared)[0].verdict == "broken"


def test_a_point_that_was_too_short_for_the_clock_is_neither_broken_nor_worse_nor_mended() -> None:
    short = run([point(ID, None, status="failed", reason="too short for the clock: the batch took no longer")])
    compared = compare([run([point(ID, 1e-3)])], [short])
    assert not compared.pairs and compared.unmeasured == {"too_short": 1} and not compared.worse()
    assert any("1 too short for the clock" in text for text in left_out(compared, [short, short]))
    compared = compare([short], [run([point(ID, 1e-3)])])
    assert not compared.pairs and compared.unmeasured == {"too_short": 1}


def test_inherited_and_unsupported_points_are_left_out() -> None:
    left_out = [point(ID, 1e-3, status="inherited"), point(OTHER, None, status="unsupported", reason="no such engine")]
    assert compare([run(left_out)], [run(left_out)]).pairs == []


def test_points_of_only_one_run_are_counted() -> None:
    compared = compare([run([point(ID, 1e-3), point(OTHER, 1e-3)])], [run([point(ID, 1e-3), point(BOTH, 1e-3)])])
    assert (len(compared.pairs), compared.only_before, compared.only_after) == (1, 1, 1)


def test_points_that_one_run_inherited_are_counted_and_reported(tmp_path, capsys) -> None:
    inherited = run([point(ID, 1e-3, status="inherited"), point(OTHER, 1e-3)])
    compared = compare([run([point(ID, 1e-3), point(OTHER, 1e-3)])], [inherited])
    assert (len(compared.pairs), compared.unmeasured) == (1, {"inherited": 1})
    two = [str(RESULTS / f"h200x4-standard-{name}.jsonl.gz") for name in ("a", "i")]
    main(["compare", *two])
    output = " ".join(capsys.readouterr().out.split())
    count = int(re.search(r"(\d+) points without a value in one of the runs", output)[1])
    main(["compare", *two, "--json"])
    answer = json.loads(capsys.readouterr().out)
    points = [sum(1 for _ in read_run(name).points) for name in two]
    compared_points = sum(len(path["points"]) for path in answer["paths"])
    not_compared = answer["not_compared"]
    assert not_compared["unmeasured"] == count > 0
    others = count + sum(not_compared["other_method"].values())
    assert points == [compared_points + others + not_compared[side] for side in ("only_before", "only_after")]


def test_a_path_is_equivalent_only_if_all_its_sizes_are() -> None:
    pairs = [
        Pair(point(ID, 1e-3), point(ID, 1e-3), verdict, 1.0, Interval(low, 1 / low, 0.95), 0.05)
        for verdict, low in (("equivalent", 0.99), ("no change seen", 0.9))
    ]
    assert by_path(compared_of(pairs))[0].verdict == "no change seen"
    assert by_path(compared_of(pairs[:1]))[0].verdict == "equivalent"


def compared_of(pairs: list[Pair]) -> Comparison:
    return Comparison(pairs, (0.05, 0.05, 0.02))


def test_both_values_of_a_change_are_in_one_unit() -> None:
    """Copies below 1 MiB are compared by time; if one run has no total, both values are times."""
    with_total, lost = point(BOTH, 1e-3), point(BOTH, 2e-3)
    lost.total_gbps, lost.guards["in_turn"] = None, True
    of = [Pair(with_total, lost, "slower", 2.0, Interval(1.9, 2.1, 0.99))]
    assert "1 ms → 2 ms at" in " ".join(table(by_path(compared_of(of)), False, 200)[0].split())
    small = [point(ID.replace("/67108864?", "/8?"), seconds) for seconds in (2e-6, 4e-6)]
    of = [Pair(*small, "slower", 2.0, Interval(1.9, 2.1, 0.99))]
    assert "2000 ns → 4000 ns at 8 B" in table(by_path(compared_of(of)), False, 200)[0]


def test_the_times_beside_a_change_are_those_of_all_flows() -> None:
    """The first flow keeps its time, the second takes twice as long: the bytes of both take 4/3 of the time."""
    before, after = point(BOTH, 1e-3), point(BOTH, 1e-3)
    after.flows[1].round_medians_s = [2 * seconds for seconds in after.flows[1].round_medians_s]
    before.total_gbps = after.total_gbps = None
    line = table(by_path(compared_of([Pair(before, after, "slower", 4 / 3, Interval(1.3, 1.4, 0.99))])), False, 200)[0]
    assert "+33 % of time" in line and "1 ms → 1.333 ms at" in line


def test_a_change_has_at_most_two_decimals_and_a_long_reason_fits_the_terminal() -> None:
    tiny = Pair(point(ID, 1e-3), point(ID, 1e-3), "slower", 1.0000004, Interval(0.99999, 1.00123, 0.99))
    assert "+0.00 % of time [-0.00 %, +0.12 %]" in table(by_path(compared_of([tiny])), False, 200)[0]
    failed = point(ID, None, status="failed", reason="the driver said no, " * 20)
    lines = table(by_path(compared_of([Pair(point(ID, 1e-3), failed, "broken")])), False, 100)
    assert max(map(len, lines)) <= 100 and "".join(lines).count("driver") == 20


def test_comparing_a_run_with_itself_or_in_the_wrong_order_gives_a_note(capsys) -> None:
    first, second = (str(RESULTS / f"h200x1-standard-{name}.jsonl.gz") for name in "ef")
    for words, note in (
        ((first, first), "Both files hold one run"), ((second, first), "is newer than the last"), ((first, second), ""),
    ):  # fmt: skip
        main(["compare", *words])
        out = capsys.readouterr().out
        assert note in out and ("hold one run" in out) + ("is newer than" in out) == bool(note)


def test_the_total_of_several_flows_is_compared() -> None:
    both = point(BOTH, 1e-3)
    both.flows[1].round_medians_s = [2 * seconds for seconds in both.flows[1].round_medians_s]
    one = both.flows[0].round_medians_s
    assert list(rounds_of(both)) == pytest.approx([2 / (1 / s + 1 / (2 * s)) for s in one])


def test_a_history_shows_the_start_of_a_change_and_a_drift() -> None:
    steps = [run([point(ID, seconds), point(OTHER, 1e-3)]) for seconds in (1e-3, 1.001e-3, 0.999e-3, 1.1e-3, 1.101e-3)]
    (found,) = changes(steps)
    assert (found.point.id, found.kind, found.at) == (ID, "change", 3)
    assert found.ratio == pytest.approx(1.1, rel=0.005) and found.interval.low < 1.1 < found.interval.high

    slow = [run([point(ID, 1e-3 * 1.003**day), point(OTHER, 1e-3)]) for day in range(10)]
    assert [(one.point.id, one.kind) for one in changes(slow)] == [(ID, "drift")]
    assert changes(slow[:3]) == []


def test_a_change_that_reverts_is_two_changes() -> None:
    seconds = [1e-3] * 3 + [1.2e-3] * 3 + [1e-3] * 3
    found = changes([run([point(ID, one)]) for one in seconds])
    assert sorted(one.at for one in found) == [3, 6]


def test_many_runs_are_compared_by_the_command(first, second, slowed, capsys) -> None:
    assert main(["compare", str(first), str(second), str(slowed)]) == 1
    shown = " ".join(capsys.readouterr().out.split())  # lines are wrapped
    assert "Over 3 runs:" in shown and f"since MODELLED {slowed}" in shown
    assert f"then: MODELLED {second}" in shown and "within 2 % from 1 MiB, 5 % below" in shown


def test_a_run_of_another_machine_within_the_history_is_reported(first, slowed, folder, capsys) -> None:
    lines = slowed.read_text().splitlines()
    head = json.loads(lines[0])
    head["machine"]["name"] = "another"
    between = folder / "between.jsonl"
    between.write_text("\n".join([json.dumps(head), *lines[1:]]) + "\n")
    main(["compare", str(first), str(first), str(first)])
    assert "different machines" not in capsys.readouterr().out
    main(["compare", str(first), str(between), str(first)])
    assert "The runs are of different machines" in capsys.readouterr().out


def header(**machine):
    return msgspec.structs.replace(run([]).header, machine=machine)


def test_differing_facts_of_the_machines_are_listed() -> None:
    gpu = {"name": "H200", "uuid": "GPU-1", "pcie": {"width": 16, "generation": 5}}
    before = header(name="node", gpus=[gpu, {**gpu, "uuid": "GPU-2"}])
    slower = header(name="node", gpus=[{**gpu, "pcie": {"width": 8, "generation": 5}}, {**gpu, "uuid": "GPU-2"}])
    (found,) = differences(before, slower)
    assert (found.what, found.before, found.after) == ("machine.gpus.0.pcie.width", 16, 8)
    assert same_machine(before, slower)
    lost = header(name="node", gpus=[gpu])
    assert [(one.what, one.after) for one in differences(before, lost)] == [("machine.gpus.1", None)]
    assert not same_machine(before, lost)
    busy = msgspec.structs.replace(before, environment={"cpu": {"load_1min": 3.0}, "governor": "performance"})
    assert differences(before, busy) == []
    assert differences(header(name="node", gpus=[gpu], pairs=[], model={"nic": []}), lost) == []


def test_runs_of_different_machines_are_reported(first, folder, capsys) -> None:
    other = measured(folder, "other", "h200x4", 1)
    assert main(["compare", str(first), str(other)]) in (0, 1)
    shown = capsys.readouterr().out
    assert "different machines" in shown and "machine.name: h200x2 → h200x4" in shown
    assert re.search(r"Not compared: \d+ points only in .*other", " ".join(shown.split()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{first}"], "needs two runs"),
        (["{first}", "nowhere.jsonl"], "nowhere.jsonl does not exist"),
        (["{first}", "{first}", "--margin", "2"], "--margin 2"),
        (["{first}", "{first}", "--margin", "much"], "--margin much"),
        (["{first}", "{first}", "-o", "x.png"], ".svg"),
        (["{first}", "{first}", "-o", "{first}"], ".svg"),
    ],
)
def test_wrong_arguments_of_compare_give_exit_code_2(first, capsys, words, message) -> None:
    assert main(["compare", *(word.format(first=first) for word in words)]) == 2
    assert message in capsys.readouterr().err


def test_runs_without_common_points_give_exit_code_2(first, folder, capsys) -> None:
    lines = first.read_text().splitlines()
    empty = folder / "empty.jsonl"
    empty.write_text(lines[0] + "\n")
    assert main(["compare", str(first), str(empty)]) == 2
    assert "no point with a value" in capsys.readouterr().err
    renamed = folder / "renamed.jsonl"
    shutil.copy(first, renamed)
    renamed.write_text(renamed.read_text().replace("gpu:0", "gpu:7").replace("gpu:1", "gpu:8"))
    assert main(["compare", str(first), str(renamed)]) == 2
    assert "no point in common" in capsys.readouterr().err


def test_paths_are_printed_below_their_numbers_on_a_narrow_terminal(first, slowed, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    assert main(["compare", str(first), str(slowed)]) == 1
    lines = capsys.readouterr().out.split("Paths, by the worst size")[1].splitlines()
    assert max(map(len, lines)) <= 90
    number = next(number for number, line in enumerate(lines) if line.startswith("  slower  "))
    assert "GB/s →" in lines[number] and " by ce" not in lines[number]
    assert lines[number + 1].startswith("      d2d by ce")


def test_the_answer_comes_first_and_states_the_smallest_detectable_change(first, second, slowed, capsys) -> None:
    main(["compare", str(first), str(second)])
    answer = capsys.readouterr().out.split("\n\n")[1]
    assert re.fullmatch(
        r"Nothing got worse\. The smallest detectable change is [\d.]+ % \(.*\) from\s+1\s+MiB\.\n?",
        answer,
        re.DOTALL,
    )
    main(["compare", str(first), str(slowed)])
    assert re.match(r"\d+ paths got slower, at \d+ sizes\.", capsys.readouterr().out.split("\n\n")[1])


def test_runs_that_share_almost_no_point_end_without_a_verdict_and_say_why(capsys) -> None:
    two = [str(RESULTS / f"{name}.jsonl.gz") for name in ("h200x4-standard-a", "h100x1-lu")]
    assert main(["compare", *two]) == 5
    answer = " ".join(capsys.readouterr().out.split("\n\n")[1].split())
    assert answer.startswith(
        "Only 2 points could be compared, of 1376 measured before and 7 after (suite standard against"
    )
    assert "GPU NVIDIA H200 against NVIDIA H100 80GB HBM3" in answer.partition(": no verdict.")[0]
    assert "Nothing got worse" not in answer
    assert main(["compare", *two, "--fail-on", "changed", "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["undecided"]


def test_the_verdict_of_three_runs_agrees_with_its_list(capsys) -> None:
    """Pageable copies take longer in the last run. They are too noisy to judge, in the verdict and in both lists."""
    assert main(["compare", *(str(RESULTS / f"h200x1-standard-{name}.jsonl.gz") for name in "aef")]) == 0
    shown = capsys.readouterr().out
    assert shown.split("\n\n")[1].startswith("Nothing judged got worse. 5 points (pageable) are slower, but not judged")
    listed = [line for line in shown.splitlines() if line.startswith("  slower")]
    assert len(listed) > 5 and all("not judged" in line for line in listed)
    assert "h2h" not in shown.partition("Over 3 runs:")[2]  # measured by another method


def test_a_pattern_of_ids_selects_the_points(first, slowed, capsys) -> None:
    assert main(["compare", str(first), str(slowed), "--only", "h2d/*"]) == 0
    assert main(["compare", str(first), str(slowed), "--only", "d2d/*", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {path["benchmark"] for path in answer["paths"]} == {"d2d"} and answer["not_compared"]["only_before"] == 0
    assert main(["compare", str(first), str(slowed), "--only", "nothing*"]) == 2
    assert "no point that both runs measured" in capsys.readouterr().err


def test_the_exit_code_follows_what_should_fail(first, second, slowed) -> None:
    faster = [str(slowed), str(first)]
    assert main(["compare", *faster]) == 0 and main(["compare", *faster, "--fail-on", "changed"]) == 1
    assert main(["compare", str(first), str(slowed), "--fail-on", "inconclusive"]) == 1
    assert main(["compare", str(first), str(first), "--fail-on", "inconclusive", "--margin", "0.01%"]) == 5
    assert main(["compare", str(first), str(second), "--fail-on", "inconclusive", "--margin", "50%"]) == 0


def test_several_runs_on_each_side_show_a_smaller_change_than_one(first, second, slowed, capsys) -> None:
    def detectable(*words: str) -> float:
        assert main(["compare", *words, "--json"]) in (0, 1)
        answer = json.loads(capsys.readouterr().out)
        return sorted(one["detectable"] for path in answer["paths"] for one in path["points"])[len(answer["paths"])]

    single = detectable(str(first), str(slowed))
    assert detectable(str(first), str(second), "--after", str(slowed), str(slowed)) < 0.85 * single
