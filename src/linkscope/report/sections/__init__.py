"""The sections of the report, in order. A new section is one file here, and one entry of `SECTIONS`."""

from collections.abc import Callable, Iterator

from linkscope.report.run_view import RunView
from linkscope.report.section import Output, Section
from linkscope.report.sections import (
    advice,
    anomalies,
    answers,
    blocks,
    checks,
    collectives,
    computations,
    contention,
    heat_maps,
    joint,
    links,
    loaded,
    lu,
    lu_gpus,
    machine,
    memory,
    method,
    paths,
    placement,
    put_get,
    ranks,
    rates,
    rates_by_group,
    shared,
    sharing,
    task_sets,
    tasks,
    terms,
    tuning,
)
from linkscope.runfile import Run

Make = Callable[[RunView], Section | None]

# Each function returns None where the run has nothing for its section. The outputs say who calls it.
SECTIONS: list[tuple[Make, Output]] = [
    (answers.section, Output.PAGE | Output.MARKDOWN),
    (rates.section, Output.ALL),
    (rates_by_group.copies, Output.TERMINAL),
    (rates_by_group.latencies, Output.TERMINAL),
    (blocks.section, Output.PAGE | Output.MARKDOWN),
    (tuning.section, Output.ALL),
    (joint.section, Output.ALL),
    (shared.section, Output.ALL),
    (placement.section, Output.ALL),
    (contention.section, Output.ALL),
    (loaded.section, Output.ALL),
    (computations.section, Output.ALL),
    (lu.section, Output.ALL),
    (lu_gpus.section, Output.ALL),
    (tasks.section, Output.ALL),
    (task_sets.section, Output.ALL),
    (sharing.section, Output.ALL),
    (put_get.section, Output.ALL),
    (ranks.section, Output.ALL),
    (collectives.section, Output.ALL),
    (rates_by_group.others, Output.TERMINAL),
    (memory.section, Output.ALL),
    (links.section, Output.PAGE),
    (heat_maps.section, Output.PAGE),
    (anomalies.section, Output.ALL),
    (advice.section, Output.ALL),
    (checks.section, Output.ALL),
    (paths.section, Output.PAGE),
    (machine.section, Output.PAGE),
    (method.section, Output.PAGE),
    (terms.section, Output.PAGE),
]


def sections(run: Run, output: Output) -> Iterator[Section]:
    """The sections that an output of this run has."""
    view = RunView(run)
    for make, outputs in SECTIONS:
        made = make(view) if output in outputs else None
        if made is not None and made.only(output):
            yield made
