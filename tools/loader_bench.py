"""Loads one safetensors file to the first GPU with linkscope and with every other loader that is installed.

Usage: python tools/loader_bench.py [--gib 8] [--repeats 3] [--directory DIR]... [--loaders NAME...] [-o FILE]
       [--budget SECONDS]
       python tools/loader_bench.py --everything     (tmpfs, page cache, allocations; writes loaders.json)

Known are safetensors, fastsafetensors, Run:ai's model streamer and InstantTensor. The file is in the page cache, or in
memory if the directory is a tmpfs like /dev/shm. Each loader ends with all tensors in memory of their own. They are
compared once with the file. "pinned copy" is the ceiling: the same bytes, which are in pinned memory before, go to the
GPU by one call of PyTorch. Needs PyTorch. Prints a table, and compares linkscope with the best other loader and with
the ceiling. FILE is written after each call of a loader.

With a budget, each part (a directory with buffers new, or kept) has an equal share of the time that is left, and a
loader repeats while its slowest call so far still fits into that share. "from N calls" says how often it was timed.

"buffers new": loaders take turns, each with an empty cache of PyTorch and a new object of its package. "buffers kept":
what one loader allocated in a call before, which is not timed, serves the next calls, as far as its interface allows:
PyTorch's cache, the loader object of fastsafetensors, and the tensors of InstantTensor, whose ring belongs to one call.

The rows with "allocation" say where the time of new buffers goes: how long PyTorch takes to allocate the bytes in one
to 64 parts, on an idle GPU and beside copies of pinned memory, and how long these copies take alone and meanwhile.
"""

import argparse
import itertools
import json
import math
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

Tensors = dict[str, Any]
Load = Callable[[str], Tensors]
_ELEMENT_BYTES = 2  # float16


def linkscope(path: str) -> Tensors:
    import linkscope

    return linkscope.load_safetensors([path], device="cuda:0")


def safetensors(path: str) -> Tensors:
    from safetensors.torch import load_file

    return load_file(path, device="cuda:0")


class Fastsafetensors:
    """Without GDS. `keeps`: one loader with its pinned buffers serves all calls."""

    def __init__(self, keeps: bool) -> None:
        self._keeps, self._loader = keeps, None

    def __call__(self, path: str) -> Tensors:
        from fastsafetensors import SafeTensorsFileLoader, SingleGroup

        loader = self._loader or SafeTensorsFileLoader(SingleGroup(), "cuda:0", nogds=True)
        loader.reset()
        loader.add_filenames({0: [path]})
        files = loader.copy_files_to_device()
        found = {name: files.get_tensor(name) for name in loader.get_keys()}
        if not find_spec("fastsafetensors.allocation"):  # before 0.5 the tensors do not own their memory
            found = {name: tensor.clone() for name, tensor in found.items()}
        files.close()
        if self._keeps:
            self._loader = loader
        else:
            loader.close()
        return found


class InstantTensor:
    """Its tensors own their memory. `keeps`: they are copied to the tensors of the call before. `buffered`: through the
    page cache, which the default for files on a disk bypasses."""

    def __init__(self, keeps: bool, buffered: bool = False) -> None:
        self._keeps, self._buffered, self._kept = keeps, buffered, Tensors()

    def __call__(self, path: str) -> Tensors:
        import torch
        from instanttensor import BackendPolicy, safe_open

        how = {"backend": BackendPolicy.BUFFERED} if self._buffered else {}
        with safe_open([path], framework="pt", device=0, copy=not self._keeps, **how) as file:
            if not self._keeps:
                return dict(file.tensors())
            for name, tensor in file.tensors():
                if name not in self._kept:
                    self._kept[name] = torch.empty_like(tensor)
                self._kept[name].copy_(tensor)
            return dict(self._kept)


def runai(path: str) -> Tensors:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path)
        return {name: tensor.to("cuda:0") for name, tensor in streamer.get_tensors()}


@cache
def _pinned(path: str) -> Any:
    """The bytes of the file in pinned memory. `_pinned.cache_clear()` frees them."""
    import torch

    memory = torch.empty(Path(path).stat().st_size, dtype=torch.uint8, pin_memory=True)
    with Path(path).open("rb") as file:
        file.readinto(memoryview(memory.numpy()))  # type: ignore[attr-defined]
    return memory


class PinnedCopy:
    """What the hardware allows. `_pinned` runs before the first timed call."""

    def __init__(self, _: bool) -> None:
        pass

    def __call__(self, path: str) -> Tensors:
        import torch

        memory = _pinned(path)
        on_gpu = torch.empty(memory.numel(), dtype=torch.uint8, device="cuda:0")
        on_gpu.copy_(memory, non_blocking=True)
        # The data begins at a multiple of 8 bytes.
        return {name: on_gpu[start:end].view(torch.float16) for name, (start, end) in _ranges(Path(path)).items()}


@cache
def _ranges(path: Path) -> dict[str, tuple[int, int]]:
    """The first byte of each tensor in the file, and the one behind it."""
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    return {
        name: (8 + length + one["data_offsets"][0], 8 + length + one["data_offsets"][1]) for name, one in header.items()
    }


PINNED = "pinned copy"
LOADERS: dict[str, tuple[str, Callable[[bool], Load]]] = {
    PINNED: ("torch", PinnedCopy),
    "linkscope": ("numpy", lambda _: linkscope),
    "safetensors": ("safetensors", lambda _: safetensors),
    "fastsafetensors": ("fastsafetensors", Fastsafetensors),
    "Run:ai streamer": ("runai_model_streamer", lambda _: runai),
    "InstantTensor": ("instanttensor", InstantTensor),
    "InstantTensor, buffered": ("instanttensor", lambda keeps: InstantTensor(keeps, buffered=True)),
}


def write_model(path: Path, nbytes: int) -> None:
    """A file with layers of a usual shape, in float16; the last tensor is cut."""
    shapes = {"q": (4096, 4096), "k": (1024, 4096), "v": (1024, 4096), "up": (14336, 4096), "down": (4096, 14336)}
    header, at = dict[str, Any](), 0
    for number, (name, (rows, columns)) in enumerate(itertools.cycle(shapes.items())):
        if at >= nbytes:
            break
        row = columns * _ELEMENT_BYTES
        rows = min(rows, -(-(nbytes - at) // row))
        end = at + rows * row
        header[f"layer.{number // len(shapes)}.{name}"] = {
            "dtype": "F16", "shape": [rows, columns], "data_offsets": [at, end],
        }  # fmt: skip
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    counts = [(one["data_offsets"][1] - one["data_offsets"][0]) // _ELEMENT_BYTES for one in header.values()]
    random = np.random.default_rng(1).integers(0, 1 << 14, 32 << 20, np.uint16)
    values = np.resize(random, max(counts) + len(counts))
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for number, count in enumerate(counts):
            values[number : number + count].tofile(file)


def is_right(tensors: Tensors, path: Path) -> bool:
    """Whether all tensors are there with the values of the file."""
    import torch

    memory = _pinned(str(path))  # pinned, and compared on the GPU
    for name, (start, end) in _ranges(path).items():
        wanted = memory[start:end].view(torch.float16)
        if name not in tensors or not torch.equal(tensors[name].flatten(), wanted.to(tensors[name].device)):
            return False
    return set(tensors) == set(_ranges(path))


class Bench:
    """Times loaders of one file until `ends`, in `monotonic` time. One that raises an error takes no further part."""

    def __init__(self, path: Path, repeats: int, loaders: list[str], ends: float = math.inf) -> None:
        self._path, self._repeats, self._loaders, self._ends = path, repeats, loaders, ends
        self._failed = set[str]()
        self._slowest = dict[str, float]()  # seconds of a call by loader, also of calls that are not timed

    def compare(self) -> Iterator[dict[str, Any]]:
        """The row of a loader after each of its calls; the latest has all of them."""
        _pinned(str(self._path))
        yield from self._new(_share(self._ends, 2))
        yield from self._kept()
        _pinned.cache_clear()

    def _new(self, ends: float) -> Iterator[dict[str, Any]]:
        import torch

        rows = dict[str, dict[str, Any]]()
        seconds: dict[str, list[float]] = {name: [] for name in self._loaders}
        for turn in range(self._repeats + 1):  # the first is not timed: the tensors are compared
            for name, times in seconds.items():
                torch.cuda.empty_cache()
                if self._call(name, LOADERS[name][1](False), times, ends, is_first=turn == 0) and times:
                    rows[name] = self._row(name, "new", times)
                    yield rows[name]
        torch.cuda.empty_cache()
        self._print(rows, "new")

    def _kept(self) -> Iterator[dict[str, Any]]:
        import torch

        rows = dict[str, dict[str, Any]]()
        for number, name in enumerate(self._loaders):
            load, times = LOADERS[name][1](True), list[float]()
            ends = _share(self._ends, len(self._loaders) - number)
            for turn in range(self._repeats + 1):
                if self._call(name, load, times, ends, is_first=turn == 0) and times:
                    rows[name] = self._row(name, "kept", times)
                    yield rows[name]
            del load
            torch.cuda.empty_cache()
        self._print(rows, "kept")

    def _call(self, name: str, load: Load, times: list[float], ends: float, *, is_first: bool) -> bool:
        """Whether the loader was called: it has not failed, and its slowest call would end in time."""
        import torch

        if name in self._failed or time.monotonic() + self._slowest.get(name, 0.0) > ends:
            return False
        torch.cuda.synchronize()
        start = time.perf_counter()
        try:
            tensors = load(str(self._path))
            torch.cuda.synchronize()
        except Exception as error:  # whatever another package raises, the others go on
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}")
            self._failed.add(name)
            return False
        taken = time.perf_counter() - start
        self._slowest[name] = max(taken, self._slowest.get(name, 0.0))
        if not is_first:
            times.append(taken)
        elif not is_right(tensors, self._path):
            print(f"{name}: WRONG DATA")
        return True

    def _row(self, name: str, buffers: str, times: list[float]) -> dict[str, Any]:
        nbytes = self._path.stat().st_size
        facts = {"directory": str(self._path.parent.parent), "loader": name, "buffers": buffers, "bytes": nbytes}
        return {**facts, "seconds": list(times), "gbps": nbytes / statistics.median(times) / 1e9}

    def _print(self, rows: dict[str, dict[str, Any]], buffers: str) -> None:
        for name in self._loaders:
            text = f"{self._path.parent.parent!s:12} {name:24} buffers {buffers:4}"
            if name in rows:
                of = rows[name]
                middle = f"{statistics.median(of['seconds']):8.3f} s {of['gbps']:7.2f} GB/s"
                print(f"{text} {of['bytes'] / 2**30:6.2f} GiB {middle} from {len(of['seconds'])} calls", flush=True)
            elif name not in self._failed:
                print(f"{text} no time was left for a call that is timed", flush=True)


def _share(ends: float, parts: int) -> float:
    """When the first of these equal parts of the remaining time ends."""
    now = time.monotonic()
    return now + (ends - now) / parts


def _installed() -> list[str]:
    return [name for name, (module, _) in LOADERS.items() if find_spec(module)]


def rows_of(
    directory: str, nbytes: int, repeats: int, loaders: list[str] | None = None, ends: float = math.inf
) -> Iterator[dict[str, Any]]:
    """The row after each call of the loaders (default: all that are installed) for a file that is made in a directory.

    No call begins that would pass `ends`, in `monotonic` time.
    """
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        path = Path(folder) / "model.safetensors"
        write_model(path, max(nbytes, 1))
        yield from Bench(path, max(repeats, 1), _installed() if loaders is None else loaders, ends).compare()


def in_directories(
    directories: list[str], nbytes: int, repeats: int, loaders: list[str] | None = None, ends: float = math.inf
) -> Iterator[dict[str, Any]]:
    """The rows of all directories, each of which has an equal part of the time that is left."""
    for number, directory in enumerate(directories):
        yield from rows_of(directory, nbytes, repeats, loaders, _share(ends, len(directories) - number))


def latest(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of rows with the same directory, loader and buffers, the last; others as they are."""
    found = dict[object, dict[str, Any]]()
    for row in rows:
        is_loader = "loader" in row
        found[(row["directory"], row["loader"], row["buffers"]) if is_loader else id(row)] = row
    return list(found.values())


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """How far linkscope is from the best other loader and the pinned copy, for each directory and state of buffers."""
    for directory, buffers in dict.fromkeys((row["directory"], row["buffers"]) for row in rows if "loader" in row):
        rates = {
            row["loader"]: row["gbps"]
            for row in rows
            if (row.get("directory"), row.get("buffers")) == (directory, buffers)
        }
        others = {name: rate for name, rate in rates.items() if name not in ("linkscope", PINNED)}
        if "linkscope" not in rates:
            continue
        text = f"{directory}, buffers {buffers}: linkscope {rates['linkscope']:.2f} GB/s"
        if others:
            best = max(others, key=lambda name: others[name])
            text += f", {rates['linkscope'] / others[best]:.2f} times {best}"
        if PINNED in rates:
            text += f", {rates['linkscope'] / rates[PINNED]:.0%} of the pinned copy"
        yield text


# --- allocations ------------------------------------------------------------------------------------------------------

_PARTS = (1, 8, 64)
_COPIED = 1 << 30  # bytes of pinned memory that are copied again and again


def allocations(nbytes: int, repeats: int, ends: float = math.inf) -> Iterator[dict[str, Any]]:
    """Rows of what PyTorch's allocation of `nbytes` on the GPU takes, and what it costs copies that run meanwhile.

    After `ends`, in `monotonic` time, each has one repeat.
    """
    import torch

    pinned = torch.empty(min(_COPIED, nbytes), dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(pinned, device="cuda:0")
    copies = max(nbytes // pinned.numel(), 1)

    def copy() -> float:
        start = time.perf_counter()
        for _ in range(copies):
            target.copy_(pinned, non_blocking=True)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    copy()
    for parts in _PARTS:
        found: dict[str, list[float]] = {"idle": [], "beside_copies": [], "copies_before": [], "copies_beside": []}
        for repeat in range(repeats):
            if repeat and time.monotonic() > ends:
                break
            found["idle"].append(_allocated(nbytes, parts))
            found["copies_before"].append(copy())
            thread = threading.Thread(target=lambda to=found["copies_beside"]: to.append(copy()))
            thread.start()
            found["beside_copies"].append(_allocated(nbytes, parts))
            thread.join()
        middle = {name: statistics.median(times) for name, times in found.items()}
        text = ", ".join(f"{name.replace('_', ' ')} {value * 1e3:.1f} ms" for name, value in middle.items())
        print(f"allocation of {nbytes / 2**30:.2f} GiB in {parts} parts: {text}")
        yield {"allocation": parts, "bytes": nbytes, "copied_bytes": copies * pinned.numel(), "seconds": found}


def _allocated(nbytes: int, parts: int) -> float:
    """The seconds of an allocation in equal parts, which are freed at once."""
    import torch

    start = time.perf_counter()
    held = [torch.empty(nbytes // parts, dtype=torch.uint8, device="cuda:0") for _ in range(parts)]
    taken = time.perf_counter() - start
    del held
    torch.cuda.empty_cache()
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--directory", action="append", help="where the file lies; repeatable (default: temporary files)"
    )
    parser.add_argument("--loaders", nargs="+", choices=list(LOADERS), metavar="NAME", default=_installed())
    parser.add_argument("--everything", action="store_true", help="/dev/shm and temporary files, and allocations")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds of the call (default: no limit)")
    args = parser.parse_args()
    if not find_spec("torch"):
        parser.error("PyTorch is not installed")
    nbytes, rows, ends = int(args.gib * (1 << 30)), list[dict[str, Any]](), time.monotonic() + args.budget
    output = args.output or (Path("loaders.json") if args.everything else None)
    here = [tempfile.gettempdir()]
    directories = args.directory or (["/dev/shm", *here] if args.everything else here)
    parts = [in_directories(directories, nbytes, args.repeats, args.loaders, ends)]
    if args.everything:
        parts.insert(0, allocations(nbytes, args.repeats, _share(ends, 6)))
    for row in itertools.chain(*parts):
        rows = latest([*rows, row])
        if output:  # after each row, so that an interrupted call leaves those that it has
            output.write_text(json.dumps({"rows": rows}))
    print(*summary(rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
