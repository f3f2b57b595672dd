"""A trace of transfers: what a program moves, as a text file (docs/reference/trace.md), and the points that measure it.

A line is `SRC -> DST BYTES x COUNT`, then words: host memory (pinned is the default), `peer=off`, `batched`. A line
`[NAME]` begins a part, such as an epoch. `#` begins a comment.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from linkscope.errors import UserError
from linkscope.runfile import PointId
from linkscope.units import MOST_BYTES, parse_bytes

KINDS = {"h2d": "host to GPU", "d2h": "GPU to host", "d2d": "GPU to GPU", "local": "within a GPU"}
_MEMORIES = ("pinned", "pageable", "registered")
_WORDS = (*_MEMORIES, "peer=off", "batched")
_MOST_SHOWN = 60  # characters of a line in a message: a file of another format may have lines of any length
_LINE = re.compile(r"(\S+)\s*->\s*(\S+)\s+(\S+)(?:\s+x\s*(\d+))?((?:\s+\S+)*)")


@dataclass(frozen=True)
class Transfer:
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
    transfers: tuple[Transfer, ...]


def read_trace(path: str | Path) -> list[Part]:
    """The parts of a trace, in their order. Raises UserError that names the line and the cure."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--trace {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"--trace {path}: this is not a text file") from None
    parts: list[tuple[str, list[Transfer]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if words.startswith("[") and words.endswith("]"):
            parts.append((words[1:-1].strip(), []))
        elif words:
            if not parts:
                parts.append((Path(path).stem, []))
            try:
                parts[-1][1].append(_transfer(words))
            except ValueError as error:
                raise UserError(f"{path}, line {number}: {error}") from None
    if not any(transfers for _, transfers in parts):
        raise UserError(f"{path} holds no transfer: write lines like numa:0 -> gpu:0 4MiB x 100")
    return [Part(name, tuple(transfers)) for name, transfers in parts if transfers]


def point_ids(parts: list[Part]) -> list[str]:
    """The points that measure all transfers, each once."""
    return list(dict.fromkeys(str(transfer.point) for part in parts for transfer in part.transfers))


def _transfer(text: str) -> Transfer:
    match = _LINE.fullmatch(text)
    if match is None:
        shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        raise ValueError(f"'{shown}' is not a transfer: write it like numa:0 -> gpu:0 4MiB x 100")
    src, dst, size_text, count_text, rest = match.groups()
    size, count, words = parse_bytes(size_text), int(count_text or "1"), rest.split()
    if size is None:
        raise ValueError(f"{size_text} is not a size: write 4096, 64KiB or 4MiB")
    unknown = next((word for word in words if word not in _WORDS), None)
    if unknown is not None:
        raise ValueError(f"'{unknown}' is not known here: after the size write x COUNT, then {', '.join(_WORDS)}")
    if count == 0 or not 0 < size <= MOST_BYTES:
        raise ValueError(f"'{text}': a transfer has 1 byte to 1 TiB, and a count of at least 1")
    return Transfer(_point(src, dst, size, words), count)


def _point(src: str, dst: str, size: int, words: list[str]) -> PointId:
    kinds = tuple(place.rpartition("/")[2].partition(":")[0] for place in (src, dst))
    memories = [word for word in words if word in _MEMORIES]
    if not set(kinds) <= {"numa", "gpu"} or kinds == ("numa", "numa"):
        raise ValueError(
            f"{src} -> {dst}: one end of a transfer is a GPU: write gpu:0 for a GPU and numa:0 for host memory"
        )
    if len(memories) > 1 or (memories and kinds == ("gpu", "gpu")):
        raise ValueError(
            f"{' '.join(memories)}: name at most one kind of host memory, and only if one end is host memory"
        )
    if "peer=off" in words and (kinds != ("gpu", "gpu") or src == dst):
        raise ValueError("peer=off applies only to transfers between two GPUs")
    host = memories[0] if memories else "pinned"
    params = {"after": "kernel", "mode": "batched" if "batched" in words else "single"}
    if kinds == ("numa", "gpu"):
        name, ends, more = "h2d", (host, "device"), {"bidirectional": "false"}
    elif kinds == ("gpu", "numa"):
        name, ends, more = "d2h", ("device", host), {}
    elif src == dst:
        name, ends, more = "local", ("device", "device"), {}
    else:
        name, ends = "d2d", ("device", "device")
        peer = "off" if "peer=off" in words else "on"
        more = {"bidirectional": "false", "call": "memcpy", "initiator": "src", "peer": peer}
    return PointId(name, "ce", src, ends[0], dst, ends[1], size, tuple(sorted({**params, **more}.items())))
