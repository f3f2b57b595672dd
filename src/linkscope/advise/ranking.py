"""Ranks the methods of one transfer, with the gain of each over the present method and its break-even."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.advise.methods import IN_PLACE, PLAIN_FRESH, TransferMethod, reads_whole
from linkscope.advise.once import Once, OnceCosts
from linkscope.advise.question import Question
from linkscope.flow import kind_of
from linkscope.model.break_even import BreakEven, compared
from linkscope.model.curves import Estimate, Method, Path
from linkscope.model.memory_costs import Kind

ASSUMED_ERROR = 0.03  # of a time without an interval: the largest median error that `linkscope model --check` accepts
_USUAL_MEMORY = ("pageable", "pinned")  # of a program whose author stated nothing, the first that is known
_NO_METHOD = ("bidirectional",)  # parameters that do not distinguish methods
_COPIES = ("h2h", "h2d", "d2h", "d2d", "local", "pieces", PLAIN_FRESH)


@dataclass(frozen=True)
class Candidate:
    """A method with its time from a run, its time from a model, or both."""

    method: Method
    path: Path
    measured: TransferMethod | None
    predicted: TransferMethod | None

    @property
    def reading(self) -> TransferMethod:
        """The measured time, or the predicted one where nothing was measured."""
        found = self.measured or self.predicted
        assert found is not None  # a candidate has a time
        return found

    @property
    def time(self) -> Estimate:
        """Seconds of one transfer."""
        return self.reading.time

    @property
    def host_kinds(self) -> list[str]:
        """The kinds of host memory at its ends."""
        family = self.method.family
        ends = ((self.path.src, family.src_memory), (self.path.dst, family.dst_memory))
        return [memory for place, memory in ends if kind_of(place) == "numa"]

    @property
    def in_place(self) -> bool:
        """Whether a kernel accesses the data where they are, so that nothing is copied and each further access costs
        the same again."""
        return self.method.family.benchmark in IN_PLACE


@dataclass(frozen=True)
class Ranked:
    """A candidate and its place. `rank`: one more than the number of methods that are certainly faster than this one or
    than one with a shorter time; None if a cost is not known, and for methods in place where others copy. `total`:
    seconds of all copies and of what is paid once; None if not asked for or not known. `gain`: the present time over
    its time, with the ends of both intervals; None for the present method.
    """

    candidate: Candidate
    rank: int | None
    once: Once
    total: Estimate | None
    gain: Estimate | None
    pays: BreakEven | None
    is_present: bool


def candidates(measured: Iterable[TransferMethod], predicted: Iterable[TransferMethod]) -> list[Candidate]:
    """Every method once, with what is known of it."""
    found = {_key(one): one for one in measured}
    foretold = {_key(one): one for one in predicted}
    return [
        Candidate(method, (found.get(method) or foretold[method]).curve.path, found.get(method), foretold.get(method))
        for method in dict.fromkeys([*found, *foretold])
    ]


def present(listed: Sequence[Candidate], memory: str) -> Candidate | None:
    """The method of a program that makes the simplest call: a copy of this memory, or an access where none copies it.

    Without peer access, which a program must enable. None if the method is not among the candidates.
    """
    kinds = {kind for one in listed for kind in one.host_kinds}
    wanted = memory or next((kind for kind in _USUAL_MEMORY if kind in kinds), "")
    fitting = [one for one in listed if not one.host_kinds or wanted in one.host_kinds]
    simple = [(order, one) for one in fitting if (order := _simplicity(one, wanted)) is not None]
    return min(simple, key=lambda pair: (pair[0], pair[1].time.value))[1] if simple else None


def ranked(listed: Sequence[Candidate], now: Candidate | None, asked: Question, costs: OnceCosts) -> list[Ranked]:
    """The candidates by time, and so by rank; those without a known total last. Methods in place come after those that
    copy: they leave the data where they are."""
    once = {one.method: costs.of(one.method, one.path, asked.bytes, asked.pieces) for one in listed}
    totals = {one.method: _total(once[one.method], one.time, asked.reuse) for one in listed} if asked.reuse else {}
    basis = {one.method: totals[one.method] if asked.reuse else one.time for one in listed}
    copying = {one.method for one in listed if not one.in_place} or basis.keys()
    ranks = _ranks({method: time for method, time in basis.items() if time is not None and method in copying})
    found = []
    for one in listed:
        time = basis[one.method]
        is_present = now is not None and one.method == now.method
        gain = pays = None
        if now is not None and not is_present:
            before = basis[now.method]
            gain = _gain(before, time) if before is not None and time is not None else None
            pays = _pays(one, once[one.method], now, once[now.method])
        found.append(
            Ranked(one, ranks.get(one.method), once[one.method], totals.get(one.method), gain, pays, is_present)
        )
    return sorted(found, key=_order)


def _order(one: Ranked) -> tuple[bool, bool, float]:
    unknown = one.rank is None and not one.candidate.in_place
    return one.candidate.in_place, unknown, (one.total or one.candidate.time).value


def _ranks(times: Mapping[Method, Estimate]) -> dict[Method, int]:
    """The rank of each method. A method with a longer time never has a better rank: its wide interval shows nothing."""
    bounds = [_bounds(time) for time in times.values()]
    found: dict[Method, int] = {}
    worst = 1
    for method, time in sorted(times.items(), key=lambda pair: pair[1].value):
        worst = max(worst, 1 + sum(high < _bounds(time)[0] for _, high in bounds))
        found[method] = worst
    return found


def _key(one: TransferMethod) -> Method:
    return one.curve.method.without(_NO_METHOD)


def _simplicity(one: Candidate, memory: str) -> tuple[int, int, bool] | None:
    """The order of methods by what a programmer tries first; None for a method that takes more than one call."""
    params, family = dict(one.method.params), one.method.family
    if reads_whole(one.method):
        return 0, int(params.get("cache") == "hot"), False  # past the page cache first, as a file that is new
    usual = ("device", "managed", *_USUAL_MEMORY, memory)
    unusual = sum(kind not in usual for kind in (family.src_memory, family.dst_memory))
    if family.benchmark in _COPIES and family.engine in ("ce", "cpu"):
        return 0, unusual, params.get("peer") == "on" or params.get("call") == "peer"
    simple = ("demand", "read", "write")
    return (1 + simple.index(family.benchmark), unusual, False) if family.benchmark in simple else None


def _total(once: Once, time: Estimate, copies: int) -> Estimate | None:
    paid = once.time
    if paid is None:
        return None
    value = paid.value + copies * time.value
    if paid.low is None or paid.high is None or time.low is None or time.high is None:
        return Estimate(value)
    return Estimate(value, paid.low + copies * time.low, paid.high + copies * time.high)


def _bounds(time: Estimate) -> tuple[float, float]:
    if time.low is None or time.high is None:
        return time.value / (1 + ASSUMED_ERROR), time.value * (1 + ASSUMED_ERROR)
    return time.low, time.high


def _gain(before: Estimate, after: Estimate) -> Estimate:
    ratio = before.value / after.value
    if before.low is None or before.high is None or not after.low or not after.high:
        return Estimate(ratio)
    return Estimate(ratio, before.low / after.high, before.high / after.low)


def _pays(one: Candidate, once: Once, now: Candidate, now_once: Once) -> BreakEven | None:
    """The numbers of copies for which a method is cheaper than the present one, with what both cost once."""
    kind = Kind(now.host_kinds[0] if now.host_kinds else "device")
    if once.missing or now_once.missing:
        if once.missing != now_once.missing or one.host_kinds != now.host_kinds:
            return None
        once, now_once = Once(), Once()  # the same memory, whatever it costs
    extra, present_extra = once.besides(now_once), now_once.besides(once)
    return BreakEven(kind, *compared(extra, one.time, present_extra, now.time))
