"""Length of the tests: `make test` runs samples of the long campaigns, `make test-long` runs them in full."""

import os
from typing import TypeVar

import pytest

LONG = os.environ.get("LINKSCOPE_TESTS") == "long"
T = TypeVar("T")

only_long = pytest.mark.skipif(not LONG, reason="runs in `make test-long`")


def sample(short: T, full: T) -> T:
    """`short` in `make test`, `full` in `make test-long`."""
    return full if LONG else short
