"""Loads one safetensors file to the first GPU with linkscope and with every other loader that is installed, in turns.

Usage: python tools/loader_bench.py [--gib 8] [--repeats 3] [--folder FOLDER] [-o FILE]

Known are safetensors, fastsafetensors, Run:ai's model streamer and InstantTensor. The file is in the page cache. Each
loader ends with all tensors in memory of their own, not in a buffer that is used again. They are compared once with the
file. Needs PyTorch. Prints a table and writes JSON.
"""

import argparse
import json
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

Tensors = dict[str, Any]
_ELEMENT_BYTES = 2  # float16


def linkscope(path: str) -> Tensors:
    import linkscope

    return linkscope.load_safetensors([path], device="cuda:0")


def safetensors(path: str) -> Tensors:
    from safetensors.torch import load_file

    return load_file(path, device="cuda:0")


def fastsafetensors(path: str) -> Tensors:
    import torch
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cuda:0"), nogds=True)
    loader.add_filenames({0: [path]})
    buffer = loader.copy_files_to_device()
    found = {name: buffer.get_tensor(name).clone() for name in loader.get_keys()}
    buffer.close()
    loader.close()
    return found


def runai(path: str) -> Tensors:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path)
        return {name: tensor.to("cuda:0") for name, tensor in streamer.get_tensors()}


def instanttensor(path: str) -> Tensors:
    from instanttensor import safe_open

    with safe_open([path], framework="pt", device=0) as file:
        return {name: tensor.clone() for name, tensor in file.tensors()}


LOADERS: dict[str, tuple[str, Callable[[str], Tensors]]] = {
    "linkscope": ("numpy", linkscope),
    "safetensors": ("safetensors", safetensors),
    "fastsafetensors": ("fastsafetensors", fastsafetensors),
    "Run:ai streamer": ("runai_model_streamer", runai),
    "InstantTensor": ("instanttensor", instanttensor),
}


def write_model(path: Path, nbytes: int) -> list[str]:
    """A file with layers of a usual shape, in float16. Returns the names of its tensors."""
    shapes = {"q": (4096, 4096), "k": (1024, 4096), "v": (1024, 4096), "up": (14336, 4096), "down": (4096, 14336)}
    header, at, layer = dict[str, Any](), 0, 0
    while at < nbytes:
        for name, shape in shapes.items():
            end = at + shape[0] * shape[1] * _ELEMENT_BYTES
            header[f"layer.{layer}.{name}"] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, end]}
            at = end
        layer += 1
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(1).integers(0, 1 << 14, 32 << 20, np.uint16)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number, one in enumerate(header.values()):
            start, end = one["data_offsets"]
            np.resize(np.roll(random, number), (end - start) // _ELEMENT_BYTES).tofile(file)
    return list(header)


def is_right(tensors: Tensors, names: list[str], path: Path) -> bool:
    """Whether all tensors are there with the values of the file."""
    import torch

    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        for name in names:
            start, end = header[name]["data_offsets"]
            file.seek(8 + length + start)
            wanted = torch.frombuffer(bytearray(file.read(end - start)), dtype=torch.float16)
            if name not in tensors or not torch.equal(tensors[name].flatten().cpu(), wanted):
                return False
    return set(tensors) == set(names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    import torch

    rows = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "model.safetensors"
        names = write_model(path, int(args.gib * (1 << 30)))
        nbytes, loaders = path.stat().st_size, {n: f for n, (module, f) in LOADERS.items() if find_spec(module)}
        seconds: dict[str, list[float]] = {name: [] for name in loaders}
        for turn in range(args.repeats + 1):  # the first is not timed: the tensors are compared
            for name, load in list(loaders.items()):
                torch.cuda.empty_cache()
                torch.cuda.synchronize()
                start = time.perf_counter()
                try:
                    tensors = load(str(path))
                    torch.cuda.synchronize()
                except Exception as error:  # whatever another package raises, the others go on
                    print(f"{name}: {type(error).__name__}: {str(error)[:200]}")
                    del loaders[name]
                    continue
                if turn:
                    seconds[name].append(time.perf_counter() - start)
                elif not is_right(tensors, names, path):
                    print(f"{name}: WRONG DATA")
                del tensors
        for name in loaders:
            middle = statistics.median(seconds[name])
            rows.append({"loader": name, "bytes": nbytes, "seconds": seconds[name], "gbps": nbytes / middle / 1e9})
            print(f"{name:16} {nbytes / 2**30:6.2f} GiB {middle:8.3f} s {nbytes / middle / 1e9:7.2f} GB/s", flush=True)
    if args.output:
        args.output.write_text(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
