"""Where NIXL may be: the libraries that the worker tries, in order, and how each was found."""

import os
from collections.abc import Mapping

from linkscope.run.library_files import candidates

CHOICE = "LINKSCOPE_NIXL"
_FILE = "libnixl_capi.so"
_PACKAGES = ("nixl-cu13", "nixl-cu12")


def libraries(environment: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """Returns the field `nixl` of an open request (docs/reference/worker.md): the library that the user names, or those
    of NVIDIA's packages and of the system."""
    return candidates((_FILE,), CHOICE, _PACKAGES, environment)


def in_run_file(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns what the run file says about NIXL: the first library that is a file, or why there is none. Whether it can
    be used, the points say."""
    if file := next((one for one in libraries(environment) if os.path.isfile(one["name"])), None):
        return {"path": file["name"], "found": file["found"]}
    packages = " or ".join(_PACKAGES)
    return {"why_not": f"no Python package {packages} has {_FILE}, and {CHOICE} names no file"}
