"""The rows of the worker's table of benchmarks (docs/reference/worker.md)."""

from typing import Literal

import msgspec

Role = Literal[
    "copy", "access", "migration", "latency", "atomic", "call", "computation", "contention", "message", "collective"
]  # fmt: skip
# Limits in bytes per second of one transfer do not hold.
ROLES_WITHOUT_PEAK: frozenset[Role] = frozenset(
    ("latency", "atomic", "call", "computation", "contention", "message", "collective")
)


class Param(msgspec.Struct, frozen=True):
    """A parameter and its possible values; the first is the default, which some ids leave out.

    `paths`: other values are paths that run concurrently. `told`: the values as shown to people, if there are too many
    to list.
    """

    name: str
    values: list[str]
    help: str
    default_in_id: bool = True
    paths: bool = False
    told: list[str] = []

    def in_id(self, value: str) -> bool:
        """Whether ids show this value."""
        return self.default_in_id or value != self.values[0]


class InSuite(msgspec.Struct, frozen=True):
    """A suite that takes a row at these sizes, with its default parameters."""

    suite: str
    sizes: list[int] = []


class Benchmark(msgspec.Struct, frozen=True):
    """One operation: kinds of places and memory, and parameters; `sized`: it has bytes.

    `taken`: which rules of a suite select it: all, those that name its operation or engine, or those that name its
    memory kinds. `suites`: suites that take it besides their rules. `role`: what it measures
    (docs/reference/worker.md).
    """

    name: str
    summary: str
    source: str
    engine: str
    src: str
    dst: str
    relation: Literal["any", "same", "different", "to_all", "from_all", "other_host"]
    memories: list[tuple[str, str]]
    params: list[Param]
    sized: bool = True
    taken: Literal["unasked", "by_name", "by_memory"] = "by_name"
    role: Role = "copy"
    suites: list[InSuite] = []

    @property
    def joint(self) -> bool:
        """Whether its flows run concurrently between one place and all GPUs."""
        return self.relation in ("to_all", "from_all")

    def param(self, name: str) -> Param | None:
        """The parameter of that name, if the row has it."""
        return next((param for param in self.params if param.name == name), None)
