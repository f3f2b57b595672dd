"""Machine files with planted noise and faults, and places of several hosts: refused files and complete runs."""

import json
from pathlib import Path

import pytest

from linkscope.machine import model
from linkscope.machine.draw import draw
from linkscope.machine.model_paths import routes
from linkscope.plan import Plan, make_plan
from linkscope.run.session import measure
from linkscope.run.table import benchmark_table
from linkscope.run.target import modelled
from linkscope.runfile import read_run
from test_machine_model import GOOD, refusal

ASSUMED = 'from = "assumed", why = "a test"'
NOISE = '[noise.round]\nfrom = "assumed"\nwhy = "a test"\n'
FAULT = '[[fault]]\nkind = "corrupt"\nmatch = "h2d/*"\n'
CALM = GOOD.replace(NOISE + "rate = 0.01\n", "").replace(FAULT, "")


def noise(level: str, *lines: str) -> str:
    return CALM + "\n".join((f"[noise.{level}]", 'from = "assumed"', 'why = "a test"', *lines, ""))


def fault(kind: str, *lines: str) -> str:
    return CALM + "\n".join(("[[fault]]", f'kind = "{kind}"', *lines, ""))


GOOD_FILES = {
    "lognormal": noise("sample", 'shape = "lognormal"', "rate = 0.01"),
    "autocorrelated": noise("sample", 'shape = "autocorrelated"', "correlation = 0.8", "rate = 0.01"),
    "bimodal samples": noise("sample", 'shape = "bimodal"', "second = 1.3", "share = 0.2"),
    "bimodal rounds": noise("round", 'shape = "bimodal"', "second = 1.3", "share = 0.2", "rate = 0.01"),
    "ramp": fault("ramp", "samples = 5", "factor = 1.5"),
    "throttle": fault("throttle", 'match = "h2d/*#0"', "after_samples = 3", "samples = 5", "factor = 1.5"),
    "slow": fault("slow", 'links = ["bus numa:0->gpu:*"]', "factor = 0.5"),
    "flaky": fault("flaky", 'links = ["bus numa:0->gpu:*"]', "factor = 0.5", "share = 0.1"),
    "lie": fault("lie", 'match = "d2d/*"'),
    "late lie": fault("lie", 'match = "d2d/*"', "samples = 2"),
}

# The file, the key whose line the message names, and the parts of the message: problem and cure.
BAD = {
    "shape": (noise("round", 'shape = "square"'), "shape", ["'square'", "lognormal", "bimodal"]),
    "no correlation": (noise("sample", 'shape = "autocorrelated"'), "[noise.sample]", ["correlation", "it is missing"]),
    "correlation of 1": (
        noise("sample", 'shape = "autocorrelated"', "correlation = 1"), "correlation", ["1 is not a correlation"],
    ),
    "correlated rounds": (noise("round", 'shape = "autocorrelated"', "correlation = 0.5"), "shape", ["[noise.sample]"]),
    "no share": (noise("round", 'shape = "bimodal"', "second = 1.2"), "[noise.round]", ["share", "it is missing"]),
    "share of 1": (noise("round", 'shape = "bimodal"', "second = 1.2", "share = 1"), "share", ["less than 1"]),
    "second mode that is none": (
        noise("round", 'shape = "bimodal"', "second = 1", "share = 0.1"), "second", ["above 1"],
    ),
    "share of one mode": (noise("round", "share = 0.1"), "share", ['shape = "lognormal" has no such key', "take it"]),
    "noise of 300 %": (noise("sample", "engine = 3"), "engine", ["between 0 and 0.5"]),
    "ramp without samples": (fault("ramp", "factor = 2"), "[[fault]]", ["samples", "it is missing", "write samples"]),
    "ramp that is faster": (fault("ramp", "samples = 2", "factor = 0.5"), "factor", ["above 1"]),
    "throttled for nothing": (fault("throttle", "samples = 0", "factor = 2"), "samples", ["1 or more"]),
    "rate of zero": (fault("slow", 'links = ["bus *"]', "factor = 0"), "factor", ["more than 0"]),
    "slow that is fast": (fault("slow", 'links = ["bus *"]', "factor = 2"), "factor", ["less than 1"]),
    "slow no link": (fault("slow", 'links = ["bas *"]', "factor = 0.5"), "links", ["'bas *'", "bus numa:0->gpu:0"]),
    "slow nothing": (fault("slow", "links = []", "factor = 0.5"), "links", ["it names no link"]),
    "flaky without share": (fault("flaky", 'links = ["bus *"]', "factor = 0.5"), "[[fault]]", ["share", "missing"]),
    "corrupt with factor": (fault("corrupt", "factor = 2"), "factor", ["no such key", "take it away"]),
    "lie with share": (fault("lie", "share = 0.5"), "share", ["no such key", "it has samples"]),
    "negative start": (fault("lie", "after_samples = -1"), "after_samples", ["0 or more"]),
    "cache of no rate": (
        CALM.replace("llc_mib = 32", f"llc_mib = 32\nllc_gbps = {{ v = 0, {ASSUMED} }}"), "llc_gbps", ["not above 0"],
    ),
    "cache without unit": (
        CALM.replace("llc_mib = 32", f"llc_mib = 32\nllc = {{ v = 9, {ASSUMED} }}"), "llc =", ["unit"],
    ),
    "share of a share": (
        CALM + f'[[share]]\nname = "all"\nlinks = ["into both"]\ngbps = {{ v = 20, {ASSUMED} }}\n',
        'links = ["into', ["'into both' is a share", "never another share"],
    ),
    "shares in a circle": (
        CALM.replace('links = ["bus numa:*->gpu:*"]', 'links = ["into both"]'), "links", ["is a share, not a link"],
    ),
    "route in a circle": (
        CALM + '[[route]]\nfrom = "numa:0"\nto = "gpu:1"\nvia = ["numa:1", "numa:0", "numa:1"]\n',
        "[[route]]", ["passes numa:0 twice"],
    ),
    "route twice": (
        CALM + 2 * '[[route]]\nfrom = "numa:0"\nto = "gpu:1"\nvia = ["numa:1"]\n', "[[route]]", ["it is the second"],
    ),
    "switch that nothing reaches": (
        CALM + '[[switch]]\nplaces = ["switch:0"]\n', "[[switch]]", ["no link leads to switch:0", "add a [[link]]"],
    ),
    "card that nothing reaches": (CALM + '[[nic]]\nplaces = ["nic:0"]\n', "[[nic]]", ["no way leads", "nic:0"]),
    "slices without a change": (
        CALM.replace("[costs]", f"[costs]\ntime_slice_us = {{ v = 9, {ASSUMED} }}"),
        "[costs]", ["context_switch_us", "take"],
    ),
    "changes without a slice": (
        CALM.replace("[costs]", f"[costs]\ncontext_switch_us = {{ v = 9, {ASSUMED} }}"),
        "[costs]", ["time_slice_us", "take"],
    ),
    "disk that nothing reaches": (CALM + '[[disk]]\nplaces = ["disk:0"]\n', "[[disk]]", ["no way leads", "disk:0"]),
    "disk by its path": (CALM + '[[disk]]\nplaces = ["disk:/data"]\n', "places", ["'disk:/data'", "disk:0"]),
    "card of no kind": (CALM + '[[nic]]\nplaces = ["hca:0"]\n', "places", ["'hca:0'", "nic:0"]),
}  # fmt: skip


@pytest.mark.parametrize("what", GOOD_FILES)
def test_valid_noise_and_faults_are_accepted(what: str) -> None:
    read = model.parse(GOOD_FILES[what], "small.toml")
    assert model.parse(GOOD_FILES[what], "small.toml").to_json() == json.loads(json.dumps(read.to_json()))


@pytest.mark.parametrize("what", BAD)
def test_invalid_noise_and_faults_are_refused_with_line_and_cure(what: str) -> None:
    text, at, parts = BAD[what]
    message = refusal(text)
    line = int(message.partition("small.toml:")[2].partition(":")[0])
    assert text.splitlines()[line - 1].startswith(at), message
    assert ";" in message and "\n" not in message
    for part in parts:
        assert part in message


TWO = (
    """
[machine]
name = "two"
title = "Two hosts"

[[numa]]
places = ["host:0/numa:0", "host:1/numa:0"]
cpus = 8
memory_gib = 64
llc_mib = 8
dram_gbps = { v = 50, ASSUMED }
memcpy_gbps = { v = 8, ASSUMED }

[[gpu]]
title = "GPU"
at = { "host:0/numa:0" = ["host:0/gpu:0"], "host:1/numa:0" = ["host:1/gpu:0"] }
memory_gib = 8
sms = 10
l2_mib = 1
copy_engines = 2
memory_gbps = { v = 200, ASSUMED }
local_copy_gbps = { v = 90, ASSUMED }

[[nic]]
places = ["host:0/nic:0", "host:1/nic:0"]
title = "HCA"

[[switch]]
places = ["switch:0"]

[[link]]
name = "pcie"
kind = "pcie"
lanes = 16
between = [["host:0/numa:0", "host:0/gpu:0"], ["host:1/numa:0", "host:1/gpu:0"]]
gbps = { v = 8, ASSUMED }
efficiency = { v = 0.8, ASSUMED }
latency_us = { v = 0.5, ASSUMED }

[[link]]
name = "slot"
kind = "pcie"
lanes = 8
between = [["host:0/numa:0", "host:0/nic:0"], ["host:1/numa:0", "host:1/nic:0"]]
gbps = { v = 4, ASSUMED }
efficiency = { v = 0.8, ASSUMED }
latency_us = { v = 0.5, ASSUMED }

[[link]]
name = "net"
kind = "infiniband"
between = [["host:0/nic:0", "switch:0"], ["host:1/nic:0", "switch:0"]]
gbps = { v = 3.5, ASSUMED }
efficiency = { v = 0.9, ASSUMED }
latency_us = { v = 0.6, ASSUMED }
""".replace("ASSUMED", ASSUMED)
    + GOOD[GOOD.index("[costs]") : GOOD.index("[noise.round]")]
)


def test_hosts_are_connected_through_their_network_cards() -> None:
    two = model.parse(TWO, "two.toml")
    known = model.places(two)
    assert known.nics == ("host:0/nic:0", "host:1/nic:0")
    route = [link.name for link in routes(two)["host:0/gpu:0", "host:1/numa:0"]]
    assert route == [
        "pcie host:0/gpu:0->host:0/numa:0", "slot host:0/numa:0->host:0/nic:0", "net host:0/nic:0->switch:0",
        "net switch:0->host:1/nic:0", "slot host:1/nic:0->host:1/numa:0",
    ]  # fmt: skip
    limits = model.limits(two)
    assert limits["host:0/numa:0", "host:1/numa:0"].gbps == 3.5
    assert "net host:0/nic:0->switch:0 (infiniband)" in limits["host:0/numa:0", "host:1/numa:0"].derivation
    assert limits["host:1/numa:0", "host:1/gpu:0"].gbps == 8


def test_cards_and_the_network_are_drawn() -> None:
    text = draw(model.parse(TWO, "two.toml"))
    card = "host:0/nic:0  HCA, pcie x8 4 GB/s to host:0/numa:0, infiniband 3.5 GB/s to switch:0"
    assert card in text
    assert "3.5 network" in text and "on another host" in text


def test_a_disk_has_a_place_and_rates_and_is_drawn() -> None:
    link = """
[[link]]
name = "sata"
kind = "sata"
between = [["numa:0", "disk:0"], ["numa:1", "disk:0"]]
gbps = { v = 0.2, ASSUMED }
back_gbps = { v = 0.25, ASSUMED }
efficiency = { v = 1, ASSUMED }
latency_us = { v = 80, ASSUMED }
""".replace("ASSUMED", ASSUMED)
    parts = CALM.partition("[[link]]")
    disk = '[[disk]]\nplaces = ["disk:0"]\ntitle = "SSD"\n' + link
    one = model.parse(parts[0] + disk + "".join(parts[1:]), "one.toml")
    assert model.places(one).disks == ("disk:0",)
    assert "disk:0  SSD, 0.25 GB/s read to numa:0" in draw(one)
    assert "0.2 GB/s written from numa:0" in draw(one)
    assert [hop.to for hop in routes(one)["gpu:0", "disk:0"]] == ["numa:0", "disk:0"]


BAD_HOSTS = {
    "no network": (
        'between = [["host:0/nic:0", "switch:0"], ["host:1/nic:0", "switch:0"]]',
        'between = [["host:0/nic:0", "switch:0"]]',
        ["no way leads from host:0/numa:0 to host:1/numa:0", "add a [[link]]"],
    ),
    "host without name": ('["host:0/nic:0", "host:1/nic:0"]\n', '["nic:0", "host:1/nic:0"]\n', ["write host:0/nic:0"]),
    "card of another machine": (
        '["host:0/numa:0", "host:0/nic:0"]', '["host:0/numa:0", "host:0/nic:1"]', ["there is no host:0/nic:1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_HOSTS)
def test_invalid_hosts_are_refused(what: str) -> None:
    good, bad, parts = BAD_HOSTS[what]
    assert good in TWO
    message = refusal(TWO.replace(good, bad, 1))
    for part in parts:
        assert part in message


def test_every_place_belongs_to_one_host_and_hosts_are_numbered_without_gaps() -> None:
    swapped = TWO.replace(
        '{ "host:0/numa:0" = ["host:0/gpu:0"], "host:1/numa:0" = ["host:1/gpu:0"] }',
        '{ "host:0/numa:0" = ["host:0/gpu:0", "host:1/gpu:0"] }',
    )
    assert "host:1/gpu:0 is at host:0/numa:0, which is of another host" in refusal(swapped)
    peers = TWO + '[peer]\ngroups = [["host:0/gpu:0", "host:1/gpu:0"]]\nfrom = "assumed"\nwhy = "a test"\n'
    assert "host:0/gpu:0 and host:1/gpu:0 are on different hosts" in refusal(peers)
    headless = TWO.replace("host:1/", "host:2/")
    assert "there is host:2 but no host:1" in refusal(headless)
    assert "there is host:1 but no host:0" in refusal(headless.replace("host:0/", "host:1/"))


def points(tmp_path: Path, text: str, only: str, **plan: int) -> dict:
    where = modelled(model.parse(text, "small.toml"), 1)
    wanted: Plan = make_plan(where.facts, benchmark_table(), suite="quick", only=[only], **plan)
    measure(where, wanted, tmp_path / "run.jsonl")
    return {point.id: point for point in read_run(tmp_path / "run.jsonl").points}


def test_a_simulated_throttle_is_reported_like_that_of_hardware(tmp_path: Path) -> None:
    planted = GOOD_FILES["throttle"].replace("after_samples = 3\nsamples = 5", "samples = 10000")
    found = points(tmp_path, planted, "h2d/ce/numa:0.pinned->gpu:0*", rounds=4)
    assert found
    for point in found.values():
        apart = point.guards["throttled_rounds"]
        assert [(kept["round"], kept["reasons"]) for kept in apart] == [
            (0, ["sw_thermal"])
        ] * 2  # the round was repeated
        assert "throttled" not in point.guards
        assert point.status in ("ok", "missed_precision") and point.median_s


@pytest.mark.parametrize("what", ["lie", "late lie"])
def test_planted_wrong_data_fails_the_verification(what: str, tmp_path: Path) -> None:
    found = points(tmp_path, GOOD_FILES[what], "d2d/ce/gpu:0*", rounds=2)
    assert found and all(point.status == "failed" and point.verified is False for point in found.values())


def test_a_run_on_two_hosts_measures_its_paths(tmp_path: Path) -> None:
    found = points(tmp_path, TWO, "h2d/*", rounds=2)
    between = set()
    for point in found.values():
        same = point.src.partition("/")[0] == point.dst.partition("/")[0]
        assert same == (point.median_s is not None), point.id
        if not same:
            assert point.status == "unsupported" and "different hosts" in point.reason
            between.add((point.src, point.dst))
    assert between == {("host:0/numa:0", "host:1/gpu:0"), ("host:1/numa:0", "host:0/gpu:0")}
