"""A trace of transfers: what a program moves, as a text file (docs/reference/trace.md), and the points that measure it.

A line has transfers in the grammar of flows (docs/reference/flows.md) with a size each; `x 100` is the number of such
transfers. A line `[NAME]` begins a part, such as an epoch. `#` begins a comment.
"""

from dataclasses import dataclass
from pathlib import Path

from linkscope.errors import UserError
from linkscope.flow import Flow, Transfer, parse_flows, without_comment, wrong
from linkscope.runfile import PointId

KINDS = {"h2d": "host to GPU", "d2h": "GPU to host", "d2d": "GPU to GPU", "local": "within a GPU"}
_MEMORIES = ("pinned", "pageable", "registered")
_EXAMPLE = "numa:0 -> gpu:0 4MiB x 100"


@dataclass(frozen=True)
class RepeatedTransfer:
    """A transfer that occurs `count` times, by the point that measures it."""

    point: PointId
    count: int

    @property
    def kind(self) -> str:
        """A key of `KINDS`."""
        return self.point.benchmark


@dataclass(frozen=True)
class Part:
    """Transfers that are reported together, such as an epoch."""

    name: str
    transfers: tuple[RepeatedTransfer, ...]


def read_trace(path: str | Path) -> list[Part]:
    """The parts of a trace, in their order. Raises UserError that names the line and the cure."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--trace {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(
            f"--trace {path}: this is not a text file. `linkscope explain {path}` reads the traces of profilers"
        ) from None
    parts: list[tuple[str, list[RepeatedTransfer]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = without_comment(line)
        if words.startswith("[") and words.endswith("]"):
            parts.append((words[1:-1].strip(), []))
        elif words:
            if not parts:
                parts.append((Path(path).stem, []))
            parts[-1][1].extend(map(_repeated, parse_flows(line, f"{path}, line {number}")))
    if not any(transfers for _, transfers in parts):
        raise UserError(f"{path} holds no transfer: write lines like {_EXAMPLE}")
    return [Part(name, tuple(transfers)) for name, transfers in parts if transfers]


def point_ids(parts: list[Part]) -> list[str]:
    """The points that measure all transfers, each once."""
    return list(dict.fromkeys(str(transfer.point) for part in parts for transfer in part.transfers))


def _repeated(flow: Flow) -> RepeatedTransfer:
    if not isinstance(flow, Transfer):
        raise wrong(flow, "flow", f"this is not a transfer: write it like {_EXAMPLE}")
    if flow.bytes is None:
        raise wrong(flow, "flow", f"the size is missing: write it like {_EXAMPLE}")
    if flow.engine not in (None, "ce"):
        raise wrong(flow, "engine", "a trace is measured by ce: leave out the engine")
    return RepeatedTransfer(_point(flow, flow.bytes), flow.times)


def _point(flow: Transfer, size: int) -> PointId:
    kinds = flow.kinds
    if not set(kinds) <= {"numa", "gpu"} or kinds == ("numa", "numa"):
        raise wrong(flow, "flow", "one end of a transfer is a GPU: write gpu:0 for a GPU and numa:0 for host memory")
    ends = _memory(flow, "src"), _memory(flow, "dst")
    params = {"after": "kernel", "mode": flow.option("mode") or "single"}
    if kinds == ("numa", "gpu"):
        name, more = "h2d", {"bidirectional": "false"}
    elif kinds == ("gpu", "numa"):
        name, more = "d2h", {}
    elif flow.src == flow.dst:
        name, more = "local", {}
    else:
        peer = flow.option("peer") or "on"
        name, more = "d2d", {"bidirectional": "false", "call": "memcpy", "initiator": "src", "peer": peer}
    return PointId(name, "ce", flow.src, ends[0], flow.dst, ends[1], size, tuple(sorted({**params, **more}.items())))


def _memory(flow: Transfer, end: str) -> str:
    """The memory kind of an end, `src` or `dst`: pinned or device by default."""
    at_source = end == "src"
    memory = flow.src_memory if at_source else flow.dst_memory
    measured = _MEMORIES if flow.kinds[0 if at_source else 1] == "numa" else ("device",)
    if memory not in (None, *measured):
        raise wrong(flow, f"{end}_memory", f"a trace has {', '.join(measured)} memory here")
    return memory or measured[0]
