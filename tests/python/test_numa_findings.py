"""tools/numa_findings.py: the page is up to date, and a verdict follows from the numbers."""

from collections.abc import Sequence

import numa_findings as tool
import pytest

from fake_driver import needs_worker
from linkscope.model.curves import Estimate
from linkscope.report.task_sets import Compared


@needs_worker
def test_the_page_is_what_the_runs_and_the_model_give() -> None:
    assert tool.PAGE.read_text() == tool.page(), "run .venv/bin/python tools/numa_findings.py"


def penalties(*values: float) -> tool.Penalties:
    return dict(zip(tool.SCENARIOS, values, strict=True))  # 8 B each and cores, 64 KiB each and cores


@pytest.mark.parametrize(
    "values, more_tasks, small_least",
    [
        ((0.1, 0.2, 0.3, 0.4), tool.HOLDS, tool.HOLDS),
        ((0.4, 0.3, 0.2, 0.1), tool.NOT, tool.NOT),
        ((0.1, 0.3, 0.2, 0.1), tool.OPEN, tool.OPEN),
    ],
)
def test_findings_about_messages_hold_in_all_scenarios_or_are_undecided(
    values: Sequence[float], more_tasks: str, small_least: str
) -> None:
    assert tool.more_tasks(penalties(*values)) == more_tasks
    assert tool.small_least(penalties(*values)) == small_least


@pytest.mark.parametrize("drift, verdict", [(0.05, tool.HOLDS), (0.2, tool.NOT)])
def test_a_slowdown_within_the_drift_does_not_hold(monkeypatch: pytest.MonkeyPatch, drift: float, verdict: str) -> None:
    one = Compared("messages, median", False, [1.0], [1.1], [1.0 + drift])
    monkeypatch.setattr(tool, "compared", lambda run, name: dict.fromkeys(tool.SCENARIOS, one))
    assert tool.slowed("messages, median").verdict == verdict


def test_shares_of_a_link_are_equal_or_collapse() -> None:
    equal, collapsed = (lambda count: 1 / count), (lambda count: 0.01)
    assert tool.equal_shares(equal, (2, 3)).verdict == tool.HOLDS and tool.collapse(equal, (4,)).verdict == tool.NOT
    assert tool.equal_shares(collapsed, (2, 3)).verdict == tool.NOT
    assert tool.collapse(collapsed, (4, 8)).verdict == tool.HOLDS


@pytest.mark.parametrize("total, verdict", [(150.0, tool.HOLDS), (220.0, tool.NOT), (199.0, tool.OPEN)])
def test_a_total_is_less_than_the_sum_when_the_intervals_do_not_overlap(
    monkeypatch: pytest.MonkeyPatch, total: float, verdict: str
) -> None:
    monkeypatch.setattr(tool, "point_of", lambda run, id: id)
    monkeypatch.setattr(tool, "rate_of", lambda id: Estimate(50.0, 49.0, 51.0))
    monkeypatch.setattr(tool, "total_of", lambda id: Estimate(total, total - 1, total + 1))
    assert tool.all_at_once().verdict == verdict


def test_the_rank_correlation_is_that_of_orders() -> None:
    assert tool.rank_correlation([(1, 10), (2, 100), (3, 1000)]) == 1
    assert tool.rank_correlation([(1, 3), (2, 2), (3, 1)]) == -1
