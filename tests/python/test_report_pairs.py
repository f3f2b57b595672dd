"""Anomalies of a complete machine: classes of GPU pairs, peer access, directions that run in turn."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from invented import point
from linkscope.cli.main import main
from linkscope.report.findings import point_findings
from linkscope.runfile import Point
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

SIZE = 64 << 20
D2D = "d2d/ce/gpu:{}.device->gpu:{}.device/{}?bidirectional={}&peer={}"
H2D = "h2d/ce/numa:0.{}->gpu:0.device/{}?bidirectional={}"


def pair(src: int, dst: int, gbps: float, *, both: bool = False, peer: str = "on", **fields: str) -> Point:
    return point(D2D.format(src, dst, SIZE, str(both).lower(), peer), SIZE / gbps / 1e9, **fields)


def findings_of_kind(points: Iterable[Point], kind: str) -> list[str]:
    return [finding.text for finding in point_findings(points) if finding.kind == kind]


def test_a_class_of_pairs_has_at_least_two_equal_pairs() -> None:
    near, far = [(0, 1), (1, 0), (2, 3), (3, 2)], [(0, 2), (2, 0), (1, 3), (3, 1)]
    points = [pair(*ends, 48) for ends in near] + [pair(*ends, 24 + 0.1 * n) for n, ends in enumerate(far)]
    (text,) = findings_of_kind(points, "classes of pairs")
    assert "form 2 classes" in text
    assert "4 at 48 GB/s, such as gpu:0 -> gpu:1; 4 at 24.3 GB/s, such as gpu:0 -> gpu:2" in text
    assert findings_of_kind(points[:4], "classes of pairs") == []
    assert findings_of_kind([*points[:4], pair(0, 2, 24)], "classes of pairs") == [], (
        "a single slower pair is a slow path and no class"
    )
    small = [point(one.id.replace(str(SIZE), "4096"), 1e-6 * n) for n, one in enumerate(points, 1)]
    assert findings_of_kind(small, "classes of pairs") == [], "small copies do not show the rate of a link"


def test_different_links_are_different_classes() -> None:
    over = {"direct": "wire gpu:0->gpu:1 (nvlink), 25 GB/s raw", "hop": "wire gpu:3->gpu:1 (nvlink), 25 GB/s raw"}
    points = [pair(0, 1, 24, limit_source=over["direct"]), pair(1, 0, 24, limit_source=over["direct"])]
    points += [pair(0, 2, 24, limit_source=over["hop"]), pair(2, 0, 24, limit_source=over["hop"])]
    (text,) = findings_of_kind(points, "classes of pairs")
    assert "2 at 24 GB/s over wire, such as gpu:0 -> gpu:1; 2 at 24 GB/s through another GPU" in text


def test_missing_peer_access_is_an_anomaly_with_both_rates() -> None:
    ends = [(0, 1), (1, 0)]
    direct, staged = [pair(*one, 48) for one in ends], [pair(*one, 11, peer="off") for one in ends]
    (text,) = findings_of_kind([*direct, *staged], "without peer access")
    assert "go through the host: 11 GB/s on 2 paths, against 48 GB/s with it" in text
    assert "between host and GPU" not in text
    for gbps, about in ((12, True), (24, False)):
        host = point(H2D.format("pinned", SIZE, "false"), SIZE / gbps / 1e9)
        (text,) = findings_of_kind([*direct, *staged, host], "without peer access")
        assert ("the path between host and GPU reaches 12 GB/s" in text) == about
    assert findings_of_kind([*direct, *(pair(*one, 47, peer="off") for one in ends)], "without peer access") == []
    none = point(D2D.format(0, 2, SIZE, "false", "on"), status="unsupported", reason="no")
    (text,) = findings_of_kind([none, pair(0, 2, 9, peer="off")], "without peer access")
    assert text == "gpu:0 -> gpu:2 (1) have no peer access: 9 GB/s through the host"
    assert findings_of_kind([pair(0, 2, 9, peer="off")], "without peer access") == [], (
        "no copy with peer access was tried"
    )


@pytest.mark.parametrize(("both", "ratio"), [(9, "0.90"), (11, "1.10"), (12, ""), (20, "")])
def test_directions_that_run_in_turn_are_found(both: float, ratio: str) -> None:
    one = point(H2D.format("pageable", SIZE, "false"), SIZE / 10e9)
    found = findings_of_kind(
        [one, point(H2D.format("pageable", SIZE, "true"), 2 * SIZE / both / 1e9)], "contending directions"
    )
    assert bool(found) == bool(ratio)
    if ratio:
        assert (
            f"on numa:0 -> gpu:0 has {ratio} times the unidirectional rate: {both} GB/s in total at 64 MiB, "
            "unidirectional 10 GB/s: the two directions contend" in found[0]
        )


def test_the_report_of_4029gp_shows_classes_peer_access_and_directions_in_turn(tmp_path: Path, capsys) -> None:
    """CS-26, CS-34: four classes of pairs; CS-33: the PCIe rate without peer access; CS-31: pageable copies in turn."""
    run = tmp_path / "run.jsonl"
    globs = ("d2d/ce/*/67108864?*mode=batched*", "h2d/ce/*/67108864?*batched*", "h2d/ce/*.pageable*/16777216?*batched*")
    only = [word for glob in globs for word in ("--only", glob)]
    assert main(["run", "--machine", "4029gp", *only, "--rounds", "3", "-o", str(run)]) == 0
    assert main(["report", str(run), "--markdown", str(tmp_path / "run.md")]) == 0
    markdown = (tmp_path / "run.md").read_text().replace("\\", "")
    capsys.readouterr()
    assert main(["report", str(run), "--summary=full"]) == 0
    standing_out = re.sub(r"\s+", " ", capsys.readouterr().out.partition("Anomalies")[2])
    for text in (standing_out, markdown):
        assert "GPU pairs form 4 classes" in text
        for pairs, gbps, where, example in (
            (16, 48, "over nvlink-2", "gpu:0 → gpu:3"), (24, 24, "through another GPU", "gpu:0 → gpu:5"),
            (8, 24, "over nvlink-1", "gpu:0 → gpu:1"), (8, 24, "over nvlink-1-or-2-2", "gpu:0 → gpu:2"),
        ):  # fmt: skip
            (found,) = re.findall(rf"\b{pairs} at ([\d.]+) GB/s {where}, such as {example}\b", text)
            assert float(found) == pytest.approx(gbps, rel=0.02)
        assert re.search(r"go through the host: 11[\d.]* GB/s on 56 paths", text)
        assert re.search(r"the path between host and GPU reaches 12[\d.]* GB/s", text)
        slow = r"h2d by ce, pageable → device \([^)]*bidirectional\) on"
        turns = slow + r" numa:[^;]*the two directions contend"
        assert re.search(turns + r" \(and 15 more curves\)", text)
