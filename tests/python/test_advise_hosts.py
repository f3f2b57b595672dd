"""`linkscope advise` for a transfer from one host to another, on models."""

import json

import pytest

from linkscope.cli.main import main
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]


def advised(capsys: pytest.CaptureFixture[str], machine: str, src: str, dst: str, size: str = "16MiB") -> dict:
    capsys.readouterr()
    words = ["--machine", machine, "--src", src, "--dst", dst, "--bytes", size]
    assert main(["advise", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("machine", ["jorda-a", "jorda-b", "jorda-c", "sl390", "klenk-ib", "klenk-extoll"])
def test_the_ways_between_gpus_of_two_hosts_are_ranked_as_predict_ranks_them(capsys, machine):
    ends = ("host:0/gpu:0", "host:1/gpu:0")
    advice = advised(capsys, machine, *ends)
    assert main(["predict", "--machine", machine, " -> ".join(ends), "--bytes", "16MiB", "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert [one["method"] for one in advice["methods"]] == [one["method"] for one in predicted["methods"]]
    assert advice["modelled"] and advice["flows"] == predicted["flows"]


def test_each_way_names_its_needs_and_its_gain_over_whole_staging(capsys):
    found = advised(capsys, "jorda-a", "host:0/gpu:0", "host:1/gpu:2")
    of = {one["method"]: one for one in found["methods"]}
    assert of["direct"]["needs"][0].startswith("GPUDirect RDMA")
    buffers = "16 MiB: on host:0/numa:0 for host:0/gpu:0, on host:1/numa:1 for host:1/gpu:2"
    assert of["staged whole"]["needs"] == [f"one pinned buffer of {buffers}"]
    assert of["double buffer"]["needs"][0].startswith("two pinned buffers of 256 KiB: on host:0/numa:0")
    assert "a CPU thread at each such end" in of["double buffer"]["needs"][1]
    assert of["staged whole"]["gain"] == 1
    assert of["double buffer"]["gain"] == of["staged whole"]["seconds"] / of["double buffer"]["seconds"] > 1.5


def test_a_place_without_a_host_is_on_the_first_one(capsys):
    ends = [("gpu:1", "host:1/gpu:0"), ("host:1/gpu:0", "gpu:1")]
    assert advised(capsys, "jorda-a", *ends[0])["flows"][0]["src"] == "host:0/gpu:1"
    assert advised(capsys, "jorda-a", *ends[1])["flows"][0]["dst"] == "host:0/gpu:1"


def test_host_memory_goes_directly_and_needs_pages_that_the_card_knows(capsys):
    words = ["advise", "--machine", "sl390", "--src", "host:0/numa:0", "--dst", "host:1/numa:0", "--bytes", "1MiB"]
    assert main(words) == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("MODELLED: ") and title.endswith("2 hosts, joined by infiniband")
    assert head == "host:0/numa:0 → host:1/numa:0  1 MiB, one transfer alone; fastest way first"
    assert rows[0].startswith("1. direct") and len(rows) == 2
    assert rows[1] == "     needs pinned memory at both ends, registered with the network card"


def test_a_way_that_the_cards_lack_is_last_with_its_reason(capsys):
    words = ["--machine", "dl160", "--src", "host:0/gpu:0", "--dst", "host:1/gpu:0", "--bytes", "1MiB"]
    assert main(["advise", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("   direct: the model dl160 does not say")
    assert lines[2].startswith("1. double buffer") and lines[2].endswith("1.66 times staged whole")


BETWEEN = ["--src", "host:0/gpu:0", "--dst", "host:1/gpu:0", "--bytes"]
WRONG = [
    (["--machine", "h200x4", *BETWEEN, "1MiB"], 3, "h200x4 is one host without a [network]"),
    (["--machine", "jorda-b", *BETWEEN, "1MiB", "--reuse", "3"], 2, "--reuse does not apply"),
    (["--machine", "jorda-b", *BETWEEN, "1MiB", "--with", "numa:0 -> gpu:0"], 2, "--with does not apply"),
    (["--machine", "jorda-b", *BETWEEN, "12"], 2, "a multiple of 8 B"),
    (["--machine", "jorda-b", "--src", "host:0/gpu:9", *BETWEEN[2:], "8"], 3, "has no host:0/gpu:9"),
    (["--machine", "jorda-b", "--src", "disk:0", *BETWEEN[2:], "8"], 3, "reach host memory and GPUs only"),
    (["run.jsonl", *BETWEEN, "8"], 2, "is answered on a model"),
]


@pytest.mark.parametrize(("words", "code", "text"), WRONG)
def test_what_does_not_fit_a_transfer_between_hosts_is_refused_with_the_reason(capsys, words, code, text):
    assert main(["advise", *words]) == code
    assert text in capsys.readouterr().err
