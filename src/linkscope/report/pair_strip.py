"""The strip of all GPU pairs: a dot for each, by its rate against the median of its class."""

from linkscope.report.pair_rates import Matrix
from linkscope.report.trust import inherited, signed
from linkscope.report.uniformity import MARGIN
from linkscope.units import format_bytes, format_fraction, format_rate_interval

_WIDTH, _HEIGHT, _SIDE = 560.0, 58.0, 34.0
_DOT, _STEP = 3.4, 7.2  # radius, and distance between dots that would meet
_LEAST = 0.01  # the strip is at least 1 % wide to each side
_MOST_RISE = 4  # dots above one another


def strip_text(matrix: Matrix) -> str:
    """'Slowest pair gpu:2 → gpu:1: 396.8 GB/s [396.3, 397.2], 0.1 % below the median of its class. …'."""
    found = matrix.slowest
    if found is None:
        return ""
    path, cell = found
    rate = signed(format_rate_interval(cell.value.value, cell.value.low, cell.value.high), [cell.point])
    deviation = cell.deviation or 0.0
    below = f"{format_fraction(-deviation)} below the median of its class" if deviation < 0 else "no pair is below it"
    verdict = "slower than its class" if deviation < -MARGIN else "the pairs are uniform"
    count = len(matrix.cells)
    measured = (
        f"all {count} pairs measured" if matrix.measured == count else f"{matrix.measured} of {count} pairs measured"
    )
    return f"{path.src} → {path.dst}, {rate} at {format_bytes(matrix.bytes)}: {below}, {verdict}; {measured}"


def strip_svg(matrix: Matrix, modelled: bool) -> str:
    """The strip as SVG: filled dots are measured, hollow ones inherited; the slowest pair has a ring."""
    known = [(path, cell, cell.deviation) for path, cell in matrix.cells.items() if cell.deviation is not None]
    if not known:
        return ""
    reach = max(_LEAST, *(abs(deviation) for *_, deviation in known)) * 1.05
    slowest = matrix.slowest
    base, middle = _HEIGHT - 20, _WIDTH / 2
    used: dict[int, int] = {}
    dots: dict[bool, str] = {True: "", False: ""}
    ring = ""
    for path, cell, deviation in known:
        x = middle + deviation / reach * (middle - _SIDE)
        slot = round(x / _STEP)
        rise = min(used.get(slot, 0), _MOST_RISE)
        used[slot] = rise + 1
        at = f"M{x - _DOT:.1f} {base - 6 - rise * _STEP:.1f}"
        dots[inherited(cell.point)] += f"{at}a{_DOT} {_DOT} 0 1 0 {2 * _DOT} 0a{_DOT} {_DOT} 0 1 0 -{2 * _DOT} 0"
        if slowest and path == slowest[0]:
            ring = f"{at}m-2.6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0"
    return _drawn(dots, ring, reach, modelled)


def _drawn(dots: dict[bool, str], ring: str, reach: float, modelled: bool) -> str:
    base, middle = _HEIGHT - 20, _WIDTH / 2
    name = ("MODELLED: " if modelled else "") + "rates of all GPU pairs against the median of their class"
    ends = "".join(
        f'<text class="size" x="{middle + sign * (middle - _SIDE):.1f}" y="{_HEIGHT - 4}">'
        f"{100 * sign * reach:+.2g} %</text>"
        for sign in (-1, 1)
    )
    style = f'class="modelled" style="font-size:36px" x="{middle}" y="{base - 14}"'
    return (
        f'<svg class="chart strip" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{name}">'
        f"<title>{name}</title>{f'<text {style}>MODELLED</text>' if modelled else ''}"
        f'<path class="grid" d="M{_SIDE} {base}H{_WIDTH - _SIDE}M{middle} {base - 36}V{base + 4}"/>'
        f'<text class="size" x="{middle}" y="{_HEIGHT - 4}">median</text>{ends}<path class="dot" d="{dots[False]}"/>'
        f'<path class="dot hollow" d="{dots[True]}"/><path class="ring" d="{ring}"/></svg>'
    )
