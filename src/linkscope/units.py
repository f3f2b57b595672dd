"""Sizes, times and rates as text and back: KiB/MiB/GiB are powers of two, GB/s is 1e9 bytes a second."""

import re

_BINARY = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_DURATION = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "m": 60.0, "h": 3600.0}


def format_bytes(count: int) -> str:
    """1048576 -> '1 MiB'; a size that is no whole number of a unit is given in the largest unit below it."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def format_seconds(seconds: float) -> str:
    """Four significant digits in the unit that fits: ns, us, ms, s, or minutes and hours."""
    magnitude = abs(seconds)
    if magnitude >= 3600:
        return f"{seconds / 3600:.3g} h"
    if magnitude >= 120:
        return f"{seconds / 60:.3g} min"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if magnitude >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def format_rate(gbps: float | None) -> str:
    """GB/s with four significant digits, '-' where there is no rate."""
    return "-" if gbps is None else f"{gbps:.4g} GB/s"


def parse_bytes(text: str) -> int | None:
    """'64 MiB', '64MiB', '8' or '8 B' in bytes; None where it is no size."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _BINARY:
        return None
    count = float(match[1]) * _BINARY[match[2].upper()]
    return int(count) if count == int(count) else None


def parse_duration(text: str) -> float | None:
    """'120s', '2min', '90' (seconds), '1.5h' in seconds; None where it is no duration."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _DURATION:
        return None
    return float(match[1]) * _DURATION[match[2]]


def parse_fraction(text: str) -> float | None:
    """'1%' or '0.01' as a fraction; None where it is neither."""
    match = re.fullmatch(r"\s*([+-]?\d+(?:\.\d+)?)\s*(%?)\s*", text)
    if match is None:
        return None
    return float(match[1]) / (100.0 if match[2] else 1.0)
