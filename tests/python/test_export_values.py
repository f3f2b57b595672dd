"""Each number in the CSV is the number in the run file, in its unit, and no point is left out."""

import csv
import io

import pytest

from invented import small_run
from linkscope.report.export import to_csv
from linkscope.report.panels import panels

PLAIN = ("median_s", "gbps")


def test_each_value_equals_that_of_its_flow_or_point() -> None:
    made = small_run()
    rows = list(csv.DictReader(io.StringIO(to_csv(made))))
    wanted = [(point, flow) for point in made.points for flow in (point.flows or [None])]
    assert [row["id"] for row in rows] == [point.id for point, _ in wanted]
    for row, (point, flow) in zip(rows, wanted, strict=True):
        assert row["status"] == point.status and row["verified"] in ("", str(point.verified).lower())
        for name in PLAIN:
            value = getattr(flow or point, name)
            assert row[name] == ("" if value is None else str(value)), (row["id"], name)
        if point.spread is not None:
            assert float(row["within_rounds"]) == point.spread.within_rounds
            assert float(row["between_rounds"]) == point.spread.between_rounds
        if flow is not None and flow.ci95_s is not None:
            assert (float(row["ci_low_s"]), float(row["ci_high_s"])) == pytest.approx(flow.ci95_s)


def test_no_interval_begins_below_0() -> None:
    made = small_run()
    flow = next(flow for point in made.points for flow in point.flows if flow.ci95_s is not None)
    flow.ci95_s = (-6e-6, 2e-6)
    ends = [float(row["ci_low_s"]) for row in csv.DictReader(io.StringIO(to_csv(made))) if row["ci_low_s"]]
    assert min(ends) == 0.0


def test_images_of_modelled_runs_have_modelled_in_their_names() -> None:
    for modelled in (True, False):
        for panel in panels(small_run().points, modelled=modelled):
            for svg in filter(None, (panel.rate_svg, panel.time_svg)):
                assert ("MODELLED: " in svg) == modelled
