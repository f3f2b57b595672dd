"""The rules of contention: kinds of work beside each other, tasks beside messages, and an LU by placement."""

from dataclasses import replace
from types import MappingProxyType

from linkscope.plan.suite_rules import EACH, MIB, Rule
from linkscope.plan.suite_rules import rule as _rule

AGAIN = ("true",)
_KINDS = (
    "h2d", "d2h", "both", "local", "peer", "zero_copy", "memory", "triad", "gemm", "launch", "ping_pong", "host",
    "message", "socket", "disk",
)  # fmt: skip
_SP_8 = ("h2d", "d2h", "message", "host", "disk")
_PROBES = tuple(f"loaded_{kind}" for kind in ("h2d", "d2h", "zero_copy", "launch", "ping_pong"))
_BACKGROUNDS = ("both", "zero_copy", "memory")
_SETS = ("1", "2", "3", "4")


def _contended(kinds: tuple[str, ...], beside: tuple[str, ...]) -> tuple[Rule, ...]:
    """Returns kinds of work alone, beside others, and alone again."""
    benchmarks = tuple(f"contended_{kind}" for kind in kinds)
    rules = (_rule(benchmarks=benchmarks, beside=beside), _rule(benchmarks=benchmarks, beside=("none",), again=AGAIN))
    return tuple(replace(rule, one_path=True) for rule in rules)


def _tasks(benchmarks: tuple[str, ...] = ("tasks", "rank_tasks"), **params: tuple[str, ...]) -> Rule:
    return replace(_rule(64 * MIB, benchmarks=benchmarks, **params), one_path=True)


def _tasks_alone(benchmarks: tuple[str, ...] = ("tasks", "rank_tasks"), **params: tuple[str, ...]) -> tuple[Rule, ...]:
    """Returns each kind of task alone, and alone again. Transfers alone do not depend on messages."""
    transfers = {name: values for name, values in params.items() if name == "sets"}
    rules = (
        _tasks(benchmarks, at=("transfers",), **transfers),
        _tasks(benchmarks, at=("messages",), message=EACH, **params),
    )
    return (*rules, *(replace(rule, params=MappingProxyType({**rule.params, "again": AGAIN})) for rule in rules))


def _lu_over_gpus() -> tuple[Rule, ...]:
    """Returns an LU on every set of GPUs from each node, near and far threads, one without look-ahead, and one whose
    panels have no priority."""
    alone, all_gpus = ("0", "1", "2", "3"), ("0", "01", "012", "0123")
    several = ("01", "02", "03", "12", "13", "23", "012", "013", "023", "123", "0123")
    chosen: tuple[dict[str, tuple[str, ...]], ...] = (
        {"gpus": alone, "node": EACH},
        {"gpus": several, "node": EACH, "by": EACH},
        {"gpus": all_gpus, "node": EACH, "by": ("host",), "threads_on": ("0", "1")},
        {"gpus": all_gpus, "by": ("host",), "ahead": ("0",)},
    )
    rules = [_rule(benchmarks=("lu_gpus",), panels=("urgent",), **params) for params in chosen]
    rules.append(_rule(benchmarks=("lu_gpus",), gpus=("0",)))
    rules.append(_rule(benchmarks=("lu_gpus",), gpus=all_gpus[1:], by=EACH))
    return tuple(replace(rule, one_path=True) for rule in rules)


CONTENTION = _contended(_KINDS, EACH)
LOADED = (replace(_rule(benchmarks=_PROBES, beside=_BACKGROUNDS, load=EACH), one_path=True),)
_BY_MPI, _ONE_SET = ("rank_tasks",), ("1",)
SP_8 = (
    *_contended(_SP_8, ("none", *_SP_8)),
    _tasks(_BY_MPI, at=("both",), sets=_ONE_SET, message=EACH),
    *_tasks_alone(_BY_MPI, sets=_ONE_SET),
)
SP_9 = (_tasks(at=("both",), message=EACH, messages=EACH), *_tasks_alone(messages=EACH))
SP_11 = (_tasks(at=("both",), sets=_SETS, message=EACH, threads=EACH), *_tasks_alone(sets=_SETS))
LU_OVER_GPUS = _lu_over_gpus()
