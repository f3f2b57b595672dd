"""Commands that tests start in other folders find the tree's own linkscope; tests of tools/ import these."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says which MPI the tests of ranks used."""
    from linkscope.run.launcher import libraries

    program = Path(sys.executable).with_name("mpiexec")
    library = next(libraries({}))
    found = f"{program} with {library.name}: {library.found}" if program.exists() else f"no mpiexec at {program}"
    terminalreporter.write_line(f"MPI: {found}")
