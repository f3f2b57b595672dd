"""The head and the summary of the page: the machine, rates against their peaks, trust and the first actions."""

import re

import pytest

from invented import SIZES, point, run, small_run
from linkscope.report.directions import direction_bars
from linkscope.report.heading import facts, machine_title, minor, serious
from linkscope.report.html import page
from linkscope.report.section import Bar
from linkscope.runfile import End

H2D = "h2d/ce/numa:0.{}->gpu:{}.device/{}?bidirectional={}&mode=batched"
LARGE = SIZES[-1]


def h2d(memory: str, gpu: int, gbps: float, *, size: int = LARGE, both: str = "false", more: str = "", **fields):
    fields = {"limit_gbps": 63.0, **fields}
    return point(H2D.format(memory, gpu, size, both) + more, size / gbps / 1e9, **fields)


def bars(points) -> dict[str, Bar]:
    return {bar.label: bar for bar in direction_bars(run(points), ["h2d"])}


def test_a_direction_has_its_rate_its_share_pageable_memory_and_the_half_rate() -> None:
    found = bars(small_run().points)
    assert list(found) == ["Host → GPU", "GPU → GPU", "Within a GPU"]
    first, pageable = found["Host → GPU"].parts
    assert (first.name, first.value, first.of_peak) == ("pinned", "55.9 GB/s", "89 % of 63")
    assert (pageable.name, pageable.value, pageable.of_peak) == ("pageable", "9 GB/s", "14 % of 63")
    assert found["Host → GPU"].notes == (
        "2 paths at 64 MiB: 55.9, up to ±2 %",
        "pinned: half of 55.9 GB/s between 4 KiB and 1 MiB",
    )


def test_one_path_has_its_interval() -> None:
    (note,) = bars([h2d("pinned", 1, 50.0)])["Host → GPU"].notes
    assert note == "numa:0 → gpu:1 at 64 MiB: 50.0 GB/s [49.0, 51.0]"


def test_paths_of_which_one_has_an_interval_of_unknown_precision_share_no_interval() -> None:
    known, older = h2d("pinned", 0, 50.0), h2d("pinned", 1, 50.0)
    older.flows[0].round_medians_s, older.ci_method = older.flows[0].round_medians_s[:3], None
    assert bars([known, older])["Host → GPU"].notes == ("2 paths at 64 MiB: 50",)
    older.ci_method = "pooled"
    assert bars([known, older])["Host → GPU"].notes == ("2 paths at 64 MiB: 50, up to ±2 %",)


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ("&piece=64", {}), ("&discard=with", {}), ("&cache=hot", {}), ("", {"guards": {"above_limit": 90.0}}),
        ("", {"guards": {"nonlinear": 0.3}}), ("", {"guards": {"throttled_rounds": [{}]}}),
    ],
)  # fmt: skip
def test_no_rate_comes_from_pieces_discarded_or_cached_data_or_a_point_with_a_warning(more, fields) -> None:
    found = bars([h2d("pinned", 0, 50.0), h2d("pinned", 1, 60.0, more=more, **fields)])
    assert found["Host → GPU"].parts[0].value == "50 GB/s"
    assert bars([h2d("pinned", 1, 60.0, more=more, **fields)]) == {}


def test_bidirectional_rates_are_no_rate_of_a_direction() -> None:
    assert bars([h2d("pinned", 0, 50.0, both="true")]) == {}


def test_measured_paths_decide_where_others_are_inherited() -> None:
    inherited = [h2d("pinned", gpu, 60.0, status="inherited") for gpu in (1, 2)]
    bar = bars([h2d("pinned", 0, 50.0), *inherited])["Host → GPU"]
    assert (
        bar.parts[0].value == "50 GB/s"
        and not bar.parts[0].hollow
        and "3 paths at 64 MiB (2 inherited)" in bar.notes[0]
    )
    (part,) = bars(inherited)["Host → GPU"].parts
    assert part.value == "^60 GB/s" and part.hollow


def test_a_rate_above_its_peak_is_marked() -> None:
    (part,) = bars([h2d("pinned", 0, 66.0)])["Host → GPU"].parts
    assert part.of_peak == "105 % of 63, above its peak"
    assert "above its peak" in page(run([h2d("pinned", 0, 66.0)]))


def test_a_rate_without_a_known_peak_has_no_bar() -> None:
    text = page(run([h2d("pinned", 0, 50.0, limit_gbps=None)]))
    assert "peak unknown" in text and 'class="bar-of"' not in text


def test_a_rate_that_scatters_has_its_median_and_the_range_of_its_rounds() -> None:
    missed = h2d("pinned", 0, 50.0, status="missed_precision")
    assert bars([missed])["Host → GPU"].parts[0].value == "~50 GB/s"
    wild = h2d("pageable", 0, 10.0)
    wild.flows[0].round_medians_s = [LARGE / rate / 1e9 for rate in (6.0, 8.0, 10.0, 10.0, 12.0, 14.0)]
    bar = bars([wild])["Host → GPU"]
    (part,) = bar.parts
    assert part.name == "pageable" and part.value == "10 GB/s" and part.at == "at 64 MiB"
    assert part.of_peak == "16 % of 63" and bar.notes[-1] == "pageable: rounds from 6 to 14 GB/s"


def test_half_of_a_rate_says_of_which_memory() -> None:
    curve = [h2d("pageable", 0, rate, size=size) for size, rate in ((1 << 16, 2.0), (1 << 20, 8.0), (LARGE, 10.0))]
    curve[-1].flows[0].round_medians_s = [LARGE / rate / 1e9 for rate in (6.0, 8.0, 10.0, 10.0, 12.0, 14.0)]
    notes = bars(curve)["Host → GPU"].notes
    assert any(note.startswith("pageable: half of 10 GB/s ") for note in notes)


def test_bars_of_one_direction_compare_as_their_rates() -> None:
    """Copies without peer access have the peak of the host link, a seventh of NVLink's."""
    fast = point("d2d/ce/gpu:0.device->gpu:1.device/67108864?mode=batched&peer=on", LARGE / 400e9, limit_gbps=480.0)
    slow = point("d2d/ce/gpu:0.device->gpu:1.device/67108864?mode=batched&peer=off", LARGE / 40e9, limit_gbps=60.0)
    first, second = bars([fast, slow])["GPU → GPU"].parts
    assert first.share == pytest.approx(400 / 480) and second.share == pytest.approx(40 / 480)
    assert second.of_peak == "67 % of 60"


def test_a_group_that_has_no_bar_does_not_change_the_scale_of_the_others() -> None:
    shown, other = h2d("pinned", 0, 50.0), h2d("pinned", 1, 30.0, limit_gbps=480.0)
    (bar,) = bars([shown, other]).values()
    (part,) = bar.parts
    assert part.share == pytest.approx(50 / 63) and "1 other group: see the pairs" in bar.notes


def test_trust_names_the_rates_that_need_a_look() -> None:
    good, bad = h2d("pinned", 0, 50.0), h2d("pageable", 0, 9.0, status="missed_precision")
    text = re.sub(r"</?a\b[^>]*>", "", page(run([good, bad])))
    assert "1 of 2 points is measured within its target precision (1 missed precision)" in text
    assert "Do not rely on: host → GPU, pageable" in text
    assert "Every rate above is one of them." in page(run([good]))


GPUS = [{"name": "NVIDIA H200", "pcie": {"max_generation": 5, "width": 16}}] * 4
PROBED = {
    "gpus": GPUS, "cpu": {"model": "Intel(R) Xeon(R) Processor", "cores": 64},
    "driver": {"version": "580.159", "cuda_version": "13.0"},
}  # fmt: skip


def test_the_head_names_gpus_driver_cpu_and_date() -> None:
    made = run([], modelled=False, **PROBED)
    assert machine_title(made) == "4 × NVIDIA H200"
    assert facts(made) == [
        "driver 580.159", "CUDA 13.0", "PCIe 5.0 x16", "Intel Xeon, 64 cores", "21 November 2026", "1.5 s",
    ]  # fmt: skip
    assert "<h1>4 × NVIDIA H200</h1>" in page(made)


TWO_KINDS = [{"title": "A", "at": {"numa:0": ["gpu:0", "gpu:1"]}}, {"title": "B", "at": {"numa:0": ["gpu:2"]}}]


@pytest.mark.parametrize(
    ("machine", "title"),
    [
        ({"model": {"gpu": TWO_KINDS}}, "2 × A + 1 × B"),
        ({"gpus": [], "cpu": {"model": "EPYC"}}, "EPYC, no GPU"), ({"gpus": [7], "cpu": 3}, "invented"),
        ({"model": {"gpu": 3}}, "invented"), ({"name": "", "title": ""}, "a machine without a name"),
    ],
)  # fmt: skip
def test_the_title_of_any_machine(machine, title) -> None:
    assert machine_title(run([], **machine)) == title and facts(run([], **machine))


def test_only_a_serious_warning_is_shown_and_the_others_are_folded() -> None:
    made = small_run()
    made.header.machine["warnings"] = [{"text": "no NVML"}]
    assert minor(made) == ["no NVML"] and len(serious(made)) == 1  # 2 of its 60 points failed
    few = run([*small_run().points, *(h2d("pinned", gpu, 50.0, size=64 + gpu) for gpu in range(200))])
    assert serious(few) == []
    object.__setattr__(few, "end", End(wall_s=1.0, complete=False, counts={}, gained={"gpu:0": {"ecc_uncorrected": 1}}))
    stopped, lost = serious(few)
    assert "stopped early" in stopped and "uncorrected ECC errors" in lost
    head, rest = page(made).split("</header>")[0], page(made).split("</header>")[1]
    assert '<p class="warning">' in head and "no NVML" in head.split("<details")[1] and "no NVML" not in rest


def test_the_first_actions_gain_at_usual_sizes() -> None:
    size = 16 << 20
    copies = [
        (kind, "h2d/ce/numa:0.{}->gpu:0.device/{}?mode=batched", rate)
        for kind, rate in (("pinned", 50e9), ("pageable", 9e9))
    ]
    made = [point(id.format(kind, size), size / rate) for kind, id, rate in copies]
    small = [
        point(f"d2d/{engine}/gpu:0.device->gpu:1.device/8?mode=batched", seconds)
        for engine, seconds in (("ce", 2e-6), ("sm", 1e-6))
    ]
    text = page(run([*made, *small]))
    summary, actions = (
        text.split('<section id="summary">')[1].split("</section>")[0],
        text.split('<section id="actions">')[1],
    )
    assert re.search(r"×5.56</th>.*Pin host memory that is copied.*cudaMallocHost", summary, flags=re.S)
    assert "Copy by a kernel" not in summary  # its gain is known at 8 B only
    assert actions.index("Pin host memory") < actions.index("Copy by a kernel")
