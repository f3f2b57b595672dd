"""Which points a suite holds, as data. A suite is the union of its rules."""

from dataclasses import dataclass, field
from types import MappingProxyType

from linkscope.plan.table import Param

EACH = ("*",)  # every value that a parameter has, also of rows without it

_KERNELS = ("sm", "tma")  # stand apart: many points, and suites of their own

KIB, MIB = 1 << 10, 1 << 20
ALL_SIZES = tuple(1 << exponent for exponent in range(3, 31))


@dataclass(frozen=True)
class Rule:
    """The sizes to take, and the values of some parameters; of the others the default, or with `everything` all.

    A rule that names values takes nothing of a row without that parameter; one that names no engines takes all that do
    not stand apart.
    """

    sizes: tuple[int, ...]
    engines: tuple[str, ...] = ()
    params: MappingProxyType[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    everything: bool = False

    def values(self, param: Param) -> list[str]:
        """The values of this parameter that the rule takes."""
        wanted = self.params.get(param.name, EACH if self.everything else (param.values[0],))
        return list(param.values) if wanted == EACH else [value for value in param.values if value in wanted]

    def takes(self, engine: str) -> bool:
        """Whether rows of this engine are meant."""
        return engine in self.engines if self.engines else engine not in _KERNELS

    def needs(self) -> set[str]:
        """The parameters that a row must have."""
        return {name for name, values in self.params.items() if values != EACH}


@dataclass(frozen=True)
class Suite:
    """A named set of points, with a sentence for `linkscope list`."""

    name: str
    summary: str
    rules: tuple[Rule, ...]


def _rule(*sizes: int, engines: tuple[str, ...] = (), **params: tuple[str, ...]) -> Rule:
    return Rule(sizes, engines, MappingProxyType(params))


_CURVE = (8, 256, *(size * KIB for size in (4, 16, 64, 256)), *(size * MIB for size in (1, 4, 16, 64, 256)))
_BOTH_WAYS = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
_STAGED = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
_SM_CURVE = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
_BLOCKS = ("all", *(str(1 << exponent) for exponent in range(8)))
_ALONE = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB)

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
            (
                _rule(*_CURVE, initiator=EACH),
                _rule(*_BOTH_WAYS, bidirectional=("true",)),
                _rule(*_STAGED, peer=("off",)),
                _rule(*_BOTH_WAYS[2:], peer=("off",), bidirectional=("true",)),
                _rule(*_ALONE, mode=("single",), initiator=EACH, after=EACH),
                _rule(*_ALONE, mode=("single",), peer=("off",)),
            ),
        ),
        Suite(
            "sm",
            "copies by a GPU's threads and by its bulk copies beside those of copy engines; how few blocks are enough",
            (
                _rule(*_SM_CURVE, engines=("ce", *_KERNELS), initiator=EACH),
                _rule(*_SM_CURVE[-1:], engines=("ce", *_KERNELS), bidirectional=("true",)),
                _rule(*_SM_CURVE[-1:], engines=_KERNELS, initiator=EACH, blocks=_BLOCKS),
                _rule(*_SM_CURVE[-1:], engines=("sm",), initiator=EACH, threads=("256", "1024")),
            ),
        ),
        Suite(
            "full",
            "everything: all powers of two from 8 B to 1 GiB, all values of all parameters of copies by copy engine",
            (
                Rule(ALL_SIZES, everything=True),
                _rule(*ALL_SIZES, engines=_KERNELS, mode=EACH, initiator=EACH, bidirectional=EACH),
                _rule(*_SM_CURVE, engines=_KERNELS, initiator=EACH, blocks=_BLOCKS),
            ),
        ),
    )
}
