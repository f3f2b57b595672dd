"""Name the settings of this machine that spoil measurements or workloads, each with its cure.

Exit code 1: a setting is bad. Exit code 0: at most warnings.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any

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
    from linkscope.run.mps import why_no_mps
    from linkscope.run.worker import driver_facts

    driver = driver_facts()
    found = findings(probe(driver), environment())
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(found), indent=1))
    else:
        for finding in found:
            print(finding)
        if driver.get("gpus"):
            print(f"Clients that share a GPU: {why_no_mps() or 'MPS can be started'}; {_green_contexts(driver)}.")
    return exit_code(found)


def _green_contexts(driver: Mapping[str, Any]) -> str:
    lacking = [name for name in driver.get("missing", ()) if "Green" in name or "DevResource" in name]
    return f"green contexts: the driver lacks {lacking[0]}" if lacking else "the driver has green contexts"
