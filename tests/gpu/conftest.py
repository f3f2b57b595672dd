"""Lets the tests on GPUs import the helpers of the tests without a GPU."""

import sys
from pathlib import Path

for folder in (Path(__file__).parent, Path(__file__).parents[1] / "python"):
    sys.path.insert(0, str(folder))
