"""Machine files of Comm|Scope's systems against the paper's statements (items CS of docs/notes/papers.md)."""

import html
import itertools
import json
from pathlib import Path

import pytest

from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.machine.model_paths import directed_links, routes
from linkscope.run.steady import steady_rates
from linkscope.runfile import PointId, read_run
from paper_machines import IBM, KIB, MIB, Number, bidirectional_rates, check, hops, rate, raw
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]


def zero_copy_ratio(machine: str, end: str) -> float:
    """The rate of zero-copy over that of explicit copies."""
    return rate(machine, end, engine="sm") / rate(machine, end)


NUMBERS = [
    Number("CS-24: three NVLink 2, unidirectional", lambda: raw("ac922", "nvlink numa:0->gpu:0"), 75),
    Number(
        "CS-24: three NVLink 2, bidirectional",
        lambda: raw("ac922", "nvlink numa:0->gpu:0") + raw("ac922", "nvlink gpu:0->numa:0"),
        150,
    ),
    Number("CS-24: X-bus, each direction", lambda: raw("ac922", "xbus numa:0->numa:1"), 64),
    Number("CS-25: two NVLink 1, unidirectional", lambda: raw("s822lc", "nvlink numa:0->gpu:0"), 40),
    Number("CS-25: X-bus", lambda: raw("s822lc", "xbus numa:0->numa:1"), 38.4),
    Number("CS-26: one NVLink 2, bidirectional", lambda: 2 * raw("4029gp", "nvlink-1 gpu:0->gpu:1"), 50),
    Number("CS-26: two NVLink 2, bidirectional", lambda: 2 * raw("4029gp", "nvlink-2 gpu:0->gpu:3"), 100),
    Number("CS-26: three UPI", lambda: raw("4029gp", "upi numa:0->numa:1"), 62.4),
    Number("CS-28", lambda: rate("ac922", "numa:0 > gpu:0"), 72),
    Number("CS-29", lambda: rate("ac922", "numa:0 > gpu:2"), 41),
    Number(
        "CS-31: bidirectional twice unidirectional", lambda: sum(bidirectional_rates("ac922", "numa:0 > gpu:0")), 2 * 72
    ),
    Number("CS-35: zero-copy read to explicit on ac922", lambda: zero_copy_ratio("ac922", "numa:0 > gpu:0"), 1),
    Number(
        "CS-35: zero-copy read 10 GB/s slower than explicit on s822lc",
        lambda: rate("s822lc", "numa:0 > gpu:0") - rate("s822lc", "numa:0 > gpu:0", engine="sm"),
        10,
    ),
    Number(
        "CS-35: zero-copy write as fast as explicit on s822lc", lambda: zero_copy_ratio("s822lc", "gpu:0 > numa:0"), 1
    ),
    # Measured by others with p2pBandwidthLatencyTest on another machine with the same GPUs and NVLinks; not fitted:
    # Dell, Deep Learning on V100 (2017).
    Number("Dell: V100-SXM2, two NVLink 2", lambda: rate("4029gp", "gpu:0 > gpu:3"), 47.9),
    Number("Dell: P100-SXM2, two NVLink 1", lambda: rate("s822lc", "gpu:0 > gpu:1"), 36.39),
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.item)
def test_a_number_of_the_paper_is_reproduced(number: Number) -> None:
    check(number)


def test_triads_are_fully_connected_cs_24_cs_25() -> None:
    for machine, lanes in (("ac922", 3), ("s822lc", 2), ("minsky", 2), ("newell", 3)):
        assert hops(machine, "gpu:0", "gpu:1") == hops(machine, "gpu:3", "gpu:2") == [("nvlink", lanes)]
        assert hops(machine, "numa:0", "gpu:0")[-1] == ("nvlink", lanes)
        assert "smp" in dict(hops(machine, "numa:0", "gpu:2")) and "smp" not in dict(hops(machine, "numa:0", "gpu:1"))


def test_4029gp_has_the_nvlinks_of_cs_26() -> None:
    one, two = ("nvlink", 1), ("nvlink", 2)
    paths = [hops("4029gp", "gpu:0", f"gpu:{n}") for n in range(1, 8)]
    assert paths == [[one], [one], [two], [two], *[[two, one]] * 3]
    # GPU 2 also has two hops of two links, which copies do not use.
    assert hops("4029gp", "gpu:0", "gpu:3") + hops("4029gp", "gpu:3", "gpu:2") == [two, two]
    for n in range(8):
        lanes = [
            link.link.lanes
            for link in directed_links(models.load("4029gp"))
            if link.link.kind == "nvlink" and link.start == f"gpu:{n}"
        ]
        assert sum(lanes) == 6, "a V100 has six NVLinks"


def test_no_path_between_gpus_of_4029gp_uses_pcie() -> None:
    """Pairs without an NVLink between them have two hops, one with one link and one with two."""
    for a, b in itertools.permutations(range(8), 2):
        path = hops("4029gp", f"gpu:{a}", f"gpu:{b}")
        assert len(path) == 1 or sorted(path) == [("nvlink", 1), ("nvlink", 2)], (a, b)


def test_ac922_bidirectional_copies_reach_72_and_41_cs_28_cs_29() -> None:
    """41 GB/s is more than half of 64, because the X-bus has 64 GB/s in each direction."""
    for near in ("numa:0 > gpu:1", "gpu:0 > numa:0", "numa:1 > gpu:3"):
        assert rate("ac922", near) == pytest.approx(72, rel=0.05)
    for far in ("numa:0 > gpu:2", "gpu:3 > numa:0", "numa:1 > gpu:1"):
        assert rate("ac922", far) == pytest.approx(41, rel=0.05)
    assert raw("ac922", "xbus numa:0->numa:1") == raw("ac922", "xbus numa:1->numa:0") == 64


@pytest.mark.parametrize("machine", IBM)
def test_pageable_copies_are_slower_than_copies_to_pinned_memory_and_these_slower_than_pinned_cs_30(
    machine: str,
) -> None:
    pageable = rate(machine, "numa:0 > gpu:0", memory="pageable")
    assert pageable <= rate(machine, "numa:0 > numa:0") < rate(machine, "numa:0 > gpu:0")
    far = rate(machine, "numa:0 > gpu:2", memory="pageable")
    assert far <= rate(machine, "numa:0 > gpu:2")


@pytest.mark.parametrize("machine", ("ac922", "s822lc", "4029gp", "minsky", "newell"))
def test_bidirectional_copies_double_the_rate_if_pinned_and_barely_gain_if_pageable_cs_31(machine: str) -> None:
    one = rate(machine, "numa:0 > gpu:0")
    assert sum(bidirectional_rates(machine, "numa:0 > gpu:0")) == pytest.approx(2 * one, rel=0.05)
    pageable = rate(machine, "numa:0 > gpu:0", memory="pageable")
    assert pageable < sum(bidirectional_rates(machine, "numa:0 > gpu:0", memory="pageable")) < 1.15 * pageable


def test_locality_matters_on_ac922_and_little_elsewhere_cs_32() -> None:
    def left(machine: str, gpu: str) -> list[float]:
        return [
            rate(machine, f"numa:0 > {gpu}") / rate(machine, "numa:0 > gpu:0"),
            rate(machine, f"{gpu} > numa:0") / rate(machine, "gpu:0 > numa:0"),
        ]

    assert max(left("ac922", "gpu:2")) < 0.65
    assert min(left("s822lc", "gpu:2")) > 0.85
    assert min(left("4029gp", "gpu:4")) > 0.97


def test_gpus_of_one_socket_are_faster_with_peer_access_on_ibm_cs_33() -> None:
    for machine in IBM:
        assert rate(machine, "gpu:0 > gpu:1") > 1.3 * rate(machine, "gpu:0 > gpu:1", peer="off")


@pytest.mark.parametrize(
    ("machine", "direct", "hop"),
    [("ac922", 72, 72), ("s822lc", 36.8, 33.6), ("newell", 72, 72), ("minsky", 36.8, 32.6)],
)
def test_peer_access_of_gpus_of_one_socket_gains_what_the_drivers_two_hops_cost_cs_33(
    machine: str, direct: float, hop: float
) -> None:
    """Without it each chunk of 1 MiB crosses two NVLinks, one after the other; both links work on different chunks. A
    hop of a chunk costs 8 µs, the latency and its bytes, so the slower hop sets the rate."""
    chunk_s = 8e-6 + 0.5e-6 + MIB / (hop * 1e9)
    off, on = rate(machine, "gpu:0 > gpu:1", peer="off"), rate(machine, "gpu:0 > gpu:1")
    assert off == pytest.approx(MIB / chunk_s / 1e9, rel=0.05)
    assert on / off == pytest.approx(direct * chunk_s * 1e9 / MIB, rel=0.05)


@pytest.mark.parametrize("machine", ("s822lc", "minsky"))
def test_s822lc_has_no_peer_access_across_the_x_bus_cs_33(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    near = {frozenset((0, 1)), frozenset((2, 3))}
    known = models.places(models.load(machine))
    assert known.peers == {(f"gpu:{a}", f"gpu:{b}") for pair in near for a, b in itertools.permutations(pair)}
    for a, b in itertools.permutations(range(4), 2):
        words = ["predict", "--machine", machine, "--src", f"gpu:{a}", "--dst", f"gpu:{b}"]
        assert main([*words, "--peer", "on"]) == (0 if {a, b} in near else 3)
        refused = "no peer access between" in capsys.readouterr().err
        assert refused == ({a, b} not in near)
    assert rate(machine, "gpu:0 > gpu:2", peer="off") > 0


def test_4029gp_without_peer_access_has_the_rate_of_pcie_for_all_pairs_cs_33() -> None:
    pcie = rate("4029gp", "numa:0 > gpu:0")
    for a, b in itertools.permutations(range(8), 2):
        off = rate("4029gp", f"gpu:{a} > gpu:{b}", peer="off")
        assert 0.8 * pcie < off <= pcie, (a, b)
        assert rate("4029gp", f"gpu:{a} > gpu:{b}") > 1.8 * off, (a, b)


def test_pairs_of_4029gp_form_four_classes_cs_34() -> None:
    """By path: one NVLink (or two hops of two), two, two hops. By rate: two links reach twice the others."""
    paths = routes(models.load("4029gp"))
    classes: dict[tuple[str, ...], list[int]] = {}
    for n in range(1, 8):
        classes.setdefault(tuple(hop.link.name for hop in paths["gpu:0", f"gpu:{n}"]), []).append(n)
    assert len({name[:1] if len(name) == 1 else ("two hops",) for name in classes}) == 4
    one, alternative, two, *far = [rate("4029gp", f"gpu:0 > gpu:{n}") for n in (1, 2, 3, 5, 6, 7)]
    assert one == pytest.approx(24, rel=0.05) and alternative == pytest.approx(one, rel=0.05)
    assert two == pytest.approx(2 * one, rel=0.05) and rate("4029gp", "gpu:0 > gpu:4") == pytest.approx(two, rel=0.01)
    assert all(hop <= one for hop in far)
    small = [rate("4029gp", f"gpu:0 > gpu:{n}", size=4 * KIB) for n in (1, 5)]
    assert small[1] < 0.9 * small[0], "two hops take longer"


def test_predict_distinguishes_the_classes_of_4029gp_cs_34(capsys: pytest.CaptureFixture[str]) -> None:
    """Two NVLinks differ in rate, two hops in time. In the second class (one NVLink or two hops), copies use the one
    link."""

    def predicted(gpu: int, size: str) -> float:
        words = ["predict", "--machine", "4029gp", "--src", "gpu:0", "--dst", f"gpu:{gpu}", "--bytes", size, "--json"]
        assert main(words) == 0
        (flow,) = json.loads(capsys.readouterr().out)["flows"]
        return float(flow["gbps"])

    classes: dict[tuple[int, int], list[int]] = {}
    for gpu in range(1, 8):
        large, small_us = predicted(gpu, "64MiB"), 4096 / predicted(gpu, "4KiB") / 1e3
        classes.setdefault((round(large), round(10 * small_us)), []).append(gpu)
    assert sorted(classes.values()) == [[1, 2], [3, 4], [5, 6, 7]]
    rates_of = {tuple(gpus): large for (large, _), gpus in classes.items()}
    assert rates_of[3, 4] == 2 * rates_of[1, 2] == 2 * rates_of[5, 6, 7] == 48


@pytest.mark.parametrize("path", ["numa:0 > gpu:0", "gpu:0 > numa:0", "numa:0 > gpu:2"])
def test_zero_copy_on_ac922_is_as_fast_as_explicit_copies_cs_35(path: str) -> None:
    """At intermediate sizes. The kernel launch dominates below them."""
    for size in (4 * MIB, 16 * MIB, 64 * MIB):
        zero_copy_ratio = rate("ac922", path, size=size, engine="sm")
        assert zero_copy_ratio == pytest.approx(rate("ac922", path, size=size), rel=0.05)


@pytest.mark.parametrize("machine", ("s822lc", "minsky"))
def test_zero_copy_on_s822lc_writes_as_fast_as_explicit_copies_and_reads_10_slower_cs_35(machine: str) -> None:
    for size in (16 * MIB, 64 * MIB, 256 * MIB):
        for write, read in (("gpu:0 > numa:0", "numa:0 > gpu:0"), ("gpu:3 > numa:1", "numa:1 > gpu:3")):
            written, explicit = (rate(machine, write, size=size, engine=engine) for engine in ("sm", "ce"))
            assert written == pytest.approx(explicit, rel=0.02)
            lost = rate(machine, read, size=size) - rate(machine, read, size=size, engine="sm")
            assert 9 < lost < 11


@pytest.mark.parametrize("machine", ("ac922", "s822lc", "4029gp"))
@pytest.mark.parametrize("path", ("numa:0 > gpu:0", "gpu:1 > numa:0"))
def test_the_rate_of_zero_copy_drops_at_extremely_large_sizes_cs_35(machine: str, path: str) -> None:
    """On all three systems, and for zero-copy only, because explicit copies translate no addresses in GPU threads."""
    sizes = [64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB]
    medium, large, very, extremely = (rate(machine, path, size=size, engine="sm") for size in sizes)
    assert large == pytest.approx(medium, rel=0.02)
    assert extremely < 0.85 * medium and extremely <= very
    explicit = [rate(machine, path, size=size) for size in (sizes[0], sizes[-1])]
    assert explicit[1] == pytest.approx(explicit[0], rel=0.02)


@pytest.mark.parametrize("machine", ("s822lc", "minsky", "4029gp"))
def test_accesses_by_sm_are_modelled_on_comm_scopes_systems(machine: str) -> None:
    """`read` and `write` without copying reach the rates of h2d/sm and d2h/sm on the slowest link."""
    model = models.load(machine)
    gpu, host, kinds = "gpu:0", "numa:0", ("device", "pinned")
    read = PointId("read", "sm", host, kinds[1], gpu, kinds[0], 64 * MIB)
    write = PointId("write", "sm", gpu, kinds[0], host, kinds[1], 64 * MIB)
    (reads,), (writes,) = (steady_rates(model, [point]) for point in (read, write))
    assert reads.gbps == pytest.approx(rate(machine, "numa:0 > gpu:0", engine="sm"), rel=0.02)
    assert writes.gbps == pytest.approx(rate(machine, "gpu:0 > numa:0", engine="sm"), rel=0.02)


@pytest.mark.parametrize(("machine", "cache"), [("ac922", 100 * MIB), ("4029gp", 27.5 * MIB)])
def test_hot_pageable_copies_peak_while_the_buffer_fits_the_cache_cs_38(
    machine: str, cache: float, tmp_path: Path
) -> None:
    """In a run with `cache=hot` and with cold copies, the default that ids leave out."""
    sizes = [MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
    how = {"hot": "bidirectional=false&cache=hot&mode=batched", "cold": "bidirectional=false&mode=batched"}
    ids = {
        (state, size): f"h2d/ce/numa:0.pageable->gpu:0.device/{size}?after=kernel&{params}"
        for state, params in how.items()
        for size in sizes
    }
    only = [word for id in ids.values() for word in ("--only", id)]
    assert main(["run", "--machine", machine, *only, "-o", str(tmp_path / "run.jsonl")]) == 0
    found = {point.id: point.gbps for point in read_run(tmp_path / "run.jsonl").points}
    hot, cold = ([found[ids[state, size]] for size in sizes] for state in how)
    peak = sizes[hot.index(max(hot))]
    fitting = [size for size in sizes if size + 2 * MIB <= cache]  # the driver's ring buffer is in the cache too
    assert peak in fitting and len(fitting) < len(sizes)
    for size, in_cache, flushed in zip(sizes, hot, cold, strict=True):
        if size in fitting:
            assert in_cache > 1.3 * flushed, size
        else:
            assert in_cache == pytest.approx(flushed, rel=0.05) and in_cache < 0.8 * max(hot), size
    assert all(large > 0.96 * small for small, large in itertools.pairwise(cold)), "flushed, the curve has no peak"


def test_a_run_of_4029gp_shows_the_four_classes_of_pairs_cs_34(tmp_path: Path) -> None:
    """The page names the link that limits a pair: its own, or for two hops a link to a GPU in between."""
    page = tmp_path / "map.html"
    words = ["run", "--machine", "4029gp", "--suite", "quick", "--only", "d2d/ce/gpu:0.*->*"]
    assert main([*words, "-o", str(tmp_path / "run.jsonl"), "--report", str(page)]) == 0
    text = html.unescape(page.read_text())
    for path in (
        "nvlink-1 gpu:0->gpu:1",
        "nvlink-1-or-2-2 gpu:0->gpu:2",
        "nvlink-2 gpu:0->gpu:4",
        "nvlink-1 gpu:4->gpu:5",
    ):
        assert path in text
