"""The plan: points, precision, rounds and order, as plain data that can be printed and saved."""

import dataclasses
import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict, Unpack

import msgspec

from linkscope.errors import NOT_HERE, UserError, suggestion
from linkscope.plan.classes import PathClass, classes_of, only_the_representatives
from linkscope.plan.enumerate import first_points_of, points_of
from linkscope.plan.facts import MachineFacts, all_gpus, host_of, kind_of
from linkscope.plan.interference import Together, together
from linkscope.plan.rules import RuleName
from linkscope.plan.selection import Selection, select
from linkscope.plan.suite_rules import Suite
from linkscope.plan.suites import SUITES
from linkscope.plan.table import Benchmark
from linkscope.runfile import Point, PointId

LARGE = 1 << 20
MOST_OF_MEMBERS = 256 << 20  # larger sizes are measured on one member of a class
LEAST_ROUNDS = 6  # enough for an interval in any case; a request for fewer rounds gives up the interval
_LARGEST = 1 << 60
_SIZE = re.compile(r"[^/]+/[^/]+/.+->[^/]+/([^?/]*)(?:\?.*)?")  # the size in an id, or the text in its place
_PLACE = re.compile(r"\b(?:host:\d+/)?(?:numa|gpu|nic):\d+")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and points of a run. `precision`: half-width of the interval as a fraction of the value; None: it
    depends on the size.

    `first`: number of the points that each round measures before the others; they lead `points`.
    `rule`: the measurement rule, of linkscope or of another tool (rules.py). `early`: points get no more
    rounds if their first three reach the precision. `more_rounds`: points that miss their precision get more.
    `classes`: classes of paths, of which not all members are measured at all sizes (stages.py); empty: all paths are.
    `together`: concurrent flows in addition to `points` (interference.py). `alike_contexts`: contexts of GPUs are made
    until their cost is low (docs/notes/context-effects.md).
    """

    suite: str
    only: list[str]
    precision: float | None
    budget_s: float | None
    rounds: int
    seed: int
    order_seed: int
    points: list[str]
    first: int = 0
    rule: RuleName = "linkscope"
    early: bool = False
    more_rounds: bool = True
    classes: list[PathClass] = []
    together: list[Together] = []
    alike_contexts: bool = False


class Wishes(TypedDict, total=False):
    """What a user asks of a run. `selection` filters the points of the suite, or of `only`. `alike_contexts` None: the
    suite's setting. `order_seed` None: `seed`."""

    suite: str
    only: Sequence[str]
    selection: Selection | None
    precision: float | None
    budget_s: float | None
    rounds: int
    seed: int
    order_seed: int | None
    rule: RuleName
    alike_contexts: bool | None


_DEFAULTS: Wishes = {
    "suite": "standard", "only": (), "selection": None, "precision": None, "budget_s": None, "rounds": 6, "seed": 1,
    "order_seed": None, "rule": "linkscope", "alike_contexts": None,
}  # fmt: skip


def make_plan(machine: MachineFacts, table: Sequence[Benchmark], **given: Unpack[Wishes]) -> Plan:
    """Makes the plan of a run.

    Raises UserError for an unknown suite and for an `only` or a selection without a match.
    """
    wishes: Wishes = {**_DEFAULTS, **given}
    suite, rule, rounds, budget_s = wishes["suite"], wishes["rule"], wishes["rounds"], wishes["budget_s"]
    chosen = _suite(suite, rule, table)
    selected, only = _wanted(wishes, chosen, machine, table)
    order_seed = wishes["seed"] if wishes["order_seed"] is None else wishes["order_seed"]
    concurrent: list[Together] = []
    if chosen.together_at and not only and rule == "linkscope":
        concurrent = together(selected, machine, table, chosen.together_at, order_seed)
    classes: list[PathClass] = []
    # Plans without a budget measure everything. So do plans for named points.
    if chosen.budget_s and budget_s is not None and not only and rounds >= LEAST_ROUNDS and rule == "linkscope":
        classes = classes_of(selected, machine, order_seed)
        selected = only_the_representatives(selected, classes, MOST_OF_MEMBERS)
    leading = set(first_points_of(chosen, machine, table))
    selected.sort(key=lambda point: point not in leading)
    points = [str(point) for point in selected]
    if not points:
        why = "no benchmark uses its places"
        if machine.places and not machine.of_kind("gpu"):
            why = "the suite needs a GPU; `--machine h200x4` runs it on a model"
        why = chosen.needs or why
        raise UserError(f"suite {suite} has no point on {machine.name}: {why}", NOT_HERE)
    alike_contexts = chosen.alike_contexts if wishes["alike_contexts"] is None else wishes["alike_contexts"]
    return Plan(
        suite=suite, only=only, precision=wishes["precision"], budget_s=budget_s, rounds=rounds, seed=wishes["seed"],
        order_seed=order_seed, points=points, first=sum(point in leading for point in selected), rule=rule,
        more_rounds=chosen.more_rounds, classes=classes,
        early=bool(classes) or (chosen.early and rounds >= LEAST_ROUNDS), together=concurrent,
        # models have no contexts, and other tools use any
        alike_contexts=alike_contexts and not machine.modelled and rule == "linkscope",
    )  # fmt: skip


def _suite(name: str, rule: RuleName, table: Sequence[Benchmark]) -> Suite:
    """Returns a suite. By the rule of another tool, its own suite has more points."""
    chosen = SUITES.get(name)
    if chosen is None:
        raise UserError(f"--suite {name}: unknown suite{suggestion(name, SUITES)}; available: {', '.join(SUITES)}")
    _check_suites_of(table)
    return dataclasses.replace(chosen, rules=chosen.rules + chosen.theirs) if rule == chosen.name else chosen


def _wanted(
    wishes: Wishes, chosen: Suite, machine: MachineFacts, table: Sequence[Benchmark]
) -> tuple[list[PointId], list[str]]:
    """Returns the points that the user asks for, and the names of points if they were named. Selected points count as
    named one by one."""
    selected = list(_selected(points_of(chosen, machine, table), wishes["only"], chosen, machine, table))
    if selection := wishes["selection"]:
        selected = select(selection, selected, lambda: points_of(SUITES["full"], machine, table), machine, table)
        return selected, [str(point) for point in selected]
    return selected, list(wishes["only"])


def precision_target(plan: Plan, point: Point | PointId, resolution: float = 0.0) -> float:
    """Returns the target half-width: the plan's, otherwise 1 % for 1 MiB and more, and 5 % or two clock ticks
    (`resolution`) below.

    Concurrent flows have 3 %, since they only show whether paths share a link. `resolution` is one tick over the
    operations of a batch, as a fraction of the value.
    """
    if plan.precision is not None:
        return plan.precision
    if "with" in dict(point.params):
        return 0.03
    return usual_precision(point.bytes, resolution)


def usual_precision(size: int, resolution: float = 0.0) -> float:
    """Returns the default precision of a copy."""
    return 0.01 if size >= LARGE else max(0.05, 2 * resolution)


def _check_suites_of(table: Sequence[Benchmark]) -> None:
    """Raises UserError for a row that names a suite that does not exist."""
    for row in table:
        for of in row.suites:
            if of.suite not in SUITES:
                where = f"the worker's row of {row.name} by {row.engine} names the suite {of.suite!r}"
                raise UserError(f"{where}, which does not exist; available: {', '.join(SUITES)}")


def _selected(
    points: list[PointId], only: Sequence[str], suite: Suite, machine: MachineFacts, table: Sequence[Benchmark]
) -> Iterable[PointId]:
    """Returns the points that any glob matches. A whole id names its point, even outside the suite."""
    if not only:
        return points
    found: dict[PointId, None] = {}
    texts = {str(point): point for point in points}
    for pattern in only:
        exact = _exact(pattern, machine, table)
        matched = [exact] if exact else _matched(pattern, texts, table)
        if not matched:
            raise _no_match(pattern, suite, machine, table)
        found.update(dict.fromkeys(matched))
    return found


def _matched(pattern: str, texts: Mapping[str, PointId], table: Sequence[Benchmark]) -> list[PointId]:
    """Returns the points whose id matches the glob, with all its parameters or without those at their default."""
    found = [point for text, point in texts.items() if fnmatch.fnmatchcase(text, pattern)]
    if found or "?" in pattern:
        return found
    defaults: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for row in table:
        defaults[row.name, row.engine] |= {(param.name, param.values[0]) for param in row.params}
    plain = [point for point in texts.values() if defaults[point.benchmark, point.engine].issuperset(point.params)]
    return [point for point in plain if fnmatch.fnmatchcase(str(dataclasses.replace(point, params=())), pattern)]


def _exact(pattern: str, machine: MachineFacts, table: Sequence[Benchmark]) -> PointId | None:
    """Returns the point of a whole id, with the defaults of parameters that it leaves out; None for a glob.

    Raises UserError for an id that does not fit the table or the machine.
    """
    if "*" in pattern or "[" in pattern:
        return None
    try:
        point = PointId.parse(pattern)
    except ValueError:
        size = _SIZE.fullmatch(pattern)
        if size and not size[1].isdecimal():
            raise UserError(
                f"--only {pattern}: '{size[1]}' is not a size. Write the number of bytes, as in 1048576"
            ) from None
        return None
    _check_places(pattern, machine)
    named = [row for row in table if row.name == point.benchmark]
    if not named:
        names = ", ".join(dict.fromkeys(row.name for row in table))
        raise UserError(f"--only {pattern}: unknown benchmark '{point.benchmark}'; available: {names}")
    kinds = kind_of(point.src), kind_of(point.dst)
    rows = sorted((row for row in named if row.engine == point.engine), key=lambda row: (row.src, row.dst) != kinds)
    if not rows:
        engines = ", ".join(dict.fromkeys(row.engine for row in named))
        raise UserError(f"--only {pattern}: {point.benchmark} has no engine {point.engine}; it has {engines}")
    problems = [_misfit(point, row) for row in rows]
    if all(problems):
        raise UserError(
            f"--only {pattern}: {problems[0]}; `linkscope list {point.benchmark}` shows the possible values"
        )
    for place, other in ((point.src, point.dst), (point.dst, point.src)):
        if place.endswith("gpu:all") and (place != all_gpus(other) or not machine.gpus_but(other)):
            raise UserError(f"--only {pattern}: {machine.name} has no GPU for {place}", NOT_HERE)
    row = next(row for row, problem in zip(rows, problems, strict=True) if not problem)
    given = dict(point.params)
    values = [(param, given.get(param.name, param.values[0])) for param in row.params]
    return dataclasses.replace(
        point, params=tuple(sorted((param.name, value) for param, value in values if param.in_id(value)))
    )


def _misfit(point: PointId, row: Benchmark) -> str | None:
    if (kind_of(point.src), kind_of(point.dst)) != (row.src, row.dst):
        return f"{row.name} copies from {row.src}:N to {row.dst}:N"
    for place, other, joint in ((point.src, point.dst, "from_all"), (point.dst, point.src, "to_all")):
        if (place == all_gpus(other)) != (row.relation == joint):
            return f"{row.name} {'needs' if row.joint else 'does not accept'} gpu:all as one end"
    if row.relation == "other_host":
        if host_of(point.src) == host_of(point.dst):
            return f"{row.name} copies between two hosts, such as host:0/gpu:0 and host:1/gpu:0"
    elif not row.joint and row.relation != "any" and (point.src == point.dst) != (row.relation == "same"):
        return (
            f"{row.name} needs two places"
            if point.src == point.dst
            else f"{row.name} needs one place as source and destination"
        )
    if (point.src_memory, point.dst_memory) not in [tuple(pair) for pair in row.memories]:
        return f"{row.name} does not copy from {point.src_memory} to {point.dst_memory} memory"
    if not row.sized and point.bytes:
        return f"{row.name} moves no bytes; write 0"
    if row.sized and not 0 < point.bytes <= _LARGEST:
        return f"{point.bytes} B is not a possible size. Sizes are 1 B to 1 EiB"
    given = dict(point.params)
    if unknown := [name for name in given if name not in {param.name for param in row.params}]:
        names = ", ".join(param.name for param in row.params) or "none"
        return f"{row.name} has no parameter '{unknown[0]}'; it has {names}"
    for param in row.params:
        value = given.get(param.name, param.values[0])
        if param.paths and param.in_id(value):
            problem = _not_paths(point)
            if problem:
                return problem
        elif value not in param.values:
            return f"{param.name} is {' or '.join(param.told or param.values)}, not '{value}'"
    return None


def _not_paths(point: PointId) -> str | None:
    """Returns the problem with the paths of a point of several paths; None if there is none."""
    try:
        paths = point.paths
    except ValueError as problem:
        return str(problem)
    for src, dst in paths:
        kinds = {kind_of(src), kind_of(dst)}
        if kind_of(point.src) == "rank":
            if src == dst or kinds != {"rank"}:
                return f"{src}->{dst} is not a pair of ranks. Name two, as in rank:2->rank:3"
        elif src == dst or kinds not in ({"gpu"}, {"gpu", "numa"}) or ":all" in src + dst:
            return f"{src}->{dst} is not a possible path. Name a GPU and a NUMA node, or two GPUs"
    twice = next((f"{src}->{dst}" for src, dst in paths if paths.count((src, dst)) > 1), None)
    return f"the path {twice} is there twice. Name different paths" if twice else None


def _check_places(pattern: str, machine: MachineFacts) -> None:
    for place in _PLACE.findall(pattern):
        if place not in machine.places and not any(known.endswith("/" + place) for known in machine.places):
            have = ", ".join(machine.places) or "no places"
            raise UserError(f"--only {pattern}: {place} is not on {machine.name}, which has {have}", NOT_HERE)


def _no_match(pattern: str, suite: Suite, machine: MachineFacts, table: Sequence[Benchmark]) -> UserError:
    _check_places(pattern, machine)
    everything = points_of(SUITES["full"], machine, table)
    elsewhere = sum(fnmatch.fnmatchcase(str(point), pattern) for point in everything)
    if elsewhere:
        return UserError(
            f"--only {pattern} matches no point of suite {suite.name}, but {elsewhere} of --suite full", NOT_HERE
        )
    without = "" if machine.of_kind("gpu") else ", which has no GPU"
    example = next((str(point) for point in points_of(suite, machine, table)), None)
    hint = f". Put * around a part of an id, for example of {example}" if example else ""
    return UserError(f"--only {pattern} matches no point on {machine.name}{without}{hint}", NOT_HERE)
