"""What tuning gains: at each size of a path, the best measured method against the plain copy and the peak."""

from collections.abc import Iterable
from dataclasses import dataclass

from linkscope.model.curves import Estimate, natural, total_of
from linkscope.model.files import is_cached, is_whole_file
from linkscope.model.text import param_text, size_text
from linkscope.report.family_words import ENGINES, operation_text
from linkscope.runfile import Point

_PLAIN = ("h2d", "d2h", "d2d", "local")  # by a copy engine
_FRESH = ("fresh", "fresh_staged")  # to memory that nobody has touched
_FILES = ("file_copies", "file_direct", "file_mapped")
_TUNED = ("staged", "split", "relayed", "pieces", *_FRESH, *_FILES)
# Parameters of points that compare other things than methods.
_OTHER_QUESTIONS = ("bidirectional", "cache", "clock", "cpu", "idle_gap_s", "initiator", "after", "call")
_UNNAMED = ("mode", "node", "peer", "piece", "ring", *_OTHER_QUESTIONS)


@dataclass(frozen=True)
class TuningRow:
    """One size of one path. `plain` and `best` are rates in GB/s. `shows`: the intervals of both are apart."""

    where: str
    size: str
    bytes: int
    plain: Estimate
    best: Estimate
    method: str
    peak: float | None
    ids: tuple[str, ...]
    shows: bool

    @property
    def gain(self) -> float:
        """The speed-up of the best method over the plain copy."""
        return self.best.value / self.plain.value

    @property
    def share(self) -> float | None:
        """The best rate as a fraction of the peak."""
        return self.best.value / self.peak if self.peak else None


def tuning_rows(points: Iterable[Point]) -> list[TuningRow]:
    """A row for each size of a path that has a plain copy and a staged, split or scattered one, by path and size."""
    situations: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        if _counts(point):
            situations.setdefault((_where(point), size_text(point)), []).append(point)
    rows = [
        row for (where, size), of in situations.items() if (row := _row(where, size, _by_one_clock(of))) is not None
    ]
    return sorted(rows, key=lambda row: (natural(row.where), row.bytes, row.size))


def _by_one_clock(points: list[Point]) -> list[Point]:
    """Scattered pieces by the host's clock, if the loop of plain copies has such a time.

    The clock of the GPU leaves out the calls behind a gate, which cost a batch call of many pieces most of its time.
    """
    by_host = [point for point in points if point.params.get("clock") == "host"]
    return by_host if any(map(_is_plain, by_host)) else [point for point in points if point not in by_host]


def _counts(point: Point) -> bool:
    if point.gbps is None or point.bytes == 0 or point.status not in ("ok", "missed_precision"):
        return False
    if point.benchmark not in (*_PLAIN, *_TUNED) or point.params.get("mode", "batched") != "batched":
        return False
    usual = {"initiator": "src", "after": "kernel", "call": "memcpy", "bidirectional": "false"}
    if point.benchmark in _FILES and is_cached(point.benchmark, point.params):
        usual["cache"] = "hot"  # a path of its own
    if point.benchmark == "pieces" and point.params.get("clock") == "host":
        usual["clock"] = "host"
    return all(point.params.get(name, usual.get(name)) == usual.get(name) for name in _OTHER_QUESTIONS)


def _where(point: Point) -> str:
    """'numa:0 pageable -> gpu:0 device', with the absence of peer access. Untouched memory and cached files are states,
    and no kinds."""
    is_ring = "ring" in point.params and point.benchmark not in _FILES
    through = ", without peer access" if is_ring or point.params.get("peer") == "off" else ""
    cached = " in the page cache" if point.benchmark in _FILES and is_cached(point.benchmark, point.params) else ""
    target = "untouched memory" if point.benchmark in _FRESH else point.dst_memory
    return f"{point.src} {point.src_memory} -> {point.dst} {target}{cached}{through}"


def _row(where: str, size: str, points: list[Point]) -> TuningRow | None:
    plain = next((point for point in points if _is_plain(point)), None)
    if plain is None or not any(point.benchmark in _TUNED and point is not plain for point in points):
        return None
    best = max(points, key=lambda point: _rate(point).value)
    rates = (_rate(plain), _rate(best))
    shows = best is not plain and (rates[0].high or rates[0].value) < (rates[1].low or rates[1].value)
    ids = (plain.id,) if best is plain else (plain.id, best.id)
    peak = None if best.benchmark == "relayed" else best.limit_gbps  # its limit is that of one link of several
    return TuningRow(where, size, plain.bytes, *rates, _method(best), peak, ids, shows)


def _is_plain(point: Point) -> bool:
    if point.benchmark == "fresh":
        return point.dst_memory == "pageable"
    if point.benchmark in _FILES:
        return is_whole_file(point.benchmark, point.params)
    return point.engine == "ce" and point.benchmark in (*_PLAIN, "pieces")


def _method(point: Point) -> str:
    if _is_plain(point):
        return "plain copy"
    named = [param_text(name, value) for name, value in sorted(point.params.items()) if name not in _UNNAMED]
    if point.benchmark in _FRESH and point.dst_memory == "hugepage":
        named.append("huge pages")
    what = "gathered" if point.benchmark == "pieces" else operation_text(point.benchmark)
    return f"{what} by {ENGINES.get(point.engine, point.engine)}" + (f" ({', '.join(named)})" if named else "")


def _rate(point: Point) -> Estimate:
    """Of all parts of the copy together."""
    return total_of(point) or Estimate(0.0)
