"""Which points a suite holds, as data. A suite is the union of its rules."""

from dataclasses import dataclass, field
from types import MappingProxyType

from linkscope.plan.papers import COMM_SCOPE
from linkscope.plan.table import Benchmark, Param

EACH = ("*",)  # every value that a parameter has, also of rows without it

_KERNELS = ("sm", "tma")  # stand apart: many points, and suites of their own
_MANAGED = ("prefetch", "fault")  # as do these: they take managed memory
_TOGETHER = ("batch", "graph")  # and these: whole batches by one call
_IN_PARTS = ("pieces", "strided", "halo")  # operations whose sizes are of many parts
# Kinds of memory that stand apart, too: what they are for, other kinds show as well.
_MORE_KINDS = ("wc", "mapped", "hugepage", "registered_hugepage", "pool", "vmm")
_ALLOCATIONS = ("allocation",)  # and what memory costs besides its rate

KIB, MIB = 1 << 10, 1 << 20
ALL_SIZES = tuple(1 << exponent for exponent in range(3, 31))
MOST_MANAGED = 256 * MIB  # managed memory stays small, whoever asks for how much


@dataclass(frozen=True)
class Rule:
    """The sizes to take, and the values of some parameters; of the others the default, or with `everything` each other
    value, one parameter at a time.

    A rule that names values takes nothing of a row without that parameter; one that names neither benchmarks nor
    engines takes all that do not stand apart. Operations without bytes are taken once, whatever the sizes.
    `ends`: kind of place and memory of source and destination; as the destination's kind, `other` is another place of
    the source's kind.
    """

    sizes: tuple[int, ...]
    benchmarks: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()  # of both ends; none named: all that do not stand apart
    params: MappingProxyType[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    everything: bool = False
    ends: tuple[tuple[str, str], tuple[str, str]] | None = None
    but: tuple[str, ...] = ()  # parameters that `everything` leaves at their default

    @property
    def apart(self) -> bool:
        """Whether source and destination must be two places."""
        return self.ends is not None and self.ends[1][0] == "other"

    def values(self, param: Param) -> list[str]:
        """The values of this parameter that the rule takes."""
        wanted = self.params.get(param.name, (param.values[0],))
        return list(param.values) if wanted == EACH else [value for value in param.values if value in wanted]

    def also(self, param: Param) -> list[str]:
        """The values besides, that the rule takes while all other parameters are as `values` has them."""
        return list(param.values[1:]) if self.everything and param.name not in (*self.params, *self.but) else []

    def takes(self, row: Benchmark) -> bool:
        """Whether this row is meant."""
        if self.ends is not None:
            src, dst = (kind for kind, _ in self.ends)
            if (row.src, row.dst) != (src, src if self.apart else dst):
                return False
        if self.benchmarks or self.engines:
            named = not self.benchmarks or row.name in self.benchmarks
            return named and (not self.engines or row.engine in self.engines)
        apart = row.engine in (*_KERNELS, *_MANAGED, *_TOGETHER) or row.name in _IN_PARTS
        return not apart and row.sized and not row.joint

    def of_memories(self, row: Benchmark) -> list[tuple[str, str]]:
        """The pairs of memory kinds of the row that are meant."""
        if self.ends is not None:
            return [pair for pair in row.memories if pair == tuple(memory for _, memory in self.ends)]
        if self.memories:
            return [pair for pair in row.memories if set(pair) <= set(self.memories)]
        return [pair for pair in row.memories if row.name in _ALLOCATIONS or not set(pair) & set(_MORE_KINDS)]

    def needs(self) -> set[str]:
        """The parameters that a row must have."""
        return {name for name, values in self.params.items() if values != EACH}


@dataclass(frozen=True)
class Suite:
    """A named set of points, with a sentence for `linkscope list`.

    `theirs`: what only the rule of that name needs (`--rule`). `early`, `more_rounds`: as in a plan.
    """

    name: str
    summary: str
    rules: tuple[Rule, ...]
    theirs: tuple[Rule, ...] = ()
    early: bool = False
    more_rounds: bool = True


def _rule(
    *sizes: int,
    benchmarks: tuple[str, ...] = (),
    engines: tuple[str, ...] = (),
    memories: tuple[str, ...] = (),
    **params: tuple[str, ...],
) -> Rule:
    return Rule(sizes, benchmarks, engines, memories, MappingProxyType(params))


def of_preset(text: str, sizes: tuple[int, ...]) -> Rule:
    """'read/sm/gpu.device->other.device?threads=256,512' (papers/entry.py), at these sizes; of managed memory at those
    that are small enough. Other parameters have their defaults, and `*` is every value.

    Raises ValueError where the text is not of this form.
    """
    head, _, params = text.partition("?")
    benchmark, engine, ends = head.split("/")
    (src, src_memory), (dst, dst_memory) = (end.split(".") for end in ends.split("->"))
    pairs = [item.split("=") for item in params.split("&")] if params else []
    values = {name: tuple(value.split(",")) for name, value in pairs}
    most = MOST_MANAGED if "managed" in (src_memory, dst_memory) else max(sizes, default=0)
    fitting = tuple(size for size in sizes if size <= most)
    both_ends = ((src, src_memory), (dst, dst_memory))
    return Rule(fitting, (benchmark,), (engine,), params=MappingProxyType(values), ends=both_ends)


_CURVE = (8, 256, *(size * KIB for size in (4, 16, 64, 256)), *(size * MIB for size in (1, 4, 16, 64, 256)))
_BOTH_WAYS = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
_STAGED = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
_SM_CURVE = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
_BLOCKS = ("sms", *(str(1 << exponent) for exponent in range(8)))
_ALONE = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
_PIECES = (64, 4 * KIB, 64 * KIB)
_COPIES = ("h2d", "d2h", "d2d", "local")
_JOINT = ("host_to_all", "all_to_host", "one_to_all", "all_to_one")
_ACCESS = ("read", "write")
_EXCHANGES = ("exchange", "exchange_all")
_TO_A_GPU = "numa.pinned->gpu.device"
# Thousands of small parts are what a simulation takes longest for: all their forms on the way that matters most.
_IN_PARTS_TO_A_GPU = (
    *(
        of_preset(f"pieces/{engine}/{_TO_A_GPU}?piece={piece}&mode=*", (1000 * piece,))
        for engine in ("ce", "batch", "graph", "sm")
        for piece in _PIECES
    ),
    *(
        of_preset(f"strided/{engine}/{_TO_A_GPU}?{params}", (MIB,))
        for engine in ("ce", "sm")
        for params in ("shape=*", "row=*", "gaps=*")
    ),
)
_CALLS = ("launch", "launch_to_end", "synchronize", "event", "stream", "copy_call")
_BY_KERNELS = (*_COPIES, *_ACCESS, *_JOINT, *_EXCHANGES)
_PINNED = ("pinned", "device")  # what nvbandwidth copies from and to
_OF_PAGES = ("touch", "advice", "ranges", "discard")  # parameters of which two sizes tell enough
_NVBANDWIDTH = 512 * MIB
_OF_EACH_KIND = (4 * KIB, MIB, 64 * MIB)
_BESIDE = (*_MORE_KINDS, "device", "pinned")  # with what the other end has

_STANDARD = (
    _rule(*_CURVE, initiator=EACH),
    _rule(*_BOTH_WAYS, bidirectional=("true",)),
    _rule(*_STAGED, peer=("off",)),
    _rule(*_BOTH_WAYS[2:], peer=("off",), bidirectional=("true",)),
    _rule(*_ALONE, mode=("single",), initiator=EACH, after=EACH),
    _rule(*_ALONE, mode=("single",), peer=("off",)),
    _rule(64 * MIB, benchmarks=_JOINT, engines=("ce",), initiator=EACH, bidirectional=EACH),
    _rule(benchmarks=("latency",)),
)

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            "quick",
            "three sizes of every path, one way and both ways, peer access on: a first look in seconds",
            (_rule(4 * KIB, MIB, 64 * MIB), _rule(64 * MIB, bidirectional=("true",))),
        ),
        Suite(
            "standard",
            "a curve of every path by every method, batched and single: the map of a machine in minutes",
            _STANDARD,
        ),
        Suite(
            "sm",
            "copies and accesses by a GPU's threads, bulk copies, copy engines beside them; how few blocks are enough",
            (
                _rule(*_SM_CURVE, benchmarks=_ACCESS, memories=_PINNED),
                _rule(_SM_CURVE[-1], benchmarks=_ACCESS, memories=_PINNED, blocks=_BLOCKS),
                _rule(_SM_CURVE[-1], benchmarks=_JOINT, initiator=EACH, bidirectional=EACH),
                _rule(_SM_CURVE[-1], benchmarks=_EXCHANGES, threads=EACH, blocks=("pieces", "sms")),
                _rule(benchmarks=("latency",), range=EACH, cache=EACH),
                _rule(*_SM_CURVE, benchmarks=_COPIES, engines=("ce", *_KERNELS), memories=_PINNED, initiator=EACH),
                _rule(_SM_CURVE[-1], benchmarks=_COPIES, memories=_PINNED, bidirectional=("true",)),
                _rule(
                    _SM_CURVE[-1],
                    benchmarks=_COPIES,
                    engines=_KERNELS,
                    memories=_PINNED,
                    initiator=EACH,
                    blocks=_BLOCKS,
                ),
                _rule(_SM_CURVE[-1], benchmarks=_COPIES, engines=("sm",), memories=_PINNED, threads=("256", "1024")),
            ),
        ),
        Suite(
            "nvbandwidth",
            "what nvbandwidth 0.8 measures, at its 512 MiB: `--rule nvbandwidth` measures as it does",
            (
                _rule(
                    _NVBANDWIDTH,
                    benchmarks=("h2d", "d2h", "d2d", *_JOINT),
                    engines=("ce", "sm"),
                    memories=_PINNED,
                    initiator=EACH,
                    bidirectional=EACH,
                ),
                _rule(_NVBANDWIDTH, benchmarks=("local",), engines=("ce",)),
                _rule(_NVBANDWIDTH, benchmarks=_EXCHANGES, threads=("1024",)),
                _rule(benchmarks=("latency",), engines=("sm",), memories=_PINNED),
            ),
            theirs=(_rule(benchmarks=("latency",), engines=("sm",), memories=("device",), cache=("hot",)),),
            early=True,
            more_rounds=False,  # what differs from round to round there does so in any number of them
        ),
        Suite(
            "comm-scope",
            "what Comm|Scope measures, at its sizes up to 1 GiB: `--rule comm-scope` measures as it does",
            tuple(of_preset(text, COMM_SCOPE.sizes) for entry in COMM_SCOPE.entries for text in entry.points),
        ),
        Suite(
            "full",
            "every operation, by copy engine at all powers of two from 8 B to 1 GiB; every value of its parameters",
            (
                Rule(ALL_SIZES),
                Rule(ALL_SIZES, benchmarks=_JOINT, engines=("ce",)),
                Rule(_CURVE, benchmarks=_BY_KERNELS, engines=_KERNELS),
                Rule(_ALONE, everything=True, but=("cpu",)),
                Rule(_ALONE, benchmarks=_JOINT, engines=("ce",), everything=True, but=("cpu",)),
                _rule(16 * MIB, benchmarks=("h2d", "d2h"), memories=("pageable", "device"), cpu=EACH),
                _rule(64 * MIB, benchmarks=("host_to_all", "all_to_host"), engines=("ce",), cpu=EACH),
                Rule((64 * MIB,), benchmarks=_BY_KERNELS, engines=_KERNELS, everything=True),
                _rule(MIB, benchmarks=(*_ACCESS, *_COPIES), engines=_KERNELS, memories=("device",), cache=("hot",)),
                _rule(benchmarks=("latency",), range=EACH, cache=EACH),
                *_STANDARD,
                Rule(ALL_SIZES[:-2], engines=_MANAGED, memories=("managed",)),
                Rule(_SM_CURVE, engines=_MANAGED, memories=("managed",), everything=True, but=_OF_PAGES),
                Rule((64 * MIB,), engines=_MANAGED, everything=True),
                _rule(4 * KIB, MIB, benchmarks=_COPIES, engines=_TOGETHER, memories=_PINNED, mode=EACH),
                _rule(1000 * 4 * KIB, benchmarks=("pieces",), piece=(str(4 * KIB),)),
                *_IN_PARTS_TO_A_GPU,
                _rule(64 * KIB, benchmarks=("halo",), face=EACH, way=EACH),
                Rule((), benchmarks=_CALLS, everything=True),
                _rule(benchmarks=("ping_pong",)),
                _rule(benchmarks=("ping_pong",), memories=("device",), word=EACH),
                _rule(benchmarks=("graph",), what=EACH, nodes=EACH),
                _rule(benchmarks=("atomic_latency",), memories=_PINNED, scope=EACH),
                _rule(16 * MIB, benchmarks=("atomic",), memories=_PINNED, scope=EACH, words=EACH),
                _rule(*_OF_EACH_KIND, benchmarks=_COPIES, engines=("ce", "sm"), memories=_BESIDE, pages=EACH),
                _rule(*_OF_EACH_KIND, benchmarks=("h2h", *_ACCESS), memories=(*_BESIDE, "pageable"), pages=EACH),
                _rule(benchmarks=_ALLOCATIONS, phase=EACH, size=("4KiB", "16MiB"), pages=EACH),
            ),
        ),
    )
}
