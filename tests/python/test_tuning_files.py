"""A tuning file that is damaged, foreign, stale or hostile is ignored with its reason, and no copy is wrong."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_driver import needs_fake
from test_transfer import LIBRARY, python
from test_transfer_tuning import WRITE

pytestmark = [
    needs_fake,
    pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it"),
]

# Loads each file in turn, copies with its knobs, and prints whether it is in use, why not, and whether all knobs are
# the defaults.
LOAD = """
import json, os
METHODS = ("ring_to_gpu", "ring_to_host", "ring_to_fresh", "within_gpu", "write_file", "read_cold", "packed_to_gpu")
def knobs():
    return [[getattr(native.knobs(one, size), name) for name, _ in native.Knobs._fields_]
            for one in METHODS for size in (64 << 10, 1 << 20, 256 << 20)] + [native.block_knobs(True, 4096)]
def load(path):
    os.environ["LINKSCOPE_TRANSFER_TUNING"] = path
    native.close()
    return native.tuning()
load("none")
usual, found = knobs(), {}
for path in json.loads(PATHS):
    file, note = load(path)
    for size in (65 << 10, 3 << 20):
        host, on_gpu = (np.arange(size) % 251).astype(np.uint8), Array(size)
        linkscope.copy(on_gpu, host, stream=STREAM)
        driver.ok("cuStreamSynchronize", c_void_p(STREAM))
        back = np.zeros(size, np.uint8)
        linkscope.copy(back, on_gpu, stream=STREAM)
        assert np.array_equal(back, host) and np.array_equal(linkscope.to_cpu(on_gpu), host), path
    found[path] = (file, note, knobs() == usual)
print(json.dumps(found))
"""


def loaded(*paths: Path) -> dict[str, tuple[str, str, bool]]:
    """What the library says of each file, by name."""
    names = json.dumps([str(path) for path in paths])
    code = f"PATHS = {names!r}\n{LOAD}"
    found = json.loads(python(code, transfer_tuning="none"))
    return {Path(path).name: tuple(facts) for path, facts in found.items()}


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> str:
    """A tuning file of the fake machine, in which some knobs are not the defaults."""
    file = tmp_path_factory.mktemp("tuning") / "good"
    python(WRITE + f"native.save_tuning({str(file)!r})", transfer_tuning="none")
    return file.read_text()


def first(old: str, by: str) -> Callable[[str], str]:
    def changed(text: str) -> str:
        assert old in text
        return text.replace(old, by, 1)

    return changed


BAD: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda text: "", ":1: the file ends too early"),
    "JSON": (lambda text: json.dumps({"copies": {"ring_to_gpu": {"threads": 8}}}), ":1: not a tuning file"),
    "broken JSON": (lambda text: '{"threads": ', ":1: not a tuning file"),
    "binary": (lambda text: "\0\1\2\n" * 99, ":1: not a tuning file"),
    "future": (first("format 1", "format 2"), ":1: another format than this version's"),
    "Windows": (lambda text: text.replace("\n", "\r\n"), ":1: another format"),
    "other GPU": (first("fingerprint: ", "fingerprint: Another GPU, "), ":2: made for another machine or version"),
    "other driver": (first("driver 1", "driver 2"), ":2: made for another machine or version"),
    "other CPUs": (lambda text: re.sub(r", \d+ CPUs", ", 777 CPUs", text), "777 CPUs"),
    "other methods": (lambda text: re.sub(r"methods \d+-", "methods 1-", text), ":2: made for another machine"),
    "truncated": (lambda text: text[: len(text) // 2], "the file is ignored"),
    "without an end": (first("\nend\n", "\n"), "the file ends too early"),
    "word for a number": (first("threads 1 ", "threads many "), ":4: 'many' is not a number"),
    "fraction": (first("threads 1 ", "threads 1.5 "), ":4: '1.5' is not a number"),
    "negative": (first("threads 1 ", "threads -1 "), ":4: '-1' is not a number"),
    "too many threads": (first("threads 1 ", "threads 4294967295 "), ":4: a method has 1 to 1024 threads"),
    "wrapped threads": (first("threads 1 ", "threads 4294967297 "), ":4: 'threads' is too large"),
    "no depth": (first("depth 1 ", "depth 0 "), ":4: a method has 1 to 1024 threads and a depth"),
    "no chunk": (first("chunk 4194304", "chunk 0"), ":4: a method has chunks of at least 1 byte"),
    "NUL": (first("threads 1 ", "threads 1\0 "), ":4: '1"),
    "huge": (lambda text: text + "x" * (1 << 20), "huge is not a tuning file"),
}


def test_bad_files_are_ignored_with_their_line_and_reason_and_copies_are_right(good: str, tmp_path) -> None:
    paths = []
    for name, (change, _) in BAD.items():
        path = tmp_path / name
        path.write_bytes(change(good).encode())
        paths.append(path)
    found = loaded(*paths)
    for name, (_, reason) in BAD.items():
        file, note, usual = found[name]
        assert file == "" and usual, f"{name}: {note}"
        assert reason in note and str(tmp_path / name) in note and "run `linkscope tune`" in note, f"{name}: {note}"


def test_what_is_no_file_is_ignored(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "unreadable").symlink_to("/proc/self/mem")  # a regular file whose first byte cannot be read
    names = ("folder", "pipe", "endless", "loop", "unreadable", "absent")
    found = loaded(*(tmp_path / name for name in names))
    for name in names:
        file, note, usual = found[name]
        assert file == "" and usual and str(tmp_path / name) in note, f"{name}: {note}"
    assert "is not a tuning file" in found["folder"][1] and "does not exist" in found["absent"][1]


def test_knobs_at_their_bounds_and_files_with_few_lines_copy_rightly(good: str, tmp_path) -> None:
    def bounds(text: str) -> str:
        text = re.sub(r" chunk \d+", " chunk 999999999999999999", text)
        return re.sub(r"(ring_to_\w+ from \d+) plain", r"\1 ring", re.sub(r" depth \d+", " depth 1024", text))

    cases = {
        "large": bounds(good),
        "small": first("chunk 4194304", "chunk 1")(good),
        "odd pieces": good.replace(" piece 262144", " piece 4097"),
        "few": "\n".join([*good.splitlines()[:4], "end\n"]),
        "long": first("made: ", "made: " + "x" * 100_000)(good),
    }
    for name, text in cases.items():
        (tmp_path / name).write_text(text)
    for name, (file, note, _) in loaded(*(tmp_path / name for name in cases)).items():
        assert file == str(tmp_path / name), f"{name}: {note}"


def test_a_damaged_file_in_the_cache_directory_is_replaced_by_the_next_tuning(good: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    written = Path(python(WRITE + "print(native.save_tuning())").strip())
    written.write_text(good.replace("threads", "thraeds"))
    show = "print(*native.tuning(), sep='|')"
    file, note = python(show).strip().split("|")
    assert file == "" and f"{written}:4: 'threads' is missing" in note
    python(WRITE + "native.save_tuning()", transfer_tuning="none")
    assert python(show).strip().split("|")[0] == str(written)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this process has one CPU")
def test_a_process_with_fewer_cpus_ignores_the_file_of_all(tmp_path) -> None:
    file = tmp_path / "mine.tuning"
    python(WRITE + f"native.save_tuning({str(file)!r})", transfer_tuning="none")
    bound = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(*native.tuning(), sep='|')"
    used, note = python(bound, transfer_tuning=str(file)).strip().split("|")
    assert used == "" and ":2: made for another machine or version" in note


def test_a_tuning_that_cannot_be_written_leaves_nothing(tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    code = f"""
try: native.save_tuning({str(tmp_path / "folder")!r})
except native.TransferError as error: print(error)
"""
    assert "cannot be written" in python(code, transfer_tuning="none")
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]
