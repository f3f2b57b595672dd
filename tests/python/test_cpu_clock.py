"""`run --governor` and `--turbo` change the CPU's clock on request only, and restore it."""

from pathlib import Path

import pytest

from linkscope.cli.main import main
from linkscope.errors import NOT_HERE, UserError
from linkscope.machine.cpu_clock import cpu_clock

CPU = "sys/devices/system/cpu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of two CPUs whose governor is powersave and whose turbo is on."""
    for policy in ("policy0", "policy1"):
        folder = tmp_path / CPU / "cpufreq" / policy
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text("powersave\n")
        (folder / "scaling_available_governors").write_text("performance powersave\n")
    (tmp_path / CPU / "intel_pstate").mkdir()
    (tmp_path / CPU / "intel_pstate" / "no_turbo").write_text("0\n")
    return tmp_path


def state(root: Path) -> tuple[list[str], str]:
    files = sorted((root / CPU / "cpufreq").glob("*/scaling_governor"))
    return [file.read_text().strip() for file in files], (root / CPU / "intel_pstate/no_turbo").read_text().strip()


def test_without_a_request_nothing_is_written(root: Path) -> None:
    with cpu_clock(None, None, root):
        assert state(root) == (["powersave", "powersave"], "0")


def test_governor_and_turbo_are_set_and_restored_also_after_an_error(root: Path) -> None:
    with pytest.raises(RuntimeError), cpu_clock("performance", "off", root):
        assert state(root) == (["performance", "performance"], "1")
        raise RuntimeError
    assert state(root) == (["powersave", "powersave"], "0")


def test_the_boost_of_other_cpus_is_turbo(root: Path) -> None:
    (root / CPU / "intel_pstate" / "no_turbo").unlink()
    boost = root / CPU / "cpufreq" / "boost"
    boost.write_text("1\n")
    with cpu_clock(None, "off", root):
        assert boost.read_text() == "0"
    assert boost.read_text() == "1"


def test_what_cannot_be_set_is_refused_with_the_reason(root: Path, tmp_path: Path) -> None:
    for governor, turbo, reason in (
        ("fastest", None, "has performance, powersave"), (None, "maybe", "on or off"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=reason), cpu_clock(governor, turbo, root):
            pass
    (tmp_path / "empty").mkdir()
    for governor, turbo in (("performance", None), (None, "on")):
        with pytest.raises(UserError, match="shows no") as refused, cpu_clock(governor, turbo, tmp_path / "empty"):
            pass
        assert refused.value.exit_code == NOT_HERE


def test_a_clock_that_the_kernel_refuses_is_left_as_it_was(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_text

    def refuse(path: Path, text: str, *more: object) -> int:
        if path.name == "no_turbo" and text == "1":
            raise PermissionError(13, "Permission denied")
        return real(path, text)

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(UserError, match=r"Permission denied.*run as root"), cpu_clock("performance", "off", root):
        pass
    assert state(root) == (["powersave", "powersave"], "0")


def test_a_model_has_no_clock(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--machine", "h200x1", "--suite", "quick", "--turbo", "off"]) == 2
    assert "not of h200x1: leave them out" in capsys.readouterr().err
