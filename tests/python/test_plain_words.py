"""The dialect that words.md replaced must not come back: no banned phrase in any text that ships.

The scan covers prose, `--help`, messages, comments, docstrings, test names and identifiers of every tracked file. Names
of the contract stay (`limit_gbps`, `timing: virtual`, memory kinds): the phrases below match none.
"""

import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Not scanned: measured results, pictures, the licence, vendored code, the history of changes and this list of phrases.
SKIPPED = ("results/", "CHANGELOG.md", "LICENSE", "tests/core/doctest.h", f"tests/python/{Path(__file__).name}")

# Names that stay, removed from a line before the scan.
ALLOWED = re.compile(
    r"both_ways_(gbps|us)"  # keys of the machine file
    r"|\.dear(_s|_kept)?\b|\bdear(_s|_kept)?(=|: (int|float))|`dear(_s|_kept)?`"  # fields of the run file
)

# Phrase of the dialect: what to write instead.
BANNED = {
    r"(taken|takes?|took|taking) over\b": "inherited",
    r"\btakeovers?\b": "inherited points",
    r"\bboth ways\b": "bidirectional",
    r"\bone way\b(?! (to|of)\b)": "unidirectional",
    r"\bdear(er|est)?\b": "expensive",
    r"\bif nothing else is said\b": "default",
    r"\bhardly any difference\b": "state the difference",
    r"\bto do otherwise\b": "recommendation",
    r"\bwhat stands out\b": "anomalies",
    r"\bwhat went wrong\b": "status",
    r"\bthe middle one\b": "median",
    r"\bnine of ten\b": "p90",
    r"\b(is|are|was|were|be) told\b": "say the subject: 'the report says', 'the file states'",
    r"\btold (by|of|apart|from|here|with)\b": "name the source, or 'predicted by'",
    r"\btells (of|what|how|that|whether|apart|nothing|which|whose)\b": "'states', 'shows', 'reports'",
    r"\bnot told\b": "missed precision, or not stated",
    r"\bby threads\b": "by SM",
    r"\bbulk copies\b": "TMA",
    r"\bof limit\b": "% of peak",
    r"\bof its limit\b": "% of peak",
    r"\bcopy alone\b|\bcopies alone\b": "single copy",
    r"\bpaths at once\b": "concurrent flows",
    r"\bwhat paths share\b": "shared links",
    r"\bhow many times as\b": "ratio, or speed-up",
    r"\btimes as (fast|long|much)\b": "×, or speed-up",
    r"\bstage by hand\b": "staging",
    r"\bto and fro\b": "ping-pong",
    r"\bno \w+ (more|longer) than they\b": "no negated riddles",
    r"\bits likes?\b|\btheir likes\b|\bpoints like (it|them)\b|\bof its like\b": "members of the same class",
    r"\bat once, by\b": "concurrently",
    r"\bin the end,": "leave it out",
    r"\b(whoever|whosoever)\b": "name the actor",
    r"\bfrom .{1,12} on(wards)?\b(?! (to|the|a|an|one|this|its|each|every|all|other|both|any|GPU|CPU|NUMA|hardware|your|disk|of)\b)(?=[ ,.;)])": (  # noqa: E501
        "'of 6 or more', 'at least'"
    ),
    r"\bso many (bytes|rounds|sizes|seconds|times|of)\b": "give the number its name",
    r"\bis asked for\b.{0,20}\bis asked\b": "say who requests what",
    r"\bodd (path|one|out|link)s?\b": "outlier, or slow path",
    r"\b(way|ways) of (one|a) (copy|transfer)\b": "method",
    r"\bkind of way\b": "path",
}


@functools.cache
def _texts() -> dict[str, str]:
    """Return the text of every file that git tracks, by its name, as the scan reads it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and not name.startswith(SKIPPED)]
    contents = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    texts = {name: data.decode("utf-8", "replace") for name, data in contents.items() if b"\0" not in data}
    # Names of tests and identifiers are text too. A search in small letters takes half the time of one in any letters.
    return {name: ALLOWED.sub("", text).replace("_", " ").lower() for name, text in texts.items()}


@functools.cache
def _all_text() -> str:
    """All texts in one: a phrase never spans lines."""
    return "\n".join(_texts().values())


@pytest.mark.parametrize("phrase", BANNED)
def test_no_shipped_text_uses_a_banned_phrase(phrase: str) -> None:
    pattern = re.compile(phrase.lower())
    found = []
    for name, text in _texts().items() if pattern.search(_all_text()) else ():
        for number, line in enumerate(text.split("\n"), start=1):
            if pattern.search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert not found, f"write instead: {BANNED[phrase]}\n" + "\n".join(found)
