"""Scales of charts: values to pixels, and the positions of the ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from linkscope.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Axis:
    """Maps `low` to `high` onto the pixels `start` to `stop`. A tick is a value and its text."""

    low: float
    high: float
    start: float
    stop: float
    logarithmic: bool
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """The pixel of a value. Values outside the scale are drawn at its edge."""
        inside = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(inside / self.low) / math.log(self.high / self.low)
        else:
            share = (inside - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def size_axis(sizes: Sequence[int], start: float, stop: float) -> Axis:
    """An axis of bytes in powers of two, with at most eight ticks. A single size is centred."""
    least, most = max(1, min(sizes)), max(1, *sizes)
    first, last = math.floor(math.log2(least)), math.ceil(math.log2(most))
    step = max(1, -(-(last - first) // 7))
    exponents = range(first + (-first) % step if last - first >= step else first, last + 1, step)
    ticks = tuple((float(1 << exponent), format_bytes(1 << exponent)) for exponent in exponents)
    return Axis(2.0**first / 1.4, 2.0**last * 1.4, start, stop, True, ticks)


def rate_axis(highest: float, start: float, stop: float) -> Axis:
    """An axis of GB/s from zero, with four to six ticks at round numbers."""
    step = _round_step(highest / 5)
    count = max(1, math.ceil(highest * 1.02 / step))
    ticks = tuple((step * index, f"{step * index:g}") for index in range(count + 1))
    return Axis(0.0, step * count, start, stop, False, ticks)


def log_rate_axis(rates: Sequence[float], start: float, stop: float) -> Axis:
    """An axis of GB/s in powers of ten."""
    first, last = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    last = max(last, first + 1)
    ticks = tuple((10.0**exponent, f"{10.0**exponent:g}") for exponent in range(first, last + 1))
    return Axis(10.0**first, 10.0**last, start, stop, True, ticks)


def time_axis(times: Sequence[float], start: float, stop: float) -> Axis:
    """An axis of seconds in powers of ten."""
    first, last = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    last = max(last, first + 1)
    step = max(1, -(-(last - first) // 7))
    ticks = tuple((10.0**exponent, format_seconds(10.0**exponent)) for exponent in range(first, last + 1, step))
    return Axis(10.0**first, 10.0**last, start, stop, True, ticks)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is at least `least`."""
    if least <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= least * 0.999)
