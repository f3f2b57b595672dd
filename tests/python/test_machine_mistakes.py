"""Mistakes in machine files: each message names the file, the line and the cure."""

import pytest

from test_machine_model import GOOD, refusal

SHARE = '\n[[share]]\nname = "{}"\nlinks = {}\ngbps = {{ v = 20, from = "assumed", why = "a test" }}\n'
ROUTE = '\n[[route]]\nfrom = "numa:0"\nto = "{}"\nvia = [{}]\n'
COFFEE = 'coffee_us = { v = 1, from = "assumed", why = "a test" }\n'
WITHOUT = 'between = [["numa:0", "gpu:0"]]'

# Each mistake in several forms: the file, the named line, the named part of it, and the cure.
LISTED = {
    "unknown key": (GOOD.replace("lanes = 16", "lines = 16"), "lines = 16", "link[0].lines", "did you mean 'lanes'?"),
    "a deviation that is none": (
        GOOD + '\n[deviation]\n"h2d by ce, pinned -> device" = { points = 9, median = 0.2, ninety = 0.1 }\n',
        "[deviation]",
        "0.2 and 0.1 of 9 points",
        "leave the row out",
    ),
    "unknown key like none": (
        GOOD.replace("[costs]\n", f"[costs]\n{COFFEE}"),
        "coffee_us",
        "costs.coffee_us",
        "it has call_us",
    ),
    "unknown table": (GOOD.replace("[peer]", "[pear]"), "[pear]", "pear", "did you mean 'peer'?"),
    "no unit of a constant": (
        GOOD.replace("latency_us", "latency", 1),
        "latency =",
        "link[0].latency",
        "'latency_us'? (the unit",
    ),
    "no unit of a size": (
        GOOD.replace("memory_gib = 64", "memory = 64"),
        "memory =",
        "numa[0].memory",
        "'memory_gib'? (the unit",
    ),
    "another unit": (
        GOOD.replace("memory_gib = 64", "memory_mib = 64"),
        "memory_mib",
        "numa[0].memory_mib",
        "'memory_gib'? (the unit",
    ),
    "how long waking takes, not after which time": (
        GOOD.replace("efficiency =", 'wake_us = { v = 5, from = "assumed", why = "a test" }\nefficiency =', 1),
        "[[link]]",
        "link[0].wake_after_us",
        "or take wake_us away",
    ),
    "cannot put a part to sleep": (
        GOOD.replace(
            "memory_gib = 16",
            'memory_gib = 16\nwake_us = { v = 5, from = "assumed", why = "a test" }\n'
            'wake_after_us = { v = 0, from = "assumed", why = "a test" }',
            1,
        ),
        "wake_after_us",
        "gpu[0].wake_after_us",
        "write more than 0",
    ),
    "a GPU apart": (
        GOOD.replace('between = [["numa:0", "gpu:0"], ["numa:1", "gpu:1"]]', WITHOUT),
        "[[gpu]]",
        "no way leads from numa:0 to gpu:1",
        "add a [[link]]",
    ),
    "two halves apart": (
        GOOD.replace('between = [["numa:0", "numa:1"]]', WITHOUT),
        "[[numa]]",
        "from numa:0 to numa:1",
        "add a [[link]]",
    ),
    "a switch apart": (GOOD + '\n[[switch]]\nplaces = ["switch:0"]\n', "[[switch]]", "to switch:0", "add a [[link]]"),
    "a route over no link": (
        GOOD + ROUTE.format("gpu:1", ""),
        "[[route]]",
        "no link joins numa:0 and gpu:1",
        "name in via",
    ),
    "a route to nowhere": (GOOD + ROUTE.format("gpu:4", ""), 'to = "gpu:4"', "there is no gpu:4", "there are numa:0"),
    "a route over nothing": (
        GOOD + ROUTE.format("gpu:1", '"numa:7"'),
        "via =",
        "there is no numa:7",
        "there are numa:0",
    ),
    "a route that turns back": (
        GOOD + ROUTE.format("gpu:1", '"numa:1", "numa:0", "numa:1"'),
        "[[route]]",
        "it passes numa:0 twice",
        "name every place on the way once",
    ),
    "shares in a circle": (
        GOOD + SHARE.format("a", '["b"]') + SHARE.format("b", '["a"]'),
        'links = ["b"]',
        "'b' is a share",
        "list the links",
    ),
    "a share of itself": (GOOD + SHARE.format("a", '["a"]'), 'links = ["a"]', "'a' is a share", "list the links"),
    "shares by glob": (
        GOOD + SHARE.format("a", '["into*"]'),
        'links = ["into*"]',
        "'into*' is a share",
        "list the links",
    ),
    "a share of links and shares": (
        GOOD + SHARE.format("a", '["bus *", "into both"]'),
        'links = ["bus *"',
        "'into both' is a share",
        "list the links",
    ),
    **{
        f"zero of {key}": (
            GOOD.replace(f"{key} = {{ v = {v},", f"{key} = {{ v = 0,", 1),
            f"{key} = {{ v = 0",
            f".{key}: 0",
            "write",
        )
        for key, v in (
            ("dram_gbps", 100),
            ("memcpy_gbps", 10),
            ("memory_gbps", 900),
            ("local_copy_gbps", 400),
            ("back_gbps", 10),
            ("efficiency", 0.8),
            ("inline_gbps", 1),
            ("to_device_gbps", 8),
            ("from_device_gbps", 8),
        )
    },
    "zero of a link": (
        GOOD.replace("gbps = { v = 16,", "gbps = { v = 0,"),
        "gbps = { v = 0",
        "link[0].gbps: 0",
        "write",
    ),
    "zero of a share": (
        GOOD.replace("gbps = { v = 20,", "gbps = { v = 0,"),
        "gbps = { v = 0",
        "share[0].gbps: 0",
        "write",
    ),
}


@pytest.mark.parametrize("what", LISTED)
def test_each_mistake_is_reported_with_file_line_and_cure(what: str) -> None:
    text, at, mistake_part, cure = LISTED[what]
    assert text != GOOD
    file, line, message = refusal(text).split(":", 2)
    assert file == "small.toml"
    assert text.splitlines()[int(line) - 1].startswith(at)
    mistake, _, how = message.partition("; ")
    assert mistake_part in mistake and cure in how
