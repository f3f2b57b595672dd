"""The conclusions of Klenk, Oden and Froning, and their three claims on interfaces, on a measured machine.

Each is judged on one path: between two GPUs or hosts, else between two kernels of one GPU, else with host memory. The
evidence names the path unless it is the first of these.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from linkscope.flow import kind_of
from linkscope.report.put_get import (
    ASSISTED,
    BY_CARD,
    DIRECT,
    HOST,
    NOT_KNOWN,
    NOTIFIED,
    PACKED,
    TRIPS,
    Connections,
    Message,
    Queued,
    Series,
    all_series,
    connections,
    measured,
    mode_of,
    queued,
    seconds_of,
    time_ratio,
    word_of,
)
from linkscope.runfile import Point, Run
from linkscope.units import format_bytes, format_fraction, format_seconds

_LARGE = 1 << 20  # the paper's rate falls beyond
_CROSSING = 2 << 10  # where the paper's GPU and host change places
_NEAR = 8  # times and parts of the crossing within which the sizes on both of its sides must lie
_LEAST_SIZES = 2  # to see a change
_FLAT = 4  # connections from which the paper's host serves no more messages
_SMALL = 256  # bytes of a message whose packed words are a few lines
_LEAST_POST = 1e-6  # share of a round trip; a shorter post is lost in the resolution of the clock
_GROWS = 1.1  # a rate that counts as higher


@dataclass(frozen=True)
class Claim:
    """A conclusion of the paper, and whether it holds here; None if the run cannot say.

    `evidence`: the numbers, or what the run lacks. `item`: of the paper. `tested`: whether the run has the points.
    """

    item: str
    text: str
    holds: bool | None
    evidence: str
    tested: bool = True

    @property
    def answer(self) -> str:
        """The answer in words. Not known: intervals overlap, or flows did not run together."""
        if not self.tested:
            return "cannot be tested"
        return {True: "holds", False: "does not hold", None: "not known"}[self.holds]


def claims(run: Run) -> list[Claim]:
    """The paper's relations, and its three claims on interfaces (KL-12), which come last."""
    trips = _between_gpus(all_series(run), "put_ping_pong")
    streams = _between_gpus(all_series(run), "put")
    rates = [one for one in connections(run) if one.point.benchmark == "put"]
    return [
        _slower("KL-10", "A GPU that drives messages needs more time than the host", trips, NOTIFIED, HOST),
        _slower("KL-10", "The host's help costs more than polling in GPU memory", trips, ASSISTED, DIRECT),
        _slower("KL-10", "Polling in host memory costs more than polling in GPU memory", trips, NOTIFIED, DIRECT),
        _crosses(trips),
        _falls(streams),
        _polls(run),
        _polls_by_place(run, large=False),
        _polls_by_place(run, large=True),
        _fewer(rates),
        _alike(rates),
        _reaches(rates),
        _flat(rates),
        _small(run),
        _collaborates(run),
        _slower("KL-12", "Words that stay off the host link save time", trips, NOTIFIED, DIRECT),
    ]


def best_claims(runs: Sequence[Run]) -> list[Claim]:
    """The claims of several runs of one machine: each by the first run that has an answer, or at least its points."""
    of_runs = zip(*(claims(run) for run in runs), strict=True)
    return [min(of, key=lambda one: (not one.tested, one.holds is None)) for of in of_runs]


def _lacking(item: str, text: str, what: str) -> Claim:
    return Claim(item, text, None, f"the run lacks {what}", tested=False)


def _between_gpus(series: Sequence[Series], benchmark: str) -> tuple[Message, ...]:
    """The messages of the first path between GPUs, or else within one, whose words may lie in GPU memory."""
    of = [one for one in series if one.benchmark == benchmark]
    found = [one for one in of if any(DIRECT in message.modes for message in one.messages)]
    return min(found, key=lambda one: _rank(one.src, one.dst)).messages if found else ()


def _rank(src: str, dst: str) -> int:
    """The place of a path in the order in which claims are judged."""
    return 1 if src == dst else 0 if kind_of(src) == kind_of(dst) else 2


def _on(src: str, dst: str) -> str:
    """The path as the end of an evidence."""
    return ("", f", between two kernels of {src}", f", between {src} and {dst}")[_rank(src, dst)]


def _slower(item: str, text: str, messages: Sequence[Message], slow: str, fast: str) -> Claim:
    """The claim that one mode takes longer than another, by the smallest messages that the run has in both."""
    for message in messages:
        if slow in message.modes and fast in message.modes:
            return _longer(item, text, (slow, message.modes[slow]), (fast, message.modes[fast]))
    measured_modes = {mode for message in messages for mode in message.modes}
    lacking = [mode for mode in (slow, fast) if mode not in measured_modes]
    what = f"mode {lacking[0]}" if lacking else f"a size with modes {slow} and {fast}"
    return _lacking(item, text, what + _path_of(messages))


def _path_of(messages: Sequence[Message]) -> str:
    """The path of the messages as the end of an evidence; '' without messages."""
    some = next((point for message in messages for point in message.modes.values()), None)
    return _on(some.src, some.dst) if some else ""


def _longer(item: str, text: str, slow: tuple[str, Point], fast: tuple[str, Point]) -> Claim:
    ends = time_ratio(fast[1], slow[1])
    shown = "" if ends is None else f" [{ends.low:.3g}, {ends.high:.3g}]"
    shown += _on(slow[1].src, slow[1].dst)
    evidence = (
        f"{format_bytes(slow[1].bytes)}: {slow[0]} {format_seconds(seconds_of(slow[1]))}, {fast[0]} "
        f"{format_seconds(seconds_of(fast[1]))}; ratio {seconds_of(slow[1]) / seconds_of(fast[1]):.3g}{shown}"
    )
    known = ends is not None and not ends.low <= 1 <= ends.high
    return Claim(item, text, ends is not None and ends.low > 1 if known else None, evidence)


def _crosses(messages: Sequence[Message]) -> Claim:
    """The driver that is faster changes at about 2 KiB. Not known if the run has no sizes near it, or no intervals."""
    text = f"GPU and host change places at about {format_bytes(_CROSSING)}"
    judged = [message for message in messages if message.driver]
    if len(judged) < _LEAST_SIZES:
        return _lacking("KL-10", text, f"sizes with modes of the GPU and of the host{_path_of(messages)}")
    decided = [message for message in judged if message.driver != NOT_KNOWN]
    pairs = [pair for pair in itertools.pairwise(decided) if pair[0].driver != pair[1].driver]
    beside = [(few, many) for few, many in pairs if few.bytes <= 2 * _CROSSING and many.bytes >= _CROSSING // 2]
    known = [few.bytes * _NEAR >= _CROSSING and many.bytes <= _CROSSING * _NEAR for few, many in beside]
    near = any(known) or (None if beside or len(decided) < _LEAST_SIZES else False)
    drivers = itertools.groupby(judged, lambda message: message.driver)
    parts = [f"{driver} from {format_bytes(next(of).bytes)}" for driver, of in drivers]
    some = next(iter(judged[0].modes.values()))
    lacks = ", no size between" if beside and near is None else ""
    return Claim("KL-10", text, near, f"round trips: {', '.join(parts)}{lacks}{_on(some.src, some.dst)}")


def _falls(messages: Sequence[Message]) -> Claim:
    """The rate that a GPU reaches falls for messages of more than 1 MiB."""
    text = "The rate falls beyond 1 MiB"
    of = [message.modes[DIRECT] for message in messages if DIRECT in message.modes]
    large = [point for point in of if point.bytes > _LARGE]
    if not large or not any(_LARGE // 4 <= point.bytes <= _LARGE for point in of):
        return _lacking("KL-10", text, "sizes of 256 KiB to 1 MiB, or larger ones")

    def gbps(point: Point) -> float:
        return point.bytes / seconds_of(point) / 1e9

    best, last = max((point for point in of if point.bytes <= _LARGE), key=gbps), large[-1]
    fall = gbps(last) / gbps(best) - 1
    evidence = (
        f"{gbps(best):.4g} GB/s at {format_bytes(best.bytes)}, {gbps(last):.4g} GB/s at {format_bytes(last.bytes)}"
        f"{_on(last.src, last.dst)}"
    )
    return Claim("KL-10", text, fall < 1 / _GROWS - 1, evidence)


def _polls(run: Run) -> Claim:
    """Polling takes longer than posting, in a round trip of a small put through descriptors in host memory, or by a
    network card with notifications."""
    text = "Polling takes longer than posting"
    of = [one for one in queued(run) if one.posting and (_is_host_ring(one) or _is_notified(one))]
    if not of:
        return _lacking("KL-4", text, "puts through descriptors in host memory with their posts (suite putget-queues)")
    least = min(of, key=lambda one: (_rank(one.point.src, one.point.dst), one.point.bytes, one.descriptor))
    times = (1 - (least.posting or 0.0)) / (least.posting or 1.0)
    evidence = f"{format_bytes(least.point.bytes)}: time of polling over that of posting: {times:.3g}"
    return Claim("KL-4", text, times > 1, evidence + _on(least.point.src, least.point.dst))


def _polls_by_place(run: Run, *, large: bool) -> Claim:
    """The time of polling over that of posting: higher for rings in host memory than in the GPU's own if messages are
    small, and equal if they are large."""
    small_text = "higher with queues in host than in GPU memory"
    text = f"Polling over posting is {'equal for large messages, wherever the queue lies' if large else small_text}"
    by_form: dict[tuple[str, str, int, int], dict[str, float]] = {}
    for one in queued(run):
        if one.posting and one.point.engine == "sm" and (one.point.bytes >= _LARGE) == large:
            key = (one.point.src, one.point.dst, one.point.bytes, one.descriptor)
            by_form.setdefault(key, {})[one.ring] = (1 - one.posting) / one.posting
    both = {key: of for key, of in by_form.items() if {"host", "own"} <= of.keys()}
    if not both:
        return _lacking(
            "KL-4", text, "puts through descriptors in both memories with their posts (suite putget-queues)"
        )
    key = min(both, key=lambda key: (_rank(*key[:2]), key[2:], key[:2]))
    host, own = both[key]["host"], both[key]["own"]
    if max(host, own) > 1 / _LEAST_POST:
        return Claim("KL-4", text, None, f"{format_bytes(key[2])}: a post takes no time that shows{_on(*key[:2])}")
    holds = own / _GROWS <= host <= own * _GROWS if large else host > own * _GROWS
    evidence = f"{format_bytes(key[2])}: {host:.3g} in host memory, {own:.3g} in the GPU's own{_on(*key[:2])}"
    return Claim("KL-4", text, holds, evidence)


def _is_host_ring(one: Queued) -> bool:
    return one.ring == "host" and one.point.engine == "sm"


def _is_notified(one: Queued) -> bool:
    return one.point.engine == BY_CARD and mode_of(one.point) == NOTIFIED


def _gpu_and_host(rates: Sequence[Connections], item: str, text: str, most: bool) -> tuple[Connections, ...] | Claim:
    """The fastest GPU and host modes between GPUs, on the smallest or largest number of connections that both have."""
    both: dict[tuple[int, int], dict[bool, Connections]] = {}
    for one in sorted(rates, key=lambda one: one.per_s):
        if one.mode in (DIRECT, NOTIFIED, HOST) and "gpu:" in one.path[1]:
            both.setdefault((_rank(*one.path), -one.count if most else one.count), {})[one.mode == HOST] = one
    known = [key for key, of in both.items() if len(of) == len((True, False))]
    if not known:
        return _lacking(item, text, "rates by connections of the GPU and of the host, to a GPU")
    of = both[min(known)]
    if apart := [one for one in of.values() if not one.counts]:
        return Claim(item, text, None, _apart(*apart))
    return of[False], of[True]


def _fewer(rates: Sequence[Connections]) -> Claim:
    """On one connection, a GPU sends fewer small messages a second than the host."""
    text = "One block sends fewer messages a second than the host"
    return _of_rates(rates, text, lambda gpu, host: gpu * _GROWS < host, most=False)


def _reaches(rates: Sequence[Connections]) -> Claim:
    """On many connections, a GPU reaches the rate of the host."""
    text = "Many blocks reach the rate of the host"
    return _of_rates(rates, text, lambda gpu, host: gpu * _GROWS > host, most=True)


def _of_rates(rates: Sequence[Connections], text: str, holds: Callable[[float, float], bool], *, most: bool) -> Claim:
    """Whether it holds for the messages a second of the GPU and of the host."""
    found = _gpu_and_host(rates, "KL-10", text, most=most)
    if isinstance(found, Claim):
        return found
    gpu, host = found
    return Claim("KL-10", text, holds(gpu.per_s, host.per_s), _rates_of(gpu, host))


def _alike(rates: Sequence[Connections]) -> Claim:
    """Blocks of one kernel send as many messages as kernels of one block each."""
    text = "Blocks of one kernel and kernels of one block reach the same rate"
    found: dict[tuple[str, ...], dict[str, Connections]] = {}
    for one in sorted(rates, key=lambda one: one.count):
        if one.mode in (DIRECT, NOTIFIED):
            rest = (f"{name}={value}" for name, value in sorted(one.point.params.items()) if name != "launch")
            found.setdefault((*one.path, *rest), {})[one.point.params.get("launch", "one")] = one
    both = [of for of in found.values() if {"one", "each"} <= of.keys()]
    if not both:
        return _lacking("KL-10", text, "rates by kernels of one block each")
    most = min(reversed(both), key=lambda of: _rank(*of["one"].path))
    blocks, kernels = most["one"], most["each"]
    if apart := [one for one in (blocks, kernels) if not one.counts]:
        return Claim("KL-10", text, None, _apart(*apart))
    alike = kernels.per_s / _GROWS <= blocks.per_s <= kernels.per_s * _GROWS
    evidence = f"{blocks.per_s / 1e6:.3g} M/s by blocks, {kernels.per_s / 1e6:.3g} M/s by kernels, {_number(blocks)}"
    return Claim("KL-10", text, alike, evidence + _on(*blocks.path))


def _rates_of(*of: Connections) -> str:
    rates = ", ".join(f"{one.mode} {one.per_s / 1e6:.3g} M/s by {_number(one)}" for one in of)
    return rates + _on(*of[0].path)


def _number(one: Connections) -> str:
    return f"{one.count} connection{'s' * (one.count > 1)}"


def _apart(*of: Connections) -> str:
    names = " and ".join(f"{one.mode} on {_number(one)}" for one in of)
    return f"{names} ran together for only {' and '.join(format_fraction(one.together) for one in of)} of the time"


def _flat(rates: Sequence[Connections]) -> Claim:
    """More than four connections bring the host that helps no higher rate."""
    text = f"The rate with the host's help is flat beyond {_FLAT} connections"
    of = sorted((one for one in rates if one.mode == ASSISTED), key=lambda one: _rank(*one.path))
    few = next((one for one in of if one.count == _FLAT), None)
    more = [one for one in of if few and one.path == few.path and one.count > _FLAT]
    if few is None or not more:
        return _lacking("KL-10", text, "numbers of connections")
    many = max(more, key=lambda one: one.count)
    if not (few.counts and many.counts):
        return Claim("KL-10", text, None, _apart(few, many))
    return Claim("KL-10", text, many.per_s < few.per_s * _GROWS, _rates_of(few, many))


def _small(run: Run) -> Claim:
    """A payload and its number in one word of 16 bytes beat a payload with a word of its own behind a fence."""
    text = "A small footprint saves time: payload and number in one word"
    found: dict[tuple[int, int, str], dict[str, Point]] = {}
    for point in sorted(measured(run), key=seconds_of, reverse=True):
        if point.benchmark == "put_ping_pong" and point.engine == "sm" and point.bytes <= _SMALL:
            form = f"{point.src} {point.dst} {mode_of(point)}"
            found.setdefault((_rank(point.src, point.dst), point.bytes, form), {})[word_of(point)] = point
    both = {key: of for key, of in found.items() if len(of) > 1}
    if not both:
        return _lacking("KL-12", text, "small messages of one size in packed and in separate words")
    of = both[min(both)]
    return _longer("KL-12", text, *((f"{name} words", of[name]) for name in ("separate", PACKED)))


def _collaborates(run: Run) -> Claim:
    """A block moves a large message faster than one of its threads; the evidence has the smallest message as well."""
    text = "Threads that move a large message together beat one thread"
    forms: dict[tuple[str, ...], dict[int, dict[int, Point]]] = {}
    for point in measured(run):
        if point.benchmark in TRIPS and "threads" in point.params:
            rest = tuple(value for name, value in sorted(point.params.items()) if name != "threads")
            sizes = forms.setdefault((point.benchmark, point.src, point.dst, *rest), {})
            sizes.setdefault(point.bytes, {})[int(point.params["threads"])] = point
    able = {key: [of for _, of in sorted(sizes.items()) if 1 in of and len(of) > 1] for key, sizes in forms.items()}
    by_size = max((able[key] for key in sorted(able, key=lambda key: (_rank(*key[1:3]), key))), key=len, default=[])
    if not by_size:
        return _lacking("KL-12", text, "messages of one size by one thread and by more")
    large, small = (
        _longer("KL-12", text, ("1 thread", of[1]), (f"{max(of)} threads", of[max(of)]))
        for of in (by_size[-1], by_size[0])
    )
    of_large = large.evidence.removesuffix(_on(by_size[0][1].src, by_size[0][1].dst))
    evidence = f"{of_large}; {small.evidence}" if len(by_size) > 1 else large.evidence
    return Claim("KL-12", text, large.holds, evidence)
