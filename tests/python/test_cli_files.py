"""Files that a command cannot read: machine files and run files with one mistake."""

import gzip
from pathlib import Path

import pytest

from linkscope.cli.main import main
from linkscope.machine.model import bundled
from test_cli import POINT, RESULTS, error_output, fake_worker

__all__ = ["fake_worker"]  # a fixture

# A valid line of machines/ac922.toml, its replacement, and the parts of the message: key path and cure.
MACHINE_FILES = {
    "unknown key": ("lanes = 3\n", "lines = 3\n", ["bad.toml:35: link[0].lines", "did you mean 'lanes'"]),
    "link to nowhere": (
        '["gpu:2", "gpu:3"],',
        '["gpu:2", "gpu:9"],',
        ["link[0].between[5]", "no gpu:9", "gpu:0, gpu:1"],
    ),
    "negative rate": ("{ v = 64,", "{ v = -64,", ["bad.toml:53: link[1].gbps", "-64 is not above 0", "write what"]),
    "no unit": ("latency_us = { v = 0.5", "latency = { v = 0.5", ["link[0].latency", "did you mean 'latency_us'"]),
    "no TOML": ("[machine]\n", "[machine\n", ["not TOML", "line 5", "docs/reference/machine-file.md"]),
    "no machine": ("[machine]\n", "[something]\n", ["no table [machine]", "docs/reference/machine-file.md"]),
}


@pytest.mark.parametrize("what", MACHINE_FILES)
@pytest.mark.parametrize("verb", ["run", "machine"])
def test_a_bad_machine_file_is_named_with_key_and_cure(capsys, verb: str, what: str) -> None:
    good, bad, parts = MACHINE_FILES[what]
    text = bundled()["ac922"].read_text()
    assert good in text
    Path("bad.toml").write_text(text.replace(good, bad, 1))
    assert main([verb, "--machine", "bad.toml"]) == 2
    message = error_output(capsys)
    assert message.startswith("linkscope: bad.toml:") and all(part in message for part in parts)
    assert list(Path().iterdir()) == [Path("bad.toml")]


@pytest.mark.parametrize("path", ["bad.toml", "folder.toml", "folder/"])
def test_a_path_that_is_no_machine_file_is_refused(capsys, path: str) -> None:
    Path("bad.toml").write_bytes(b"\xff\xfe\0")
    Path("folder.toml").mkdir()
    Path("folder").mkdir()
    assert main(["run", "--machine", path]) == 2
    message = error_output(capsys)
    assert path.rstrip("/") in message and "name a .toml file" in message


@pytest.mark.parametrize("words", [
    ["report", "-o", "a.html"], ["report", "--markdown", "a.md"], ["report", "--list-figures"], ["export"],
    ["advise"], ["model", "-o", "a.toml"],
])  # fmt: skip
def test_a_truncated_run_file_is_read_with_a_warning(capsys, words: list[str]) -> None:
    content = gzip.decompress((RESULTS / "h200x1-quick.jsonl.gz").read_bytes())
    Path("a.jsonl").write_bytes(content.rstrip()[:-10])
    assert main([words[0], "a.jsonl", *words[1:]]) == 0
    message = capsys.readouterr().err
    assert message.startswith("linkscope: warning: a.jsonl: the last line") and message.count("warning:") == 1


def test_a_summary_of_a_truncated_run_contains_the_warning(capsys) -> None:
    content = gzip.decompress((RESULTS / "h200x1-quick.jsonl.gz").read_bytes())
    Path("a.jsonl").write_bytes(content.rstrip()[:-10])
    assert main(["report", "a.jsonl", "--summary"]) == 0
    out, err = capsys.readouterr()
    assert "is incomplete and was dropped" in " ".join(out.split()) and not err


# A change of a run file's lines, and the part of the message that names it.
RUN_FILES = {
    "torn in the middle": (lambda lines: [*lines[:4], lines[4][:60], *lines[5:]], "line 5: the line is damaged"),
    "of another schema": (lambda lines: [lines[0].replace(b'"schema":1', b'"schema":7'), *lines[1:]], "schema 7"),
    "binary": (lambda lines: [bytes(range(256))], "it is binary"),
    "empty": (lambda lines: [], "is empty"),
    "something else": (lambda lines: [b'{"a": 1}'], "its first line is not a run record"),
    "a plan of no points": (lambda lines: [lines[0].replace(b'["h2d/ce', b'["h2d ce')], "the plan in its first line"),
    "a seed of nothing": (lambda lines: [lines[0].replace(b'"seed":1', b'"seed":null')], "first line is damaged"),
}


@pytest.mark.parametrize("what", RUN_FILES)
def test_a_bad_run_file_is_refused_by_every_command_that_reads_it(capsys, what: str) -> None:
    damage, words = RUN_FILES[what]
    main(["run", "--machine", "h200x4", "--only", POINT, "-o", "a.jsonl", "--json"])
    lines = Path("a.jsonl").read_bytes().splitlines()
    Path("a.jsonl").write_bytes(b"\n".join(damage(lines)))
    before = Path("a.jsonl").read_bytes()
    assert before.splitlines() != lines
    capsys.readouterr()
    readers = [["run", "--resume", "a.jsonl"], ["report", "a.jsonl"], ["export", "a.jsonl"]]
    for command in readers[:1] if what.startswith("a ") else readers:
        assert main(command) == 2
        message = error_output(capsys)
        assert "a.jsonl" in message and words in message
        assert Path("a.jsonl").read_bytes() == before and list(Path().iterdir()) == [Path("a.jsonl")]
