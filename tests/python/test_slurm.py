"""Ranks that srun starts: a real Slurm of two networks of this machine, and tasks that meet without a PMI."""

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_driver import needs_worker
from linkscope.errors import UserError
from linkscope.run.launcher import Launched
from linkscope.run.slurm import Table, without_pmi
from linkscope.runfile import Run, read_run
from networks import Host, hosts, needs_hosts
from test_ranks import LINKSCOPE, needs_mpi, without_ranks
from test_ucx import needs_ucx

PROGRAMS = ("srun", "slurmctld", "slurmd", "munged", "setpriv")


def why_no_slurm() -> str:
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"{missing[0]} is missing (Debian: slurmctld, slurmd, slurm-client, munge)"
    return "" if os.getuid() == 0 else "slurmd runs as root"


needs_slurm = pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm() or "there is Slurm")

CONFIGURATION = """ClusterName=linkscope
SlurmctldHost=node0(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
NodeName=node0 NodeAddr=10.77.0.1 CPUs=1
NodeName=node1 NodeAddr=10.77.0.2 CPUs=1
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Daemons:
    """Processes that end with this one, or before."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._folder, self._settings = folder, settings
        self._all: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> None:
        with (self._folder / f"{len(self._all)}.log").open("wb") as log:
            command = ["setpriv", "--pdeathsig", "KILL", *words]
            self._all.append(subprocess.Popen(command, env=self._settings, stdout=log, stderr=log))

    def end(self) -> None:
        for one in reversed(self._all):
            one.terminate()
        for one in reversed(self._all):
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(10)
            one.kill()
            one.wait()


def start_munge(daemons: Daemons, folder: Path) -> None:
    """Starts the daemon by which those of Slurm know each other."""
    folder.chmod(0o700)
    key = folder / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    files = [f"--{name}={folder / name.partition('-')[0]}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    daemons.start("munged", "--foreground", "--force", f"--key-file={key}", *files)
    for _ in range(3000):
        if (folder / "socket").exists():
            return
        time.sleep(0.1)
    pytest.fail((folder / "0.log").read_text())


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[tuple[Host, dict[str, str]]]:
    """Starts a Slurm of two nodes; yields the host for srun, and its environment."""
    (folder / "state").mkdir()
    (folder / "slurm.conf").write_text(CONFIGURATION.format(folder=folder))
    settings = without_ranks() | {"SLURM_CONF": str(folder / "slurm.conf"), "UCX_TLS": "tcp"}  # see networks.launch
    daemons = Daemons(folder, settings)
    with hosts(2) as on:
        try:
            start_munge(daemons, folder)
            daemons.start(*on[0].enter, "slurmctld", "-D")
            for host in on:
                daemons.start(*host.enter, "slurmd", "-D", "-N", host.name)
            asks = [*on[0].enter, "sinfo", "-h", "-o", "%T %D"]
            for _ in range(1000):
                asked = subprocess.run(asks, env=settings, capture_output=True, text=True)
                if asked.stdout.strip() == "idle 2":
                    break
                time.sleep(0.3)
            else:
                pytest.fail(f"no nodes: {asked}; {[one.read_text()[-500:] for one in folder.glob('*.log')]}")
            yield on[0], settings
        finally:
            daemons.end()


def run_by_srun(of: tuple[Host, dict[str, str]], folder: Path, *words: str) -> Run:
    """The complete run of two tasks, one on each node."""
    host, settings = of
    path = folder / "run.jsonl"
    ours = ["run", "--suite", "nodes", "--rounds", "2", "--precision", "99%", "-q", "--force", "-o", str(path)]
    command = [*host.enter, "srun", "--ntasks-per-node=1", "-N2", words[0], *LINKSCOPE, *ours, *words[1:]]
    done = subprocess.run(command, env=settings, cwd=folder, capture_output=True, text=True, timeout=300)
    assert path.exists(), done.stderr
    run = read_run(path)
    assert run.end and run.end.complete, done.stderr
    assert all(one.verified for one in run.points), [(one.id, one.reason) for one in run.points]
    return run


@needs_worker
@needs_slurm
@needs_hosts
@needs_mpi
@needs_ucx
def test_srun_measures_pairs_of_nodes_by_mpi_and_where_it_has_no_pmi_by_ucx(tmp_path):
    with slurm(tmp_path) as of:
        by_mpi = run_by_srun(of, tmp_path, "--mpi=pmi2", "--local", "check")
        without = run_by_srun(of, tmp_path, "--mpi=none")
    about = by_mpi.header.machine["mpi"]
    assert {one.engine for one in by_mpi.points} == {"mpi"} and about["launcher"] == "srun"
    assert "MPICH" in about["library"] and (tmp_path / "run-node1.jsonl").exists()
    about = without.header.machine["mpi"]
    assert {one.engine for one in without.points} == {"ucx"} and len(without.points) == 3
    assert "srun --mpi=pmi2" in about["why_no_mpi"] and "library" not in about
    assert [(one["rank"], one["host"]) for one in about["ranks"]] == [(0, "node0"), (1, "node1")]
    assert not list(tmp_path.glob(".linkscope-srun*"))


# --- tasks that meet without a PMI ---


def of_srun(rank: int, size: int = 2) -> Launched:
    return Launched(rank, size, 0, "srun")


@pytest.fixture
def step(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_STEP_ID", "1")
    return tmp_path


def test_only_tasks_of_srun_without_pmi_meet_without_mpi():
    assert without_pmi(of_srun(0), {"SLURM_PROCID": "0"})
    assert not without_pmi(of_srun(0), {"PMI_RANK": "0"}) and not without_pmi(of_srun(0), {"PMIX_RANK": "0"})
    assert not without_pmi(Launched(0, 2, 0, "mpiexec"), {})


def test_tasks_find_each_other_by_a_file_and_share_texts_in_order_of_rank(step):
    shared: dict[int, list[list[str]]] = {}

    def take_part(rank: int) -> None:
        table = Table(of_srun(rank, 3), 20.0, lambda: False)
        shared[rank] = [table.share(f"one {rank}"), table.share(f"line\n{rank}" * 50_000)]
        table.leave()

    tasks = [threading.Thread(target=take_part, args=(rank,)) for rank in (2, 1, 0)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join(300)
    expected = [[f"one {rank}" for rank in range(3)], [f"line\n{rank}" * 50_000 for rank in range(3)]]
    assert shared == dict.fromkeys(range(3), expected)
    assert not list(step.iterdir())


def test_a_task_that_does_not_come_is_named(step):
    with pytest.raises(UserError, match=r"rank 1 does not join within 1 s\. srun --mpi=pmi2"):
        Table(of_srun(0), 1.0, lambda: False)
    assert not list(step.iterdir())


def test_a_task_that_finds_no_file_names_the_folder(step):
    with pytest.raises(UserError, match=r"rank 1 on .* finds no .*\.linkscope-srun-7\.1\.0 .* same on all nodes"):
        Table(of_srun(1), 0.2, lambda: False)


def test_a_task_that_ends_before_it_has_shared_is_named(step):
    come = threading.Thread(target=lambda: Table(of_srun(1), 20.0, lambda: False).leave())
    come.start()
    table = Table(of_srun(0), 20.0, lambda: False)
    come.join()
    with pytest.raises(UserError, match="rank 1 has ended"):
        table.share("hello")
