"""Section: transfer tasks beside message tasks (Spafford et al. 5.1 and 5.3)."""

from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Paragraph, Row, Section, Table
from linkscope.report.task_sets import Compared, Range, TaskSet, task_sets
from linkscope.units import format_rate, format_seconds

_TITLE = "Transfer tasks beside message tasks"
_NOTE = (
    "Good is the value of a task while its kind runs alone, bad its value while both kinds run at once. The penalty "
    "over the good value is |bad - good| / good, over the bad value |bad - good| / bad: minimum, mean and maximum over "
    "tasks. Drift is the change of the mean from alone to alone again, after the tasks at once; smaller penalties mean "
    "nothing. A message's time is its round trip."
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
    return Section("task-sets", _TITLE, (Paragraph(_NOTE, note=True), Table(_TITLE, _COLUMNS, groups, stacks=True)))


def _row(one: TaskSet, compared: Compared) -> Row:
    drift = compared.drift
    return Row((
        _name(one), compared.name, _values(compared, compared.alone), _values(compared, compared.at_once),
        _percent(compared.over_good), _percent(compared.over_bad),
        "-" if drift is None else f"{100 * drift:+.1f} %",
    ))  # fmt: skip


def _name(one: TaskSet) -> str:
    params, flows = one.point.params, one.point.flows
    transfers = sum("gpu:" in flow.dst for flow in flows)
    threads = " by one thread each" if params.get("threads") == "one" else ""
    return f"{one.point.src}: {transfers} transfer + {len(flows) - transfers} message of {params['message']}{threads}"


def _values(compared: Compared, values: list[float]) -> str:
    written = [format_rate(value) if compared.rate else format_seconds(value) for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(written))


def _percent(of: Range) -> str:
    return " / ".join(f"{100 * value:.1f}" for value in (of.low, of.mean, of.high)) + " %"
