"""Suite `putget` between the hosts of a model: the report's section and the paper's conclusions know network cards."""

from pathlib import Path

import put_get_claims as tool
import pytest

from linkscope.cli.main import main
from linkscope.report.put_get import queued
from linkscope.report.put_get_claims import claims
from linkscope.report.run_view import RunView
from linkscope.report.section import plain
from linkscope.report.sections import put_get
from linkscope.runfile import read_run
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

ONLY = (
    "put_ping_pong/nic/*/8?*queue=card",
    "put_ping_pong/nic/*/4096?*queue=card",
    "get_ping_pong/nic/*/8?*queue=card",
    "post/nic/*queue=card",
    "put/nic/*/64?connections=1&*queue=card",
    "put/nic/*/64?connections=4&*queue=card",
    "put/nic/*/64?connections=32&*queue=card",
    "put_ping_pong/nic/*/8?control=direct&queue=own",
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cards") / "run.jsonl"
    only = [word for pattern in ONLY for word in ("--only", pattern)]
    assert main(["run", "--machine", "klenk-extoll", "--suite", "putget", "--seed", "3", *only, "-o", str(made)]) == 0
    return made


def test_a_queue_that_the_card_does_not_have_is_unsupported_with_its_reason(file: Path) -> None:
    (point,) = (point for point in read_run(file).points if point.params.get("queue") == "own")
    assert point.status == "unsupported" and "takes descriptors in its registers" in (point.reason or "")


def test_the_conclusions_are_judged_on_messages_between_hosts_kl_10(file: Path) -> None:
    answers = {one.text: one.holds for one in claims(read_run(file))}
    assert answers["A GPU that drives messages needs more time than the host"] is True
    assert answers["The host's help costs more than polling in GPU memory"] is True
    assert answers["Polling in host memory costs more than polling in GPU memory"] is True
    assert answers["Polling takes longer than posting"] is True
    assert answers["One block sends fewer messages a second than the host"] is True
    assert answers["Many blocks reach the rate of the host"] is False
    assert answers["The rate with the host's help is flat beyond 4 connections"] is True


def test_posting_takes_its_share_of_a_round_trip_by_the_mode_and_its_queue_kl_4(file: Path) -> None:
    of = {(one.server, one.point.bytes): one for one in queued(read_run(file))}
    direct, notified = (of[f"a network card, {mode}", 8] for mode in ("direct", "notified"))
    assert direct.descriptor == notified.descriptor == 24 and direct.ring == "card"
    assert direct.posting is not None and notified.posting is not None
    assert notified.posting < direct.posting < 0.1


def test_the_section_advises_who_should_drive_between_hosts(file: Path) -> None:
    section = put_get.section(RunView(read_run(file)))
    assert section is not None
    shown = "".join(plain(block) if isinstance(block, str) else repr(block) for block in section.blocks)
    assert "host at all sizes, 8 B to 4 KiB" in shown
    assert "Round trip, fetched by the receiver" in shown
    assert "a network card, notified" in shown and "host:1/gpu:0" in shown


def test_the_command_prints_the_conclusions_of_such_a_run(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main([str(file)]) == 0
    assert "| KL-10 | A GPU that drives messages needs more time than the host | holds | 8 B: notified 1" in (
        capsys.readouterr().out
    )
