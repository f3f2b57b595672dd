"""Machine files: the content of a valid one, and the messages about an invalid one."""

import re

import pytest

from linkscope.errors import WRONG_USAGE, UserError
from linkscope.machine import model
from linkscope.machine.model_paths import directed_links, routes

GOOD = """
[machine]
name = "small"
title = "Two halves"

[[numa]]
places = ["numa:0", "numa:1"]
cpus = 8
memory_gib = 64
llc_mib = 32
dram_gbps = { v = 100, from = "assumed", why = "a test" }
memcpy_gbps = { v = 10, from = "assumed", why = "a test" }

[[gpu]]
title = "GPU"
at = { "numa:0" = ["gpu:0"], "numa:1" = ["gpu:1"] }
memory_gib = 16
sms = 80
l2_mib = 6
copy_engines = 2
memory_gbps = { v = 900, from = "assumed", why = "a test" }
local_copy_gbps = { v = 400, from = "assumed", why = "a test" }

[[link]]
name = "bus"
kind = "pcie"
lanes = 16
between = [["numa:0", "gpu:0"], ["numa:1", "gpu:1"]]
gbps = { v = 16, from = "published", ref = "datasheet" }
efficiency = { v = 0.8, from = "fitted", fitted_to = ["X-1"] }
latency_us = { v = 0.5, from = "assumed", why = "a test" }

[[link]]
name = "smp"
kind = "smp"
between = [["numa:0", "numa:1"]]
gbps = { v = 12, from = "published", ref = "datasheet" }
back_gbps = { v = 10, from = "published", ref = "datasheet" }
efficiency = { v = 0.9, from = "fitted", fitted_to = ["X-2"] }
latency_us = { v = 0.2, from = "assumed", why = "a test" }

[[share]]
name = "into both"
links = ["bus numa:*->gpu:*"]
gbps = { v = 20, from = "assumed", why = "a test" }

[peer]
groups = [["gpu:0", "gpu:1"]]
from = "assumed"
why = "a test"

[costs]
call_us = { v = 1, from = "assumed", why = "a test" }
launch_us = { v = 1, from = "assumed", why = "a test" }
sync_us = { v = 1, from = "assumed", why = "a test" }
event_us = { v = 1, from = "assumed", why = "a test" }
event_tick_ns = { v = 32, from = "assumed", why = "a test" }
host_stamp_us = { v = 0, from = "assumed", why = "a test" }
cpu_copy_us = { v = 0.1, from = "assumed", why = "a test" }

[copy]
to_device_us = { v = 1, from = "assumed", why = "a test" }
from_device_us = { v = 1, from = "assumed", why = "a test" }
peer_us = { v = 1, from = "assumed", why = "a test" }
local_us = { v = 1, from = "assumed", why = "a test" }
inline_kib = { v = 1, from = "assumed", why = "a test" }
inline_us = { v = 1, from = "assumed", why = "a test" }
inline_gbps = { v = 1, from = "assumed", why = "a test" }
channel_us = { v = 6, from = "assumed", why = "a test" }

[pageable]
chunk_kib = { v = 512, from = "assumed", why = "a test" }
slots = { v = 4, from = "assumed", why = "a test" }
to_device_gbps = { v = 8, from = "assumed", why = "a test" }
from_device_gbps = { v = 8, from = "assumed", why = "a test" }

[staged_peer]
chunk_kib = { v = 512, from = "assumed", why = "a test" }
slots = { v = 3, from = "assumed", why = "a test" }
chunk_us = { v = 5, from = "assumed", why = "a test" }

[noise.round]
from = "assumed"
why = "a test"
rate = 0.01

[[fault]]
kind = "corrupt"
match = "h2d/*"
"""


def refusal(text: str) -> str:
    with pytest.raises(UserError) as refused:
        model.parse(text, "small.toml")
    assert refused.value.exit_code == WRONG_USAGE
    return str(refused.value)


@pytest.mark.parametrize(
    "ends", ["low = 9", "high = 20", "low = 13, high = 20", "low = 9, high = 11", "low = 0, high = 20"]
)
def test_the_ends_of_what_is_known_of_a_value_enclose_it(ends: str) -> None:
    value = 'gbps = { v = 12, from = "published"'
    assert "low and high do not enclose v" in refusal(GOOD.replace(value, f"{value}, {ends}"))
    assert model.parse(GOOD.replace(value, f"{value}, low = 9, high = 20"), "small.toml").link[1].gbps.high == 20


@pytest.mark.parametrize("name", sorted(model.bundled()))
def test_bundled_machines_load(name: str) -> None:
    machine = model.load(name)
    assert machine.machine.name == name
    assert model.parse(model.bundled()[name].read_text(), name) == machine


def test_bundled_machines_are_those_of_the_design() -> None:
    named = {
        *("h200x1", "h200x2", "h200x4", "h200x8", "ac922", "s822lc", "4029gp", "minsky", "newell"),
        *("sl390", "dl160", "jorda-a", "jorda-b", "jorda-c", "klenk-extoll", "klenk-ib"),
    }
    assert named <= set(model.bundled())
    ac922 = model.places(model.load("ac922"))
    assert ac922.gpu_numa == {"gpu:0": "numa:0", "gpu:1": "numa:0", "gpu:2": "numa:1", "gpu:3": "numa:1"}


def test_a_machine_has_its_places() -> None:
    known = model.places(model.parse(GOOD, "small"))
    assert known.numa == ("numa:0", "numa:1")
    assert known.gpus == ("gpu:0", "gpu:1")
    assert known.gpu_numa == {"gpu:0": "numa:0", "gpu:1": "numa:1"}
    assert known.memory_bytes["gpu:1"] == 16 * 2**30
    assert known.cache_bytes == {"numa:0": 32 << 20, "numa:1": 32 << 20, "gpu:0": 6 << 20, "gpu:1": 6 << 20}
    assert known.peers == {("gpu:0", "gpu:1"), ("gpu:1", "gpu:0")}


def test_the_json_has_the_content_of_the_file() -> None:
    content = model.parse(GOOD, "small").to_json()
    assert content["machine"]["name"] == "small"
    assert content["link"][0]["gbps"] == {
        "v": 16.0,
        "from": "published",
        "ref": "datasheet",
        "fitted_to": [],
        "why": "",
    }
    assert content["link"][1]["between"] == [["numa:0", "numa:1"]]
    assert "back_gbps" not in content["link"][0]
    assert content["fault"][0]["kind"] == "corrupt"


def test_routes_are_the_shortest_then_the_widest_and_never_cross_a_gpu() -> None:
    by_pair = routes(model.parse(GOOD, "small"))
    assert [link.name for link in by_pair["numa:0", "gpu:1"]] == ["smp numa:0->numa:1", "bus numa:1->gpu:1"]
    triangle = GOOD + LINK.format(name="bridge", one="gpu:0", other="gpu:1", gbps=99)
    by_pair = routes(model.parse(triangle, "small"))
    assert [link.name for link in by_pair["gpu:0", "gpu:1"]] == ["bridge gpu:0->gpu:1"]
    assert [link.name for link in by_pair["numa:0", "gpu:1"]] == ["smp numa:0->numa:1", "bus numa:1->gpu:1"]
    double = GOOD + LINK.format(name="wide", one="numa:0", other="numa:1", gbps=99)
    assert [link.name for link in routes(model.parse(double, "small"))["numa:0", "numa:1"]] == ["wide numa:0->numa:1"]
    ruled = triangle + '\n[[route]]\nfrom = "numa:0"\nto = "gpu:1"\nvia = ["gpu:0"]\n'
    by_pair = routes(model.parse(ruled, "small"))
    assert [link.name for link in by_pair["numa:0", "gpu:1"]] == ["bus numa:0->gpu:0", "bridge gpu:0->gpu:1"]


LINK = """
[[link]]
name = "{name}"
kind = "other"
between = [["{one}", "{other}"]]
gbps = {{ v = {gbps}, from = "assumed", why = "a test" }}
efficiency = {{ v = 1, from = "assumed", why = "a test" }}
latency_us = {{ v = 0, from = "assumed", why = "a test" }}
"""


def test_peaks_are_raw_rates_with_a_derivation() -> None:
    machine = model.parse(GOOD, "small")
    limits = model.limits(machine)
    assert limits["numa:0", "gpu:0"].gbps == 16
    assert "bus numa:0->gpu:0 (pcie x16)" in limits["numa:0", "gpu:0"].derivation
    assert "published: datasheet" in limits["numa:0", "gpu:0"].derivation
    assert limits["numa:0", "gpu:1"].gbps == 12
    assert limits["gpu:1", "numa:0"].gbps == 10
    assert limits["gpu:0", "gpu:0"].gbps == 450  # each byte is read and written
    assert limits["numa:1", "numa:1"].gbps == 50
    assert model.limit_through_host(machine, "gpu:1", "gpu:0").gbps == 10
    assert len(limits) == 16


def test_without_peer_access_the_peak_is_that_of_the_faster_host_path() -> None:
    """The stream's GPU decides whose host memory the copy crosses; a peak is never below either path's rate."""
    table = GOOD[GOOD.index("[[numa]]") : GOOD.index("[[gpu]]")]
    fast = table.replace('"numa:0", "numa:1"', '"numa:0"')
    slow = table.replace('"numa:0", "numa:1"', '"numa:1"').replace("v = 100", "v = 5")
    machine = model.parse(GOOD.replace(table, fast + slow), "small")
    assert model.limit_through_host(machine, "gpu:1", "gpu:0").gbps == 10
    assert model.limit_through_host(machine, "gpu:0", "gpu:1").gbps == 12


def test_some_copies_cross_the_host_although_a_link_joins_the_gpus() -> None:
    """Copies without peer access do, and managed pages whose route is not all NVLink."""
    bridge = LINK.format(name="bridge", one="gpu:0", other="gpu:1", gbps=99)
    apart = GOOD.replace('groups = [["gpu:0", "gpu:1"]]', "groups = []")
    machines = {peers: model.parse(text + bridge, "small") for peers, text in ((True, GOOD), (False, apart))}
    limits = [model.limit_finder(machines[peers])("gpu:0", "gpu:1", True, False) for peers in (True, False)]
    assert [limit and limit.gbps for limit in limits] == [99, 12]
    mixed = model.parse(GOOD.replace('"pcie"', '"nvlink"').replace("v = 100", "v = 5"), "small")
    pages = model.limit_finder(mixed)("gpu:0", "gpu:1", False, True)
    assert pages and pages.gbps == 5 and "the memory of numa:" in pages.derivation


def test_peaks_of_bundled_machines_are_known() -> None:
    ac922 = model.limits(model.load("ac922"))
    assert ac922["numa:0", "gpu:1"].gbps == 75
    assert ac922["numa:0", "gpu:2"].gbps == 64
    h200 = model.limits(model.load("h200x4"))
    assert h200["numa:0", "gpu:3"].gbps == pytest.approx(58.45, rel=0.001)
    assert h200["gpu:2", "gpu:0"].gbps == 478


def test_every_directed_link_has_a_unique_name() -> None:
    for name in model.bundled():
        names = [link.name for link in directed_links(model.load(name))]
        assert len(set(names)) == len(names)


A = '{ v = 1, from = "assumed", why = "a test" }'
KERNEL = ("launch_us", "load_us", "read_tile_us", "write_tile_us", "memory_efficiency")


# By mistake: the valid line, its replacement, and the parts of the message with the cure.
BAD = {
    "unknown key": ("lanes = 16", "lines = 16", ["link[0].lines", "no such key", "did you mean 'lanes'"]),
    "unit missing": ("latency_us = { v = 0.5", "latency = { v = 0.5", ["link[0].latency", "'latency_us'", "unit"]),
    "unknown key far from all": ("lanes = 16", "colour = 1", ["link[0].colour", "it has name, kind"]),
    "unknown table": ("[peer]", "[pear]", ["pear", "did you mean 'peer'"]),
    "field missing": ('kind = "smp"\n', "", ["link[1].kind", "missing"]),
    "constant missing": (
        'efficiency = { v = 0.8, from = "fitted", fitted_to = ["X-1"] }',
        "",
        ["link[0].efficiency", "missing", "from = "],
    ),
    "bare constant": (
        'gbps = { v = 16, from = "published", ref = "datasheet" }',
        "gbps = 16",
        ["link[0].gbps", "where it comes from", "write gbps = {"],
    ),
    "constant without origin": (
        '{ v = 16, from = "published", ref = "datasheet" }',
        "{ v = 16 }",
        ["link[0].gbps.from", "missing"],
    ),
    "origin without reference": (
        'from = "published", ref = "datasheet" }\nefficiency = { v = 0.8',
        'from = "published" }\nefficiency = { v = 0.8',
        ["link[0].gbps", "published", "add ref"],
    ),
    "unknown origin": (
        'from = "published", ref = "datasheet" }\nefficiency = { v = 0.8',
        'from = "guessed" }\nefficiency = { v = 0.8',
        ["link[0].gbps.from", "guessed"],
    ),
    "fitted to nothing": ('fitted_to = ["X-1"]', "fitted_to = []", ["link[0].efficiency", "add fitted_to"]),
    "assumed and fitted": (
        'from = "fitted", fitted_to = ["X-1"]',
        'from = "assumed", why = "a", fitted_to = ["X-1"]',
        ["link[0].efficiency", "fitted_to"],
    ),
    "rate of zero": ("gbps = { v = 16,", "gbps = { v = 0,", ["link[0].gbps", "not above 0"]),
    "negative rate": ("gbps = { v = 16,", "gbps = { v = -16,", ["link[0].gbps", "-16", "not above 0"]),
    "infinite rate": ("gbps = { v = 16,", "gbps = { v = inf,", ["link[0].gbps", "inf"]),
    "rate that is text": (
        "gbps = { v = 16,",
        'gbps = { v = "fast",',
        ["link[0].gbps.v", "must be a number, but"],
    ),
    "negative time": ("latency_us = { v = 0.5", "latency_us = { v = -0.5", ["link[0].latency_us", "-0.5", "0 or more"]),
    "efficiency above 1": (
        "efficiency = { v = 0.8",
        "efficiency = { v = 1.2",
        ["link[0].efficiency", "1.2", "at most 1"],
    ),
    "negative count": ("copy_engines = 2", "copy_engines = 0", ["gpu[0].copy_engines", "not above 0"]),
    "page walks without a page": (
        "[pageable]\n",
        "[kernel]\n" + "".join(f"{key} = {A}\n" for key in KERNEL) + f"host_reach_mib = {A}\n\n[pageable]\n",
        ["kernel.host_page_kib", "missing", "take host_reach_mib away"],
    ),
    "noise of 300 %": ("rate = 0.01", "rate = 3", ["noise.round.rate", "between 0 and 0.5"]),
    "link to nowhere": (
        '["numa:1", "gpu:1"]]',
        '["numa:1", "gpu:7"]]',
        ["link[0].between[1]", "no gpu:7", "gpu:0, gpu:1"],
    ),
    "link to itself": ('["numa:1", "gpu:1"]]', '["numa:1", "numa:1"]]', ["link[0].between[1]", "itself"]),
    "bad place": (
        'places = ["numa:0", "numa:1"]',
        'places = ["node0", "numa:1"]',
        ["numa[0].places", "'node0'", "numa:0"],
    ),
    "place twice": ('"numa:1" = ["gpu:1"]', '"numa:1" = ["gpu:0"]', ["gpu[0].at", "gpu:0", "twice"]),
    "gap in numbers": ('"numa:1" = ["gpu:1"]', '"numa:1" = ["gpu:2"]', ["gpu[0].at", "gpu:2", "without gaps"]),
    "GPU at no node": (
        '"numa:1" = ["gpu:1"]',
        '"numa:5" = ["gpu:1"]',
        ["gpu[0].at", "no NUMA node numa:5", "numa:0, numa:1"],
    ),
    "disconnected place": (
        'between = [["numa:0", "gpu:0"], ["numa:1", "gpu:1"]]',
        'between = [["numa:0", "gpu:0"]]',
        ["no way leads from", "gpu:1", "add a [[link]]"],
    ),
    "share of no link": (
        'links = ["bus numa',
        'links = ["bas numa',
        ["share[0].links", "bas numa", "bus numa:0->gpu:0"],
    ),
    "peer that is not there": (
        'groups = [["gpu:0", "gpu:1"]]',
        'groups = [["gpu:0", "gpu:9"]]',
        ["peer.groups[0]", "no GPU gpu:9"],
    ),
    "no staging": ("[staged_peer]\n", "[noise.machine]\n", ["chunk_kib"]),
    "more left of a pull than there was": (
        "[pageable]\n",
        f"[pull]\nextra_us = {A}\noverlap = {A}\nleast_us = {A.replace('1', '2', 1)}\n\n[pageable]\n",
        ["pull.least_us", "extra_us at most"],
    ),
    "copies by nobody": (
        "[pageable]\n",
        '[pageable]\ncopied_by = "nobody"\n',
        ["pageable.copied_by", "driver or caller"],
    ),
    "half a slot": ("slots = { v = 4", "slots = { v = 4.5", ["pageable.slots", "whole number"]),
    "unknown fault": ('kind = "corrupt"', 'kind = "explode"', ["fault[0].kind", "explode"]),
    "two links of one name": (
        'name = "smp"\nkind = "smp"\nbetween = [["numa:0", "numa:1"]]',
        'name = "bus"\nkind = "smp"\nbetween = [["numa:0", "numa:1"], ["numa:0", "gpu:0"]]',
        ["bus numa:0->gpu:0", "another name"],
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_invalid_files_are_refused_with_key_and_cure(what: str) -> None:
    good, bad, parts = BAD[what]
    assert good in GOOD
    message = refusal(GOOD.replace(good, bad, 1))
    assert message.startswith("small.toml:")
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_the_message_names_the_line() -> None:
    text = GOOD.replace("gbps = { v = 10, from", "gbps = { v = -10, from", 2)
    line = next(
        number for number, line in enumerate(text.splitlines(), 1) if line.startswith("memcpy_gbps = { v = -10")
    )
    assert f"small.toml:{line}: numa[0].memcpy_gbps" in refusal(text)
    text = GOOD.replace("back_gbps = { v = 10", "back_gbps = { v = 0")
    line = next(number for number, line in enumerate(text.splitlines(), 1) if line.startswith("back_gbps"))
    assert f"small.toml:{line}: link[1].back_gbps" in refusal(text)


def test_impossible_routes_are_refused() -> None:
    route = '\n[[route]]\nfrom = "numa:0"\nto = "gpu:1"\nvia = [{}]\n'
    assert "no link joins numa:0 and gpu:1" in refusal(GOOD + route.format(""))
    assert "there is no gpu:4" in refusal(GOOD + route.format('"gpu:4"'))
    model.parse(GOOD + route.format('"numa:1"'), "small")


def test_missing_tables_are_named() -> None:
    without = re.sub(r"\[staged_peer\].*?\n\n", "", GOOD, flags=re.S)
    assert "staged_peer: it is missing, and there are 2 GPUs" in refusal(without)


def test_a_file_that_is_no_toml_is_refused() -> None:
    assert "small.toml: not TOML" in refusal("[machine\n")
    assert "no table [machine]" in refusal("") and "docs/reference/machine-file.md" in refusal("")


def test_unknown_machines_are_refused_with_suggestions() -> None:
    with pytest.raises(UserError) as refused:
        model.load("h200x3")
    assert refused.value.exit_code == 2
    assert "'h200x3'" in str(refused.value) and "h200x4" in str(refused.value)
    with pytest.raises(UserError) as refused:
        model.load("./nowhere.toml")
    assert refused.value.exit_code == 2


def test_unreadable_files_are_reported(tmp_path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (binary, tmp_path / "folder.toml"):
        if path.name == "folder.toml":
            path.mkdir()
        with pytest.raises(UserError) as refused:
            model.load(str(path))
        assert refused.value.exit_code == WRONG_USAGE
        assert str(path) in str(refused.value)


def test_a_machine_file_is_read_by_its_path(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert model.load(str(path)).machine.name == "small"
