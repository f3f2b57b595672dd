"""Measures every data-movement path inside a GPU node, and compares it with its hardware peak."""

from typing import Any

__version__ = "0.1.0"

# Functions for applications, imported at first use: the commands must start without them.
_LAZY = ("copy", "prepare", "start_copy", "to_cpu")


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'linkscope' has no attribute '{name}'")
    from linkscope import transfer

    return getattr(transfer, name)


def __dir__() -> list[str]:
    return [*globals(), *_LAZY]
