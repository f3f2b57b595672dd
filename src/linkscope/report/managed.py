"""The rates of managed memory, prefetched and on demand. They are not headline rates, because their pages migrate."""

from linkscope.advise import plain
from linkscope.model.curves import rate_of
from linkscope.report.headline import Rates, best_points, rates_of
from linkscope.report.trust import has_warning
from linkscope.runfile import Point, Run

_BENCHMARKS = {"prefetch": "prefetch", "demand": "on demand"}


def managed_rates(run: Run) -> dict[tuple[str, str], Rates]:
    """The best rates of paths between host and GPU, by operation and direction, such as ('prefetch', 'to GPU')."""
    found = {}
    for benchmark, how in _BENCHMARKS.items():
        points = [p for p in run.points if p.benchmark == benchmark and plain(p) and not has_warning(p)]
        for direction, gpu_end in (("to GPU", True), ("to host", False)):
            best = best_points(point for point in points if _is_direction(point, gpu_end))
            rates = rates_of(sorted(best), best, rate_of)
            if rates is not None:
                found[how, direction] = rates
    return found


def _is_direction(point: Point, to_gpu: bool) -> bool:
    host, gpu = (point.src, point.dst) if to_gpu else (point.dst, point.src)
    return "numa:" in host and "gpu:" in gpu
