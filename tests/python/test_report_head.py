"""The tiles of Markdown and the reasons to check a run, for an invented run with known answers."""

import re
from pathlib import Path

from invented import SIZES, flow, point, run, small_run
from linkscope.report.head import doubtful_ids, doubts, tiles
from linkscope.report.overview import overview
from linkscope.report.wires import wires
from linkscope.runfile import End, read_run

H2D = "h2d/ce/numa:0.{}->gpu:0.device/{}?bidirectional={}&mode=batched"


RESULTS = Path(__file__).parents[2] / "results"
RUN_I, FULL = RESULTS / "h200x4-standard-i.jsonl.gz", RESULTS / "h200x4-full.jsonl.gz"


def by_label(made) -> dict:
    return {tile.label: tile for tile in tiles(made)}


def test_tiles_have_rate_percentage_and_size() -> None:
    found = by_label(small_run())
    assert list(found) == ["Host to GPU", "GPU to GPU", "Slowest GPU pair", "Points to check"] or len(found) <= 6
    host = found["Host to GPU"]
    assert re.match(r"55\.\d+ GB/s \[", host.value) and "89 % of peak, 63 GB/s" in host.lines
    assert "half of this rate from 1 MiB, batched (4 KiB: 3.5 % of it)" in host.lines
    assert any(re.match(r"pageable at best: (9|8\.99\d) GB/s, 14 % of peak", line) for line in host.lines)


def test_the_slowest_pair_is_named_only_if_it_is_slower() -> None:
    slow = by_label(small_run())["Slowest GPU pair"]
    assert slow.value == "gpu:2 -> gpu:3" and slow.lines[0].startswith("1.94 times the time of gpu:0 -> gpu:1 [1.")
    same = [point(f"d2d/ce/gpu:{a}.device->gpu:{1 - a}.device/1048576?mode=batched", 1e-5) for a in (0, 1)]
    alike = by_label(run(same))["Slowest GPU pair"]
    assert alike.value == "GPU pairs are uniform" and "within 0 % of each other" in alike.lines


def test_pairs_are_compared_by_one_method_only() -> None:
    size = 1 << 28
    id = "d2d/{}/gpu:{}.device->gpu:{}.device/{}?mode=batched"
    both = [point(id.format("sm", a, 1 - a, size), size / 370e9) for a in (0, 1)]
    tile = by_label(run([*both, point(id.format("batch", 0, 1, size), size / 398e9)]))["Slowest GPU pair"]
    assert tile.value == "GPU pairs are uniform" and any("d2d by sm" in line for line in tile.lines)
    apart = [point(id.format("sm", 0, 1, size), size / 370e9), point(id.format("ce", 1, 0, size), size / 398e9)]
    assert "Slowest GPU pair" not in by_label(run(apart))


def test_inherited_pairs_are_counted_apart_from_measured_ones() -> None:
    (card,) = [tile for tile in tiles(read_run(RUN_I, rounds=False)) if tile.label == "Slowest GPU pair"]
    assert any(line.startswith("12 of 12 pairs were measured at 16 MiB (d2d by ce") for line in card.lines)
    assert not any("256 MiB" in line for line in card.lines)


def test_tiles_and_machine_map_leave_out_discards_and_batches_of_pieces() -> None:
    made = read_run(FULL, rounds=False)
    card = {tile.label: tile for tile in tiles(made)}["GPU to GPU"]
    assert card.value.startswith("397") and "by batch" not in " ".join(card.lines)
    assert max(share for wire in wires(made) for share in wire.shares()) <= 1.0


def test_bidirectional_rates_are_no_unidirectional_best() -> None:
    made = [
        point(H2D.format("pinned", SIZES[-1], "false"), 0.002),
        point(H2D.format("pinned", SIZES[-1], "true"), 0.001),
    ]
    assert by_label(run(made))["Host to GPU"].value.startswith("33.")


def test_a_copy_in_parts_has_the_rate_of_all_parts() -> None:
    """Pages on demand are one flow and slower: 28 and 27 GB/s in parts are 55 GB/s."""
    ends, memories = ("gpu:0", "numa:0"), ("device", "pinned")
    parts = point(f"split/ce/gpu:0.device->numa:0.pinned/{SIZES[-1]}?streams=2", SIZES[-1] / 28e9)
    parts.flows = [flow(*ends, memories, SIZES[-1], SIZES[-1] / rate) for rate in (28e9, 27e9)]
    parts.total_gbps = 55.0
    pages = point(f"demand/fault/gpu:0.managed->numa:0.managed/{SIZES[-1]}?bidirectional=false", SIZES[-1] / 17e9)
    tile = by_label(run([parts, pages]))["GPU to host"]
    assert tile.value.startswith("55.0") and any("split by ce" in line for line in tile.lines)


def test_cached_and_discarded_data_are_never_the_best_rate_of_a_tile() -> None:
    plain = point(H2D.format("pinned", SIZES[-1], "false"), 0.002)
    hot = point(H2D.format("pinned", SIZES[-1], "false") + "&cache=hot", 0.001)
    ends = f"numa:0.managed->gpu:0.managed/{SIZES[-1]}"
    thrown_away = point(f"prefetch/prefetch/{ends}?bidirectional=false&discard=with", 0.0005)
    assert by_label(run([plain, hot, thrown_away]))["Host to GPU"].value.startswith("33.")
    assert "Host to GPU" not in by_label(run([hot, thrown_away]))


def test_points_to_check_are_counted_and_linked() -> None:
    made = small_run()
    assert by_label(made)["Points to check"].value == f"4 of {len(made.points)}" and len(doubtful_ids(made)) == 4
    text = " ".join(doubt.text for doubt in doubts(made))
    assert "2 points failed" in text and "1 point missed precision" in text and "1 point not measured" in text
    doubtful = run(
        [point(H2D.format("pinned", 8, "false"), 1e-6, guards={"throttled_rounds": [{}], "above_limit": 70.0})]
    )
    assert [len(doubt.ids) for doubt in doubts(doubtful)] == [1, 1]


def test_rising_counters_are_a_reason_to_check() -> None:
    assert doubts(run([point(H2D.format("pinned", 8, "false"), 1e-6)])) == []
    made = small_run()
    grown = End(wall_s=1.0, complete=False, counts={}, gained={"gpu:0": {"ecc_uncorrected": 1}})
    object.__setattr__(made, "end", grown)
    assert "stopped early" in doubts(made)[0].text and "ECC errors rose on gpu:0 (by 1)" in doubts(made)[1].text


def test_a_parameter_missing_in_some_ids_has_no_common_value() -> None:
    """Ids omit the default, so a row may lack a value. Each other value is named, even if most points have it."""
    ends = "gpu:0.device->gpu:1.device"
    presets = [f"read/sm/{ends}/{size}?threads=256&width=4" for size in (4096, 65536, 1 << 20)]
    made = [point(id, 1e-6) for id in presets] + [point(f"read/sm/{ends}/1048576?threads=256", 2e-6)]
    made += [point(f"read/sm/{ends}/1048576?threads=512", 3e-6)]
    (family,) = overview(made)
    assert family.usual == "threads 256"
    assert {row.params: round(row.rate.value) for row in family.rows if row.rate} == {
        "width 4": 1049, "": 524, "threads 512": 350
    }  # fmt: skip
