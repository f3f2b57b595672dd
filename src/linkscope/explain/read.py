"""Finds out what wrote a trace, reads it, and sets aside what cannot be."""

import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from linkscope.errors import UserError
from linkscope.explain.events import Copy, Kernel, Recorded, Step
from linkscope.explain.kineto import is_kineto, read_kineto
from linkscope.explain.nsight import is_nsight, read_nsight

_GZIP = b"\x1f\x8b"
_LONGEST_S = 600.0  # no copy or kernel runs for longer; a clock that jumped makes such events
_FORMATS = (
    "It reads the JSON of PyTorch's profiler (.json, .json.gz), the SQLite export of Nsight Systems, and text traces "
    "(docs/reference/trace.md)"
)


def is_text_trace(path: Path) -> bool:
    """Whether the file is a list of transfers, in the grammar of flows, and no recording."""
    try:
        with open(path, "rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return not start.startswith((_GZIP, b"SQLite")) and not start.lstrip().startswith((b"{", b"["))


def read_recorded(path: Path) -> Recorded:
    """The trace of a profiler. Raises UserError for a file of another format, and for one without any GPU event."""
    found = read_nsight(path) if is_nsight(path) else read_kineto(_json(path), str(path))
    if not found.copies and not found.kernels:
        raise UserError(f"{path}: the trace has no event of a GPU. Record CUDA activities too")
    return _possible(found)


def _json(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        content = json.loads(gzip.decompress(raw) if raw.startswith(_GZIP) else raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{path}: this is not valid JSON ({error}). {_FORMATS}") from None
    if not is_kineto(content):
        raise UserError(f"{path}: this JSON is not a trace: it has no list traceEvents. {_FORMATS}")
    return content


def _possible(found: Recorded) -> Recorded:
    """The same without events that end before they start, take minutes, or overlap another copy of their stream."""
    kept: list[Copy] = []
    ends: dict[str, float] = {}
    backwards = overlapping = 0
    for copy in sorted(found.copies, key=lambda one: (one.start_s, one.end_s)):
        if not 0 <= copy.seconds <= _LONGEST_S:
            backwards += 1
        elif copy.start_s < ends.get(copy.stream, copy.start_s) - 1e-6:
            overlapping += 1
        else:
            ends[copy.stream] = copy.end_s
            kept.append(copy)
    kernels = tuple(sorted(one for one in found.kernels if 0 <= one.end_s - one.start_s <= _LONGEST_S))
    backwards += len(found.kernels) - len(kernels)
    said = []
    if backwards:
        what = _count(backwards, "event", "events")
        said.append(f"{what} left out, since the clock jumped: end before start, or minutes later")
    if overlapping:
        what = _count(overlapping, "copy", "copies")
        said.append(f"{what} left out, since the clock jumped: another copy of the stream was running")
    steps = tuple(sorted((one for one in found.steps if _is_step(one)), key=lambda one: one.start_s))
    if len(steps) < len(found.steps):
        what = _count(len(found.steps) - len(steps), "step", "steps")
        said.append(f"{what} left out, since the clock jumped: end before start, or minutes later")
    if pause := _longest_pause([*kept, *kernels]):
        said.append(f"no GPU worked for {pause:.0f} s: the clock jumped, or the recording paused")
    return replace(found, copies=tuple(kept), kernels=kernels, steps=steps, left_out=tuple(said))


def _is_step(step: Step) -> bool:
    return 0 < step.end_s - step.start_s <= _LONGEST_S


def _longest_pause(events: Sequence[Copy | Kernel]) -> float:
    """The longest time without any event; 0 if it is shorter than minutes."""
    ends, longest = float("inf"), 0.0
    for event in sorted(events, key=lambda one: one.start_s):
        longest = max(longest, event.start_s - ends)
        ends = event.end_s if ends == float("inf") else max(ends, event.end_s)
    return longest if longest > _LONGEST_S else 0.0


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
