"""Concurrent flows: their operations, their presets, and their rates over a common time."""

from linkscope.run.flows.cases import Asked, asked_flows
from linkscope.run.flows.predicted import predicted_flows
from linkscope.run.flows.presets import PRESETS, preset_text
from linkscope.run.flows.rates import FlowRates, Measured, measure_flows

__all__ = [
    "PRESETS",
    "Asked",
    "FlowRates",
    "Measured",
    "asked_flows",
    "measure_flows",
    "predicted_flows",
    "preset_text",
]
