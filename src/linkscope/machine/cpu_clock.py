"""Sets the CPUs' frequency governor and turbo for the time of a run, on request only, and restores both at its end."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from linkscope.errors import NOT_HERE, UserError

_CPU = "sys/devices/system/cpu"


@contextlib.contextmanager
def cpu_clock(governor: str | None, turbo: str | None, root: str | Path = "/") -> Iterator[None]:
    """Sets governor ('performance') and turbo ('on', 'off'); None leaves them as they are. Restores them afterwards.

    Raises UserError for an unknown value, a machine that shows no such setting, and a user who may not change it.
    """
    changes: dict[Path, str] = {}
    if governor is not None:
        changes |= dict.fromkeys(_governors(Path(root), governor), governor)
    if turbo is not None:
        changes |= _turbo(Path(root), turbo)
    before: dict[Path, str] = {}
    try:
        for path, value in changes.items():
            before[path] = path.read_text().strip()
            _write(path, value)
        yield
    finally:
        for path, value in before.items():
            with contextlib.suppress(OSError):  # what could not be changed needs no restoring
                path.write_text(value)


def _governors(root: Path, wanted: str) -> list[Path]:
    files = sorted((root / _CPU / "cpufreq").glob("*/scaling_governor"))
    if not files:
        raise UserError("--governor: this kernel shows no CPU frequency governor (a virtual machine?)", NOT_HERE)
    known = sorted(set((files[0].parent / "scaling_available_governors").read_text().split()))
    if wanted not in known:
        raise UserError(f"--governor {wanted}: this kernel has {', '.join(known)}")
    return files


def _turbo(root: Path, wanted: str) -> dict[Path, str]:
    if wanted not in ("on", "off"):
        raise UserError(f"--turbo {wanted}: choose on or off")
    off, on = root / _CPU / "intel_pstate/no_turbo", root / _CPU / "cpufreq/boost"
    if off.exists():
        return {off: "0" if wanted == "on" else "1"}
    if on.exists():
        return {on: "1" if wanted == "on" else "0"}
    raise UserError("--turbo: this kernel shows no turbo setting (a virtual machine?)", NOT_HERE)


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise UserError(f"{path} cannot be set to {value} ({error.strerror}): run as root") from None
