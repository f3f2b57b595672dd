"""The blocked LU and its update by placement (SP-7), on the model of Keeneland."""

from pathlib import Path

import pytest

from fake_driver import needs_worker
from linkscope.cli.main import main
from linkscope.plan.enumerate import points_of
from linkscope.plan.suites import SUITES
from linkscope.report.sections.lu import Placement, placements_of_lu, predicted_ranks
from linkscope.run import benchmark_table
from linkscope.run.target import choose
from linkscope.runfile import Run, read_run

pytestmark = [needs_worker]


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


def test_the_report_shows_best_worst_and_gap(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run.path), "--summary=full"]) == 0
    text = capsys.readouterr().out
    assert "Blocked LU by placement" in text and "Look-ahead" in text and "Gap" in text
