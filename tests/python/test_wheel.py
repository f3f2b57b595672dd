"""`pip install .`: the wheel contains the worker and the machines, fits every Python 3, and runs where installed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from campaign import LONG

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    # The build of the tests is up to date, so nothing is compiled again. `make test-long` compiles the wheel too.
    build = folder / "build" if LONG else ROOT / "build" / "dev"
    command += [f"--config-settings=build-dir={build}", f"--config-settings=cmake.define.LINKSCOPE_TESTS={not LONG}"]
    command.append(str(ROOT))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_contains_the_worker_the_library_every_machine_and_the_bundled_summary(wheel) -> None:
    assert "-py3-none-" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "linkscope/_native/linkscope-worker" in names
    headers = {"linkscope/_native/linkscope.h", "linkscope/_native/linkscope_device.hpp"}
    assert {"linkscope/_native/liblinkscope.so", *headers} <= names
    machines = {f"linkscope/_native/machines/{path.name}" for path in (ROOT / "machines").glob("*.toml")}
    assert machines and machines <= names
    assert "linkscope/check/bundled.toml" in names
    assert {name.rpartition("/")[2] for name in names if "/licenses/" in name} == {
        "LICENSE", "LICENSE-CUB", "LICENSE-UPLOT",
    }  # fmt: skip
    assert {"linkscope/report/vendor/uplot.js", "linkscope/report/vendor/uplot.css"} <= names
    assert wheel.stat().st_size < 25e6


def test_the_installed_package_measures(wheel, tmp_path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(tmp_path)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = [sys.executable, "-m", "linkscope", "run", "--machine", "h200x1", "--suite", "quick"]
    run += ["--only", "h2d/*pinned*", "-o", "a.jsonl"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "a.jsonl").stat().st_size > 0
