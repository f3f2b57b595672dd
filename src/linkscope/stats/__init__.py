"""Pure functions on samples, without clock, files and state. Each names the paper that it follows."""

from linkscope.stats.equivalence import Contrast, Similarity, clusters, contrast, holm
from linkscope.stats.fairness import jain_index
from linkscope.stats.intervals import EARLY_ROUNDS, Interval, median, median_interval, more_rounds
from linkscope.stats.jumps import breaks, doubts
from linkscope.stats.order import trend_chance
from linkscope.stats.pooling import Noise, families
from linkscope.stats.ratios import PRIOR_FREEDOM, geometric_mean, log_variance, ratio_interval, student_interval
from linkscope.stats.shape import bimodal, mad, median_error, steady, trend
from linkscope.stats.sharing import Shared, Slowdown, shared_by_pairs, sharing_sets, slowdowns, unexplained
from linkscope.stats.slopes import Slope, slope
from linkscope.stats.stopping import LOOKS, CiMethod, expected_rounds, half_width_after, next_look, rounds_interval
from linkscope.stats.variance import Split, deviation, variance_split

__all__ = [
    "EARLY_ROUNDS",
    "LOOKS",
    "PRIOR_FREEDOM",
    "CiMethod",
    "Contrast",
    "Interval",
    "Noise",
    "Shared",
    "Similarity",
    "Slope",
    "Slowdown",
    "Split",
    "bimodal",
    "breaks",
    "clusters",
    "contrast",
    "deviation",
    "doubts",
    "expected_rounds",
    "families",
    "geometric_mean",
    "half_width_after",
    "holm",
    "jain_index",
    "log_variance",
    "mad",
    "median",
    "median_error",
    "median_interval",
    "more_rounds",
    "next_look",
    "ratio_interval",
    "rounds_interval",
    "shared_by_pairs",
    "sharing_sets",
    "slope",
    "slowdowns",
    "steady",
    "student_interval",
    "trend",
    "trend_chance",
    "unexplained",
    "variance_split",
]  # fmt: skip
