"""Where NCCL may be: the libraries that the worker tries, in order, and how each was found."""

import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from linkscope.run.library_files import candidates

CHOICE = "LINKSCOPE_NCCL"
_FILE = "libnccl.so.2"
_CUDA_13 = 13000  # the first driver on which libraries of CUDA 13 run


def libraries(driver_version: int = 0, environment: Mapping[str, str] = os.environ) -> list[dict[str, str]]:
    """Returns the field `nccl` of an open request (docs/reference/worker.md): the library that the user names, or those
    of NVIDIA's and PyTorch's packages and of the system.

    `driver_version` as CUDA counts it, 13000 for 13.0; 0: unknown.
    """
    packages = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
    usable = packages if driver_version >= _CUDA_13 else packages[1:]
    return candidates((_FILE, "libnccl.so"), CHOICE, usable, environment, _of_torch())


def _of_torch() -> Iterator[tuple[str, str]]:
    torch = importlib.util.find_spec("torch")
    for folder in (torch.submodule_search_locations or ()) if torch else ():
        if (path := Path(folder) / "lib" / _FILE).is_file():
            yield str(path), "the Python package torch has it"


def described(answer: Mapping[str, Any]) -> str:
    """Returns the worker's answer about NCCL in words."""
    if answer["why_not"]:
        return str(answer["why_not"])
    return f"NCCL {answer['version']}, {answer['path']}: {answer['found']}; {answer['nvls']}"
