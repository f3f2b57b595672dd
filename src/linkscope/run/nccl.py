"""Where NCCL may be: the libraries that the worker tries, in order, and how each was found."""

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

CHOICE = "LINKSCOPE_NCCL"
_FILE = "libnccl.so.2"
_CUDA_13 = 13000  # the first driver on which libraries of CUDA 13 run


def libraries(driver_version: int = 0, environment: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """Returns the field `nccl` of an open request (docs/reference/worker.md): the library that the user names, or those
    of NVIDIA's and PyTorch's packages and of the system.

    `driver_version` as CUDA counts it, 13000 for 13.0; 0: unknown.
    """
    if chosen := environment.get(CHOICE):
        return [{"name": chosen, "found": f"{CHOICE} names it"}]
    return [{"name": name, "found": found} for name, found in _found(driver_version)]


def _found(driver_version: int) -> Iterator[tuple[str, str]]:
    packages = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
    for package in packages if driver_version >= _CUDA_13 else packages[1:]:
        with contextlib.suppress(metadata.PackageNotFoundError):
            files = metadata.files(package) or []
            yield from (
                (str(file.locate()), f"the Python package {package} has it") for file in files if file.name == _FILE
            )
    torch = importlib.util.find_spec("torch")
    for folder in (torch.submodule_search_locations or ()) if torch else ():
        if (path := Path(folder) / "lib" / _FILE).is_file():
            yield str(path), "the Python package torch has it"
    yield from ((name, "the loader knows its name") for name in (_FILE, "libnccl.so"))


def described(answer: Mapping[str, Any]) -> str:
    """Returns the worker's answer about NCCL in words."""
    if answer["why_not"]:
        return str(answer["why_not"])
    return f"NCCL {answer['version']}, {answer['path']}: {answer['found']}; {answer['nvls']}"
