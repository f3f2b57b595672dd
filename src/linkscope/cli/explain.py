"""Explain the transfers of a program: what each cost, what it should cost here, and what a change is worth.

linkscope explain trace.json                             a trace of PyTorch's profiler (.json, .json.gz)
linkscope explain report.sqlite --against run.jsonl      an SQLite export of Nsight Systems, against measured copies
linkscope explain trace.json --against h200x4            against a model: expected times are MODELLED
linkscope explain training.trace --against run.jsonl     a list of transfers: their time by kind
linkscope explain training.trace --against run.jsonl -o bars.svg
linkscope explain trace.json -o bars.svg                 two bars for each step: its copies as recorded, and as expected

The worth of a finding is the most time that the program can gain. Copies beside a kernel cost no time. Expected times
are those of copies by copy engine with nothing beside them, without the time of driver calls.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from linkscope.cli import target
from linkscope.cli.runs import read
from linkscope.cli.screen import filled
from linkscope.errors import FINE, NOT_HERE, UserError
from linkscope.units import with_signs

if TYPE_CHECKING:
    from linkscope.explain import Expected, Explanation, Recorded
    from linkscope.machine.model import Model

_MOST_STEPS = 20  # of a drawing
SUMMARY = "explain a profiler's trace: what each transfer should cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `explain`."""
    add = parser.add_argument
    add("trace", metavar="TRACE", help="a profiler's trace, or a list of transfers")
    add("--against", metavar="RUN|NAME|FILE", help="a run file, or a model (default: the bundled model of its GPUs)")
    add("-o", "--output", metavar="FILE.svg", help="draw the time of transfers by kind, for each part or step")
    add("--json", action="store_true", help="print JSON, with every copy")
    target.add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """`linkscope explain`."""
    from linkscope.explain import explain, is_text_trace, read_recorded

    path = Path(arguments.trace)
    if is_text_trace(path):
        return _listed(path, arguments)
    figure = _figure(arguments, [path])
    recorded = read_recorded(path)
    found = explain(recorded, _expected(arguments.against, recorded))
    if figure:
        return _draw(found, figure)
    from linkscope.explain.text import as_json, table, to_lines
    from linkscope.report.plain import aligned

    if arguments.json:
        print(json.dumps(as_json(found)))
        return FINE
    for line in to_lines(found):
        indent = "   " if line.startswith("   ") else ""
        print(filled(line.strip(), indent, indent + "  "))
    head, *groups = (tuple(map(with_signs, row)) for row in table(found))
    if groups:
        print("\nTransfers, the longest groups first (median and expected: one copy):")
    for line in aligned(head, groups, to_the_right=True):
        print(f"  {line}")
    return FINE


def _expected(against: str | None, recorded: "Recorded") -> "Expected":
    from linkscope.explain import expected_by_model, expected_by_run
    from linkscope.machine.choose import model_named
    from linkscope.machine.model import places
    from linkscope.run.simulate import simulation

    if against and against.endswith((".jsonl", ".jsonl.gz")):
        run = read(against)
        name = f"{run.header.machine.get('name', '')} ({against})"
        return expected_by_run(run.points, name, modelled=run.modelled)
    cure = "give a run file or a model. `linkscope run -o RUN.jsonl` makes a run"
    model = model_named("--against", against, cure) if against else _bundled(recorded)
    with simulation() as machine:
        numa = places(model).numa
        return expected_by_model(model.to_json(), numa, recorded.copies, machine.seconds)


def _bundled(recorded: "Recorded") -> "Model":
    """The bundled model of the GPUs that the trace names."""
    from linkscope.machine.choose import bundled_for

    used = {gpu for copy in recorded.copies for gpu in copy.gpus} | {kernel.gpu for kernel in recorded.kernels}
    names = {gpu: recorded.gpus.get(gpu, "") for gpu in used}
    if found := bundled_for(names):
        return found
    here = ", ".join(sorted(filter(None, set(names.values())))) or "no GPU by name"
    raise UserError(
        f"the trace names {here}, of which there is no bundled model: add --against RUN.jsonl (from `linkscope run`), "
        "or a machine file", NOT_HERE,
    )  # fmt: skip


def _listed(path: Path, arguments: argparse.Namespace) -> int:
    """A list of transfers: their time by kind, from a run that measured them."""
    from linkscope.report.figures import standalone
    from linkscope.report.plain import replay_to_text
    from linkscope.report.replay import bars_svg, cells, replay
    from linkscope.trace import read_trace

    parts = read_trace(path)
    if not (arguments.against or "").endswith((".jsonl", ".jsonl.gz")):
        raise UserError(f"{path} lists transfers: add --against RUN.jsonl, from `linkscope run --trace {path}`")
    source, output = Path(arguments.against), arguments.output
    run = read(source)
    bars, missing = replay(parts, run.points)
    if missing:
        what = f"{len(missing)} of the transfers in {path}, such as {missing[0]}"
        raise UserError(f"{source} has no value for {what}: `run --trace {path}` measures them", NOT_HERE)
    if arguments.json:
        heads = ("part", "kind", "transfers", "bytes", "time", "share")
        rows = [dict(zip(heads, row, strict=True)) for row in cells(bars)]
        print(json.dumps({"modelled": run.modelled, "rows": rows}))
        return FINE
    if output is None:
        print(replay_to_text(bars, run.modelled), end="")
        return FINE
    figure = _figure(arguments, [source, path])
    assert figure is not None  # `output` names it
    target.write(figure, standalone(bars_svg(bars, modelled=run.modelled)))
    target.name_output("figure", figure)
    return FINE


def _figure(arguments: argparse.Namespace, sources: list[Path]) -> Path | None:
    """The file of -o, which can be written; None without -o."""
    if not arguments.output:
        return None
    figure = Path(arguments.output)
    if figure != target.STANDARD_OUTPUT and figure.suffix != ".svg":
        raise UserError(f"-o {figure}: the figure of a trace is an .svg file")
    target.check_writable(figure, sources, force=arguments.force)
    return figure


def _draw(found: "Explanation", figure: Path) -> int:
    """Draws two bars for each of the first steps: its copies as recorded and as expected."""
    from linkscope.explain import KindTimes, by_step
    from linkscope.model.curves import Estimate
    from linkscope.report.figures import standalone
    from linkscope.report.replay import Bar, Sum, bars_svg

    def bar(name: str, kinds: dict[str, KindTimes], *, expected: bool) -> Bar:
        seconds = {kind: of.expected_s if expected else of.took_s for kind, of in kinds.items()}
        return Bar(name, {kind: Sum(of.copies, of.bytes, Estimate(seconds[kind]), ()) for kind, of in kinds.items()})

    mark = " (MODELLED)" if found.expected.modelled else ""
    bars = []
    for step in by_step(found)[:_MOST_STEPS]:
        bars.append(bar(f"{step.name}, recorded", step.kinds, expected=False))
        bars.append(bar(f"expected{mark}", step.kinds, expected=True))
    target.write(figure, standalone(bars_svg(bars, modelled=False)))
    target.name_output("figure", figure)
    return FINE
