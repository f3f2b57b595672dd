"""Rules of the suites of ranks: messages between them, and collectives by MPI and by NCCL."""

from dataclasses import replace

from linkscope.plan.suite_rules import EACH, GIB, KIB, MIB, Rule
from linkscope.plan.suite_rules import rule as _rule

_PINNED, _SINGLE = ("pinned", "device"), ("single",)


def _on_one_path(*rules: Rule) -> tuple[Rule, ...]:
    return tuple(replace(rule, one_path=True) for rule in rules)


_RANK_SIZES = (8, 512, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 128 * MIB)
_LONG_SIZES = (MIB, 16 * MIB, 128 * MIB, 256 * MIB)
_FEW_SIZES = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
_OTHERS = ("ucx", "nixl")
_HOST, _WAYS = ("pageable", "pinned"), ("staged", "double", "aware")
BETWEEN_RANKS = _on_one_path(
    _rule(benchmarks=("rank_empty",)),
    _rule(*_RANK_SIZES, benchmarks=("rank_ping_pong",), engines=("mpi",), memories=_HOST),
    _rule(
        *_RANK_SIZES, benchmarks=("rank_ping_pong",), engines=("mpi",), way=("staged", "aware"), memories=("device",),
    ),
    _rule(256 * MIB, benchmarks=("rank_ping_pong",), engines=("mpi",), way=("staged",), memories=("device",)),
    _rule(*_LONG_SIZES, benchmarks=("rank_ping_pong",), engines=("mpi",), way=("double",), memories=("device",),
          chunk=("256KiB", "1MiB")),
    _rule(*_RANK_SIZES, GIB, benchmarks=("rank_rate",), engines=("mpi",), memories=_HOST),
    _rule(*_RANK_SIZES, benchmarks=("rank_rate",), engines=("mpi",), memories=_HOST, bidirectional=("true",)),
    _rule(8, benchmarks=("rank_rate",), engines=("mpi",), memories=("pageable",), window=EACH),
    _rule(*_FEW_SIZES, benchmarks=("rank_ping_pong", "rank_rate"), engines=("mpi",), memories=("managed",)),
    _rule(*_RANK_SIZES[3:], benchmarks=("rank_rate",), engines=("mpi",), memories=_PINNED, way=_WAYS),
    _rule(
        *(64 * KIB, MIB, 16 * MIB), benchmarks=("rank_rate",), engines=("mpi",), memories=("device",), way=_WAYS,
        bidirectional=("true",),
    ),
    _rule(16 * MIB, 128 * MIB, benchmarks=("rank_rate",), engines=("mpi",), memories=("device",), way=("double",),
          chunk=EACH),
    _rule(128 * MIB, benchmarks=("rank_rate",), engines=("mpi",), memories=("device",), way=("double",), slots=EACH),
    _rule(*_FEW_SIZES, benchmarks=("rank_ping_pong", "rank_rate"), engines=_OTHERS, memories=("pageable",)),
    _rule(*_FEW_SIZES, benchmarks=("rank_rate",), engines=_OTHERS, memories=("pageable",), bidirectional=("true",)),
    _rule(*_FEW_SIZES[2:], benchmarks=("rank_rate",), engines=("ucx",), memories=("device",), way=("aware",)),
    _rule(*_FEW_SIZES[2:], benchmarks=("rank_rate",), engines=("nixl",), memories=("device",)),
)  # fmt: skip
BY_UCX = (
    _rule(*_RANK_SIZES, benchmarks=("process_ping_pong", "process_rate"), memories=_HOST, bidirectional=EACH),
    _rule(8, benchmarks=("process_rate",), memories=("pageable",), window=EACH),
)

_WHOLE = ("all_reduce", "broadcast", "reduce", "send_receive")
_IN_BLOCKS = ("all_gather", "reduce_scatter", "all_to_all")
_COLLECTIVES = (*_WHOLE, *_IN_BLOCKS)
_COLLECTIVE_SIZES = (256, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
BY_MPI = _on_one_path(
    _rule(8, benchmarks=_WHOLE, engines=("mpi",), ranks=EACH),
    _rule(*_COLLECTIVE_SIZES, benchmarks=_COLLECTIVES, engines=("mpi",), ranks=EACH),
    _rule(MIB, benchmarks=_COLLECTIVES, engines=("mpi",), ranks=EACH, place=("in",)),
)
_BY_NCCL = _on_one_path(
    _rule(8, benchmarks=_WHOLE, engines=("nccl",), ranks=EACH),
    _rule(*_COLLECTIVE_SIZES, 256 * MIB, GIB, benchmarks=_COLLECTIVES, engines=("nccl",), ranks=EACH),
    _rule(4 * GIB, benchmarks=("all_reduce",), engines=("nccl",), ranks=EACH),
    _rule(8, benchmarks=_WHOLE, engines=("nccl",), ranks=EACH, mode=_SINGLE),
    _rule(256, 64 * KIB, MIB, benchmarks=_COLLECTIVES, engines=("nccl",), ranks=EACH, mode=_SINGLE),
    _rule(MIB, 256 * MIB, benchmarks=_COLLECTIVES, engines=("nccl",), ranks=EACH, place=("in",)),
    _rule(MIB, 256 * MIB, benchmarks=("all_reduce",), engines=("nccl",), ranks=EACH, element=EACH),
)
# Copies between GPUs show what their links carry.
BY_NCCL = (
    *_BY_NCCL,
    _rule(256 * MIB, benchmarks=("d2d",), engines=("ce", "sm"), memories=("device",)),
    *_on_one_path(_rule(*_COLLECTIVE_SIZES, benchmarks=("d2d",), engines=("ce", "sm"), memories=("device",))),
)
