"""The rows of the worker's table of benchmarks (docs/worker.md)."""

from typing import Literal

import msgspec


class Param(msgspec.Struct, frozen=True):
    """A parameter and the values it may have; the first is its default."""

    name: str
    values: list[str]
    help: str


class Benchmark(msgspec.Struct, frozen=True):
    """One operation: from which kind of place and memory to which, and its parameters."""

    name: str
    summary: str
    source: str
    engine: str
    src: str
    dst: str
    relation: Literal["any", "same", "different"]
    memories: list[tuple[str, str]]
    params: list[Param]

    def param(self, name: str) -> Param | None:
        """The parameter of that name, if the row has it."""
        return next((param for param in self.params if param.name == name), None)
