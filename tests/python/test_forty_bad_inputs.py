"""Forty more bad inputs over all commands: damaged files, other formats, full disks, closed pipes, impossible values.

Each ends with its exit code and the words that name the reason, without a traceback, and no file changes.
"""

import gzip
import io
import json
import os
from pathlib import Path

import pytest

from fake_driver import needs_worker
from linkscope.cli.main import VERBS, main

ROOT = Path(__file__).parents[2]
RUN = ROOT / "results" / "h200x1-quick.jsonl.gz"
MODEL = ROOT / "machines" / "h200x2.toml"
pytestmark = needs_worker

FINE, WRONG, MISSING = 0, 2, 3
PATH = "--machine h200x2 --src gpu:0 --dst gpu:1"
HOST = "--machine h200x2 --src numa:0 --dst gpu:0"
TRANSFER = "--src numa:0 --dst gpu:0"
# The command line, its exit code, and words of the message. "> full" and "> closed" replace standard output.
BAD = [
    # files that hold no run, or half of one
    ("report noheader.jsonl --summary", WRONG, "its first line is not a run record"),
    ("compare good.jsonl later.jsonl", WRONG, "has schema 99"),
    ("export twice.jsonl", WRONG, "a second run starts here"),
    ("merge good.jsonl good.jsonl -o all.jsonl", WRONG, "both have"),
    ("site --check nowhere.jsonl", WRONG, "nowhere.jsonl does not exist"),
    ("advise binary.jsonl.gz", WRONG, "it is binary"),
    ("report cut.jsonl.gz --summary", WRONG, "cut off before its first line"),
    ("model nothing.jsonl.gz", WRONG, "nothing.jsonl.gz is empty"),
    ("export middle.jsonl -o points.csv", WRONG, "its 1 intact lines: `cat middle.jsonl | head -n 1"),
    ("report id.jsonl -o -", WRONG, "does not have the form benchmark/engine"),
    ("advise places.jsonl", WRONG, "the first line is damaged"),
    ("run --resume plan.jsonl", WRONG, "the first line is damaged"),
    ("model headeronly.jsonl", WRONG, "so there is nothing to fit"),
    ("compare good.jsonl headeronly.jsonl", WRONG, "there is nothing to compare"),
    ("report loop.jsonl", WRONG, "Too many levels of symbolic links"),
    ("explain good.jsonl --against good.jsonl", WRONG, "this is not valid JSON"),
    ("flow --preset ring --bytes 64XB --machine h200x4", WRONG, "this is not a size"),
    ("tune --budget soon", WRONG, "write a time above zero, such as 120s"),
    # machine files
    ("machine --machine text.toml", WRONG, "cpus: it must be a whole number, but the file has text in quotes"),
    ("machine --machine nan.toml", WRONG, "nan is not above 0"),
    ("run --machine twice.toml --plan-only", WRONG, "Cannot overwrite a value"),
    ("machine --machine bare.toml", WRONG, "numa: it is missing"),
    ("machine --machine places.toml", WRONG, "is there twice"),
    ("predict --machine good.jsonl --src gpu:0 --dst gpu:1", WRONG, "this is a run file, but a machine file is needed"),
    ("machine --machine good.json", WRONG, "not a saved probe"),
    # outputs
    ("run h2d --machine h200x2 --sizes 8 -o notes.txt", WRONG, "It holds no run"),
    ("export good.jsonl -o hidden", WRONG, "would be overwritten"),
    ("export good.jsonl -o /dev/full", WRONG, "No space left on device"),
    ("doctor > full", WRONG, "the output cannot be written: No space left on device"),
    ("list > closed", FINE, ""),
    ("report good.jsonl --markdown=", WRONG, "--markdown has an empty value"),
    ("run h2d --machine h200x2 -o x.jsonl --report -", WRONG, "standard output holds the summary"),
    ("machine --save x.json --json", WRONG, "leave out --json"),
    ("model good.jsonl -o - --json", WRONG, "leave out --json and --check"),
    # numbers, sizes and places
    ("run h2d --machine h200x2 --sizes 1e400", WRONG, "--sizes 1e400"),
    ("run h2d --machine h200x2 --sizes \u0664", WRONG, "--sizes \u0664"),
    ("run h2d --machine h200x2 --rounds \u0663", WRONG, "a whole number from 1 to 1000"),
    ("run h2d --machine h200x2 --memory pinned,,pageable", WRONG, "a name is empty"),
    (f"predict {PATH} --bytes 1e400", WRONG, "this is not a size"),
    (f"predict {PATH} --bytes 1e30", WRONG, "write sizes of at most 1 TiB"),
    ("predict --machine h200x2 --src gpu:0 --dst gpu", WRONG, "gpu: this is not a place"),
    (f"predict {PATH} --with gpu:1->gpu:0->gpu:1", WRONG, "a second arrow"),
    (f"predict {HOST} --threads 1e9", WRONG, "--threads 1e9: write a whole number"),
    (f"advise good.jsonl {TRANSFER} --bytes nan", WRONG, "this is not a size"),
    ("advise good.jsonl --src gpu:0 --dst gpu:\u0661 --bytes 8", WRONG, "this is not a place"),
    ("compare good.jsonl good.jsonl --margin inf%", WRONG, "between 0 % and 100 %"),
    ("model good.jsonl --seed -1", WRONG, "--seed -1: write a whole number"),
    ("check --machine h200x4 --budget 0s", WRONG, "write a time above zero"),
    ("check --machine h200x4 --against .", WRONG, "is a directory"),
    ("selftest --jobs 1e9", WRONG, "a whole number from 1 to 64"),
    ("selftest --here --only enqueue", MISSING, "matches no row"),
    # words
    ("list [!", WRONG, "unknown benchmark"),
    ("list h2d --source nvbandwidth", WRONG, "leave out h2d"),
    ("run h2d --resume good.jsonl", WRONG, "leave out the names of benchmarks"),
    ("doctor now", WRONG, "unrecognized arguments: now"),
    ("report good.jsonl --summary --shared", WRONG, "not allowed with"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good run and the bad files."""
    made = tmp_path_factory.mktemp("forty")
    lines = [line for line in gzip.decompress(RUN.read_bytes()).splitlines(True) if b'"round",' not in line[:20]]
    head, model = json.loads(lines[0]), MODEL.read_text()
    whole, rest = b"".join(lines), b"".join(lines[1:])

    def headed(**changes: object) -> bytes:
        return json.dumps(head | changes).encode() + b"\n" + rest

    first = model.index("cpus = ")
    line = model[first : model.index("\n", first)]
    value = model[model.index("v = ") :].split()[2].rstrip(",")
    places = model[model.index("places = [") : model.index("]", model.index("places = ["))]
    files: dict[str, bytes | str] = {
        "good.jsonl": whole, "hidden": whole, "good.json": whole, "noheader.jsonl": rest,
        "later.jsonl": headed(schema=99), "twice.jsonl": whole + whole,
        "binary.jsonl.gz": gzip.compress(bytes(range(256))), "cut.jsonl.gz": RUN.read_bytes()[:12],
        "nothing.jsonl.gz": gzip.compress(b""), "middle.jsonl": lines[0] + lines[1][:50] + b"\n" + rest,
        "id.jsonl": lines[0] + lines[1].replace(b'"id":"', b'"id":"?', 1) + rest,
        "places.jsonl": headed(machine=head["machine"] | {"places": 7}),
        "plan.jsonl": headed(plan=head["plan"] | {"classes": 5}), "headeronly.jsonl": lines[0],
        "text.toml": model.replace(line, 'cpus = "many"', 1), "nan.toml": model.replace(f"v = {value}", "v = nan", 1),
        "twice.toml": model.replace("[machine]", '[machine]\nname = "a"\nname = "b"', 1),
        "bare.toml": '[machine]\nname = "x"\ntitle = "x"\n',
        "places.toml": model.replace(places, places + ', "numa:0"', 1),
        "notes.txt": "notes",
    }  # fmt: skip
    for name, content in files.items():
        (made / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (made / "loop.jsonl").symlink_to("loop.jsonl")
    return made


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _output(kind: str) -> io.TextIOWrapper:
    """Standard output on a full disk, or a pipe whose reader has gone."""
    if kind == "full":
        return open("/dev/full", "w", encoding="utf-8")
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w", encoding="utf-8")


@pytest.mark.parametrize(("command", "code", "words"), BAD, ids=[command for command, _, _ in BAD])
def test_a_bad_input_gets_its_reason_and_changes_no_file(
    command: str,
    code: int,
    words: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    before = _content(folder)
    line, _, kind = command.partition(" > ")
    if kind:
        with _output(kind) as output, monkeypatch.context() as replaced:
            replaced.setattr("sys.stdout", output)
            assert main(line.split()) == code
    else:
        assert main(line.split()) == code
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said
    assert said.startswith("linkscope: ") or code == FINE
    assert _content(folder) == before


def test_forty_inputs_cover_every_command() -> None:
    assert len(BAD) >= 40 and {command.split()[0] for command, _, _ in BAD} == set(VERBS)


def test_an_interrupted_command_exits_with_4(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.chdir(folder)
    monkeypatch.setattr("linkscope.report.html.page", interrupted)
    before = _content(folder)
    assert main(["report", "good.jsonl", "-o", "page.html"]) == 4
    assert capsys.readouterr().err == "linkscope: stopped\n" and _content(folder) == before
