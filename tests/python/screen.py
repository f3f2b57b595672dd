"""A terminal emulator for the sequences that linkscope uses: the screen's content after output and resizes."""

import re

_ESCAPE = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])")


class Screen:
    """Text that fills a row continues in the next row. An unknown escape sequence is an error."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.width, self.height = width, height
        self.cursor_visible = True
        self._rows: list[str] = [""]
        self._goes_on: set[int] = set()
        self._x = self._y = 0

    def text(self) -> str:
        """The content including scrolled lines, without blank rows at the end."""
        return "\n".join(row.rstrip() for row in self._rows).rstrip("\n")

    @property
    def cursor(self) -> tuple[int, int]:
        """Column and row of the cursor."""
        return self._x, self._y

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            letter = text[at]
            if letter == "\x1b":
                match = _ESCAPE.match(text, at)
                assert match, f"unknown: {text[at : at + 10]!r}"
                self._escape(*match.groups())
                at = match.end()
                continue
            self._letter(letter)
            at += 1

    def resize(self, width: int) -> None:
        """Rewraps lines to the new width, as most terminals do."""
        lines: list[str] = []
        for number, row in enumerate(self._rows):
            if number - 1 in self._goes_on:
                lines[-1] += row
            else:
                lines.append(row)
            if number == self._y:
                cursor = len(lines) - 1, len(lines[-1]) - len(row) + min(self._x, len(row))
        self._rows, self._goes_on = [], set()
        for number, line in enumerate(lines):
            first = len(self._rows)
            self._rows += [line[at : at + width] for at in range(0, len(line), width)] or [""]
            self._goes_on.update(range(first, len(self._rows) - 1))
            if number == cursor[0]:
                down = min(cursor[1] // width, len(self._rows) - 1 - first)
                self._y, self._x = first + down, cursor[1] - down * width
        self.width = width

    def _letter(self, letter: str) -> None:
        if letter == "\r":
            self._x = 0
        elif letter == "\n":
            self._goes_on.discard(self._y)
            self._down()
        else:
            assert letter.isprintable(), repr(letter)
            if self._x >= self.width:
                self._goes_on.add(self._y)
                self._down()
                self._x = 0
            row = self._rows[self._y].ljust(self._x)
            self._rows[self._y] = row[: self._x] + letter + row[self._x + 1 :]
            self._x += 1

    def _down(self) -> None:
        self._y += 1
        if self._y == len(self._rows):
            self._rows.append("")

    def _escape(self, private: str, numbers: str, what: str) -> None:
        if what == "A":
            self._y = max(self._y - int(numbers or 1), len(self._rows) - self.height, 0)
        elif what == "K" and numbers == "2":
            self._rows[self._y] = ""
        elif private and numbers == "25":
            self.cursor_visible = what == "h"
        else:
            assert what == "m", f"unknown: {private}{numbers}{what}"
