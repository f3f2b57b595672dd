"""Versions of the measuring method of each benchmark.

A change of the method can change values although the machine has not changed. Add a row to CHANGES when a change of the
sampler, the worker or the planner moves the values of a benchmark by more than its precision. Values of different
versions are not compared.
"""

import datetime
from collections.abc import Iterable
from typing import NamedTuple

from linkscope.runfile.schema import Header


class Change(NamedTuple):
    """A new version of the method of some benchmarks. `since`: UTC, for run files that do not hold their versions."""

    benchmarks: tuple[str, ...]
    since: str
    what: str


CHANGES = (
    Change(("h2h",), "2026-11-22T18:00:00+00:00", "batches of CPU threads no longer meet cached data"),
    Change(
        ("d2d", "local", "demand", "prefetch", "fault_latency"),
        "2026-11-23T06:00:00+00:00",
        "the first single operations of a request do not count, and links between GPUs are woken",
    ),
    Change(
        ("allocation",),
        "2026-11-25T15:20:00+00:00",
        "freeing memory that was exported as a descriptor closes the descriptor too, so the memory is really freed",
    ),
    Change(
        ("bystander", "get", "put", "queued_put"),
        "2026-11-26T15:30:00+00:00",
        "blocks of a GPU that exchange words are one kernel, and not each a kernel on a stream of its own",
    ),
    Change(
        ("get", "get_ping_pong", "put", "put_ping_pong"),
        "2026-11-27T08:15:00+00:00",
        "each block of a message has a word of its own, and a ring with room costs no load",
    ),
    Change(
        (
            "node_ping_pong",
            "node_rate",
            "process_ping_pong",
            "process_rate",
            "rank_empty",
            "rank_ping_pong",
            "rank_rate",
        ),
        "2026-11-27T02:00:00+00:00",
        "processes that poll for each other have cores of their own where no launcher gave them any, the memory that "
        "messages go through is used before the first sample, and double-buffered messages start ahead",
    ),
    Change(
        ("all_reduce", "reduce", "reduce_scatter"),
        "2026-11-28T04:30:00+00:00",
        "batches of NCCL last 10 ms in place of 1 ms",
    ),
    Change(
        ("all_to_all",),
        "2026-11-28T10:38:00+00:00",
        "an all-to-all by NCCL is one call where the library has it",
    ),
    Change(
        ("get_ping_pong", "put", "put_ping_pong", "queued_put", "queued_put_ping_pong"),
        "2026-11-28T15:00:00+00:00",
        "a block of a GPU prepares its next op while it waits for a message, and recognizes messages first",
    ),
)


def current(benchmarks: Iterable[str]) -> dict[str, int]:
    """Returns the version of each benchmark in this linkscope, counted from 1."""
    return {name: 1 + sum(name in change.benchmarks for change in CHANGES) for name in sorted(set(benchmarks))}


def version(header: Header, benchmark: str) -> int:
    """Returns the version by which a run measured a benchmark: from the run file, or from its date."""
    stored = header.tool.get("methods")
    if isinstance(stored, dict):
        return int(stored.get(benchmark, 1))
    try:
        started = datetime.datetime.fromisoformat(header.started)
        changes = [change for change in CHANGES if benchmark in change.benchmarks]
        return 1 + sum(datetime.datetime.fromisoformat(change.since) <= started for change in changes)
    except (ValueError, TypeError):  # no date, or one without a time zone
        return 1
