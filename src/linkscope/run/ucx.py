"""Where UCX may be: the libraries that the worker tries, in order, and how each was found."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from importlib import metadata

CHOICE = "LINKSCOPE_UCX"
_FILE = "libucp.so.0"
_PACKAGES = ("libucx-cu13", "libucx-cu12")


def libraries(environment: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """Returns the field `ucx` of an open request (docs/reference/worker.md): the library that the user names, or those
    of NVIDIA's packages and of the system."""
    if chosen := environment.get(CHOICE):
        return [{"name": chosen, "found": f"{CHOICE} names it"}]
    return [{"name": name, "found": found} for name, found in _found()]


def _found() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            files = metadata.files(package) or []
            yield from (
                (str(file.locate()), f"the Python package {package} has it") for file in files if file.name == _FILE
            )
    yield _FILE, "the loader knows its name"
