"""`pip install .`: the wheel contains the worker and the machines, fits every Python 3, and runs where installed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from campaign import LONG
from fake_driver import environment, needs_fake

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


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    return folder


# The one line of a user each: to the GPU, back, and a model; and the same without a GPU.
USE = """
import numpy as np, linkscope
assert linkscope.__file__.startswith(INSTALLED), linkscope.__file__
import fake_torch, torch
model = torch.Tensor(np.random.default_rng(1).standard_normal(500_000))
linkscope.save_safetensors({"weight": model}, "model.safetensors")
assert np.array_equal(linkscope.load_safetensors("model.safetensors")["weight"], model.array)
copied = np.empty_like(model.array)
linkscope.copy(copied, model)
assert np.array_equal(copied, model.array)
"""
USE_GPU = """
from fake_gpu import *
on_gpu = torch.empty(model.shape, "float64", "cuda:0")
linkscope.copy(on_gpu, model)
assert np.array_equal(linkscope.to_cpu(on_gpu).array, model.array)
loaded = linkscope.load_safetensors("model.safetensors", "cuda:0")["weight"]
assert loaded.device.type == "cuda" and np.array_equal(linkscope.to_cpu(loaded).array, model.array)
linkscope.save_safetensors({"weight": on_gpu}, "again.safetensors")
assert open("again.safetensors", "rb").read() == open("model.safetensors", "rb").read()
from linkscope import native
print("by", native.count("ring_to_gpu"), native.why_no_gpu())
"""
WITHOUT = """
assert linkscope.to_cpu(copied) is copied
try: linkscope.copy(copied, model, stream=4096)
except ValueError as error: print(error)
"""


@pytest.mark.parametrize(
    ("library", "code", "told"),
    [
        pytest.param("driver", USE + USE_GPU, "by 1", marks=needs_fake),
        ("broken", USE + WITHOUT, "a copy on a stream needs a GPU"),
    ],
    ids=["with a GPU", "without a GPU"],
)
def test_the_wheel_and_one_line_are_all_that_copies_and_models_need(installed, tmp_path, library, code, told) -> None:
    path = {"PYTHONPATH": os.pathsep.join([str(installed), str(ROOT / "tests" / "python")])}
    done = subprocess.run(
        [sys.executable, "-c", code.replace("INSTALLED", repr(str(installed)))],
        cwd=tmp_path, env=environment(library) | path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert told in done.stdout


def test_the_installed_package_measures(installed, tmp_path) -> None:
    here = {**os.environ, "PYTHONPATH": str(installed)}
    run = [sys.executable, "-m", "linkscope", "run", "--machine", "h200x1", "--suite", "quick"]
    run += ["--only", "h2d/*pinned*", "-o", "a.jsonl"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, env=here)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "a.jsonl").stat().st_size > 0
