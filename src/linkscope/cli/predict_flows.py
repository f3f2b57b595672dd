"""`linkscope predict --flow`: the rates of concurrent flows and work on a model."""

import argparse
import json
from typing import TYPE_CHECKING

from linkscope.cli import options
from linkscope.errors import FINE, UserError
from linkscope.flow import parse_flows
from linkscope.units import format_seconds, with_signs

if TYPE_CHECKING:
    from linkscope.machine.model import Model

_OF_ONE_TRANSFER = ("src", "dst", "others", "bidirectional", "helpers")
_DEFAULTS = {"memory": "pinned", "engine": "ce", "peer": "on", "threads": "1"}


def flows(arguments: argparse.Namespace, model: "Model") -> int:
    """Prints the rate of each flow of --flow. The model runs them for 0.2 s of its time, without noise."""
    from linkscope.cli.flow import as_entry, rate_of
    from linkscope.run.flows import predicted_flows

    _refuse_others(arguments)
    size = options.size("--bytes", arguments.bytes)
    if size % 8:
        raise UserError(f"--bytes {arguments.bytes}: write a multiple of 8 B")
    found = predicted_flows(model, parse_flows(arguments.flow, "--flow"), size)
    if arguments.json:
        entries = [
            {key: value for key, value in as_entry(flow).items() if not key.startswith("interval_")} for flow in found
        ]
        print(json.dumps({"modelled": True, "machine": model.machine.name, "flows": entries, "deviation": None}))
        return FINE
    print(f"MODELLED: {model.machine.title}")
    for flow in found:
        rate, unit, _ = rate_of(flow)
        print(with_signs(f"{flow.asked.flow}  {rate:.4g} {unit}  ({format_seconds(flow.seconds)} each)"))
    if sum(flow.bytes > 0 for flow in found) > 1:
        print(f"total  {sum(flow.gbps or 0.0 for flow in found):.4g} GB/s")
    return FINE


def _refuse_others(arguments: argparse.Namespace) -> None:
    given = [name for name in _OF_ONE_TRANSFER if getattr(arguments, name)]
    given += [name for name, usual in _DEFAULTS.items() if getattr(arguments, name) != usual]
    if given:
        option = "with" if given[0] == "others" else given[0]
        raise UserError(f"--flow states each transfer in full: leave out --{option}")
