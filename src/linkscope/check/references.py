"""What a check compares with: an earlier run, the prediction of a machine file, or physics and the bundled summary."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linkscope.check.bundled import summaries, summaries_of
from linkscope.check.gpus import gpus_of
from linkscope.machine import model as models
from linkscope.machine.model import Model
from linkscope.model.curves import path_of
from linkscope.model.known import JOINT, family_of
from linkscope.plan import make_plan
from linkscope.run import Controls, StopFlag, benchmark_table, measure
from linkscope.run.target import modelled
from linkscope.runfile import Point, PointId, Run, read_run

SUITE = "check"
SAVE = "`linkscope check --save-baseline good.jsonl`"  # makes a reference
BUNDLED = "bundled"
_ERRORS = 2.0  # margin over the p90 of a model's errors: one point in ten exceeds the p90 itself
_LEAST = 0.05  # margin of a model
_UNKNOWN = 0.25  # margin where a model states no error


@dataclass(frozen=True)
class Reference:
    """The reference of a check.

    `run` holds the points to compare with; None: physics and the bundled summary judge alone. `margins`: by id, the
    change that counts as none; other points have the margins of `linkscope compare`. `notes`: what limits the
    comparison. `unusable`: why the requested reference cannot be compared.
    """

    name: str
    run: Run | None = None
    margins: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unusable: str = ""


def physics(machine: Mapping[str, Any]) -> Reference:
    """Physics, and the bundled summary of the machine's GPUs where the wheel has one."""
    known, unknown = summaries_of(machine)
    notes: tuple[str, ...] = ()
    if unknown:
        names = ", ".join(summaries())
        notes = (
            f"the bundled summary has no {', '.join(unknown)} (it has {names}), so only physics judges this machine",
        )
    return Reference(" and ".join(["physics", *(of.text for of in known)]), notes=notes)


def earlier_run(run: Run, name: str, machine: Mapping[str, Any]) -> Reference:
    """An earlier run, if it is of the same GPU models as this machine."""
    models_of = [sorted({gpu.name for gpu in gpus_of(of)}) for of in (run.header.machine, machine)]
    if models_of[0] != models_of[1]:
        theirs, ours = (", ".join(names) or "no GPU" for names in models_of)
        why = f"{name} is of {theirs} and this node has {ours}, so times cannot be compared; {SAVE} on a node of this"
        why += " model makes a baseline"
        return Reference(name, unusable=why)
    drivers = [(of.get("driver") or {}).get("version") for of in (run.header.machine, machine)]
    notes: tuple[str, ...] = ()
    if drivers[0] != drivers[1] and all(drivers):
        notes = (
            f"the reference has driver {drivers[0]}, this node {drivers[1]}: a change may come from the driver; save "
            "a new baseline",
        )
    run, joint = _comparable(run, machine)
    return Reference(name, run, notes=(*notes, *joint))


def _comparable(run: Run, machine: Mapping[str, Any]) -> tuple[Run, tuple[str, ...]]:
    """The run without joint traffic if it has another number of GPUs: `gpu:all` then means other GPUs."""
    counts = [len(gpus_of(of)) for of in (run.header.machine, machine)]
    kept = [point for point in run.points if not path_of(point).joint]
    if counts[0] == counts[1] or len(kept) == len(run.points):
        return run, ()
    note = f"joint host traffic is not compared: it is of {counts[0]} GPUs in the reference, and of {counts[1]} here"
    return dataclasses.replace(run, points=kept), (note,)


def prediction(name: str, machine: Mapping[str, Any], folder: Path, stop: StopFlag) -> Reference:
    """The simulated run of a machine file, with margins from the errors that the file states."""
    model = models.load(name)
    target = modelled(model, 1)
    path = folder / "model.jsonl"
    measure(target, make_plan(target.facts, benchmark_table(), suite=SUITE, seed=1), path, controls=Controls(stop=stop))
    run, joint = _comparable(read_run(path), machine)
    margins = {point.id: _margin(model, point) for point in run.points}
    notes = (_errors_text(name, model, run.points), *_other_gpus(name, run, machine), *joint)
    return Reference(name, run, margins, notes)


def _margin(model: Model, point: Point) -> float:
    row = model.deviation.get(_row_of(point))
    return max(_LEAST, _ERRORS * row.ninety) if row else _UNKNOWN


def _row_of(point: Point) -> str:
    """The name of the row of [deviation] for a point of the check."""
    return JOINT if path_of(point).joint else family_of(PointId.parse(point.id))


def _errors_text(name: str, model: Model, points: list[Point]) -> str:
    """The margins and their source, and what can be judged where the model states no error."""
    missing = sorted({_row_of(point) for point in points} - model.deviation.keys())
    wide = f"only times more than {100 * _UNKNOWN:.0f} % longer are found, such as those of a link at half its width"
    stated = sorted({_margin(model, point) for point in points if _row_of(point) in model.deviation})
    if not stated:
        return f"MODELLED reference: {name} states no error, so {wide}"
    text = f"MODELLED reference: margins of {100 * stated[0]:.0f} to {100 * stated[-1]:.0f} %, by operation twice the "
    text += f"p90 error that {name} states"
    return text + (f"; for {', '.join(missing)} {wide}, because it states no error" if missing else "")


def _other_gpus(name: str, run: Run, machine: Mapping[str, Any]) -> tuple[str, ...]:
    theirs, ours = ({gpu.name for gpu in gpus_of(of)} for of in (run.header.machine, machine))
    if theirs == ours:
        return ()
    names = [", ".join(sorted(of)) for of in (theirs, ours)]
    return (f"{name} describes {names[0]}, and this node has {names[1]}: differences may come from that",)
