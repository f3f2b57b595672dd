"""The case of a point as a worker gets it: its ends, the other GPUs of joint copies, and the footprint in memory."""

import pytest

from linkscope.plan import SUITES, Benchmark, MachineFacts, Suite, case_of, footprint, most_memory
from linkscope.plan.enumerate import points_of
from linkscope.runfile import PointId


@pytest.mark.parametrize(
    "size, cache, expected",
    [
        (1 << 20, 10 << 20, 30 << 20),
        (64 << 20, 10 << 20, 64 << 20),
        (8, 10 << 20, 8 * 512),
        (768 << 20, 1 << 30, 768 << 20),
        (1 << 20, 1 << 30, 64 << 20),
        (4 << 20, 1 << 30, 64 << 20),
        (1 << 31, 1 << 20, 1 << 31),
    ],
)
def test_the_footprint_exceeds_the_cache(size: int, cache: int, expected: int) -> None:
    machine = MachineFacts("m", False, ("numa:0", "gpu:0"), {"numa:0": cache, "gpu:0": 1})
    what = PointId("h2d", "ce", "numa:0", "pinned", "gpu:0", "device", size, (("mode", "batched"),))
    assert footprint(what, machine) == expected
    assert case_of(what, machine)["footprint_bytes"] == expected


@pytest.mark.parametrize(
    ("size", "mode", "slices"),
    [(8, "batched", 32768), (8, "single", 512), (4096, "batched", 4096), (1 << 20, "batched", 64)],
)
def test_the_footprint_of_a_cpu_thread_is_as_long_as_its_batches(size: int, mode: str, slices: int) -> None:
    machine = MachineFacts("m", False, ("numa:0",), {"numa:0": 300 << 20})
    params = (("initiator", "src"), ("mode", mode))
    what = PointId("h2h", "cpu", "numa:0", "pageable", "numa:0", "pinned", size, params)
    assert footprint(what, machine) == size * slices
    dirty = PointId("h2h", "cpu", "numa:0", "pageable", "numa:0", "pinned", 8, (("cache", "dirty"), *params))
    assert footprint(dirty, machine) == 8 * 512


def joint_row(relation: str, src: str = "gpu", dst: str = "gpu") -> Benchmark:
    memories = [("device" if src == "gpu" else "pinned", "device" if dst == "gpu" else "pinned")]
    return Benchmark("spread", "", "", "ce", src, dst, relation, memories, [])


def joint_points(machine: MachineFacts, row: Benchmark) -> list[PointId]:
    rule = SUITES["full"].rules[0].__class__((8,), benchmarks=("spread",))
    return points_of(Suite("joint", "", (rule,)), machine, [row])


def test_all_gpus_are_those_of_one_host_except_the_other_end() -> None:
    places = tuple(f"host:{host}/{place}" for host in (0, 1) for place in ("numa:0", "gpu:0", "gpu:1", "gpu:2"))
    machine = MachineFacts("two", True, places)
    points = joint_points(machine, joint_row("to_all"))
    assert [(p.src, p.dst) for p in points] == [
        (place, f"{place.split('/')[0]}/gpu:all") for place in places if "gpu" in place
    ]
    assert case_of(points[-1], machine)["others"] == ["host:1/gpu:0", "host:1/gpu:1"]
    back = joint_points(machine, joint_row("from_all", dst="numa"))
    assert [p.src for p in back] == ["host:0/gpu:all", "host:1/gpu:all"]
    assert case_of(back[0], machine)["others"] == ["host:0/gpu:0", "host:0/gpu:1", "host:0/gpu:2"]


# Two hosts. The second has more of everything, so that their places cannot be confused.
TWO_HOSTS = MachineFacts(
    "two", True,
    ("host:0/numa:0", "host:0/gpu:0", "host:0/gpu:1", "host:1/numa:0", "host:1/numa:1",
     "host:1/gpu:0", "host:1/gpu:1", "host:1/gpu:2"),
    {"host:0/numa:0": 1 << 20, "host:0/gpu:0": 2 << 20, "host:0/gpu:1": 3 << 20, "host:1/numa:0": 4 << 20,
     "host:1/numa:1": 5 << 20, "host:1/gpu:0": 6 << 20, "host:1/gpu:1": 7 << 20, "host:1/gpu:2": 8 << 20},
)  # fmt: skip


def ends(row: Benchmark) -> list[str]:
    """'0/numa:0 > 0/gpu:1': the ends of every point of the row on the two hosts."""
    return [f"{p.src} > {p.dst}".replace("host:", "") for p in joint_points(TWO_HOSTS, row)]


def test_pairs_include_all_hosts_and_joint_copies_stay_on_one() -> None:
    nodes = ["0/numa:0", "1/numa:0", "1/numa:1"]
    gpus = ["0/gpu:0", "0/gpu:1", "1/gpu:0", "1/gpu:1", "1/gpu:2"]
    assert ends(joint_row("any", src="numa")) == [f"{node} > {gpu}" for node in nodes for gpu in gpus]
    assert ends(joint_row("different")) == [f"{src} > {dst}" for src in gpus for dst in gpus if src != dst]
    assert ends(joint_row("same")) == [f"{gpu} > {gpu}" for gpu in gpus]
    # On host 0 a GPU has only one other GPU, which is not `all`. Its nodes have two.
    assert ends(joint_row("to_all")) == [f"1/gpu:{gpu} > 1/gpu:all" for gpu in (0, 1, 2)]
    assert ends(joint_row("from_all")) == [f"1/gpu:all > 1/gpu:{gpu}" for gpu in (0, 1, 2)]
    assert ends(joint_row("to_all", src="numa")) == [
        f"{node} > {node[0]}/gpu:all" for node in ("0/numa:0", "1/numa:0", "1/numa:1")
    ]


@pytest.mark.parametrize(
    "src, dst, others, mib",
    [
        ("host:0/gpu:all", "host:0/numa:0", ["host:0/gpu:0", "host:0/gpu:1"], 3),
        ("host:1/numa:1", "host:1/gpu:all", ["host:1/gpu:0", "host:1/gpu:1", "host:1/gpu:2"], 8),
        ("host:1/gpu:2", "host:1/gpu:all", ["host:1/gpu:0", "host:1/gpu:1"], 8),
        ("host:1/gpu:all", "host:1/gpu:0", ["host:1/gpu:1", "host:1/gpu:2"], 8),
        ("host:1/numa:0", "host:1/gpu:1", None, 7),
        ("host:0/gpu:0", "host:0/numa:0", None, 2),
    ],
)
def test_a_case_names_the_gpus_of_its_host_and_exceeds_their_largest_cache(src, dst, others, mib) -> None:
    kinds = ["device" if "gpu" in place else "pinned" for place in (src, dst)]
    case = case_of(PointId("spread", "ce", src, kinds[0], dst, kinds[1], 1 << 20), TWO_HOSTS)
    assert (case["src"], case["dst"], case.get("others")) == (src, dst, others)
    assert case["footprint_bytes"] == 3 * mib << 20


@pytest.mark.parametrize("gpus, one_to_all, host_to_all", [(0, 0, 0), (1, 0, 0), (2, 0, 1), (3, 3, 1)])
def test_a_single_other_gpu_is_not_called_all(gpus: int, one_to_all: int, host_to_all: int) -> None:
    machine = MachineFacts("m", True, ("numa:0", *(f"gpu:{n}" for n in range(gpus))))
    assert len(joint_points(machine, joint_row("to_all"))) == one_to_all
    assert len(joint_points(machine, joint_row("to_all", src="numa"))) == host_to_all


def test_the_footprint_of_all_gpus_exceeds_each_of_their_caches() -> None:
    caches = {"numa:0": 8 << 20, "gpu:0": 50 << 20, "gpu:1": 50 << 20}
    machine = MachineFacts("m", True, ("numa:0", "gpu:0", "gpu:1"), caches)
    what = PointId("all_to_one", "ce", "gpu:all", "device", "gpu:0", "device", 1 << 20)
    assert footprint(what, machine) == 150 << 20
    to_host = PointId("all_to_host", "ce", "gpu:all", "device", "numa:0", "pinned", 1 << 20)
    assert footprint(to_host, machine) == 64 << 20  # caches on the path are flushed


def test_the_footprint_of_kernels_in_host_memory_exceeds_the_l2() -> None:
    caches = {"numa:0": 1 << 30, "gpu:0": 50 << 20}
    machine = MachineFacts("m", False, ("numa:0", "gpu:0"), caches)
    assert footprint(PointId("read", "sm", "numa:0", "pinned", "gpu:0", "device", 1 << 20), machine) == 150 << 20


def test_the_host_memory_of_a_pass_is_the_largest_footprint_of_its_points() -> None:
    machine = MachineFacts("m", False, ("numa:0", "gpu:0"), {"numa:0": 1 << 30, "gpu:0": 50 << 20})
    copies = [
        PointId("h2d", "ce", "numa:0", memory, "gpu:0", "device", size)
        for memory, size in (("pinned", 8), ("pinned", 1 << 30), ("pinned", 16), ("pageable", 1 << 20))
    ]
    copies.append(PointId("d2h", "ce", "gpu:0", "device", "numa:0", "registered", 1 << 20))
    others = [
        PointId("prefetch", "prefetch", "numa:0", "managed", "gpu:0", "managed", 1 << 30),
        PointId("launch", "host", "numa:0", "none", "gpu:0", "none", 0),
    ]
    assert most_memory([*copies, *others], machine) == [
        {"at": "numa:0", "memory": "pinned", "bytes": 1 << 30},
        {"at": "numa:0", "memory": "pageable", "bytes": 64 << 20},
        {"at": "numa:0", "memory": "registered", "bytes": 64 << 20},
    ]
    assert most_memory(others, machine) == []


def test_an_operation_without_bytes_has_no_footprint_and_one_point() -> None:
    row = Benchmark("chase", "", "", "sm", "gpu", "gpu", "same", [("device", "device")], [], sized=False)
    machine = MachineFacts("m", True, ("gpu:0",), {"gpu:0": 1 << 20})
    suite = Suite("s", "", (SUITES["full"].rules[0].__class__((8, 16), benchmarks=("chase",)),))
    (point,) = points_of(suite, machine, [row])
    assert point.bytes == 0 and footprint(point, machine) == 0 and "others" not in case_of(point, machine)
