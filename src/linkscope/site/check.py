"""Checks a run file before it is contributed to a site: each problem with its cure."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from linkscope.errors import UserError
from linkscope.model.text import count_text
from linkscope.report.outcome import TOO_SHORT_CURE
from linkscope.report.verdict import with_its_ranks
from linkscope.report.wires import wires
from linkscope.runfile import read_run, shown_status
from linkscope.runfile.anonymous import personal_data
from linkscope.runfile.methods import current, version


@dataclass(frozen=True)
class Problem:
    """What is wrong with a run file, and what to do."""

    what: str
    cure: str


def problems(path: Path) -> list[Problem]:
    """The problems of a run file: end, method versions, map, values, personal data.

    Raises UserError where the file holds no run of this schema.
    """
    run, file = read_run(path, rounds=False), shlex.quote(str(path))
    resume = f"`{with_its_ranks(run)}linkscope run --resume {file}`"
    found = [Problem(text.replace(f"{path}: ", ""), resume) for text in run.warnings]
    if not run.warnings and (run.end is None or not run.end.complete):
        found.append(Problem("the run did not end", resume))
    methods = {name: version(run.header, name) for name in sorted({point.benchmark for point in run.points})}
    now = current(methods)
    old = [f"{name} (method {by}, now {now[name]})" for name, by in methods.items() if by < now[name]]
    new = [f"{name} (method {by}, here {now[name]})" for name, by in methods.items() if by > now[name]]
    if old:
        found.append(Problem(f"older measuring methods: {', '.join(old)}", "measure again with this linkscope"))
    if new:
        found.append(Problem(f"newer measuring methods: {', '.join(new)}", "check with the linkscope that measured"))
    if not wires(run):
        cure = "measure with `linkscope run`, which describes the machine in the run file"
        found.append(Problem("no map: the file describes no links of the machine", cure))
    if not any(point.median_s is not None for point in run.points):
        found.append(Problem("no point has a value", "measure again; `linkscope doctor` finds what prevents it"))
    for status, verb, cure in (
        ("failed", "failed", "remove the cause and measure again"),
        ("too_short", "without a value", TOO_SHORT_CURE),
    ):
        if bad := [point for point in run.points if shown_status(point) == status]:
            what = f"{count_text(len(bad), 'point')} {verb}, first {bad[0].id}: {bad[0].reason}"
            found.append(Problem(what, cure))
    private = [f"{count_text(count, kind)} (first in {where})" for kind, count, where in personal_data(path).counts()]
    if private:
        cure = f"`linkscope export --anonymous {file} -o anonymous.jsonl`"
        found.append(Problem(f"personal data: {', '.join(private)}", cure))
    return found


def check(path: Path) -> tuple[list[Problem], bool]:
    """Returns the problems of a file, and whether it could be read."""
    try:
        return problems(path), True
    except UserError as error:
        what, _, cure = str(error).partition(". ")
        return [Problem(what, cure or "use a run file of `linkscope run`")], False
