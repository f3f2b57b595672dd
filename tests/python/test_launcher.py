"""tools/launcher.py with stand-ins for the launchers of Open MPI and of MPICH."""

import os
from pathlib import Path

import launcher as tool
import pytest

OPEN_MPI, OF_MPIEXEC, MPICH = "mpirun (Open MPI) 4.1.6", "mpiexec (OpenRTE) 4.1.6", "HYDRA build details"


def started(folder: Path, said: str, count: int) -> list[str]:
    """The words that start ranks by a launcher that answers so when it is asked for its version."""
    launcher = folder / "mpirun"
    launcher.write_text(f"#!/bin/sh\necho '{said}'\n")
    launcher.chmod(0o755)
    words = list(tool.ranks_by(str(launcher), count))
    assert words[0] == str(launcher) and words[-2:] == ["-n", str(count)]
    return words


@pytest.mark.parametrize("said", [OPEN_MPI, OF_MPIEXEC, MPICH])
def test_only_open_mpi_gets_options_against_a_ucx_of_its_own_and_for_root(tmp_path: Path, said: str) -> None:
    words = started(tmp_path, said, 2)
    assert ("^ucx" in words) == (said != MPICH)
    assert ("--allow-run-as-root" in words) == (said != MPICH and os.getuid() == 0)


@pytest.mark.parametrize("count, cores", [(2, 0), (4, 2), (8, 1), (16, 0)])
def test_more_than_two_ranks_get_cores_of_their_own_where_there_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, cores: int
) -> None:
    monkeypatch.setattr(tool.os, "cpu_count", lambda: 8)
    for said, bound, free in (
        (OPEN_MPI, f"--map-by slot:PE={cores} --bind-to core", "--bind-to none"),
        (MPICH, f"-bind-to core:{cores}", "-bind-to none"),
    ):
        assert (bound if cores else free) in " ".join(started(tmp_path, said, count))


def test_a_launcher_behind_a_linked_folder_is_started_by_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    launcher = tmp_path / "usr" / "bin" / "mpiexec"
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    (tmp_path / "bin").symlink_to("usr/bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(tool.sys, "executable", str(tmp_path / "elsewhere" / "python"))
    assert tool.installed() == str(launcher)
    launcher.unlink()
    assert tool.installed() is None
