"""Defines the suites, as data. A suite is the union of its rules."""

from dataclasses import replace

from linkscope.plan.contention_rules import AGAIN, CONTENTION, LOADED, LU_OVER_GPUS, SP_8, SP_9, SP_11
from linkscope.plan.nodes import OF_NODES
from linkscope.plan.papers import COMM_SCOPE
from linkscope.plan.put_get_rules import PUT_GET, PUT_GET_FIRST, PUT_GET_QUEUES, PUT_GET_QUEUES_FIRST
from linkscope.plan.rank_rules import BETWEEN_RANKS, BY_MPI, BY_NCCL, BY_UCX
from linkscope.plan.suite_rules import ALL_SIZES, EACH, GIB, KIB, MIB, MOST_MANAGED, Rule, Suite, of_preset
from linkscope.plan.suite_rules import rule as _rule

_KERNELS = ("sm", "tma")
_MANAGED = ("prefetch", "fault")
_BATCHED_ENGINES = ("batch", "graph")
_NEURAL = {"gemm": "n", "gemm_floor": "n", "convolution": "channels", "attention": "length", "softmax": "length"}
_SINGLE, _HOST = ("single",), ("host",)
_CURVE = (8, 256, *(size * KIB for size in (4, 16, 64, 256)), *(size * MIB for size in (1, 4, 16, 64, 256)))
_BIDIRECTIONAL = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
_STAGED = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
_SM_CURVE = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB)
_BLOCKS = ("sms", *(str(1 << exponent) for exponent in range(8)))
_SINGLE_SIZES = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
_PIECE_SIZES = (64, 4 * KIB, 64 * KIB)
_COPIES = ("h2d", "d2h", "d2d", "local")
_JOINT = ("host_to_all", "all_to_host", "one_to_all", "all_to_one")
_ACCESS = ("read", "write")
_EXCHANGES = ("exchange", "exchange_all")
_HOST_TO_GPU = "numa.pinned->gpu.device"
# Thousands of small pieces take longest to simulate, so all their forms are measured on the most important path only.
_IN_PARTS_TO_A_GPU = (
    *(
        of_preset(f"pieces/{engine}/{_HOST_TO_GPU}?piece={piece}&{form}", (1000 * piece,))
        for form in ("mode=*", "clock=host")
        for engine in ("ce", "batch", "graph", "sm")
        for piece in _PIECE_SIZES
    ),
    *(
        of_preset(f"strided/{engine}/{_HOST_TO_GPU}?{params}", (MIB,))
        for engine in ("ce", "sm")
        for params in ("shape=*", "row=*", "gaps=*", "clock=*")
    ),
)
_STRIDED_OTHERS = tuple(
    of_preset(f"strided/{engine}/{ends}?{params}", (MIB,))
    for engine in ("ce", "sm")
    for ends in ("gpu.device->numa.pinned", "gpu.device->other.device")
    for params in ("shape=*", "row=*")
)
_CALLS = ("launch", "launch_to_end", "synchronize", "event", "stream", "copy_call")
_COMPUTED = tuple(
    f"compute_{kind}"
    for kind in (
        "sgemm", "dgemm", "bf16gemm", "fft", "fft_double", "md", "md_double", "reduction", "scan", "sort", "stencil",
        "triad",
    )
)  # fmt: skip
_STAND_INS = tuple(f"compute_stand_in_{name}" for name in ("lammps", "dca", "openmm"))
_BY_KERNELS = (*_COPIES, *_ACCESS, *_JOINT, *_EXCHANGES)
_PINNED = ("pinned", "device")  # the memory kinds of nvbandwidth's copies
_HOST_MEMORY = (*_PINNED, "pageable")
# Parameters for which two sizes are enough.
_OF_PAGES = ("touch", "advice", "ranges", "discard", "order", "stride", "blocks", "block_threads")
_NVBANDWIDTH = 512 * MIB
_CONCURRENT_SIZE = 16 * MIB  # rates have converged, and every path is measured alone at this size
_KIND_SIZES = (4 * KIB, MIB, 16 * MIB)  # extra sizes for memory kinds
# Further memory kinds. The other end has device or pinned memory, or one of them.
_MORE_KINDS = ("wc", "mapped", "hugepage", "registered_hugepage", "pool", "vmm", "ipc", "posix_fd", "shm")
_MORE_AND_USUAL = (*_MORE_KINDS, "device", "pinned")

# SM numbers: the first, the last and three between on an H200. A smaller GPU uses those that it has.
_SMS = ("0", "33", "66", "99", "131")

_ACCESSES = ("read/sm/numa.pinned->gpu.device", "write/sm/gpu.device->numa.pinned")
_PEER_ACCESSES = ("read/sm/gpu.device->other.device", "write/sm/gpu.device->other.device")
_MIGRATIONS = (
    "demand/fault/numa.managed->gpu.managed",
    "demand/fault/gpu.managed->numa.managed",
    "prefetch/prefetch/numa.managed->gpu.managed",
    "prefetch/prefetch/gpu.managed->numa.managed",
)
_PEER_MIGRATIONS = ("demand/fault/gpu.managed->other.managed", "prefetch/prefetch/gpu.managed->other.managed")

_STANDARD = (
    _rule(*_CURVE, initiator=EACH),
    _rule(GIB, benchmarks=_COPIES, engines=("ce",), memories=_PINNED),
    _rule(*_BIDIRECTIONAL, memories=_PINNED, bidirectional=("true",)),
    _rule(16 * MIB, bidirectional=("true",)),
    _rule(*_STAGED, peer=("off",)),
    _rule(*_BIDIRECTIONAL[2:], peer=("off",), bidirectional=("true",)),
    _rule(*_SINGLE_SIZES, mode=_SINGLE),
    # The cost of a single copy depends on these more than on its path.
    replace(_rule(*_SINGLE_SIZES, mode=_SINGLE, initiator=EACH, after=EACH), one_path=True),
    replace(_rule(*_SINGLE_SIZES, mode=_SINGLE, peer=("off",)), one_path=True),
    _rule(64 * MIB, benchmarks=_JOINT, engines=("ce",), initiator=EACH, bidirectional=EACH),
    _rule(benchmarks=("latency",)),
    *(of_preset(text, _SM_CURVE) for text in (*_ACCESSES, *_PEER_ACCESSES)),
    *(of_preset(text, (4 * KIB, 64 * KIB, MIB, 16 * MIB, MOST_MANAGED)) for text in _MIGRATIONS),
    *(of_preset(text, (64 * KIB, MIB, 16 * MIB)) for text in _PEER_MIGRATIONS),
)


_SHARED = ("shared_h2d", "shared_d2h", "shared_mix", "shared_launch")


def _pause_before_copies(**params: tuple[str, ...]) -> Rule:
    return _rule(4 * KIB, benchmarks=_COPIES, engines=("ce",), memories=_PINNED, mode=_SINGLE, **params)


# Operations with many variants: all sizes, parameter values, memory kinds and calls.
_EVERYTHING = (
    Rule(ALL_SIZES),
    Rule(ALL_SIZES, benchmarks=_JOINT, engines=("ce",)),
    Rule(_SINGLE_SIZES, everything=True, fixed=("cpu",)),
    Rule(_SINGLE_SIZES, benchmarks=_JOINT, engines=("ce",), everything=True, fixed=("cpu",)),
    _rule(16 * MIB, benchmarks=("h2d", "d2h"), memories=("pageable", "device"), cpu=EACH),
    _rule(64 * MIB, benchmarks=("host_to_all", "all_to_host"), engines=("ce",), cpu=EACH),
    Rule((64 * MIB,), benchmarks=_BY_KERNELS, engines=_KERNELS, everything=True),
    _rule(MIB, benchmarks=(*_ACCESS, *_COPIES), engines=_KERNELS, memories=("device",), cache=("hot",)),
    _rule(benchmarks=("latency",), range=EACH, cache=EACH),
    _rule(benchmarks=("latency",), memories=_PINNED, sm=_SMS),
    Rule(ALL_SIZES[:-2], engines=_MANAGED, memories=("managed",)),
    Rule(_SM_CURVE, engines=_MANAGED, memories=("managed",), everything=True, fixed=_OF_PAGES),
    Rule((64 * MIB,), engines=_MANAGED, everything=True),
    _rule(4 * KIB, MIB, benchmarks=_COPIES, engines=_BATCHED_ENGINES, memories=_PINNED, mode=EACH),
    _rule(MIB, 16 * MIB, 256 * MIB, benchmarks=("split",), streams=EACH, initiator=EACH),
    _rule(16 * MIB, 256 * MIB, benchmarks=("relayed",), helpers=EACH),
    _rule(256 * MIB, benchmarks=("relayed",), helpers=("3",), chunk=EACH),
    Rule((64 * KIB, MIB, 16 * MIB, 64 * MIB), benchmarks=("staged",), everything=True, fixed=("chunk", "slots")),
    _rule(64 * MIB, benchmarks=("staged",), memories=("pageable", "device"), chunk=EACH, slots=EACH),
    _rule(64 * MIB, benchmarks=("staged",), memories=("pageable", "device"), chunk=("4MiB",), threads=EACH),
    _rule(2 * MIB, 16 * MIB, 64 * MIB, benchmarks=("fresh", "fresh_staged")),
    _rule(64 * MIB, benchmarks=("fresh_staged",), chunk=EACH),
    _rule(64 * MIB, benchmarks=("fresh_staged",), threads=EACH),
    Rule((MIB, 16 * MIB), benchmarks=("file_copies",), everything=True, fixed=("chunk", "slots", "cache", "depth")),
    _rule(128 * MIB, benchmarks=("file_copies",), chunk=EACH, slots=EACH),
    _rule(16 * MIB, benchmarks=("file_copies",), chunk=("8MiB",), depth=EACH),
    _rule(16 * MIB, 128 * MIB, benchmarks=("file_copies",), cache=("hot",)),
    _rule(16 * MIB, 128 * MIB, benchmarks=("file_copies",), cache=("hot",), chunk=("whole",), slots=("1",)),
    _rule(MIB, 16 * MIB, 128 * MIB, benchmarks=("file_direct",)),
    _rule(16 * MIB, 128 * MIB, benchmarks=("file_mapped",)),
    _rule(128 * MIB, benchmarks=("file_mapped",), chunk=EACH, threads=("8",)),
    _rule(128 * MIB, benchmarks=("file_mapped",), chunk=("4MiB",), threads=EACH),
    _rule(1000 * 4 * KIB, benchmarks=("pieces",), piece=(str(4 * KIB),), clock=EACH),
    *_IN_PARTS_TO_A_GPU,
    *_STRIDED_OTHERS,
    _rule(64 * KIB, benchmarks=("halo",), face=EACH, way=EACH),
    _rule(64 * KIB, benchmarks=("halo",), way=EACH, clock=_HOST),
    _rule(4 * KIB, MIB, benchmarks=_COPIES, engines=_BATCHED_ENGINES, memories=_PINNED, mode=_SINGLE, clock=_HOST),
    _rule(MIB, benchmarks=_COPIES, engines=("ce",), memories=_PINNED, mode=_SINGLE, clock=_HOST),
    _pause_before_copies(clock=_HOST, idle_gap_s=EACH),
    _pause_before_copies(after=("wait",), idle_gap_s=("0.01",)),
    _rule(benchmarks=("launch", "launch_to_end"), mode=_SINGLE, idle_gap_s=EACH),
    Rule((), benchmarks=_CALLS, everything=True),
    _rule(benchmarks=("ping_pong",)),
    _rule(benchmarks=("ping_pong",), memories=("device", "ipc", "posix_fd"), word=EACH),
    _rule(benchmarks=("ping_pong",), memories=("shm",)),
    _rule(benchmarks=("graph",), what=EACH, nodes=EACH),
    _rule(benchmarks=("atomic_latency",), memories=_PINNED, scope=EACH),
    _rule(16 * MIB, benchmarks=("atomic",), memories=_PINNED, scope=EACH),
    _rule(64 * KIB, benchmarks=("atomic",), memories=_PINNED, scope=EACH, words=("one",)),
    _rule(64 * KIB, benchmarks=("atomic_shared",), memories=_PINNED, by=EACH, words=EACH),
    _rule(16 * MIB, benchmarks=("shared_access",), by=EACH, bytes=EACH),
    _rule(16 * MIB, benchmarks=("h2d",), memories=("pageable", "device"), bidirectional=("true",), host_threads=EACH),
    _rule(*_KIND_SIZES, benchmarks=_COPIES, engines=("ce", "sm"), memories=_MORE_AND_USUAL, pages=EACH),
    _rule(16 * MIB, benchmarks=_ACCESS, memories=("mapped", "device"), blocks=("256",), threads=("256",), width=("4",)),
    _rule(*_KIND_SIZES, benchmarks=("h2h", *_ACCESS), memories=(*_MORE_AND_USUAL, "pageable"), pages=EACH),
    _rule(benchmarks=("allocation",), phase=EACH, size=("4KiB", "1MiB", "16MiB")),
    _rule(benchmarks=("allocation",), phase=EACH, size=("16MiB",), pages=EACH),
)

_NEAR_AND_FAR = replace(
    _rule(64 * MIB, benchmarks=("h2d", "d2h"), engines=("ce",), memories=_HOST_MEMORY), one_path=True
)

_MECHANISMS = (
    _rule(MIB, benchmarks=("h2d", "d2h", "d2d", "local", "h2h"), engines=("ce", "cpu"), memories=_HOST_MEMORY),
    _rule(MIB, benchmarks=("d2d",), engines=("ce",), peer=("off",)),
    _rule(MIB, benchmarks=("h2d", "d2d"), engines=("sm", "tma", "batch", "graph"), memories=_PINNED),
    _rule(MIB, benchmarks=("h2d", "d2d"), engines=("ce",), memories=("registered", *_MORE_KINDS, "device")),
    _rule(MIB, benchmarks=("demand", "prefetch")),
    _rule(benchmarks=("latency", "launch", "atomic_latency"), engines=("sm", "cpu")),
    _rule(benchmarks=("gemm",), n=("1024",)),
    _rule(benchmarks=("ping_pong",), memories=("shm", "device")),
    _rule(MIB, benchmarks=("host_to_all",), engines=("ce",)),
)

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            "quick",
            "three sizes of every path, unidirectional and bidirectional, peer access on: a first map in seconds",
            (_rule(4 * KIB, MIB, 64 * MIB), _rule(64 * MIB, memories=_PINNED, bidirectional=("true",))),
            budget_s=15.0,
            alike_contexts=False,
        ),
        Suite(
            "sanity",
            "one point of every mechanism in 30 s, for developers: what does not work here, and the findings of "
            "`linkscope doctor`, each with its cure",
            tuple(replace(rule, one_path=True) for rule in _MECHANISMS),
            early=True,
            more_rounds=False,
            budget_s=20.0,
            alike_contexts=False,
        ),
        Suite(
            "check",
            "what a gate needs (`linkscope check`): pinned copies, peer copies, latencies and joint host traffic",
            (
                _rule(16 * MIB, benchmarks=("h2d", "d2h", "d2d"), engines=("ce",), memories=_PINNED),
                _rule(64 * MIB, benchmarks=("host_to_all", "all_to_host"), engines=("ce",), memories=_PINNED),
                _rule(benchmarks=("latency",), engines=("sm",), memories=_PINNED),
            ),
            alike_contexts=False,
        ),
        Suite(
            "standard",
            "curves of every path: batched and single copies, SM accesses, managed memory and latencies: a map of a "
            "machine in two minutes",
            _STANDARD,
            budget_s=112.0,
            together_at=_CONCURRENT_SIZE,
        ),
        Suite(
            "sm",
            "copies and accesses by SMs and TMA, with copy engines for comparison; the number of blocks needed",
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
            "contention",
            "who slows whom: 14 kinds of work at one GPU and NUMA node, and reads of a disk, each alone, beside each "
            "other kind, and alone again",
            CONTENTION,
            early=True,
        ),
        Suite(
            "loaded-latency",
            "small copies, launches, zero-copy reads and round trips against background traffic in ten steps",
            LOADED,
            early=True,
        ),
        Suite(
            "sp-5",
            "Spafford 4.1: computations of SHOC alone and with their transfers, from near and far NUMA nodes",
            (replace(_rule(benchmarks=_COMPUTED), one_path=True), _NEAR_AND_FAR),
        ),
        Suite(
            "sp-5-full",
            "the computations of suite `sp-5` at sizes that fill a GPU of today",
            (replace(_rule(benchmarks=_COMPUTED, size=("full",)), one_path=True), _NEAR_AND_FAR),
        ),
        Suite(
            "sp-6",
            "the computations of suite `sp-5`, pinned and pageable, beside copies to the same GPU or to another one",
            (
                replace(
                    _rule(benchmarks=_COMPUTED, memories=_HOST_MEMORY, beside=("none", "same", "other")), one_path=True
                ),
            ),
            early=True,
        ),
        Suite(
            "sp-7",
            "Spafford 4.2: a blocked LU on one to four GPUs, and its update alone, from every placement",
            (
                replace(_rule(benchmarks=("lu", "lu_update"), nodes=EACH, slots=EACH), one_path=True),
                *LU_OVER_GPUS,
                _rule(64 * MIB, benchmarks=("h2d", "d2h", "d2d"), engines=("ce",), memories=_PINNED),
                _rule(64 * MIB, benchmarks=("host_to_all", "one_to_all"), engines=("ce",)),
                replace(_rule(benchmarks=("compute_dgemm",), memories=("device",)), one_path=True),
            ),
            early=True,
        ),
        Suite(
            "sp-8",
            "Spafford 5: copies of a GPU, messages and CPU traffic, each alone and beside each other; under mpiexec "
            "also a transfer task and messages by MPI",
            SP_8,
            early=True,
        ),
        Suite(
            "sp-9",
            "Spafford 5.1: a transfer task for each GPU, and message tasks, one for each transfer or on all other "
            "CPUs; under mpiexec also by MPI",
            SP_9,
            early=True,
        ),
        Suite(
            "sp-10",
            "Spafford 5.2: 1 to 16 tasks copy 64 MiB to each GPU, all GPUs at once",
            (
                _rule(64 * MIB, benchmarks=("host_to_all",), engines=("ce",), tasks=EACH),
                _rule(64 * MIB, benchmarks=("host_to_all",), engines=("ce",), tasks=("1",), again=AGAIN),
            ),
        ),
        Suite(
            "sp-11",
            "Spafford 5.3: transfers and messages by one thread or by two, 1 to 4 sets; under mpiexec also by MPI",
            SP_11,
            early=True,
        ),
        Suite(
            "sharing",
            "one GPU for 1, 2 and 4 clients: threads, processes, processes under MPS, green contexts",
            (replace(_rule(benchmarks=_SHARED, clients=("1", "2", "4"), way=EACH), one_path=True),),
            early=True,
        ),
        Suite(
            "mpi",
            "messages between ranks (mpiexec -n 2 linkscope run --suite mpi): round trips, rates, and buffers of GPUs, "
            "staged or passed to MPI",
            (*BETWEEN_RANKS, *BY_MPI),
            alike_contexts=False,
        ),
        Suite(
            "ucx",
            "messages of UCX between two processes: round trips, rates, both directions",
            BY_UCX,
            alike_contexts=False,
        ),
        *OF_NODES,
        Suite(
            "collectives",
            "collectives of NCCL over the GPUs of one process, or over ranks (mpiexec -n 4 linkscope run --suite "
            "collectives): batched and single calls, in and out of place",
            BY_NCCL,
            alike_contexts=False,
        ),
        Suite(
            "putget",
            "Klenk: messages that GPUs put or get, driven by the GPU or by the host: round trips, rates, blocks, and "
            "what they cost others",
            PUT_GET,
            first=PUT_GET_FIRST,
        ),
        Suite(
            "putget-queues",
            "Klenk: puts through rings of descriptors, by kernels and CPU threads, and puts by several blocks together",
            PUT_GET_QUEUES,
            first=PUT_GET_QUEUES_FIRST,
        ),
        Suite(
            "sp-13",
            "stand-ins for the applications of Spafford 6, of one and of two tasks, from near and far NUMA nodes",
            (
                replace(_rule(benchmarks=_STAND_INS), one_path=True),
                replace(_rule(benchmarks=_STAND_INS, memories=_PINNED, second=("0", "1")), one_path=True),
                _NEAR_AND_FAR,
            ),
        ),
        Suite(
            "nn",
            "microbench: products of matrices by cuBLAS and by our own kernel on tensor cores, convolution, attention "
            "and softmax by cuDNN, as shares of the GPU's peak",
            tuple(
                replace(_rule(benchmarks=(name,), element=EACH, **{length: EACH}), one_path=True)
                for name, length in _NEURAL.items()
            ),
        ),
        Suite(
            "nvbandwidth",
            "the tests of nvbandwidth 0.8, at its 512 MiB; `--rule nvbandwidth` uses its method",
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
            more_rounds=False,  # more rounds would not narrow its intervals
        ),
        Suite(
            "comm-scope",
            "the tests of Comm|Scope, at its sizes up to 4 GiB; `--rule comm-scope` uses its method",
            tuple(of_preset(text, COMM_SCOPE.sizes) for entry in COMM_SCOPE.entries for text in entry.points),
        ),
        Suite(
            "full",
            "every operation on every path; on one path of each class also all powers of two from 8 B to 1 GiB by copy "
            "engine, and every parameter value",
            (
                Rule(_CURVE, benchmarks=_JOINT, engines=("ce",)),
                Rule(_CURVE, benchmarks=_BY_KERNELS, engines=_KERNELS),
                *_STANDARD,
                _rule(256 * MIB, benchmarks=("relayed",), helpers=("1", "3")),
                replace(_rule(benchmarks=(*_COMPUTED, *_STAND_INS, "lu_update"), size=("small",)), one_path=True),
                replace(_rule(benchmarks=("lu", "lu_gpus"), n=("256",)), one_path=True),
                of_preset(f"latency/sm/gpu.device->same.device?sm={','.join(_SMS)}", ()),
                *(replace(rule, one_path=True) for rule in _EVERYTHING),
            ),
            rest=Rule(_KIND_SIZES, everything=True, one_path=True),
            together_at=_CONCURRENT_SIZE,
        ),
    )
}
