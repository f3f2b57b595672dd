"""The answer on one transfer as JSON (docs/reference/advise.md)."""

from typing import TYPE_CHECKING, Any

from linkscope.cli.runs import identity

if TYPE_CHECKING:
    from linkscope.advise.answer import Answer
    from linkscope.advise.methods import TransferMethod
    from linkscope.advise.ranking import Ranked
    from linkscope.model.break_even import BreakEven, Uses
    from linkscope.model.curves import Estimate


def as_json(found: "Answer", written: str | None) -> dict[str, Any]:
    """The whole answer."""
    from linkscope.advise.calls import call_text

    asked, model = found.asked, found.model
    if found.run is not None:
        source = identity(found.run, written)
    else:
        source = {"run": None, "machine": model.machine.name if model else None, "modelled": True}
    first = found.methods[0].candidate
    return {
        **source, "model": model.machine.name if model else None,
        "src": asked.src, "dst": asked.dst, "bytes": asked.bytes, "memory": asked.stated_memory or None,
        "reuse": asked.reuse, "piece": asked.piece, "with": [str(other) for other in asked.others],
        "fastest_call": call_text(first.reading.curve.method, asked.src, asked.dst),
        "ways": [_method(one, found) for one in found.methods],
        "not_listed": [{"ways": count, "reason": reason} for count, reason in found.unlisted], "notes": found.notes,
    }  # fmt: skip


def _method(one: "Ranked", found: "Answer") -> dict[str, Any]:
    from linkscope.advise.recipes import recipe

    method, time = one.candidate.method, one.candidate.time
    family, measured, asked = method.family, one.candidate.measured, found.asked
    how = recipe(method, asked, several_nodes=found.several_nodes)
    paid = one.once.time
    return {
        "rank": one.rank, "present": one.is_present, "in_place": one.candidate.in_place,
        "benchmark": family.benchmark, "engine": family.engine, "src_memory": family.src_memory,
        "dst_memory": family.dst_memory, "params": dict(one.candidate.reading.curve.method.params),
        "seconds": time.value, "ci95_s": _ends(time) if measured else None, "gbps": asked.bytes / time.value / 1e9,
        "points": [point.id for point in measured.points] if measured else [],
        "measured": _reading(measured), "predicted": _reading(one.candidate.predicted),
        "gain": None if one.gain is None else {"ratio": one.gain.value, "interval": _ends(one.gain)},
        "once_s": paid.value if paid else None,
        "once": [{"what": part.what, "seconds": part.amount.time.value, "basis": part.amount.basis}
                 for part in one.once.parts],
        "once_missing": one.once.missing or None,
        "total_s": one.total.value if one.total else None, "total_interval_s": _ends(one.total) if one.total else None,
        "per_copy_s": one.total.value / asked.reuse if one.total and asked.reuse else None,
        "pays_off": _break_even(one.pays),
        "needs": [*(what for what, _ in how.memory), *how.needs], "language": how.language, "code": how.code,
    }  # fmt: skip


def _reading(one: "TransferMethod | None") -> dict[str, Any] | None:
    return None if one is None else {"seconds": one.time.value, "interval_s": _ends(one.time)}


def _ends(time: "Estimate") -> list[float] | None:
    return None if time.low is None or time.high is None else [time.low, time.high]


def _break_even(one: "BreakEven | None") -> dict[str, Any] | None:
    if one is None:
        return None
    return {"from": one.uses.first, "to": one.uses.last, "at_best": _uses(one.at_best), "at_worst": _uses(one.at_worst)}


def _uses(uses: "Uses | None") -> dict[str, Any] | None:
    return None if uses is None else {"from": uses.first, "to": uses.last}
