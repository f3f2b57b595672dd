"""The number of uses after which memory pays off, computed by hand and from the constants of a model."""

import re

import pytest

from invented import point, run
from linkscope.cli.main import main
from linkscope.model.break_even import AT_ONCE, NEVER, STAGED, BreakEven, Choice, Kind, Uses, cheaper, choices, compared
from linkscope.model.curves import Estimate
from linkscope.model.memory_costs import PHASES, MemoryCosts, over_size, together
from linkscope.report.break_even import break_even_text, break_evens, compared_sizes
from linkscope.report.cost_chart import cost_charts
from linkscope.report.details import details
from linkscope.report.html import page
from linkscope.report.markdown import to_markdown
from linkscope.report.plain import break_even_to_text
from linkscope.run import benchmark_table
from linkscope.runfile import Point

MIB = 1 << 20
US = 1e-6


def cost(memory: str, phase: str, size: str, seconds: float, ends: float = 0.0, where: str = "") -> Point:
    """`ends`: half the width of the interval as a fraction of the value."""
    at = where or ("numa:0.{0}->numa:0.{0}" if memory == "pageable" else "numa:0.{0}->gpu:0.device").format(memory)
    id = f"allocation/cpu/{at}/0?phase={phase}&size={size}"
    return point(id, seconds, ci95_s=(seconds * (1 - ends), seconds * (1 + ends)))


def copy(memory: str, size: int, seconds: float, ends: float = 0.0, **fields) -> Point:
    id = f"h2d/ce/numa:0.{memory}->gpu:0.device/{size}?after=kernel&bidirectional=false&mode=batched"
    return point(id, seconds, ci95_s=(seconds * (1 - ends), seconds * (1 + ends)), **fields)


def life(memory: str, size: str, seconds: dict[str, float], ends: float = 0.0) -> list[Point]:
    return [cost(memory, phase, size, seconds[phase], ends) for phase in PHASES[memory]]


PAGEABLE = {"allocate": 2 * US, "touch": 100 * US, "free": 8 * US}
PINNED = {"allocate": 300 * US, "map": 0.0, "touch": 10 * US, "free": 50 * US}
REGISTERED = {
    "allocate": 2.5 * US, "touch": 140 * US, "register": 60 * US, "map": 0.0, "unregister": 30 * US, "free": 9 * US
}  # fmt: skip


def at_1_mib(ends: float = 0.0) -> list[Point]:
    """Pageable 110 us and 100 us per copy; pinned 360 us and 20 us; registered 90 us more than pageable, and 20 us."""
    return [
        *life("pageable", "1MiB", PAGEABLE, ends), *life("pinned", "1MiB", PINNED, ends),
        *life("registered", "1MiB", REGISTERED, ends), copy("pageable", MIB, 100 * US, ends),
        copy("pinned", MIB, 20 * US, ends), copy("registered", MIB, 20 * US, ends),
    ]  # fmt: skip


def by_name(points: list[Point]) -> dict[str, Choice]:
    return {one.name: one for one in choices(points)}


def against(one: Choice, name: str) -> BreakEven:
    (found,) = [other for other in one.against if str(other.than) == name]
    return found


@pytest.mark.parametrize(
    ("extra", "gain", "uses"),
    [
        (250, 80, Uses(4)),  # three transfers gain 240
        (240, 80, Uses(4)),  # equal after three, cheaper after four
        (10, 80, AT_ONCE),
        (-10, 80, AT_ONCE),
        (0, 1, AT_ONCE),
        (10, 0, NEVER),
        (10, -1, NEVER),
        (0, 0, NEVER),
        (-10, 0, AT_ONCE),
        (-10, -3, Uses(1, 3)),  # three transfers cost 9 of the 10
        (-9, -3, Uses(1, 2)),
        (-3, -3, NEVER),
    ],
)
def test_uses_are_counted_from_a_number_up_to_a_number_or_never(extra: float, gain: float, uses: Uses) -> None:
    assert cheaper(extra, gain) == uses
    for n in range(1, 10):
        within = uses.first is not None and uses.first <= n and (uses.last is None or n <= uses.last)
        assert within == (extra < n * gain)


def test_break_even_is_the_cost_of_pinning_over_the_gain_of_a_copy() -> None:
    found = by_name(at_1_mib())
    pinned, registered, pageable = found["pinned"], found["registered"], found["pageable"]
    assert pinned.cost.time.value == pytest.approx(360 * US) and pinned.transfer.time.value == 20 * US
    assert against(pinned, "pageable").uses == Uses(4)  # 250 us over 80 us
    assert against(registered, "pageable").uses == Uses(2)  # 90 us: the touch is common to both
    assert registered.cost.time.value == pytest.approx(241.5 * US)
    assert against(registered, "pinned").uses == AT_ONCE  # 118.5 us less, and equally fast
    assert against(pageable, "pinned").uses == Uses(1, 3)
    assert set(pinned.ids) == {p.id for p in at_1_mib() if "pinned" in p.id}
    assert [str(one.than) for one in pageable.against] == ["pinned"]


def test_the_interval_comes_from_the_interval_ends_of_the_points() -> None:
    """At 10 %: extra 360 -+ 36 less 110 +- 11, gain 100 -+ 10 less 20 +- 2: 203 / 92 at best, 297 / 68 at worst."""
    one = against(by_name(at_1_mib(0.1))["pinned"], "pageable")
    assert (one.at_best, one.uses, one.at_worst) == (Uses(3), Uses(4), Uses(5))
    assert break_even_text(one) == "from 4 [3, 5]"
    bare = [Point(**{name: getattr(p, name) for name in p.__struct_fields__} | {"ci95_s": None}) for p in at_1_mib()]
    assert break_even_text(against(by_name(bare)["pinned"], "pageable")) == "from 4"


def test_intervals_may_reach_from_at_once_to_never() -> None:
    def text(cost_s: Estimate, transfer: Estimate) -> str:
        base = Estimate(10.0, 9.0, 11.0), Estimate(4.0, 3.5, 4.5)
        return break_even_text(BreakEven(Kind("pageable"), *compared(cost_s, transfer, *base)))

    assert text(Estimate(10.0, 9.0, 11.0), Estimate(4.0, 3.5, 4.5)) == "alike"
    assert text(Estimate(20.0, 19.0, 21.0), Estimate(3.0, 2.5, 3.25)) == "from 11 [5, 49]"
    assert text(Estimate(20.0, 19.0, 21.0), Estimate(3.0, 2.5, 4.0)) == "never [from 5, never]"  # no certain gain
    assert text(Estimate(2.0, 1.0, 3.0), Estimate(5.0, 4.4, 5.6)) == "at once [at once, up to 2]"  # and no certain loss
    assert text(Estimate(20.0, 19.0, 21.0), Estimate(5.0, 4.6, 5.5)) == "never"
    assert text(Estimate(2.0, 1.0, 3.0), Estimate(1.0, 0.5, 1.5)) == "at once"
    assert text(Estimate(2.0, 1.0, 3.0), Estimate(5.0, 4.9, 5.1)) == "up to 7 [3, 24]"
    assert text(Estimate(2.0, None, None), Estimate(1.0, 0.5, 1.5)) == "at once"


def test_a_bounce_buffer_costs_another_copy_and_both_memories() -> None:
    within = "h2h/cpu/numa:0.pageable->numa:0.pinned/1048576?initiator=src&mode=batched"
    found = by_name([*at_1_mib(), point(within, 50 * US)])
    assert found[STAGED].cost.time.value == pytest.approx(470 * US)
    assert found[STAGED].transfer.time.value == pytest.approx(70 * US)
    assert against(found[STAGED], "pageable").uses == Uses(13)  # 360 us over 30 us; equal after 12, cheaper after 13
    assert against(found[STAGED], "pinned").uses == NEVER
    assert within in found[STAGED].ids
    back = within.replace("pageable", "x").replace("pinned", "pageable").replace("x", "pinned")
    assert STAGED not in by_name([*at_1_mib(), point(back, 50 * US)])  # the opposite direction needs copies from a GPU
    assert STAGED not in by_name([*at_1_mib(), point(within.replace("numa:0", "numa:1"), 50 * US)])


def test_costs_are_interpolated_and_extrapolated() -> None:
    """A call of 10 us and 5 us per MiB; intervals of 1 us and 2 us to either side."""
    known = {
        MIB: point("allocation/cpu/numa:0.pageable->numa:0.pageable/0?phase=free&size=1MiB", 15 * US,
                   ci95_s=(14 * US, 16 * US)),
        3 * MIB: point("allocation/cpu/numa:0.pageable->numa:0.pageable/0?phase=free&size=3MiB", 25 * US,
                       ci95_s=(23 * US, 27 * US)),
    }  # fmt: skip
    for size, basis, low, value, high in (
        (MIB, "measured", 14, 15, 16),
        (2 * MIB, "between", 18.5, 20, 21.5),
        (5 * MIB, "beyond", 2 * 23 - 16, 35, 2 * 27 - 14),
        (0, "beyond", 1.5 * 14 - 0.5 * 27, 10, 1.5 * 16 - 0.5 * 23),
    ):
        found = over_size(known, size)
        assert found is not None and found.basis == basis
        ends = (found.time.low, found.time.value, found.time.high)
        assert [end / US for end in ends if end is not None] == pytest.approx([low, value, high])
    steep = known | {3 * MIB: point(known[3 * MIB].id, 75 * US)}
    found = over_size(steep, 0)  # 15 us and 30 us per MiB: the line gives -15 us there
    assert found is not None and found.time.value == 0.0
    assert over_size({MIB: known[MIB]}, 2 * MIB) is None and over_size({}, MIB) is None


def test_a_sum_has_the_weakest_basis_of_its_parts_and_each_point_once() -> None:
    known = {size: cost("pageable", "free", f"{size}MiB", 1e-6 * size) for size in (1, 3)}
    parts = [over_size(known, size) for size in (1, 2, 5)]
    measured, between, beyond = (part for part in parts if part is not None)
    assert together([measured, between]).basis == together([between, measured]).basis == "between"
    assert together([between, beyond, measured]).basis == "beyond" and together([measured]).basis == "measured"
    assert len(together([measured, between, beyond]).points) == 2
    assert together([measured, beyond]).time.value == pytest.approx(6e-6)


def test_a_memory_kind_without_all_phases_has_no_cost() -> None:
    phases = life("pinned", "1MiB", PINNED)
    assert MemoryCosts(phases).at(choices(at_1_mib())[0].costs[0].where, Kind("pinned"), MIB) is None  # on another path
    assert "pinned" in by_name([*phases, copy("pinned", MIB, 20 * US)])
    assert by_name([*phases[1:], copy("pinned", MIB, 20 * US)]) == {}
    failed = point(phases[0].id, status="failed", reason="the test says so")
    assert by_name([failed, *phases[1:], copy("pinned", MIB, 20 * US)]) == {}


def test_other_quantities_are_no_transfers_of_a_buffer() -> None:
    """Bidirectional, single and cached copies, copies after a wait and copies by SM measure other quantities."""
    pinned = copy("pinned", MIB, 20 * US).id
    for old, new in (
        ("bidirectional=false", "bidirectional=true"),
        ("mode=batched", "mode=single"),
        ("after=kernel", "after=kernel&cache=hot"),
        ("after=kernel", "after=wait"),
        ("/ce/", "/sm/"),
    ):
        other = pinned.replace(old, new)
        assert other != pinned and by_name([*life("pinned", "1MiB", PINNED), point(other, 20 * US)]) == {}


def test_a_memory_pool_is_compared_warm_and_growing() -> None:
    where = "gpu:0.{0}->gpu:0.{0}"
    seconds = {"device": (30, 10, 20), "pool": (8, 10, 8)}
    points = [
        cost(memory, phase, "1MiB", amount * US, where=where.format(memory))
        for memory, amounts in seconds.items()
        for phase, amount in zip(("allocate", "touch", "free"), amounts, strict=True)
    ]
    points.append(cost("pool", "grow", "1MiB", 38 * US, where=where.format("pool")))
    for memory in seconds:
        points.append(point(f"h2d/ce/numa:0.pinned->gpu:0.{memory}/{MIB}?after=kernel&mode=batched", 20 * US))
    found = by_name(points)
    assert {name: round(one.cost.time.value / US) for name, one in found.items()} == {
        "device": 60, "pool": 26, "pool that grows": 56
    }  # fmt: skip
    assert against(found["pool"], "device").uses == against(found["pool that grows"], "device").uses == AT_ONCE


def test_the_phases_match_those_of_the_worker() -> None:
    listed = {}
    for row in benchmark_table():
        phase = row.param("phase")
        if row.name == "allocation" and phase is not None:
            for src_memory, _ in row.memories:
                listed[src_memory] = tuple(value for value in phase.values if value != "grow")
    assert listed == PHASES


def test_the_table_has_the_sizes_with_most_memory_kinds() -> None:
    points = at_1_mib() + life("pageable", "4KiB", PAGEABLE) + life("pinned", "4KiB", PINNED)
    for size in (8, 4096, 64 * 1024, MIB, 4 * MIB):
        points += [copy("pageable", size, 100 * US), copy("pinned", size, 20 * US)]
    found = choices(points)
    assert {one.bytes for one in found if one.name == "registered"} == {MIB}
    assert compared_sizes(found) == [MIB]
    found = [one for one in found if one.name != "registered"]
    assert compared_sizes(found) == [4096, MIB]
    bases = {one.bytes: one.cost.basis for one in found}
    assert bases == {8: "beyond", 4096: "measured", 64 * 1024: "between", MIB: "measured", 4 * MIB: "beyond"}


def test_kinds_whose_lines_would_lie_on_each_other_share_one() -> None:
    (chart,) = cost_charts(at_1_mib(), False)
    assert chart.legend is not None and chart.svg.count('class="line"') == 3
    assert [entry.text for entry in chart.legend.entries] == ["pageable", "registered", "pinned"]
    alike = [*at_1_mib(), *life("wc", "1MiB", {**PINNED, "touch": 12 * US}), copy("wc", MIB, 20.2 * US)]
    (chart,) = cost_charts(alike, False)
    assert chart.legend is not None and "pinned, write-combined" in [entry.text for entry in chart.legend.entries]
    assert chart.svg.count('class="line"') == 3


def test_all_outputs_have_the_break_even_and_its_points() -> None:
    made = run(at_1_mib(0.1))
    result = break_evens(made.points)
    line = "numa:0 -> gpu:0 at 1 MiB: pinned from 4 [3, 5]; registered from 2 [at once, 2]"
    assert result is not None and result.lines == (line,)
    line = line.replace("->", "→")
    assert line in details(made, width=140) and line.replace("[", "\\[").replace("]", "\\]") in to_markdown(made)
    html, text = page(made), break_even_to_text(made, width=140)
    glob = "allocation/cpu/numa:0.pinned-&gt;gpu:0.device/0?phase=*&amp;size=1MiB"
    assert 'href="#memory"' in html and "from 4 [3, 5]" in html and glob in html
    assert text.startswith("MODELLED\n") and f"  {glob.replace('&gt;', '>').replace('&amp;', '&')}\n" in text
    (costs,) = [line for line in text.splitlines() if line.startswith("numa:0 → gpu:0  pinned") and "300 µs" in line]
    assert " ".join(costs.split()[3:14]) == "pinned 1 MiB 300 µs 10 µs 0 ns 50 µs" and "360 µs" in costs
    nothing = run([copy("pinned", MIB, 20 * US)])
    assert break_evens(nothing.points) is None and break_even_to_text(nothing) == ""
    assert "#memory" not in page(nothing) and "cheaper than" not in details(nothing)


def test_missed_precision_is_marked_and_equal_paths_share_a_row() -> None:
    points = at_1_mib()
    points[0] = cost("pageable", "allocate", "1MiB", 2 * US)
    points[0].status = "missed_precision"
    for one in at_1_mib():
        if "gpu:0" in one.id:
            points.append(point(one.id.replace("gpu:0", "gpu:1"), one.median_s))
    result = break_evens(points)
    assert result is not None
    (pageable,) = [row for row in result.costs if row.kind == "pageable"]
    assert pageable.phases[0] == "~2 us" and pageable.total.startswith("~110") and pageable.where == "within numa:0"
    (pinned,) = [row for row in result.tables[0].rows if row.kind == "pinned"]
    assert pinned.paths == "numa:0 -> gpu:0,1" and pinned.path_count == 2


def test_the_terminal_shows_no_markdown() -> None:
    points = at_1_mib(0.1)
    points[0].status = "missed_precision"
    text = break_even_to_text(run(points), width=100)
    assert "~" in text and "~ before a number: missed precision" in " ".join(text.split())
    assert not re.search(r"[\\|`]|\*\*", text) and "from 4 [3, 5]" in text


def test_a_run_without_costs_names_the_needed_points(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    target = tmp_path / "r.jsonl"
    where = ["--machine", "h200x1", "--rounds", "1", "--output", str(target)]
    assert main(["run", *where, "--suite", "quick", "--only", "h2d/*pinned*/4096?*"]) == 0
    assert main(["report", str(target), "--break-even"]) == 3
    assert "points of `allocation` and of h2d or d2h by ce are needed" in capsys.readouterr().err


def test_break_even_on_a_simulated_machine_follows_from_its_constants(
    tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    """h200x1: 1 MiB is 256 pages. Pinning touched pages costs 60 us and 0.23 us per page, unpinning 60 and 0.062: in
    total 194.8 us, and the address 0.2 us. Pageable copies from the GPU take 78 us, registered ones 21.6: registered
    memory is cheaper from the fourth copy.
    """
    target = tmp_path / "r.jsonl"
    only = ["allocation/*page*&size=1MiB", "allocation/*registered*&size=1MiB"]
    only += [f"d2h/ce/*{kind}/1048576?after=kernel&mode=batched" for kind in ("pageable", "registered")]
    wanted = [word for pattern in only for word in ("--only", pattern)]
    assert main(["run", "--machine", "h200x1", "--suite", "full", *wanted, "--output", str(target)]) == 0
    capsys.readouterr()
    assert main(["report", str(target), "--break-even"]) == 0
    row = next(
        line for line in capsys.readouterr().out.splitlines() if re.match(r"gpu:0 → numa:0 +1 MiB +registered", line)
    )
    assert "  from 4" in row
