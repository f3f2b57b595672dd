"""Where a curve of times over bytes breaks: nothing is to be drawn or interpolated across that."""

JUMP = 0.03  # what is not told apart from a line


def jumps(small: int, small_s: float, large: int, large_s: float, doubt: float = 0.0) -> bool:
    """Whether no line of a latency and a rate joins the times of two sizes: more bytes in clearly less time, or in more
    than so many times the time. `doubt`: half of both intervals together, as a fraction."""
    if small <= 0 or small_s <= 0:
        return False
    ratio, beyond = large_s / small_s, 1 + JUMP + doubt
    return ratio * beyond < 1 or ratio > large / small * beyond
