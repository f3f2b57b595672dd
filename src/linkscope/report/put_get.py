"""Who should drive a message: times of the control modes of suite `putget`, where they cross, and the paper's claims.

The paper is Klenk, Oden and Froning.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.runfile import Point, Run
from linkscope.stats import Interval, ratio_interval
from linkscope.units import format_bytes

DIRECT, NOTIFIED, HOST, ASSISTED = "direct", "notified", "host", "assisted"
BY_GPU, BY_HOST = (DIRECT, NOTIFIED), (HOST, ASSISTED)
MODES = (*BY_GPU, *BY_HOST)
BY_CARD = "nic"  # the engine of messages between hosts
_IN_REGISTERS, _IN_MEMORY = 24, 64  # bytes of a card's descriptor, by its place
PACKED = "packed"  # words that have a part of the payload and its number
TOGETHER = 0.85  # share of the time that flows ran together; below, a joint rate shows nothing
OF_PROCESSES = ("ipc", "posix_fd")  # memory kinds that two processes share
TRIPS, STREAMS = ("put_ping_pong", "get_ping_pong"), ("put", "get")
_LEVEL = 0.95
NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Message:
    """One size of a series: the fastest point of each control mode.

    `ratio`: the time by the fastest mode that the host drives over that by the fastest that the GPU drives; None where
    one is missing. `interval` of it: None for too few rounds.
    """

    bytes: int
    modes: Mapping[str, Point]
    ratio: float | None
    interval: Interval | None

    @property
    def driver(self) -> str:
        """'GPU' or 'host', whichever is faster; 'either' where the interval has 1, 'not known' without an interval; ''
        where only one was measured."""
        if self.ratio is None:
            return ""
        if self.interval is None:
            return NOT_KNOWN
        if self.interval.low <= 1 <= self.interval.high:
            return "either"
        return "GPU" if self.ratio > 1 else "host"


@dataclass(frozen=True)
class Series:
    """Messages of all sizes by one operation on one path."""

    benchmark: str
    src: str
    dst: str
    messages: tuple[Message, ...]

    @property
    def is_stream(self) -> bool:
        """Whether messages follow each other, instead of going there and back."""
        return self.benchmark in STREAMS

    @property
    def advice(self) -> str:
        """'GPU up to 64 KiB, either at 256 KiB, host from 1 MiB'; '' without a comparison."""
        sizes = [(message.driver, message.bytes) for message in self.messages if message.driver]
        runs = [(name, [size for _, size in of]) for name, of in itertools.groupby(sizes, lambda one: one[0])]
        if len(runs) == 1:
            name, of = runs[0]
            if len(of) == 1:
                return f"{name} at {format_bytes(of[0])}, the only size"
            return f"{name} at all sizes, {format_bytes(of[0])} to {format_bytes(of[-1])}"
        return ", ".join(f"{name} {_range(of, at == 0, at == len(runs) - 1)}" for at, (name, of) in enumerate(runs))


@dataclass(frozen=True)
class Connections:
    """The rate of small messages by one mode over a number of connections at once.

    `per_s`: messages a second, the sum over connections. `together`: the share of the time that they ran together.
    """

    point: Point
    mode: str
    count: int
    per_s: float
    together: float

    @property
    def form(self) -> str:
        """The mode, the kind of word where a run may have two, and whether each block is a kernel of its own."""
        words = ", packed" if word_of(self.point) == PACKED else ""
        each = ", a kernel each" if self.point.params.get("launch") == "each" else ""
        return self.mode + words + each + (f", {at_once(self.point)} at once" if at_once(self.point) > 1 else "")

    @property
    def path(self) -> tuple[str, str]:
        """Source and destination."""
        return self.point.src, self.point.dst

    @property
    def counts(self) -> bool:
        """Whether the connections ran together, so that the rate is a joint one."""
        return self.together >= TOGETHER


@dataclass(frozen=True)
class Queued:
    """A round trip of puts that a GPU posts as descriptors.

    `posting`: the share of its time in which the GPU posts; it polls in the rest. None where posts were not measured.
    """

    point: Point
    posting: float | None

    @property
    def server(self) -> str:
        """Who carries out the puts."""
        if self.point.engine == BY_CARD:
            return f"a network card, {mode_of(self.point)}"
        return {"sm": "a kernel", "ce": "a copy engine"}.get(self.point.engine, "a CPU thread")

    @property
    def ring(self) -> str:
        """The memory of the ring: 'host', 'own', 'peer', or 'card' for its registers."""
        return self.point.params.get("queue", "host")

    @property
    def descriptor(self) -> int:
        """Bytes."""
        return _descriptor(self.point)


@dataclass(frozen=True)
class Compared:
    """A point beside another, `before`, from which it differs in one thing. `interval` of the ratio of their times."""

    point: Point
    before: Point
    interval: Interval | None

    @property
    def ratio(self) -> float:
        """The time of the point over that of the other."""
        return seconds_of(self.point) / seconds_of(self.before)


def mode_of(point: Point) -> str:
    """The control mode. Messages of a GPU to host memory have one: its words lie where the host polls. Those within a
    GPU are direct without a mode in their id."""
    by_gpu = DIRECT if point.src == point.dst else NOTIFIED
    return point.params.get("control", by_gpu if point.engine == "sm" else HOST)


def all_series(run: Run) -> list[Series]:
    """The series of round trips, then of streams on one connection."""
    found: dict[tuple[str, str, str], dict[int, list[Point]]] = {}
    for point in measured(run):
        if point.params.get("connections", "1") == "1":
            by_size = found.setdefault((point.benchmark, point.src, point.dst), {})
            by_size.setdefault(point.bytes, []).append(point)
    order = (*TRIPS, *STREAMS)
    return [
        Series(*key, tuple(_message(size, points) for size, points in sorted(by_size.items())))
        for key, by_size in sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1:]))
    ]


def connections(run: Run) -> list[Connections]:
    """The rates over connections, by path, mode and number. One connection counts where several were measured."""
    points = [point for point in measured(run) if point.benchmark in STREAMS and "connections" in point.params]
    several = {_form(point) for point in points if point.params["connections"] != "1"}
    made = [
        Connections(point, mode_of(point), int(point.params["connections"]), per_s(point), _together(point))
        for point in points
        if _form(point) in several
    ]
    return sorted(
        made,
        key=lambda one: (STREAMS.index(one.point.benchmark), *one.path, MODES.index(one.mode), one.form, one.count),
    )


def queued(run: Run) -> list[Queued]:
    """The round trips through descriptors, by path, server, ring, descriptor and size."""
    posts = {(_ring_of_post(point), _descriptor(point)): point for point in run.points if _is_post(point)}
    found = []
    for point in run.points:
        if _is_queued(point) and point.median_s:
            by = BY_CARD if point.engine == BY_CARD else ""
            post = posts.get((by + point.params.get("queue", "host"), _descriptor(point)))
            found.append(Queued(point, seconds_of(post) / point.median_s if post else None))
    return sorted(found, key=_order_of_queued)


def _is_post(point: Point) -> bool:
    return point.benchmark == "post" and bool(point.median_s)


def _is_queued(point: Point) -> bool:
    """Whether a GPU posts the puts of a round trip as descriptors."""
    by_card = point.benchmark == "put_ping_pong" and point.engine == BY_CARD and mode_of(point) in BY_GPU
    return by_card or point.benchmark == "queued_put_ping_pong"


def _descriptor(point: Point) -> int:
    of_card = _IN_REGISTERS if point.params.get("queue") == "card" else _IN_MEMORY
    return int(point.params.get("descriptor", of_card))


def _ring_of_post(point: Point) -> str:
    if point.engine == BY_CARD:
        return BY_CARD + point.params["queue"]
    return "host" if point.dst.startswith("numa") else "own" if point.dst == point.src else "peer"


def _order_of_queued(one: Queued) -> tuple[str, str, str, str, int, int]:
    point = one.point
    return point.src, point.dst, one.server, one.ring, one.descriptor, point.bytes


def relaunched(run: Run) -> list[Compared]:
    """Messages by a kernel for each of them, beside the same by a kernel that stays, by operation, path and size."""
    stays = {_as_persistent(point): point for point in measured(run)}
    pairs = [(stays.get(_as_persistent(point)), point) for point in _messages(run) if _is_relaunched(point)]
    order = (*TRIPS, *STREAMS)
    made = [Compared(point, before, time_ratio(before, point)) for before, point in pairs if before]
    return sorted(
        made, key=lambda one: (order.index(one.point.benchmark), one.point.src, one.point.dst, one.point.bytes)
    )


def bystanders(run: Run) -> list[Compared]:
    """Products of matrices beside blocks that post or poll, and alone, by GPU, work and number of blocks."""
    points = [point for point in run.points if point.benchmark == "bystander" and point.median_s and point.flows]
    alone = {(point.src, point.dst): point for point in points if point.params["beside"] == "none"}
    pairs = [(alone.get((point.src, point.dst)), point) for point in points if point.params["beside"] != "none"]
    made = [Compared(point, before, time_ratio(before, point)) for before, point in pairs if before]
    return sorted(made, key=lambda one: (one.point.src, one.point.params["beside"] == "poll", blocks_of(one.point)))


def blocks_of(point: Point) -> int:
    """The blocks of a point's kernel."""
    return int(point.params.get("blocks", "1"))


def _as_persistent(point: Point) -> tuple[str, ...]:
    """What a point has in common with that of a kernel that stays."""
    rest = (f"{name}={value}" for name, value in sorted(point.params.items()) if name != "kernel")
    return (point.benchmark, point.src, point.dst, point.engine, str(point.bytes), *rest)


def measured(run: Run) -> Iterable[Point]:
    return (point for point in _messages(run) if not _is_relaunched(point))


def _messages(run: Run) -> Iterable[Point]:
    names = (*TRIPS, *STREAMS)
    # The kernels of two processes on one GPU have the same ends as those of one process, and other times.
    alone = (point for point in run.points if point.benchmark in names and point.src_memory not in OF_PROCESSES)
    return (point for point in alone if point.median_s and point.flows)


def _is_relaunched(point: Point) -> bool:
    return point.params.get("kernel") == "relaunched"


def word_of(point: Point) -> str:
    return point.params.get("word", "separate")


def _together(point: Point) -> float:
    return float(point.guards.get("joint_overlap", 1.0))


def _form(point: Point) -> tuple[str, ...]:
    """What points share that differ in the number of connections only."""
    rest = (f"{name}={value}" for name, value in sorted(point.params.items()) if name != "connections")
    return (point.benchmark, point.src, point.dst, point.engine, str(point.bytes), *rest)


def _message(size: int, points: Sequence[Point]) -> Message:
    modes: dict[str, Point] = {}
    for point in sorted(points, key=seconds_of, reverse=True):
        modes[mode_of(point)] = point
    # One thread is slow with large messages, so alone it does not stand for its mode.
    known = {mode_of(point) for point in points if point.params.get("threads") != "1"}
    modes = {name: point for name, point in modes.items() if name in known}
    gpu, host = (_fastest(modes, names) for names in (BY_GPU, BY_HOST))
    if gpu is None or host is None:
        return Message(size, modes, None, None)
    return Message(size, modes, seconds_of(host) / seconds_of(gpu), time_ratio(gpu, host))


def _fastest(modes: Mapping[str, Point], names: Iterable[str]) -> Point | None:
    return min((modes[name] for name in names if name in modes), key=seconds_of, default=None)


def at_once(point: Point) -> int:
    """The messages of one operation, which a connection sends at once."""
    return int(point.params.get("at_once", "1"))


def seconds_of(point: Point) -> float:
    """Seconds of a message; 0 without values."""
    return (point.median_s or 0.0) / at_once(point)


def time_ratio(before: Point, after: Point) -> Interval | None:
    """The interval of the time of a message of `after` over that of `before`."""
    rounds = [[value / at_once(point) for value in point.flows[0].round_medians_s] for point in (before, after)]
    return ratio_interval(rounds[0], rounds[1], alike=None, level=_LEVEL)


def per_s(point: Point) -> float:
    """Messages a second of all measured flows together."""
    return sum(at_once(point) / flow.median_s for flow in point.flows if flow.role == "measured" and flow.median_s)


def _range(sizes: Sequence[int], first: bool, last: bool) -> str:
    if first and len(sizes) > 1:
        return f"up to {format_bytes(sizes[-1])}"
    if last and len(sizes) > 1:
        return f"from {format_bytes(sizes[0])}"
    ends = dict.fromkeys((format_bytes(sizes[0]), format_bytes(sizes[-1])))
    return f"at {' to '.join(ends)}"
