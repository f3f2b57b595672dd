"""Points become curves and rows, and their descriptions."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invented import SIZES, flow, point, small_run
from linkscope.model.curves import Estimate, Path, alike, curves, natural, rate_of, share_of, total_of
from linkscope.model.text import paths_text, places_text, range_s, range_share
from linkscope.report.overview import overview
from linkscope.runfile import read_run

H2D = "h2d/ce/numa:0.pinned->gpu:0.device/{}?bidirectional={}&mode={}"


def test_points_become_curves_by_size() -> None:
    modes = ("single", "batched")
    points = [point(H2D.format(size, "false", mode), 1e-6) for size in reversed(SIZES) for mode in modes]
    batched, single = curves(points)
    assert [one.bytes for one in batched.points] == list(SIZES)
    assert batched.batched and not single.batched and batched.method == single.method
    assert batched.path == Path("numa:0", "gpu:0")


def test_every_point_is_in_one_curve() -> None:
    points = small_run().points
    found = [one.id for curve in curves(points) for one in curve.points]
    assert sorted(found) == sorted(one.id for one in points)


def test_rates_are_bytes_over_times() -> None:
    one = point(H2D.format(1000, "false", "batched"), 1e-6)
    rate = rate_of(one)
    assert rate is not None and rate.low is not None and rate.high is not None
    assert rate.value == 1.0 and abs(rate.low - 1 / 1.02) < 1e-9 and abs(rate.high - 1 / 0.98) < 1e-9
    both = total_of(point(H2D.format(1000, "true", "batched"), 1e-6))
    assert both is not None and both.value == 2.0 and both.low is not None and abs(both.low - 2 / 1.02) < 1e-9


def test_a_rate_with_a_stride_counts_the_bytes_that_the_flow_moved() -> None:
    """64 MiB with a stride of 64 B and a width of 16 B: each access moves 16 B, so the flow moves 16 MiB."""
    run = read_run(pathlib.Path(__file__).parents[2] / "results/h200x1-full.jsonl.gz", rounds=False)
    (one,) = (
        found for found in run.points
        if (found.benchmark, found.src, found.dst, found.bytes) == ("write", "gpu:0", "gpu:0", 64 << 20)
        and found.params.get("stride") == "64" and found.params.get("threads") == "512" and found.gbps
    )  # fmt: skip
    assert one.flows[0].bytes == 16 << 20 and one.ci95_s is not None
    rate = rate_of(one)
    assert rate is not None and rate.low is not None and rate.high is not None
    assert (rate.low, rate.high) == pytest.approx([(16 << 20) / end / 1e9 for end in one.ci95_s[::-1]])
    assert rate.low <= rate.value <= rate.high


def test_the_interval_of_a_total_comes_from_the_joint_times() -> None:
    """Two flows of 64 MiB that take 4 to 5 ms together have a total of 26.84 to 33.55 GB/s."""
    parts = [flow(*ends, ("device", "pinned"), 64 << 20, 4.5e-3) for ends in (("gpu:0", "numa:0"), ("gpu:1", "numa:0"))]
    together = point("concurrent/ce/gpu:0.device->numa:0.pinned/67108864?with=gpu:1->numa:0", 4.5e-3, flows=parts,
                     total_gbps=29.83, guards={"together_s": 4.5e-3, "together_ci95_s": [4e-3, 5e-3]})  # fmt: skip
    assert total_of(together) == Estimate(29.83, pytest.approx(26.84, abs=5e-3), pytest.approx(33.55, abs=5e-3))


def test_the_best_operation_without_bytes_is_the_shortest() -> None:
    (curve,) = curves([point(H2D.format(0, "false", "batched"), seconds) for seconds in (3e-6, 2e-6, 4e-6)])
    best = curve.best()
    assert best is not None and best.median_s == 2e-6


def test_the_percentage_of_peak_refers_to_one_path() -> None:
    """Each of several concurrent GPUs has a peak of its own; together they share a link."""
    one = point(H2D.format(64 << 20, "false", "batched"), (64 << 20) / 50e9, limit_gbps=62.5)
    assert share_of(one) == pytest.approx(0.8)
    parts = [flow("numa:0", "gpu:0", ("pinned", "device"), 8 << 20, (8 << 20) / rate) for rate in (20e9, 24e9)]
    split = point("split/ce/numa:0.pinned->gpu:0.device/16777216?streams=2", (16 << 20) / 44e9, flows=parts,
                  gbps=20.0, total_gbps=44.0, limit_gbps=55.0)  # fmt: skip
    assert rate_of(split).value == 44.0 and share_of(split) == pytest.approx(0.8), (
        "the limit counts all flows of this direction"
    )
    everything = point(one.id.replace("gpu:0", "gpu:all"), (64 << 20) / 50e9, limit_gbps=62.5)
    assert share_of(everything) is None
    one.limit_gbps = None
    assert share_of(one) is None


def test_best_rate_and_the_size_of_half_the_best_rate() -> None:
    (curve,) = curves([point(H2D.format(size, "false", "batched"), 2e-6 + size / 50e9) for size in SIZES])
    best = curve.best()
    assert best is not None and best.bytes == SIZES[-1] and curve.half_rate_bytes() == 1 << 20


def test_curves_without_values_or_bytes_are_empty() -> None:
    (empty,) = curves([point(H2D.format(8, "false", "batched"), status="failed")])
    assert empty.best() is None and empty.half_rate_bytes() is None and empty.measured == []
    (latency,) = curves([point(H2D.format(0, "false", "batched"), 2e-6)])
    best = latency.best()
    assert best is not None and best.gbps is None
    (family,) = overview(latency.points)
    assert family.rows[0].rate is None and family.rows[0].time is not None


def test_the_overview_merges_equal_paths_and_keeps_the_slow_pair() -> None:
    families = {str(found.family): found for found in overview(small_run().points)}
    peers = families["d2d by ce, device -> device"]
    assert peers.minor_params == ["initiator"]
    assert [row.path_count for row in peers.rows] == [11, 1] and peers.rows[1].paths == "gpu:2 -> gpu:3"
    pinned = families["h2d by ce, pinned -> device"]
    assert [row.params for row in pinned.rows] == ["unidirectional", "bidirectional"]
    assert pinned.rows[0].paths == "numa:0 -> gpu:0,1" and pinned.rows[1].rate is not None
    assert 99 < pinned.rows[1].rate.value < 101
    assert pinned.rows[0].single_s is not None and pinned.rows[0].single_s[0] > 8e-6


def test_names_of_sets_of_places_and_paths() -> None:
    assert places_text(["gpu:10", "gpu:9", "gpu:0", "gpu:1", "gpu:2", "numa:0"]) == "gpu:0-2,9,10, numa:0"
    gpus = [f"gpu:{number}" for number in range(4)]
    everyone = [Path(src, dst) for src in gpus for dst in gpus if src != dst]
    assert paths_text(everyone) == "gpu:0-3 -> gpu:0-3"
    all_but = [path for path in everyone if path != Path("gpu:2", "gpu:3")]
    assert paths_text(all_but) == "gpu:0-3 -> gpu:0-3 but gpu:2 -> gpu:3"
    assert paths_text([Path("gpu:0", "gpu:1"), Path("gpu:1", "gpu:0")]) == "gpu:0,1 -> gpu:0,1"
    assert paths_text([Path("gpu:0", "numa:0"), Path("numa:0", "gpu:0")]) == "numa:0 -> gpu:0 and back"
    assert paths_text([path for path in everyone if path.src < path.dst]) == "every pair of gpu:0-3"
    assert paths_text([Path(gpu, gpu) for gpu in gpus]) == "within gpu:0-3"
    assert paths_text([Path("numa:0", gpu) for gpu in gpus]) == "numa:0 -> gpu:0-3"
    assert paths_text([Path("gpu:0", "gpu:1"), Path("gpu:2", "gpu:3")]) == "gpu:0 -> gpu:1; gpu:2 -> gpu:3"
    assert range_s((2.2e-6, 8.4e-6)) == "2.2-8.4 us" and range_s(None) == ""
    assert range_share((0.15, 0.18)) == "15-18 %" and range_share((0.88, 0.88)) == "88 %"


def test_numbers_in_names_sort_as_numbers() -> None:
    assert sorted(["gpu:10", "gpu:9", "gpu:1"], key=natural) == ["gpu:1", "gpu:9", "gpu:10"]


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(0, 0.5))
def test_equality_of_estimates_is_symmetric(one: float, other: float, width: float) -> None:
    first = Estimate(one, one * (1 - width), one * (1 + width))
    second = Estimate(other, other * (1 - width), other * (1 + width))
    assert alike(first, second, 0.02) == alike(second, first, 0.02)
    assert alike(first, first, 0.0)
