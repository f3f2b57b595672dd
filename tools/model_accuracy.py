"""Writes src/linkscope/advise/accuracy.toml: how far the bundled H200 models are from committed runs of such nodes.

Usage: .venv/bin/python tools/model_accuracy.py     (from results/h200x1-full, h200x2-full and h200x4-full)
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "src"))

from linkscope.machine import model as models
from linkscope.model.check import compared, deviations
from linkscope.model.observed import observed
from linkscope.model.toml import machine_toml
from linkscope.run.simulate import quiet, simulation
from linkscope.runfile import read_run

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILE = ROOT / "src" / "linkscope" / "advise" / "accuracy.toml"
# The run that each model is compared with. No node of eight GPUs was measured.
RUNS = {"h200x1": "h200x1-full", "h200x2": "h200x2-full", "h200x4": "h200x4-full", "h200x8": "h200x4-full"}
HEAD = "# Errors of bundled models by operation, as in [deviation]. Written by tools/model_accuracy.py.\n"


def table(name: str) -> str:
    """The rows of a model, with the run in a comment."""
    run = ROOT / "results" / f"{RUNS[name]}.jsonl.gz"
    with simulation() as simulated:
        held = compared(quiet(models.load(name).to_json()), observed(read_run(run).points), simulated)
    rows = machine_toml({"deviation": deviations(held, held_out=False)})
    return f"# Against results/{run.name}.\n" + rows.replace("[deviation]", f"[{name}]", 1)


if __name__ == "__main__":
    FILE.write_text("\n".join([HEAD, *map(table, RUNS)]))
    print(f"wrote {FILE}")
