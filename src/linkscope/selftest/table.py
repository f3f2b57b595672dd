"""All rows, in display order."""

from linkscope.selftest import costs, faults, flows, here, intervals, states, timing
from linkscope.selftest.rows import Row

PLANTED: tuple[Row, ...] = (*costs.ROWS, *flows.ROWS, *intervals.ROWS, *states.ROWS, *faults.ROWS)
HERE: tuple[Row, ...] = (*here.ROWS, *timing.ROWS)
