"""tools/put_get_counters.py with a stand-in for Nsight Compute, which starts no kernel."""

import os
import re
import stat
from pathlib import Path

import put_get_counters as tool
import pytest

from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

# Lists all metrics but one; counts 7 per metric, and needs two passes for instructions.
NCU = """#!/bin/sh
if [ "$1" = --query-metrics ]; then
  echo "Device stand-in"
  for name in {names}; do echo "$name   Counter   sector   a description"; done
  exit
fi
while [ $# -gt 0 ]; do
  case $1 in --log-file) log=$2 ;; --metrics) metric=$2 ;; -k) kernels=$2 ;; esac
  shift
done
echo "$kernels $metric" >> {calls}
case $metric in smsp__inst_executed.sum) passes="2 passes" ;; *) passes="1 pass" ;; esac
printf '==PROF== Profiling "linkscope_block" - 0: 0%%....50%%....100%% - %s\\n' "$passes" > $log
printf '"ID","Metric Name","Metric Value"\\n"0","%s","7"\\n"1","%s","1,234"\\n' $metric $metric >> $log
"""
NAMES = [counter.metrics[-1] for counter in tool.COUNTERS if counter.name != "L2 read hits"]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stand-in comes first in the path; the file that is returned holds a line for each run."""
    calls, ncu = tmp_path / "calls", tmp_path / "ncu"
    ncu.write_text(NCU.format(names=" ".join(NAMES), calls=calls))
    ncu.chmod(ncu.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    choose = tool.choose
    monkeypatch.setattr(tool, "choose", lambda _, seed: choose("h200x1", seed))
    return calls


def test_each_listed_counter_has_a_run_of_its_own_and_stands_beside_the_papers(
    calls: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool.main()
    head, _, *rows = capsys.readouterr().out.splitlines()
    columns = "put | get | put by descriptors | paper: words in system memory | paper: in own memory"
    assert head == f"| of 100 round trips | {columns} | paper: queues on the host | paper: on the GPU |"
    cells = {row.split(" | ")[0].strip("| "): [cell.strip(" |") for cell in row.split(" | ")[1:]] for row in rows}
    assert list(cells) == [counter.name for counter in tool.COUNTERS]
    assert cells["system memory reads, 32 B"] == ["1234"] * 3 + ["4368", "0", "772", "80"]
    assert cells["L2 read hits"] == ["not listed"] * 3 + ["0", "3143", "16647", "14575"]
    assert cells["L2 read misses"] == ["1234"] * 3 + ["-", "-", "999", "1405"]
    assert cells["instructions"] == ["needs 2 passes"] * 3 + ["46413", "22491", "123297", "110463"]
    runs = calls.read_text().splitlines()
    assert len(runs) == 3 * len(NAMES)
    assert all(re.fullmatch(r"regex:\^linkscope_block\$ \w+\.sum", run) for run in runs)


def test_newer_names_of_metrics_are_used_where_older_ones_are_missing() -> None:
    loads = next(counter for counter in tool.COUNTERS if counter.name == "loads of global memory")
    assert tool.metric_of(loads, loads.metrics) == "smsp__inst_executed_op_global_ld"
    assert tool.metric_of(loads, loads.metrics[1:]) == "smsp__sass_inst_executed_op_global_ld"
    assert tool.metric_of(loads, ()) is None


def test_the_block_kernel_has_the_name_that_the_counters_ask_for() -> None:
    kernels = Path(__file__).parents[2] / "core" / "platform" / "cuda" / "kernels" / "block.cu"
    assert re.search(r"\blinkscope_block\(", kernels.read_text())


def test_without_nsight_compute_the_tool_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="needs Nsight Compute"):
        tool.main()
