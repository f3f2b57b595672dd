"""Name the settings of this machine that spoil measurements or workloads, each with its cure.

Exit code 1: a setting is bad. Exit code 0: at most warnings.
"""

import argparse
import json

SUMMARY = "name the settings of this machine that spoil measurements"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `doctor`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope doctor`."""
    import msgspec

    from linkscope.machine.doctor import exit_code, findings
    from linkscope.machine.environment import environment
    from linkscope.machine.probe import probe
    from linkscope.run.worker import driver_facts

    found = findings(probe(driver_facts()), environment())
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(found), indent=1))
    else:
        for finding in found:
            print(finding)
    return exit_code(found)
