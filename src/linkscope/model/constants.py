"""The constants of a machine file and the points that determine them, in blocks, in the order of the fit.

A block uses the values of earlier blocks. Where two constants appear only as a sum, an earlier block or a default fixes
one of them: for example the latency of a link and the set-up of copies over it in a run without latencies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from linkscope.model import defaults
from linkscope.model.flows import is_plain
from linkscope.model.observed import Observation
from linkscope.model.skeleton import Content
from linkscope.runfile import PointId

Start = float | Callable[[Sequence[Observation]], float]

_PLAIN = {"mode", "after", "bidirectional", "initiator", "peer", "blocks", "threads"}
_DEFAULTS = {"call": "memcpy", "cache": "cold"}
_LARGE = 4 << 20


@dataclass(frozen=True)
class Constant:
    """One constant: its place in the file, the start of its search, and its bounds.

    In tables with rows (`numa`, `gpu`, `link`) each group of equal rows has one value. `optional`: the constant is left
    out unless it improves the prediction clearly.
    """

    table: str
    key: str
    start: Start
    low: float
    high: float
    optional: bool = False


@dataclass(frozen=True)
class Choice:
    """A constant with a few possible values."""

    table: str
    key: str
    values: tuple[float | str, ...]

    def get(self, content: Content) -> float | str:
        """The value."""
        value = content[self.table][self.key]
        return value if isinstance(value, str) else float(value["v"])

    def put(self, content: Content, value: float | str, source: Content | None = None) -> None:
        """Sets the value; `source` is its provenance."""
        stated = {"v": value, **(source or {"from": "fitted"})}
        content[self.table][self.key] = value if isinstance(value, str) else stated


@dataclass(frozen=True)
class Block:
    """Constants that are fitted together, and the points they are fitted to. `optional`: a table that is left out if
    the points are predicted as well without it."""

    name: str
    points: Callable[[PointId], bool]
    constants: tuple[Constant, ...]
    choices: tuple[Choice, ...] = ()
    optional: str = ""


def _us(table: str, key: str, start: Start, *, optional: bool = False) -> Constant:
    return Constant(table, key, start, 1e-4, 1e6, optional)


def _gbps(table: str, key: str, start: Start, *, optional: bool = False) -> Constant:
    return Constant(table, key, start, 1e-3, 1e5, optional)


def _fraction(table: str, key: str, start: Start, *, optional: bool = False) -> Constant:
    return Constant(table, key, start, 0.01, 1.0, optional)


# Rates of SM accesses as a part of the raw rate. A link without a value for its other direction uses the same.
_FORTH = _fraction("link", "kernel_efficiency", 0.85, optional=True)


def _fastest(observations: Sequence[Observation]) -> float:
    """GB/s of the fastest single flow."""
    single = [one for one in observations if not one.joint] or observations
    return max(one.flow_bytes[0] / one.seconds / 1e9 for one in single)


def _of(test: Callable[[PointId], bool], what: Callable[[Sequence[Observation]], float]) -> Start:
    def start(observations: Sequence[Observation]) -> float:
        chosen = [one for one in observations if test(one.point)]
        return what(chosen) if chosen else what(observations)

    return start


def _shortest_us(part: float) -> Callable[[Sequence[Observation]], float]:
    """A fraction of the shortest time, in us."""
    return lambda observations: part * min(one.seconds for one in observations) * 1e6


def _plain(point: PointId) -> bool:
    """Whether every parameter has its usual value, except those that the block selects."""
    return all(name in _PLAIN or _DEFAULTS.get(name) == value for name, value in point.params)


def _single(point: PointId) -> bool:
    return not point.bidirectional and "all" not in (point.src.rpartition(":")[2], point.dst.rpartition(":")[2])


def _after_a_wait(point: PointId) -> bool:
    """A single copy in a stream that was idle."""
    return point.param("mode") == "single" and point.param("after") == "wait"


def _copy(*names: str) -> Callable[[PointId], bool]:
    return lambda point: point.benchmark in names and point.engine == "ce" and _plain(point)


def _pinned(point: PointId) -> bool:
    return {point.src_memory, point.dst_memory} <= {"pinned", "registered", "device"}


def _pageable(point: PointId) -> bool:
    return _copy("h2d", "d2h")(point) and "pageable" in (point.src_memory, point.dst_memory)


def _loads(point: PointId) -> bool:
    of_any_sm = point.benchmark == "latency" and point.param("sm", "any") == "any"
    return of_any_sm and point.param("cache", "cold") == "cold" and point.param("range") != "64MiB"


def _hosts(point: PointId) -> bool:
    return _copy("h2d", "d2h")(point) and _pinned(point) and _single(point)


def _opposite(point: PointId) -> bool:
    return _copy("h2d")(point) and _pinned(point) and point.bidirectional


def _local(point: PointId) -> bool:
    return _copy("local")(point) and _pinned(point)


def _peer(point: PointId, initiator: str) -> bool:
    direct = _copy("d2d")(point) and point.param("peer", "on") == "on" and _single(point)
    # The cost of a pulled copy after a wait differs between machines of one model by a factor of two
    # (docs/notes/prediction.md).
    unknown = initiator == "dst" and _after_a_wait(point)
    return direct and point.param("initiator", "src") == initiator and not unknown


def _staged(point: PointId) -> bool:
    return _copy("d2d")(point) and point.param("peer") == "off"


def _memcpy(point: PointId) -> bool:
    kinds = {point.src_memory, point.dst_memory} <= {"pageable", "pinned", "registered"}
    return point.benchmark == "h2h" and kinds and _plain(point)


def _threads(point: PointId) -> bool:
    return (
        point.engine in ("sm", "tma")
        and point.benchmark in ("read", "write", "h2d", "d2h", "d2d", "local")
        and _pinned(point)
        and _plain(point)
        and _single(point)
    )


def _engine(*names: str) -> Callable[[PointId], bool]:
    return lambda point: point.engine in names


def _together(engine: str, *, clock: str) -> Callable[[PointId], bool]:
    return lambda point: point.engine == engine and point.param("clock", "event") == clock and point.idle_gap_s == 0


def _named(*names: str) -> Callable[[PointId], bool]:
    return lambda point: point.benchmark in names


def _of_table(table: str) -> tuple[Constant, ...]:
    """All times and rates of a table, starting at their defaults; page and block sizes are facts and not fitted."""
    made = []
    for key, start in defaults.VALUES[table].items():
        if key.endswith(("_us", "_gbps", "_gops")) and not isinstance(start, str):
            made.append(Constant(table, key, start, 1e-4, 1e6))
    return tuple(made)


def _wc(point: PointId) -> bool:
    return point.benchmark == "h2h" and "wc" in (point.src_memory, point.dst_memory)


_CALLS = ("launch", "launch_to_end", "synchronize", "event", "stream", "graph")
_IN, _OUT = _of(_named("h2d"), _shortest_us(0.6)), _of(_named("d2h"), _shortest_us(0.6))
_CHUNKS = tuple(float(1 << exponent) for exponent in range(6, 14))
_INLINE = (1 / 128, 0.25, 4.0, 16.0, 64.0)

# Constants that direct copies determine. Shared capacities come next, and then the remaining constants.
DIRECT = (
    Block(
        "loads, and copies between host and GPU",
        lambda point: _loads(point) or _hosts(point),
        (
            _us("numa", "load_us", 0.1),
            _us("kernel", "load_us", 0.4),
            _us("link", "latency_us", 0.3),
            _fraction("link", "efficiency", 0.97),
            _us("copy", "to_device_us", _IN),
            _us("copy", "from_device_us", _OUT),
            _us("copy", "inline_us", _IN),
            _gbps("copy", "inline_gbps", 3.0),
            _us("copy", "channel_us", 4.0),
            _us("copy", "arrive_us", 0.3, optional=True),
            _us("copy", "from_device_late_us", 0.1, optional=True),
            _gbps("link", "back_gbps", 0.0, optional=True),
        ),
        (Choice("copy", "inline_kib", _INLINE),),
    ),
    Block(
        "memcpy",
        _memcpy,
        (
            _gbps("numa", "memcpy_gbps", _fastest),
            _gbps("numa", "memcpy_remote_gbps", _fastest, optional=True),
            _gbps("numa", "memcpy_stream_gbps", _fastest, optional=True),
            _us("costs", "cpu_copy_us", _shortest_us(0.8)),
        ),
    ),
    Block(
        "copies within a GPU",
        _local,
        (
            _us("copy", "local_us", _shortest_us(0.8)),
            _gbps("gpu", "local_copy_gbps", _fastest),
            _us("copy", "local_late_us", 0.1, optional=True),
        ),
    ),
    Block(
        "copies between GPUs, queued by the source",
        lambda point: _peer(point, "src"),
        (
            _fraction("link", "efficiency", 0.97),
            _us("copy", "peer_us", _shortest_us(0.8)),
            _us("copy", "small_peer_us", _shortest_us(0.8), optional=True),
            _gbps("link", "back_gbps", 0.0, optional=True),
        ),
    ),
    Block(
        "copies between GPUs, queued by the destination",
        lambda point: _peer(point, "dst"),
        (
            _us("pull", "extra_us", _shortest_us(0.8)),
            _fraction("pull", "overlap", 0.5),
            _us("pull", "least_us", _shortest_us(0.4)),
        ),
        optional="pull",
    ),
)

RINGS_AND_THREADS = (
    Block("bidirectional copies", _opposite, (_us("copy", "both_ways_us", 1.0, optional=True),)),
    Block("queueing a copy", _named("copy_call"), (_us("costs", "call_us", 1.3),)),
    Block(
        "pageable copies",
        lambda point: _pageable(point),
        (
            _gbps("pageable", "to_device_gbps", _of(_named("h2d"), _fastest)),
            _gbps("pageable", "from_device_gbps", _of(_named("d2h"), _fastest)),
            _us("pageable", "to_device_us", _of(_named("h2d"), _shortest_us(0.3))),
            _us("pageable", "from_device_us", _of(_named("d2h"), _shortest_us(0.5))),
            _gbps("pageable", "small_gbps", 7.0, optional=True),
            _us("pageable", "small_us", 0.5, optional=True),
            _us("pageable", "end_us", 2.0, optional=True),
        ),
        (Choice("pageable", "copied_by", ("driver", "caller")), Choice("pageable", "chunk_kib", _CHUNKS)),
    ),
    Block(
        "copies between GPUs through the host",
        _staged,
        (_us("staged_peer", "chunk_us", _shortest_us(0.4)),),
        (Choice("staged_peer", "chunk_kib", _CHUNKS), Choice("staged_peer", "slots", (2.0, 3.0, 4.0, 8.0))),
    ),
    Block(
        "copies and accesses by SM",
        _threads,
        (
            _us("kernel", "launch_us", 1.8),
            _us("kernel", "read_tile_us", 0.2),
            _us("kernel", "write_tile_us", 0.2),
            _fraction("kernel", "memory_efficiency", 0.8),
            _FORTH,
            replace(_FORTH, key="kernel_back_efficiency"),
        ),
    ),
    Block(
        "copies that one call queues together",
        _together("batch", clock="event"),
        (_us("batch", "issue_us", 0.02),),
    ),
    Block(
        "host time of such a call",
        _together("batch", clock="host"),
        (_us("batch", "host_us", 0.9),),
    ),
    Block(
        "copies as nodes of a graph",
        _together("graph", clock="event"),
        (_us("graph", "launch_us", 0.1), _us("graph", "node_us", 0.1)),
    ),
    Block(
        "managed memory",
        _engine("prefetch", "fault"),
        (
            _us("managed", "launch_us", 50.0),
            _us("managed", "gpu_batch_us", 1.0),
            _us("managed", "gpu_page_us", 0.05),
            _us("managed", "gpu_region_us", 1.0, optional=True),
            _us("managed", "gpu_block_us", 5.0, optional=True),
            _us("managed", "cpu_fault_us", 20.0),
            _us("managed", "cpu_page_us", 0.4),
            _gbps("managed", "to_device_gbps", 20.0),
            _gbps("managed", "from_device_gbps", 20.0),
            _us("managed", "peer_launch_us", 50.0, optional=True),
            _gbps("managed", "peer_gbps", 20.0, optional=True),
            _us("managed", "prefetch_us", 30.0),
            _us("managed", "to_device_piece_us", 10.0),
            _us("managed", "from_device_piece_us", 20.0),
        ),
    ),
    Block("calls", _named(*_CALLS), (_us("costs", "launch_us", 3.1), *_of_table("calls"))),
    Block(
        "atomic operations",
        _named("atomic", "atomic_latency"),
        (
            *_of_table("atomic"),
            Constant("atomic", "link_bytes", 10.0, 1.0, 1e3),
            Constant("atomic", "same_peer_gops", 1.5, 1e-4, 1e6, optional=True),
        ),
    ),
    Block("memory of each kind", lambda point: point.benchmark == "allocation" or _wc(point), _of_table("memory")),
)

STAGED = next(block for block in RINGS_AND_THREADS if block.points is _staged)


def joint(point: PointId) -> bool:
    """Large concurrent copies by copy engine, which shared capacities slow."""
    return _joint(point) and not _staged(point)


def hosts_and_all(point: PointId) -> bool:
    """Concurrent flows between a host and all its GPUs."""
    return point.benchmark in ("host_to_all", "all_to_host")


def joint_staged(point: PointId) -> bool:
    """The same for copies staged in host memory."""
    return _joint(point) and _staged(point)


def _joint(point: PointId) -> bool:
    if len(point.paths) > 1:
        return is_plain(point) and point.bytes >= _LARGE
    together = _copy("h2d", "d2h", "d2d", "host_to_all", "all_to_host", "one_to_all", "all_to_one")(point)
    return together and not _single(point) and point.bytes >= _LARGE and _pinned(point)
