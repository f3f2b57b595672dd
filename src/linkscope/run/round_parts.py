"""Parts of a round's record that every way to sample has."""

from linkscope.run.answers import ActorSeries, FlowFacts
from linkscope.run.worker import RequestFailed
from linkscope.runfile import RoundFlow
from linkscope.runfile.schema import Timing


class WrongData(Exception):
    """The destination does not hold the source's data."""


def rounded(seconds: float) -> float:
    """Rounds to nine digits: finer than any clock tick, and half as long in a file."""
    return float(f"{seconds:.9g}")


def flow_of(facts: FlowFacts, samples: list[float], series: ActorSeries | None = None) -> RoundFlow:
    """Returns a flow with its samples, in seconds per operation. `series`: its actor in a sample of a duration."""
    return RoundFlow(
        src=facts.src, dst=facts.dst, src_memory=facts.src_memory, dst_memory=facts.dst_memory,
        bytes=facts.bytes, role=facts.role, samples_s=samples,
        p50_s=series.p50_s if series else None, p99_s=series.p99_s if series else None,
        operations=facts.operations,
    )  # fmt: skip


def timing_of(name: str) -> Timing:
    """Returns the run file's name for the worker's timing. Behind the gate, a value is a difference of two batches."""
    names: dict[str, Timing] = {
        "gate": "gate+slope", "events": "events", "host": "host", "kernel_clock": "kernel_clock", "virtual": "virtual",
    }  # fmt: skip
    if name not in names:
        raise RequestFailed("failed", f"the worker timed by '{name}', which this version does not know")
    return names[name]
