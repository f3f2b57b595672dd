"""A run on the fake worker in its own process, to interrupt and kill. Arguments: OUT BEHAVIOUR(JSON) SUITE."""

import json
import sys
from pathlib import Path

from fakes import FAKE_WORKER, plan, target
from linkscope.run import go_on, measure
from linkscope.runfile import read_run


def main() -> int:
    path, behaviour, suite = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
    where = target(**behaviour)
    if path.exists():
        return go_on(where, read_run(path), command=FAKE_WORKER).exit_code
    return measure(where, plan(suite=suite), path, command=FAKE_WORKER).exit_code


if __name__ == "__main__":
    sys.exit(main())
