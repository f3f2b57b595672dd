"""Finds the fastest method and settings of transfers on this machine (Jordà et al., section VI)."""

from linkscope.tune.bench import Bench, BlockMove, Failure, LibraryBench, Ring
from linkscope.tune.jobs import PATHS, RELAYED, Job, make_jobs
from linkscope.tune.tuner import Candidate, Row, tune

__all__ = [
    "PATHS",
    "RELAYED",
    "Bench",
    "BlockMove",
    "Candidate",
    "Failure",
    "Job",
    "LibraryBench",
    "Ring",
    "Row",
    "make_jobs",
    "tune",
]
