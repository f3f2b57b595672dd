"""The reference of a check without an earlier run: the peak of the hardware, and the other paths of the node."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from linkscope.model.curves import path_of, rate_of
from linkscope.model.rounds import rounds_of
from linkscope.runfile import Point, Run, family_of
from linkscope.stats import geometric_mean, median

# Share of the peak below which a copy is at fault: half the width, or the next lower generation. Healthy H100 and H200
# nodes reach 94 % over PCIe and 82 % over NVLink (results/). Copies across sockets of healthy machines reach 51 %.
LEAST_SHARE = 0.5
ALIKE = 0.9  # of the median rate of at least three paths of one operation
_FEWEST = 3


@dataclass(frozen=True)
class Fault:
    """A fault that needs no earlier run: the point, if there is one, and the evidence."""

    point: Point | None
    place: str
    evidence: str

    @property
    def key(self) -> str:
        """The same for one fault in two measurements."""
        return self.point.id if self.point else self.place


def faults_by_physics(run: Run, class_of: Callable[[str, str], str]) -> list[Fault]:
    """Links below their generation or width, rates far below the peak or below those of the same class, and lost data.

    `class_of` a source and a destination: the class of the path (`MachineFacts.kind_of_path`).
    """
    return [*_links(run), *_lost(run), *_shares(run.points), *_outliers(run.points, class_of)]


def _links(run: Run) -> Iterable[Fault]:
    """PCIe links that run below what GPU and slot allow, read during the copies."""
    allowed = {f"gpu:{gpu['index']}": gpu.get("pcie") or {} for gpu in run.header.machine.get("gpus") or []}
    for gpu, pcie in allowed.items():
        states = [point.guards[gpu]["pcie"] for point in run.points if _pcie(point.guards, gpu)]
        most = pcie.get("max_generation"), pcie.get("max_width")
        if states and all(most):
            best = max(states)  # 'gen5 x16': an idle link may be slower for a moment
            wanted = f"gen{most[0]} x{most[1]}"
            if best != wanted:
                yield Fault(None, gpu, f"the PCIe link of {gpu} runs at {best} under load, and {wanted} is possible")


def _pcie(guards: Mapping[str, Any], gpu: str) -> bool:
    return isinstance(guards.get(gpu), dict) and bool(guards[gpu].get("pcie"))


def _lost(run: Run) -> Iterable[Fault]:
    gained, _ = run.gained()
    for gpu, counts in sorted(gained.items()):
        for name in ("ecc_uncorrected", "nvlink_recovery"):
            if counts.get(name):
                yield Fault(
                    None, gpu, f"{name} of {gpu} rose by {counts[name]} during the check: data or a link was lost"
                )


def _shares(points: Iterable[Point]) -> Iterable[Fault]:
    for point in points:
        rate = rate_of(point)
        if rate is None or not point.limit_gbps or path_of(point).joint or not rounds_of(point):
            continue
        if rate.value < LEAST_SHARE * point.limit_gbps:
            share = 100 * rate.value / point.limit_gbps
            yield Fault(
                point, "", f"{point.src} → {point.dst} reaches {rate.value:.3g} GB/s, {share:.0f} % of its peak "
                f"({point.limit_gbps:.3g} GB/s)",
            )  # fmt: skip


def _outliers(points: Iterable[Point], class_of: Callable[[str, str], str]) -> Iterable[Fault]:
    """Paths slower than others of the same operation and class, of which there are at least three."""
    groups: dict[object, list[Point]] = {}
    for point in points:
        if rounds_of(point) and not path_of(point).joint:
            key = family_of(point), point.bytes, class_of(point.src, point.dst)
            groups.setdefault(key, []).append(point)
    for alike in groups.values():
        times = {point.id: geometric_mean(rounds_of(point)) for point in alike}
        if len(alike) < _FEWEST:
            continue
        usual = median(list(times.values()))
        for point in alike:
            if times[point.id] * ALIKE > usual and min(rounds_of(point)) > usual:
                ratio = times[point.id] / usual
                yield Fault(
                    point, "",
                    f"{point.src} → {point.dst} takes {ratio:.2f} × the median time of {len(alike)} paths of its class",
                )  # fmt: skip
