"""Adds a model's predictions to a run, where its report compares them with measured values."""

from dataclasses import replace
from typing import TYPE_CHECKING

from linkscope.errors import NOT_HERE, UserError

if TYPE_CHECKING:
    from linkscope.machine.model import Model
    from linkscope.runfile import Run

CURE = "give a model: a name of `linkscope list machines`, or a file that `linkscope model` fitted"


def with_predictions(run: "Run", against: str | None) -> "Run":
    """The run with the predictions of work beside other work: by the model that `against` names, otherwise by the
    model that the run was simulated with, or the bundled model of its GPUs.

    Raises UserError where a named model cannot be read or predicts nothing. A run without such points stays as it is.
    """
    from linkscope.runfile import PointId, Predicted

    points = [PointId.parse(point.id) for point in run.points if point.median_s and "beside" in point.params]
    if not points:
        if against:
            raise UserError(f"--against {against}: {run.path} has no work beside other work to compare", NOT_HERE)
        return run
    model = _named(against) if against else model_of(run)
    if model is None:
        return run
    from linkscope.run.lasting import lasting_seconds
    from linkscope.run.worker import WorkerGone

    try:
        found = lasting_seconds(model, points)
    except (UserError, WorkerGone):
        if against:
            raise
        return run  # a report needs no worker
    seconds = {id: of for id, of in found.items() if not isinstance(of, str)}
    if against and not seconds:
        raise UserError(f"--against {against}: it predicts none of the points: {next(iter(found.values()))}", NOT_HERE)
    return replace(run, predicted=Predicted(model.machine.name, seconds))


def _named(against: str) -> "Model":
    from linkscope.machine.choose import model_named

    return model_named("--against", against, CURE)


def model_of(run: "Run") -> "Model | None":
    """The model that the run was simulated with; of a measured run, the bundled model of its GPUs, if there is one."""
    import msgspec

    from linkscope.machine.choose import bundled_for
    from linkscope.machine.model import Model

    machine = run.header.machine
    if run.modelled:
        try:
            return msgspec.convert(machine.get("model"), Model)
        except msgspec.ValidationError:
            return None
    return bundled_for({f"gpu:{gpu.get('index')}": str(gpu.get("name") or "") for gpu in machine.get("gpus", [])})
