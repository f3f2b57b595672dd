"""Finds the points of the table that correspond to a paper or tool (papers/), as patterns for `run --only`."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from linkscope.errors import UserError
from linkscope.plan.papers import SOURCES, Entry, Source
from linkscope.plan.suite_rules import Rule, of_preset
from linkscope.plan.table import Benchmark, Param
from linkscope.units import format_bytes


def source_named(name: str) -> Source:
    """Returns the source of that name. Raises UserError with the list of sources for an unknown name."""
    found = SOURCES.get(name)
    if found is None:
        raise UserError(f"--source {name}: unknown source; available: {', '.join(SOURCES)}")
    return found


def presets(source: Source, entry: Entry) -> list[Rule]:
    """Returns the rules of the entry, at the sizes of its source."""
    return [of_preset(text, source.sizes) for text in entry.points]


def patterns(source: Source, entry: Entry, table: Sequence[Benchmark]) -> list[str]:
    """Returns globs of point ids for all sizes and places, with the preset's parameters. Empty: not available yet."""
    return [pattern for rule in presets(source, entry) for pattern in _patterns(rule, table)]


def sizes_text(sizes: Sequence[int]) -> str:
    """Returns '256 B to 1 GiB by powers of two', or a single size unchanged."""
    if len(sizes) < 2:
        return " ".join(map(format_bytes, sizes))
    return f"{format_bytes(sizes[0])} to {format_bytes(sizes[-1])} by powers of two"


def _patterns(rule: Rule, table: Sequence[Benchmark]) -> Iterator[str]:
    for row in table:
        if not rule.takes(row) or not rule.needs() <= {param.name for param in row.params}:
            continue
        for src_memory, dst_memory in rule.of_memories(row):
            src = f"{row.src}:{'all' if row.relation == 'from_all' else '*'}.{src_memory}"
            dst = f"{row.dst}:{'all' if row.relation == 'to_all' else '*'}.{dst_memory}"
            size = "*" if row.sized else "0"
            for chosen in itertools.product(*(_param_text(param, rule.values(param)) for param in row.params)):
                params = "&".join(sorted(filter(None, chosen)))
                yield f"{row.name}/{row.engine}/{src}->{dst}/{size}" + (f"?{params}" if params else "")


def _param_text(param: Param, values: list[str]) -> Iterable[str]:
    """Returns the parameter as ids show it: `*` for all values, '' for a default that ids omit."""
    if len(values) > 1 and values == param.values and param.default_in_id:
        return [f"{param.name}=*"]
    return [f"{param.name}={value}" if param.in_id(value) else "" for value in values]
