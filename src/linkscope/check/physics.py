"""The reference of a check without an earlier run: the peak of the hardware, and the other paths of the node."""

from collections.abc import Callable, Iterable

from linkscope.check.faults import Fault
from linkscope.model.curves import path_of, rate_of
from linkscope.model.rounds import rounds_of
from linkscope.runfile import Point, Run, family_of, shown_status
from linkscope.stats import geometric_mean, median

# Share of the peak below which a copy is at fault: half the width, or the next lower generation. Healthy H100 and H200
# nodes reach 94 % over PCIe and 82 % over NVLink (results/). Copies across sockets of healthy machines reach 51 %.
LEAST_SHARE = 0.5
ALIKE = 0.9  # of the median rate of at least three paths of one operation
_FEWEST = 3
LOSSES = ("ecc_uncorrected", "nvlink_recovery")  # error counters that rise only when data or a link is lost


def faults_by_physics(run: Run, class_of: Callable[[str, str], str]) -> list[Fault]:
    """Failed points, rates far below the peak or below those of the same class, and lost data.

    `class_of` a source and a destination: the class of the path (`MachineFacts.kind_of_path`).
    """
    return [*_lost(run), *_failed(run.points), *_shares(run.points), *_outliers(run.points, class_of)]


def unsupported_since(run: Run, reference: Run) -> list[Fault]:
    """Paths that the reference measured and that are not supported here, such as peers without a fabric manager.

    A machine file may describe paths that a node never had.
    """
    if run.modelled != reference.modelled:
        return []
    before = {point.id for point in reference.points if rounds_of(point)}
    return [
        Fault(
            point, "", f"{point.src} → {point.dst}: {point.reason or 'not supported'}; the reference measured this path"
        )
        for point in run.points
        if shown_status(point) == "unsupported" and point.id in before
    ]


def _lost(run: Run) -> Iterable[Fault]:
    gained, _ = run.gained()
    for gpu, counts in sorted(gained.items()):
        for name in LOSSES:
            if counts.get(name):
                yield Fault(
                    None, gpu, f"{name} of {gpu} rose by {counts[name]} during the check: data or a link was lost"
                )


def _failed(points: Iterable[Point]) -> Iterable[Fault]:
    for point in points:
        if shown_status(point) == "failed":
            yield Fault(point, "", f"{point.src} → {point.dst}: {point.reason or 'failed'} ({point.id})")


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
