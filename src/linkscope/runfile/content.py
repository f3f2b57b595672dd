"""Recognises a run file by its content."""

import re
import zlib
from pathlib import Path

_START = 1 << 16  # bytes: the first line of a run begins within them
_RUN = re.compile(rb'\s*\{[^\n]*?"record"\s*:\s*"run"')
GZIP_MAGIC = b"\x1f\x8b"


def holds_run(path: Path) -> bool:
    """Whether the file begins as a run file does, plain or compressed, complete or not, whatever its name is."""
    try:
        if not path.is_file():  # a pipe would wait for its writer
            return False
        with open(path, "rb") as file:
            start = file.read(_START)
    except OSError:
        return False
    if start.startswith(GZIP_MAGIC):
        try:
            start = zlib.decompressobj(wbits=31).decompress(start, _START)
        except zlib.error:
            return False
    return _RUN.match(start) is not None
