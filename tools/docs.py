"""Checks the documentation and builds the site.

Usage: .venv/bin/python tools/docs.py [commands] [examples] [site]     (without a word: all three)
  commands  writes docs/reference/commands.md from the help of every command
  examples  runs every example command of the README, guide, reference and method
  site      builds build/site with Sphinx; a broken link is an error
"""

import contextlib
import gzip
import io
import itertools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from linkscope.cli import main as command_line

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMANDS = ROOT / "docs" / "reference" / "commands.md"
SITE = ROOT / "build" / "site"
WIDTH = 100  # columns of the help texts
RUN = ROOT / "results" / "h200x1-standard-f.jsonl.gz"
# Names of files in the examples, and the committed file that stands in for them.
STAND_INS = {
    name: RUN
    for name in (
        "run.jsonl", "RUN.jsonl", "before.jsonl", "after.jsonl", "good.jsonl", "GOOD.jsonl", "NEW.jsonl",
        "today.jsonl", "monday.jsonl", "tuesday.jsonl", "wednesday.jsonl", "thursday.jsonl", "BEFORE.jsonl",
        "AFTER.jsonl", "a.jsonl", "b.jsonl",
    )
} | {
    "training.trace": ROOT / "examples" / "training.trace",
    "mine.toml": ROOT / "machines" / "h200x2.toml",
    "node.toml": ROOT / "machines" / "h200x2.toml",
    "nvb.jsonl": ROOT / "results" / "h200x4-rule-nvbandwidth.jsonl.gz",
    "cs.jsonl": ROOT / "results" / "h200x1-comm-scope.jsonl.gz",
}  # fmt: skip
PARTS = {"--break-even", "--shared", "--trace"}


class Example(NamedTuple):
    """A command of a page."""

    page: str
    line: int
    words: list[str]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: linkscope {shlex.join(self.words)}"


def commands_page() -> str:
    """docs/reference/commands.md: the help of every command."""
    parts = [
        "# Commands\n",
        "<!-- Made by tools/docs.py from `linkscope VERB --help`: change the help instead. -->\n",
        "Exit codes of all commands: 0 fine; 1 ran, and something failed or is below what was expected; 2 wrong usage,",
        "unreadable input or unwritable output; 3 something requested is not here; 4 stopped early; 5 no verdict.\n",
    ]
    for verb in command_line.VERBS:
        parts.append(f"## {verb}\n\n```text\n{_help(verb)}\n```\n")
    return "\n".join(parts)


def _help(verb: str) -> str:
    """The help of a command. Its options are listed once, without --help."""
    text = io.StringIO()
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            command_line.main([verb, "--help"])
    finally:
        os.environ.pop("COLUMNS") if columns is None else os.environ.update(COLUMNS=columns)
    listed = re.sub(r"^  -h, --help .*\n?", "", text.getvalue(), flags=re.MULTILINE)
    return listed.rstrip().removesuffix("options:").rstrip()


def pages() -> list[pathlib.Path]:
    """Pages whose examples must run. Notes are left out: their commands name evidence of the past."""
    found = [ROOT / "README.md"]
    for part in ("guide", "reference", "method"):
        found += sorted((ROOT / "docs" / part).glob("*.md"))
    return [page for page in found if page != COMMANDS]


def examples() -> Iterator[Example]:
    """Every command line of a code block, and in the README also every code span with one."""
    for page in pages():
        fenced = ""
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            if line.startswith("```"):
                fenced = "" if fenced else line[3:] or "text"
                continue
            in_block = fenced in ("text", "sh") or line.startswith("    ")
            code = [line] if in_block else re.findall(r"`([^`]*)`", line) if page.name == "README.md" else []
            for text in code:
                for part in text.removeprefix("$ ").split("&&"):
                    if (words := shlex.split(part, comments=True)) and words[0] == "linkscope" and len(words) > 1:
                        yield Example(str(page.relative_to(ROOT)), number, words[1:])


def placeholder(example: Example) -> bool:
    """Whether the example is a pattern instead of a command: it has a word such as VERB, FILE or an ellipsis."""
    return any(re.fullmatch(r"[A-Z]{2,}|.*[…\[\]<>|].*|RUN|FILE", word) and "->" not in word for word in example.words)


def arguments(example: Example) -> list[str]:
    """The example's words as they can be run: a run is planned on a modelled machine instead of measured."""
    words = [str(ROOT / word) if word.startswith(("results/", "examples/")) else word for word in example.words]
    # The substitutes of other examples stay: a fit or a baseline goes to a file of its own.
    new = [word for before, word in itertools.pairwise(words) if before in ("-o", "--save-baseline")]
    if words[0] in ("model", "check"):
        words = [f"made-{word}" if word in new else word for word in words]
    if words[0] == "check" and "--machine" not in words:
        words += ["--machine", "h200x1"]
    if words[0] == "tune":
        words += [] if "--plan-only" in words else ["--plan-only"]
    if words[0] != "run":
        return words
    words += [] if "--machine" in words else ["--machine", "h200x2"]
    return words if "--plan-only" in words else [*words, "--plan-only"]


def lay_out(folder: pathlib.Path) -> None:
    """Puts the files that examples name into a folder."""
    for name, source in STAND_INS.items():
        content = source.read_bytes()
        (folder / name).write_bytes(gzip.decompress(content) if source.suffix == ".gz" else content)


def run_example(example: Example, folder: pathlib.Path) -> str:
    """Runs the example; returns what is wrong with it, or ''."""
    words = arguments(example)
    done = subprocess.run(
        [sys.executable, "-m", "linkscope", *words], cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    fine = {
        "compare": {0, 1},
        "doctor": {0, 1},
        "model": {0, 1},
        "check": {0, 1, 5},
        "tune": {0, 3},
        "site": {0, 1},
    }.get(words[0], {0})
    if PARTS.intersection(words):
        fine |= {3}  # the substitute run may lack data that a part of the report needs
    return "" if done.returncode in fine else f"{example}\n    exit code {done.returncode}: {done.stderr.strip()}"


def check_examples() -> None:
    """Runs all examples; ends the program when one does not run."""
    with tempfile.TemporaryDirectory() as folder:
        lay_out(pathlib.Path(folder))
        listed = [example for example in examples() if not placeholder(example)]
        distinct = {tuple(example.words): example for example in listed}
        wrong = [text for example in distinct.values() if (text := run_example(example, pathlib.Path(folder)))]
    if wrong:
        sys.exit("examples that do not run:\n" + "\n".join(wrong))
    print(f"{len(distinct)} example commands run")


def build_site() -> None:
    """Builds build/site; ends the program on a broken link."""
    shutil.rmtree(SITE, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", SITE], cwd=ROOT
    )
    if done.returncode:
        sys.exit("the documentation has broken links or other faults; they are named above")
    print(f"site: {SITE / 'index.html'}")


def main() -> None:
    chosen = sys.argv[1:] or ["commands", "examples", "site"]
    if unknown := set(chosen) - {"commands", "examples", "site"}:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}\n{__doc__}")
    if "commands" in chosen:
        COMMANDS.write_text(commands_page())
    if "examples" in chosen:
        check_examples()
    if "site" in chosen:
        build_site()


if __name__ == "__main__":
    main()
