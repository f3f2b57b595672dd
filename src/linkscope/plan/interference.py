"""Chooses concurrent flows, to find shared links (docs/method/shared-links.md).

Candidates are pairs of paths without a common GPU, at one size, and flows between a NUMA node and all GPUs of its host.
For each combination of path kinds, some pairs are measured in any case. The others are measured if a pair of the
combination was slowed, or if time is left.
"""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from linkscope.flow import write_paths
from linkscope.model.curves import Path, natural
from linkscope.model.flows import are_apart, is_plain, names_plain, rates_alone
from linkscope.model.interference import interference
from linkscope.plan.facts import MachineFacts, host_of, kind_of
from linkscope.plan.recall import Recall
from linkscope.plan.table import Benchmark
from linkscope.runfile import Point, PointId

MOST_FIRST = 120  # pairs that are measured in any case
MOST_MORE = 120  # further pairs of slowed combinations
_MOST = 3000
_FIRST_OF_GPU_PAIRS = 2  # pairs of each combination with a path between GPUs
_MEMORY = {"numa": "pinned", "gpu": "device"}
_RECALL = Recall(most=2)


class Together(msgspec.Struct, frozen=True):
    """A point of several concurrent flows. `why`: the kinds of its paths. `first`: measured in any case."""

    id: str
    why: str
    first: bool


def together(
    points: Iterable[PointId], machine: MachineFacts, table: Iterable[Benchmark], size: int, seed: int
) -> list[Together]:
    """Returns concurrent points for paths that `points` measure alone at this size; those measured in any case
    first."""
    row = next((row for row in table if any(param.paths for param in row.params)), None)
    paths = list(dict.fromkeys(Path(of.src, of.dst) for of in points if of.bytes == size and _is_of_one_path(of)))
    if row is None:
        return []
    like = PointId(row.name, row.engine, "", "", "", "", size)
    first, later = _pairs(paths, machine, seed)
    found = [Together(_id(of, like), why, True) for of, why in _all_gpu_flows(paths, machine)]
    found += [Together(_id(pair, like), why, at < MOST_FIRST) for at, (pair, why) in enumerate(first)]
    return (found + [Together(_id(pair, like), why, False) for pair, why in later])[:_MOST]


def next_together(planned: Sequence[Together], points: Mapping[str, Point]) -> list[str]:
    """Returns the next points: those measured in any case, then those that the results suggest."""
    if not planned:
        return []
    size = PointId.parse(planned[0].id).bytes
    plain = {id: point for id, point in points.items() if point.bytes == size and names_plain(id)}
    return _RECALL("next", (planned, plain), lambda: _next_of(planned, plain))


def _next_of(planned: Sequence[Together], points: Mapping[str, Point]) -> list[str]:
    lacking = _lacking(planned, points)
    if first := [one.id for one in lacking if one.first]:
        return first
    result = interference(points.values())
    slowed = result.slowed_pairs()
    beside = {frozenset(map(_gpu_ends, pair)) for pair in slowed.values()}
    # Pairs of the same GPUs with other hosts show whether the shared link lies on the side of the GPUs.
    if near := [one.id for one in lacking if frozenset(map(_gpu_ends, _paths(one.id))) in beside]:
        return near
    like = PointId.parse(planned[0].id)
    if wider := [id for id in (_id(paths, like) for paths in result.next) if id not in points]:
        return wider
    kinds = {one.why for one in planned if one.id in slowed}
    room = MOST_MORE - sum(one.id in points for one in planned if not one.first)
    return [one.id for one in lacking if one.why in kinds][: max(0, room)]


def further_pairs(planned: Sequence[Together], points: Mapping[str, Point]) -> list[str]:
    """Returns the other pairs whose paths were measured."""
    return [one.id for one in _lacking(planned, points)] if planned else []


def _lacking(planned: Sequence[Together], points: Mapping[str, Point]) -> list[Together]:
    """Returns the unmeasured points whose paths were each measured alone."""
    known = rates_alone(points.values()).keys()
    return [one for one in planned if one.id not in points and _paths_at_size(one.id) <= known]


def _paths_at_size(id: str) -> set[tuple[Path, int]]:
    return {(path, PointId.parse(id).bytes) for path in _paths(id)}


def _paths(id: str) -> list[Path]:
    return [Path(src, dst) for src, dst in PointId.parse(id).paths]


def _gpu_ends(path: Path) -> tuple[str, str]:
    """Returns the GPUs where the path starts and ends ('gpu:0'); '' for a host."""
    src, dst = (place if kind_of(place) == "gpu" else "" for place in (path.src, path.dst))
    return src, dst


def _is_of_one_path(point: PointId) -> bool:
    """Returns whether the point is a plain copy between two places, with the memory kinds of concurrent copies."""
    ends = ((point.src, point.src_memory), (point.dst, point.dst_memory))
    usual = all(_MEMORY.get(kind_of(place)) == memory and not place.endswith(":all") for place, memory in ends)
    return is_plain(point) and usual and point.src != point.dst and len(point.paths) == 1


def _id(paths: Iterable[Path], like: PointId) -> str:
    first, *others = sorted(paths)
    params = (("with", write_paths((of.src, of.dst) for of in others)),)
    src_memory, dst_memory = _MEMORY[kind_of(first.src)], _MEMORY[kind_of(first.dst)]
    return str(PointId(like.benchmark, like.engine, first.src, src_memory, first.dst, dst_memory, like.bytes, params))


def _all_gpu_flows(paths: Sequence[Path], machine: MachineFacts) -> Iterator[tuple[list[Path], str]]:
    """Yields the flows between every NUMA node and all GPUs of its host: all in, all out, and alternating."""
    known = set(paths)
    for numa in machine.of_kind("numa"):
        gpus = sorted((gpu for gpu in machine.of_kind("gpu") if host_of(gpu) == host_of(numa)), key=natural)
        pairs = [(Path(numa, gpu), Path(gpu, numa)) for gpu in gpus]
        if len(gpus) < 3 or not all(path in known for pair in pairs for path in pair):
            continue
        yield [into for into, _ in pairs], f"{numa} to all GPUs at once"
        yield [out for _, out in pairs], f"all GPUs to {numa} at once"
        for turn in (0, 1):
            yield (
                [pair[(at + turn) % 2] for at, pair in enumerate(pairs)],
                f"{numa} to every other GPU, from the others",
            )


def _pairs(
    paths: Sequence[Path], machine: MachineFacts, seed: int
) -> tuple[list[tuple[tuple[Path, Path], str]], list[tuple[tuple[Path, Path], str]]]:
    """Returns the first pairs, alternating between the combinations of kinds, and the other pairs; each with its
    combination."""
    kinds: dict[str, list[tuple[Path, Path]]] = {}
    for one, other in itertools.combinations(sorted(paths), 2):
        if are_apart((one, other)) and host_of(one.src) == host_of(other.src):
            kinds.setdefault(_why(one, other, machine), []).append((one, other))
    first: list[tuple[int, tuple[Path, Path], str]] = []
    later: list[tuple[tuple[Path, Path], str]] = []
    for why, of_kind in kinds.items():
        random.Random(f"{seed}:{why}").shuffle(of_kind)
        few, rest = _first_pairs(of_kind)
        first += [(at, pair, why) for at, pair in enumerate(few)]
        later += [(pair, why) for pair in rest]
    first.sort(key=lambda one: one[0])
    return [(pair, why) for _, pair, why in first], later


def _first_pairs(pairs: list[tuple[Path, Path]]) -> tuple[list[tuple[Path, Path]], list[tuple[Path, Path]]]:
    """Splits the pairs of a combination into first and later ones. All pairs to or from hosts come first, one
    direction of each pair in and out, and a few others."""
    if any(kind_of(path.src) == kind_of(path.dst) for path in pairs[0]):
        return pairs[:_FIRST_OF_GPU_PAIRS], pairs[_FIRST_OF_GPU_PAIRS:]
    into = [kind_of(path.src) == "numa" for path in pairs[0]]
    if into[0] == into[1]:
        return pairs, []
    lower = [pair for pair in pairs if _gpu_in(pair) < _gpu_out(pair)]
    return lower, [pair for pair in pairs if pair not in lower]


def _gpu_in(pair: tuple[Path, Path]) -> tuple[tuple[str, int], ...]:
    return next(natural(path.dst) for path in pair if kind_of(path.dst) == "gpu")


def _gpu_out(pair: tuple[Path, Path]) -> tuple[tuple[str, int], ...]:
    return next(natural(path.src) for path in pair if kind_of(path.src) == "gpu")


def _why(one: Path, other: Path, machine: MachineFacts) -> str:
    kinds = sorted(machine.kind_of_path(path.src, path.dst) for path in (one, other))
    nodes = [place for path in (one, other) for place in (path.src, path.dst) if kind_of(place) == "numa"]
    where = "" if len(nodes) < 2 else "; one NUMA node" if nodes[0] == nodes[1] else "; two NUMA nodes"
    return f"{kinds[0]} | {kinds[1]}{where}"
