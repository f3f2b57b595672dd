"""Canonical point ids: `benchmark/engine/src.memory->dst.memory/bytes?sorted params`.

A place may hold any text (`disk:/data/a->b`), so punctuation of the id is percent-encoded in it.
"""

import functools
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from linkscope.flow import read_paths

_SAFE = "/:._-~"
_SAFE_IN_PARAMS = _SAFE + ">,"  # `with=numa:0->gpu:1,numa:0->gpu:2`
_CACHED_IDS = 65536  # more than the points of a run: ids are parsed many times
_ID = re.compile(
    r"(?P<benchmark>[a-z0-9_]+)/(?P<engine>[a-z0-9_]+)/"
    r"(?P<src>[^>?]+)\.(?P<src_memory>[a-z_]+)->(?P<dst>[^>?]+)\.(?P<dst_memory>[a-z_]+)/"
    r"(?P<bytes>\d+)(?:\?(?P<params>[^?]+))?"
)


@dataclass(frozen=True, slots=True)
class PointId:
    """The parsed id. `params` are sorted pairs of name and value; `bytes` is per operation."""

    benchmark: str
    engine: str
    src: str
    src_memory: str
    dst: str
    dst_memory: str
    bytes: int
    params: tuple[tuple[str, str], ...] = ()
    _text: str = field(default="", init=False, repr=False, compare=False)  # cached text

    def __str__(self) -> str:
        if not self._text:
            object.__setattr__(self, "_text", _written(self))
        return self._text

    def param(self, name: str, otherwise: str = "") -> str:
        """The value of a parameter, or `otherwise` if the id lacks it."""
        for key, value in self.params:
            if key == name:
                return value
        return otherwise

    @property
    def bidirectional(self) -> bool:
        """Whether the opposite transfer runs concurrently."""
        return self.param("bidirectional") == "true"

    @property
    def idle_gap_s(self) -> float:
        """Idle time before each operation, in seconds."""
        return float(self.param("idle_gap_s", "0"))

    @property
    def paths(self) -> tuple[tuple[str, str], ...]:
        """Source and destination of every path in the id: its own path, then those of `with`."""
        return ((self.src, self.dst), *read_paths(self.param("with")))

    @property
    def through_host(self) -> bool:
        """Whether a path between GPUs goes through host memory: without peer access, or through a ring there."""
        return self.param("peer") == "off" or self.param("ring") != ""

    @staticmethod
    @functools.lru_cache(maxsize=_CACHED_IDS)
    def parse(text: str) -> "PointId":
        """Parses an id. Raises ValueError with the problem."""
        match = _ID.fullmatch(text)
        if match is None:
            raise ValueError(f"'{text}' does not have the form benchmark/engine/src.memory->dst.memory/bytes?params")
        part = match.groupdict()
        return PointId(
            part["benchmark"], part["engine"], unquote(part["src"]), part["src_memory"],
            unquote(part["dst"]), part["dst_memory"], int(part["bytes"]), _parse_params(text, part["params"]),
        )  # fmt: skip


def _written(point: PointId) -> str:
    ends = f"{_quoted(point.src)}.{point.src_memory}->{_quoted(point.dst)}.{point.dst_memory}"
    params = "&".join([f"{_quoted(name)}={_quoted(value, _SAFE_IN_PARAMS)}" for name, value in sorted(point.params)])
    return f"{point.benchmark}/{point.engine}/{ends}/{point.bytes}" + (f"?{params}" if params else "")


@functools.lru_cache(maxsize=1024)
def _quoted(text: str, safe: str = _SAFE) -> str:
    return quote(text, safe)


def _parse_params(text: str, params: str | None) -> tuple[tuple[str, str], ...]:
    pairs = []
    for item in (params or "").split("&") if params else ():
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise ValueError(f"'{text}' has the parameter '{item}'. Write name=value")
        pairs.append((unquote(name), unquote(value)))
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError(f"'{text}' names a parameter twice")
    return tuple(sorted(pairs))
