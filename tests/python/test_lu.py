"""The blocked LU and its update by placement (SP-7), on the model of Keeneland."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fake_driver import LIBRARIES, environment, needs_fake, needs_worker
from linkscope.cli.main import main
from linkscope.model.lu import LuParts, factor_s, lu_s
from linkscope.plan.enumerate import points_of
from linkscope.plan.suites import SUITES
from linkscope.report.sections.lu import Placement, placements_of_lu, predicted_ranks, ranks_of
from linkscope.report.sections.lu_gpus import lu_placements
from linkscope.report.summary import summary
from linkscope.run import benchmark_table
from linkscope.run.target import choose
from linkscope.runfile import Run, read_run
from test_cli import linkscope

pytestmark = [needs_worker]
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("lu") / "run.jsonl"
    words = ["run", "--machine", "sl390", "--suite", "sp-7", "--rounds", "1", "-o", str(path), "-q"]
    assert main(words) == 0
    return read_run(path)


def test_suite_sp_7_has_every_placement_of_up_to_four_ranks_with_and_without_look_ahead() -> None:
    points = [p for p in points_of(SUITES["sp-7"], choose("sl390", 1).facts, benchmark_table())
              if p.benchmark == "lu_update"]  # fmt: skip
    found = {(p.param("nodes"), p.param("slots")) for p in points}
    assert len(points) == len(found) == 2 * (2 + 4 + 8 + 16)
    assert {(p.src, p.param("size")) for p in points} == {("gpu:0", "shoc")}


def test_without_look_ahead_near_nodes_are_best_and_one_node_for_all_is_worst(run: Run) -> None:
    group = placements_of_lu(run.points)[3, "1"]
    assert [len(group), group[0].nodes] == [8, "011"]
    assert {one.nodes for one in group[-2:]} == {"000", "100"}  # two GPUs behind one far link
    assert group[-1].seconds / group[0].seconds > 1.2


def test_look_ahead_hides_the_placement(run: Run) -> None:
    group = placements_of_lu(run.points)[3, "2"]
    assert group[-1].seconds == pytest.approx(group[0].seconds, rel=0.02)
    alone = placements_of_lu(run.points)[1, "1"][0].seconds
    assert group[0].seconds < 0.9 * alone


def test_copies_predict_the_best_placement_but_not_a_shared_far_link(run: Run) -> None:
    group = placements_of_lu(run.points)[3, "1"]
    ranks = predicted_ranks(group)
    assert ranks["011"] == 1 and ranks["000"] > 1
    worst = next(one for one in group if one.nodes == "000")
    assert worst.predicted is not None and worst.predicted < 0.9 * worst.seconds
    for alone in placements_of_lu(run.points)[1, "1"]:
        assert alone.predicted == pytest.approx(alone.seconds, rel=0.03)


def test_equal_predictions_share_a_rank() -> None:
    group = [Placement(nodes, "1", 1.0, seconds) for nodes, seconds in (("00", 2.0), ("01", 1.0), ("10", 1.001))]
    assert predicted_ranks([*group, Placement("11", "1", 1.0, None)]) == {"01": 1, "10": 1, "00": 3}


def test_a_factorization_states_its_operations_and_reaches_the_rate_of_the_machine_file(run: Run) -> None:
    (lu,) = [p for p in run.points if p.benchmark == "lu"]
    assert lu.flows[0].operations == pytest.approx(2 / 3 * 8192**3)
    assert (lu.flows[0].operations or 0) / (lu.median_s or 1) == pytest.approx(0.59 * 0.515e12, rel=0.02)


def test_ranks_without_a_gpu_are_unsupported_with_their_reason(run: Run) -> None:
    missing = [p for p in run.points if p.benchmark == "lu_update" and len(p.params["nodes"]) == 4]
    assert len(missing) == 32 and all(p.status == "unsupported" and "gpu:3" in (p.reason or "") for p in missing)


def test_suite_sp_7_factors_on_every_set_of_gpus_from_every_node(run: Run) -> None:
    found = [p.params for p in run.points if p.benchmark == "lu_gpus" and p.params["ahead"] == "1"]
    near = {(p["gpus"], p["node"], p["by"]) for p in found if p["threads_on"] == "near"}
    assert len(near) == 2 * (4 + 2 * 11)
    assert {p["threads_on"] for p in found if p["gpus"] == "0123"} == {"near", "0", "1"}


def test_an_lu_over_three_gpus_of_keeneland_is_faster_than_on_one_and_fastest_near_two_of_them(run: Run) -> None:
    """Its GPUs lack peer access, so they take panels from the node's memory."""
    groups = lu_placements(run)
    assert list(groups) == [(8192, 1), (8192, 2), (8192, 3)]
    one, three = groups[8192, 1][0], groups[8192, 3][0]
    assert three.seconds < 0.5 * one.seconds
    assert three.params["node"] == "1"  # the node of two of the three GPUs
    assert {placed.params["by"] for placed in groups[8192, 3]} == {"host"}
    without = next(placed for placed in groups[8192, 3] if placed.params["ahead"] == "0")
    assert without.seconds > 1.3 * three.seconds
    missing = [
        p for p in run.points if p.benchmark == "lu_gpus" and p.params["gpus"] == "01" and p.params["by"] == "peer"
    ]
    assert missing and all("no peer access" in (p.reason or "") for p in missing)


def test_rates_of_copies_and_products_predict_each_placement_and_rank_the_best_first(run: Run) -> None:
    """All GPUs load at once in suite sp-7, which shows that two of three share the link between the nodes."""
    groups = lu_placements(run)
    for placed in groups[8192, 1]:
        assert placed.predicted == pytest.approx(placed.seconds, rel=0.02)
    for placed in (*groups[8192, 2], *groups[8192, 3]):
        assert placed.predicted == pytest.approx(placed.seconds, rel=0.06)
    for group in groups.values():
        assert ranks_of([placed.predicted for placed in group])[0] == 1


def test_the_prediction_is_that_of_the_lu_measured_on_four_h100s() -> None:
    """Only times of one GPU and rates of copies enter it. A GPU of this run does not factor beside its updates."""
    groups = lu_placements(*(read_run(RESULTS / f"h100x4-lu{order}.jsonl.gz") for order in ("", "-16384")))
    assert {key: len(group) for key, group in groups.items()} == {
        (8192, 1): 3, (8192, 2): 4, (8192, 4): 4, (16384, 1): 1, (16384, 2): 1,
    }  # fmt: skip
    for placed in (placed for group in groups.values() for placed in group):
        assert placed.predicted == pytest.approx(placed.seconds, rel=0.06)
    for gpus in (2, 4):
        assert groups[8192, gpus][0].params["by"] == "peer"
        assert ranks_of([placed.predicted for placed in groups[8192, gpus]]) == [1, 2, 2, 2]


def test_an_lu_whose_panels_wait_for_updates_is_predicted_slower_than_one_with_urgent_panels(run: Run) -> None:
    """On one GPU, look-ahead on a usual stream saves nothing here, as on an H100; on an urgent one it does."""
    usual, in_turn = (
        next(p for p in run.points if p.benchmark == "lu_gpus" and p.params["gpus"] == "0" and wanted(p.params))
        for wanted in (lambda of: "panels" not in of, lambda of: of["ahead"] == "0")
    )
    slow = structs.replace(usual, median_s=in_turn.median_s)
    groups = lu_placements(replace(run, points=[slow if p is usual else p for p in run.points]))
    same = [of for of in groups[8192, 3] if [of.params[key] for key in ("node", "ahead")] == ["0", "1"]]
    found = {of.params.get("panels", "usual"): of.predicted for of in same if of.params["threads_on"] == "near"}
    assert found["usual"] is not None and found["urgent"] is not None and found["usual"] > 1.1 * found["urgent"]


def test_the_summary_names_the_panel_stream_where_the_worst_variant_has_another_one(run: Run) -> None:
    points = [p for p in run.points if p.benchmark == "lu_gpus" and p.params["gpus"] == "0" and p.params["node"] == "0"]
    ahead = [p for p in points if p.params["ahead"] == "1" and p.params["threads_on"] == "near"]
    assert {p.params.get("panels") for p in ahead} == {None, "urgent"}
    text = " ".join(summary(replace(run, points=ahead), width=96, colour=False).split())
    assert "longer: a usual panel stream instead of an urgent panel stream." in text, text


def test_without_an_lu_on_one_gpu_or_rates_of_copies_there_is_no_prediction(run: Run) -> None:
    for wanted in (lambda p: p.params.get("gpus") not in ("0", "1", "2"), lambda p: p.benchmark != "h2d"):
        groups = lu_placements(replace(run, points=[point for point in run.points if wanted(point)]))
        assert {placed.predicted for group in groups.values() for placed in group} == {None}


# --- the schedule ---

PARTS = LuParts(
    order=4, width=1, load=[0.0], store=[0.0], take={}, crowd=1.0, operation=0.0, by_peer=True, ahead=True,
    overlaps=True, factor=1.0,
)  # fmt: skip


def over(gpus: int, take: float = 0.0, **more: Any) -> LuParts:
    pairs = {(a, b): take for a in range(gpus) for b in range(gpus) if a != b}
    return replace(PARTS, load=[0.0] * gpus, store=[0.0] * gpus, take=pairs, **more)


def test_more_gpus_do_not_shorten_the_factorizations() -> None:
    assert [lu_s(over(gpus)) for gpus in (1, 2, 4)] == [4.0] * 3


def test_a_panel_from_its_owner_costs_a_copy_and_one_from_the_host_two() -> None:
    copies = replace(over(2, take=0.5), store=[0.25, 0.25])
    assert lu_s(copies) == 4 * 1.0 + 3 * 0.5 + 0.25
    assert lu_s(replace(copies, by_peer=False)) == 4 * 1.0 + 3 * (0.25 + 0.5) + 0.25


def test_takers_share_the_link_of_an_owner_but_not_the_links_to_the_host() -> None:
    """Of four panels on four GPUs, three take the first, two the second and one the third."""
    copies = over(4, take=0.5, crowd=3.0)
    assert lu_s(copies) == pytest.approx(4 * 1.0 + (3 + 2 + 1) * 0.5)
    assert lu_s(replace(copies, crowd=1.0)) == lu_s(replace(copies, by_peer=False)) == 4 * 1.0 + 3 * 0.5


def test_a_gpu_that_factors_beside_updates_hides_them_unless_look_ahead_is_off() -> None:
    """Updates of a panel's column take 7, 5 and 3 operations."""
    slow = replace(PARTS, operation=1.0)
    in_turn = 4 + 3 * 7 + 2 * 5 + 3
    assert lu_s(replace(slow, overlaps=False)) == lu_s(replace(slow, ahead=False)) == in_turn
    assert lu_s(slow) == in_turn - 2  # panels 1 and 2 are factored beside the rest of the updates


def test_the_time_of_one_gpu_gives_the_time_of_a_factorization() -> None:
    one = replace(PARTS, load=[0.5], store=[0.25], operation=0.1, overlaps=False)
    assert factor_s(one, lu_s(one)) == pytest.approx(one.factor)
    assert factor_s(one, 0.1) == 0.0


def test_an_lu_over_four_gpus_of_h200x4_takes_panels_faster_from_peers_than_from_the_host(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    words = ["--suite", "sp-7", "--only", "lu_gpus*gpus=0123*", "--rounds", "6", "-o", str(path), "-q"]
    assert main(["run", "--machine", "h200x4", *words]) == 0
    found = read_run(path)
    (group,) = lu_placements(found).values()
    times = {placed.params["by"]: placed.seconds for placed in reversed(group) if placed.params["threads_on"] == "near"}
    assert times["peer"] < 0.5 * times["host"]
    assert {p.status for p in found.points if p.params["node"] == "0" and p.params["threads_on"] == "near"} == {"ok"}


@needs_fake
def test_urgent_panels_need_a_driver_with_priorities(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    point = "lu_gpus/sm/gpu:0.device->gpu:0.device/0?ahead=1&by=host&gpus=0&n=256&node=0{}&threads_on=near"
    globs = [word for panels in ("", "&panels=urgent") for word in ("--only", point.format(panels))]
    settings = environment(CUDA_GPUS=1, CUDA_MISSING="cuStreamCreateWithPriority")
    settings["LD_LIBRARY_PATH"] += f":{LIBRARIES / 'libraries'}"
    linkscope("run", *globs, "--rounds", "1", "-o", str(path), "-q", environment=settings)
    found = {p.params.get("panels", "usual"): (p.status, p.reason or "") for p in read_run(path).points}
    assert set(found) == {"usual", "urgent"} and found["usual"][0] != "unsupported"
    assert found["urgent"][0] == "unsupported" and "cuStreamCreateWithPriority" in found["urgent"][1]


@needs_fake
def test_an_lu_over_gpus_whose_data_is_damaged_fails(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    point = "lu_gpus/sm/gpu:0.device->gpu:0.device/0?ahead=1&by=host&gpus=01&n=256&node=0&threads_on=near"
    settings = environment(CUDA_GPUS=2, CUDA_CORRUPT="1+")
    settings["LD_LIBRARY_PATH"] += f":{LIBRARIES / 'libraries'}"
    linkscope("run", "--only", point, "--rounds", "1", "-o", str(path), "-q", environment=settings)
    (failed,) = read_run(path).points
    assert failed.status == "failed" and "bytes are wrong" in (failed.reason or "")


def test_the_report_shows_best_worst_and_gap(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run.path), "--summary=full"]) == 0
    text = capsys.readouterr().out
    assert (
        "Update of a blocked LU by placement" in text
        and "Blocked LU over GPUs" in text
        and "Look-ahead" in text
        and "Gap" in text
    )
