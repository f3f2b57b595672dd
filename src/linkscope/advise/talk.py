"""Reads a matrix of who sends how much to whom: one line per sending rank, one size per receiving rank."""

from pathlib import Path

import numpy as np

from linkscope.advise.placement import Matrix
from linkscope.errors import UserError
from linkscope.units import parse_bytes, size_problem

MOST_RANKS = 256


def read_matrix(path: Path) -> Matrix:
    """Bytes from each rank (row) to each rank (column). Sizes are separated by commas or blanks; `#` begins a comment.

    Raises UserError that names the file, the line and the word.
    """
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: this is not text. Write one line per sending rank, one size per receiver") from None
    rows: list[list[int]] = []
    lines: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if words:
            rows.append([_size(word, f"{path}:{number}") for word in words])
            lines.append(number)
    if len(rows) < 2:
        raise UserError(
            f"{path}: {len(rows)} line(s) with sizes. A matrix has one line per rank, for two ranks or more"
        )
    if len(rows) > MOST_RANKS:
        raise UserError(f"{path}: {len(rows)} ranks; at most {MOST_RANKS} can be placed")
    for number, row in zip(lines, rows, strict=True):
        if len(row) != len(rows):
            raise UserError(
                f"{path}:{number}: {len(row)} sizes, and there are {len(rows)} ranks. Write one size per rank"
            )
    sent = np.array(rows, dtype=float)
    np.fill_diagonal(sent, 0.0)
    if not sent.any():
        raise UserError(f"{path}: no rank sends anything to another rank, so every placement is equal")
    return sent


def _size(word: str, where: str) -> int:
    if word == "-":
        return 0
    count = parse_bytes(word)
    if count is None:
        raise UserError(f"{where}: {word}: {size_problem(word)}")
    return count
