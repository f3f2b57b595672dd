"""The upper left part of a PNG."""

import struct
import zlib
from collections.abc import Iterator

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 6: 4}  # by colour type: RGB, RGBA


def cropped(png: bytes, width: int, height: int) -> bytes:
    """The upper left part of a PNG as browsers write it: 8 bits a channel, RGB or RGBA, not interlaced.

    Filters of rows refer to pixels at the left and above only, so the rows of the part keep their bytes. Raises
    ValueError for another kind of PNG.
    """
    chunks = list(_chunks(png))
    header = struct.unpack(">IIBBBBB", chunks[0][1])
    if header[2] != 8 or header[3] not in _CHANNELS or header[6] != 0:
        raise ValueError(f"a PNG of {header[2]} bits a channel, colour type {header[3]}, interlace {header[6]}")
    width, height = min(width, header[0]), min(height, header[1])
    pixel, rows = _CHANNELS[header[3]], zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
    starts = (row * (1 + header[0] * pixel) for row in range(height))
    kept = b"".join(rows[start : start + 1 + width * pixel] for start in starts)
    first = struct.pack(">IIBBBBB", width, height, *header[2:])
    return _SIGNATURE + _chunk(b"IHDR", first) + _chunk(b"IDAT", zlib.compress(kept)) + _chunk(b"IEND", b"")


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
