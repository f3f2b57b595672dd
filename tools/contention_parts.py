"""What sections of tools/contention_bench.py have in common: the machine, a folder of answers, and runs within a time.

An answer that the folder has is not measured again, and a run that was interrupted goes on. So a call with the same
folder on the same machine measures what is missing.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench_sections import LATE, OutOfTime

from linkscope.errors import UserError
from linkscope.report.markdown import section_markdown
from linkscope.run.target import Target
from linkscope.runfile import read_run

ROOT = Path(__file__).parents[1]
Table = Iterator[str]
_ENDING_S = 15.0  # a run that was asked to stop saves its points within this time


@dataclass
class Bench:
    """The machine, where answers go, and the time that is left. `ends`: of the current section, in `monotonic` time."""

    target: Target
    machine: str
    against: str | None
    folder: Path
    seconds: str
    rounds: int
    nvbandwidth: str | None
    ends: float = 0.0
    missing: list[str] = field(default_factory=list)

    @property
    def gpus(self) -> list[str]:
        return self.target.facts.of_kind("gpu")

    @property
    def left_s(self) -> float:
        """Seconds of the section, without those that a run needs to end."""
        return self.ends - time.monotonic() - _ENDING_S

    def near(self, gpu: str) -> str:
        return self.target.numa_of_gpus.get(gpu, self.target.facts.of_kind("numa")[0])

    def flow(self, name: str, *words: str, rounds: int | None = None) -> dict[str, Any] | None:
        """The answer of `linkscope flow`, kept as NAME.json; None with a note if it failed. Raises OutOfTime."""
        kept = self.folder / f"{name}.json"
        if not kept.exists():
            options = ["--machine", self.machine, "--seconds", self.seconds, "--rounds", str(rounds or self.rounds)]
            if self.against:
                options += ["--against", self.against]
            done = self.linkscope("flow", *words, *options, "--json")
            if done.returncode != 0:
                self.fails(name, done)
                return None
            kept.write_text(done.stdout)
        found: dict[str, Any] = json.loads(kept.read_text())
        return found

    def fails(self, name: str, done: subprocess.CompletedProcess[str]) -> None:
        """Notes the last line of what a command said."""
        self.missing.append(f"{name}: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")

    def linkscope(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of linkscope. Raises OutOfTime."""
        return self.command([sys.executable, "-m", "linkscope", *words])

    def command(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Raises OutOfTime if the section's time ends before the command does."""
        left = self.ends - time.monotonic()
        if left <= 0:
            raise OutOfTime
        try:
            return subprocess.run(words, capture_output=True, text=True, timeout=left, check=False)
        except subprocess.TimeoutExpired:
            raise OutOfTime from None

    def run_file(self, name: str, *words: str, share: float = 1.0) -> Path | None:
        """The file of a run that ends within a share of the section's time, with a note on what it lacks; None if there
        is no file. A run that the folder has goes on, unless it is complete."""
        path = self.folder / f"{name}.jsonl"
        kept = read_run(path, rounds=True) if path.exists() else None
        if kept is None or kept.end is None or not kept.end.complete:
            left = share * (self.left_s + _ENDING_S) - _ENDING_S
            spent = sum(round.device_s for of in kept.rounds.values() for round in of) if kept else 0.0
            limit = [] if self.target.modelled else ["--budget", f"{left + spent:.0f}s"]
            begun = ["--resume", str(path)] if kept else [*words, "--machine", self.machine, "-o", str(path)]
            try:
                if left <= 1:
                    raise OutOfTime
                done = self.linkscope("run", *begun, *limit, "-q")
                if done.returncode not in (0, 1):
                    self.fails(name, done)
            except OutOfTime:
                self.missing.append(f"{name}: its part of the time {LATE}")
        if not path.exists():
            return None
        points = read_run(path).points
        if skipped := sum(point.status == "skipped" for point in points):
            self.missing.append(f"{name}: {skipped} points, for lack of time")
        self.missing += [f"{name}: {point.id}: {point.reason}" for point in points if point.status == "failed"]
        return path

    def report(self, path: Path | None, *anchors: str) -> Table:
        """Sections of a run's report, without titles."""
        run = read_run(path) if path else None
        for anchor in anchors if run else ():
            yield from ["", *section_markdown(run, anchor).splitlines()] if run else []


def own_folder(folder: Path, target: Target) -> None:
    """Makes the folder for answers of this machine. Raises UserError if it has those of another one."""
    gpus = [] if target.modelled else target.machine.get("gpus", ())
    here = json.dumps({"name": target.facts.name, "gpus": [gpu.get("uuid") for gpu in gpus]})
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "machine.json"
    if kept.exists() and kept.read_text() != here:
        raise UserError(f"{folder} has answers of another machine, {kept.read_text()}; give another folder")
    kept.write_text(here)
