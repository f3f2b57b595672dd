"""What suite `sanity` adds to a run of this machine: operations that do not work here, and the doctor's findings."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkscope.machine.finding import Finding
    from linkscope.runfile import Point

_SHOWN = 3  # points for each reason


def report(points: "Mapping[str, Point]", *, quiet: bool) -> int:
    """Prints what does not work here and why, with the cures. Returns 1 if a finding is bad, otherwise 0."""
    from linkscope.cli.doctor import found_here
    from linkscope.machine.doctor import exit_code
    from linkscope.machine.probe import probe
    from linkscope.run.worker import driver_facts

    driver = driver_facts()
    found = found_here(probe(driver), driver)
    if not quiet:
        print("\n".join(lines(points.values(), found)))
    return exit_code(found)


def lines(points: "Iterable[Point]", findings: "Iterable[Finding]") -> Iterator[str]:
    """Each reason why operations do not work, with the first of their ids, then the findings."""
    from linkscope.runfile import is_too_short

    reasons: dict[str, list[str]] = {}
    works = 0
    for point in points:
        if is_too_short(point):  # the operation works: its time was lost in the noise of the clock
            works += 1
        elif point.status in ("failed", "unsupported"):
            reasons.setdefault(point.reason or "no reason was given", []).append(point.id)
        elif point.status != "skipped":
            works += 1
    yield f"{works} operations work."
    for reason, ids in reasons.items():
        more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
        yield f"does not work: {', '.join(ids[:_SHOWN])}{more}"
        yield f"  why: {reason}"
    yield from map(str, findings)
