"""Suite `sanity` says what does not work in an installation, and the doctor says why and names the cure."""

import json
from pathlib import Path

import pytest

import machine_fakes as fakes
from fakes import point
from linkscope.cli import doctor, sanity
from linkscope.cli.main import main
from linkscope.machine.doctor import findings
from linkscope.machine.environment import acs_redirecting, environment
from linkscope.machine.facts import Machine
from linkscope.machine.finding import Finding, bad
from linkscope.machine.probe import probe
from linkscope.machine.sysfs import Files
from linkscope.plan import SUITES
from linkscope.plan.enumerate import points_of
from linkscope.run import benchmark_table, libraries
from linkscope.run.target import choose
from linkscope.runfile import TOO_SHORT, read_run

BRIDGE = "/sys/bus/pci/devices/0000:10:01.0"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    fakes.play(monkeypatch, fakes.FakeNvml())
    texts = fakes.two_nodes(numa=(0, 0, 1, 1))
    return probe(fakes.driver(), files=Files.replay(texts, fakes.lists_of(texts)))


def whats(machine: Machine, **parts: object) -> list[str]:
    return [finding.what for finding in findings(machine, dict(parts))]


def config(control: int, after: int = 0) -> str:
    """The configuration space of a bridge: `after` other extended capabilities, then ACS with this control word."""
    space = bytearray(4096)
    for number in range(after):
        at = 0x100 + 0x20 * number
        space[at : at + 4] = (0x0001 | 1 << 16 | (at + 0x20) << 20).to_bytes(4, "little")
    at = 0x100 + 0x20 * after
    space[at : at + 4] = (0x000D | 1 << 16).to_bytes(4, "little")
    space[at + 6 : at + 8] = control.to_bytes(2, "little")
    return space.hex()


@pytest.mark.parametrize(("control", "redirects"), [(0b0000, False), (0b0100, True), (0b1000, True), (0b0011, False)])
@pytest.mark.parametrize("after", [0, 3])
def test_bridges_that_redirect_peer_traffic_are_found_in_their_configuration(
    control: int, redirects: bool, after: int
) -> None:
    texts = {f"{BRIDGE}/class": "0x060400", f"{BRIDGE}/config": config(control, after)}
    assert acs_redirecting(Files.replay(texts, fakes.lists_of(texts))) == ["0000:10:01.0"] * redirects
    device = {f"{BRIDGE}/class": "0x030200", f"{BRIDGE}/config": config(control, after)}
    assert acs_redirecting(Files.replay(device, fakes.lists_of(device))) == []


@pytest.mark.parametrize("space", ["", "ff" * 64, "ff" * 4096, "00" * 4096])
def test_a_configuration_that_is_short_or_damaged_has_no_redirection(space: str) -> None:
    texts = {f"{BRIDGE}/class": "0x060400", f"{BRIDGE}/config": space}
    assert acs_redirecting(Files.replay(texts, fakes.lists_of(texts))) == []


def test_each_part_of_an_installation_has_a_finding(machine: Machine) -> None:
    assert whats(machine) == []
    assert whats(machine, process={"closed_devices": ["/dev/nvidia0"]}) == ["this user may not open /dev/nvidia0"]
    assert whats(machine, memory={"shm_bytes": 64 << 20}) == ["/dev/shm holds 64 MiB"]
    assert whats(machine, memory={"shm_bytes": 8 << 30}) == []
    redirecting = {"acs_redirecting": ["0000:10:01.0", "0000:20:01.0"]}
    assert whats(machine, system=redirecting) == ["ACS redirects peer traffic at 2 PCIe bridges"]
    missing = {"NCCL": "none of its files can be loaded", "MPI": ""}
    assert whats(machine, libraries=missing) == ["NCCL is not here (none of its files can be loaded)"]


def test_pairs_without_peer_access_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.play(monkeypatch, fakes.FakeNvml())
    texts = fakes.two_nodes(numa=(0, 0, 1, 1))
    driver = fakes.driver()
    for pair in driver["peers"]:
        pair["access"] = {pair["from"], pair["to"]} != {0, 3}
    found = whats(probe(driver, files=Files.replay(texts, fakes.lists_of(texts))))
    assert found == ["no peer access: gpu:0-gpu:3"]


def test_the_environment_of_this_machine_has_the_size_of_its_shared_memory() -> None:
    found = environment()
    assert found["process"]["closed_devices"] == [] and found["memory"]["shm_bytes"] != 0
    assert environment(Files.replay({}, {}), {})["memory"]["shm_bytes"] == "hidden"


def test_libraries_are_tried_by_loading_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINKSCOPE_NCCL", "libc.so.6")
    monkeypatch.setenv("LINKSCOPE_MPI", "/no/libmpi.so")
    found = libraries.why_not()
    assert found["NCCL"] == "" and found["MPI"] == "none of its files can be loaded" and "cuDNN" in found


def test_every_reason_is_printed_once_with_its_points() -> None:
    ids = [f"h2d/ce/numa:0.pinned->gpu:{gpu}.device/1048576?mode=batched" for gpu in range(5)]
    points = [point(id, status="unsupported", reason="no driver") for id in ids]
    text = "\n".join(sanity.lines([*points, point(ids[0])], [bad("what", "why", "cure")]))
    assert text.count("no driver") == 1 and "and 2 more" in text and text.startswith("1 operations work.")
    assert "what to do: cure" in text


def test_an_operation_that_was_too_short_for_the_clock_works() -> None:
    short = point("ping_pong/sm/gpu:0.device->gpu:1.device/0", status="failed", reason=f"{TOO_SHORT}: a batch")
    assert list(sanity.lines([short], [])) == ["1 operations work."]


def test_a_bad_finding_makes_the_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for severity, code in (("bad", 1), ("warn", 0)):
        finding = Finding(severity, "the driver is broken", "nothing works", "repair it")
        monkeypatch.setattr(doctor, "found_here", lambda *_, finding=finding: [finding])
        assert sanity.report({}, quiet=False) == code
        assert "what to do: repair it" in capsys.readouterr().out


def test_suite_sanity_covers_every_kind_of_engine_and_fits_its_time(tmp_path: Path) -> None:
    found = points_of(SUITES["sanity"], choose("h200x4", 1).facts, benchmark_table())
    assert {one.engine for one in found} >= {"ce", "cpu", "sm", "tma", "batch", "graph", "fault", "prefetch"}
    assert {one.src_memory for one in found} >= {"pageable", "pinned", "registered", "vmm", "ipc", "managed"}
    out = tmp_path / "run.jsonl"
    assert main(["run", "--machine", "h200x4", "--suite", "sanity", "-q", "-o", str(out)]) == 0
    run = read_run(out)
    assert not [one.id for one in run.points if one.status in ("failed", "skipped")]
    assert sum(one.device_s or 0 for one in run.points) < 20


def test_a_run_here_ends_with_the_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["run", "--suite", "sanity", "--rounds", "1", "-o", str(tmp_path / "run.jsonl")])
    printed = capsys.readouterr().out
    assert code in (0, 1) and "operations work" in printed and "why it matters" in printed
    assert json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])["plan"]["suite"] == "sanity"
