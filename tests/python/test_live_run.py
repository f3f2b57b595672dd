"""The complete command on a terminal: a table during the run, and only the summary at the end."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from campaign import only_long
from linkscope.report.summary import summary
from linkscope.runfile import read_run
from screen import Screen

WORKER = Path(__file__).resolve().parents[2] / "src" / "linkscope" / "_native" / "linkscope-worker"
pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="the worker is not built")


class OnTerminal:
    """`linkscope` with arguments on its own terminal, and the content of its screen."""

    def __init__(self, *words: str, width: int = 100, height: int = 30, **environment: str) -> None:
        self.screen = Screen(width, height)
        self.output = ""
        pid, self._terminal = pty.fork()
        if pid == 0:
            kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            # The size is set before the command asks for it.
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
            command = [sys.executable, "-m", "linkscope", *words]
            os.execve(sys.executable, command, {**kept, "TERM": "xterm-256color", **environment})
        self._pid = pid

    def read(self, until: Callable[[str], object] = lambda text: False) -> None:
        """Reads until the screen satisfies `until` or the command ends."""
        rest = b""
        while not until(self.screen.text()):
            try:
                chunk = os.read(self._terminal, 65536)
            except OSError:  # EIO: the other end was closed
                return
            if not chunk:
                return
            rest += chunk
            complete = _complete_length(rest)
            text = rest[:complete].decode()
            rest = rest[complete:]
            self.output += text
            self.screen.feed(text)

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def resize(self, width: int, height: int) -> None:
        self.screen.resize(width)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def end(self) -> int:
        """Reads the rest and returns the exit code."""
        self.read()
        _, status = os.waitpid(self._pid, 0)
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(status)


def _complete_length(data: bytes) -> int:
    """The length of the data without an incomplete character or escape sequence at the end."""
    end = len(data)
    if (escape := data.rfind(b"\x1b")) >= 0 and not re.match(rb"\x1b\[\??[\d;]*[A-Za-z]", data[escape:]):
        end = escape
    while end and len(data) == end:
        try:
            data[:end].decode()
            return end
        except UnicodeDecodeError as problem:
            end = problem.start
    return end


def words(path: Path, *more: str, suite: str = "quick") -> tuple[str, ...]:
    return ("run", "--machine", "h200x4", "--suite", suite, "-o", str(path), *more)


def is_live(text: str) -> bool:
    return bool(re.search(r"^MODELLED, best.*\n(.*GB/s.*\n)+.*[━─]{8} .*\d+%", text, re.MULTILINE))


def test_a_run_shows_a_table_and_ends_with_the_summary_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    terminal = OnTerminal(*words(path))
    terminal.read(until=is_live)
    live = terminal.screen.text()
    assert is_live(live), live
    assert re.search(r"^(h2d|d2h|d2d|local|h2h|\w+) by \w+, .*GB/s", live, re.MULTILINE)
    assert terminal.end() == 0
    expected = summary(read_run(path), width=100, colour=False).splitlines()
    shown = terminal.screen.text().splitlines()
    assert shown[: len(expected)] == expected and shown[len(expected)].startswith("run file: ")
    assert terminal.screen.cursor_visible and terminal.screen.cursor[0] == 0
    assert terminal.output.count("\x1b[?25h") >= terminal.output.count("\x1b[?25l")


def test_ctrl_c_prints_the_summary_and_restores_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    terminal = OnTerminal(*words(path, "--rounds", "1000", suite="standard"))  # it must not end before Ctrl-C
    terminal.read(until=is_live)
    terminal.type(b"\x03")
    assert terminal.end() == 4
    shown = terminal.screen.text()
    assert "stopped early; continue with:" in shown and "Traceback" not in shown
    assert not re.search("[━─]|best rates", shown) and shown.startswith("MODELLED: a machine model")
    assert terminal.screen.cursor_visible and terminal.screen.cursor[0] == 0
    run = read_run(path)
    assert run.warnings == [] and run.end is not None and not run.end.complete


def test_a_resumed_run_shows_its_earlier_results(tmp_path: Path) -> None:
    # Two operations: the table of a run that was stopped late drops rows of operations beyond its 24 lines.
    path = tmp_path / "a.jsonl"
    terminal = OnTerminal(*words(path, "h2d", "d2h", "--rounds", "1000", suite="standard"))
    terminal.read(until=is_live)
    terminal.type(b"\x03")
    assert terminal.end() == 4
    before = {f"{point.benchmark} by" for point in read_run(path).points if point.gbps}
    again = OnTerminal("run", "--resume", str(path))
    again.read(until=lambda text: is_live(text) and all(name in text for name in before))
    assert before and [name for name in before if name not in again.screen.text()] == [], again.screen.text()
    again.type(b"\x03")
    assert again.end() in (0, 4)


@pytest.mark.parametrize("width, height", [(40, 24), (40, 5), (20, 24), (200, 60)])
def test_the_table_fits_small_and_large_terminals(tmp_path: Path, width: int, height: int) -> None:
    wrong = {"COLUMNS": "90", "LINES": "20"}  # as inherited from the shell of an earlier, larger terminal
    terminal = OnTerminal(*words(tmp_path / "a.jsonl", "--json"), width=width, height=height, **wrong)
    terminal.read(until=lambda text: "%" in text)
    live = terminal.screen.text().splitlines()
    assert len(live) < height and max(map(len, live)) < width and (width == 20 or live[0].startswith("MODELLED"))
    assert terminal.end() == 0
    assert terminal.screen.text().replace("\n", "").startswith('{"run": ')


@only_long
def test_a_resized_terminal_ends_without_leftovers(tmp_path: Path) -> None:
    terminal = OnTerminal(*words(tmp_path / "a.jsonl", "--json", suite="standard"), width=100, height=30)
    terminal.read(until=is_live)
    for width in (60, 40, 120):
        terminal.resize(width, 30)
        seen = len(terminal.output)
        terminal.read(until=lambda text, seen=seen: len(terminal.output) > seen + 200)
    assert terminal.end() == 0
    assert '"counts"' in terminal.screen.text()[-200:].replace("\n", "")
    assert terminal.screen.cursor_visible


def test_a_run_that_cannot_start_leaves_the_terminal_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.touch()
    terminal = OnTerminal(*words(path), width=300)
    assert terminal.end() == 2
    assert "\x1b" not in terminal.output and "exists. It holds no run" in terminal.output


def test_dumb_terminals_and_files_get_plain_text(tmp_path: Path) -> None:
    terminal = OnTerminal(*words(tmp_path / "a.jsonl", "--json"), TERM="dumb")
    assert terminal.end() == 0 and "\x1b" not in terminal.output
    done = subprocess.run(
        [sys.executable, "-m", "linkscope", *words(tmp_path / "b.jsonl", "--json")], capture_output=True, text=True
    )
    assert done.returncode == 0 and "\x1b" not in done.stderr + done.stdout
