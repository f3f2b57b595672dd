"""What a profiler recorded, whatever wrote it: copies, kernels and steps, in seconds of one clock."""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

HOST = "numa:0"  # profilers do not record the NUMA node of host memory


@dataclass(frozen=True, slots=True)
class Copy:
    """One explicit copy. `stream`: the GPU's stream that ran it."""

    src: str
    dst: str
    src_memory: str
    dst_memory: str
    bytes: int
    start_s: float
    end_s: float
    stream: str

    @property
    def seconds(self) -> float:
        """How long it took on the GPU."""
        return self.end_s - self.start_s

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs at its ends."""
        return tuple(dict.fromkeys(place for place in (self.src, self.dst) if place.startswith("gpu:")))

    @property
    def pageable(self) -> bool:
        """Whether the driver stages it through its own pinned memory."""
        return "pageable" in (self.src_memory, self.dst_memory)

    @property
    def kind(self) -> str:
        """The operation: h2d, d2h, d2d or local."""
        if self.src == self.dst:
            return "local"
        return {(False, True): "h2d", (True, False): "d2h", (True, True): "d2d"}[
            (self.src.startswith("gpu:"), self.dst.startswith("gpu:"))
        ]


class Kernel(NamedTuple):
    """A kernel or a memset on a GPU."""

    gpu: str
    start_s: float
    end_s: float


class Step(NamedTuple):
    """A step of the program, as the profiler marked it."""

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Recorded:
    """A trace, sorted by start. `gpus`: the name of each GPU, where the trace states it. `left_out`: events that cannot
    be, each group as a sentence."""

    copies: tuple[Copy, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[Step, ...] = ()
    gpus: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def window(self) -> tuple[float, float]:
        """Start of the first and end of the last step; of all events without steps."""
        spans = [(one.start_s, one.end_s) for one in self.steps]
        if not spans:
            spans = [(one.start_s, one.end_s) for one in self.copies] + [one[1:] for one in self.kernels]
        return min(start for start, _ in spans), max(end for _, end in spans)


class Busy:
    """The time during which at least one of several intervals runs."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def within(self, start: float, end: float) -> float:
        """Busy seconds between two times."""
        total = 0.0
        for at in range(bisect.bisect_right(self._ends, start), len(self._starts)):
            if self._starts[at] >= end:
                break
            total += min(self._ends[at], end) - max(self._starts[at], start)
        return total

    def next_start(self, time: float) -> float | None:
        """The start of the first interval that begins at `time` or later; `time` itself while one runs; None after the
        last."""
        at = bisect.bisect_right(self._ends, time)
        if at == len(self._starts):
            return None
        return max(time, self._starts[at])
