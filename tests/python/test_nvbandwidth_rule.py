"""nvbandwidth's rule: the batches it requests, its use of the stamps, and the resulting points."""

from typing import Any

import pytest

from fakes import H2D, facts, plan
from linkscope.plan import MachineFacts
from linkscope.report.partial import Partial
from linkscope.run.answers import FlowFacts, Prepared, Trace, Verdict
from linkscope.run.assemble import Assembler
from linkscope.run.batches import Task
from linkscope.run.nvbandwidth import NvbandwidthSampler
from linkscope.runfile import Point, PointId, Round

SIZE = 512 << 20
DEVICES = ("gpu:0", "gpu:1", "gpu:2")
TO_ALL = [("numa:0", gpu) for gpu in DEVICES]
TO_HOST = [(gpu, "numa:0") for gpu in DEVICES]
ID = H2D.format(SIZE, "true", "batched")


class Scripted:
    """`flows` as (src, dst), each with its own actor or that of `actors`. `ends` has a list for each request: the
    seconds of each actor, in the first batch and in the second.
    """

    def __init__(self, flows: list[tuple[str, str]], ends: list[list[list[float]]], actors: list[int] | None = None):
        actors = actors or list(range(len(flows)))
        self.flows = [
            FlowFacts(actor, src, dst, "pinned" if "numa" in src else "device", "device", SIZE, "measured")
            for actor, (src, dst) in zip(actors, flows, strict=True)
        ]
        self.actors = max(actors) + 1
        self.ends = iter(ends)
        self.asked: list[tuple[int, list[list[int]], bool]] = []

    def prepare(self, case: Any, key: str, limit_s: float, then: Any = None) -> Prepared:
        return Prepared(True, actors=self.actors, flows=self.flows)

    def run(self, samples: int, batches: list[list[int]], *, verify: bool, limit_s: float) -> Trace:
        self.asked.append((samples, batches, verify))
        stamps = [stamp for batch in next(self.ends) for end in batch for stamp in (7.0, 7.0 + end)]
        verdict = Verdict(True, 8, 0, "") if verify else None
        return Trace(samples, len(batches), self.actors, "gate", verdict=verdict, stamps=stamps)


def ruled(worker: Scripted, id: str = ID) -> Round:
    machine = facts(gpus=3)
    return NvbandwidthSampler(worker, plan(ID, gpus=3, rule="nvbandwidth"), machine).measure(  # type: ignore[arg-type]
        Task(PointId.parse(id), 0)
    )


def point_of(made: Round) -> Point:
    return Assembler(plan(ID, gpus=3, rounds=1, rule="nvbandwidth"), facts(gpus=3), lambda _: None).point(ID, [made])


def equal_copies(worker_flows: list[tuple[str, str]], requests: int, actors: list[int] | None = None) -> Scripted:
    """A worker whose copies all take 1 s, for tests of the requests only."""
    count = len(set(actors)) if actors else len(worker_flows)
    return Scripted(worker_flows, [[[4.0] * count, [20.0] * count]] * requests, actors)


def seconds(made: Round) -> list[list[float]]:
    return [flow.samples_s for flow in made.flows]


def test_one_flow_has_three_samples_of_a_batch_of_four_and_one_of_twenty() -> None:
    """Each sample is a sixteenth of the additional time of the batch of twenty. The last sample is verified."""
    worker = Scripted([("numa:0", "gpu:0")], [[[4.5], [20.5]], [[5.0], [53.0]], [[4.0], [36.0]]])
    made = ruled(worker)
    assert worker.asked == [(1, [[4], [20]], False), (1, [[4], [20]], False), (1, [[4], [20]], True)]
    assert seconds(made) == [[1.0, 3.0, 2.0]]
    assert made.batch == [16] and made.verified is True and made.overhead_s == 0.0
    assert made.longer is None and point_of(made).longer is None, "no second batch was compared"
    assert "together_s" not in made.guards and "joint_overlap" not in made.guards


def test_the_untimed_direction_of_host_copies_copies_twice_the_amount() -> None:
    """The value of a flow comes from the batches in which that flow was timed."""
    ends = []
    for sample in (
        0.0,
        1.0,
        2.0,
    ):  # where the first flow is timed it takes 1, 2, 3 s per copy; the second takes 5, 6, 7 s
        ends.append([[4 * (1 + sample), 200.0], [20 * (1 + sample), 900.0]])
        ends.append([[300.0, 4 * (5 + sample)], [800.0, 20 * (5 + sample)]])
    worker = Scripted([("numa:0", "gpu:0"), ("gpu:0", "numa:0")], ends)
    made = ruled(worker)
    there, back = [[4, 8], [20, 40]], [[8, 4], [40, 20]]
    assert [batches for _, batches, _ in worker.asked] == [there, back] * 3
    assert [verify for _, _, verify in worker.asked] == [False] * 5 + [True]
    assert seconds(made) == [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]
    assert made.batch == [16, 16] and "together_s" not in made.guards
    assert point_of(made).total_gbps == pytest.approx(SIZE / 2 / 1e9 + SIZE / 6 / 1e9)


@pytest.mark.parametrize(
    ("flows", "timed"),
    [
        (TO_ALL + TO_HOST, [[0, 1, 2], [3, 4, 5]]),
        (TO_HOST + TO_ALL, [[3, 4, 5], [0, 1, 2]]),  # flows to the GPUs come first, in any order
        ([("host:1/numa:0", "host:1/gpu:0"), ("host:1/gpu:0", "host:1/numa:0")], [[0], [1]]),
    ],
)
def test_all_flows_of_one_direction_are_timed_concurrently(
    flows: list[tuple[str, str]], timed: list[list[int]]
) -> None:
    worker = equal_copies(flows, 6)
    ruled(worker)
    expected = [
        [[count * (1 if actor in group else 2) for actor in range(len(flows))] for count in (4, 20)] for group in timed
    ]
    assert [batches for _, batches, _ in worker.asked] == expected * 3


@pytest.mark.parametrize(
    ("flows", "actors"),
    [
        (TO_ALL, None),
        (TO_HOST, None),
        ([("gpu:0", "gpu:1"), ("gpu:1", "gpu:0")], None),
        ([("gpu:0", "gpu:1"), ("gpu:0", "gpu:2")], None),
        ([("numa:0", "gpu:0"), ("gpu:0", "numa:0")], [0, 0]),  # one kernel copies in both directions
    ],
)
def test_all_other_flows_are_timed_together(flows: list[tuple[str, str]], actors: list[int] | None) -> None:
    worker = equal_copies(flows, 3, actors)
    made = ruled(worker)
    count = worker.actors
    assert [batches for _, batches, _ in worker.asked] == [[[4] * count, [20] * count]] * 3
    assert made.batch == [16] * count and ("together_s" in made.guards) == (count > 1)


# Three flows: the end of the warm-up of the first and the end of the last are 16 s, 24 s and 48 s apart. No other two
# stamps have these differences, and another flow ends last each time.
TOGETHER = [
    [[4.0, 8.0, 5.0], [18.0, 20.0, 19.0]],
    [[6.0, 11.0, 3.0], [21.0, 22.0, 30.0]],
    [[12.0, 9.0, 7.0], [60.0, 50.0, 55.0]],
]


def test_the_joint_time_is_a_sixteenth_from_the_first_warm_up_to_the_last_end() -> None:
    made = ruled(Scripted(TO_ALL, TOGETHER))
    assert made.guards["together_s"] == 1.5  # the median of 1, 1.5 and 3 s
    assert seconds(made)[1] == [12 / 16, 11 / 16, 41 / 16]  # each flow keeps its own time
    assert made.guards["joint_overlap"] == 0.7  # 21 / 30, the worst of the three


def test_the_total_counts_one_copy_of_each_measured_flow_only() -> None:
    """1, 2 and 3 times 512 MiB in 1.5 s, with a background flow that does not count."""
    worker = Scripted(
        [*TO_ALL, ("gpu:0", "gpu:1")], [[[*warm, 1.0], [*all_of_it, 9.0]] for warm, all_of_it in TOGETHER]
    )
    for times, flow in enumerate(worker.flows, 1):
        flow.bytes = times * SIZE
    worker.flows[3].role = "background"
    made = ruled(worker)
    found = point_of(made)
    assert found.total_gbps == pytest.approx(6 * SIZE / 1.5 / 1e9)
    assert found.gbps == pytest.approx(SIZE / (15 / 16) / 1e9)  # the rate of the first flow over its own time
    assert "in_turn" not in found.guards
    so_far = Partial([ID], lambda _: None)
    so_far.add(made)
    (row,) = so_far.rows()
    assert row.rate == pytest.approx(found.total_gbps)


def test_the_overlap_is_the_first_end_over_the_longest_timed_flow() -> None:
    """The opposite flow may run longer, but must not end before."""
    good = [[[4.0, 8.0], [20.0, 40.0]], [[8.0, 4.0], [40.0, 20.0]]]
    flows = [("numa:0", "gpu:0"), ("gpu:0", "numa:0")]
    assert ruled(Scripted(flows, good * 3)).guards["joint_overlap"] == 1.0
    early = [[[4.0, 3.0], [20.0, 15.0]], [[8.0, 4.0], [18.0, 20.0]]]
    assert ruled(Scripted(flows, [*good, *early, *good])).guards["joint_overlap"] == 0.75


def test_latencies_follow_the_default_rule() -> None:
    class Chase(Scripted):
        def run(self, samples: int, batches: list[list[int]], *, verify: bool, limit_s: float) -> Trace:
            self.asked.append((samples, batches, verify))
            stamps = [t for _ in range(samples) for batch in batches for t in (0.0, 5e-6 + batch[0] * 1e-6)]
            return Trace(samples, len(batches), 1, "gate", stamps=stamps)

    worker = Chase([("gpu:1", "gpu:0")], [])
    made = ruled(worker, "latency/sm/gpu:1.device->gpu:0.device/0?cache=hot&range=2MiB")
    assert seconds(made)[0] == pytest.approx([1e-6] * len(seconds(made)[0])) and made.batch == [1000]


def test_caches_determine_the_footprint_as_in_the_default_rule() -> None:
    cases: list[dict[str, Any]] = []

    class Seen(Scripted):
        def prepare(self, case: Any, key: str, limit_s: float, then: Any = None) -> Prepared:
            cases.append(case)
            return super().prepare(case, key, limit_s)

    worker = Seen([("gpu:0", "gpu:0")], [[[4.0], [20.0]]] * 3)
    machine = MachineFacts("m", False, ("numa:0", "gpu:0"), {"gpu:0": 300 << 20})
    id = f"local/ce/gpu:0.device->gpu:0.device/{SIZE}?mode=batched"
    NvbandwidthSampler(worker, plan(id), machine).measure(Task(PointId.parse(id), 0))  # type: ignore[arg-type]
    assert (cases[0]["bytes"], cases[0]["footprint_bytes"]) == (SIZE, 1 << 30)
