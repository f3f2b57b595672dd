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
def test_only_open_mpi_is_told_to_load_no_ucx_of_its_own_and_to_accept_root(tmp_path: Path, said: str) -> None:
    words = started(tmp_path, said, 2)
    assert ("^ucx" in words) == (said != MPICH)
    assert ("--allow-run-as-root" in words) == (said != MPICH and os.getuid() == 0)


@pytest.mark.parametrize("said, option", [(OPEN_MPI, "--bind-to"), (MPICH, "-bind-to")])
@pytest.mark.parametrize("count, binding", [(2, "none"), (4, "core"), (8, "core"), (16, "none")])
def test_more_than_two_ranks_get_a_core_each_where_there_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, option: str, count: int, binding: str
) -> None:
    monkeypatch.setattr(tool.os, "cpu_count", lambda: 8)
    words = started(tmp_path, said, count)
    assert words[words.index(option) + 1] == binding


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
