"""tools/launcher.py with stand-ins for the launchers of Open MPI and of MPICH."""

import os
from pathlib import Path

import pytest
from launcher import ranks_by


@pytest.mark.parametrize("said, is_open_mpi", [("mpirun (Open MPI) 4.1.6", True), ("HYDRA build details", False)])
def test_only_open_mpi_is_told_to_load_no_ucx_of_its_own_and_to_accept_root(
    tmp_path: Path, said: str, is_open_mpi: bool
) -> None:
    launcher = tmp_path / "mpirun"
    launcher.write_text(f"#!/bin/sh\necho '{said}'\n")
    launcher.chmod(0o755)
    words = list(ranks_by(str(launcher), 2))
    assert words[0] == str(launcher) and "-n 2" in " ".join(words) and "--bind-to none" in " ".join(words)
    assert ("^ucx" in words) == is_open_mpi
    assert ("--allow-run-as-root" in words) == (is_open_mpi and os.getuid() == 0)
