"""The code in the guides of the transfer library runs as printed, on the fake driver and a stand-in for PyTorch."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import linkscope
from fake_driver import ROOT, environment, needs_fake
from linkscope.cli.main import main
from test_transfer import LIBRARY

pytestmark = [
    needs_fake,
    pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it"),
]

# PyTorch's form of empty(); memory that is pinned is so for the driver, too.
PRELUDE = """
import numpy as np, fake_torch
from fake_gpu import *
pinned = []
def empty(*shape, dtype, device="cpu", pin_memory=False, make=fake_torch.empty):
    made = make(shape[0] if len(shape) == 1 else shape, dtype, device)
    if pin_memory:
        import linkscope
        pinned.append(linkscope.register(made.array))
    return made
fake_torch.module.empty = empty
def values_of(tensor): return linkscope.to_cpu(tensor).array
"""
TENSORS = {"layer.0": np.arange(70_000, dtype="float32"), "layer.1": np.arange(300_000, dtype="float32").reshape(3, -1)}


def text_of(page: str) -> str:
    return (ROOT / "docs" / "guide" / f"{page}.md").read_text()


def blocks(page: str) -> list[str]:
    """The blocks of Python, without their indentation. Those of commands begin with the program's name."""
    found = re.findall(r"(?<=\n\n)((?: {4}\S.*\n)(?: {4}.*\n)*)", text_of(page))
    return [re.sub(r"^ {4}", "", one, flags=re.M) for one in found if not one.startswith("    linkscope ")]


def spans(page: str, start: str) -> list[str]:
    """The spans of code that begin so."""
    return re.findall(rf"`({re.escape(start)}[^`]*)`", text_of(page))


def run(code: str, folder: Path) -> str:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests" / "python")])
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], env=environment() | {"PYTHONPATH": path},
                          cwd=folder, capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, code + done.stderr
    return done.stdout


def test_the_guide_to_loading_a_model_runs(tmp_path) -> None:
    (block,) = blocks("load-a-model")
    for number, (name, one) in enumerate(TENSORS.items(), 1):
        linkscope.save_safetensors({name: one}, tmp_path / f"model-{number}.safetensors")
    (progress,), (checksums,) = spans("load-a-model", "progress="), spans("load-a-model", "checksums=")
    by_name, on_cpu = spans("load-a-model", "device=")
    (found,) = spans("load-a-model", "found = ")
    printed = run(
        f"""
class model:
    @staticmethod
    def load_state_dict(tensors, assign):
        model.tensors = tensors
        assert assign
{block}
values = {{name: values_of(one) for name, one in model.tensors.items()}}
assert np.array_equal(values["layer.0"], np.arange(70_000)) and values["layer.1"].shape == (3, 100_000)
paths = ["model-1.safetensors", "model-2.safetensors"]
linkscope.load_safetensors(paths, "cuda", {progress})
{found}
linkscope.load_safetensors(paths, "cuda", {checksums})
assert set(found) == {{"layer.0", "layer.1"}}
spread = linkscope.load_safetensors(paths, {by_name})
assert {{name: one.device.index for name, one in spread.items()}} == {{"layer.0": 0, "layer.1": 1}}
assert linkscope.load_safetensors(paths, {on_cpu})["layer.0"].device.type == "cpu"
assert isinstance(linkscope.load_safetensors(paths)["layer.0"], np.ndarray)
""",
        tmp_path,
    )
    assert printed.splitlines()[-1] == "100%"


def test_the_guide_to_a_kv_cache_runs(tmp_path) -> None:
    block = "\n".join(blocks("offload-a-kv-cache"))
    run(
        f"""
pages, page_bytes, stream = 100, 4096, STREAM
values = np.random.default_rng(1).integers(0, 255, (pages, page_bytes), dtype=np.uint8)
start, sent, cache_now = empty, [], []
def empty_with_values(*shape, device="cpu", **more):
    made = start(*shape, device=device, **more)
    if device == "cuda":
        import linkscope
        linkscope.copy(made, values, stream=STREAM)
    return made
fake_torch.module.empty = empty_with_values
import linkscope
copy_blocks = linkscope.copy_blocks
def watched(*words):
    copy_blocks(*words)
    driver.ok("cuStreamSynchronize", c_void_p(STREAM))
    sent.append(store.array[:3].copy())
    cache_now.append(values_of(cache))
    if len(sent) == 1:  # so that bringing back changes pages
        linkscope.copy(cache, np.zeros_like(values), stream=STREAM)
linkscope.copy_blocks = watched
{block}
assert np.array_equal(sent[0], values[[7, 3, 90]])
assert np.array_equal(cache_now[1][[7, 3, 90]], values[[7, 3, 90]]) and not cache_now[1][8].any()
""",
        tmp_path,
    )


def test_the_guide_to_saving_a_checkpoint_runs(tmp_path) -> None:
    (block,) = blocks("save-a-checkpoint")
    save, read = spans("save-a-checkpoint", "linkscope.save_file("), spans("save-a-checkpoint", "linkscope.read_file(")
    run(
        f"""
import linkscope
on_gpu = empty(3_000_000, dtype=fake_torch.module.uint8, device="cuda")
data = (np.arange(3_000_000) % 251).astype(np.uint8)
linkscope.copy(on_gpu, data)
class model:
    @staticmethod
    def state_dict(): return {{"weights": on_gpu, "step": np.array([7])}}
{block}
assert counts.direct + counts.buffered > 3_000_000 and counts.uring <= counts.direct
assert counts.uring_refused >= 0
loaded = linkscope.load_safetensors("step-7.safetensors")
assert np.array_equal(loaded["weights"], data) and loaded["step"] == [7]
path, array, offset = "raw", on_gpu, 0
{save[0]}
array = np.zeros(3_000_000, np.uint8)
result = {read[0]}
assert np.array_equal(array, data)
names = ("cached", "direct", "buffered", "uring", "cufile", "mapped", "uring_refused")
print(*(getattr(result, name) for name in names))
""",
        tmp_path,
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == ["raw", "step-7.safetensors"]


def test_the_first_lines_of_the_guide_to_copies_run(tmp_path) -> None:
    first = blocks("speed-up-your-own-copies")[0]
    run(
        f"""
numpy_array = np.arange(500_000, dtype="float32")
gpu_tensor = empty(500_000, dtype=fake_torch.module.float32, device="cuda")
{first}
assert np.array_equal(array.array, numpy_array)
""",
        tmp_path,
    )


@pytest.mark.parametrize("page", ["offload-a-kv-cache", "speed-up-your-own-copies"])
def test_the_tunings_that_a_guide_prints_have_a_plan(page: str, tmp_path) -> None:
    """The measurements take two minutes; test_tune_command.py makes short ones."""
    text = text_of(page)
    printed = dict.fromkeys(re.findall(r"(?:`|^ {4})linkscope (tune(?: --(?:paths|budget) \S+?)*)(?=`|$)", text, re.M))
    assert printed
    for words in printed:
        command = [sys.executable, "-m", "linkscope", *words.split(), "--plan-only"]
        env = environment() | {"PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and " classes in at most " in done.stdout, done.stderr


def test_the_other_commands_of_these_guides_exist(tmp_path, capsys) -> None:
    """test_file_copies.py runs the first one on the fake driver. The tool needs PyTorch and a GPU."""
    (command,) = spans("save-a-checkpoint", "linkscope run")
    assert main([*command.replace("DIR", str(tmp_path)).split()[1:], "--machine", "h200x1"]) == 2
    assert "is a model, whose disks have no directories" in capsys.readouterr().err
    (tool,) = re.findall(r"`python (tools/\w+\.py)", text_of("load-a-model"))
    assert (ROOT / tool).is_file()
