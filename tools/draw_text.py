"""Draws a random sample of comments and docstrings, or of documentation sentences, for a reader to judge.

Usage: python tools/draw_text.py comments|docs --seed N --count 60

Each line is FILE:LINE: TEXT. docs/notes/plain-words.md holds the counts of the samples that were judged.
"""

import argparse
import ast
import io
import random
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
VENDORED = ("tests/core/doctest.h",)
LEAST_WORDS = 4  # outside of code: shorter texts are labels, numbers, ids or directives such as `# fmt: skip`
_WORD = re.compile(r"(?<!\S)[(\"']*[A-Za-z]{2,}[.,;:!?)\"']*(?!\S)")
_CPP = re.compile(r'"(?:\\.|[^"\\\n])*"|//[/!]?[ \t]?(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/', re.DOTALL)
_NO_SENTENCE = re.compile(r"\s*(\||#|<|```|!\[|$)|    ")  # table rows, headings, HTML, fences, code
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\[])")

Text = tuple[str, int, str]


def tracked(*patterns: str) -> list[str]:
    """The names of the files of the repository that match git's patterns."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split() if name not in VENDORED]


def of_python(name: str, source: str) -> Iterator[Text]:
    """Docstrings, and comments; consecutive comment lines are one text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (doc := ast.get_docstring(node)):
            yield name, node.body[0].lineno, doc
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from joined(
        name, ((at.start[0], at.string.lstrip("# "), at.line) for at in tokens if at.type == tokenize.COMMENT)
    )


def of_cpp(name: str, source: str) -> Iterator[Text]:
    """Comments of C++ and CUDA; consecutive comment lines are one text."""
    lines = source.splitlines()
    found = []
    for match in _CPP.finditer(source):
        text = match["line"] if match["line"] is not None else match["block"]
        if text is not None:
            at = source.count("\n", 0, match.start())
            found.append((at + 1, text.strip(), lines[at]))
    yield from joined(name, found)


def joined(name: str, comments: "Iterator[tuple[int, str, str]] | list[tuple[int, str, str]]") -> Iterator[Text]:
    """Joins comments on consecutive lines that hold nothing else."""
    first, last, words, whole = 0, 0, list[str](), False
    for line, text, of in comments:
        alone = of.lstrip().startswith(("#", "/", "*"))
        if words and not (whole and alone and line == last + 1):
            yield name, first, " ".join(words)
            words = []
        first, last, whole = (first if words else line), line, alone
        words.append(text)
    if words:
        yield name, first, " ".join(words)


def of_markdown(name: str, source: str) -> Iterator[Text]:
    """The sentences of paragraphs and lists, and the cells of tables."""
    fenced, start, paragraph = False, 0, list[str]()
    for number, line in enumerate([*source.splitlines(), ""], 1):
        fenced ^= line.lstrip().startswith("```")
        item = re.match(r"\s*([-*]|\d+\.) ", line)
        if paragraph and (fenced or item or _NO_SENTENCE.match(line)):
            yield from ((name, start, sentence) for sentence in _END.split(" ".join(paragraph)))
            paragraph = []
        if line.startswith("|") and not fenced:
            yield from ((name, number, cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        elif not fenced and not _NO_SENTENCE.match(line):
            start = start if paragraph else number
            paragraph.append(line.strip())


def comments() -> Iterator[Text]:
    """All comments and docstrings of core, src, tests, tools and cmake."""
    for name in tracked("*.py"):
        yield from of_python(name, (ROOT / name).read_text(encoding="utf-8"))
    for name in tracked("*.cpp", "*.hpp", "*.cu"):
        yield from of_cpp(name, (ROOT / name).read_text(encoding="utf-8"))


def documentation() -> Iterator[Text]:
    """All sentences and table cells of README, CONTRIBUTING and docs."""
    for name in tracked("README.md", "CONTRIBUTING.md", "docs/*.md"):
        yield from of_markdown(name, (ROOT / name).read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("comments", "docs"))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=60)
    arguments = parser.parse_args()
    texts = comments() if arguments.what == "comments" else documentation()
    long = [of for of in texts if len(_WORD.findall(of[2])) >= LEAST_WORDS]
    for name, line, text in sorted(random.Random(arguments.seed).sample(long, min(arguments.count, len(long)))):
        print(f"{name}:{line}: {' '.join(text.split())}")


if __name__ == "__main__":
    main()
