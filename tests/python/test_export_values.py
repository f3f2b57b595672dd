"""Each number in the CSV is the number in the run file, in its unit, and no point is left out."""

import csv
import io

import pytest

from invented import point, run, small_run
from linkscope.report.export import to_csv

PLAIN = ("median_s", "gbps")


def test_each_value_equals_that_of_its_flow_or_point() -> None:
    made = small_run()
    rows = list(csv.DictReader(io.StringIO(to_csv(made))))
    wanted = [(one, flow) for one in made.points for flow in (one.flows or [None])]
    assert [row["id"] for row in rows] == [one.id for one, _ in wanted]
    for row, (one, flow) in zip(rows, wanted, strict=True):
        assert row["status"] == one.status and row["verified"] in ("", str(one.verified).lower())
        for name in PLAIN:
            value = getattr(flow or one, name)
            assert row[name] == ("" if value is None else str(value)), (row["id"], name)
        if one.spread is not None:
            assert float(row["within_rounds"]) == one.spread.within_rounds
            assert float(row["between_rounds"]) == one.spread.between_rounds
        if flow is not None and flow.ci95_s is not None:
            assert (float(row["ci_low_s"]), float(row["ci_high_s"])) == pytest.approx(flow.ci95_s)


def test_no_interval_begins_below_0() -> None:
    made = small_run()
    flow = next(flow for point in made.points for flow in point.flows if flow.ci95_s is not None)
    flow.ci95_s = (-6e-6, 2e-6)
    ends = [float(row["ci_low_s"]) for row in csv.DictReader(io.StringIO(to_csv(made))) if row["ci_low_s"]]
    assert min(ends) == 0.0


def test_the_interval_of_a_total_comes_from_the_joint_time() -> None:
    id = "h2d/ce/numa:0.pinned->gpu:0.device/1000000?bidirectional=true&mode=batched"
    made = point(id, 1e-3)
    made.total_gbps = 2.0
    row = next(csv.DictReader(io.StringIO(to_csv(run([made])))))
    assert row["total_ci_low_gbps"] == row["total_ci_high_gbps"] == ""
    made.guards |= {"together_s": 1e-3, "together_ci95_s": [0.8e-3, 1.25e-3]}
    for row in csv.DictReader(io.StringIO(to_csv(run([made])))):
        assert float(row["total_ci_low_gbps"]) == pytest.approx(2 / 1.25)
        assert float(row["total_ci_high_gbps"]) == pytest.approx(2 / 0.8)


def test_a_reason_states_its_precision_in_per_cent() -> None:
    reason = "the interval is +-1.21% after 9 rounds; asked was 0.01"
    made = point("h2d/ce/numa:0.pinned->gpu:0.device/8", 1e-6, status="missed_precision", reason=reason)
    row = next(csv.DictReader(io.StringIO(to_csv(run([made])))))
    assert row["reason"] == "the interval is +-1.21 % after 9 rounds; target was 1 %"
