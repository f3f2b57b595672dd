"""The passes of a run through its machine: opens it, and measures one round of one point at a time."""

import time
from collections.abc import Iterator, Mapping, Sequence

from linkscope.plan import Plan, RuleName, in_order, most_memory, representatives
from linkscope.run.ahead import WORTH_IT, Ahead, Failure
from linkscope.run.batches import Task
from linkscope.run.calibrate import NEARLY_TOGETHER
from linkscope.run.comm_scope import CommScopeSampler
from linkscope.run.contexts import Contexts
from linkscope.run.nvbandwidth import NvbandwidthSampler
from linkscope.run.ranks import RankWorkers
from linkscope.run.sampler import Sampler
from linkscope.run.services import Services
from linkscope.run.states import State
from linkscope.run.target import Target
from linkscope.run.worker import RequestFailed, WorkerGone
from linkscope.run.workers import Workers, twice
from linkscope.runfile import Round

_SAMPLERS: dict[RuleName, type[Sampler]] = {
    "linkscope": Sampler,
    "nvbandwidth": NvbandwidthSampler,
    "comm-scope": CommScopeSampler,
}


class Passes:
    """The passes so far, and the one that runs. `states`: those of all points."""

    def __init__(self, target: Target, plan: Plan, states: Mapping[str, State], services: Services) -> None:
        self._target = target
        self._plan = plan
        self._states = states
        self._services = services
        self.contexts = Contexts()
        contexts = self.contexts if plan.alike_contexts else None
        self._workers: Workers = (
            RankWorkers(services.ranks, target.open_request)
            if services.ranks
            else Workers(services.command, target.open_request, services.stop_asked, contexts)
        )
        self._ahead: Ahead | None = None
        self._results: Iterator[Round | Failure] | None = None  # results of this pass, if several processes measure it
        # With classes, the first rounds of the other members use the batch of the representative.
        self._representative_of = representatives(plan) if plan.classes else {}
        self._count = 0
        self.lost_gpus: set[str] = set()  # GPUs that a worker may still use, since it could not be killed

    def begin(self, due: Mapping[str, int], *, opened: bool) -> list[str]:
        """Begins a pass. Returns the ids of the points in the order in which `measure` must be called for them.

        `due`: the round of each point. `opened`: whether any round fits into the budget, so that the machine is opened.
        """
        self._count += 1
        if opened and not self._target.modelled:
            self._open_machine([self._states[id] for id in due])
        if min(due.values()) >= self._plan.rounds and self._plan.budget_s is not None:
            order = list(due)  # additional rounds: the planner lists cheap points first
        else:
            # The other members measure their first round after the representative, whose batch they use.
            behind = {id for id, number in due.items() if number == 0 and id in self._representative_of}
            order = in_order(self._plan, due, self._count - 1, behind)
        self._results = self._by_processes([(self._states[id], due[id]) for id in order])
        return order

    def measure(self, state: State, number: int) -> Round:
        """Measures a round. Raises Unsupported, WrongData, RequestFailed, WorkerGone, CannotStart or Interrupted."""
        if self._results is None:
            return twice(lambda: self._measure_once(state, number))
        found = next(self._results)
        if isinstance(found, Exception):
            raise found
        assert (found.id, found.round) == (str(state.point_id), number), "results are out of order"
        return found

    def all_measured(self) -> None:
        """Ends the order of the pass. Rounds that are measured again follow."""
        self._results = None

    def stop(self) -> None:
        """Ends all processes."""
        self._workers.drop()
        if self._ahead:
            self._ahead.stop()

    def _open_machine(self, states: Sequence[State]) -> None:
        """Opens the machine in a fresh process. With classes, every other pass only has a fresh platform, because its
        medians differ as much (docs/method/planner.md)."""
        most = most_memory([state.point_id for state in states], self._target.facts)
        places = set().union(*(state.places for state in states))
        self._workers.wants(most, set(self._target.facts.places) if "gpu:all" in places else places)
        if self._plan.classes and self._count % 2 == 0:
            self._note_lost_unless(self._workers.renew())
        else:
            self._note_lost_unless(self._workers.replace())

    def _by_processes(self, rounds: Sequence[tuple[State, int]]) -> Iterator[Round | Failure] | None:
        """Returns results from several processes for a model with many points and no budget; otherwise None."""
        if not self._target.modelled or self._plan.budget_s is not None or len(rounds) < WORTH_IT:
            return None
        if self._ahead is None:
            sampler = _SAMPLERS[self._plan.rule]
            command = self._services.command
            self._ahead = Ahead(command, self._target.open_request, sampler, self._plan, self._target.facts)
        return self._ahead.results(
            [Task(state.point_id, number, state.first, state.spread) for state, number in rounds]
        )

    def _measure_once(self, state: State, number: int) -> Round:
        sampler = _SAMPLERS[self._plan.rule](self._workers.get(), self._plan, self._target.facts)
        since = time.monotonic()
        try:
            record = self._sample(sampler, state, number)
        except WorkerGone as gone:
            self._workers.gone(gone)
            if gone.abandoned:
                self.lost_gpus |= {place for place in state.places if "gpu:" in place}
            raise
        except RequestFailed as failure:
            if failure.kind == "lost":
                self._note_lost_unless(self._workers.drop())
            raise
        if not self._target.modelled:
            record.device_s = round(time.monotonic() - since, 6)
            record.guards.update(self._services.monitor.guards(sorted(state.places), since))
        return record

    def _sample(self, sampler: Sampler, state: State, number: int) -> Round:
        """Measures with the batch of the point's first round, or of the representative if the flows end together
        with it."""
        representative = (
            None if state.rounds else self._states.get(self._representative_of.get(str(state.point_id), ""))
        )
        if representative is None or representative.first is None:
            return sampler.measure(Task(state.point_id, number, state.first, state.spread))
        record = sampler.measure(Task(state.point_id, number, representative.first))
        if record.guards.get("joint_overlap", 1.0) >= NEARLY_TOGETHER:
            return record
        return sampler.measure(Task(state.point_id, number))

    def _note_lost_unless(self, ended: bool) -> None:
        """Notes all GPUs unless the worker ended: a worker that cannot be killed may still use any of them."""
        if not ended:
            self.lost_gpus |= {place for place in self._target.facts.places if "gpu:" in place}
