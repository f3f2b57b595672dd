"""Say what about this machine will spoil a measurement or a workload, and what to do about it.

Exit code 1 where something was found.
"""

import argparse
import json
from dataclasses import asdict

from linkscope.errors import FINE, SOMETHING_FAILED

SUMMARY = "say what about this machine will spoil a measurement"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `doctor`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope doctor`."""
    from linkscope.machine.doctor import findings
    from linkscope.machine.probe import probe

    found = findings(probe())
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in found], indent=1))
    else:
        for finding in found:
            print(finding)
    return SOMETHING_FAILED if found else FINE
