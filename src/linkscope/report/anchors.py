"""Addresses within the page: the row of a path, and the explorer with chosen curves."""

import re
from collections.abc import Iterable
from urllib.parse import quote

from linkscope.model.curves import Method
from linkscope.report.data_csv import params_key


def path_anchor(kind: str, src: str, dst: str) -> str:
    """'d2d-gpu0-gpu1': the anchor of the row of an operation on a path."""
    return "-".join(re.sub(r"[^a-z0-9]+", "", part.lower()) for part in (kind, src, dst))


def path_key(kind: str, src: str, dst: str) -> str:
    """'d2d|gpu:0|gpu:1': a path as the explorer names it."""
    return "|".join((kind, src, dst))


def method_key(method: Method) -> str:
    """'ce|device|device|peer=on': a method as the explorer names it."""
    family = method.family
    return "|".join((family.engine, family.src_memory, family.dst_memory, params_key(method.params)))


def explorer_link(kind: str, src: str, dst: str, method: Method) -> str:
    """The address of the explorer with the curve of one method on one path."""
    return f"#explore?{explorer_query([(kind, src, dst, method)])}"


def explorer_query(curves: Iterable[tuple[str, str, str, Method]]) -> str:
    """The state of the explorer with the curves of these paths (operation, source, destination) and methods."""
    listed = list(curves)
    paths = dict.fromkeys(("path", path_key(*path)) for *path, _ in listed)
    methods = dict.fromkeys(("method", method_key(method)) for *_, method in listed)
    found = {"bi" if dict(method.params).get("bidirectional") == "true" else "uni" for *_, method in listed}
    direction = ("direction", found.pop() if len(found) == 1 else "all")
    return "&".join(f"{name}={quote(value, safe='|=;:/')}" for name, value in (*paths, *methods, direction))
