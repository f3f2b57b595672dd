"""`linkscope predict` on bundled machines against the rates of their links and memories (written here)."""

import json

import pytest

from linkscope.cli.main import main
from linkscope.run.answers import Trace
from linkscope.run.steady import _concurrent_s
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]


def predicted(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict]:
    capsys.readouterr()
    assert main(["predict", *words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["modelled"] is True
    for flow in answer["flows"]:
        assert flow["seconds"] == pytest.approx(flow["bytes"] / flow["gbps"] / 1e9)
    return answer["flows"]


SINGLE = [
    ("ac922", "numa:0", "gpu:0", 72), ("ac922", "numa:0", "gpu:3", 41), ("ac922", "gpu:2", "numa:1", 72),
    ("h200x4", "numa:0", "gpu:1", 55.5), ("h200x4", "gpu:0", "gpu:3", 390), ("h200x4", "gpu:2", "gpu:2", 2110),
    ("h200x4", "numa:0", "numa:0", 12.8),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "src", "dst", "gbps"), SINGLE)
def test_one_transfer_has_the_rate_of_its_slowest_link(capsys, machine: str, src: str, dst: str, gbps: float) -> None:
    (flow,) = predicted(capsys, "--machine", machine, "--src", src, "--dst", dst, "--bytes", "1GiB")
    assert (flow["src"], flow["dst"], flow["bytes"]) == (src, dst, 1 << 30)
    assert flow["gbps"] == pytest.approx(gbps, rel=0.01)


def rates(capsys, *words: str) -> list[float]:
    return [flow["gbps"] for flow in predicted(capsys, "--machine", "h200x4", "--bytes", "512MiB", *words)]


def test_concurrent_transfers_share_their_links(capsys) -> None:
    to_all = ["--src", "numa:0", "--dst", "gpu:0", *(w for n in (1, 2, 3) for w in ("--with", f"numa:0 -> gpu:{n}"))]
    assert rates(capsys, *to_all) == pytest.approx([182 / 4] * 4, rel=0.01)
    assert rates(capsys, *to_all, "--bidirectional") == pytest.approx([188 / 8] * 8, rel=0.01)
    apart = ["--src", "numa:0", "--dst", "gpu:0", "--with", "gpu:1 -> gpu:2"]
    assert rates(capsys, *apart) == pytest.approx([55.5, 390], rel=0.01)


def test_a_flow_is_predicted_while_all_others_run() -> None:
    """The first flow takes 4 s an operation while the second runs, else 1 s. The third runs in any case."""

    class Together:
        def run(self, samples, batches, *, verify):
            stamps = []
            for first, second, third in batches:
                alone = max(0.0, first - second / 4)
                stamps += [0.0, (first - alone) * 4 + alone, 0.0, float(second), 0.0, 1e6 * third]
            return Trace(1, len(batches), 3, "virtual", stamps=stamps)

    assert _concurrent_s(Together(), [1.0, 1.0, 1.0], 0) == pytest.approx(4.0)  # type: ignore[arg-type]


def test_a_small_transfer_is_predicted_together_with_a_large_one(capsys) -> None:
    """Rates are steady-state rates: the slow host copy never runs alone after the fast ones end."""
    words = ["--src", "numa:0", "--dst", "gpu:0", "--memory", "pageable", "--with", "gpu:0 -> gpu:1"]
    slow, fast = rates(capsys, *words)
    assert slow < 10.5 and fast == pytest.approx(390, rel=0.01)


def test_the_options_of_predict_take_effect(capsys) -> None:
    words = ["--src", "gpu:0", "--dst", "gpu:1"]
    (staged,) = rates(capsys, *words, "--peer", "off")
    (threads,) = rates(capsys, *words, "--engine", "sm")
    assert staged < 40 and threads == pytest.approx(376, rel=0.01)
    (pageable,) = rates(capsys, "--src", "gpu:0", "--dst", "numa:0", "--memory", "pageable")
    assert pageable < 20
    one, three = (rates(capsys, "--src", "numa:0", "--dst", "numa:0", "--threads", n)[0] for n in ("1", "3"))
    assert (one, three) == pytest.approx((12.8, 3 * 7.9), rel=0.01)  # 171 MiB each exceeds no cache


def test_the_output_is_marked_as_modelled(capsys) -> None:
    assert main(["predict", "--machine", "h200x4", "--src", "numa:0", "--dst", "gpu:0", "--bidirectional"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("MODELLED") and "numa:0 -> gpu:0" in text and "total  101.9 GB/s" in text
    assert text.splitlines()[-1].startswith("accuracy: unknown")


WRONG = [
    (["--machine", "ac922", "--src", "numa:0", "--dst", "gpu:9"], 3, "no gpu:9"),
    (["--machine", "sl390", "--src", "numa:0", "--dst", "gpu:0", "--engine", "sm"], 3, "[kernel]"),
    (["--machine", "nowhere", "--src", "numa:0", "--dst", "gpu:0"], 2, "no machine 'nowhere'"),
    (["--machine", "auto", "--src", "numa:0", "--dst", "gpu:0"], 2, "needs a model"),
    (["--machine", "ac922", "--src", "nic:0", "--dst", "gpu:0"], 2, "nic:0"),
    (["--machine", "jorda-a", "--src", "numa:0", "--dst", "disk:0"], 3, "no benchmark moves data from or to a disk"),
    (["--machine", "jorda-a", "--src", "numa:0", "--dst", "disk:1"], 3, "jorda-a has no disk:1"),
    (["--machine", "h200x4", "--src", "gpu:all", "--dst", "numa:0"], 2, "gpu:all stands for several places"),
    (["--machine", "klenk-ib", "--src", "numa:0", "--dst", "gpu:0"], 3, "but host:0/numa:0, "),
    (["--machine", "h200x4", "--src", "a/gpu:0", "--dst", "gpu:0"], 2, "h200x4 has numa:0, gpu:0, "),
    (["--machine", "h200x4", "--src", "numa:0", "--dst", "gpu:0", "--peer", "off"], 2, "applies only to copies"),
    (["--machine", "h200x4", "--src", "numa:0", "--dst", "numa:0", "--engine", "sm"], 2, "CPU threads copy"),
    (["--machine", "h200x4", "--src", "numa:0", "--dst", "numa:0", "--threads", "65"], 2, "has 64 CPUs"),
    (
        ["--machine", "h200x4", "--src", "gpu:0", "--dst", "numa:0", "--memory", "pageable", "--engine", "tma"],
        2,
        "--engine ce",
    ),
    (["--machine", "ac922", "--src", "numa:0", "--dst", "gpu:0", "--bytes", "0"], 2, "--bytes 0"),
    (["--machine", "ac922", "--src", "numa:0", "--dst", "gpu:0", "--bytes", "much"], 2, "--bytes much"),
    (["--machine", "ac922", "--src", "numa:0", "--dst", "gpu:0", "--with", "gpu:1"], 2, "numa:1 -> gpu:1"),
    (["--machine", "ac922", "--src", "numa:0", "--dst", "gpu:0", "--threads", "2"], 2, "--threads"),
    (["--machine", "ac922", "--src", "numa:0", "--dst", "numa:1", "--threads", "0"], 2, "--threads 0"),
    (["--machine", "ac922", "--src", "gpu:0", "--dst", "gpu:1", "--engine", "sm", "--peer", "off"], 2, "--peer on"),
    (["--machine", "ac922", "--src", "gpu:0", "--dst", "gpu:1", "--engine", "tma"], 3, "compute capability 9.0"),
    (["--machine", "ac922", "--src", "gpu:0", "--dst", "gpu:1", "--memory", "pageable"], 2, "applies only to copies"),
    (["--machine", "ac922", "--src", "numa:0"], 2, "--dst"),
]


@pytest.mark.parametrize(("words", "code", "expected"), WRONG)
def test_an_impossible_prediction_gets_its_reason(capsys, words: list[str], code: int, expected: str) -> None:
    assert main(["predict", *words]) == code
    output = capsys.readouterr()
    assert expected in output.err and not output.out and "Traceback" not in output.err
