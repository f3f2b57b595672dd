"""The sections of the report, in order. A new section is one file here, and one entry of `SECTIONS`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from linkscope.report.headline import headline_rows
from linkscope.report.run_view import RunView
from linkscope.report.section import MOST_ANSWERS, Items, Output, Section, Span, Text
from linkscope.report.sections import (
    advice,
    anomalies,
    answers,
    blocks,
    checks,
    collectives,
    computations,
    contention,
    curve_figures,
    data,
    explorer,
    joint,
    links,
    loaded,
    lu,
    lu_gpus,
    machine,
    memory,
    method,
    nodes,
    pairs,
    paths,
    placement,
    products,
    put_get,
    ranks,
    rates,
    rates_by_group,
    shared,
    sharing,
    task_sets,
    tasks,
    terms,
    trust,
    tuning,
)
from linkscope.runfile import Run

Make = Callable[[RunView], Section | None]

# The navigation of the page. A chapter appears only if the run has one of its sections.
CHAPTERS = (
    "Summary", "Actions", "Machine", "Pairs", "Curves", "Explorer", "Paths", "Contention", "Sharing", "Placement",
    "Transfers", "Put/get", "Ranks", "Memory", "Trust", "Data", "Method",
)  # fmt: skip

# Each function returns None where the run has nothing for its section. The outputs say who calls it. Terminal and
# Markdown have this order; the page has the order of its chapters.
SECTIONS: list[tuple[Make, Output, str]] = [
    (answers.brief, Output.MARKDOWN, ""),
    (answers.section, Output.PAGE, "Summary"),
    (rates.section, Output.TERMINAL | Output.MARKDOWN, ""),
    (rates_by_group.copies, Output.TERMINAL, ""),
    (rates_by_group.latencies, Output.TERMINAL, ""),
    (blocks.section, Output.PAGE | Output.MARKDOWN, "Transfers"),
    (tuning.section, Output.ALL, "Transfers"),
    (joint.section, Output.ALL, "Contention"),
    (shared.section, Output.ALL, "Contention"),
    (placement.section, Output.ALL, "Placement"),
    (contention.section, Output.ALL, "Contention"),
    (loaded.section, Output.ALL, "Contention"),
    (computations.section, Output.ALL, "Placement"),
    (products.section, Output.ALL, "Placement"),
    (lu.section, Output.ALL, "Placement"),
    (lu_gpus.section, Output.ALL, "Placement"),
    (tasks.section, Output.ALL, "Placement"),
    (task_sets.section, Output.ALL, "Placement"),
    (sharing.section, Output.ALL, "Sharing"),
    (put_get.section, Output.ALL, "Put/get"),
    (nodes.section, Output.ALL, "Ranks"),
    (ranks.section, Output.ALL, "Ranks"),
    (collectives.section, Output.ALL, "Ranks"),
    (rates_by_group.others, Output.TERMINAL, ""),
    (memory.section, Output.ALL, "Memory"),
    (links.section, Output.PAGE, "Machine"),
    (machine.section, Output.PAGE, "Machine"),
    (pairs.section, Output.PAGE, "Pairs"),
    (curve_figures.section, Output.PAGE, "Curves"),
    (trust.section, Output.PAGE, "Trust"),
    (anomalies.section, Output.ALL, "Trust"),
    (advice.section, Output.ALL, "Actions"),
    (checks.section, Output.ALL, "Trust"),
    (explorer.section, Output.PAGE, "Explorer"),
    (paths.section, Output.PAGE, "Paths"),
    (data.section, Output.PAGE, "Data"),
    (method.section, Output.PAGE, "Method"),
    (terms.section, Output.PAGE, "Method"),
]


@dataclass(frozen=True)
class Chapter:
    """A part of the page: the `open` section, and `folded` ones below it."""

    title: str
    open: Section
    folded: tuple[Section, ...]

    @property
    def anchor(self) -> str:
        """'put-get' for the chapter Put/get."""
        return anchor_of(self.title)

    @property
    def heading(self) -> str:
        """The title of the open section with the name in the navigation: 'Curves: rate over size', 'All pairs'."""
        title = self.open.title_in(Output.PAGE) or self.title
        if self.title.lower() in title.lower():
            return title
        return f"{self.title}: {title[:1].lower() if title[1:2].islower() else title[:1]}{title[1:]}"


def anchor_of(title: str) -> str:
    """The anchor of a chapter."""
    return title.lower().replace("/", "-").replace(" ", "-")


def sections(run: Run, output: Output) -> Iterator[Section]:
    """The sections that an output of this run has."""
    return (section for section, _ in _made(run, output))


def chapters(run: Run) -> list[Chapter]:
    """The chapters of the page of this run. The section with the anchor of its chapter is open, or else the first one.

    A section of an unknown chapter makes one of its own, after the others.
    """
    found: dict[str, list[Section]] = {title: [] for title in CHAPTERS}
    for section, title in _made(run, Output.PAGE):
        found.setdefault(title, []).append(section)
    if not headline_rows(run):
        found["Summary"][:1] = [_with_answers(found["Summary"][0], [one for of in found.values() for one in of])]
    made = []
    for title, of in found.items():
        if of:
            first = next((one for one in of if one.anchor == anchor_of(title)), of[0])
            made.append(Chapter(title, first, tuple(one for one in of if one is not first)))
    return made


def _with_answers(summary: Section, others: Sequence[Section]) -> Section:
    """The summary of a run without rates of plain copies: below the verdict stands what its sections found."""
    items: list[Text] = []
    for one in (section for section in others if section.answers):
        *before, last = one.answers[:MOST_ANSWERS]
        link = Span(one.title, link=f"#{one.anchor}")
        items += [*before, (*(last if isinstance(last, tuple) else (last,)), " ", link)]
    verdict, *rest = summary.blocks
    return replace(summary, blocks=(verdict, Items.of(items), *rest)) if items else summary


def _made(run: Run, output: Output) -> Iterator[tuple[Section, str]]:
    view = RunView(run)
    for make, outputs, chapter in SECTIONS:
        made = make(view) if output in outputs else None
        if made is not None and made.only(output):
            yield made, chapter
