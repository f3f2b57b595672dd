"""What the suites are made of: rules that select points from the table of benchmarks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from linkscope.flow import read_path
from linkscope.plan.facts import MachineFacts
from linkscope.plan.table import Benchmark, Param
from linkscope.runfile import PointId

EACH = ("*",)  # all values of a parameter, also for rows without it
_RELATIVE_PLACES = ("other", "same")  # kinds of the destination: another place of the source's kind, or the same place
# parameters that `everything` does not vary: they choose another quantity, seconds of waiting, another thread, or work
# beside it
_NEVER_VARIED = (
    "clock", "idle_gap_s", "beside", "load", "tasks", "again", "at", "message", "messages", "sets", "clients", "way",
    "second", "host_threads",
)  # fmt: skip

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
ALL_SIZES = tuple(1 << exponent for exponent in range(3, 31))
MOST_MANAGED = 256 * MIB  # largest size of managed memory


@dataclass(frozen=True)
class Rule:
    """Selects sizes and values of some parameters. The others have their defaults, or with `everything` each value
    once, one parameter at a time.

    A rule that names a value skips rows without that parameter. Some rows require a rule that names them (`taken`).
    Operations without bytes are measured once.

    `ends`: kind of place and memory of source and destination. As a kind of the destination, `other` means another
    place of the source's kind, and `same` the source itself.
    """

    sizes: tuple[int, ...]
    benchmarks: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()  # allowed at both ends
    params: MappingProxyType[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    everything: bool = False
    ends: tuple[tuple[str, str], tuple[str, str]] | None = None
    fixed: tuple[str, ...] = ()  # parameters that `everything` leaves at their default
    one_path: bool = False  # whether only one path of each class is measured
    one_gpu: bool = False  # whether only machines with a single GPU have the points

    @property
    def apart(self) -> bool:
        """Whether source and destination must differ."""
        return self.ends is not None and self.ends[1][0] == "other"

    def allows(self, src: str, dst: str) -> bool:
        """Returns whether these places are allowed as source and destination."""
        within = self.ends is not None and self.ends[1][0] == "same"
        return not (self.apart and src == dst) and not (within and src != dst)

    def values(self, param: Param) -> list[str]:
        """Returns the values of this parameter that the rule measures."""
        wanted = self.params.get(param.name, (param.values[0],))
        return list(param.values) if wanted == EACH else [value for value in param.values if value in wanted]

    def extra_values(self, param: Param) -> list[str]:
        """Returns the additional values, measured while all other parameters have their `values`."""
        not_varied = (*self.params, *self.fixed, *_NEVER_VARIED)
        return list(param.values[1:]) if self.everything and param.name not in not_varied else []

    def takes(self, row: Benchmark) -> bool:
        """Returns whether the rule selects this row."""
        if self.ends is not None:
            src, dst = (kind for kind, _ in self.ends)
            if (row.src, row.dst) != (src, src if dst in _RELATIVE_PLACES else dst):
                return False
            if row.relation == {"same": "different", "other": "same"}.get(dst):
                return False
        if row.taken == "by_memory" and not (self.ends or self.memories):
            return False
        if self.benchmarks or self.engines:
            named = not self.benchmarks or row.name in self.benchmarks
            return named and (not self.engines or row.engine in self.engines)
        return row.taken != "by_name"

    def of_memories(self, row: Benchmark) -> list[tuple[str, str]]:
        """Returns the pairs of memory kinds of the row that the rule selects."""
        if self.ends is not None:
            return [pair for pair in row.memories if pair == tuple(memory for _, memory in self.ends)]
        if self.memories:
            return [pair for pair in row.memories if set(pair) <= set(self.memories)]
        return row.memories

    def needs(self) -> set[str]:
        """Returns the parameters that a row must have."""
        return {name for name, values in self.params.items() if values != EACH}


@dataclass(frozen=True)
class Suite:
    """A named set of points, with a sentence for `linkscope list`.

    `rest`: rule for benchmarks that no other rule selects. `theirs`: extra rules that only the measurement rule of the
    suite's name needs (`--rule`). `first`: rules of the points that each round measures before the others, so that a
    small budget has them; `rules` need not repeat them. `early`, `more_rounds`: as in a plan. `budget_s`: budget
    without `--budget`; a suite with a budget is measured by classes of paths. `together_at`: size of the concurrent
    flows; None: none.
    `alike_contexts`: as in a plan; in a run of a few seconds it would cost too much. `more`: further points, which
    depend on the whole machine, and `needs`: what it must have for them.
    """

    name: str
    summary: str
    rules: tuple[Rule, ...]
    theirs: tuple[Rule, ...] = ()
    first: tuple[Rule, ...] = ()
    rest: Rule | None = None
    early: bool = False
    more_rounds: bool = True
    budget_s: float | None = None
    together_at: int | None = None
    alike_contexts: bool = True
    more: Callable[[MachineFacts], Iterable[PointId]] | None = None
    needs: str = ""

    def rules_for(self, row: Benchmark, table: Iterable[Benchmark]) -> tuple[Rule, ...]:
        """Returns the rules that may select points of this row of the table."""
        own = tuple(
            Rule(tuple(of.sizes), benchmarks=(row.name,), engines=(row.engine,))
            for of in row.suites
            if of.suite == self.name
        )
        named = (one for one in table if one.name == row.name)
        if self.rest is None or own or any(rule.takes(one) for one in named for rule in self.rules):
            return (*self.rules, *own)
        return (replace(self.rest, benchmarks=(row.name,)),)


def rule(
    *sizes: int,
    benchmarks: tuple[str, ...] = (),
    engines: tuple[str, ...] = (),
    memories: tuple[str, ...] = (),
    **params: tuple[str, ...],
) -> Rule:
    return Rule(sizes, benchmarks, engines, memories, MappingProxyType(params))


def of_preset(text: str, sizes: tuple[int, ...]) -> Rule:
    """Returns the rule of a preset like 'read/sm/gpu.device->other.device?threads=256,512' (papers/entry.py), at these
    sizes.

    Managed memory is limited to small sizes. Other parameters have their defaults, and `*` means every value. Raises
    ValueError for another form.
    """
    head, _, params = text.partition("?")
    benchmark, engine, ends = head.split("/")
    (src, src_memory), (dst, dst_memory) = (end.split(".") for end in read_path(ends))
    pairs = [item.split("=") for item in params.split("&")] if params else []
    values = {name: tuple(value.split(",")) for name, value in pairs}
    most = MOST_MANAGED if "managed" in (src_memory, dst_memory) else max(sizes, default=0)
    fitting = tuple(size for size in sizes if size <= most)
    both_ends = ((src, src_memory), (dst, dst_memory))
    return Rule(fitting, (benchmark,), (engine,), params=MappingProxyType(values), ends=both_ends)
