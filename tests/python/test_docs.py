"""The documentation: its example commands are accepted, its links resolve, its length is bounded."""

import argparse
import importlib.util
import os
import re
import shlex
from pathlib import Path

import pytest

from linkscope.cli import main as command_line

ROOT = Path(__file__).parents[2]
PARTS = ("guide", "reference", "method", "notes")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(p for part in PARTS for p in (ROOT / "docs" / part).glob("*.md")),
]
RECORDS = [*(ROOT / "docs" / "notes").glob("*.md"), ROOT / "results" / "README.md"]

_spec = importlib.util.spec_from_file_location("docs_tool", ROOT / "tools" / "docs.py")
assert _spec is not None and _spec.loader is not None
tool = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tool)


def _words(*parts: str) -> int:
    """The number of words on all pages of the parts. The bars of a table do not count as words."""
    pages = [page for part in parts for page in (ROOT / "docs" / part).glob("*.md")]
    return sum(bool(re.search(r"\w", word)) for page in pages for word in page.read_text().split())


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_guide_reference_and_method_have_at_most_24000_words() -> None:
    assert _words("guide", "reference", "method") <= 24_000


def test_the_page_of_the_planner_has_at_most_2500_words() -> None:
    assert len((ROOT / "docs/method/planner.md").read_text().split()) <= 2_500


def test_the_readme_fits_on_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 650


def test_the_page_of_commands_equals_their_help() -> None:
    assert tool.COMMANDS.read_text() == tool.commands_page(), "run `.venv/bin/python tools/docs.py commands`"


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = set(re.findall(r"^(\w+/[\w-]+)$", (ROOT / "docs" / "index.md").read_text(), flags=re.M))
    for part in ("guide", "reference", "method"):
        assert {f"{part}/{page.stem}" for page in (ROOT / "docs" / part).glob("*.md")} <= listed


@pytest.mark.parametrize("page", PAGES + RECORDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            wrong.append(target)
    assert not wrong


@pytest.mark.parametrize("page", PAGES + RECORDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_run_file_that_a_page_names_is_in_results_or_said_to_be_in_the_history(page: Path) -> None:
    missing = []
    for paragraph in re.split(r"\n\n|\n(?=\| )", page.read_text()):
        named = re.findall(r"\bh[12]00x\d-[\w.-]+\.gz\b", paragraph)
        if not re.search(r"in\s+the\s+history|git (log|show)", paragraph):
            missing += [name for name in named if not (ROOT / "results" / name).exists()]
    assert not missing


@pytest.mark.parametrize("example", [e for e in tool.examples() if not tool.placeholder(e)], ids=str)
def test_every_example_command_is_accepted(example, tmp_path: Path) -> None:
    words = tool.arguments(example)
    module = command_line._module(command_line.ALIASES.get(words[0], words[0]))
    parser = argparse.ArgumentParser(exit_on_error=False)
    module.add_arguments(parser)
    parser.parse_args(words[1:])
    for word in example.words:
        if word.startswith(("results/", "examples/")):
            assert (ROOT / word).exists(), shlex.join(example.words)


@pytest.mark.parametrize("page", ["offload-a-kv-cache", "speed-up-your-own-copies", "speed-up-a-transfer"])
def test_the_advice_that_a_guide_prints_runs_as_printed(page: str, monkeypatch, capsys) -> None:
    commands = [one for one in tool.examples() if one.page.endswith(f"/{page}.md") and one.words[0] == "advise"]
    assert commands and not any(map(tool.placeholder, commands))
    monkeypatch.chdir(ROOT)
    for command in commands:
        assert command_line.main(command.words) == 0, str(command)
        assert capsys.readouterr().out


def test_an_example_that_does_not_run_is_named(tmp_path: Path) -> None:
    broken = tool.Example("docs/guide/x.md", 7, ["list", "no-such-benchmark"])
    assert "docs/guide/x.md:7: linkscope list no-such-benchmark" in tool.run_example(broken, tmp_path)
    assert tool.run_example(tool.Example("docs/guide/x.md", 8, ["list", "h2d"]), tmp_path) == ""
    assert os.listdir(tmp_path) == []
