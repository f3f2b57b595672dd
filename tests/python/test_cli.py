"""The command line: good commands, and one clear sentence with the right exit code for every bad one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import FAKE_WORKER, H2D, header
from linkscope.cli.main import VERBS, main
from linkscope.runfile import RunWriter, read_run

POINT = H2D.format(4096, "false", "batched")


@pytest.fixture(autouse=True)
def fake_worker(monkeypatch, tmp_path):
    monkeypatch.setenv("LINKSCOPE_WORKER", " ".join(FAKE_WORKER))
    monkeypatch.chdir(tmp_path)


def linkscope(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "linkscope", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def said(capsys) -> str:
    message = capsys.readouterr().err
    assert message.startswith("linkscope: ") and message.count("\n") == 1 and "Traceback" not in message
    return message


@pytest.mark.parametrize("verb", [*VERBS, "topo", ""])
def test_help_teaches_without_heavy_imports(verb: str) -> None:
    program = (
        "import sys, linkscope.cli.main as m\n"
        "try: m.main([*sys.argv[1:], '--help'])\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'numpy', 'rich', 'msgspec', 'jinja2', 'pynvml'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *([verb] if verb else [])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "linkscope" in done.stdout and len(done.stdout.splitlines()) > 5


def test_run_measures_and_says_where(capsys) -> None:
    assert main(["run", "--machine", "h200x4", "--only", "d2h/*pinned/4096?*", "-o", "a.jsonl", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    run = read_run(outcome["run"])
    assert outcome["complete"] and len(run.points) == sum(outcome["counts"].values()) > 0
    assert run.modelled and run.header.environment == {} and run.header.machine["name"] == "h200x4"
    assert run.header.machine["model"]["machine"]["name"] == "h200x4"
    assert all(found.limit_gbps and found.limit_source for found in run.points)


def test_a_modelled_run_holds_nothing_of_this_computer(capsys) -> None:
    main(["run", "--machine", "h200x4", "--only", POINT, "-o", "a.jsonl", "--json"])
    text = Path("a.jsonl").read_text()
    for fact in (os.uname().nodename, sys.version.split()[0], str(Path.cwd()), str(Path(__file__).parents[2])):
        assert fact not in text


def test_two_runs_of_one_seed_are_one_file_but_for_when(capsys) -> None:
    files = []
    for name in ("a", "b"):
        main(
            [
                "run",
                "--machine",
                "h200x4",
                "--suite",
                "quick",
                "--only",
                "d2h/*",
                "-o",
                f"{name}.jsonl",
                "--seed",
                "5",
                "--json",
            ]
        )
        lines = [json.loads(line) for line in Path(f"{name}.jsonl").read_text().splitlines()]
        lines[0].pop("started")
        lines[-1].pop("wall_s")
        files.append(lines)
    assert files[0] == files[1]


def test_default_output_is_named_after_the_machine(capsys) -> None:
    assert main(["run", "--machine", "h200x4", "--only", POINT, "--json"]) == 0
    assert len(list(Path().glob("linkscope-h200x4-*.jsonl"))) == 1


def test_plan_only_measures_nothing(capsys) -> None:
    assert main(["run", "--machine", "h200x4", "--suite", "quick", "--plan-only", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["suite"] == "quick" and all(one["expected_s"] > 0 for one in made["points"])
    assert main(["run", "--machine", "h200x4", "--suite", "quick", "--plan-only"]) == 0
    assert f"{len(made['points'])} points in 6 rounds" in capsys.readouterr().out
    assert list(Path().iterdir()) == []


def test_a_failed_point_is_exit_code_1(capsys, monkeypatch) -> None:
    monkeypatch.setattr("linkscope.run.assemble.LIMIT_MARGIN", -1.0)
    assert main(["run", "--machine", "h200x4", "--only", POINT, "-o", "a.jsonl", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"] == {"failed": 1}


def test_resume_of_what_is_complete_does_nothing(capsys) -> None:
    main(["run", "--machine", "h200x4", "--only", POINT, "-o", "a.jsonl", "--json"])
    before = Path("a.jsonl").read_bytes()
    assert main(["run", "--resume", "a.jsonl"]) == 0
    assert "is complete" in capsys.readouterr().err and Path("a.jsonl").read_bytes() == before


def test_resume_goes_on_with_the_model_in_the_file(capsys) -> None:
    main(["run", "--machine", "h200x4", "--suite", "quick", "--only", "d2h/*", "-o", "a.jsonl", "--json"])
    whole = {found.id: found for found in read_run("a.jsonl").points}
    lines = Path("a.jsonl").read_text().splitlines(keepends=True)
    Path("a.jsonl").write_text("".join(lines[:30]) + lines[30][:50])
    capsys.readouterr()
    assert main(["run", "--resume", "a.jsonl", "--json"]) == 0
    assert "torn" in capsys.readouterr().err
    run = read_run("a.jsonl")
    assert {found.id: found for found in run.points} == whole
    assert run.end is not None and run.end.complete and len(run.resumes) == 1


@pytest.mark.parametrize(
    "words, code, names",
    [
        ([], 2, None),
        (["measure"], 2, "measure"),
        (["run", "--suit", "quick", "--bogus"], 2, "--bogus"),
        (["run", "--machine", "h200x99"], 3, "h200x99"),
        (["run", "--machine", "nowhere.toml"], 3, "nowhere.toml"),
        (["run", "--machine", "probe.json"], 3, "probe.json"),
        (["run", "--machine", "h200x4", "--suite", "thorough"], 2, "thorough"),
        (["run", "--machine", "h200x4", "--only", "*gpu:7*"], 3, "gpu:7"),
        (["run", "--machine", "h200x4", "--only", "x2y/*"], 2, "x2y/*"),
        (["run", "--machine", "h200x4", "--precision", "-3%"], 2, "-3%"),
        (["run", "--machine", "h200x4", "--precision=-3%"], 2, "-3%"),
        (["run", "--precision", "fine"], 2, "fine"),
        (["run", "--budget", "soon"], 2, "soon"),
        (["run", "--budget", "0s"], 2, "0s"),
        (["run", "--rounds", "0"], 2, "--rounds 0"),
        (["run", "--rounds", "six"], 2, "six"),
        (["run", "--seed", "x"], 2, "--seed x"),
        (["run", "--machine", "h200x4", "-o", "no/such/a.jsonl"], 2, "no/such/a.jsonl"),
        (["run", "--machine", "h200x4", "-o", "."], 2, "directory"),
        (["run", "--machine", "h200x4", "-o", "a.jsonl.gz"], 2, "a.jsonl.gz"),
        (["run", "--machine", "h200x4", "-o", "there.jsonl"], 2, "there.jsonl"),
        (["run", "--machine", "h200x4", "--report", "no/such/a.html"], 2, "no/such/a.html"),
        (["run", "--resume", "none.jsonl"], 2, "none.jsonl"),
        (["run", "--resume", "empty.jsonl"], 2, "is empty"),
        (["run", "--resume", "there.jsonl"], 2, "damaged"),
        (["run", "--resume", "there.jsonl", "--suite", "quick"], 2, "--suite"),
        (["export", "binary.jsonl"], 2, "binary"),
        (["export", "."], 2, "directory"),
        (["report", "none.jsonl"], 2, "none.jsonl"),
        (["report"], 2, "RUN.jsonl"),
        (["list", "cars"], 2, "cars"),
        (["machine", "--machine", "h200x99"], 3, "h200x99"),
    ],
)
def test_a_bad_command_gets_one_sentence(capsys, words: list[str], code: int, names: str | None) -> None:
    RunWriter.create("there.jsonl", header()).close()
    Path("empty.jsonl").touch()
    Path("binary.jsonl").write_bytes(bytes(range(256)))
    before = sorted(path.name for path in Path().iterdir())
    assert main(words) == code
    if names is not None:
        assert names in said(capsys)
    assert sorted(path.name for path in Path().iterdir()) == before


def test_an_output_that_cannot_be_written_is_found_before_a_worker_starts(capsys, monkeypatch) -> None:
    monkeypatch.setattr("linkscope.run.supervisor.Supervisor.carry_out", lambda self: pytest.fail("it measured"))
    assert main(["run", "--machine", "h200x4", "-o", "no/a.jsonl"]) == 2
    assert main(["run", "--machine", "h200x4", "-o", "/dev/full"]) == 2


def test_a_worker_that_is_not_there(capsys, monkeypatch) -> None:
    monkeypatch.setenv("LINKSCOPE_WORKER", "/nowhere/worker")
    assert main(["list"]) == 2
    assert "/nowhere/worker" in said(capsys)


def test_list_has_what_the_contract_says(capsys) -> None:
    for what in ([], ["suites"], ["machines"]):
        assert main(["list", *what, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert rows and all({"name", "summary", "source"} <= row.keys() for row in rows)
        assert main(["list", *what]) == 0
        text = capsys.readouterr().out
        assert all(row["name"] in text and row["summary"] in text for row in rows)


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m linkscope run --machine h200x4 --plan-only | head -1",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "" and "numa:0" in done.stdout


def test_version() -> None:
    assert linkscope("--version").stdout.startswith("linkscope 0.")
