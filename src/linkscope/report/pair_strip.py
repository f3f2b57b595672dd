"""The strip of all GPU pairs: a dot for each, by its rate against the median of its class."""

from collections import Counter

from linkscope.report.pair_rates import Matrix
from linkscope.report.trust import inherited, signed
from linkscope.report.uniformity import MARGIN, Comparison
from linkscope.units import format_bytes, format_fraction, format_rate_interval

_WIDTH, _SIDE = 560.0, 34.0
_DOT, _STEP = 3.4, 7.2  # radius, and distance between dots that would meet
_LEAST = 0.01  # the strip is at least 1 % wide to each side
_MOST_RISE = 9  # dots above one another


def strip_text(matrix: Matrix, compared: Comparison | None) -> tuple[str, str]:
    """('GPU pairs are uniform', 'The slowest is gpu:2 → gpu:1, 396.8 GB/s [396.3, 397.2] at 1 GiB, 0.1 % below …'), or
    that a pair is slow, or that pairs may differ. Two empty texts without a slowest pair.

    `compared`: the slowest pair against the fastest, None if no two pairs can be compared.
    """
    found = matrix.slowest
    if found is None:
        return "", ""
    path, cell = found
    rate = signed(format_rate_interval(cell.value.value, cell.value.low, cell.value.high), [cell.point])
    deviation = cell.deviation or 0.0
    below = f"{format_fraction(-deviation)} below the median of its class" if deviation < 0 else "no pair is below it"
    verdict = _verdict(deviation >= -MARGIN, compared)
    measured = f"{matrix.measured} of {len(matrix.cells)} pairs were measured at this size"
    slowest = f"The slowest is {path.src} → {path.dst}, {rate} at {format_bytes(matrix.bytes)}"
    return verdict, f"{slowest}: {below}; {measured}"


def _verdict(alike: bool, compared: Comparison | None) -> str:
    """`alike`: no pair is below its class by more than the margin. The verdict of the page rests on the comparison."""
    if compared is None or compared.is_uniform:
        return "GPU pairs are uniform" if alike else "GPU pairs may differ"
    if compared.differs:
        return "GPU pairs of a class are uniform" if alike else "A GPU pair is slow"
    return "GPU pairs may differ"


def strip_svg(matrix: Matrix, modelled: bool) -> str:
    """The strip as SVG: filled dots are measured, hollow ones inherited; the slowest pair has a ring."""
    known = [(path, cell, cell.deviation) for path, cell in matrix.cells.items() if cell.deviation is not None]
    if not known:
        return ""
    reach = max(_LEAST, *(abs(deviation) for *_, deviation in known)) * 1.05
    middle, slowest = _WIDTH / 2, matrix.slowest
    used: Counter[int] = Counter()
    placed = []
    for path, cell, deviation in known:
        x = middle + deviation / reach * (middle - _SIDE)
        slot = round(x / _STEP)
        placed.append((path, cell, x, min(used[slot], _MOST_RISE)))
        used[slot] += 1
    base = 16 + _STEP * min(max(used.values()) - 1, _MOST_RISE)
    dots: dict[bool, str] = {True: "", False: ""}
    ring = ""
    for path, cell, x, rise in placed:
        at = f"M{x - _DOT:.1f} {base - 6 - rise * _STEP:.1f}"
        dots[inherited(cell.point)] += f"{at}a{_DOT} {_DOT} 0 1 0 {2 * _DOT} 0a{_DOT} {_DOT} 0 1 0 -{2 * _DOT} 0"
        if slowest and path == slowest[0]:
            ring = f"{at}m-2.6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0"
    shapes = (
        f'<path class="dot" d="{dots[False]}"/><path class="dot hollow" d="{dots[True]}"/>'
        f'<path class="ring" d="{ring}"/>'
    )
    return _framed(shapes, base, reach, modelled)


def _framed(shapes: str, base: float, reach: float, modelled: bool) -> str:
    """The shapes above an axis of deviations."""
    middle, height = _WIDTH / 2, base + 20
    name = ("MODELLED: " if modelled else "") + "rates of all GPU pairs against the median of their class"
    ends = "".join(
        f'<text class="size" x="{middle + sign * (middle - _SIDE):.1f}" y="{height - 4:.1f}">'
        f"{100 * sign * reach:+.2g} %</text>"
        for sign in (-1, 1)
    )
    style = f'class="modelled" style="font-size:32px" x="{middle:g}" y="{base / 2:.1f}"'
    return (
        f'<svg class="chart strip" viewBox="0 0 {_WIDTH:g} {height:.1f}" role="img" aria-label="{name}">'
        f"<title>{name}</title>{f'<text {style}>MODELLED</text>' if modelled else ''}"
        f'<path class="grid" d="M{_SIDE:g} {base:.1f}H{_WIDTH - _SIDE:g}M{middle:g} 0V{base + 4:.1f}"/>'
        f'<text class="size" x="{middle:g}" y="{height - 4:.1f}">median</text>{ends}{shapes}</svg>'
    )
