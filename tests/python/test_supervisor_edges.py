"""The supervisor where it would be easy to lie: budgets over a resume, what a monitor is asked, who goes first."""

from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from fakes import FAKE_WORKER, H2D, facts, measured, plan, round_record, target
from linkscope.plan.classes import PathClass
from linkscope.run import go_on
from linkscope.run.assemble import Assembler
from linkscope.run.monitor import State, _summary
from linkscope.run.states import states_of
from linkscope.runfile import Round, RunWriter, read_run

ONE = H2D.format(8, "false", "batched")
MIB = H2D.format(1 << 20, "false", "batched")
LARGE = H2D.format(64 << 20, "false", "batched")


def spent(path: Path) -> float:
    return sum(one.device_s for rounds in read_run(path).rounds.values() for one in rounds)


def test_a_resumed_run_keeps_the_budget_of_the_whole(tmp_path) -> None:
    whole, path = tmp_path / "whole.jsonl", tmp_path / "a.jsonl"
    measured(target(), plan(suite="quick"), whole)
    measured(target(), plan(suite="quick", budget_s=spent(whole) / 2), path)
    at_once = spent(path)
    lines = path.read_bytes().splitlines(keepends=True)
    rounds = [line for line in lines[1:] if b'"record":"round"' in line]
    path.write_bytes(lines[0] + b"".join(rounds[: len(rounds) * 3 // 4]))
    assert spent(path) < 0.9 * at_once
    assert go_on(target(), read_run(path), command=FAKE_WORKER).complete
    assert spent(path) == pytest.approx(at_once, rel=0.02)  # what a round costs is known better by then


def records(path: Path) -> list[bytes]:
    """All rounds and points of a file, in any order."""
    kinds = (b'{"record":"round"', b'{"record":"point"')
    return sorted(line for line in path.read_bytes().splitlines() if line.startswith(kinds))


@pytest.mark.parametrize("classes", [True, False], ids=["classes", "no classes"])
@pytest.mark.parametrize("flawed", [{}, {"wrong": "*#4"}, {"unsupported": "*#4"}], ids=lambda flawed: "".join(flawed))
def test_a_run_cut_off_after_any_record_goes_on_to_the_same_records(tmp_path, flawed: dict, classes: bool) -> None:
    """None is lost, none is there twice, and no look at a point is added, which would be ok after 12 rounds already."""
    whole, part, id = tmp_path / "whole.jsonl", tmp_path / "part.jsonl", H2D.format(4096, "false", "batched")
    made, where = plan(id, precision=0.02, budget_s=1e4), target(noise=0.02, flawed=flawed)
    if classes:
        made = structs.replace(made, classes=[PathClass("host to GPU", ["numa:0->gpu:0"])], early=True)
    measured(where, made, whole)
    rounds = read_run(whole).rounds[id]
    if classes and not flawed:
        assert len(rounds) == 22 and Assembler(made, facts(), lambda point: None).point(id, rounds[:12]).status == "ok"
    lines = whole.read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines)):
        part.write_bytes(b"".join(lines[:count]))
        assert go_on(where, read_run(part), command=FAKE_WORKER).complete
        assert records(part) == records(whole), count


def test_the_monitor_is_asked_about_each_block_alone(tmp_path, monkeypatch) -> None:
    asked: list[float] = []

    class Asked:
        def guards(self, places, since):
            asked.append(since)
            return {}

        def stop(self) -> None: ...

    monkeypatch.setattr("linkscope.run.session.monitor_for", lambda gpus: Asked())
    measured(target(modelled=False), plan(ONE, LARGE), tmp_path / "a.jsonl")
    assert len(asked) == 12 and asked == sorted(set(asked))


def test_with_a_budget_extra_rounds_go_to_the_cheap_first(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    measured(target(noise=0.2), plan(MIB, ONE, precision=0.19, budget_s=1e3), path)
    run = read_run(path)
    assert all(len(run.rounds[id]) == 9 for id in (ONE, MIB))
    extra = [line for line in path.read_text().splitlines() if '"record":"round"' in line][12:]
    assert [ONE in line for line in extra] == [True, False] * 3


def test_a_resumed_run_knows_what_a_round_cost(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    made = plan(LARGE, rounds=2)
    measured(target(), made, path)
    run = read_run(path)
    assert states_of(made, facts(), run)[LARGE].expected_s == run.rounds[LARGE][-1].device_s


class OutOfBreath:
    """A file that takes a few bytes at a time, as pipes and full disks do."""

    closed = False

    def __init__(self) -> None:
        self.content = b""

    def write(self, data) -> int:
        self.content += bytes(data[:10])
        return min(10, len(data))


def test_a_record_is_written_whole(tmp_path) -> None:
    file = OutOfBreath()
    RunWriter(file, tmp_path / "a.jsonl").write(round_record(ONE, 0))  # type: ignore[arg-type]
    assert msgspec.json.decode(file.content, type=Round) == round_record(ONE, 0)


def test_one_bad_look_at_a_gpu_is_enough() -> None:
    def look(time: float, reasons: int, pcie: tuple[int, int]) -> State:
        return State(time, "gpu:0", 1980, 3201, 40, reasons, pcie, 0)

    seen = _summary([look(0.0, 0, (5, 16)), look(0.5, 0x40, (4, 8)), look(1.0, 0, (5, 16))])
    assert seen["throttled"] == ["hw_thermal"] and seen["pcie"] == "gen4 x8"
