"""tools/comm_scope_cost.py, agreement.py, needs.py: cost and agreement of runs, on points with known answers."""

from pathlib import Path

import agreement
import comm_scope_cost
import needs
import pytest

from fakes import H2D, flow, point
from linkscope.runfile import Point, read_run

ROOT = Path(__file__).parents[2]
RUN = read_run(ROOT / "results" / "h200x2-standard-b.jsonl.gz", rounds=False)
ROWS = """\
Benchmark                                                     Time             CPU   Iterations UserCounters...
Comm_cudaMemcpyAsync_GPUToPinned/0/0/log2(N):24/manual_time            300000 ns       900000 ns         3334 bytes=16M
Comm_cudaMemcpyAsync_GPUToPinned/0/0/log2(N):24/manual_time            300000 ns       600000 ns         3334 bytes=16M
Comm_cudaMemcpyAsync_GPUToPinned/0/0/log2(N):24/manual_time            300000 ns       600000 ns         3334 bytes=16M
Comm_cudaMemcpyAsync_GPUToPinned/0/0/log2(N):24/manual_time_mean       300000 ns       700000 ns            3 bytes=16M
Comm_cudaMemcpyAsync_GPUToHost/0/0/log2(N):24/manual_time             1000000 ns       500000 ns         1000 bytes=16M
"""


def measured(size: int, seconds: float, device_s: float = 0.1, status: str = "ok") -> Point:
    target = 0.01 if size >= 1 << 20 else 0.05
    return point(
        H2D.format(size, "false", "batched"), status=status, flows=[flow([seconds])], median_s=seconds,
        ci95_s=(seconds * 0.99, seconds * 1.01), device_s=device_s, precision_target=target,
    )  # fmt: skip


@pytest.mark.parametrize(("seconds", "cost"), [(1e-3, 5.0), (0.4, 6.0), (3.0, 15.0), (1.0, 5.0)])
def test_the_rule_fills_five_repetitions_of_one_second(seconds: float, cost: float) -> None:
    assert comm_scope_cost.by_rule_s(seconds) == pytest.approx(cost)


def test_only_measured_points_with_bytes_are_compared() -> None:
    latency = point("latency/sm/gpu:0.device->gpu:1.device/0", median_s=1e-6, flows=[flow([1e-6])])
    points = [measured(8, 1e-6), measured(64, 1e-6, status="failed"), latency, measured(16, 1e-6, status="inherited")]
    assert [of.bytes for of in comm_scope_cost.compared(points)] == [8]


def test_the_cost_of_the_tool_is_its_cpu_time_if_longer(tmp_path: Path) -> None:
    printed = tmp_path / "printed.txt"
    printed.write_text(ROWS)
    assert comm_scope_cost.tool_factors(printed) == [2.0, 1.0]
    printed.write_text("nothing of the kind\n")
    with pytest.raises(SystemExit, match="has no line of Comm"):
        comm_scope_cost.tool_factors(printed)


def test_the_committed_run_took_a_fiftieth_of_the_time_of_comm_scopes_rule() -> None:
    ours = comm_scope_cost.cost_of(RUN)
    samples = [read_run(ROOT / "results" / f"h200x{n}-comm-scope.jsonl.gz", rounds=False) for n in (1, 2)]
    factor = comm_scope_cost.total(map(comm_scope_cost.cost_of, samples)).factor
    assert ours.points == 612 and ours.by_rule_s == pytest.approx(5 * 612, rel=0.01)
    assert factor > 1 and ours.by_rule_s * factor / ours.seconds > 50
    table = "\n".join(comm_scope_cost.lines(RUN, samples, []))
    assert "| linkscope | 74.42 | 1 | 8.2 |" in table and "82.4 s of wall time" in table


def test_medians_agree_within_their_precision() -> None:
    assert agreement.agree(measured(1 << 20, 1.0), measured(1 << 20, 1.009))
    assert not agreement.agree(measured(1 << 20, 1.0), measured(1 << 20, 1.011))
    assert agreement.agree(measured(8, 1.0), measured(8, 1.049))
    assert not agreement.agree(measured(8, 1.0), measured(8, 0.94))


def test_the_table_has_the_agreeing_share_of_all_and_of_precise_points(capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [
        (measured(8, 1.0), measured(8, 1.02)),
        (measured(1 << 20, 1.0), measured(1 << 20, 1.2, status="missed_precision")),
    ]
    agreement.print_agreement(pairs)
    printed = capsys.readouterr().out
    assert (
        "| all | 2 | 50.0% | 50.0% |" in printed and "| all within precision in both | 1 | 100.0% | 100.0% |" in printed
    )
    assert "| of these, neither pageable nor managed memory | 2 | 50.0% |" in printed
    disturbed = [
        point(
            H2D.replace("pinned", memory).format(8, "false", "batched"), status="ok", flows=[flow([1.0])], median_s=1.0,
            ci95_s=(0.9, 1.1), precision_target=0.05,
        )
        for memory in ("pageable", "managed")
    ]  # fmt: skip
    agreement.print_agreement([*pairs, *((one, one) for one in disturbed)])
    printed = capsys.readouterr().out
    assert (
        "| of these, neither pageable nor managed memory | 2 | 50.0% |" in printed
        and "measured in both | 4 |" in printed
    )


def test_points_within_precision_are_counted_by_operation() -> None:
    def of(id: str, status: str) -> Point:
        return point(id, status=status, flows=[flow([1e-3])], median_s=1e-3, device_s=0.5)

    pageable, zero_copy = H2D.replace("pinned", "pageable"), "read/sm/gpu:0.device->gpu:1.device/{}?blocks=sms"
    points = [
        of(H2D.format(8, "false", "batched"), "ok"),
        of(H2D.format(8, "false", "single"), "missed_precision"),
        of(pageable.format(1 << 20, "false", "batched"), "missed_precision"),
        of(zero_copy.format(1 << 20), "ok"),
        of(zero_copy.format(2 << 20), "missed_precision"),
        of("latency/sm/gpu:0.device->gpu:1.device/0", "ok"),
        of(H2D.format(64, "false", "batched"), "inherited"),
        of("d2d/ce/gpu:0.device->gpu:1.device/8?mode=batched&peer=off", "ok"),
        point(H2D.format(64, "true", "batched"), status="ok", flows=[flow([1e-3])] * 2, median_s=1e-3, device_s=0.5),
        point("concurrent/ce/gpu:0.device->gpu:1.device/8?with=gpu:2->gpu:3", status="ok", flows=[flow([1e-3])] * 2,
              median_s=1e-3, device_s=0.5),
    ]  # fmt: skip
    rows = list(needs.brief(points))[2:]
    kinds = "pinned, registered and device memory"
    assert sorted(rows) == sorted(
        [
            "| SM accesses to host and peer memory (zero-copy), from 1 MiB | 2 | 50% | 1.0 | 0.5 |",
            f"| batched copies, {kinds}, no peer access, below 1 MiB | 1 | 100% | 0.5 | 0.0 |",
            f"| batched copies, {kinds}, below 1 MiB | 2 | 100% | 1.0 | 0.0 |",
            "| latencies | 1 | 100% | 0.5 | 0.0 |",
            f"| single copies, {kinds}, below 1 MiB | 1 | 0% | 0.5 | 0.5 |",
            "| pageable memory | 1 | 0% | 0.5 | 0.5 |",
            "| concurrent flows | 1 | 100% | 0.5 | 0.0 |",
            "| all | 9 | 67% | 4.5 | 1.5 |",
        ]
    )
    assert len(list(needs.brief(points[6:7]))) == 2, "a table without measured points is only its heading"


def test_cells_of_nvbandwidth_are_compared_one_by_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = "memcpy\n           0         1\n 0       N/A    {}\n 1    100.00       N/A\n\nSUM some_table_ce 1\n"
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, value in zip(files, ("200.00", "204.00"), strict=True):
        path.write_text(table.format(value))
    found = [agreement.cells(path) for path in files]
    assert [list(of.values()) for of in found] == [[200.0, 100.0], [204.0, 100.0]] and "some_table_ce 1" in found[0]
    agreement.print_cells(*found)
    assert "| by copy engine | 2 | 50.0% | 1.00% |" in capsys.readouterr().out
