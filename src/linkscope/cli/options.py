"""Values of options that several commands share: each is parsed and refused by one function."""

import argparse

from linkscope.errors import UserError
from linkscope.units import MOST_BYTES, parse_bytes, parse_whole


def size(option: str, text: str) -> int:
    """The bytes of one operation. Raises UserError for a text that is no size, for 0 and for more than 1 TiB."""
    count = parse_bytes(text)
    if not count:
        raise UserError(f"{option} {text}: this is not a size. Write a number of bytes, 64MiB or 64MB")
    if count > MOST_BYTES:
        raise UserError(f"{option} {text}: write sizes of at most 1 TiB")
    return count


def whole(option: str, text: str, *, least: int, most: int) -> int:
    """A whole number within the bounds. Raises UserError otherwise."""
    number = parse_whole(text, least, most)
    if number is None:
        raise UserError(f"{option} {text}: write a whole number from {least} to {most}")
    return number


def add_cpu_clock(parser: argparse.ArgumentParser) -> None:
    """The options that set the CPU's clock for the time of a run."""
    add = parser.add_argument
    add("--governor", metavar="NAME", help="the CPUs' governor during the run (needs root)")
    add("--turbo", metavar="on|off", help="the CPUs' turbo during the run (needs root)")
