"""Runs one session: starts a new run file, or continues an earlier one."""

import contextlib
import dataclasses
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import linkscope
from linkscope.errors import UserError
from linkscope.plan import MachineFacts, Plan, case_of
from linkscope.run.interrupt import StopFlag
from linkscope.run.monitor import NoTally, Tally, monitor_for
from linkscope.run.progress import Progress, Silent
from linkscope.run.provenance import commit
from linkscope.run.ranks import RankWorker
from linkscope.run.services import Services
from linkscope.run.supervisor import Outcome, Supervisor
from linkscope.run.table import temporary_worker
from linkscope.run.target import Target
from linkscope.run.tcp import RankTally
from linkscope.run.worker import RequestFailed, worker_command
from linkscope.runfile import Header, PointId, Resume, Run, RunWriter
from linkscope.runfile.methods import current


@dataclasses.dataclass(frozen=True)
class Controls:
    """How the user follows and stops a run. `stop`: the caller's flag, already entered; None: a new one. `ranks`: as in
    Services."""

    progress: Progress = dataclasses.field(default_factory=Silent)
    stop: StopFlag | None = None
    ranks: RankWorker | None = None


def check_points(plan: Plan, facts: MachineFacts, command: Sequence[str] | None = None) -> None:
    """Raises UserError for a point that was named by its whole id and that no machine can measure.

    Suites contain only possible points. An id from the command line may combine sizes and parameters that do not fit
    together.
    """
    named = [id for id in plan.points if id in plan.only]
    if not named:
        return
    with temporary_worker(command) as worker:
        for id in named:
            try:
                worker.check(case_of(PointId.parse(id), facts))
            except RequestFailed as problem:
                if problem.kind != "usage":
                    raise
                raise UserError(f"--only {id}: {problem}") from None


def measure(
    target: Target,
    plan: Plan,
    path: Path,
    *,
    force: bool = False,
    command: Sequence[str] | None = None,
    controls: Controls = Controls(),
) -> Outcome:
    """Carries out a plan into a new run file. `command` starts a worker."""
    header = Header(
        modelled=target.modelled,
        machine=target.machine,
        environment=target.environment,
        plan=msgspec.to_builtins(plan),
        tool=_tool(target, plan, command),
        started=_now(),
    )
    with RunWriter.create(path, header, force=force) as writer:
        return _supervised(target, plan, writer, command, controls)


def go_on(
    target: Target,
    run: Run,
    *,
    budget_s: float | None = None,
    command: Sequence[str] | None = None,
    controls: Controls = Controls(),
) -> Outcome:
    """Continues a run that stopped early, with its own plan. `budget_s` replaces the plan's budget.

    The outcome covers the whole run, including the time of earlier sessions.
    """
    plan = plan_of(run)
    if budget_s is not None:
        plan = msgspec.structs.replace(plan, budget_s=budget_s)
    resume = Resume(started=_now(), tool=_tool(target, plan, command), points_done=len(run.points))
    with RunWriter.go_on(run, resume) as writer:
        outcome = _supervised(target, plan, writer, command, controls, run)
    return dataclasses.replace(outcome, wall_s=round(run.wall_s + outcome.wall_s, 3))


def plan_of(run: Run) -> Plan:
    """Returns the plan in a run file."""
    try:
        plan = msgspec.convert(run.header.plan, Plan)
        for id in plan.points:
            PointId.parse(id)
        return plan
    except (msgspec.ValidationError, ValueError) as error:
        raise UserError(f"{run.path}: the plan in its first line is damaged ({error}): start a new run") from None


def _supervised(
    target: Target,
    plan: Plan,
    writer: RunWriter,
    command: Sequence[str] | None,
    controls: Controls,
    earlier: Run | None = None,
) -> Outcome:
    gpus = target.pci_of_gpus
    with contextlib.nullcontext(controls.stop) if controls.stop else StopFlag() as stop_asked:
        counts = NoTally() if target.modelled else RankTally(gpus, controls.ranks) if controls.ranks else Tally(gpus)
        services = Services(
            command=command or worker_command(), progress=controls.progress, monitor=monitor_for(gpus),
            tally=counts, stop_asked=stop_asked, ranks=controls.ranks,
        )  # fmt: skip
        return Supervisor(target, plan, writer, services, earlier).carry_out()


def _tool(target: Target, plan: Plan, command: Sequence[str] | None) -> dict[str, Any]:
    """Returns version, method versions and, on hardware, the commit and the build of the worker."""
    methods = current(PointId.parse(id).benchmark for id in plan.points)
    tool: dict[str, Any] = {"name": "linkscope", "version": linkscope.__version__, "methods": methods}
    if not target.modelled:
        tool["commit"] = commit()
        with temporary_worker(command) as worker:
            tool["worker"] = worker.hello()
            if any(PointId.parse(id).engine == "nccl" for id in plan.points):
                tool["nccl"] = worker.nccl(target.open_request.get("nccl", []))
    return tool


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
