"""Length of the long campaigns: `make test` runs samples, `LINKSCOPE_TESTS=long make test` runs them in full."""

import os
from typing import TypeVar

import pytest

LONG = os.environ.get("LINKSCOPE_TESTS") == "long"
T = TypeVar("T")

only_long = pytest.mark.skipif(not LONG, reason="runs in `LINKSCOPE_TESTS=long make test`")


def sample(short: T, full: T) -> T:
    """`short` in `make test`, `full` in `LINKSCOPE_TESTS=long make test`."""
    return full if LONG else short
