"""Rates of concurrent flows on a model without noise."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from linkscope.flow import Flow
from linkscope.run.flows.cases import asked_flows
from linkscope.run.flows.rates import FlowRates, measure_flows
from linkscope.run.lasting import without_noise
from linkscope.run.table import benchmark_table

if TYPE_CHECKING:
    from linkscope.machine.model import Model

_SECONDS = 0.2  # of the model's time


def predicted_flows(model: "Model", flows: Sequence[Flow], size: int, seconds: float = _SECONDS) -> list[FlowRates]:
    """One round of the flows for `seconds` of the model's time. `size`: bytes of transfers that state none.

    Raises UserError for flows that the model cannot run, as `asked_flows` and `measure_flows` do.
    """
    target = without_noise(model)
    return measure_flows(target, asked_flows(flows, target, benchmark_table(), size), seconds, 1).flows
