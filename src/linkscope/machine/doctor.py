"""Names what spoils measurements or workloads on this machine, why it matters, and the cure.

linkscope changes nothing itself: the administrator chooses the cure.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from linkscope.errors import FINE, SOMETHING_FAILED
from linkscope.machine import doctor_gpu, doctor_host, doctor_install
from linkscope.machine.facts import Machine
from linkscope.machine.finding import WORST_FIRST, Finding, Found, Severity

__all__ = ["Finding", "Severity", "exit_code", "findings", "worst"]

_CHECKS: tuple[Callable[[Machine, Mapping[str, Any]], Found], ...] = (
    *doctor_gpu.CHECKS,
    *doctor_host.CHECKS,
    *doctor_install.CHECKS,
)


def findings(machine: Machine, environment: Mapping[str, Any]) -> list[Finding]:
    """All findings, the worst first. `environment` comes from linkscope.machine.environment."""
    found = [finding for check in _CHECKS for finding in check(machine, environment)]
    return sorted(found, key=lambda finding: WORST_FIRST.index(finding.severity))


def worst(found: Sequence[Finding]) -> Severity | None:
    """The worst severity; None without findings."""
    return min((finding.severity for finding in found), key=WORST_FIRST.index, default=None)


def exit_code(found: Sequence[Finding]) -> int:
    """1 if something is bad; warnings do not fail a script."""
    return SOMETHING_FAILED if worst(found) == "bad" else FINE
