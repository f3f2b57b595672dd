"""Counts false alarms: healthy paths of 10,000 that are called slow, after three rounds and after the planner's
rounds, for drawn noise (`python tools/planner_proofs.py alarms`)."""

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator

from linkscope.model.slow_paths import in_doubt, slow_paths
from linkscope.plan.classes import PathClass, path_text
from linkscope.runfile import Flow, Header, Point, PointId, Run
from linkscope.stats import EARLY_ROUNDS, LOOKS, median

SIZES = (8, 64 << 10, 16 << 20)
KINDS = (3, 4, 6, 12)  # members
NOISE = (0.05, 0.2)
ID = "h2d/ce/numa:0.pinned->gpu:{}.device/{}?bidirectional=false&mode=batched"
PRECISION = 0.01

Shape = Callable[[random.Random], float]


def heavy(chance: random.Random) -> float:
    """Student's t of three degrees of freedom, with deviation 1."""
    square = sum(chance.gauss(0, 1) ** 2 for _ in range(3)) / 3
    return chance.gauss(0, 1) / math.sqrt(square) / math.sqrt(3)


SHAPES: dict[str, Shape] = {
    "normal": lambda chance: chance.gauss(0, 1),
    "heavy tails": heavy,
    "two modes, equally likely": lambda chance: (chance.random() < 0.5) + chance.gauss(0, 0.02),
    "a mode of one round in seven, three times as far": lambda chance: (
        3.0 * (chance.random() < 1 / 7) + chance.gauss(0, 0.02)
    ),
}


def table(paths: int) -> Iterator[str]:
    """The Markdown table, from `paths` paths per row."""
    heads = "".join(f" of {members}, {noise:.0%} |" for members, noise in itertools.product(KINDS, NOISE))
    yield f"| noise of rounds | rule |{heads}"
    yield f"|---|---|{'---|' * len(KINDS) * len(NOISE)}"
    for name, shape in SHAPES.items():
        found = [alarms(name, shape, *of, paths // of[0]) for of in itertools.product(KINDS, NOISE)]
        yield f"| {name} | three rounds |{''.join(f' {early:.1f} |' for early, _, _ in found)}"
        yield f"| | the planner's |{''.join(f' {late:.1f} |' for _, late, _ in found)}"
        yield f"| | points asked for again |{''.join(f' {asked:.1%} |' for _, _, asked in found)}"


def alarms(name: str, shape: Shape, members: int, noise: float, kinds: int) -> tuple[float, float, float]:
    """False alarms in 10,000 paths after three rounds and after the planner's, and the share of points with more
    than three rounds."""
    chance = random.Random(f"{name} {members} {noise}")
    paths = PathClass("host to GPU", [path_text(PointId.parse(ID.format(gpu, 8))) for gpu in range(members)])
    early = late = asked = 0

    def rounds() -> list[float]:
        return [1e-3 * math.exp(noise * shape(chance)) for _ in range(EARLY_ROUNDS)]

    for _ in range(kinds):
        medians = {ID.format(gpu, size): rounds() for gpu in range(members) for size in SIZES}
        early += len(slow_paths(run_of(paths, points_of(medians))))
        while more := in_doubt(points_of(medians), [set(paths.paths)], LOOKS[1]):
            asked += len(more)
            for id in more:
                medians[id] += rounds()
        late += len(slow_paths(run_of(paths, points_of(medians))))
    each = 1e4 / (kinds * members)
    return early * each, late * each, asked / (kinds * members * len(SIZES))


def points_of(medians: dict[str, list[float]]) -> list[Point]:
    return [point_of(PointId.parse(id), of) for id, of in medians.items()]


def point_of(what: PointId, medians: list[float]) -> Point:
    ends = {"src": what.src, "dst": what.dst, "src_memory": what.src_memory, "dst_memory": what.dst_memory}
    value = median(medians)
    flow = Flow(
        **ends, bytes=what.bytes, role="measured", round_medians_s=medians, samples_s=[], median_s=value, ci95_s=None,
        gbps=what.bytes / value / 1e9,
    )  # fmt: skip
    return Point(
        **ends, id=str(what), status="ok", benchmark=what.benchmark, engine=what.engine, bytes=what.bytes,
        bidirectional=what.bidirectional, params=dict(what.params), precision_target=PRECISION, flows=[flow],
        median_s=value,
    )  # fmt: skip


def run_of(kind: PathClass, points: Iterable[Point]) -> Run:
    plan = {"classes": [{"kind": kind.kind, "paths": kind.paths}]}
    header = Header(modelled=True, machine={}, environment={}, plan=plan, tool={}, started="")
    return Run(None, header, list(points), {}, [], None, [], 0, False)
