"""`python -m linkscope.cli.local_run PIPE run …`: the run of a node that a rank starts (run/local_suite.py).

The run stops when the rank ends, which holds the other end of the pipe. The launcher may have bound the rank to a core;
the run uses all CPUs that the job has on this node.
"""

import contextlib
import os
import signal
import sys

from linkscope.cli.main import main
from linkscope.run.launcher import end_with

if __name__ == "__main__":
    end_with(int(sys.argv[1]), signal.SIGTERM)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    sys.exit(main(sys.argv[2:]))
