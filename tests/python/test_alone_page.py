"""tools/alone.py selects the right points and samples for its tables."""

import alone
import pytest

from invented import point, run
from linkscope.runfile import Point

COPY = (
    "d2d/ce/gpu:0.device->gpu:1.device/4096?after={}&bidirectional=false&call=memcpy&initiator={}&mode=single&peer={}"
)
IDLE = "h2d/ce/numa:0.pinned->gpu:0.device/4096?after=kernel&call=memcpy&clock=host{}&mode=single"


def sampled(id: str, *samples_us: float) -> Point:
    made = point(id, 1e-6)
    made.flows[0].samples_s = [[1e-6 * each] for each in samples_us]
    return made


def test_modes_are_shares_of_all_samples_of_one_copy_alone() -> None:
    """90 samples of 9 us, 9 of 17 us on two pairs; one sample of 60 us is too rare. Other operations do not count."""
    id = COPY.format("kernel", "dst", "on")
    others = [
        id.replace("single", "batched"), id.replace("/4096", "/8"), id.replace("false", "true"),
        id.replace("call=memcpy", "call=peer"), id.replace("mode", "idle_gap_s=0.01&mode"),
        id.replace("call=memcpy", "call=memcpy&clock=host"), id.replace("/ce/", "/sm/"),
        id.replace("gpu:1.device", "gpu:1.pool"),
    ]  # fmt: skip
    points = [sampled(id, *[9.0] * 60), sampled(id.replace("gpu:1", "gpu:2"), *[9.0] * 30, *[17.0] * 9, 60.0)]
    points += [sampled(other, 100.0) for other in others]
    points += [sampled(COPY.format("wait", "src", "off"), 1.0, 2.0, 3.0, 12.0)]
    assert alone.modes(run(points))[2:] == [
        "| dst, kernel, on | 100 | 9.0: 90%, 17.0: 9% |",
        "| src, wait, off | 4 | 2.0: 75%, 12.0: 25% |",
    ]


def test_idling_has_a_row_for_what_has_every_gap() -> None:
    gaps = {"": 6.5, "&idle_gap_s=0.0001": 7, "&idle_gap_s=0.001": 8, "&idle_gap_s=0.01": 11, "&idle_gap_s=0.1": 47}
    points = [point(IDLE.format(gap), 1e-6 * us) for gap, us in gaps.items()]
    points += [point(IDLE.replace("gpu:0", "gpu:1").format(gap), 1e-6) for gap in list(gaps)[1:]]
    points += [point(id, 1e-3) for id in (IDLE.format("&initiator=dst"), IDLE.format("").replace("pinned", "wc"))]
    points += [point(IDLE.format("").replace("clock=host", "clock=event"), 1e-3)]
    head, _, *rows = alone.idling(run(points))
    assert head == "| us | 0 ms | 0.1 ms | 1 ms | 10 ms | 100 ms |"
    (row,) = rows
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[0] == "`h2d` numa:0 -> gpu:0" and cells[1] == "6.5 [6.4, 6.6]"
    assert [float(cell.split()[0]) for cell in cells[1:]] == pytest.approx(list(gaps.values()))
