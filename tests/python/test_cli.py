"""The command line: good commands, and one clear sentence with the right exit code for every bad one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fakes import FAKE_WORKER, H2D, header
from linkscope.cli.main import VERBS, main
from linkscope.report.outcome import run_text
from linkscope.run import benchmark_table
from linkscope.runfile import RunWriter, read_run
from linkscope.units import format_bytes

RESULTS = Path(__file__).resolve().parents[2] / "results"
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


def error_output(capsys) -> str:
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


def test_reading_a_run_hardly_starts_the_garbage_collector() -> None:
    words = ["report", str(RESULTS / "h200x1-standard-a.jsonl.gz"), "--summary", "short"]
    code = "import gc; from linkscope.cli.main import main; main({}); print(gc.get_stats()[1]['collections'])"
    done = subprocess.run([sys.executable, "-c", code.format(words)], capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) <= 3  # of middle-aged objects: 9 with the thresholds of Python


def test_run_measures_and_prints_the_path_of_the_run(capsys) -> None:
    assert main(["run", "--machine", "h200x4", "--only", "d2h/*pinned/4096?*", "-o", "a.jsonl", "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    run = read_run(outcome["run"])
    assert outcome["complete"] and len(run.points) == sum(outcome["counts"].values()) > 0
    assert run.modelled and run.header.environment == {} and run.header.machine["name"] == "h200x4"
    assert run.header.machine["model"]["machine"]["name"] == "h200x4"
    assert all(found.limit_gbps and found.limit_source for found in run.points)


def test_a_simulated_run_contains_nothing_of_this_computer(capsys) -> None:
    main(["run", "--machine", "h200x4", "--only", POINT, "-o", "a.jsonl", "--json"])
    text = Path("a.jsonl").read_text()
    for fact in (os.uname().nodename, sys.version.split()[0], str(Path.cwd()), str(Path(__file__).parents[2])):
        assert fact not in text


def test_two_runs_with_one_seed_differ_only_in_their_times(capsys) -> None:
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
    text = capsys.readouterr().out
    assert f"{len(made['points'])} points; seconds cover three rounds" in text
    assert re.search(r"^host, .* → NVIDIA", text, re.MULTILINE)
    listed = [line for line in text.splitlines() if line.endswith(tuple(one["id"] for one in made["points"]))]
    assert len(listed) == len(made["points"]) and len({line.index("  ", 8) for line in listed}) == 1  # aligned
    assert list(Path().iterdir()) == []


def test_a_failed_point_gives_exit_code_1(capsys, monkeypatch) -> None:
    monkeypatch.setattr("linkscope.run.assemble.LIMIT_MARGIN", -1.0)
    assert main(["run", "--machine", "h200x4", "--only", POINT, "-o", "a.jsonl", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"] == {"failed": 1}


def test_resume_of_a_complete_run_does_nothing(capsys) -> None:
    main(["run", "--machine", "h200x4", "--only", POINT, "-o", "a.jsonl", "--json"])
    before = Path("a.jsonl").read_bytes()
    assert main(["run", "--resume", "a.jsonl"]) == 0
    assert "is complete" in capsys.readouterr().err and Path("a.jsonl").read_bytes() == before
    assert main(["run", "--resume", "a.jsonl", "--json", "--report", "a.html"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"ok": 1} and "<html" in Path("a.html").read_text()
    assert Path("a.jsonl").read_bytes() == before


def test_resume_continues_with_the_model_in_the_file(capsys) -> None:
    main(["run", "--machine", "h200x4", "--suite", "quick", "--only", "d2h/*", "-o", "a.jsonl", "--json"])
    complete = {found.id: found for found in read_run("a.jsonl").points}
    lines = Path("a.jsonl").read_text().splitlines(keepends=True)
    Path("a.jsonl").write_text("".join(lines[:30]) + lines[30][:50])
    capsys.readouterr()
    assert main(["run", "--resume", "a.jsonl", "--json"]) == 0
    error_output = capsys.readouterr()
    run = read_run("a.jsonl")
    assert "incomplete" in error_output.err and json.loads(error_output.out)["wall_s"] == pytest.approx(
        run.wall_s, abs=0.002
    )
    assert "modelled time, simulated in at least" in run_text(run)  # the cut-off part has no time
    assert {found.id: found for found in run.points} == complete
    assert run.end is not None and run.end.complete and len(run.resumes) == 1


def test_a_budget_too_small_to_resume_is_refused_and_leaves_the_run_unchanged(capsys) -> None:
    main(["run", "--machine", "h200x4", "--suite", "quick", "-o", "a.jsonl", "--json"])
    lines = Path("a.jsonl").read_text().splitlines(keepends=True)
    cut = "".join(lines[: 2 * len(lines) // 3])
    Path("a.jsonl").write_text(cut)
    spent = sum(json.loads(line)["device_s"] for line in cut.splitlines() if '"record":"round"' in line)
    capsys.readouterr()
    assert main(["run", "--resume", "a.jsonl", "--budget", "1s"]) == 2
    assert "is too small" in capsys.readouterr().err
    plan = json.loads(lines[0])["plan"]
    few = lines[0].replace(json.dumps(plan["classes"], separators=(",", ":")), "[]")  # a plan that fits any budget
    Path("b.jsonl").write_text(few + cut.partition("\n")[2])
    assert main(["run", "--resume", "b.jsonl", "--budget", f"{0.9 * spent:.3f}s"]) == 2
    assert "covers the whole run, and b.jsonl has already spent" in capsys.readouterr().err
    assert Path("a.jsonl").read_text() == cut
    assert main(["run", "--resume", "a.jsonl", "--budget", "30s"]) == 0 and read_run("a.jsonl").end.complete


@pytest.mark.parametrize(
    "words, code, names",
    [
        ([], 2, None),
        (["measure"], 2, "measure"),
        (["run", "--suit", "quick", "--bogus"], 2, "--bogus"),
        (["run", "--machine", "h200x99"], 2, "h200x99"),
        (["run", "--machine", "nowhere.toml"], 2, "nowhere.toml"),
        (["run", "--machine", "probe.json"], 2, "probe.json"),
        (["run", "--machine", "h200x4", "--suite", "thorough"], 2, "thorough"),
        (["run", "--machine", "h200x4", "--only", "*gpu:7*"], 3, "gpu:7"),
        (["run", "--machine", "h200x4", "--only", "x2y/*"], 3, "x2y/*"),
        (["run", "--machine", ""], 2, "--machine has an empty value"),
        (["run", "--machine", "h200x4", "--only", "d2h/*", "--only", ""], 2, "--only has an empty value"),
        (["run", "--seed", "9" * 30], 2, "to 9223372036854775807"),
        (["run", "--rounds", "1001"], 2, "--rounds 1001"),
        (["run", "--budget", "1e400s"], 2, "1e400s"),
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
        (["run", "--machine", "h200x4", "-o", "x" * 300], 2, "too long"),
        (["run", "--machine", "h200x4", "--report", "x" * 300], 2, "too long"),
        (["run", "--machine", "h200x4", "--report", "there.jsonl"], 2, "there.jsonl: this is a run file"),
        (["run", "--machine", "h200x4", "--report", "a.html", "-o", "a.html"], 2, "a.html: this is a run file"),
        (["report", "there.jsonl", "-o", "there.jsonl"], 2, "there.jsonl: this is a run file"),
        (["export", "there.jsonl", "-o", "./there.jsonl"], 2, "there.jsonl: this is a run file"),
        (["report", "there.jsonl", "-o", "/dev/full"], 2, "/dev/full"),
        (["export", "there.jsonl", "-o", "no/a.csv"], 2, "no/a.csv"),
        (["run", "--machine", "h200x4", "-o", "a.jsonl.gz"], 2, "a.jsonl.gz"),
        (["run", "--machine", "h200x4", "-o", "there.jsonl"], 2, "there.jsonl"),
        (["run", "--machine", "h200x4", "--report", "no/such/a.html"], 2, "no/such/a.html"),
        (["run", "--resume", "none.jsonl"], 2, "none.jsonl"),
        (["run", "--resume", "empty.jsonl"], 2, "is empty"),
        (["run", "--resume", "there.jsonl"], 2, "damaged"),
        (["run", "--resume", "there.jsonl", "--suite", "quick"], 2, "--suite"),
        (["run", "--resume", "there.jsonl", "--plan-only"], 2, "--plan-only"),
        (["run", "--resume", ""], 2, "--resume has an empty value"),
        (["export", "binary.jsonl"], 2, "binary"),
        (["export", "."], 2, "directory"),
        (["report", "none.jsonl"], 2, "none.jsonl"),
        (["report"], 2, "RUN.jsonl"),
        (["list", "cars"], 2, "cars"),
        (["machine", "--machine", "h200x99"], 2, "h200x99"),
    ],
)
def test_a_bad_command_gets_one_sentence(capsys, words: list[str], code: int, names: str | None) -> None:
    RunWriter.create("there.jsonl", header()).close()
    Path("empty.jsonl").touch()
    Path("binary.jsonl").write_bytes(bytes(range(256)))
    before = sorted(path.name for path in Path().iterdir())
    assert main(words) == code
    if names is not None:
        assert names in error_output(capsys)
    assert sorted(path.name for path in Path().iterdir()) == before


def test_a_size_beyond_the_memory_is_unsupported_and_names_the_place(capsys, monkeypatch) -> None:
    monkeypatch.delenv("LINKSCOPE_WORKER")
    for bytes, place in ((1 << 37, None), (3 << 37, "gpu:0"), (1 << 40, "numa:0")):
        id = f"h2d/ce/numa:0.pinned->gpu:0.device/{bytes}?after=kernel&bidirectional=false&mode=batched"
        words = ["run", "--machine", "h200x4", "--only", id, "--rounds", "1", "-o", "a.jsonl", "--force"]
        assert main(words) == (3 if place else 0)
        found = read_run("a.jsonl").points[0]
        if place:
            assert found.status == "unsupported"
            assert f"{place} has " in found.reason and format_bytes(bytes) in found.reason
            assert found.reason.split(";")[0] in capsys.readouterr().out.replace("\n  ", " ")
        else:
            assert found.median_s is not None


def test_an_output_that_cannot_be_written_is_found_before_a_worker_starts(capsys, monkeypatch) -> None:
    monkeypatch.setattr("linkscope.run.supervisor.Supervisor.carry_out", lambda self: pytest.fail("it measured"))
    assert main(["run", "--machine", "h200x4", "-o", "no/a.jsonl"]) == 2
    assert main(["run", "--machine", "h200x4", "-o", "/dev/full"]) == 2


def test_a_report_that_cannot_be_written_does_not_lose_the_run(capsys) -> None:
    command = ["run", "--machine", "h200x4", "--only", POINT, "-o", "a.jsonl", "--json", "--report", "/dev/full"]
    assert main(command) == 2
    assert "/dev/full" in error_output(capsys) and read_run("a.jsonl").end.complete


def test_unwritable_standard_output_gets_one_sentence() -> None:
    for words in (["list"], ["run", "--machine", "h200x4", "--only", POINT, "-o", "a.jsonl"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([sys.executable, "-m", "linkscope", *words], stdout=full, stderr=-1, text=True)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "No space left" in done.stderr
    assert read_run("a.jsonl").end.complete


def test_a_missing_worker_is_reported(capsys, monkeypatch) -> None:
    monkeypatch.setenv("LINKSCOPE_WORKER", "/nowhere/worker")
    assert main(["list"]) == 2
    assert "/nowhere/worker" in error_output(capsys)


@pytest.mark.parametrize("command", ["false", "cat", "sh -c 'kill -9 $$'"])
def test_a_worker_that_does_not_start_is_reported(capsys, monkeypatch, command: str) -> None:
    monkeypatch.setenv("LINKSCOPE_WORKER", command)
    for words in (["list"], ["run", "--machine", "h200x4", "-o", "a.jsonl"]):
        assert main(words) == 2
        assert "does not work as linkscope's worker" in error_output(capsys)
    assert not Path("a.jsonl").exists()


def test_list_has_the_names_and_summaries_of_the_contract(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for what in ([], ["suites"], ["machines"]):
        assert main(["list", *what, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert rows and all({"name", "summary", "source"} <= row.keys() for row in rows)
        assert main(["list", *what]) == 0
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80
        words = " ".join(text.split())
        assert all(row["name"] in words and row["summary"] in words for row in rows)


def test_the_list_is_short_and_the_entry_of_one_benchmark_has_its_parameters(capsys, monkeypatch) -> None:
    table = benchmark_table()
    again = msgspec.structs.replace(table[0], params=(), source="another paper")  # other path classes have own rows
    monkeypatch.setattr("linkscope.run.benchmark_table", lambda: [*table, again])
    assert main(["list"]) == 0
    short = capsys.readouterr().out
    assert "mode = " not in short and "shows the parameters of" in short and short.count(table[0].summary) == 1
    entries = [line.split("  ")[0] for line in short.splitlines() if re.match(r"\w+ by \w+ ", line)]
    assert entries.count("h2d by ce") == 1 and len(entries) == len(set(entries))
    assert entries == list(dict.fromkeys(f"{row.name} by {row.engine}" for row in table))
    assert "[" not in short
    assert main(["list", "h2d"]) == 0
    one = capsys.readouterr().out
    assert "[a paper]" in one
    assert "mode = " in one and "h2d by ce" in one and "d2h by" not in one
    assert "memory: pageable, pinned, registered → device" in one
    assert main(["list", "h2d", "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == {"h2d"}
    assert main(["list", "?2h", "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == {"h2h", "d2h"}
    assert main(["list", "sp-10"]) == 2
    assert "sp-10 is a suite" in capsys.readouterr().err
    assert main(["list", "h2"]) == 2
    assert "did you mean h2h?" in capsys.readouterr().err


def test_a_reader_that_closes_the_pipe_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m linkscope run --machine h200x4 --plan-only | head -2",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == "" and "numa:0" in done.stdout


def test_version() -> None:
    assert linkscope("--version").stdout.startswith("linkscope 0.")


def test_a_terminal_without_box_characters_gets_the_rest() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-m", "linkscope", "machine", "--machine", "h200x2"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "" and "+- gpu:1  NVIDIA H200" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["advise", "--src", "numa:0", "--dst", "gpu:0", "--bytes", "8KiB"], r"[\d.]+ us \[.* x[\d.]+ \["),
        (["run", "--suite", "quick", "--plan-only"], r"host, .* -> NVIDIA"),
    ],
)
def test_a_terminal_of_ascii_gets_ascii_for_arrows_and_units(words: list[str], says: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "linkscope", *words, "--machine", "h200x2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "" and re.search(says, done.stdout)
    assert not re.search(r"(^|\s)\?|\?(\s|$)", done.stdout)  # an id has a ? before its parameters


def test_an_error_on_a_terminal_of_ascii_has_its_signs_in_ascii() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "linkscope", "a→b"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "unknown command 'a->b'" in done.stderr
