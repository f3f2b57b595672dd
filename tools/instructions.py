"""Counts the machine instructions of one post and of one successful poll, as a Markdown table.

Usage: .venv/bin/python tools/instructions.py [ARCHITECTURE...]     (by default sm_80 sm_90 sm_100; needs no GPU, and
nvdisasm, which the requirements of the tests bring; docs/notes/put-get-on-models.md shows the table)

The kernels of tools/instructions.cu post or poll once. A count is that of the longest path from the start of a kernel
through its last access to memory that another device sees, to its end. Paths that give up early are shorter. The
instructions that load parameters and state, and that store the state, count. A kernel with a loop is refused.
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "cmake")]

from embed_device_code import Nvrtc  # noqa: E402

SOURCE = ROOT / "tools" / "instructions.cu"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
NAMES = {
    "post_put": "post of a put to a network card, with its doorbell",
    "poll_completion": "successful poll of a card's completion",
    "post_word": "word for another device",
    "poll_word": "look at a word of another device",
}
_LINE = re.compile(r"^\s*/\*[0-9a-f]+\*/\s+(?:@(!?U?P[0-9T]+)\s+)?([A-Z0-9_.]+)([^;]*);")
_TARGET = re.compile(r"`\((\.\w+)\)")
_SHARED = re.compile(r"\.STRONG\.(SYS|GPU)|\.MMIO")


@dataclass(frozen=True)
class Instruction:
    """One machine instruction. `target`: the index that it may jump to."""

    name: str
    predicated: bool
    operands: str
    target: int | None = None

    @property
    def ends(self) -> bool:
        """Whether nothing runs behind it."""
        return self.name.split(".")[0] == "EXIT" and not self.predicated

    @property
    def leaves(self) -> bool:
        """Whether it always jumps."""
        return self.target is not None and not self.predicated


@dataclass(frozen=True)
class Counts:
    """Of the longest successful path: all instructions, and accesses that others see.

    `loads`, `stores`: of global memory, state included. `fences`: memory barriers.
    """

    instructions: int
    loads: int
    stores: int
    fences: int


def nvdisasm() -> str | None:
    """The disassembler of the wheel, or of the path."""
    folder = Path(sysconfig.get_path("purelib")) / "nvidia"
    return next((str(path) for path in sorted(folder.glob("*/bin/nvdisasm"))), None) or which("nvdisasm")


def machine_code(architecture: str, disassembler: str) -> str:
    """The text of all kernels for an architecture."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(Nvrtc().compile(SOURCE, [str(ROOT / "core")], architecture))
        file.flush()
        done = subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True, check=True)
    return done.stdout


def kernels(text: str) -> dict[str, list[Instruction]]:
    """The instructions of each kernel."""
    found: dict[str, list[Instruction]] = {}
    for section in re.split(r"^\.text\.", text, flags=re.M)[1:]:
        name, _, body = section.partition(":")
        labels: dict[str, int] = {}
        raw: list[tuple[str, bool, str]] = []
        for line in body.splitlines():
            if label := re.match(r"^(\.L_x_\w+):", line):
                labels[label[1]] = len(raw)
            elif line.startswith("//---"):
                break
            elif one := _LINE.match(line):
                raw.append((one[2], one[1] is not None, one[3]))
        found[name] = [Instruction(*one, _jump(*one, labels)) for one in raw]
    return found


def _jump(name: str, predicated: bool, operands: str, labels: dict[str, int]) -> int | None:
    target = _TARGET.search(operands)
    return labels[target[1]] if target and name.split(".")[0] == "BRA" else None


def longest(code: Sequence[Instruction]) -> Counts:
    """The counts of the longest path through the last shared access. Raises ValueError for a kernel with a loop."""
    seen = max(at for at, one in enumerate(code) if _SHARED.search(one.name))
    first, last = _longest_to(code, 0, seen), _longest_to(code, seen, None)
    path = [code[at] for at in (*first, *last[1:])]
    return Counts(
        len(path),
        sum(one.name.startswith(("LDG", "LD.")) for one in path),
        sum(one.name.startswith(("STG", "ST.")) for one in path),
        sum(one.name.startswith("MEMBAR") for one in path),
    )


def _longest_to(code: Sequence[Instruction], start: int, end: int | None) -> list[int]:
    """The indices of the longest path to `end`, or without one to an instruction that ends the kernel."""
    paths: dict[int, list[int]] = {start: [start]}
    best: list[int] = []
    for at in range(start, len(code)):
        if at not in paths:
            continue
        one, path = code[at], paths.pop(at)
        if at == end or (end is None and one.ends):
            best = max(best, path, key=len)
            continue
        if one.ends:
            continue
        following = [] if one.leaves else [at + 1]
        following += [] if one.target is None else [one.target]
        if any(to <= at for to in following):
            raise ValueError(f"{one.name} at {at} jumps back: a loop has no longest path")
        for to in following:
            paths[to] = max(paths.get(to, []), [*path, to], key=len)
    return best


def table(architectures: Sequence[str], disassembler: str) -> str:
    """A row for each kernel, with the counts of each architecture."""
    of = {name: kernels(machine_code(name, disassembler)) for name in architectures}
    lines = [f"| | {' | '.join(architectures)} | loads | stores | fences |", "|---|" + "--:|" * (len(of) + 3)]
    for kernel, what in NAMES.items():
        counts = [longest(code[kernel]) for code in of.values()]
        one = counts[-1]
        cells = [str(count.instructions) for count in counts]
        lines.append(f"| {what} | {' | '.join(cells)} | {one.loads} | {one.stores} | {one.fences} |")
    return "\n".join(lines)


def main() -> None:
    disassembler = nvdisasm()
    if disassembler is None:
        sys.exit(
            "instructions.py needs nvdisasm: pip install nvidia-cuda-nvdisasm, or put that of a toolkit on the path"
        )
    print(table(sys.argv[1:] or ARCHITECTURES, disassembler))


if __name__ == "__main__":
    main()
