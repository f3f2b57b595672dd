"""Commands that tests start in other folders find the tree's own linkscope; tests of tools/ import these."""

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from campaign import LONG

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
)

# Another program may stop any process of a test for many seconds. Tests of time-outs use the fixture `impatient`.
os.environ["LINKSCOPE_PATIENCE"] = "20"

# Some containers forbid it, and then each of the hundreds of commands that tests start compiles all modules again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Properties have the same examples in every run, and other ones in a long run. On a busy machine each may take long.
settings.register_profile(
    "linkscope",
    derandomize=not LONG,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("linkscope")

# The files that take longest, longest first. They start first, so that all workers end together.
LONGEST = [
    "gpu_tests",
    "rounds",
    "cli",
    "driver_shared",
    "report_summary",
    "model",
    "report_readers",
    "driver_kinds",
    "contention_bench",
    "planned_runs",
    "live_run",
    "new_operation",
    "kills",
    "driver_runs",
    "plain_words",
    "tune_command",
    "report_details",
    "ahead",
    "driver_matrix",
    "driver_verification",
    "selftest",
    "ranks",
    "advise_models",
    "supervisor",
    "underway",
    "report_browser",
    "paper_comm_scope",
    "flow_command",
    "layout",
    "gate",
    "sim_machines",
    "gate_references",
    "sharing",
    "whole_runs",
    "wheel",
    "bootstrap",
    "contexts",
    "file_copies",
    "fake_cuda",
    "prediction",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {f"test_{name}.py": at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    # Thousands of tests and their modules stay to the end: the garbage collector need not visit them again.
    gc.freeze()
    gc.set_threshold(50_000)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of waits as a user has them."""
    monkeypatch.delenv("LINKSCOPE_PATIENCE")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says which MPI the tests of ranks used."""
    from linkscope.run.launcher import libraries

    program = Path(sys.executable).with_name("mpiexec")
    library = next(libraries({}))
    found = f"{program} with {library.name}: {library.found}" if program.exists() else f"no mpiexec at {program}"
    terminalreporter.write_line(f"MPI: {found}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    """A headless Chromium for the tests of one file, which skip where there is none."""
    from browser import CHROMIUM, Browser

    if CHROMIUM is None:
        pytest.skip("no Chromium here, which draws the pages: Debian's package chromium has it")
    with Browser(tmp_path_factory.mktemp("profile")) as made:
        yield made
