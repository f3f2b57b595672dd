"""Who should drive a message: times of the control modes of suite `putget`, where they cross, and the paper's claims.

The paper is Klenk, Oden and Froning.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.runfile import Point, Run
from linkscope.stats import Interval, ratio_interval
from linkscope.units import format_bytes, format_fraction, format_seconds

DIRECT, NOTIFIED, HOST, ASSISTED = "direct", "notified", "host", "assisted"
BY_GPU, BY_HOST = (DIRECT, NOTIFIED), (HOST, ASSISTED)
MODES = (*BY_GPU, *BY_HOST)
PACKED = "packed"  # words that have a part of the payload and its number
TOGETHER = 0.85  # share of the time that flows ran together; below, a joint rate shows nothing
_TRIPS, _STREAMS = ("put_ping_pong", "get_ping_pong"), ("put", "get")
_LEVEL = 0.95
_LARGE = 1 << 20  # the paper's rate falls beyond
_FLAT = 4  # connections from which the paper's host serves no more messages
_GROWS = 1.1  # a rate by more connections that counts as higher


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
        """'GPU' or 'host', whichever is faster; 'either' where the interval has 1; '' where only one was measured."""
        if self.ratio is None:
            return ""
        if self.interval is None or self.interval.low <= 1 <= self.interval.high:
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
        return self.benchmark in _STREAMS

    @property
    def advice(self) -> str:
        """'GPU up to 64 KiB, either at 256 KiB, host from 1 MiB'; '' without a comparison."""
        sizes = [(message.driver, message.bytes) for message in self.messages if message.driver]
        runs = [(name, [size for _, size in of]) for name, of in itertools.groupby(sizes, lambda one: one[0])]
        if len(runs) == 1:
            name, of = runs[0]
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
        """The mode, and the kind of word where a run may have two."""
        return f"{self.mode}, packed" if _word(self.point) == PACKED else self.mode

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
        return {"sm": "a kernel", "ce": "a copy engine"}.get(self.point.engine, "a CPU thread")

    @property
    def ring(self) -> str:
        """The memory of the ring: 'host', 'own' or 'peer'."""
        return self.point.params.get("queue", "host")


@dataclass(frozen=True)
class Compared:
    """A point beside another, `before`, from which it differs in one thing. `interval` of the ratio of their times."""

    point: Point
    before: Point
    interval: Interval | None

    @property
    def ratio(self) -> float:
        """The time of the point over that of the other."""
        return _seconds(self.point) / _seconds(self.before)


@dataclass(frozen=True)
class Claim:
    """A conclusion of the paper, and whether it holds here; None if the run cannot say. `evidence`: the numbers."""

    text: str
    holds: bool | None
    evidence: str


def mode_of(point: Point) -> str:
    """The control mode. Messages of a GPU to host memory have one: its words lie where the host polls."""
    return point.params.get("control", NOTIFIED if point.engine == "sm" else HOST)


def all_series(run: Run) -> list[Series]:
    """The series of round trips, then of streams on one connection."""
    found: dict[tuple[str, str, str], dict[int, list[Point]]] = {}
    for point in _measured(run):
        if point.params.get("connections", "1") == "1":
            by_size = found.setdefault((point.benchmark, point.src, point.dst), {})
            by_size.setdefault(point.bytes, []).append(point)
    order = (*_TRIPS, *_STREAMS)
    return [
        Series(*key, tuple(_message(size, points) for size, points in sorted(by_size.items())))
        for key, by_size in sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1:]))
    ]


def connections(run: Run) -> list[Connections]:
    """The rates over connections, by path, mode and number. One connection counts where several were measured."""
    points = [point for point in _measured(run) if point.benchmark in _STREAMS and "connections" in point.params]
    several = {_form(point) for point in points if point.params["connections"] != "1"}
    made = [
        Connections(point, mode_of(point), int(point.params["connections"]), _per_s(point), _together(point))
        for point in points
        if _form(point) in several
    ]
    return sorted(
        made,
        key=lambda one: (_STREAMS.index(one.point.benchmark), *one.path, MODES.index(one.mode), one.form, one.count),
    )


def queued(run: Run) -> list[Queued]:
    """The round trips through descriptors, by path, server, ring, descriptor and size."""
    posts = {(_ring_of_post(point), point.params["descriptor"]): point for point in run.points if _is_post(point)}
    found = []
    for point in run.points:
        if point.benchmark == "queued_put_ping_pong" and point.median_s:
            post = posts.get((point.params.get("queue", "host"), point.params["descriptor"]))
            found.append(Queued(point, _seconds(post) / point.median_s if post else None))
    return sorted(found, key=_order_of_queued)


def _is_post(point: Point) -> bool:
    return point.benchmark == "post" and bool(point.median_s)


def _ring_of_post(point: Point) -> str:
    return "host" if point.dst.startswith("numa") else "own" if point.dst == point.src else "peer"


def _order_of_queued(one: Queued) -> tuple[str, str, str, str, int, int]:
    point = one.point
    return point.src, point.dst, point.engine, one.ring, int(point.params["descriptor"]), point.bytes


def relaunched(run: Run) -> list[Compared]:
    """Messages by a kernel for each of them, beside the same by a kernel that stays, by operation, path and size."""
    stays = {_as_persistent(point): point for point in _measured(run)}
    pairs = [(stays.get(_as_persistent(point)), point) for point in _messages(run) if _is_relaunched(point)]
    order = (*_TRIPS, *_STREAMS)
    made = [Compared(point, before, _ratio(before, point)) for before, point in pairs if before]
    return sorted(
        made, key=lambda one: (order.index(one.point.benchmark), one.point.src, one.point.dst, one.point.bytes)
    )


def bystanders(run: Run) -> list[Compared]:
    """Products of matrices beside blocks that post or poll, and alone, by GPU, work and number of blocks."""
    points = [point for point in run.points if point.benchmark == "bystander" and point.median_s and point.flows]
    alone = {(point.src, point.dst): point for point in points if point.params["beside"] == "none"}
    pairs = [(alone.get((point.src, point.dst)), point) for point in points if point.params["beside"] != "none"]
    made = [Compared(point, before, _ratio(before, point)) for before, point in pairs if before]
    return sorted(made, key=lambda one: (one.point.src, one.point.params["beside"] == "poll", blocks_of(one.point)))


def blocks_of(point: Point) -> int:
    """The blocks of a point's kernel."""
    return int(point.params.get("blocks", "1"))


def _as_persistent(point: Point) -> tuple[str, ...]:
    """What a point has in common with that of a kernel that stays."""
    rest = (f"{name}={value}" for name, value in sorted(point.params.items()) if name != "kernel")
    return (point.benchmark, point.src, point.dst, point.engine, str(point.bytes), *rest)


def claims(run: Run) -> list[Claim]:
    """The paper's relations, and its three claims on interfaces."""
    trips = _between_gpus(all_series(run), "put_ping_pong")
    streams = _between_gpus(all_series(run), "put")
    small = trips[0].modes if trips else {}
    return [
        _slower("A GPU that drives messages needs more time than the host", small, NOTIFIED, HOST),
        _slower("The host's help costs more than polling in GPU memory", small, ASSISTED, DIRECT),
        _slower("Polling in host memory costs more than polling in GPU memory", small, NOTIFIED, DIRECT),
        _falls(streams),
        _flat(connections(run)),
        _small(run),
        _collaborates(run),
        _slower("Words that stay off the host link save time", small, NOTIFIED, DIRECT),
    ]


def _measured(run: Run) -> Iterable[Point]:
    return (point for point in _messages(run) if not _is_relaunched(point))


def _messages(run: Run) -> Iterable[Point]:
    names = (*_TRIPS, *_STREAMS)
    return (point for point in run.points if point.benchmark in names and point.median_s and point.flows)


def _is_relaunched(point: Point) -> bool:
    return point.params.get("kernel") == "relaunched"


def _word(point: Point) -> str:
    return point.params.get("word", "separate")


def _together(point: Point) -> float:
    return float(point.guards.get("joint_overlap", 1.0))


def _form(point: Point) -> tuple[str, ...]:
    """What points share that differ in the number of connections only."""
    rest = (f"{name}={value}" for name, value in sorted(point.params.items()) if name != "connections")
    return (point.benchmark, point.src, point.dst, point.engine, str(point.bytes), *rest)


def _message(size: int, points: Sequence[Point]) -> Message:
    modes: dict[str, Point] = {}
    for point in sorted(points, key=_seconds, reverse=True):
        modes[mode_of(point)] = point
    # One thread is slow with large messages, so alone it does not stand for its mode.
    known = {mode_of(point) for point in points if point.params.get("threads") != "1"}
    modes = {name: point for name, point in modes.items() if name in known}
    gpu, host = (_fastest(modes, names) for names in (BY_GPU, BY_HOST))
    if gpu is None or host is None:
        return Message(size, modes, None, None)
    return Message(size, modes, _seconds(host) / _seconds(gpu), _ratio(gpu, host))


def _fastest(modes: Mapping[str, Point], names: Iterable[str]) -> Point | None:
    return min((modes[name] for name in names if name in modes), key=_seconds, default=None)


def _seconds(point: Point) -> float:
    return point.median_s or 0.0


def _ratio(before: Point, after: Point) -> Interval | None:
    """The interval of the time of `after` over that of `before`."""
    rounds = [point.flows[0].round_medians_s for point in (before, after)]
    return ratio_interval(rounds[0], rounds[1], alike=None, level=_LEVEL)


def _per_s(point: Point) -> float:
    return sum(1 / flow.median_s for flow in point.flows if flow.role == "measured" and flow.median_s)


def _range(sizes: Sequence[int], first: bool, last: bool) -> str:
    if first:
        return f"up to {format_bytes(sizes[-1])}"
    if last:
        return f"from {format_bytes(sizes[0])}"
    ends = dict.fromkeys((format_bytes(sizes[0]), format_bytes(sizes[-1])))
    return f"at {' to '.join(ends)}"


def _between_gpus(series: Sequence[Series], benchmark: str) -> tuple[Message, ...]:
    """The messages of the first path whose modes lie in GPU memory and in host memory."""
    found = (one.messages for one in series if one.benchmark == benchmark and DIRECT in one.messages[0].modes)
    return next(found, ())


def _slower(text: str, modes: Mapping[str, Point], slow: str, fast: str) -> Claim:
    """The claim that one mode takes longer than another."""
    if slow not in modes or fast not in modes:
        return Claim(text, None, f"the run lacks mode {slow if slow not in modes else fast}")
    return _longer(text, (slow, modes[slow]), (fast, modes[fast]))


def _longer(text: str, slow: tuple[str, Point], fast: tuple[str, Point]) -> Claim:
    ends = _ratio(fast[1], slow[1])
    shown = "" if ends is None else f" [{ends.low:.3g}, {ends.high:.3g}]"
    evidence = (
        f"{format_bytes(slow[1].bytes)}: {slow[0]} {format_seconds(_seconds(slow[1]))}, {fast[0]} "
        f"{format_seconds(_seconds(fast[1]))}; ratio {_seconds(slow[1]) / _seconds(fast[1]):.3g}{shown}"
    )
    known = ends is not None and not ends.low <= 1 <= ends.high
    return Claim(text, ends is not None and ends.low > 1 if known else None, evidence)


def _falls(messages: Sequence[Message]) -> Claim:
    """The rate that a GPU reaches falls for messages of more than 1 MiB."""
    text = "The rate falls beyond 1 MiB"
    of = [message.modes[DIRECT] for message in messages if DIRECT in message.modes]
    large = [point for point in of if point.bytes > _LARGE]
    if not large or len(large) == len(of):
        return Claim(text, None, "the run lacks sizes below or above")

    def gbps(point: Point) -> float:
        return point.bytes / _seconds(point) / 1e9

    best, last = max((point for point in of if point.bytes <= _LARGE), key=gbps), large[-1]
    fall = gbps(last) / gbps(best) - 1
    evidence = (
        f"{gbps(best):.4g} GB/s at {format_bytes(best.bytes)}, {gbps(last):.4g} GB/s at {format_bytes(last.bytes)}"
    )
    return Claim(text, fall < 1 / _GROWS - 1, evidence)


def _flat(rates: Sequence[Connections]) -> Claim:
    """More than four connections bring the host that helps no higher rate."""
    text = f"The rate with the host's help is flat beyond {_FLAT} connections"
    of = [one for one in rates if one.mode == ASSISTED and one.point.benchmark == "put"]
    few = next((one for one in of if one.count == _FLAT), None)
    more = [one for one in of if few and one.path == few.path and one.count > _FLAT]
    if few is None or not more:
        return Claim(text, None, "the run lacks numbers of connections")
    many = max(more, key=lambda one: one.count)
    if not (few.counts and many.counts):
        shares = f"{format_fraction(few.together)} and {format_fraction(many.together)}"
        why = f"{few.count} and {many.count} connections ran together for only {shares} of the time"
        return Claim(text, None, why)
    rates_of = f"{few.count} connections: {few.per_s / 1e6:.3g} M/s, {many.count}: {many.per_s / 1e6:.3g} M/s"
    return Claim(text, many.per_s < few.per_s * _GROWS, rates_of)


def _small(run: Run) -> Claim:
    """A payload and its number in one word of 16 bytes beat a payload with a word of its own behind a fence."""
    text = "A small footprint saves time: payload and number in one word"
    found: dict[tuple[str, int], dict[str, Point]] = {}
    for point in sorted(_measured(run), key=_seconds, reverse=True):
        if point.benchmark == "put_ping_pong" and point.engine == "sm":
            found.setdefault((f"{point.src} {point.dst} {mode_of(point)}", point.bytes), {})[_word(point)] = point
    both = {key: of for key, of in found.items() if len(of) > 1}
    if not both:
        return Claim(text, None, "the run lacks packed words")
    of = both[min(both, key=lambda key: (key[1], key[0]))]
    return _longer(text, *((f"{name} words", of[name]) for name in ("separate", PACKED)))


def _collaborates(run: Run) -> Claim:
    """A block moves a large message faster than one of its threads; the evidence has the smallest message as well."""
    text = "Threads that post together beat one thread"
    forms: dict[tuple[str, ...], dict[int, dict[int, Point]]] = {}
    for point in _measured(run):
        if point.benchmark in _TRIPS and "threads" in point.params:
            rest = tuple(value for name, value in sorted(point.params.items()) if name != "threads")
            sizes = forms.setdefault((point.benchmark, point.src, point.dst, *rest), {})
            sizes.setdefault(point.bytes, {})[int(point.params["threads"])] = point
    able = {key: [of for _, of in sorted(sizes.items()) if 1 in of and len(of) > 1] for key, sizes in forms.items()}
    by_size = max((able[key] for key in sorted(able)), key=len, default=[])
    if not by_size:
        return Claim(text, None, "the run lacks numbers of threads")
    large, small = (
        _longer(text, ("1 thread", of[1]), (f"{max(of)} threads", of[max(of)])) for of in (by_size[-1], by_size[0])
    )
    evidence = f"{large.evidence}; {small.evidence}" if len(by_size) > 1 else large.evidence
    return Claim(text, large.holds, evidence)
