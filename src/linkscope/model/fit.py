"""Fits the constants of a machine file to a run, with the simulation that uses the file.

Block by block (constants.py), the constants are those whose simulated times are nearest to the measured times: least
squares of logarithms, weighted by the uncertainty of the measurements, and robust against points whose cause the
simulation lacks. A constant that the points do not determine keeps a stated default.
"""

import copy
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from linkscope.model import defaults
from linkscope.model.constants import Block, Choice, Constant
from linkscope.model.observed import Observation, Simulation, Times
from linkscope.model.skeleton import Content, quantity
from linkscope.runfile import PointId
from linkscope.stats.least_squares import Fitted, Vector, huber, least_squares
from linkscope.units import format_bytes

_DISTINGUISHING = (Constant("link", "latency_us", 0.3, 0, 1), Constant("link", "efficiency", 1, 0, 1))
_OF_HOSTS = ("numa", "link", "costs")  # tables that apply without a GPU
_EFFICIENCY = Constant("link", "efficiency", 1, 0, 1)
_LARGE = 16 << 20  # sizes at which the bytes dominate the time of a copy
_TIGHT = 1.03  # a link whose rate is at most this multiple of the flow over it limits the flow
_APART = 0.025  # a link whose paths all differ by more than this fraction of their time gets its own table
_RAW = ("gbps",)
_ROWS = ("numa", "gpu", "link", "share")
_KNOWN = 0.3  # standard deviation of a logarithm from which a constant is undetermined
_Z = 1.96
_STEPS_OF_A_CHOICE = 4  # enough to see which choice is best
_FEW_POOLED = 4  # equal paths repeat what the model leaves out, so more of them add no information


@dataclass(frozen=True)
class Place:
    """The place of a fitted value: a key of a table and, for tables with rows, the rows that share the value."""

    constant: Constant
    rows: tuple[int, ...] = ()

    def tables(self, content: Content) -> list[Content]:
        table = content[self.constant.table]
        return [table[row] for row in self.rows] if self.rows else [table]

    def get(self, content: Content) -> float:
        table = self.tables(content)[0]
        key = self.constant.key
        while key not in table and key in defaults.STANDS_FOR:
            key = defaults.STANDS_FOR[key]
        if key not in table and isinstance(self.constant.start, float):
            return self.constant.start  # absent: the file then has no such cost
        return float(table[key]["v"])

    def put(self, content: Content, value: Content) -> None:
        for table in self.tables(content):
            table[self.constant.key] = value

    def put_back(self, content: Content, former: Content) -> None:
        """Restores the old value, or its absence."""
        for table, old in zip(self.tables(content), self.tables(former), strict=True):
            table.pop(self.constant.key, None)
            if self.constant.key in old:
                table[self.constant.key] = old[self.constant.key]


@dataclass(frozen=True)
class Pooled:
    """Observations of paths that are equal for the simulation, as one."""

    observation: Observation
    count: int


class Fit:
    """The content of a machine file during the fit. `run` is how `fitted_to` names the measurements."""

    def __init__(self, content: Content, observations: Sequence[Observation], simulation: Simulation, run: str) -> None:
        self.content = content
        self.run = run
        self.observations = list(observations)
        self.simulation = simulation

    def blocks(self, blocks: Iterable[Block], tell: Callable[[str], None]) -> None:
        """The blocks for which the run has points, in order."""
        for block in blocks:
            chosen = [one for one in self.observations if block.points(one.point)]
            if chosen:
                tell(block.name)
                self._block(block, chosen)
                while any(constant.key == "efficiency" for constant in block.constants) and self._split(chosen):
                    self._block(block, chosen)

    def times(self, content: Content, points: Iterable[PointId]) -> dict[str, Times]:
        """Simulated times of points, by id."""
        wanted = {str(point): point for point in points}
        return dict(zip(wanted, self.simulation.seconds(content, list(wanted.values())), strict=True))

    def pooled(self, observations: Sequence[Observation], constants: Sequence[Constant] = ()) -> list[Pooled]:
        """Observations whose points the simulation can run; equal ones are pooled.

        Points are equal if their times stay equal when every constant that may distinguish paths is changed.
        """
        apart = copy.deepcopy(self.content)
        places = [place for constant in (*constants, *_DISTINGUISHING) for place in self.places(constant)]
        for at, place in enumerate(places):
            place.put(apart, {"v": place.get(self.content) * (1 - 0.013 * (at + 1) / len(places)), "from": "fitted"})
        times = self.times(apart, (one.point for one in observations))
        alike: dict[tuple[object, ...], list[Observation]] = defaultdict(list)
        for one in observations:
            seconds = one.of(times[str(one.point)])
            if seconds is not None:
                point = one.point
                what = (point.benchmark, point.engine, point.src_memory, point.dst_memory, point.bytes, point.params)
                alike[*what, one.flow, f"{seconds:.9g}"].append(one)
        return [_pooled(of) for of in alike.values()]

    def residuals(self, content: Content, pooled: Sequence[Pooled]) -> Vector:
        """log(simulated / measured) in standard deviations."""
        times = self.times(content, (one.observation.point for one in pooled))
        found = []
        for one in pooled:
            seconds = one.observation.of(times[str(one.observation.point)])
            found.append(math.log((seconds or 1e-9) / one.observation.seconds) / one.observation.sigma)
        return np.array(found)

    def solve(self, places: Sequence[Place], pooled: Sequence[Pooled], steps: int = 25) -> Fitted:
        """Finds the values of these places that predict the observations best, and leaves them in the content."""
        content = self.content
        low = np.log([place.constant.low for place in places])
        high = np.log([place.constant.high for place in places])
        start = np.log(np.maximum([place.get(content) for place in places], 1e-4))

        def tried(x: Vector) -> Vector:
            self._put(content, places, x)
            return self.residuals(content, pooled)

        fitted = least_squares(tried, start, low, high, steps)
        self._put(content, places, fitted.x)
        return fitted

    @staticmethod
    def _put(content: Content, places: Sequence[Place], x: Vector) -> None:
        for place, value in zip(places, np.exp(x), strict=True):
            place.put(content, {"v": float(value), "from": "fitted"})

    def _block(self, block: Block, chosen: list[Observation]) -> None:
        before = copy.deepcopy(self.content)
        constants = [one for one in block.constants if self.content.get("gpu") or one.table in _OF_HOSTS]
        for constant in constants:
            if constant.table not in _ROWS:
                self.content.setdefault(constant.table, defaults.table(constant.table))
        unfitted = copy.deepcopy(self.content)
        self._start(constants, chosen)
        if any(constant.key == "efficiency" for constant in constants):
            self._narrow(chosen)
        pooled = self.pooled(chosen, constants)
        if not pooled:
            self.content = before
            return
        every = [place for constant in constants if not constant.optional for place in self.places(constant)]
        loads = any(one.observation.point.benchmark == "latency" for one in pooled)
        places = [place for place in self._influential(every, pooled) if loads or not self._goes_with_set_ups(place)]
        for place in every:
            if place not in places:
                place.put_back(self.content, unfitted)
        for table in {constant.table for constant in constants} - {place.constant.table for place in places}:
            if table not in before:
                self.content.pop(table, None)  # operations that nobody measured are refused
        fitted = self.solve(places, pooled)
        choices = [choice for choice in block.choices if choice.table in self.content]
        if choices:
            fitted = self._choose(choices, places, fitted, pooled)
        places, fitted = self._add_optional([one for one in constants if one.optional], places, fitted, pooled)
        if block.optional and huber(self.residuals(before, pooled)) - fitted.loss < gain_needed(len(pooled)):
            self.content = before
            return
        self.record(places, fitted, pooled)

    def _split(self, chosen: Sequence[Observation]) -> bool:
        """Sets apart one link whose paths are all slower, or all faster, than those of similar links. Returns whether
        there was one."""
        large = [one for one in chosen if one.point.bytes >= _LARGE and not one.joint]
        times = self.times(self.content, (one.point for one in large))
        off: dict[str, list[float]] = defaultdict(list)
        carried = self.simulation.carried(self.content, [one.point for one in large])
        for one, links in zip(large, carried, strict=True):
            seconds = one.of(times[str(one.point)])
            for name in links if seconds else ():
                off[name].append(math.log(one.seconds / seconds) if seconds else 0.0)
        best: tuple[float, Content] | None = None
        for place in self.places(_EFFICIENCY):
            found = [(link, way) for link in place.tables(self.content) for way in directions(link) if way in off]
            usual = (
                float(np.median([x for _, way in found for x in off[way]])) if len(place.rows) > 1 and found else 0.0
            )
            for link, way in found if len(place.rows) > 1 else ():
                least = min((x - usual for x in off[way]), key=abs)
                alike = len({x > usual for x in off[way]}) == 1
                if alike and abs(least) > _APART and (best is None or abs(least) > best[0]):
                    best = abs(least), link
        if best is None:
            return False
        best[1]["own"] = True
        return True

    def _start(self, constants: Sequence[Constant], chosen: Sequence[Observation]) -> None:
        for constant in constants:
            if constant.optional:
                continue
            value = constant.start(chosen) if callable(constant.start) else constant.start
            for place in self.places(constant):
                known = place.tables(self.content)[0].get(constant.key, {})
                if known.get("from") != "fitted":
                    start = min(max(value, constant.low), constant.high)
                    place.put(self.content, {"v": start, "from": "assumed", "why": defaults.WHY})

    def places(self, constant: Constant) -> list[Place]:
        """The places of the constant, one for each group of equal rows."""
        if constant.table not in _ROWS:
            return [Place(constant)]
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for row, facts in enumerate(self.content[constant.table]):
            groups[_kind(constant.table, facts)].append(row)
        return [Place(constant, tuple(rows)) for rows in groups.values()]

    def _narrow(self, chosen: Sequence[Observation]) -> None:
        """Starts the links of single copies at the rates seen on them, since a search from above would not find a
        narrow link.

        The start is the highest rate over each link. On a path with several candidates, the link with the lowest raw
        rate counts.
        """
        large = [one for one in chosen if one.point.bytes >= _LARGE and not one.joint]
        carried = self.simulation.carried(self.content, [one.point for one in large])
        rows = {name: link for link in self.content["link"] for name in directions(link)}
        raw = {name: _raw_rate(link, name) for name, link in rows.items()}
        group = {id(link): place for place in self.places(_EFFICIENCY) for link in place.tables(self.content)}
        rates = [one.point.bytes / one.seconds / 1e9 for one in large]
        share: dict[Place, float] = defaultdict(float)
        for rate, links in zip(rates, carried, strict=True):
            for name in links:
                place = group[id(rows[name])]
                share[place] = max(share[place], min(rate / raw[name], 1.0))
        narrow = set()
        for rate, links in zip(rates, carried, strict=True):
            tight = [name for name in links if share[group[id(rows[name])]] * raw[name] <= _TIGHT * rate]
            narrow |= {group[id(rows[min(tight, key=lambda name: raw[name])])]} if tight else set()
        for place in narrow:
            if place.tables(self.content)[0]["efficiency"].get("from") != "fitted":
                place.put(self.content, {"v": share[place], "from": "assumed", "why": defaults.WHY})

    def _goes_with_set_ups(self, place: Place) -> bool:
        """Whether the constant appears only in a sum with the set-up of copies, unless loads are measured."""
        ends = [end for link in place.tables(self.content) for pair in link.get("between", ()) for end in pair]
        return place.constant.key == "latency_us" and any("gpu:" in end for end in ends)

    def _influential(self, places: Sequence[Place], pooled: Sequence[Pooled]) -> list[Place]:
        """The places on which the observations depend."""
        base = self.residuals(self.content, pooled)
        felt = []
        for place in places:
            moved = copy.deepcopy(self.content)
            place.put(moved, {"v": place.get(moved) * 0.7, "from": "fitted"})
            if np.any(np.abs(self.residuals(moved, pooled) - base) > 1e-6):
                felt.append(place)
        return felt

    def _choose(
        self, choices: Sequence[Choice], places: list[Place], fitted: Fitted, pooled: Sequence[Pooled]
    ) -> Fitted:
        """The combination of values that predicts the observations best; the current one unless another is better."""
        start = copy.deepcopy(self.content)
        tried = {tuple(choice.get(start) for choice in choices): (fitted, start)}
        first = next(iter(tried))
        for values in itertools.product(*(choice.values for choice in choices)):
            if values not in tried:
                self.content = copy.deepcopy(start)
                for choice, value in zip(choices, values, strict=True):
                    choice.put(self.content, value)
                tried[values] = self.solve(places, pooled, _STEPS_OF_A_CHOICE), self.content
        best = min(tried, key=lambda values: tried[values][0].loss)
        needed = gain_needed(len(pooled))
        if tried[first][0].loss - tried[best][0].loss < needed:
            best = first
        self.content = tried[best][1]
        fitted = self.solve(places, pooled)
        for at, choice in enumerate(choices):
            if not isinstance(best[at], str):
                others = {values[at] for values in tried if tried[values][0].loss - fitted.loss < needed}
                choice.put(self.content, best[at], self._why(choice, others, pooled))
        return fitted

    def _why(self, choice: Choice, as_good: set[float | str], pooled: Sequence[Pooled]) -> Content:
        """The provenance of a choice: fitted if no other value predicts the observations as well."""
        listed = ", ".join(f"{value:g}" for value in choice.values if not isinstance(value, str))
        if len(as_good) <= 1:
            return {"from": "fitted", "fitted_to": [f"{self._source_text(pooled)}; the best of {listed}"]}
        same = ", ".join(f"{value:g}" for value in sorted(value for value in as_good if not isinstance(value, str)))
        return {"from": "assumed", "why": f"{self.run} does not distinguish the values {same}"}

    def _add_optional(
        self, constants: Sequence[Constant], places: list[Place], fitted: Fitted, pooled: Sequence[Pooled]
    ) -> tuple[list[Place], Fitted]:
        """Adds optional constants one after the other, and tries rejected ones again after each addition, since some
        improve the prediction only together."""
        while constants:
            passed_over: list[Constant] = []
            again: list[Constant] = []
            for constant in constants:
                before = len(places)
                places, fitted = self._add(constant, places, fitted, pooled)
                if len(places) == before:
                    passed_over.append(constant)
                else:
                    again = list(passed_over)
            constants = again
        return places, fitted

    def _add(
        self, constant: Constant, places: list[Place], fitted: Fitted, pooled: Sequence[Pooled]
    ) -> tuple[list[Place], Fitted]:
        """Adds an optional constant for each group of rows where it pays for itself, alone or in place of its
        substitute."""
        for place in self.places(constant):
            if not self._influential([place], pooled):
                continue
            for added in _additions_to_try(place):
                if any(one in places for one in added):
                    continue
                before = copy.deepcopy(self.content)
                found = self.solve([*places, *added], pooled)
                if fitted.loss - found.loss > len(added) * gain_needed(len(pooled)):
                    places, fitted = [*places, *added], found
                else:
                    self.content = before
        return places, fitted

    def record(self, places: Sequence[Place], fitted: Fitted, pooled: Sequence[Pooled]) -> None:
        """Writes the provenance of every value: fitted, or assumed if the points do not determine it."""
        for place, x, deviation in zip(places, fitted.x, fitted.deviation, strict=True):
            value, constant = rounded(math.exp(x)), place.constant
            if deviation > _KNOWN:
                why = f"{defaults.WHY}, or a value that depends on the others: {self.run} does not determine it alone"
                place.put(self.content, quantity(value, "assumed", why=why))
                continue
            ends = [math.exp(x - _Z * deviation), min(math.exp(x + _Z * deviation), constant.high)]
            source = f"{self._source_text(pooled)}; 95 % interval {ends[0]:.4g} to {ends[1]:.4g}"
            place.put(self.content, quantity(value, "fitted", fitted_to=[source]))

    def _source_text(self, pooled: Sequence[Pooled]) -> str:
        """'RUN: 44 points of h2d and d2h by ce, 8 B to 256 MiB'."""
        points = [one.observation.point for one in pooled]
        names = sorted({f"{point.benchmark}/{point.engine}" for point in points})
        sizes = sorted({point.bytes for point in points})
        span = format_bytes(sizes[0]) if len(sizes) == 1 else f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])}"
        count = sum(one.count for one in pooled)
        return f"{self.run}: {count} times of {', '.join(names)}" + (f", {span}" if sizes[-1] else "")


def _additions_to_try(place: Place) -> list[list[Place]]:
    """The additions to try: the constant alone; without its substitute, if that can be left out; and both."""
    key = defaults.STANDS_FOR.get(place.constant.key)
    if key not in defaults.STANDS_FOR:
        return [[place]]
    other = replace(place, constant=replace(place.constant, key=key))
    return [[place], [other], [other, place]]


def directions(link: Content) -> tuple[str, str]:
    """The names of both directed links of a row with one pair of ends."""
    one, other = link["between"][0]
    return f"{link['name']} {one}->{other}", f"{link['name']} {other}->{one}"


def _raw_rate(link: Content, name: str) -> float:
    """GB/s of one of its directions."""
    forth = name == directions(link)[0]
    raw: Content = link["gbps"] if forth or "back_gbps" not in link else link["back_gbps"]
    return float(raw["v"])


def gain_needed(count: int) -> float:
    """The loss that one more constant must save: twice the Schwarz penalty ln(n) / 2."""
    return max(3.0, math.log(count))


def rounded(value: float) -> float:
    """The value with four digits, more than any constant is known to."""
    return float(f"{value:.4g}")


def _kind(table: str, facts: Content) -> tuple[object, ...]:
    """Key of rows that are taken to be alike."""
    if table != "link":
        return tuple((key, str(value)) for key, value in facts.items() if key not in ("places", "at"))
    own = tuple(map(str, facts["between"])) if facts.get("own") else ()
    return (facts["name"], facts["kind"], own, *(f"{facts[key]['v']:.9g}" for key in _RAW if key in facts))


def _pooled(alike: Sequence[Observation]) -> Pooled:
    logs = np.log([one.seconds for one in alike])
    sigma = float(np.median([one.sigma for one in alike])) / math.sqrt(min(len(alike), _FEW_POOLED))
    return Pooled(replace(alike[0], seconds=float(np.exp(np.median(logs))), sigma=sigma), len(alike))
