"""Anchors of the page: the address of the row of a path."""

import re


def path_anchor(kind: str, src: str, dst: str) -> str:
    """'d2d-gpu0-gpu1': the anchor of the row of an operation on a path."""
    return "-".join(re.sub(r"[^a-z0-9]+", "", part.lower()) for part in (kind, src, dst))
