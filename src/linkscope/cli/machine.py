"""Show what this machine, a model or a saved probe is made of (also: linkscope topo).

linkscope machine                       CPUs, NUMA nodes, GPUs, links, limits of every path
linkscope machine --save node7.json     keep what the probes read, for later and for other computers
linkscope machine --machine node7.json  show a saved one; a name or a .toml file shows a model
"""

import argparse
import json
from pathlib import Path

from linkscope.cli.target import check_writable
from linkscope.errors import FINE, UserError

SUMMARY = "show what the machine is made of, and the limits of its paths"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `machine`."""
    parser.add_argument("--machine", metavar="auto|NAME|FILE", default="auto", help="this one, a model, a saved probe")
    parser.add_argument("--save", metavar="FILE", help="write what the probes read to this file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope machine`."""
    from linkscope.run.worker import driver_facts

    if arguments.save is not None:
        if arguments.machine != "auto":
            raise UserError(f"--save keeps a probe of this machine: leave out --machine {arguments.machine}")
        from linkscope.machine.saved import read_machine, save

        check_writable(Path(arguments.save), [], option="--save")
        save(arguments.save, read_machine(driver_facts()))
        print(f"saved: {arguments.save}")
        return FINE
    from linkscope.machine.choose import Modelled, resolve
    from linkscope.machine.draw import draw

    choice = resolve(arguments.machine, driver_facts() if arguments.machine == "auto" else None)
    machine = choice.model if isinstance(choice, Modelled) else choice.machine
    print(json.dumps(machine.to_json(), indent=1) if arguments.json else draw(machine))
    return FINE
