"""Where UCX may be: the libraries that the worker tries, in order, and how each was found."""

import os
from collections.abc import Mapping

from linkscope.run.library_files import candidates

CHOICE = "LINKSCOPE_UCX"


def libraries(environment: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """Returns the field `ucx` of an open request (docs/reference/worker.md): the library that the user names, or those
    of NVIDIA's packages and of the system."""
    return candidates(("libucp.so.0",), CHOICE, ("libucx-cu13", "libucx-cu12"), environment)
