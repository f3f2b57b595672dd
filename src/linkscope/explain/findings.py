"""What a trace shows: each finding with the seconds of the program that it is worth.

A shorter copy gains only the time in which no kernel ran beside it, so each worth is limited by that time. No two
findings count the same time, so their gains may be added.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from linkscope.explain.events import Busy, Copy, Recorded
from linkscope.explain.expect import Expected, kind_of

SMALL = 64 << 10  # copies up to this size are worth combining
_LEAST_ROW = 8  # so many small copies in a row
_ROW_GAP_S = 50e-6  # longest pause between two copies of a row
_READ = 4 << 10  # values that the program reads back, such as a loss
_LARGE = 1 << 20
_SLOW = 1.3  # times the expected time
_NO_PEER = 2.0
_LEAST_GAP_S = 5e-6  # shorter pauses of a GPU are those between two kernels


@dataclass(frozen=True)
class Advice:
    """A finding in words: `how` is the cure."""

    name: str
    title: str
    how: str


ADVICE = (
    Advice("pin", "pin the host memory of these copies",
           "pin_memory=True of the DataLoader, or cudaHostRegister, and non_blocking=True"),
    Advice("peer", "enable peer access between these GPUs", "cudaDeviceEnablePeerAccess, once per pair"),
    Advice("combine", "combine small copies", "pack them into one buffer, or cudaMemcpyBatchAsync"),
    Advice("beside", "move copies that slow one another down",
           "let copies of one link follow one another, or use another GPU's link"),
    Advice("slow", "find out why these copies are slow", "linkscope run, and linkscope check on this node"),
    Advice("read", "read results less often",
           "keep losses on the GPU and print every 100 steps; avoid .item() in the loop"),
    Advice("overlap", "copy while kernels run",
           "a second stream and pinned memory: load the next batch during this step"),
)  # fmt: skip


@dataclass
class Finding:
    """The copies that one piece of advice is about."""

    advice: Advice
    copies: list[Copy] = field(default_factory=list)
    worth_s: float = 0.0
    should_s: float | None = None  # how long they should take; None: not the point

    @property
    def bytes(self) -> int:
        """Moved bytes."""
        return sum(copy.bytes for copy in self.copies)

    @property
    def took_s(self) -> float:
        """How long the copies took."""
        return sum(copy.seconds for copy in self.copies)

    def add(self, copies: Sequence[Copy], worth_s: float, should_s: float | None = None) -> None:
        self.copies += copies
        self.worth_s += worth_s
        if should_s is not None:
            self.should_s = (self.should_s or 0.0) + should_s


@dataclass(frozen=True)
class Explanation:
    """The trace in numbers. `alone_s`: time of copies during which no kernel ran on their GPU. `expected_s`: of each
    copy in `recorded`; None where nothing is known."""

    recorded: Recorded
    expected: Expected
    expected_s: tuple[float | None, ...]
    span_s: float
    kernels_s: float
    copies_s: float
    alone_s: float
    findings: tuple[Finding, ...]


def explain(recorded: Recorded, expected: Expected) -> Explanation:
    """Compares every copy with what it should take."""
    start, end = recorded.window
    inside = [copy for copy in recorded.copies if copy.start_s < end and copy.end_s > start]
    state = _State(recorded, inside, expected)
    for copies in _rows_of_small(inside):
        state.combine(copies)
    for copy in inside:
        state.judge(copy)
    busiest = max((busy.within(start, end) for busy in state.kernels.values()), default=0.0)
    state.overlap(busiest)
    found = sorted(state.findings.values(), key=lambda one: -one.worth_s)
    return Explanation(
        recorded, expected, tuple(expected.seconds(kind_of(copy), copy.bytes) for copy in recorded.copies), end - start,
        busiest, Busy((copy.start_s, copy.end_s) for copy in inside).within(start, end),
        sum(state.alone_s(copy) for copy in inside), tuple(one for one in found if one.worth_s > 0),
    )  # fmt: skip


class _State:
    """What is known while the copies are judged."""

    def __init__(self, recorded: Recorded, copies: Sequence[Copy], expected: Expected) -> None:
        gpus = {kernel.gpu for kernel in recorded.kernels} | {gpu for copy in copies for gpu in copy.gpus}
        self.kernels = {
            gpu: Busy((one.start_s, one.end_s) for one in recorded.kernels if one.gpu == gpu) for gpu in gpus
        }
        self.work = {
            gpu: Busy(
                [(one.start_s, one.end_s) for one in recorded.kernels if one.gpu == gpu]
                + [(one.start_s, one.end_s) for one in copies if gpu in one.gpus]
            )
            for gpu in gpus
        }
        self.expected = expected
        self.findings = {advice.name: Finding(advice) for advice in ADVICE}
        self._copies = copies
        self._combined: set[int] = set()
        self._hidden_s = 0.0  # what could still run beside kernels
        self._hideable: list[Copy] = []

    def alone_s(self, copy: Copy) -> float:
        """The part of a copy beside which no kernel ran on a GPU of its own."""
        beside = max((self.kernels[gpu].within(copy.start_s, copy.end_s) for gpu in copy.gpus), default=0.0)
        return max(copy.seconds - beside, 0.0)

    def combine(self, row: Sequence[Copy]) -> None:
        """A row of small copies, against one copy of all their bytes."""
        should = self.expected.seconds(kind_of(row[0]), sum(copy.bytes for copy in row))
        if should is None:
            return
        span = row[-1].end_s - row[0].start_s
        beside = max((self.kernels[gpu].within(row[0].start_s, row[-1].end_s) for gpu in row[0].gpus), default=0.0)
        self._combined |= {id(copy) for copy in row}
        self.findings["combine"].add(row, max(min(span - beside, span - should), 0.0), should)

    def judge(self, copy: Copy) -> None:
        """One copy against the same with pinned memory or peer access, or against itself alone."""
        if id(copy) in self._combined:
            return
        alone, kind = self.alone_s(copy), kind_of(copy)
        if copy.kind == "d2h" and copy.bytes <= _READ:
            self.read(copy)
            return
        best = self.expected.seconds(kind.pinned, copy.bytes)
        if best is None:
            return
        worth = max(min(alone, copy.seconds - best), 0.0)
        if copy.pageable:
            self.findings["pin"].add([copy], worth, best)
        elif copy.kind == "d2d" and copy.seconds > _NO_PEER * best:
            self.findings["peer"].add([copy], worth, best)
        elif copy.bytes >= _LARGE and copy.seconds > _SLOW * best:
            self.findings["beside" if self._has_neighbour(copy) else "slow"].add([copy], worth, best)
        else:
            worth = 0.0
        self._hidden_s += alone - worth
        if alone - worth > 0:
            self._hideable.append(copy)

    def read(self, copy: Copy) -> None:
        """A value that the host waits for: the GPU is idle until the host has queued more."""
        gpu = copy.src
        following = self.work[gpu].next_start(copy.end_s)
        idle = 0.0 if following is None else following - copy.end_s
        if idle >= _LEAST_GAP_S:
            self.findings["read"].add([copy], idle + self.alone_s(copy))

    def overlap(self, kernels_s: float) -> None:
        """The rest of the copies' time, as far as there are kernels to run beside."""
        if self._hideable:
            self.findings["overlap"].add(self._hideable, min(self._hidden_s, kernels_s))

    def _has_neighbour(self, copy: Copy) -> bool:
        """Whether another copy from the same source or to the same destination ran during half of it."""
        shared = 0.0
        for other in self._copies:
            if other is not copy and (other.src == copy.src or other.dst == copy.dst):
                shared += max(min(other.end_s, copy.end_s) - max(other.start_s, copy.start_s), 0.0)
        return shared >= copy.seconds / 2


def _rows_of_small(copies: Iterable[Copy]) -> list[list[Copy]]:
    """Small copies of one kind on one stream that follow one another closely."""
    rows: list[list[Copy]] = []
    open_rows: dict[str, list[Copy]] = {}
    for copy in copies:
        row = open_rows.get(copy.stream)
        fits = row and kind_of(row[-1]) == kind_of(copy) and copy.start_s - row[-1].end_s <= _ROW_GAP_S
        if copy.bytes <= SMALL and row and fits:
            row.append(copy)
            continue
        if row:
            rows.append(row)
        open_rows[copy.stream] = [copy] if copy.bytes <= SMALL else []
    rows += open_rows.values()
    return [row for row in rows if len(row) >= _LEAST_ROW]
