"""Converts device code to C++ that a test can run. Each asm statement becomes a call named after its instruction.

    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(x), "l"(y));  ->  ptx_st_global_v2_u64(to, x, y);

The arguments are the operands and literal numbers in the order of the instruction's text, so that a test finds swapped
operands. An instruction that tests/core/emulated_gpu.hpp lacks fails to compile. Shared memory becomes static. A header
with asm statements is inserted. Other code stays the same.
"""

import re
import sys
from pathlib import Path

STATEMENT = "asm volatile("
CORE = Path(__file__).parents[2] / "core"


def closing(text: str, start: int) -> int:
    """The position of the parenthesis that closes the one opened just before `start`."""
    depth, at = 1, start
    while depth:
        if text[at] == '"':
            at = text.index('"', at + 1)
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at - 1


def operands(text: str) -> list[str]:
    """The expressions after the constraints of outputs and inputs. Clobbers have no parentheses."""
    found, at = [], 0
    while constraint := re.compile(r'"[=+]?[a-z]"\s*\(').search(text, at):
        at = closing(text, constraint.end())
        found.append(text[constraint.end() : at])
    return found


def call(inside: str) -> str:
    instructions = re.match(r'\s*"([^"]*)"', inside)
    assert instructions is not None, inside
    given = operands(inside[instructions.end() :])
    words = instructions[1].replace("%%", "")
    name = re.search(r"(?<![.\w])[a-z]\w*\.[\w.:]+", words)
    assert name is not None, inside
    arguments = re.findall(r"(%\d+|(?<![\w%.])\d+(?!\w))", words[name.end() :])
    assert {int(word[1:]) for word in arguments if word[0] == "%"} == set(range(len(given))), inside
    shown = [given[int(word[1:])] if word[0] == "%" else word for word in arguments]
    return f"ptx_{re.sub(r'[.:]+', '_', name[0])}({', '.join(shown)})"


def converted(text: str) -> str:
    done, at = "", 0
    while (found := text.find(STATEMENT, at)) >= 0:
        end = closing(text, found + len(STATEMENT))
        done += text[at:found] + call(text[found + len(STATEMENT) : end])
        at = end + 1
    done += text[at:]
    # C++ requires alignas first and lacks the pragma.
    without_pragmas = re.sub(r"#pragma unroll.*", "", done)
    return re.sub(r"__shared__ (alignas\(\d+\) )?", r"\1static ", without_pragmas)


def with_device_headers(text: str) -> str:
    def insert(line: re.Match[str]) -> str:
        header = with_device_headers((CORE / line[1]).read_text())
        return header.replace("#pragma once\n", "") if STATEMENT in header else line[0]

    return re.sub(r'^#include "([^"]+)"$', insert, text, flags=re.M)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for source in map(Path, sys.argv[2:]):
        (out / f"{source.stem}.inc").write_text(converted(with_device_headers(source.read_text())))


if __name__ == "__main__":
    main()
