"""Show what this machine, a model or a saved probe is made of (also: linkscope topo).

linkscope machine                       CPUs, NUMA nodes, GPUs, links, limits of every path
linkscope machine --save node7.json     keep what the probes read, for later and for other computers
linkscope machine --machine node7.json  show a saved one; a name or a .toml file shows a model
"""

import argparse
import json
from pathlib import Path

from linkscope.errors import FINE, UserError

SUMMARY = "show what the machine is made of, and the limits of its paths"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `machine`."""
    parser.add_argument("--machine", metavar="auto|NAME|FILE", default="auto", help="this one, a model, a saved probe")
    parser.add_argument("--save", metavar="FILE", help="write what the probes read to this file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope machine`."""
    from linkscope.run.target import machine_of

    machine = machine_of(arguments.machine)
    if arguments.save:
        _save(Path(arguments.save), machine.to_json())
    elif arguments.json:
        print(json.dumps(machine.to_json(), indent=1))
    else:
        from linkscope.machine.describe import describe

        print(describe(machine))
    return FINE


def _save(path: Path, content: object) -> None:
    try:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"--save {path}: cannot be written: {error.strerror}; choose another place") from None
    print(f"saved: {path}")
