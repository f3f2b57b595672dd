"""Bars of copies between one place and all GPUs."""

from linkscope.model.curves import Estimate, Family, Path
from linkscope.report.joint import Joint, JointRow
from linkscope.report.joint_bars import joint_figures

FAMILY = Family("all_to_one", "ce", "device", "device")


def joint(totals: list[float], bidirectional: bool = False) -> Joint:
    rows = [JointRow(Path("gpu:all", f"gpu:{i}"), 1 << 20, Estimate(total), ()) for i, total in enumerate(totals)]
    return Joint(FAMILY, "", (), tuple(rows), bidirectional)


def test_totals_of_both_directions_have_a_drawing_of_their_own() -> None:
    one, both = joint_figures([joint([180.0]), joint([195.0], bidirectional=True)], False)
    assert "gpu:all → gpu:0" in one.svg  # whole, also on a phone
    assert "180" in one.svg and "195" not in one.svg and "195" in both.svg
    assert str(both.caption).startswith("all others → one GPU, both directions")


def test_of_many_places_the_lowest_and_the_highest_totals_are_drawn_and_said() -> None:
    totals = [390.0, 371.0, 385.0, 395.0, 372.0, 380.0]
    (figure,) = joint_figures([joint(totals)], True)
    assert all((f">{total:.1f}<" in figure.svg) == (total in (371.0, 372.0, 390.0, 395.0)) for total in totals)
    assert ": 2 lowest and 2 highest of 6" in str(figure.caption) and "MODELLED" in figure.svg
