"""Section: how the numbers of the page were made."""

from linkscope.report.outcome import intervals_text
from linkscope.report.run_view import RunView
from linkscope.report.section import Paragraph, Section, Span, more, prose
from linkscope.report.trust import INHERITED, SIGN
from linkscope.runfile import Run
from linkscope.units import format_fraction

_SPREADS = (
    "*Within a round* is the standard deviation of the samples of one process. *Between rounds* is that of the round "
    "medians, which give value and interval. Both are fractions of the value. *2 of 42 are outliers*: two samples took "
    "more than twice the value; outliers widen the spread within a round but barely change the median. If the spread "
    "between rounds is much larger than within a round, a single process gives a wrong value. (The run file computes "
    "the spread between rounds from means and subtracts the part that samples within rounds explain; the result is 0 "
    "if they explain all of it.)"
)
_MODES = (
    "*Batched* is the cost of one operation among many: the slope over batches of two lengths. *Single* is one "
    "operation by itself. The two are different quantities. GB/s is 1e9 bytes per second; KiB, MiB and GiB are powers "
    "of two."
)
_TIMINGS = (
    "*gate+slope*: copies wait in a stream behind a closed gate, then run back to back. The extra time of a longer "
    "batch, between events on the GPU, divided by the number of extra copies, is the time of one copy. *events*: time "
    "between events on the GPU. *host*: the clock of the CPU, until the data have arrived. *virtual*: the time of a "
    "model."
)
_PEAKS = (
    "The peak of a path is the limit of its hardware without the cost of protocols. The tables of paths state its "
    "derivation. The total of several flows is their bytes over the time from the common start to the last end, and "
    "its interval comes from this time. Runs that did not record this time have the sums of the rates and of the ends "
    "of their intervals."
)
_OF_CLASSES = (
    "Paths of one class were measured together: one at all sizes, one at random sizes, the others at three sizes, and "
    f"at more where time allowed. A value with {INHERITED} before it is inherited from another path of the class, not "
    "measured. The difference of the two paths, where both were measured, widens its interval. A point has three "
    "rounds. It gets more if its interval is wider than the target and its share of the time allows it. It"
)
_MORE_ROUNDS = (
    "A point that narrowly misses it gets three more rounds (nine instead of six; with a time limit up to twice the "
    "planned number). It"
)

_MEASURED = ("point", "Each number is a point: one operation at one size on one path, measured on this machine.")
_MODELLED = ("point", "Each number is a point: one operation at one size on one path, computed from a machine model.")
_FIVE = (
    ("round", "A round measures each point once, in fresh processes with fresh memory and in a new random order."),
    ("interval", "The value is the median of the rounds, and its interval in brackets holds the true median in 95 % of "
     "cases."),
    ("missed precision", f"A point whose interval is wider than its target missed precision and has {SIGN} before it; "
     f"a value from another path of its class is inherited and has {INHERITED} before it."),
    ("peak", "The peak of a path is the limit of its hardware without the cost of protocols."),
)  # fmt: skip
_LICENCES = (
    "linkscope is under the Apache License 2.0. uPlot 1.6.32, which draws the explorer, is under the MIT License; its "
    "text is in the source of this page. The page loads nothing from other places."
)


def section(view: RunView) -> Section:
    """The method of this run in five sentences, and its details and the licences folded."""
    texts = (_rounds(view.run, intervals_text(view.single.points)), _precision(view.run))
    details = (*texts, _SPREADS, _MODES, _TIMINGS, _PEAKS)
    short: list[str | Span] = []
    for word, text in (_MODELLED if view.run.modelled else _MEASURED, *_FIVE):
        short += [*([" "] if short else []), *_with_term(word, text)]
    blocks = (
        Paragraph(tuple(short)),
        more("Rounds, precision, modes, timings and peaks in detail", *(Paragraph(prose(text)) for text in details)),
        more("Licences of what this page contains", Paragraph(_LICENCES)),
    )
    return Section("method", "Method", blocks)


def _with_term(word: str, text: str) -> list[str | Span]:
    """The sentence, with the term that it explains marked."""
    before, found, after = text.partition(word)
    return [part for part in (before, Span(found, "dfn"), after) if part not in ("", Span("", "dfn"))]


def _rounds(run: Run, intervals: str) -> str:
    classes = " (every other one a fresh platform in the same process)" if run.header.plan.get("classes") else ""
    model = " (of a model: a new session with its own draw of the noise)" if run.modelled else ""
    return (
        f"A *round* is a fresh process{classes} with fresh memory and a new random order of the points{model}. *Within "
        "a round*, samples are taken until their median has converged. The value of a point is the median of the round "
        f"medians. {intervals}"
    )


def _precision(run: Run) -> str:
    plan = run.header.plan
    precision = plan.get("precision")
    target = (
        f": {format_fraction(precision)}" if precision
        else ": 1 % from 1 MiB; below that 5 %, or two ticks of the clock if these are longer"
    )  # fmt: skip
    more = _OF_CLASSES if plan.get("classes") else _MORE_ROUNDS if plan.get("more_rounds", True) else "A point"
    return (
        f"The target precision is half the width of the interval as a fraction of the value{target}. {more} has "
        "*missed precision* where its interval is still wider, or where fewer than six rounds give no interval. Its "
        f"value is the best available one and has {SIGN} before it."
    )
