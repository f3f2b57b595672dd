"""tools/numa_findings.py: the page is up to date, and a verdict follows from the numbers."""

import math
from collections.abc import Sequence
from types import SimpleNamespace

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


@pytest.mark.parametrize(
    "of_two, of_three, verdict",
    [
        ((0.3, 0.6), (0.2, 0.4), tool.OPEN),
        ((0.0, math.inf), (0.2, 0.4), tool.OPEN),
        ((0.3, 0.6), (0.2, 0.3), tool.NOT),  # one share is not equal for sure
        ((0.41, 0.45), (0.2, 0.3), tool.NOT),
        ((0.55, 0.6), (0.2, 0.4), tool.NOT),
    ],
)
def test_unequal_shares_are_undecided_if_all_intervals_contain_equal_ones(
    of_two: tuple[float, float], of_three: tuple[float, float], verdict: str
) -> None:
    intervals = {2: of_two, 3: of_three}
    answer = tool.equal_shares(lambda count: 0.8 / count, (2, 3), "run", intervals.__getitem__)
    assert answer.verdict == verdict
    assert f"0.40 [{of_two[0]:.2f}, {of_two[1]:.2f}] of the rate with 2 tasks" in answer.numbers


@pytest.mark.parametrize(
    "flows, share, interval",
    [
        ([(50.0, (0.001, 0.002)), (20.0, (0.002, 0.004))], 0.4, (0.335544, 0.671089)),
        ([(20.0, None), (50.0, (0.001, 0.002))], 0.4, (0.0, math.inf)),
    ],
)
def test_the_share_of_the_slowest_task_has_the_interval_of_that_task(
    monkeypatch: pytest.MonkeyPatch,
    flows: list[tuple[float, tuple[float, float] | None]],
    share: float,
    interval: tuple[float, float],
) -> None:
    def point_of(run: str, id: str) -> SimpleNamespace:
        found = flows if id.endswith("&tasks=2") else [(50.0, None)]
        return SimpleNamespace(flows=[SimpleNamespace(gbps=gbps, ci95_s=ci95_s) for gbps, ci95_s in found])

    monkeypatch.setattr(tool, "point_of", point_of)
    assert tool.of_slowest(2) == pytest.approx(share)
    assert tool.range_of_slowest(2) == pytest.approx(interval, rel=1e-5)


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
