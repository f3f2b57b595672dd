"""Section: transfer tasks beside message tasks (Spafford et al. 5.1 and 5.3)."""

from collections.abc import Sequence

from linkscope.model.text import count_text
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Items, Output, Paragraph, Row, Section, Table
from linkscope.report.task_sets import Compared, Range, TaskSet, task_sets
from linkscope.report.trust import signed
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


def section(view: RunView) -> Section | None:
    """A row for each quantity of each set of tasks. None for a run without such tasks."""
    found = task_sets(view.run)
    if not found:
        return None
    groups = tuple(Group(tuple(_row(one, compared) for compared in one.compared)) for one in found)
    answers = _answers(found)
    blocks = (
        Items.of(answers, on=Output.PAGE),
        Paragraph(_NOTE, note=True),
        Table(_TITLE, _COLUMNS, groups, stacks=True),
    )
    return Section("task-sets", _TITLE, blocks, label="Tasks", answers=answers)


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
            about = "; ".join(filter(None, (value, _name(one), f"drift {format_change(drift)}")))
            texts.append(f"{head} {change} ({about}).")
        else:
            texts.append(f"{head}: the {value or 'rate'} changes by no more than the drift.")
    return tuple(texts)


def _row(one: TaskSet, compared: Compared) -> Row:
    drift = compared.drift
    return Row((
        _name(one), compared.name, _values(compared, compared.alone),
        signed(_values(compared, compared.at_once), [one.point]),
        _percent(compared.over_good), _percent(compared.over_bad),
        "-" if drift is None else f"{100 * drift:+.1f} %",
    ))  # fmt: skip


def _name(one: TaskSet) -> str:
    params, flows = one.point.params, one.point.flows
    transfers = sum("gpu:" in flow.dst for flow in flows)
    threads = ", one thread for both" if params.get("threads") == "one" else ""
    messages = f"{count_text(len(flows) - transfers, 'message')} of {params['message']}"
    return f"{one.point.src}: {count_text(transfers, 'transfer')} + {messages}{threads}"


def _values(compared: Compared, values: list[float]) -> str:
    written = [format_rate(value) if compared.rate else format_seconds(value) for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(written))


def _percent(of: Range) -> str:
    values = dict.fromkeys(f"{100 * value:.1f}" for value in (of.low, of.mean, of.high))
    return " / ".join(values) + " %"
