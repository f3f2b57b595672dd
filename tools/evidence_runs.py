"""Steps of tools/evidence.py for any machine: suites, GPU tests, and Comm|Scope's program beside its suite."""

import subprocess
import sys
import time

import comm_scope_names
import comm_scope_program
from evidence_step import ROOT, Call, Step, gpus, linkscope_run, logged, one_run, tests

from linkscope.runfile import read_run

_FEW_SIZES = [word for size in (4096, 1 << 20, 16 << 20) for word in ("--only", f"*/{size}?*")]
_FEW = ("split/*", "latency/*sm=*", "demand/*threads=all*", "*/4096000?*")  # the last glob: pieces


def findings(call: Call) -> int:
    """Runs the points that tools/findings.py needs on these GPUs."""
    points = [sys.executable, str(ROOT / "tools" / "findings.py"), "--points", "--gpus", str(len(gpus()))]
    chosen = subprocess.run(points, capture_output=True, text=True, check=True).stdout.split()
    return one_run(call, ["--suite", "full", "--budget", "90s", *chosen], goes_on=False)


def beside(call: Call) -> int:
    """Runs Comm|Scope's program for half of the time, then the points that it measured by its rule, and prints their
    agreement. Returns an exit code.
    """
    tool, log = call.given.tool, call.log
    end = time.monotonic() + call.seconds
    names = comm_scope_program.listed(tool, call.given.exponents, call.given.benchmarks, log)
    if not names:
        print(f"beside: {tool} lists no benchmarks of 2^N bytes for N = {call.given.exponents}; see the log")
        return 1
    half_s = end - time.monotonic() - call.seconds / 2
    measured = comm_scope_program.measured(tool, names, call.result, half_s, lambda *words: logged(*words, log))
    if missing := [f"{one.name} ({one.why_not})" for one in measured if not one.seconds]:
        print(f"beside: {len(missing)} of {len(measured)} benchmarks have no result: {', '.join(missing)}")
    only = [word for one in measured if one.id and one.seconds for word in ("--only", one.id)]
    if not only:
        print(f"beside: {tool} wrote no results; its output is in the log")
        return 1
    run, table = (call.folder / f"{call.base}.{ending}" for ending in ("jsonl", "md"))
    options = ["--suite", "comm-scope", "--rule", "comm-scope", *only, "--force", "-o", str(run)]
    if call.given.machine:
        options += ["--machine", call.given.machine]
    status = logged([sys.executable, "-m", "linkscope", "run", *options], end - time.monotonic(), log)
    if run.exists():
        lines = "\n".join(comm_scope_names.agreement(read_run(run), measured))
        table.write_text(f"{lines}\n", encoding="utf-8")
        print(lines)
    return status


# In the order of a call that names no steps.
STEPS = {
    "quick": Step(40, linkscope_run("--suite", "quick")),
    "standard": Step(160, linkscope_run()),
    "standard-again": Step(160, linkscope_run()),
    "tests": Step(240, tests(str(ROOT / "tests" / "gpu"))),
    "findings": Step(120, findings),
    "papers": Step(120, linkscope_run("--suite", "comm-scope", "--budget", "90s", *_FEW_SIZES)),
    "few": Step(90, linkscope_run("--suite", "full", *(word for of in _FEW for word in ("--only", of)))),
    "full": Step(120, linkscope_run("--suite", "full", goes_on=True), takes_rest=True),
}
# Steps that a call names.
NAMED = {
    "comm-scope": Step(120, linkscope_run("--suite", "comm-scope", goes_on=True), takes_rest=True),
    "beside": Step(60, beside, takes_rest=True, needs="tool"),
}
