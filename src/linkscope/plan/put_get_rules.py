"""The rules of suites `putget` and `putget-queues`: messages that GPUs put or get."""

from dataclasses import replace

from linkscope.plan.suite_rules import EACH, KIB, MIB, Rule
from linkscope.plan.suite_rules import rule as _rule

Ends = tuple[tuple[tuple[str, str], tuple[str, str]], ...]
_KERNELS = ("sm", "tma")
_MESSAGES = (4, 8, *(size * KIB for size in (1, 16, 64, 256)), MIB, 4 * MIB, 64 * MIB)
_LARGE = (MIB, 4 * MIB, 64 * MIB)
_MODES = ("direct", "notified", "host", "assisted")
_PUTS_AND_GETS = ("put", "get", "put_ping_pong", "get_ping_pong")
_PUTS = ("put", "put_ping_pong")
_ROUND_TRIPS = ("put_ping_pong", "get_ping_pong")
_RINGS = ("1", "4", "16")
# A CPU thread serves each end of a connection: a machine of 16 CPUs has enough of them for 8 connections with a GPU.
_RINGS_OF_CPUS = ("1", "4", "8", "16")
_DECISIVE = (8, KIB, 64 * KIB, MIB, 64 * MIB)  # sizes from which the paper's conclusions are judged
_ALL_BLOCKS = ("1", "2", "4", "8", "16", "32", "64", "132")
_WITHIN, _TWO_PROCESSES = (("gpu", "device"), ("same", "device")), (("gpu", "ipc"), ("same", "ipc"))
_BETWEEN = (("gpu", "device"), ("other", "device"))
_WITH_HOST = ((("gpu", "device"), ("numa", "pinned")), (("numa", "pinned"), ("gpu", "device")))
_PEERS = (_BETWEEN, _WITHIN)
_OWN = ("device", "pinned")  # memory that no other process uses
_RELAUNCHED = ("relaunched",)
_BY_GPU = {"control": ("direct", "notified"), "queue": EACH}
_BY_HOST = {"control": ("host", "assisted"), "queue": ("card", "host")}
_BETWEEN_HOSTS = (8, *(size * KIB for size in (1, 2, 4, 16, 64, 256)), MIB, 4 * MIB, 64 * MIB)

_QUEUED_RATES = (
    _rule(64, benchmarks=("queued_put",), connections=("1", "2", "4", "8")),
    _rule(64, benchmarks=("queued_put",), engines=("ce", "cpu"), connections=("8", "64"), proxies=("1", "2", "4", "8")),
)
_KERNELS_OF_A_BLOCK = _rule(
    64, benchmarks=("put",), engines=("sm",), connections=_RINGS[1:], threads=("32",), launch=("each",)
)


def _by_blocks(
    sizes: tuple[int, ...], benchmarks: tuple[str, ...], ends: Ends = (_WITHIN,), **params: tuple[str, ...]
) -> list[Rule]:
    """Rules of messages that blocks move between these ends: by default between two kernels of one GPU."""
    of = _rule(*sizes, benchmarks=benchmarks, engines=("sm",), **params)
    return [replace(of, ends=one) for one in ends]


def _on(ends: Ends, of: Rule) -> list[Rule]:
    """The rule between each of these ends. Points of all modes within one GPU are left to machines without another."""
    return [replace(of, ends=one, one_gpu=one == _WITHIN) for one in ends]


def _by_modes(sizes: tuple[int, ...], benchmarks: tuple[str, ...]) -> Rule:
    return _rule(*sizes, benchmarks=benchmarks, engines=("sm", "ce"), control=_MODES)


def _on_one_path(*rules: Rule) -> tuple[Rule, ...]:
    return tuple(replace(rule, one_path=True) for rule in rules)


# What the paper's conclusions need, between two GPUs or else within one.
PUT_GET_FIRST = _on_one_path(
    *_on(_PEERS, _by_modes(_DECISIVE, (*_ROUND_TRIPS, "put"))),
    *_on(_PEERS, _rule(8, benchmarks=("put_ping_pong",), engines=("sm",), word=EACH)),
    *_on(_PEERS, _rule(8, MIB, benchmarks=_ROUND_TRIPS, engines=("sm",), threads=("1", "1024"))),
    *_on(_PEERS, _rule(64, benchmarks=("put",), engines=("sm",), control=_MODES, connections=_RINGS, threads=("32",))),
    *_on(_PEERS, _rule(64, benchmarks=("put",), engines=("ce",), control=_MODES, connections=_RINGS_OF_CPUS)),
    *_on(_PEERS, _KERNELS_OF_A_BLOCK),
)

PUT_GET = _on_one_path(
    *_on((*_PEERS, *_WITH_HOST), _by_modes(_MESSAGES, _PUTS_AND_GETS)),
    *_by_blocks(_MESSAGES, _PUTS_AND_GETS, ends=_WITH_HOST),
    _rule(8, MIB, benchmarks=("put", *_ROUND_TRIPS), engines=("sm",), memories=_OWN, threads=EACH),
    # Beside copies by SMs and bare words, so that one run has both sides of each comparison.
    _rule(*_LARGE, benchmarks=("put",), engines=("sm",), blocks=("1", "8", "32", "132")),
    _rule(*_LARGE, benchmarks=("d2h",), engines=("sm",), memories=_OWN),
    _rule(benchmarks=("ping_pong",), engines=("cpu",), memories=("pinned",)),
    _rule(benchmarks=("ping_pong",), engines=("sm",), memories=("device",), word=EACH),
    _rule(8, 64, 16 * KIB, benchmarks=_PUTS, engines=("sm",), memories=_OWN, word=("packed",)),
    _rule(8, 64, benchmarks=_PUTS, engines=("sm",), memories=_OWN, threads=("32",), word=("packed",)),
    *_by_blocks((8,), ("put_ping_pong",), ends=(_BETWEEN,), threads=("1",), word=("packed",)),
    *_by_blocks((64 * KIB, 256 * KIB), ("put",), ends=(_BETWEEN,), blocks=("8", "32", "132")),
    # At most as many blocks as an H100 has SMs.
    *_by_blocks((64 * KIB, 256 * KIB), ("put",), ends=(_BETWEEN,), blocks=("4", "8"), at_once=("4", "16")),
    *_by_blocks((MIB, 4 * MIB), ("put",), ends=(_BETWEEN,), blocks=("8", "32"), at_once=("4",)),
    *_by_blocks((64,), ("put",), ends=(_BETWEEN,), connections=("64", "132"), threads=("32",), word=EACH),
    *_by_blocks((64,), ("put",), ends=(_BETWEEN,), connections=("132",), word=("packed",), at_once=("16", "128")),
    _rule(64, benchmarks=("put",), engines=("sm",), connections=_RINGS, threads=("32",), word=EACH),
    _KERNELS_OF_A_BLOCK,
    *_on(_WITH_HOST, _rule(64, benchmarks=("put",), engines=("ce",), connections=_RINGS_OF_CPUS, control=EACH)),
    *_by_blocks((64,), ("put",), connections=_ALL_BLOCKS, threads=("32",), word=EACH),
    *_by_blocks((8, KIB, 64 * KIB), ("put_ping_pong",), word=EACH),
    *_by_blocks((), ("ping_pong",), ends=(_WITHIN, _TWO_PROCESSES), way=EACH),
    *_by_blocks((8,), ("put_ping_pong",), ends=(_TWO_PROCESSES,), word=EACH, way=EACH),
    _rule(8, 16 * KIB, MIB, benchmarks=_PUTS_AND_GETS, engines=("sm",), kernel=_RELAUNCHED),
    *(_rule(*_BETWEEN_HOSTS, benchmarks=_PUTS_AND_GETS, engines=("nic",), **by) for by in (_BY_GPU, _BY_HOST)),
    *(_rule(64, benchmarks=("put", "get"), engines=("nic",), connections=EACH, **by) for by in (_BY_GPU, _BY_HOST)),
    _rule(64, benchmarks=("put",), engines=("nic",), connections=("32",), launch=("each",), **_BY_GPU),
    _rule(benchmarks=("post",), engines=("nic",), queue=EACH),
    _rule(benchmarks=("bystander",), beside=("none",)),
    _rule(benchmarks=("bystander",), beside=("post", "poll"), blocks=EACH),
)

PUT_GET_QUEUES_FIRST = _on_one_path(
    _rule(benchmarks=("post",), engines=("sm",)),
    _rule(8, MIB, benchmarks=("queued_put_ping_pong",), engines=("sm",), queue=("host", "own")),
    *_QUEUED_RATES,
)

PUT_GET_QUEUES = _on_one_path(
    _rule(benchmarks=("post",), descriptor=EACH),
    _rule(8, KIB, 16 * KIB, 256 * KIB, MIB, benchmarks=("queued_put_ping_pong",)),
    _rule(8, benchmarks=("queued_put_ping_pong",), engines=("sm",), descriptor=EACH, queue=EACH),
    _rule(MIB, benchmarks=("queued_put_ping_pong",), engines=("sm",), queue=EACH),
    _rule(64, benchmarks=("queued_put",), engines=("sm",), connections=("16", "32"), queue=("own",)),
    _rule(64, benchmarks=("queued_put",), engines=("sm",), connections=("4", "8"), queue=("own",), launch=("each",)),
    _rule(8, benchmarks=_ROUND_TRIPS, engines=("sm",), control=("own",)),
    _rule(4 * MIB, 64 * MIB, benchmarks=("put",), engines=_KERNELS, blocks=EACH),
    _rule(MIB, benchmarks=("put_ping_pong",), engines=_KERNELS, blocks=("8", "32")),
    _rule(benchmarks=("ping_pong",), memories=("pinned", "device"), word=EACH),
)
