"""The display during a run: table of results, bar, plain lines, and remaining time."""

import contextlib
import gzip
import io
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fakes import H2D, facts, plan, point
from linkscope.plan import estimated_seconds
from linkscope.report.live import LiveTable
from linkscope.report.partial import Partial, Row
from linkscope.run import forecast, plan_of, progress
from linkscope.run.budget import Budget
from linkscope.run.forecast import Forecast
from linkscope.run.noise import RunNoise
from linkscope.run.progress import Lines, WorkLeft, progress_for
from linkscope.run.states import State
from linkscope.runfile import Point, PointId, Round, RoundFlow, Run, read_run

RESULTS = Path(__file__).resolve().parents[2] / "results"
MIB = 1 << 20


def round_with_rates(id: str, number: int, *gbps: float, **guards: object) -> Round:
    """A round in which the flows of the point have these rates."""
    what = PointId.parse(id)
    ends = [(what.src, what.dst), (what.dst, what.src)]
    flows = [
        RoundFlow(src, dst, "pinned", "device", what.bytes, "measured", [what.bytes / rate / 1e9] * 3)
        for rate, (src, dst) in zip(gbps, ends, strict=False)
    ]
    return Round(
        id=id, round=number, flows=flows, batch=[4], overhead_s=1e-6, timing="virtual", verified=True, guards=guards,
        device_s=1e-3,
    )  # fmt: skip


def h2d(gpu: int = 0, size: int = MIB, both: str = "false", memory: str = "pinned") -> str:
    id = H2D.format(size, both, "batched").replace("gpu:0", f"gpu:{gpu}")
    return id.replace("pinned", memory)


def table_of(records: list, ids: list[str] | None = None, modelled: bool = False, limit: float | None = 60.0):
    made = LiveTable(
        ids if ids is not None else list(dict.fromkeys(record.id for record in records)),
        lambda what: (limit, "the test says so") if limit else None,
        modelled=modelled,
    )
    for record in records:
        made.add(record)
    return made


def text_of(lines: list[tuple[str, str]]) -> str:
    return "\n".join(line for line, _ in lines)


# The table of results


def test_equal_paths_share_a_line() -> None:
    records = [round_with_rates(h2d(gpu), number, 54.0 + gpu / 10) for number in range(2) for gpu in range(4)]
    records.append(round_with_rates(h2d(0, memory="pageable"), 0, 9.05))
    assert text_of(table_of(records, modelled=True).table(100, 20)) == "\n".join(
        [
            "MODELLED, best rates                                   so far  % of peak     at  rounds  done",
            "h2d by ce, pageable → device  numa:0 → gpu:0        9.05 GB/s       15 %  1 MiB       1   0/1",
            "h2d by ce, pinned → device    numa:0 → gpu:0-3 (4)  54.3 GB/s       90 %  1 MiB       2   0/4",
        ]
    )
    assert "MODELLED" not in text_of(table_of(records).table(100, 20))


def test_paths_that_differ_have_their_own_lines_when_each_point_is_measured() -> None:
    ids = [h2d(gpu, size) for gpu in range(2) for size in (8, MIB)]
    records = [round_with_rates(h2d(0), 0, 50.0), round_with_rates(h2d(1, 8), 0, 0.01)]
    assert [len(row.paths) for row in rows_of(records, ids)] == [2]  # the slower path is not measured yet
    records += [round_with_rates(h2d(1), 0, 25.0), round_with_rates(h2d(0, 8), 0, 0.01)]
    assert [row.rate for row in rows_of(records, ids)] == pytest.approx([50.0, 25.0])
    assert [row.share for row in rows_of(records, ids)] == pytest.approx([5 / 6, 5 / 12])


def rows_of(records: list, ids: list[str]) -> list[Row]:
    found = Partial(ids, lambda what: (60.0, "the test says so"))
    for record in records:
        found.add(record)
    return found.rows()


def test_the_current_value_is_the_median_of_the_counted_rounds() -> None:
    id = h2d()
    records = [
        round_with_rates(id, 0, 50.0),
        round_with_rates(id, 1, 10.0, throttled=["hw_thermal"]),
        round_with_rates(id, 1, 51.0),
        round_with_rates(id, 2, 40.0),
    ]
    [row] = rows_of(records, [id])
    assert row.rate == pytest.approx(50.0) and row.rounds == (3, 3) and (row.done, row.points) == (0, 1)
    only_hot = round_with_rates(id, 0, 10.0, throttled=["hw_thermal"])
    assert rows_of([only_hot], [id])[0].rate == pytest.approx(10.0)


def test_a_bidirectional_point_shows_the_total_and_the_share_of_one_direction() -> None:
    id = h2d(both="true")
    [row] = rows_of([round_with_rates(id, 0, 30.0, 24.0)], [id])
    assert row.rate == pytest.approx(54.0) and row.share == pytest.approx(0.5)
    assert str(row.group) == "h2d by ce, pinned <-> device"
    [row] = rows_of([round_with_rates(id, 0, 30.0, 24.0, together_s=2 * MIB / 40e9)], [id])
    assert row.rate == pytest.approx(40.0)  # this rule divides all bytes by the time until the last flow ends


def test_the_record_of_a_point_replaces_its_rounds() -> None:
    id, other = h2d(), h2d(1)
    records = [round_with_rates(id, 0, 50.0), round_with_rates(other, 0, 50.0)]
    failed = point(id, status="failed", reason="wrong data")
    assert [len(row.paths) for row in rows_of([*records, failed], [id, other])] == [1]
    assert rows_of([round_with_rates(id, 0, 50.0), failed], [id]) == []
    [row] = rows_of([round_with_rates(id, 0, 50.0), point(id, median_s=1e-5, gbps=48.0, limit_gbps=60.0)], [id])
    assert row.rate == 48.0 and row.share == pytest.approx(0.8) and row.done == 1


def test_an_operation_without_bytes_has_a_time() -> None:
    id = "launch/kernel/numa:0.pinned->gpu:0.device/0?mode=batched"
    record = round_with_rates(h2d(), 0, 1.0)
    record.id, record.flows[0].bytes, record.flows[0].samples_s = id, 0, [2.342e-6]
    assert "  2.34 µs  " in text_of(table_of([record]).table(100, 20))


def test_without_results_the_table_is_its_heading() -> None:
    head = text_of(table_of([], [h2d()], modelled=True).table(80, 20))
    assert re.fullmatch("MODELLED, best rates +so far  % of peak +at  rounds  done", head)
    assert table_of([], [h2d()]).best() == ""


# Widths and heights


def many() -> list[Round]:
    return [
        round_with_rates(h2d(gpu, size, memory=memory), 0, rate * (1 + gpu))
        for memory, rate in (("pageable", 9.0), ("pinned", 55.0), ("registered", 54.0))
        for gpu in range(4)
        for size in (MIB, 4 * MIB)
    ]


@pytest.mark.parametrize("width", [1, 5, 12, 20, 30, 40, 60, 80, 140])
@pytest.mark.parametrize("height", [0, 1, 2, 3, 5, 50])
def test_the_table_fits_the_terminal(width: int, height: int) -> None:
    lines = table_of(many(), modelled=True).table(width, height)
    assert len(lines) <= height and all(len(line) <= width for line, _ in lines)
    assert bool(lines) == (height > 0 and width >= 20)
    assert not lines or lines[0][0].startswith("MODELLED")


@pytest.mark.parametrize("width", [39, 60, 80])
def test_a_narrow_table_keeps_name_value_and_percentage(width: int) -> None:
    text = text_of(table_of(many(), limit=400.0).table(width, 4))
    assert re.search(r"^h2d (by )?ce,? pinned( → |->)device +(numa:0 .*)?220 GB/s +55 %", text, re.MULTILINE), text


def test_a_low_table_merges_paths_then_omits_the_slowest() -> None:
    made = table_of(many())
    assert len(made.table(100, 50)) == 1 + 12
    merged = text_of(made.table(100, 4)).splitlines()[1:]
    assert [line.split()[3] for line in merged] == ["pageable", "pinned", "registered"]
    assert all("(4)" in line for line in merged)
    least = text_of(made.table(100, 3)).splitlines()
    assert "220 GB/s" in least[1] and least[2] == "and 2 more"


def test_the_family_being_measured_is_highlighted() -> None:
    lines = table_of([round_with_rates(h2d(memory="pageable"), 0, 9.0), round_with_rates(h2d(), 0, 55.0)]).table(
        100, 20
    )
    assert [bool(style) for _, style in lines] == [True, False, True]


def test_a_place_name_cannot_send_escape_sequences() -> None:
    record = round_with_rates(h2d().replace("numa:0", "disk:%1b[31mred"), 0, 5.0)
    assert "\x1b" not in text_of(table_of([record]).table(100, 20))


# Plain lines


class Clock:
    """Replaces the module `time`."""

    def __init__(self, now: list[float]) -> None:
        self.monotonic = lambda: now[0]
        self.process_time = lambda: 0.0


def left(share: float, seconds: float | None = None, points: int = 7) -> Callable[[], WorkLeft]:
    return lambda: WorkLeft(share, seconds, points, "round 2 of 6")


def test_without_a_terminal_there_is_a_plain_line_every_ten_seconds(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "time", Clock(now))
    stream = io.StringIO()
    lines = progress_for(table_of([], [h2d()], modelled=True), stream)
    assert isinstance(lines, Lines)
    for second in range(0, 43, 2):
        now[0] = float(second)
        if second == 14:
            lines.record(round_with_rates(h2d(), 0, 54.0))
        lines.tick(left(second / 50, 50.0 - second, points=20 - second // 2))
    lines.stop()
    assert stream.getvalue().splitlines() == [
        " 20%, round 2 of 6, 15 points unfinished, about 40 s left",
        " 40%, round 2 of 6, 10 points unfinished, about 30 s left",
        "      MODELLED, best so far: h2d 54.0 GB/s at 1 MiB (90 % of peak)",
        " 60%, round 2 of 6, 5 points unfinished, about 20 s left",
        " 80%, round 2 of 6, 0 points unfinished, about 10 s left",
    ]


def test_plain_lines_whose_reader_has_ended_do_not_end_the_run(monkeypatch) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    shown = progress.Points(table_of([], [h2d()]), stream)
    shown.record(point(h2d(), median_s=1e-3))
    shown.tick(left(0.5))
    with contextlib.suppress(BrokenPipeError):
        stream.close()  # writes the rest


def test_the_unidirectional_rate_is_preferred_as_best_rate() -> None:
    records = [round_with_rates(h2d(), 0, 54.0), round_with_rates(h2d(both="true"), 0, 50.0, 50.0)]
    assert table_of(records, limit=None).best() == "best so far: h2d 54.0 GB/s at 1 MiB"
    assert table_of(records[1:]).best() == "best so far: h2d bidirectional 100 GB/s at 1 MiB (83 % of peak)"


def test_a_rate_above_its_peak_is_marked_in_the_line_and_in_the_table() -> None:
    made = table_of([round_with_rates(h2d(), 0, 72.0)])
    assert made.best() == "best so far: h2d 72.0 GB/s at 1 MiB (120 % (!) of peak)"
    assert "120 % (!)" in text_of(made.table(140, 10))


# The remaining work


def replayed(monkeypatch, run: Run, order: list[Round | Point]) -> list[tuple[float, float, WorkLeft]]:
    """The forecasts of a run on hardware: seconds since its start, its total seconds, and the work left."""
    now = [0.0]
    made = plan_of(run)
    states = {id: State(PointId.parse(id), estimated_seconds(PointId.parse(id), facts(8))) for id in made.points}
    monkeypatch.setattr(forecast, "time", Clock(now))
    looks = Forecast(made, states, Budget(None, modelled=False), RunNoise(states), modelled=False)
    points: dict[str, Point] = {}
    wanted = dict.fromkeys(made.points, made.rounds)
    forecasts = []
    for record in order:
        if isinstance(record, Round):
            state = states[record.id]
            state.rounds.append(record)
            state.cost_s = record.device_s
            now[0] += record.device_s
            wanted[record.id] = max(wanted[record.id], made.rounds + 3 * (record.round >= made.rounds))
        else:
            points[record.id] = record
        if sum(len(state.rounds) for state in states.values()) % 20 == 0 and isinstance(record, Round):
            forecasts.append((now[0], looks.left(points, wanted, record.round)))
    return [(when, now[0], work) for when, work in forecasts]


def test_on_hardware_the_share_never_falls_and_the_remaining_time_is_right(monkeypatch) -> None:
    path = RESULTS / "h200x1-standard-a.jsonl.gz"
    decoder = msgspec.json.Decoder(Round | Point)
    order = [decoder.decode(line) for line in gzip.decompress(path.read_bytes()).splitlines()[1:-1]]
    forecasts = replayed(monkeypatch, read_run(path), order)
    shares = [work.share for _, _, work in forecasts]
    assert shares == sorted(shares) and shares[-1] > 0.98
    assert {work.stage for _, _, work in forecasts} >= {"round 1 of 6", "round 6 of 6", "extra round 3"}
    for when, total, work in forecasts:
        if when > total / 3:  # the first round also calibrates
            assert work.left_s == pytest.approx(total - when, rel=0.2, abs=0.05 * total), (when, work)
            assert work.share == pytest.approx(when / total, abs=0.05)


def imprecise(spread: float, rounds: int, ids: list[str]) -> tuple[Forecast, dict[str, State]]:
    made = plan(*ids)
    states = {id: State(PointId.parse(id), 1e-3) for id in made.points}
    for number in range(rounds):
        for id, state in states.items():
            state.rounds.append(round_with_rates(id, number, 50.0 * (1 + spread * (number % 2))))
            state.cost_s = 1e-3
    return Forecast(made, states, Budget(None, modelled=True), RunNoise(states), modelled=True), states


@pytest.mark.parametrize("spread, rounds, extra", [(0.0, 2, 0), (0.05, 2, 3), (0.005, 2, 0), (0.05, 5, 3)])
def test_extra_rounds_are_expected_if_the_rounds_scatter_too_much(spread, rounds, extra) -> None:
    ids = [h2d(size=MIB << n) for n in range(3)]
    looks, _ = imprecise(spread, rounds, ids)
    assert looks.left({}, dict.fromkeys(ids, 6), rounds).share == pytest.approx(rounds / (6 + extra))


def test_the_share_never_falls_even_if_the_forecast_was_wrong() -> None:
    ids = [h2d(size=MIB << n) for n in range(3)]
    looks, states = imprecise(0.0, 5, ids)
    wanted = dict.fromkeys(ids, 6)
    before = looks.left({}, wanted, 5)
    for id, state in states.items():
        state.rounds.append(round_with_rates(id, 5, 70.0))
    after = looks.left({}, wanted, 5)
    assert before.share == pytest.approx(5 / 6) and after.share == before.share
    assert after.points == 3  # three more rounds each


def test_work_beyond_the_budget_is_not_expected() -> None:
    ids = [h2d(size=MIB << n) for n in range(3)]
    made = plan(*ids, budget_s=9.5e-3)
    states = {id: State(PointId.parse(id), 1e-3) for id in ids}
    budget = Budget(made.budget_s, modelled=True)
    looks = Forecast(made, states, budget, RunNoise(states), modelled=True)
    for number in range(3):
        for id, state in states.items():
            state.rounds.append(round_with_rates(id, number, 50.0))
            state.cost_s = 1e-3
            budget.add(1e-3)
    assert looks.left({}, dict.fromkeys(ids, 6), 2).share == pytest.approx(9 / 9.5)
