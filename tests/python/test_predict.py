"""`linkscope predict` on bundled machines against the rates of their links and memories (written here)."""

import json

import pytest

from linkscope.cli.main import main
from linkscope.machine.model import bundled
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


def test_a_prediction_is_of_the_machine_without_its_planted_faults(tmp_path, capsys) -> None:
    fault = '[[fault]]\nkind = "slow"\nlinks = ["pcie numa:0->gpu:1"]\nfactor = 0.5\n'
    faulty = tmp_path / "faulty.toml"
    faulty.write_text(f"{bundled()['h200x4'].read_text()}\n{fault}")
    (flow,) = predicted(capsys, "--machine", str(faulty), "--src", "numa:0", "--dst", "gpu:1", "--bytes", "1GiB")
    assert flow["gbps"] == pytest.approx(55.5, rel=0.01)


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

    assert _concurrent_s(Together(), [1.0, 1.0, 1.0], [range(at, at + 1) for at in range(3)], 0) == pytest.approx(4.0)  # type: ignore[arg-type]


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


@pytest.mark.parametrize(("helpers", "gbps"), [("1", 99.4), ("3", 169)])
def test_helpers_carry_parts_of_a_copy_over_their_own_links(capsys, helpers: str, gbps: float) -> None:
    words = ["--machine", "h200x4", "--bytes", "256MiB", "--helpers", helpers]
    (flow,) = predicted(capsys, *words, "--src", "numa:0", "--dst", "gpu:1")
    assert (flow["src"], flow["dst"], flow["bytes"]) == ("numa:0", "gpu:1", 256 << 20)
    assert flow["gbps"] == pytest.approx(gbps, rel=0.02)
    (back,) = predicted(capsys, *words, "--src", "gpu:1", "--dst", "numa:0")
    assert 1.7 * 55.5 < back["gbps"] <= 1.01 * gbps


def test_the_output_is_marked_as_modelled(capsys) -> None:
    assert main(["predict", "--machine", "h200x4", "--src", "numa:0", "--dst", "gpu:0", "--bidirectional"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("MODELLED") and "numa:0 → gpu:0" in text and "total  101.9 GB/s" in text
    assert text.splitlines()[-1].startswith("accuracy: unknown")


def test_flows_beside_a_transfer_state_their_own_options(capsys) -> None:
    """The text of --with is in the grammar of flows; options of the command hold for what a flow does not state."""
    words = ["--machine", "h200x4", "--src", "numa:0", "--dst", "gpu:0", "--bytes", "512MiB"]
    text = "gpu:0 → gpu:1 64MiB x2; numa:0.pageable -> gpu:2; gpu:3->gpu:2 by sm"
    flows = predicted(capsys, *words, "--with", text)
    ends = [("numa:0", "gpu:0"), ("gpu:0", "gpu:1"), ("gpu:0", "gpu:1"), ("numa:0", "gpu:2"), ("gpu:3", "gpu:2")]
    assert [(flow["src"], flow["dst"]) for flow in flows] == ends
    assert [flow["bytes"] >> 20 for flow in flows] == [512, 64, 64, 512, 512]
    assert (
        flows[1]["gbps"] == flows[2]["gbps"] < 200
        and flows[3]["gbps"] < 20
        and flows[4]["gbps"] == pytest.approx(376, rel=0.02)
    )
    (_, staged) = predicted(capsys, *words, "--with", "gpu:3->gpu:2 peer=off")
    assert staged["gbps"] < 40
    again = predicted(capsys, *words, *(word for one in text.split(";") for word in ("--with", one.strip())))
    assert again == flows
    both = predicted(capsys, *words, "--bidirectional", "--with", "numa:0.pageable -> gpu:2 16MiB")
    assert [(flow["src"], flow["bytes"] >> 20) for flow in both] == [("numa:0", 512), ("numa:0", 16), ("gpu:0", 512),
                                                                   ("gpu:2", 16)]  # fmt: skip


def test_host_memories_are_copied_in_both_directions(capsys) -> None:
    words = ["--machine", "h200x4", "--src", "gpu:0", "--dst", "gpu:1", "--with"]
    rate = [predicted(capsys, *words, f"numa:0{end} threads=2 by cpu")[1]["gbps"] for end in (
        " -> numa:0", ".pageable -> numa:0.pinned", ".pinned -> numa:0", " -> numa:0.pageable")]  # fmt: skip
    assert rate[0] == rate[1] and rate[2] == rate[3] and min(rate) > 1


POINTED = [
    ("gpu:1", " ", "the arrow is missing; write it like numa:0 -> gpu:0 64MiB"),
    ("numa:0.pinned -> gpu:0 64Mb x2", "64Mb", "not a size; write 64MB or 64MiB"),
    ("gemm gpu:0 8192", "gemm gpu:0 8192", "this is not a transfer: write it like numa:1 -> gpu:1"),
    ("numa:0 -> gpu:0 x65", "x65", "at most x64 transfers of one flow"),
    ("numa:0 -> gpu:0 single", "single", "predictions are of batched copies only"),
    ("numa:0 -> gpu:0 by fault", "fault", "predict knows only ce, sm, tma here"),
    ("numa:0.wc -> gpu:0", "wc", "predict knows only pinned, pageable, registered here"),
    ("gpu:0 -> gpu:1.pool", "pool", "predict knows only device here"),
    ("numa:0.pageable -> gpu:0 by sm", "pageable", "SMs cannot access pageable memory: write registered, or by ce"),
    ("gpu:0 -> gpu:1 peer=off", "peer=off", "--engine sm needs peer access: write by ce, or leave out peer=off"),
    ("numa:0 -> numa:0 by ce", "ce", "predict knows only cpu here"),
    ("numa:0.pinned -> numa:0.pinned", "pinned", "predict knows copies from pageable to pinned memory, and back"),
    ("numa:0 -> numa:0 threads=65", "threads=65", "numa:0 of h200x4 has 64 CPUs"),
]


@pytest.mark.parametrize(("text", "word", "problem"), POINTED)
def test_the_wrong_word_of_a_flow_is_pointed_at(capsys, text: str, word: str, problem: str) -> None:
    words = ["--machine", "h200x4", "--src", "gpu:0", "--dst", "gpu:1", "--engine", "sm", "--with", text]
    assert main(["predict", *words]) == 2
    where, line, pointer = capsys.readouterr().err.rstrip("\n").split("\n")
    assert (where, line) == ("linkscope: --with:", f"    {text}") and pointer.endswith(f"^ {problem}")
    assert f"{line} "[pointer.index("^") : pointer.rindex("^") + 1] == word


def test_a_second_transfer_gets_the_way_to_write_several(capsys) -> None:
    assert main(["predict", "--machine", "h200x4", "numa:0 -> gpu:0", "numa:0 -> gpu:1", "--bytes", "1MiB"]) == 2
    assert "numa:0 -> gpu:1: predict takes one transfer; write several as --flow" in capsys.readouterr().err
    assert main(["predict", "--machine", "h200x4", "--flow", "numa:0 -> gpu:0", "numa:0 -> gpu:1"]) == 2
    assert "in --flow, a semicolon separates transfers" in capsys.readouterr().err


def test_peer_access_is_on_or_off_for_all_transfers(capsys) -> None:
    words = ["predict", "--machine", "h200x4", "--src", "gpu:0", "--dst", "gpu:1", "--with", "gpu:2 -> gpu:3 peer=off"]
    assert main(words) == 2
    assert "^^^^^^^^ other transfers between GPUs differ: state peer for all of them" in capsys.readouterr().err
    assert main([*words, "--peer", "off"]) == 0


HELPED = ["--machine", "h200x4", "--src", "numa:0", "--dst", "gpu:0"]
WRONG = [
    (["--machine", "ac922", "--src", "numa:0", "--dst", "gpu:9"], 3, "no gpu:9"),
    (["--machine", "sl390", "--src", "numa:0", "--dst", "gpu:0", "--engine", "sm"], 3, "[kernel]"),
    (["--machine", "nowhere", "--src", "numa:0", "--dst", "gpu:0"], 2, "no machine 'nowhere'"),
    (["--machine", "auto", "--src", "numa:0", "--dst", "gpu:0"], 2, "needs a model"),
    (["--machine", "ac922", "--src", "nic:0", "--dst", "gpu:0"], 2, "nic:0"),
    (["--machine", "jorda-a", "--src", "numa:0", "--dst", "disk:0"], 3, "benchmarks copy files from and to GPUs only"),
    (["--machine", "jorda-a", "--src", "numa:0", "--dst", "disk:1"], 3, "jorda-a has no disk:1"),
    (["--machine", "h200x4", "--src", "gpu:all", "--dst", "numa:0"], 2, "gpu:all stands for several places"),
    (["--machine", "klenk-ib", "--src", "numa:0", "--dst", "gpu:0"], 3, "it has host:0/numa:0, "),
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
    (["--machine", "ac922", "--src", "numa:0", "--dst", "gpu:0", "--with", "gpu:1"], 2, "the arrow is missing"),
    (["--machine", "ac922", "--src", "numa:0", "--dst", "gpu:0", "--threads", "2"], 2, "--threads"),
    (["--machine", "ac922", "--src", "numa:0", "--dst", "numa:1", "--threads", "0"], 2, "--threads 0"),
    (["--machine", "ac922", "--src", "gpu:0", "--dst", "gpu:1", "--engine", "sm", "--peer", "off"], 2, "--peer on"),
    (["--machine", "ac922", "--src", "gpu:0", "--dst", "gpu:1", "--engine", "tma"], 3, "compute capability 9.0"),
    (["--machine", "ac922", "--src", "gpu:0", "--dst", "gpu:1", "--memory", "pageable"], 2, "applies only to copies"),
    (["--machine", "ac922", "--src", "numa:0"], 2, "--dst"),
    ([*HELPED, "--helpers", "2"], 2, "has 1, 3 or 7 helpers"),
    ([*HELPED, "--helpers", "7"], 3, "has 4 GPUs"),
    ([*HELPED, "--helpers", "some"], 2, "--helpers some"),
    ([*HELPED, "--helpers", "1", "--memory", "pageable"], 2, "pinned memory by copy engine only"),
    ([*HELPED, "--helpers", "1", "--engine", "sm"], 2, "pinned memory by copy engine only"),
    ([*HELPED, "--helpers", "1", "--bidirectional"], 2, "is predicted by itself"),
    ([*HELPED, "--helpers", "1", "--with", "gpu:2 -> gpu:3"], 2, "is predicted by itself"),
    ([*HELPED, "--helpers", "3", "--bytes", "100MB"], 3, "cannot be divided into 4 equal parts"),
    (["--machine", "h200x4", "--src", "gpu:0", "--dst", "gpu:1", "--helpers", "1"], 2, "between host memory and a GPU"),
]


@pytest.mark.parametrize(("words", "code", "expected"), WRONG)
def test_an_impossible_prediction_gets_its_reason(capsys, words: list[str], code: int, expected: str) -> None:
    assert main(["predict", *words]) == code
    output = capsys.readouterr()
    assert expected in output.err and not output.out and "Traceback" not in output.err


# --- computations ---


def computed(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    capsys.readouterr()
    assert main(["predict", "--machine", "sl390", "--computation", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("name", "penalty"), [("sgemm", 3), ("dgemm", 4), ("fft", 12), ("reduction", 12)])
def test_a_computation_has_the_penalty_of_the_wrong_node_that_the_paper_gives(capsys, name: str, penalty: int) -> None:
    near, far = computed(capsys, name)["placements"]
    assert near["near"] and near["penalty_over_good"] == 0 and not far["near"]
    assert 100 * far["penalty_over_good"] == pytest.approx(penalty, abs=2)
    assert far["penalty_over_bad"] == pytest.approx(far["seconds"] / near["seconds"] - 1)


def test_a_computation_states_its_rate_size_and_time_alone(capsys) -> None:
    small, full = computed(capsys, "dgemm:small"), computed(capsys, "dgemm:full", "--memory", "pageable")
    assert full["operations"] == 2 * 8192**3 and full["size"] == "full" and small["operations"] == 2 * 128**3
    assert full["operations"] / full["alone_s"] == pytest.approx(0.59 * 0.515e12, rel=0.02)
    for one in full["placements"]:
        assert one["operations_per_s"] == pytest.approx(full["operations"] / one["seconds"])
        assert one["seconds"] > full["alone_s"]
    assert main(["predict", "--machine", "sl390", "--computation", "sort"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("MODELLED") and "numa:1.pinned: " in text and "(good - bad) / good" in text
    assert "Gop/s" not in text  # a sort states no operations


@pytest.mark.parametrize(
    ("machine", "words", "code", "expected"),
    [
        ("sl390", ["mdd"], 2, "did you mean md"),
        ("sl390", ["md:huge"], 2, "sizes are shoc, small, full"),
        ("sl390", ["md", "--src", "numa:0"], 2, "leave out --src"),
        ("sl390", ["md", "--with", "numa:0 -> gpu:1"], 2, "leave out --with"),
        ("sl390", ["md", "--memory", "registered"], 2, "pinned or pageable"),
        ("sl390", ["bf16gemm"], 3, "bf16"),
    ],
)
def test_an_impossible_computation_gets_its_reason(
    capsys, machine: str, words: list[str], code: int, expected: str
) -> None:
    assert main(["predict", "--machine", machine, "--computation", *words]) == code
    assert expected in capsys.readouterr().err
