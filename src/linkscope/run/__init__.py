"""Executes a plan and returns points: workers, rounds, resume, watchdog."""

from linkscope.run.interrupt import StopFlag
from linkscope.run.session import Controls, check_points, go_on, measure, plan_of
from linkscope.run.supervisor import Outcome
from linkscope.run.table import benchmark_table
from linkscope.run.target import Target
from linkscope.run.worker import worker_command

__all__ = [
    "Controls", "Outcome", "StopFlag", "Target", "benchmark_table", "check_points", "go_on", "measure", "plan_of",
    "worker_command",
]  # fmt: skip
