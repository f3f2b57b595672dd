"""Measures every data-movement path inside a GPU node, and compares it with its hardware peak."""

import importlib
from typing import Any

__version__ = "0.1.0"

# Functions for applications, imported at first use: the commands must start without them.
_LAZY = {
    "copy": "transfer",
    "copy_blocks": "transfer",
    "load_safetensors": "safetensors",
    "prepare": "transfer",
    "read_file": "transfer",
    "register": "transfer",
    "save_file": "transfer",
    "save_safetensors": "safetensors",
    "start_copy": "transfer",
    "to_cpu": "transfer",
    "use_helpers": "transfer",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'linkscope' has no attribute '{name}'")
    return getattr(importlib.import_module(f"linkscope.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]
