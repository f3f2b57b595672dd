"""Mistakes of users over all commands: each ends with its exit code and a sentence, and changes no file."""

import gzip
import os
from pathlib import Path

import pytest

from fake_driver import needs_worker
from linkscope.cli.main import main

ROOT = Path(__file__).parents[2]
RUN = ROOT / "results" / "h200x1-standard-f.jsonl.gz"
pytestmark = needs_worker

WRONG, MISSING = 2, 3
# The command line, its exit code, and words that the sentence must hold. Files are those of `folder` below.
MISTAKES = [
    ("rnu", WRONG, "did you mean run?"),
    ("explain nosuch.json", WRONG, "nosuch.json"),
    ("flow numa:0=>gpu:0 --machine h200x1", WRONG, "=>"),
    ("flow --preset whirl --machine h200x1", WRONG, "whirl"),
    ("flow numa:0->gpu:7 --machine h200x1", MISSING, "gpu:7"),
    ("tune --paths nowhere", WRONG, "'nowhere' is not a path"),
    ("help rum", WRONG, "did you mean run?"),
    ("run --machine h200x9", WRONG, "did you mean h200x"),
    ("run --machine nosuch.toml", WRONG, "nosuch.toml"),
    ("run --machine empty.jsonl", WRONG, "empty.jsonl"),
    ("run --machine .", WRONG, "machine '.'"),
    ("run --machine h200x2 --suite standart", WRONG, "did you mean standard?"),
    ("run --sizs 4KiB", WRONG, "did you mean --sizes?"),
    ("run h3d --machine h200x2", WRONG, "did you mean h2d?"),
    ("run h2d --machine h200x2 --dst gpu:9", MISSING, "gpu:9: not on h200x2"),
    ("run h2d --machine h200x2 --dst gpu-1", WRONG, "Write numa:0 or gpu:1"),
    ("run h2d --machine h200x2 --src host", WRONG, "this is not a place. Write numa:0 or gpu:1; host memory is numa:0"),
    ("run h2d --machine h200x2 --memory pined", WRONG, "did you mean pinned?"),
    ("run h2d --machine h200x2 --src gpu:0 --dst gpu:0", MISSING, "has no such point"),
    ("run h2d --machine h200x2 --sizes 1GiB:4KiB", WRONG, "smaller end first"),
    ("run h2d --machine h200x2 --sizes -5", WRONG, "--sizes"),
    ("run h2d --machine h200x2 --sizes 0", WRONG, "--sizes 0"),
    ("run h2d --machine h200x2 --sizes 4KiX", WRONG, "--sizes 4KiX"),
    ("run h2d --machine h200x2 --sizes 2000000TiB", WRONG, "1 TiB"),
    ("run --machine h200x2 --only h2d/xy/numa:0.pinned->gpu:0.device/8", WRONG, "no engine xy"),
    ("run --machine h200x2 --only h2d/ce/numa:0.pinned->gpu:0.device/8?mode=fast", WRONG, "batched or single"),
    ("run --machine h200x2 --only h2d/ce/numa:0.pinned->gpu:0.device/eight", WRONG, "'eight' is not a size"),
    ("run --machine h200x2 --only *nothing*", MISSING, "matches no point"),
    ("run --machine h200x2 --precision 0.5", WRONG, "such as 0.5%"),
    ("run --machine h200x2 --precision 200%", WRONG, "between 0 % and 100 %"),
    ("run --machine h200x2 --precision nan", WRONG, "such as 0.5%"),
    ("run --machine h200x2 --budget soon", WRONG, "write a time, such as 120s"),
    ("run --machine h200x2 --rounds 0", WRONG, "--rounds 0"),
    ("run --machine h200x2 --rounds 99999999999999999999", WRONG, "--rounds"),
    ("run --machine h200x2 --seed -1", WRONG, "--seed"),
    ("run --machine h200x2 --rule mine", WRONG, "--rule mine"),
    ("run --machine h200x2 -o good.jsonl", WRONG, "good.jsonl exists"),
    ("run --machine h200x2 -o .", WRONG, "directory"),
    ("run --machine h200x2 -o no/such/run.jsonl", WRONG, "no/such/run.jsonl"),
    ("run --machine h200x2 --report good.jsonl", WRONG, "would be overwritten"),
    ("run --machine h200x2 --report no/page.html", WRONG, "no/page.html"),
    ("run --resume good.jsonl --suite quick", WRONG, "leave out --suite"),
    ("run --resume nosuch.jsonl", WRONG, "nosuch.jsonl"),
    ("run --trace good.jsonl --machine h200x2", WRONG, "good.jsonl"),
    ("run h2d --trace training.trace --machine h200x2", WRONG, "leave out the names of benchmarks"),
    ("run -v -q --machine h200x2", WRONG, "not allowed with"),
    ("report .", WRONG, "directory"),
    ("report nosuch.jsonl", WRONG, "nosuch.jsonl"),
    ("report empty.jsonl", WRONG, "empty.jsonl"),
    ("report picture.png", WRONG, "picture.png"),
    ("report torn.jsonl.gz --summary", WRONG, "torn.jsonl.gz"),
    ("report good.jsonl -o good.jsonl", WRONG, "run file"),
    ("report good.jsonl --markdown other.jsonl", WRONG, "would be overwritten"),
    ("report good.jsonl --figure nosuch -o x.svg", MISSING, "no such figure"),
    ("report good.jsonl --figure machine -o x.gif", WRONG, "FILE.svg or -o FILE.png"),
    ("report good.jsonl --summary=long", WRONG, "invalid choice"),
    ("report good.jsonl --comm-scope", MISSING, "--rule comm-scope"),
    ("report good.jsonl other.jsonl --summary", WRONG, "one run"),
    ("compare good.jsonl", WRONG, "two runs"),
    ("compare good.jsonl other.jsonl --margin 2", WRONG, "such as 2%"),
    ("compare good.jsonl other.jsonl -o changes.png", WRONG, ".svg"),
    ("export good.jsonl -o points.xlsx", WRONG, "no format has the ending .xlsx"),
    ("export good.jsonl --format xml", WRONG, "invalid choice"),
    ("export good.jsonl --format parquet", WRONG, "-o FILE.parquet"),
    ("export good.jsonl -o other.jsonl --format csv", WRONG, "would be overwritten"),
    ("export good.jsonl -o no/points.csv", WRONG, "no/points.csv"),
    ("site nowhere", WRONG, "nowhere does not exist"),
    ("model good.jsonl -o mine.json", WRONG, ".toml"),
    ("model picture.png", WRONG, "picture.png"),
    ("predict --machine h200x2 --src numa:0 --dst gpu:9", MISSING, "gpu:9"),
    ("predict --machine h200x2 --src numa:0 --dst gpu:0 --bytes 64XB", WRONG, "this is not a size"),
    ("predict --machine auto --src numa:0 --dst gpu:0", WRONG, "needs a model"),
    ("advise good.jsonl --src numa:0", WRONG, "give all three"),
    ("advise good.jsonl --src numa:0 --dst gpu:0 --bytes 0", WRONG, "--bytes 0"),
    ("advise good.jsonl --src numa:0 --dst gpu:5 --bytes 1MiB", MISSING, "gpu:5"),
    ("machine --machine nosuch", WRONG, "nosuch"),
    ("machine --save good.jsonl", WRONG, "would be overwritten"),
    ("merge good.jsonl -o all.jsonl", WRONG, "two run files or more"),
    ("list h3d", WRONG, "h2d"),
    ("list --source nosuch", WRONG, "nosuch"),
    ("selftest --only nosuch", MISSING, "nosuch"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two measured runs, an empty file, a picture, a torn archive and a trace."""
    made = tmp_path_factory.mktemp("mistakes")
    content = gzip.decompress(RUN.read_bytes())
    for name in ("good.jsonl", "other.jsonl"):
        (made / name).write_bytes(content)
    (made / "empty.jsonl").write_bytes(b"")
    (made / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    (made / "torn.jsonl.gz").write_bytes(RUN.read_bytes()[:1000])
    (made / "training.trace").write_text("numa:0 -> gpu:0 4MiB x 2\n")
    return made


@pytest.mark.parametrize(("command", "code", "words"), MISTAKES, ids=[command for command, _, _ in MISTAKES])
def test_a_mistake_gets_a_sentence_and_changes_no_file(
    command: str,
    code: int,
    words: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(command.split()) == code
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said and said.startswith("linkscope: ")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_at_least_forty_mistakes_cover_all_commands() -> None:
    from linkscope.cli.main import VERBS

    assert len(MISTAKES) >= 40
    assert {command.split()[0] for command, _, _ in MISTAKES} >= set(VERBS) - {"doctor", "check"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_without_permission_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(folder / "good.jsonl"), "-o", "/proc/points.csv"]) == WRONG
    assert "cannot be written" in capsys.readouterr().err
