"""Say what about this machine will spoil a measurement or a workload, and what to do about it.

Exit code 1 where something is bad, 0 where there are only warnings.
"""

import argparse
import json

SUMMARY = "say what about this machine will spoil a measurement"


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
