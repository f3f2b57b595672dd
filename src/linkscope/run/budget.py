"""Tracks the remaining time: wall time on a machine, virtual time on a model, so that runs are reproducible."""

import math
import time

from linkscope.plan import rounded_up
from linkscope.units import format_seconds


class Budget:
    """The time budget of a run. `total_s` None: no limit. `spent_s`: time used by earlier sessions of a resumed run."""

    def __init__(self, total_s: float | None, *, modelled: bool, spent_s: float = 0.0) -> None:
        self.total_s = total_s
        self._modelled = modelled
        self._spent_s = spent_s
        self._started = time.monotonic()

    def add(self, device_s: float) -> None:
        """Adds virtual time; wall time passes by itself."""
        if self._modelled:
            self._spent_s += device_s

    def spent(self) -> float:
        """Seconds used so far."""
        return self._spent_s + (0.0 if self._modelled else time.monotonic() - self._started)

    def allows(self, cost_s: float, keep_s: float = 0.0) -> bool:
        """Returns whether an operation of that cost fits into the budget while `keep_s` seconds stay reserved."""
        return self.total_s is None or self.spent() + cost_s + keep_s <= self.total_s

    def left(self) -> float:
        """Returns the seconds left; infinite without a limit."""
        return math.inf if self.total_s is None else self.total_s - self.spent()

    def reason(self) -> str:
        """Returns the reason for points that the budget left out, as text."""
        return f"the budget of {format_seconds(self.total_s or 0.0)} left no time"

    def reason_and_cure(self, enough_s: float) -> str:
        """Returns the reason with the budget that is enough for all points, as an option of `linkscope run`."""
        return (
            f"{self.reason()}; `--budget {rounded_up(max(enough_s, self.total_s or 0.0)):g}s` is enough for all points"
        )
