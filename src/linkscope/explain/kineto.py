"""Reads the JSON traces of PyTorch's profiler (Kineto; `prof.export_chrome_trace`)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from linkscope.errors import UserError
from linkscope.explain.events import HOST, Copy, Kernel, Recorded, Step

_COPY = re.compile(r"Memcpy (HtoD|DtoH|DtoD|PtoP|HtoH) \((\w+) -> (\w+)\)")
_MEMORIES = {"Pageable": "pageable", "Pinned": "pinned", "Device": "device", "Managed": "managed"}
_STEP = re.compile(r"ProfilerStep#\d+")
_US = 1e-6  # `ts` and `dur` are microseconds


def is_kineto(content: Any) -> bool:
    """Whether the JSON is a trace of events."""
    return isinstance(content, dict) and isinstance(content.get("traceEvents"), list)


def read_kineto(content: Mapping[str, Any], path: str) -> Recorded:
    """The copies, kernels and steps. Raises UserError if an event that matters is damaged."""
    copies: list[Copy] = []
    kernels: list[Kernel] = []
    steps: dict[str, Step] = {}
    for number, event in enumerate(content["traceEvents"]):
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        category, name = event.get("cat", ""), str(event.get("name", ""))
        if category not in ("gpu_memcpy", "kernel", "gpu_memset", "user_annotation"):
            continue
        try:
            start = float(event["ts"]) * _US
            end = start + float(event["dur"]) * _US
            if category == "gpu_memcpy":
                copies += _copy(name, event["args"], start, end)
            elif category == "user_annotation":
                if _STEP.fullmatch(name):
                    steps[name] = Step(name.replace("ProfilerStep#", "step "), start, end)
            else:
                kernels.append(Kernel(f"gpu:{int(event['args']['device'])}", start, end))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: event {number} ({name}) is damaged: {type(error).__name__} {error}") from None
    gpus = {f"gpu:{one['id']}": str(one["name"]) for one in _properties(content) if {"id", "name"} <= one.keys()}
    return Recorded(tuple(copies), tuple(kernels), tuple(steps.values()), gpus)


def _properties(content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    listed = content.get("deviceProperties", [])
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _copy(name: str, args: Mapping[str, Any], start: float, end: float) -> list[Copy]:
    found = _COPY.match(name)
    if found is None or found[1] == "HtoH":
        return []
    at = f"gpu:{int(args['device'])}"
    src, dst = {
        "HtoD": (HOST, at), "DtoH": (at, HOST), "DtoD": (at, at),
        "PtoP": (_peer(args, "fromDevice", at), _peer(args, "toDevice", at)),
    }[found[1]]  # fmt: skip
    ends = [_MEMORIES.get(word, word.lower()) for word in (found[2], found[3])]
    return [Copy(src, dst, ends[0], ends[1], int(args["bytes"]), start, end, f"{at} stream {args.get('stream', '?')}")]


def _peer(args: Mapping[str, Any], name: str, otherwise: str) -> str:
    return f"gpu:{int(args[name])}" if name in args else otherwise
