"""Section: every point once, as CSV."""

import re

from linkscope.report.data_csv import ON_PAGE, data_csv
from linkscope.report.run_view import RunView
from linkscope.report.section import Data, Paragraph, Section, prose
from linkscope.runfile import Run

_NOTE = (
    "Times are in seconds, sizes in bytes, rates in GB/s, shares and spreads in fractions. "
    "`linkscope export RUN.jsonl -o RUN.csv` writes all digits and every flow."
)


def section(view: RunView) -> Section:
    """The points, and downloads of them."""
    block = Data(data_csv(view.run, ON_PAGE), len(view.run.points), file_name(view.run))
    return Section("data", "Data", (Paragraph(prose(_NOTE), note=True), block))


def file_name(run: Run) -> str:
    """The base name of downloads: the name of the run file, with MODELLED for modelled runs."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.path.name.split(".jsonl")[0]) or "run"
    return f"MODELLED-{name}" if run.modelled else name
