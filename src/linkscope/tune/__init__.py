"""Finds the fastest method and settings of transfers on this machine (Jordà et al., section VI)."""

from linkscope.tune.bench import Bench, BlockMove, Failure, LibraryBench, Ring
from linkscope.tune.jobs import NEEDS, PATHS, Classes, Job, make_jobs
from linkscope.tune.tuner import Candidate, Row, tune

__all__ = [
    "NEEDS",
    "PATHS",
    "Bench",
    "BlockMove",
    "Candidate",
    "Classes",
    "Failure",
    "Job",
    "LibraryBench",
    "Ring",
    "Row",
    "make_jobs",
    "tune",
]
