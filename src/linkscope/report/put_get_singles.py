"""Median and p99 of single messages, beside a bare word on the same path in the same run."""

from collections.abc import Mapping
from dataclasses import dataclass

from linkscope.report.put_get import OF_PROCESSES, TRIPS
from linkscope.report.shared import is_contended
from linkscope.runfile import Flow, Point, Run

WORD = "ping_pong"
_LEFT_OUT = {"threads": "1024", "connections": "1", "word": "separate", "control": "direct"}


@dataclass(frozen=True)
class Single:
    """The single messages of a point, whose actor stamped each.

    `word_s`: the median of a bare word there and back on the same path, in seconds; None for a stream, and where the
    run has none.
    """

    point: Point
    word_s: float | None

    @property
    def flow(self) -> Flow:
        """The flow that was stamped: it has a median and a p99."""
        return self.point.flows[0]

    @property
    def over_word(self) -> float | None:
        """The median over that of the bare word."""
        return self.flow.p50_s / self.word_s if self.word_s and self.flow.p50_s else None

    @property
    def form(self) -> str:
        """The parameters that are not the usual ones, as text."""
        shown = (f"{name} {value}" for name, value in sorted(self.point.params.items()) if _LEFT_OUT.get(name) != value)
        return ", ".join(shown)


def singles(run: Run) -> list[Single]:
    """The points with stamped messages: bare words, round trips and streams, each by path, size and form.

    None in a run of bare words alone, as suites of latencies have them, and none of work beside other work.
    """
    messages = (point for point in run.points if not is_contended(point))
    stamped = [point for point in messages if "stamp_cost_s" in point.guards and _has_tail(point)]
    if all(point.benchmark == WORD for point in stamped):
        return []
    words = {_path(point): point.flows[0].p50_s or 0.0 for point in reversed(stamped) if point.benchmark == WORD}
    made = [Single(point, _word(point, words)) for point in stamped]
    order = (WORD, *TRIPS)
    return sorted(
        made, key=lambda one: (_rank(one.point, order), one.point.benchmark, *_path(one.point), one.point.bytes)
    )


def _has_tail(point: Point) -> bool:
    return bool(point.flows) and point.flows[0].p50_s is not None and point.flows[0].p99_s is not None


def _rank(point: Point, order: tuple[str, ...]) -> int:
    return order.index(point.benchmark) if point.benchmark in order else len(order)


def _word(point: Point, words: Mapping[tuple[str, ...], float]) -> float | None:
    return words.get(_path(point)) if point.benchmark.endswith(WORD) and point.benchmark != WORD else None


def _path(point: Point) -> tuple[str, ...]:
    """The two ends in one order: a word goes there and back."""
    return (*sorted((point.src, point.dst)), "two processes" if point.src_memory in OF_PROCESSES else "")
