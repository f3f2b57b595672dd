"""The check of a model against held-out points: two halves, and errors by family."""

import pytest

from invented import flow, point
from linkscope.model.check import MOST, MOST_JOINT, Check, Held, deviations, split, summary
from linkscope.model.description import methods_text, shared_text
from linkscope.model.known import JOINT, deviation, family_of
from linkscope.model.observed import observed
from linkscope.runfile import PointId

H2D = "h2d/ce/numa:0.pinned->gpu:{}.device/{}?bidirectional={}&mode={}"


def of_family(mode: str = "batched") -> list:
    return [point(H2D.format(gpu, 8 << at, "false", mode), 1e-6) for gpu in range(2) for at in range(5)]


def test_held_out_points_are_not_fitted_and_both_halves_have_every_family() -> None:
    points = [*of_family(), *of_family("single")]
    kept, out = split(points, 1)
    assert {one.id for one in kept}.isdisjoint(one.id for one in out)
    assert sorted(one.id for one in [*kept, *out]) == sorted(one.id for one in points)
    for half in (kept, out):
        assert sorted(one.params["mode"] for one in half) == ["batched"] * 5 + ["single"] * 5


def test_halves_depend_on_the_seed_and_not_on_the_order() -> None:
    points = of_family()
    ids = [[one.id for one in split(points, seed)[0]] for seed in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]
    assert [one.id for one in split(points[::-1], 1)[0]] == ids[0]


def held(errors: list[float | None], both: str = "false") -> list[Held]:
    (one, *_) = observed([point(H2D.format(0, 8, both, "batched"), 1e-6)])
    return [Held(one, error, None) for error in errors]


def test_errors_are_absolute_and_points_without_a_prediction_are_counted() -> None:
    found = summary(held([-0.04, 0.01, None, 0.02, -0.03, 0.0]), lambda one: one.by_file)
    assert (found.count, found.without_total, found.median, found.worst) == (6, 1, 0.02, 0.04)
    assert found.ninety == pytest.approx(0.036)
    none = summary(held([None, None]), lambda one: one.by_file)
    assert (none.count, none.without_total, none.median, none.ninety, none.worst) == (2, 2, None, None, None)


@pytest.mark.parametrize(
    "single, joint, expected",
    [(0.029, 0.029, []), (0.031, 0.029, ["all"]), (0.01, 0.09, []), (0.01, 0.11, ["concurrent flows"])],
)
def test_bounds_are_3_percent_in_all_and_10_percent_for_joint_transfers(
    single: float, joint: float, expected: list[str]
) -> None:
    assert (MOST, MOST_JOINT) == (0.03, 0.10)
    found = Check({}, 0, tuple([*held([single] * 3), *held([joint] * 2, "true")])).too_far()
    assert [one.partition(":")[0] for one in found] == expected


def test_joint_and_single_transfers_are_separate_families() -> None:
    def name(both: str, mode: str) -> str:
        return family_of(PointId.parse(H2D.format(0, 8, both, mode)))

    assert [name("false", "batched"), name("true", "batched"), name("false", "single")] == [
        "h2d by ce, pinned -> device", "h2d by ce, pinned -> device, bidirectional",
        "h2d by ce, pinned -> device, single",
    ]  # fmt: skip


def test_a_machine_file_states_its_deviation_by_operation_and_for_concurrent_flows() -> None:
    flows = [flow("numa:0", dst, ("pinned", "device"), 8, 1e-6) for dst in ("gpu:0", "gpu:1")]
    at_once = point("concurrent/ce/numa:0.pinned->gpu:0.device/8?with=numa:0->gpu:1", 1e-6, flows=flows)
    several = [Held(of, 0.3, None) for of in observed([at_once])] * 3
    found = deviations(
        [*held([0.01] * 4 + [0.09]), *held([0.2] * 5, "true"), *held([None] * 9), *several], held_out=True
    )
    single, both = "h2d by ce, pinned -> device", "h2d by ce, pinned -> device, bidirectional"
    assert found[single] == {"points": 5, "median": 0.01, "ninety": 0.058, "held_out": True}
    assert found[both] == {"points": 5, "median": 0.2, "ninety": 0.2, "held_out": True}
    assert found[JOINT] == {"points": 6, "median": 0.3, "ninety": 0.3, "held_out": True}, (
        "bidirectional points are of one path"
    )
    assert set(deviations(held([0.01] * 4), held_out=False)) == set()  # too few points for a deviation


def test_the_deviation_of_a_prediction_is_looked_up_by_operation() -> None:
    rows = {JOINT: {"points": 9}, "h2d by ce, pinned -> device": {"points": 7}, "a": {"points": 1}}
    peers = "d2d by ce, device -> device, peer on, initiator src"
    content = {"deviation": {**rows, peers: {"points": 5}}}
    one = PointId("h2d", "ce", "numa:0", "pinned", "gpu:0", "device", 64 << 20)
    back = PointId("d2h", "ce", "gpu:0", "device", "numa:0", "pinned", 64 << 20)
    pair = PointId("d2d", "ce", "gpu:0", "device", "gpu:1", "device", 64 << 20, (("peer", "on"),))

    def name(*flows: PointId, bidirectional: bool = False) -> str | None:
        found = deviation(content, [[flow] for flow in flows], bidirectional=bidirectional)
        return found and found[0]

    assert name(one) == "h2d by ce, pinned -> device" and name(pair) == peers
    assert name(one, pair) == JOINT and name(one, back, bidirectional=True) == JOINT
    assert name(back) is None and deviation({}, [[one]], bidirectional=False) is None
    assert (
        deviation(content, [[one, one]], bidirectional=False) is None
    )  # one transfer split over two flows was never measured
    by_sm = PointId("d2d", "sm", "gpu:0", "device", "gpu:1", "device", 64 << 20)
    assert (
        name(one, by_sm) is None and name(by_sm, by_sm, bidirectional=True) is None
    )  # JOINT is measured with copy engines
    local = PointId("local", "ce", "gpu:0", "device", "gpu:0", "device", 64 << 20)
    assert name(local, local, bidirectional=True) is None and name(one, local) is None  # and never within one memory


def sm_row(content: dict, src: str, dst: str, **how: object) -> str | None:
    """The name of the row with the deviation of a copy by SM."""
    name = "h2d" if "numa" in src else "d2h" if "numa" in dst else "local" if src == dst else "d2d"
    memories = ["pinned" if "numa" in place else "device" for place in (src, dst)]
    point = PointId(name, "sm", src, memories[0], dst, memories[1], 1 << 26)
    row = deviation(content, [[point]] * (2 if how else 1), bidirectional=bool(how))
    return row and row[0]


def test_the_deviation_of_copies_by_sm_comes_from_the_accesses_by_sm() -> None:
    """`standard` has no copies by SM, but reads and writes over the same links. Within a GPU both ends count."""
    row = {"points": 1, "median": 0.0, "ninety": 0.0, "held_out": False}
    ends = ("device -> device", "device -> pinned", "pinned -> device")
    zero_copy = {f"{name} by sm, {direction}": row for name in ("read", "write") for direction in ends}
    content = {"deviation": zero_copy | {"read by sm, pinned -> device, bidirectional": row}}
    assert sm_row(content, "numa:0", "gpu:0") == "read by sm, pinned -> device"
    assert sm_row(content, "gpu:0", "numa:0") == "write by sm, device -> pinned"
    assert sm_row(content, "gpu:0", "gpu:1") == "write by sm, device -> device"
    assert sm_row(content, "numa:0", "gpu:0", both=True) == "read by sm, pinned -> device, bidirectional"
    assert sm_row(content, "gpu:0", "gpu:0") is None
    content["deviation"]["h2d by sm, pinned -> device"] = row
    assert sm_row(content, "numa:0", "gpu:0") == "h2d by sm, pinned -> device"


def test_transfers_whose_memory_kinds_are_equal_are_grouped_by_direction() -> None:
    """Managed pages have another rate in each direction; a median over both would describe neither."""
    managed = "prefetch/prefetch/{}.managed->{}.managed/{}"
    rates = {("numa:0", "gpu:0"): 48e9, ("numa:0", "gpu:1"): 48e9, ("gpu:0", "numa:0"): 10e9, ("gpu:1", "numa:0"): 10e9}
    points = [
        point(managed.format(src, dst, size), 50e-6 + size / rate)
        for (src, dst), rate in rates.items()
        for size in (1 << 20, 16 << 20, 256 << 20)
    ]
    copies, back, to = methods_text(observed(points + of_family()))
    assert back.startswith("prefetch by prefetch, managed -> managed, GPU to host: ") and " + 10 GB/s" in back
    assert to.startswith("prefetch by prefetch, managed -> managed, host to GPU: ") and " + 48 GB/s" in to
    assert copies.startswith("h2d by ce, pinned -> device: ")


def test_the_bidirectional_rate_of_a_link_is_printed_with_all_its_pairs() -> None:
    link = {"name": "pcie", "between": [["numa:0", "gpu:0"]], "both_ways_gbps": {"v": 101.9}}
    assert shared_text({"link": [link]}) == ["both directions of pcie numa:0 -> gpu:0: 101.9 GB/s"]
    link["between"].append(["numa:0", "gpu:1"])
    assert shared_text({"link": [link]}) == ["both directions of each of pcie numa:0 -> gpu:0,1: 101.9 GB/s"]
