"""Show the CPUs, NUMA nodes, GPUs and links of a machine, and the peak of every path (also: linkscope topo).

linkscope machine                       this machine
linkscope machine --save node7.json     save what was detected, to show it later or elsewhere
linkscope machine --machine node7.json  a saved machine; a name or a .toml file shows a model
"""

import argparse
import json
from pathlib import Path

from linkscope.cli.target import add_force, check_writable, name_output, write
from linkscope.errors import FINE, UserError

TOO_MANY = "name a model or a saved machine with --machine, as in `linkscope machine --machine h200x4`"
SUMMARY = "show the parts of a machine and the peaks of its paths"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `machine`."""
    parser.add_argument(
        "--machine",
        metavar="auto|NAME|FILE",
        default="auto",
        help="show this machine (auto, the default), a model or a saved machine",
    )
    parser.add_argument("--save", metavar="FILE", help="write what was detected to this file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """`linkscope machine`."""
    from linkscope.run.worker import driver_facts

    if arguments.save is not None:
        if arguments.machine != "auto":
            raise UserError(f"--save saves this machine: leave out --machine {arguments.machine}")
        if arguments.json:
            raise UserError("--save writes JSON: leave out --json")
        from linkscope.machine.saved import read_machine, saved_text

        target = Path(arguments.save)
        check_writable(target, [], "--save", force=arguments.force)
        write(target, saved_text(read_machine(driver_facts())), "--save")
        name_output("saved", target)
        return FINE
    from linkscope.machine.choose import Modelled, resolve
    from linkscope.machine.draw import draw

    choice = resolve(arguments.machine, driver_facts() if arguments.machine == "auto" else None)
    machine = choice.model if isinstance(choice, Modelled) else choice.machine
    print(json.dumps(machine.to_json(), indent=1) if arguments.json else draw(machine))
    return FINE
