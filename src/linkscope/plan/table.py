"""The rows of the worker's table of benchmarks (docs/reference/worker.md)."""

from typing import Literal

import msgspec


class Param(msgspec.Struct, frozen=True):
    """A parameter and the values it may have; the first is its default, which not all ids tell.

    `paths`: besides these it may be other paths, which the operation takes with its own. `told`: the values as people
    are told them, where they are too many to name each.
    """

    name: str
    values: list[str]
    help: str
    default_in_id: bool = True
    paths: bool = False
    told: list[str] = []

    def in_id(self, value: str) -> bool:
        """Whether ids tell this value."""
        return self.default_in_id or value != self.values[0]


class Benchmark(msgspec.Struct, frozen=True):
    """One operation: from which kind of place and memory to which, and its parameters; `sized`: it has bytes.

    `taken`: which rules of a suite take it: also those that name nothing, those that name its operation or engine, or
    those that name its kinds of memory.
    """

    name: str
    summary: str
    source: str
    engine: str
    src: str
    dst: str
    relation: Literal["any", "same", "different", "to_all", "from_all"]
    memories: list[tuple[str, str]]
    params: list[Param]
    sized: bool = True
    taken: Literal["unasked", "by_name", "by_memory"] = "by_name"

    @property
    def joint(self) -> bool:
        """Whether its flows run between one place and all GPUs at once."""
        return self.relation in ("to_all", "from_all")

    def param(self, name: str) -> Param | None:
        """The parameter of that name, if the row has it."""
        return next((param for param in self.params if param.name == name), None)
