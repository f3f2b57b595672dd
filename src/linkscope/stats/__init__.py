"""Pure functions on samples: no clock, no files, no state. Each names the paper that it follows."""

from linkscope.stats.intervals import EARLY_ROUNDS, Interval, early_interval, median, median_interval, more_rounds
from linkscope.stats.order import trend_chance
from linkscope.stats.ratios import geometric_mean, log_variance, ratio_interval
from linkscope.stats.shape import bimodal, mad, median_error, steady, trend
from linkscope.stats.slopes import Slope, slope
from linkscope.stats.variance import Split, deviation, variance_split

__all__ = [
    "EARLY_ROUNDS", "Interval", "Slope", "Split", "bimodal", "deviation", "early_interval", "geometric_mean",
    "log_variance", "mad", "median", "median_error", "median_interval", "more_rounds", "ratio_interval",
    "slope", "steady", "trend", "trend_chance", "variance_split",
]  # fmt: skip
