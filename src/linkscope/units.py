"""Sizes, times and rates as text and back: KiB/MiB/GiB are powers of 1024, kB/MB/GB and GB/s powers of 1000."""

import codecs
import math
import re
from typing import TextIO

_SIZES = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZES |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_DURATION = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "m": 60.0, "h": 3600.0}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
MOST_BYTES = 1 << 40  # the largest size of an operation
_TOGETHER = re.compile(r"(?<=\d) (?=(?:[KMGT]?i?B|T?FLOP/s|GB/s|[nuµm]?s|min|h)\b|%)|(?<=,) (?=[^\[\]]*\])")
NO_BREAK = "\N{NO-BREAK SPACE}"
_ASCII = {"→": "->", "×": "x", "±": "+-", "µ": "u", "…": "...", "²": "^2", "─": "-", "│": "|", "├": "+", "└": "+"}
ASCII_SIGNS = "linkscope.ascii"  # the name of _in_ascii as a handler of errors


def format_bytes(count: int) -> str:
    """1048576 -> '1 MiB'; other sizes in the largest unit that is not larger."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} B"


def exact_bytes(count: int) -> str:
    """1048576 -> '1MiB', 1048577 -> '1048577B': the largest unit without a fraction, for texts that are read again."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count}B"


def time_unit(seconds: float) -> tuple[str, float]:
    """The unit that fits, and its seconds: ns, us, ms, s, min from 120 s, h from 3600 s."""
    shown = float(f"{abs(seconds):.4g}")  # 999.99 us is shown as 1 ms, not as 1000 us
    for unit, size, least in (("h", 3600.0, 3600.0), ("min", 60.0, 120.0), ("s", 1.0, 1.0)):
        if shown >= least:
            return unit, size
    for unit, size in (("ms", 1e-3), ("us", 1e-6)):
        if shown >= size:
            return unit, size
    return "ns", 1e-9


def format_seconds(seconds: float) -> str:
    """Four significant digits in the unit that fits (three in min and h)."""
    unit, size = time_unit(seconds)
    return f"{seconds / size:.{3 if size > 1 else 4}g} {unit}"


def format_rate(gbps: float | None) -> str:
    """GB/s with four significant digits; '-' without a rate."""
    return "-" if gbps is None else f"{gbps:.4g} GB/s"


def digits3(value: float) -> str:
    """Up to three digits, or all digits of a larger number: '55.5', '9.6', '2113'."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def digits4(value: float) -> str:
    """Four digits, also where the last are zeros, for numbers beside each other: '397.0', '9.600', '2113'."""
    return f"{value:.0f}" if value >= 1000 else f"{value:#.4g}"


def with_signs(text: str) -> str:
    """The text with →, ± and µs in place of ->, +- and us. An arrow inside an id stays as it is."""
    arrows = re.sub(r"(?<![^\s])->(?![^\s])", "→", text)
    return re.sub(r"(?<=\d) us\b", " µs", re.sub(r"\+-(?=\d)", "±", arrows))


def encodable(text: str, stream: TextIO) -> str:
    """The text with ASCII for signs that the encoding of the stream lacks, and ? for other such characters."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, ASCII_SIGNS).decode(encoding)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """ASCII for the characters that an encoding lacks, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(one, "?") for one in error.object[error.start : error.end]), error.end


codecs.register_error(ASCII_SIGNS, _in_ascii)


def unbroken(text: str) -> str:
    """The text with no-break spaces within '64 KiB', '88 %' and '[1, 2]'."""
    return _TOGETHER.sub(NO_BREAK, text)


def format_fraction(fraction: float | None) -> str:
    """0.8794 -> '88 %', 0.0123 -> '1.2 %'; '-' for None."""
    if fraction is None:
        return "-"
    percent = 100 * fraction
    return f"{percent:.0f} %" if abs(percent) >= 9.95 else f"{percent:.2g} %"


def format_change(change: float) -> str:
    """'+3.1 %' for 0.031, '-62 %' for -0.62, '0 %' for less than 0.05 %."""
    percent = 100 * change
    if abs(percent) < 0.05:
        return "0 %"
    return f"{percent:+.0f} %" if abs(percent) >= 9.95 else f"{percent:+.1f} %"


def format_against(width: float, target: float) -> str:
    """'+-6.4 %, target was 5 %', with as many digits as show that the width is larger."""
    shown, wanted = format_fraction(width), format_fraction(target)
    digits = 2
    while width > target and shown == wanted and digits < 8:
        digits += 1
        shown = f"{100 * width:.{digits}g} %"
    return f"+-{shown}, target was {wanted}"


def with_interval(value: float, low: float | None, high: float | None) -> tuple[str, str]:
    """('55.4', '[55.3, 55.5]'): three to five digits, as many as show how wide the interval is; '' without one."""
    if low is None or high is None:
        return f"{value:.4g}", ""
    digits = _decimals(value, high - low)
    return f"{value:.{digits}f}", f"[{low:.{digits}f}, {high:.{digits}f}]"


def format_rate_interval(gbps: float, low: float | None, high: float | None) -> str:
    """'55.4 GB/s [55.3, 55.5]'."""
    number, interval = with_interval(gbps, low, high)
    return f"{number} GB/s {interval}".rstrip()


def format_seconds_interval(seconds: float, low: float | None, high: float | None) -> str:
    """'2.22 us [2.21, 2.25]'; 'unresolved, at most 8.7 us' if the interval reaches 0."""
    if (unresolved := unresolved_text(low, high)) is not None:
        return unresolved
    unit, size = time_unit(seconds)
    scaled = [None if end is None else end / size for end in (low, high)]
    number, interval = with_interval(seconds / size, *scaled)
    return f"{number} {unit} {interval}".rstrip()


def unresolved_text(low: float | None, high: float | None) -> str | None:
    """The text for a time whose interval reaches 0: noise exceeds the time, so only the upper end means anything."""
    if low is None or high is None or low > 0:
        return None
    return f"unresolved, at most {format_seconds(float(f'{max(high, 0.0):.2g}'))}"


def parse_bytes(text: str) -> int | None:
    """'64 MiB', '64MiB', '64MB', '8' or '8 B' in bytes; None if the text is not a size or not a whole number of
    bytes."""
    match = re.fullmatch(rf"\s*({_NUMBER})\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _SIZES:
        return None
    count = float(match[1]) * _SIZES[match[2].upper()]
    return int(count) if count.is_integer() else None


def size_problem(text: str) -> str:
    """The problem with a text that should be a size, and the cure: 'not a size; write 64MB or 64MiB' for '64M'."""
    number = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([KMGTkmgt])[A-Za-z]*", text)
    if number is None or re.fullmatch(r".*[KMGT]i?B", text):
        return "not a size in whole bytes; write 4096, 64KiB or 4MiB"
    count, prefix = number[1], number[2].upper()
    return f"not a size; write {count}{prefix}B or {count}{prefix}iB"


def parse_sizes(text: str) -> list[int] | None:
    """'4KiB:1GiB,777KiB' in bytes: a range doubles from its first size to at most its last; None if a part is not a
    size, is 0, or ends before it begins."""
    found: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        low = parse_bytes(first)
        high = parse_bytes(last) if colon else low
        if not low or not high or high < low:
            return None
        found += [low << power for power in range((high // low).bit_length())]
    return list(dict.fromkeys(found))


def parse_whole(text: str, least: int, most: int) -> int | None:
    """'12' as a number; None for any other text and outside the bounds."""
    if not re.fullmatch(r"[+-]?[0-9]+", text) or len(text) > len(str(most)) + 1 or not least <= int(text) <= most:
        return None
    return int(text)


def parse_duration(text: str) -> float | None:
    """'120s', '2min', '90' (seconds), '1.5h' in seconds; None for any other text."""
    match = re.fullmatch(rf"\s*({_NUMBER})\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _DURATION:
        return None
    return float(match[1]) * _DURATION[match[2]]


def parse_percent(text: str) -> float | None:
    """'1%' as a fraction, 0.01; None without the percent sign, since 0.5 could mean 0.5 % or 50 %."""
    match = re.fullmatch(rf"\s*([+-]?{_NUMBER})\s*%\s*", text)
    return None if match is None else float(match[1]) / 100.0


def _decimals(value: float, width: float) -> int:
    """Decimals that show the first digit of `width`, within three to five significant digits of `value`."""
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    wanted = -math.floor(math.log10(width)) if width > 0 else 4 - magnitude
    return max(0, min(max(wanted, 2 - magnitude), 4 - magnitude))
