"""Measures every data-movement path inside a GPU node, and compares it with its hardware peak."""

__version__ = "0.1.0"
