"""Compares the output of another tool with linkscope's run on one machine.

Usage: python tools/side_by_side.py RUN.jsonl[.gz] NVBANDWIDTH.txt[.gz] [NVBANDWIDTH.txt[.gz]]
       python tools/side_by_side.py RUN.jsonl[.gz] COMM_SCOPE.json[.gz] ...    of Google Benchmark; a run by its rule

nvbandwidth, table by table (docs/notes/nvbandwidth.md): each row is the median of the cells of a table. `allowed` is
1 % for single pairs by copy engine and 3 % for the rest, or the difference of two runs of nvbandwidth if that is
larger. The last lines give the duration of linkscope's run, and the time in which timed batches ran.

Comm|Scope, benchmark by benchmark (tools/comm_scope_names.py): `tools/evidence.py FOLDER --steps beside` makes both.
"""

import gzip
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from comm_scope_names import agreement, measurements

from linkscope.report.nvbandwidth import tables
from linkscope.runfile import Round, Run, read_run
from linkscope.stats import median

_ROW = re.compile(r" *\d+((?: +(?:N/A|\d+\.\d+))+)")


def printed(path: str) -> dict[str, float]:
    """The median cell of each table of nvbandwidth's output, by the key of its SUM line."""
    data = Path(path).read_bytes()
    text = (gzip.decompress(data) if path.endswith(".gz") else data).decode()
    found: dict[str, float] = {}
    cells: list[float] = []
    for line in text.splitlines():
        row = _ROW.fullmatch(line)
        if row:
            cells += [float(cell) for cell in row[1].split() if cell != "N/A"]
        elif line.startswith("SUM "):
            found[line.split()[1]], cells = median(cells), []
    return found


def timed_s(run: Run) -> float:
    """Seconds in which timed batches ran: two batches per sample, or one alone (docs/reference/worker.md)."""
    alone = 8e-3  # seconds of an operation that was compared with an empty batch, for rounds without that field
    total = 0.0
    for rounds in run.rounds.values():
        for each in rounds:
            of = [flow.samples_s for flow in each.flows]
            for sample in zip(*of, strict=True):
                longer = each.longer or (1 if min(sample) >= alone else 2)
                batches = 1 if longer == 1 else 1 + longer
                total += batches * max(seconds * count for seconds, count in zip(sample, _counts(each), strict=True))
    return total


def _counts(each: Round) -> list[int]:
    """The batch of every flow; flows of one actor share its batch."""
    share = len(each.flows) // len(each.batch)
    return [count for count in each.batch for _ in range(share)]


def main() -> None:
    outputs = [Path(name) for name in sys.argv[2:]]
    of_comm_scope = bool(outputs) and all(".json" in output.suffixes for output in outputs)
    if not of_comm_scope and len(outputs) not in (1, 2):
        sys.exit(__doc__)
    run = read_run(sys.argv[1])
    if of_comm_scope:
        return print("\n".join(agreement(run, measurements(*outputs))))
    ours = {
        table.key: median([value for row in table.cells for value in row if value is not None]) for table in tables(run)
    }
    theirs = [printed(path) for path in sys.argv[2:]]
    print("| table | nvbandwidth | its own difference | linkscope | difference | allowed | |")
    print("|---|---|---|---|---|---|---|")
    for key in theirs[0]:
        values = [cells[key] for cells in theirs if key in cells]
        middle = sum(values) / len(values)
        own = (max(values) - min(values)) / middle
        shown = ", ".join(f"{value:.2f}" for value in values)
        if key not in ours:
            print(f"| {key} | {shown} | {own:.2%} | not measured | | | |")
            continue
        off = ours[key] / middle - 1
        allowed = max(0.03 if "_sm" in key or "all_" in key else 0.01, own)
        verdict = "" if abs(off) <= allowed else "beyond"
        print(f"| {key} | {shown} | {own:.2%} | {ours[key]:.2f} | {off:+.2%} | {allowed:.2%} | {verdict} |")
    rounds = max(each.round for of in run.rounds.values() for each in of) + 1
    wall = f"{run.wall_s:.1f} s" if run.end else "not ended"
    print(f"\nlinkscope: {wall} in {rounds} processes, of which timed batches ran for {timed_s(run):.1f} s.")


if __name__ == "__main__":
    main()
