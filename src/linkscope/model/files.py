"""Copies between files and GPUs: the plain method, against which others are compared."""

from collections.abc import Mapping


def is_whole_file(benchmark: str, params: Mapping[str, str]) -> bool:
    """Whether a copy is one call for the file and one for the GPU, through pinned memory of its size."""
    whole = params.get("chunk") == "whole" and params.get("slots") == "1"
    return benchmark == "file_copies" and whole and params.get("depth", "1") == "1"


def is_cached(benchmark: str, params: Mapping[str, str]) -> bool:
    """Whether the page cache has the file, so that no disk takes part."""
    return benchmark == "file_mapped" or params.get("cache") == "hot"
