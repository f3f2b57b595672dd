"""The display during a run on a terminal: what is drawn, how often, and what is left at its end."""

import io
import os
import re

import pytest

from fakes import point
from linkscope.run import progress
from linkscope.run.progress import Lines, Terminal, WorkLeft, progress_for
from screen import Screen
from test_progress import Clock, h2d, left, many, table_of


class Tty(io.StringIO):
    """A terminal stream, and the screen it writes to."""

    encoding = "utf-8"

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.screen = screen

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, text: str) -> int:
        self.screen.feed(text.replace("\n", "\r\n"))
        return super().write(text)


@pytest.fixture
def screen(monkeypatch) -> Screen:
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    made = Screen(100, 24)
    monkeypatch.setattr(os, "get_terminal_size", lambda fd=0: os.terminal_size((made.width, made.height)))
    made.feed("$ linkscope run\r\n")
    return made


def drawn(shown: progress.Progress, *shares: float) -> None:
    for share in shares:
        shown._next = 0.0
        shown.tick(left(share, 60.0))


def test_a_terminal_shows_a_table_above_a_bar_and_is_cleared_at_the_end(screen) -> None:
    shown = progress_for(table_of(many(), modelled=True), Tty(screen))
    assert isinstance(shown, Terminal)
    drawn(shown, 0.1, 0.25)
    lines = screen.text().splitlines()
    assert lines[1].startswith("MODELLED") and sum(line.startswith("h2d") for line in lines) == 12
    assert re.fullmatch(r"━{7}─{23}  25%  round 2 of 6, 7 points unfinished, about 60 s left", lines[-1])
    assert screen.cursor_visible
    shown.stop()
    shown.stop()
    assert screen.text() == "$ linkscope run" and screen.cursor == (0, 1)


@pytest.mark.parametrize("widths", [(50, 40, 100), (40,), (99, 98), (24, 9, 60), (140, 40)])
def test_a_resized_terminal_keeps_one_table_and_is_cleared_at_the_end(screen, widths: tuple[int, ...]) -> None:
    screen.height = 80  # scrolled lines cannot be cleared
    shown = progress_for(table_of(many()), Tty(screen))
    drawn(shown, 0.1)
    for width in widths:
        screen.resize(width)
        drawn(shown, 0.2)
        text = screen.text()
        assert text.startswith("$ linkscope run"[:width])
        assert len(re.findall(r"^Best", text, re.MULTILINE)) == (width > 20), text
        assert max(map(len, text.splitlines()[2:])) < width
    screen.resize(30)
    shown.stop()
    assert screen.text() == "$ linkscope run" and screen.cursor_visible


@pytest.mark.parametrize("height", [1, 2, 3, 5, 24])
def test_the_table_never_scrolls_a_low_terminal(screen, height: int) -> None:
    screen.height = height
    shown = progress_for(table_of(many()), Tty(screen))
    drawn(shown, 0.1, 0.2, 0.3)
    assert len(screen.text().splitlines()) - 1 <= max(1, height - 1)
    shown.stop()
    assert screen.text().splitlines()[0] == "$ linkscope run" and "%" not in screen.text()


def test_a_run_that_ends_before_the_first_drawing_writes_nothing(screen) -> None:
    stream = Tty(screen)
    progress_for(table_of([], [h2d()]), stream).stop()
    assert stream.getvalue() == ""


def test_no_color_is_respected(screen, monkeypatch) -> None:
    coloured = re.compile(r"\x1b\[[\d;]*3\d[\d;]*m")
    streams = [Tty(screen), Tty(screen)]
    for stream, no_color in zip(streams, ("", "1"), strict=True):
        monkeypatch.setenv("NO_COLOR", no_color)
        shown = progress_for(table_of(many()), stream)
        drawn(shown, 0.1)
        shown.stop()
    assert coloured.search(streams[0].getvalue()) and not coloured.search(streams[1].getvalue())


@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_terminal_without_capabilities_gets_plain_lines(screen, monkeypatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    assert isinstance(progress_for(table_of([], [h2d()]), Tty(screen)), Lines)


def test_a_terminal_without_box_characters_gets_ascii(screen) -> None:
    stream = Tty(screen)
    stream.encoding = "ascii"
    shown = progress_for(table_of(many()), stream)
    drawn(shown, 0.5)
    assert stream.getvalue().isascii() and "####----" in screen.text().replace("#" * 11, "")


@pytest.mark.parametrize(("encoding", "time"), [("ascii", " 2.5 us"), ("utf-8", " 2.5 µs")])
def test_plain_lines_have_ascii_for_signs_that_their_stream_lacks(encoding: str, time: str) -> None:
    file = io.BytesIO()
    shown = progress.Points(table_of([], [h2d()]), io.TextIOWrapper(file, encoding))
    shown.record(point(h2d(), median_s=2.5e-6))
    assert time in file.getvalue().decode(encoding)


def test_a_closed_terminal_does_not_end_the_run(screen, monkeypatch) -> None:
    stream = Tty(screen)
    shown = progress_for(table_of(many()), stream)
    drawn(shown, 0.1)

    def gone(text: str) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(stream, "write", gone)
    drawn(shown, 0.2, 0.3)
    shown.stop()


def test_drawing_happens_at_most_four_times_a_second_and_less_often_if_expensive(screen, monkeypatch) -> None:
    now, cost = [0.0], [0.0]
    clock = Clock(now)
    monkeypatch.setattr(progress, "time", clock)
    shown = progress_for(table_of(many()), Tty(screen))
    calls: list[float] = []

    def work_left() -> WorkLeft:
        calls.append(now[0])
        return WorkLeft(0.1, None, 7, "round 1 of 6")

    for step in range(200):  # two seconds
        now[0] = 1.0 + step / 100
        shown.tick(work_left)
    assert len(calls) == 8
    clock.process_time = lambda: cost.append(0.1) or sum(cost)  # each reading of the clock adds 0.1 s
    calls.clear()
    for step in range(1000):
        now[0] = 10.0 + step / 100
        shown.tick(work_left)
    assert len(calls) == 2  # 0.1 s of every five seconds: 2 %


@pytest.mark.parametrize("width", [5, 20, 40, 60])
def test_a_narrow_bar_drops_the_remaining_time_last(screen, width: int) -> None:
    screen.width = width
    shown = progress_for(table_of([], [h2d()]), Tty(screen))
    drawn(shown, 0.5)
    line = screen.text().splitlines()[-1]
    assert len(line) < width and ("50%" in line or width < 12)
    assert ("about 60 s left" in line) == (width >= 40)
