"""Section: transfer tasks beside message tasks, and both by one thread or by two (Spafford et al. 5.1 and 5.3)."""

from collections.abc import Sequence

from linkscope.model.text import count_text
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Items, Output, Paragraph, Row, Section, Table
from linkscope.report.task_sets import Compared, Range, TaskSet, ThreadCost, task_sets, thread_costs
from linkscope.report.trust import signed
from linkscope.runfile import Point
from linkscope.units import format_change, format_fraction, format_rate, format_seconds

_TITLE = "Transfer tasks beside message tasks"
_NOTE = (
    "Good is the value of a task while its kind runs alone, bad its value while both kinds run at once. The penalty "
    "over the good value is (bad - good) / good for times and (good - bad) / good for rates, over the bad value the "
    "same difference / bad: minimum, mean and maximum over tasks. A negative penalty is a gain. Drift is the change of "
    "the mean from alone to alone again, after the tasks at once; smaller penalties mean nothing. A message's time is "
    "its round trip."
)
_COLUMNS = (
    Column("Tasks", strong=True), Column("Value", label="Value"), Column("Alone", right=True, label="Alone"),
    Column("At once", right=True, label="At once"), Column("Over good", right=True, label="Over good"),
    Column("Over bad", right=True, label="Over bad"), Column("Drift", right=True, label="Drift"),
)  # fmt: skip
_MEDIAN = "messages, median"
_THREADS_TITLE = "One thread for transfers and messages, against two"
_THREADS_NOTE = (
    "Both kinds run at once. Good is the value with two bound threads, one for transfers and one for messages; bad is "
    "the value with one thread for both. The penalties have the formulas of the table above, task by task. Drift is "
    "that of the same kind alone; smaller penalties mean nothing."
)
_THREADS_COLUMNS = (
    Column("Tasks", strong=True), Column("Value", label="Value"),
    Column("Two threads", right=True, label="Two threads"), Column("One thread", right=True, label="One thread"),
    Column("Longer by", right=True, label="Longer by"),
    Column("Over good", right=True, label="Over good"), Column("Over bad", right=True, label="Over bad"),
    Column("Drift", right=True, label="Drift"),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """A row for each quantity of each set of tasks, then one thread against two. None for a run without such tasks."""
    found, threads = task_sets(view.run), thread_costs(view.run)
    if not found and not threads:
        return None
    groups = tuple(Group(tuple(_row(one, compared) for compared in one.compared)) for one in found)
    of_threads = tuple(Group(tuple(_thread_row(one, compared) for compared in one.compared)) for one in threads)
    answers = (*_thread_answers(threads), *_answers(found))
    blocks = (
        Items.of(answers, on=Output.PAGE),
        Paragraph(_NOTE, note=True),
        *((Table(_TITLE, _COLUMNS, groups, stacks=True),) if found else ()),
        *(
            (Paragraph(_THREADS_NOTE, note=True), Table(_THREADS_TITLE, _THREADS_COLUMNS, of_threads, stacks=True))
            if threads
            else ()
        ),
    )
    return Section("task-sets", _TITLE, blocks, label="Tasks", answers=answers)


def _thread_answers(found: Sequence[ThreadCost]) -> tuple[str, ...]:
    """What one thread for both kinds costs against two, over all numbers of sets: for each size of messages the largest
    mean penalty of the median, and the largest of the rate of transfers. Penalties are over the good value."""
    sizes = dict.fromkeys(one.one.params["message"] for one in found)
    of_size = [_largest([one for one in found if one.one.params["message"] == size], _MEDIAN) for size in sizes]
    texts = [f"{size} {text}" for size, text in zip(sizes, of_size, strict=True) if text]
    answers = [f"One thread for both instead of two, messages: {', '.join(texts)}."] if texts else []
    if rate := _largest(found, "transfers"):
        answers.append(f"One thread for both instead of two, transfers: {rate}.")
    return tuple(answers)


def _largest(found: Sequence[ThreadCost], name: str) -> str:
    """'up to ~4.277 us longer (17 %, numa:0, 1 set)'; the drift where no penalty exceeds it; '' for
    a quantity that was not measured."""
    pairs = [(one, compared) for one in found for compared in one.compared if compared.name == name]
    above = [(one, of) for one, of in pairs if of.over_good.mean > abs(one.drift.get(name, 0.0))]
    if not above:
        return "no more than the drift" if pairs else ""
    one, worst = max(above, key=lambda pair: pair[1].over_good.mean)
    points, percent = [one.two, one.one], format_fraction(worst.over_good.mean)
    where = f"{one.one.src}, {count_text(int(one.one.params['sets']), 'set')}"
    if worst.longer_s is None:
        return f"up to {signed(percent, points)} of the rate is lost ({where})"
    return f"up to {signed(format_seconds(worst.longer_s), points)} longer ({percent}, {where})"


def _thread_row(one: ThreadCost, compared: Compared) -> Row:
    longer, drift = compared.longer_s, one.drift.get(compared.name)
    return Row((
        _name(one.two), compared.name, signed(_values(compared, compared.good), [one.two]),
        signed(_values(compared, compared.bad), [one.one]),
        "-" if longer is None else format_seconds(longer), _percent(compared.over_good), _percent(compared.over_bad),
        _drift(drift),
    ))  # fmt: skip


def _answers(found: Sequence[TaskSet]) -> tuple[str, ...]:
    """For each quantity the largest mean penalty over the good value, if drift does not explain it."""
    texts = []
    for name in dict.fromkeys(compared.name for one in found for compared in one.compared):
        of = [(compared, one) for one in found for compared in one.compared if compared.name == name]
        worst, one = max(of, key=lambda pair: pair[0].over_good.mean - abs(pair[0].drift or 0.0))
        mean, drift = worst.over_good.mean, worst.drift or 0.0
        kind, _, value = name.partition(", ")
        head = f"{kind.capitalize()} beside {'messages' if worst.rate else 'transfers'}"
        if mean > abs(drift):
            most = signed(format_fraction(mean), [one.point])
            change = f"lose up to {most} of their rate" if worst.rate else f"take up to {most} longer"
            about = "; ".join(filter(None, (value, _name(one.point), f"drift {format_change(drift)}")))
            texts.append(f"{head} {change} ({about}).")
        else:
            texts.append(f"{head}: the {value or 'rate'} changes by no more than the drift.")
    return tuple(texts)


def _row(one: TaskSet, compared: Compared) -> Row:
    return Row((
        _name(one.point), compared.name, _values(compared, compared.good),
        signed(_values(compared, compared.bad), [one.point]),
        _percent(compared.over_good), _percent(compared.over_bad), _drift(compared.drift),
    ))  # fmt: skip


def _drift(change: float | None) -> str:
    return "-" if change is None else f"{100 * change:+.1f} %"


def _name(point: Point) -> str:
    params, flows = point.params, point.flows
    transfers = sum("gpu:" in flow.dst for flow in flows)
    threads = ", one thread for both" if params.get("threads") == "one" else ""
    messages = f"{count_text(len(flows) - transfers, 'message')} of {params['message']}"
    return f"{point.src}: {count_text(transfers, 'transfer')} + {messages}{threads}"


def _values(compared: Compared, values: list[float]) -> str:
    written = [format_rate(value) if compared.rate else format_seconds(value) for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(written))


def _percent(of: Range) -> str:
    values = dict.fromkeys(f"{100 * value:.1f}" for value in (of.low, of.mean, of.high))
    return " / ".join(values) + " %"
