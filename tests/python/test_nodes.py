"""Many nodes: pairs in rounds, what pairs at once share, and one run file of several."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fake_driver import needs_worker
from fakes import facts
from invented import flow, point, run
from linkscope.cli.main import main
from linkscope.errors import UserError
from linkscope.plan import MachineFacts, make_plan
from linkscope.plan.nodes import in_rounds, sharing, tournament
from linkscope.report.nodes import pairs_of, together_of
from linkscope.report.run_view import RunView
from linkscope.report.section import Output
from linkscope.report.sections import nodes, sections
from linkscope.run.table import benchmark_table
from linkscope.runfile import End, Point, PointId, Run, read_run
from linkscope.runfile.merge import merged, parts_of

MIB = 1 << 20


@pytest.mark.parametrize("count", range(2, 10))
def test_all_nodes_meet_in_rounds_in_which_each_has_one_partner_at_most(count):
    rounds = tournament(count)
    assert len(rounds) == count - 1 + count % 2
    for pairs in rounds:
        busy = [node for pair in pairs for node in pair]
        assert len(busy) == len(set(busy))
    assert sorted(itertools.chain(*rounds)) == list(itertools.combinations(range(count), 2))


def nodes_of(count: int, ranks: int = 2) -> MachineFacts:
    """A machine of several hosts, each with some ranks."""
    each = [{"numa": "numa:0", "host": f"node{number // ranks}"} for number in range(count * ranks)]
    return replace(facts(modelled=False), ranks=tuple(each))


def test_one_rank_of_each_node_measures_and_no_node_is_in_two_pairs_of_a_round():
    points = list(in_rounds(nodes_of(4)))
    assert len(points) == 3 * 3
    for one in points:
        ends = list(itertools.chain(*one.paths))
        assert sorted(ends) == ["rank:0", "rank:2", "rank:4", "rank:6"]
        assert PointId.parse(str(one)) == one


@pytest.mark.parametrize(
    ("suite", "engines"), [("nodes", {"ucx"}), ("nodes-shared", {"ucx"}), ("mpi", {"ucx", "nixl"})]
)
def test_ranks_that_met_without_mpi_send_by_ucx_and_nixl(suite, engines):
    machine = replace(nodes_of(2), places=("rank:0", "rank:1", "rank:2", "rank:3"), has_mpi=False)
    plan = make_plan(machine, list(benchmark_table()), suite=suite)
    assert {PointId.parse(id).engine for id in plan.points} == engines


def test_the_preset_of_shared_links_measures_every_pair_alone_and_at_once():
    points = list(sharing(nodes_of(8, ranks=1)))
    alone = {one.paths[0] for one in points if len(one.paths) == 1}
    together = [one.paths for one in points if len(one.paths) > 1]
    assert [len(paths) for paths in together] == [4, 2, 4, 7]
    assert all(path in alone for paths in together for path in paths)
    assert [len({dst for _, dst in paths}) for paths in together] == [4, 1, 1, 1]


@pytest.mark.parametrize("suite", ["nodes", "nodes-shared"])
def test_ranks_of_one_host_name_the_command_that_starts_them_on_two(suite):
    with pytest.raises(UserError, match="need ranks on two hosts or more: srun --nodes=2 linkscope run --suite nodes"):
        make_plan(nodes_of(1), [], suite=suite)


# --- what pairs at once share ---


def at_once(pairs: list[tuple[str, str]], each_s: float, width: float = 0.01) -> Point:
    """A point of 4 MiB of each pair, all of which take `each_s` seconds."""
    others = ",".join(f"{src}->{dst}" for src, dst in pairs[1:])
    (src, dst), memories = pairs[0], ("pageable", "pageable")
    name = f"node_rate/mpi/{src}.pageable->{dst}.pageable/{4 * MIB}" + (f"?with={others}" if others else "")
    flows = [flow(*pair, memories, 4 * MIB, each_s) for pair in pairs]
    bounds = [each_s * (1 - width), each_s * (1 + width)]
    return point(
        name, each_s, flows=flows, total_gbps=len(pairs) * 4 * MIB / each_s / 1e9,
        guards={"together_s": each_s, "together_ci95_s": bounds},
    )  # fmt: skip


ACROSS = [("rank:0", "rank:2"), ("rank:1", "rank:3")]
INWARDS = [("rank:1", "rank:0"), ("rank:2", "rank:0"), ("rank:3", "rank:0")]
HOSTS = {"ranks": [{"rank": number, "host": f"node{number}", "numa": "numa:0"} for number in range(4)]}


def alone() -> list[Point]:
    return [at_once([pair], 0.04) for pair in (*ACROSS, *INWARDS)]


def lines_of(points: list[Point]) -> str:
    """The section of nodes as text."""
    made = nodes.section(RunView(run(points, modelled=False, mpi=HOSTS)))
    assert made is not None
    return repr(made)


def test_pairs_that_reach_together_the_rate_of_one_share_a_link_between_nodes():
    text = lines_of([*alone(), at_once(ACROSS, 0.08)])
    assert "2 pairs at once (node0 → node2, node1 → node3) reach 0.1049 GB/s" in text
    assert "50 % of the sum of their rates" in text and "all share a link between nodes" in text


def test_pairs_that_keep_their_rates_share_nothing():
    (one,) = together_of([*alone(), at_once(ACROSS, 0.041)])
    assert not one.shares and not one.slowed
    assert "no shared link is seen" in lines_of([*alone(), at_once(ACROSS, 0.041)])


def test_an_interval_that_reaches_the_rates_alone_shows_no_shared_link():
    (one,) = together_of([*alone(), at_once(ACROSS, 0.06, width=0.5)])
    assert one.gbps < 0.9 * one.alone_gbps and not one.shares


def test_many_nodes_that_send_to_one_share_its_link():
    text = lines_of([*alone(), at_once(INWARDS, 0.12)])
    assert "3 nodes that send to node0 reach" in text and "they share the link of node0" in text


def test_a_rate_that_pairs_reach_at_one_node_is_not_the_rate_of_a_pair():
    found = pairs_of([at_once([("rank:1", "rank:0")], 0.04), at_once(INWARDS, 0.12)])
    assert list(found) == [("rank:1", "rank:0")] and found["rank:1", "rank:0"].gbps == pytest.approx(4 * MIB / 0.04e9)


@needs_worker
def test_hosts_of_a_model_exchange_messages_in_rounds_too(tmp_path, capsys):
    file = tmp_path / "run.jsonl"
    assert main(["run", "--machine", "klenk-ib", "--suite", "nodes", "--rounds", "2", "-q", "-o", str(file)]) == 0
    assert [point.status for point in read_run(file).points if point.median_s is None] == []
    assert main(["report", str(file), "--summary=full"]) == 0
    assert "host:0          host:1" in capsys.readouterr().out


# --- one file of several ---

QUICK = ("--only", "h2d/ce/*", "--only", "local/ce/*", "--rounds", "2")


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    """Modelled runs of two nodes."""
    folder = tmp_path_factory.mktemp("nodes")
    files = [folder / "left.jsonl", folder / "right.jsonl"]
    for seed, file in enumerate(files, 1):
        words = ("run", "--machine", "h200x2", "--suite", "quick", *QUICK, "--seed", str(seed), "-q", "-o", str(file))
        assert main(words) == 0
    return files


def merge(files: list[Path], target: Path) -> int:
    return main(["merge", *map(str, files), "-o", str(target), "--force"])


@needs_worker
def test_a_merged_run_has_the_values_of_every_node_under_its_own_places(two_nodes, tmp_path):
    assert merge(two_nodes, tmp_path / "all.jsonl") == 0
    whole, parts = read_run(tmp_path / "all.jsonl"), [read_run(file) for file in two_nodes]
    assert whole.end and whole.end.complete and whole.modelled and not whole.warnings
    assert [one["host"] for one in whole.header.machine["hosts"]] == ["left", "right"]
    assert whole.header.machine["places"] == [
        f"host:{host}/{place}" for host in (0, 1) for place in ("numa:0", "gpu:0", "gpu:1")
    ]
    assert len(whole.points) == sum(len(part.points) for part in parts)
    values = {one.id: one.median_s for one in whole.points}
    for number, part in enumerate(parts):
        for one in part.points:
            ends = one.id.replace("numa:", f"host:{number}/numa:").replace("gpu:", f"host:{number}/gpu:")
            assert values[ends] == one.median_s
    for one in whole.points:
        places = [one.src, one.dst, *(end for flow in one.flows for end in (flow.src, flow.dst))]
        assert len({place.partition("/")[0] for place in places}) == 1 and all("host:" in place for place in places)
    assert whole.header.plan["points"] == [one for one in whole.header.plan["points"] if "host:" in one]


@needs_worker
def test_every_reader_takes_a_merged_run(two_nodes, tmp_path, capsys):
    file = tmp_path / "all.jsonl"
    assert merge(two_nodes, file) == 0
    assert main(["report", str(file), "-o", str(tmp_path / "all.html")]) == 0
    assert "host:1/gpu:1" in (tmp_path / "all.html").read_text()
    for words in (["report", str(file), "--summary=full"], ["compare", str(file), str(file)], ["export", str(file)]):
        capsys.readouterr()
        assert main(words) == 0
        assert "host:1/" in capsys.readouterr().out or words[0] == "compare"
    assert list(sections(read_run(file), Output.TERMINAL))


@needs_worker
def test_places_in_parameters_and_in_what_was_inherited_move_with_their_node(two_nodes):
    run_file = read_run(two_nodes[0])
    id = "concurrent/ce/numa:0.pinned->gpu:0.device/16777216?with=numa:0->gpu:1"
    copied = "h2d/ce/numa:0.pinned->gpu:1.device/4096?bidirectional=false&cpu=numa:0&mode=batched"
    points = [
        point(id, 0.1, guards={"pages numa:0.pinned": 0, "gpu:1": {"sm_mhz": [1, 2]}}),
        point(copied, inherited_from=copied.replace("gpu:1", "gpu:0")),
    ]  # fmt: skip
    parts = parts_of([replace(run_file, points=points), read_run(two_nodes[1])])
    first, second = [one for one in merged(parts) if isinstance(one, Point)][:2]
    assert first.id.endswith("/16777216?with=host:0/numa:0->host:0/gpu:1")
    assert first.params == {"with": "host:0/numa:0->host:0/gpu:1"}
    assert set(first.guards) == {"pages host:0/numa:0.pinned", "host:0/gpu:1"}
    assert "->host:0/gpu:1.device/" in second.id and "cpu=numa:0" in second.id  # of the source's host
    assert second.inherited_from == second.id.replace("gpu:1", "gpu:0")


def test_what_grew_on_the_nodes_of_a_merged_run_is_kept_by_node():
    def ended(number: int) -> Run:
        gained = {"gpu:0": {"nvlink_replay": number}, "cpu_steal": number / 100, "tcp": {f"node{number}": {"sent": 9}}}
        made = run([point(f"h2d/ce/numa:0.pinned->gpu:0.device/{MIB}", 0.1)], host=f"node{number}", places=["gpu:0"])
        return replace(made, end=End(wall_s=float(number), complete=True, counts={"ok": 1}, gained=gained))

    *_, end = merged(parts_of([ended(1), ended(2)]))
    assert isinstance(end, End) and end.wall_s == 2.0 and end.counts == {"ok": 2}
    assert end.gained["host:0/gpu:0"] == {"nvlink_replay": 1} and end.gained["host:1/gpu:0"] == {"nvlink_replay": 2}
    assert end.gained["cpu_steal"] == 0.02 and set(end.gained["tcp"]) == {"node1", "node2"}


@needs_worker
def test_a_half_finished_file_of_a_node_is_kept_and_said(two_nodes, tmp_path, capsys):
    lines = two_nodes[1].read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(b'{"record":"end"')]
    last = next(at for at in range(len(kept) - 1, 0, -1) if kept[at].startswith(b'{"record":"point"'))
    id = json.loads(kept.pop(last))["id"]
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(b"".join(kept) + b'{"record":"poi')
    assert merge([two_nodes[0], torn], tmp_path / "all.jsonl") == 0
    said = capsys.readouterr().err
    assert "torn.jsonl is half-finished" in said and f"linkscope run --resume {torn}" in said
    whole = read_run(tmp_path / "all.jsonl")
    assert whole.end and not whole.end.complete
    states = {one["host"]: one["runs"][0]["complete"] for one in whole.header.machine["hosts"]}
    assert states == {"left": True, "torn": False}
    assert len(whole.rounds[id.replace("numa:", "host:1/numa:").replace("gpu:", "host:1/gpu:")]) == 2
    assert main(["run", "--resume", str(tmp_path / "all.jsonl")]) == 2
    assert "is merged: resume the run file of a node on that node" in capsys.readouterr().err


@needs_worker
def test_files_that_do_not_fit_together_are_refused(two_nodes, tmp_path, capsys):
    def says(files: list[Path]) -> str:
        assert merge(files, tmp_path / "out.jsonl") == 2
        return capsys.readouterr().err

    assert "both have" in says([two_nodes[0], two_nodes[0]])
    assert "give two run files or more" in says([two_nodes[0]])
    changed = tmp_path / "changed.jsonl"
    text = two_nodes[1].read_text()
    changed.write_text(text.replace('"modelled":true', '"modelled":false', 1))
    assert "one is MODELLED and one is measured" in says([two_nodes[0], changed])
    changed.write_text(text.replace('"h2d":1', '"h2d":2', 1))
    assert "h2d has method version 1 and 2" in says([two_nodes[0], changed])
    changed.write_text(text.replace('"precision":null', '"precision":0.5', 1))
    assert "precision None and 0.5" in says([two_nodes[0], changed])
    assert merge(two_nodes, changed) == 0
    assert "is a merged run already" in says([two_nodes[0], changed])
    assert not (tmp_path / "out.jsonl").exists()
