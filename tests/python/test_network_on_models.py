"""Transfers between hosts on models: what the papers state (docs/notes/network-on-models.md), and `predict`."""

import json
from dataclasses import replace
from pathlib import Path

import network_page as tool
import pytest
from network_page import BOTH, IN, KIB, LARGEST, MIB, Hosts

from linkscope.cli.main import main
from linkscope.errors import NOT_HERE, UserError
from linkscope.machine import model as models
from linkscope.machine.model_hosts import joined, joined_for
from linkscope.machine.model_paths import routes
from linkscope.model.network import BUFFERED, DIRECT, WHOLE
from linkscope.plan import SUITES
from linkscope.plan.enumerate import points_of
from linkscope.run.simulate import quiet, simulation
from linkscope.run.table import benchmark_table
from linkscope.run.target import modelled
from linkscope.runfile import PointId
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

JORDA = list(tool.PATHS)


def test_the_page_is_what_the_models_give() -> None:
    assert tool.PAGE.read_text() == tool.page(), "run .venv/bin/python tools/network_page.py"


def test_latencies_by_numa_node_are_within_five_percent_sp_3() -> None:
    rows = tool.latencies()
    assert [paper for _, paper, _, _ in rows] == [1.877, 2.136, 13.955, 18.886]
    for _, paper, found, _ in rows:
        assert found == pytest.approx(paper, rel=0.05)
    assert sum(fitted for *_, fitted in rows) == 2, "at least half of the numbers are predictions"


@pytest.mark.parametrize("name", JORDA)
def test_a_double_buffer_is_best_above_128_kb_jo_15(name: str) -> None:
    hosts = Hosts(name)
    for ends in tool.PATHS[name]:
        for size in (256 * KIB, 4 * MIB, LARGEST):
            assert next(iter(hosts.best(ends, size))) == BUFFERED, (ends, size)


def test_direct_is_best_below_128_kb_from_the_network_to_a_gpu_of_the_cards_bus_jo_15() -> None:
    hosts = Hosts("jorda-b")
    for size in (4 * KIB, 64 * KIB):
        assert next(iter(hosts.best(IN, size))) == DIRECT


@pytest.mark.parametrize("name", JORDA)
def test_buffers_of_2_mib_are_as_good_as_the_best_and_small_ones_are_not_jo_15(name: str) -> None:
    found = {one.method.chunk: one.gbps for one in Hosts(name).methods(BOTH, LARGEST) if one.method.name == BUFFERED}
    assert found[2 * MIB] > 0.99 * max(found.values()) > found[64 * KIB] / 0.95


def test_placement_barely_matters_between_hosts_jo_15() -> None:
    hosts = Hosts("jorda-a")
    near, far = (hosts.best(ends)[BUFFERED].gbps for ends in (BOTH, ("host:0/gpu:2", "host:1/gpu:2")))
    assert far == pytest.approx(near, rel=0.01)


@pytest.mark.parametrize("name", ("klenk-extoll", "klenk-ib"))
def test_a_card_reads_a_gpu_with_1_gb_per_s_and_less_above_1_mb_kl_10(name: str) -> None:
    hosts = Hosts(name)
    assert 0.95 < hosts.best(BOTH, MIB)[DIRECT].gbps <= 1
    assert hosts.best(BOTH, 4 * MIB)[DIRECT].gbps < 0.8


# --- predict --------------------------------------------------------------------------------------------------------


def predicted(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    capsys.readouterr()
    assert main(["predict", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_predict_ranks_the_methods_between_gpus_of_two_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    answer = predicted(capsys, "--machine", "jorda-a", "host:0/gpu:0 -> host:1/gpu:0", "--bytes", "16MiB")
    assert [one["method"] for one in answer["methods"]] == [BUFFERED, WHOLE, DIRECT]
    seconds = [one["seconds"] for one in answer["methods"]]
    assert seconds == sorted(seconds)
    (flow,) = answer["flows"]
    assert flow["seconds"] == seconds[0] == pytest.approx(flow["bytes"] / flow["gbps"] / 1e9)
    legs = 16 * MIB / 6.06e9, 16 * MIB / 3.03e9, 16 * MIB / 6.22e9  # out of the GPU, the card's slot, into the GPU
    assert seconds[1] == pytest.approx(sum(legs), rel=0.02), "whole staging does its legs in turn"
    assert seconds[0] == pytest.approx(max(legs), rel=0.06), "a double buffer overlaps them"


def test_predict_prints_the_ranking_with_the_best_chunk(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--machine", "jorda-a", "host:0/gpu:0 -> host:1/gpu:0 16MiB"]) == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("MODELLED: Jorda et al. A") and title.endswith("2 hosts, joined by infiniband")
    assert head == "host:0/gpu:0 → host:1/gpu:0  16 MiB, one transfer alone; fastest method first"
    assert rows[0].startswith("1. double buffer, chunks of 256 KiB") and rows[2].startswith("3. direct")


def test_a_method_that_the_cards_lack_is_named_with_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--machine", "dl160", "--src", "host:0/gpu:0", "--dst", "host:1/gpu:0", "--bytes", "1MiB"]
    answer = predicted(capsys, *words)
    assert answer["methods"][-1]["seconds"] is None and "gpu_read_gbps" in answer["methods"][-1]["reason"]
    assert main(["predict", *words]) == 0
    assert "   direct: the model dl160 does not say" in capsys.readouterr().out


def test_several_transfers_share_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    one = ["--machine", "sl390", "--src", "host:0/numa:0", "--dst", "host:1/numa:0", "--bytes", "64MiB"]
    (alone,) = predicted(capsys, *one)["flows"]
    both = predicted(capsys, *one, "--with", "host:0/numa:0 -> host:2/numa:0")["flows"]
    assert [flow["gbps"] for flow in both] == pytest.approx([alone["gbps"] / 2] * 2, rel=0.01)


WRONG = [
    (["--machine", "h200x4", "host:0/gpu:0 -> host:1/gpu:0"], 3, "h200x4 is one host without a [network]"),
    (["--machine", "jorda-a", "host:0/gpu:0 -> host:1/gpu:7"], 3, "jorda-a has no host:1/gpu:7"),
    (["--machine", "jorda-a", "host:0/gpu:0 -> host:40/gpu:0"], 2, "at most 16 hosts"),
    (["--machine", "jorda-a", "host:0/gpu:0 -> gpu:0"], 3, "jorda-a has no gpu:0"),
    (["--machine", "jorda-a", "host:0/disk:0 -> host:1/gpu:0"], 3, "network cards reach host memory and GPUs only"),
    (["--machine", "jorda-a", "host:0/gpu:0 -> host:1/gpu:0", "--peer", "off"], 2, "--peer does not apply"),
    (["--machine", "jorda-a", "host:0/gpu:0 -> host:1/gpu:0", "--bytes", "9B"], 2, "a multiple of 8 B"),
    (["--machine", "jorda-a", "host:0/gpu:0 -> host:1/gpu:0", "--src", "gpu:0"], 2, "name the transfer once"),
    (["--machine", "jorda-a", "host:0/gpu:0 -> host:1/gpu:0 x2"], 2, "name one transfer by its ends"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "says"), WRONG)
def test_a_wrong_question_about_hosts_is_answered(
    words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *words]) == code
    assert says in capsys.readouterr().err


# --- hosts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ("sl390", "dl160", *JORDA))
def test_each_of_several_hosts_has_the_paths_of_the_one(name: str) -> None:
    one = models.load(name)
    three = routes(joined(one, 3))
    for (src, dst), way in routes(one).items():
        if {"nic", "switch"} & {src.partition(":")[0], dst.partition(":")[0]}:
            continue  # the network may be shorter between the cards of one host
        for host in ("host:0", "host:2"):
            there = [link.name for link in three[f"{host}/{src}", f"{host}/{dst}"]]
            assert [text.replace(f"{host}/", "") for text in there] == [link.name for link in way]


def test_a_host_of_several_is_as_fast_as_the_one() -> None:
    one, two = models.load("jorda-a"), joined(models.load("jorda-a"), 2)
    at = [PointId("h2d", "ce", "numa:0", "pinned", f"gpu:{gpu}", "device", MIB) for gpu in (0, 2)]
    on_host = [replace(point, src=f"host:1/{point.src}", dst=f"host:1/{point.dst}") for point in at]
    with simulation() as simulated:
        alone = simulated.seconds(quiet(one.to_json()), at)
        assert simulated.seconds(quiet(two.to_json()), on_host) == alone


def test_places_without_a_host_leave_a_model_as_it_is() -> None:
    model = models.load("jorda-a")
    assert joined_for(model, ["numa:0", "gpu:1"]) is model
    klenk = models.load("klenk-ib")
    assert joined_for(klenk, ["host:0/gpu:0"]) is klenk
    with pytest.raises(UserError) as error:
        joined_for(models.load("ac922"), ["host:0/gpu:0"])
    assert error.value.exit_code == NOT_HERE


MISTAKES = [
    ('\n[network]\nkind = "x"\ngbps = {v=1, from="assumed", why="w"}\nefficiency = {v=1, from="assumed", why="w"}\n'
     'latency_us = {v=1, from="assumed", why="w"}\n', "h200x1", "network: it joins network cards, and there is none"),
    ('\n[network]\nkind = "x"\ngbps = {v=1, from="assumed", why="w"}\nefficiency = {v=1, from="assumed", why="w"}\n'
     'latency_us = {v=1, from="assumed", why="w"}\n', "klenk-ib", "network: it joins equal hosts"),
    ('\n[[nic]]\nplaces = ["nic:1"]\neager_far_gbps = {v=1, from="assumed", why="w"}\n', "sl390", "no eager_gbps"),
    ('\n[[nic]]\nplaces = ["nic:1"]\ngpu_short_kib = {v=1, from="assumed", why="w"}\n'
     'gpu_long_read_gbps = {v=1, from="assumed", why="w"}\n', "sl390", "no gpu_read_gbps"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "says"), MISTAKES)
def test_a_mistake_in_a_network_is_named(text: str, name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        models.parse(models.bundled()[name].read_text() + text, "m.toml")


WRONG_POSTS = [
    ('queues = "memory"', 'queues = "disk"', "it cannot be 'disk'"),
    ('queues = "memory"\n', "", "queues"),
    ("cpu_take_us", "# cpu_take_us", "cpu_take_us"),
    ("descriptor_bytes = 64", "descriptor_bytes = 20", "20 B is no descriptor"),
    ("descriptor_bytes = 64", "descriptor_bytes = 136", "136 B is no descriptor"),
    ("message_us", "# message_us", "it has no message_us"),
    ("cpu_post_us", 'gpu_message_us = {v=1, from="assumed", why="w"}\ncpu_post_us', "it is of registers"),
    ("gpu_post_us = { v = 2.2", "gpu_post_us = { v = -2.2", "gpu_post_us"),
]


@pytest.mark.parametrize(("text", "instead", "says"), WRONG_POSTS)
def test_a_mistake_in_what_a_post_costs_is_named(text: str, instead: str, says: str) -> None:
    file = models.bundled()["klenk-ib"].read_text()
    assert file.count(f"\n{text}") == 1
    with pytest.raises(UserError, match=says):
        models.parse(file.replace(f"\n{text}", f"\n{instead}"), "m.toml")


def test_suites_have_points_between_hosts_only_where_there_are_hosts() -> None:
    def network(name: str, suite: str) -> list[PointId]:
        facts = modelled(models.load(name), seed=1).facts
        found = points_of(SUITES[suite], facts, benchmark_table())
        return [point for point in found if point.benchmark.startswith("network")]

    assert not network("jorda-a", "full")
    for suite in ("quick", "standard", "full"):
        points = network("klenk-ib", suite)
        assert points and all(point.src[:6] != point.dst[:6] for point in points)
    assert {point.benchmark for point in network("klenk-ib", "full")} == {"network", "network_staged"}


def test_a_run_measures_transfers_between_hosts(tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    words = ["--only", "network/nic/host:0/gpu:0*", "--rounds", "2"]
    assert main(["run", "--machine", "klenk-ib", "--suite", "quick", *words, "-o", str(run)]) == 0
    rows = [json.loads(line) for line in run.read_text().splitlines()]
    points = [row for row in rows if row["record"] == "point"]
    assert {row["status"] for row in points} <= {"ok", "missed_precision"} and len(points) == 4
    assert all(row["verified"] for row in points)
