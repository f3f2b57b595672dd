"""linkscope measures every way data can move inside a GPU node, and says how close each comes to the hardware."""

__version__ = "0.1.0"
