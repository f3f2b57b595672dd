"""docs/reference/run-file.md describes every field of a run file and no others."""

import functools
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from linkscope.plan import Plan
from linkscope.runfile import ContextsTally, End, Flow, Header, Point, Resume, Round, Spread

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "run-file.md"
LARGEST = 100_000  # bytes of a compressed run: small runs contain every kind of record
SECTIONS = {
    "The `run` record": Header,
    "`plan` holds": Plan,
    "The `round` record": Round,
    "The `point` record": Point,
    "Each entry of `flows`": Flow,
    "The `resume` record": Resume,
    "The `end` record": End,
}
GUARDS = "### `guards`"


def test_every_section_describes_exactly_the_fields_of_its_record() -> None:
    for start, record in SECTIONS.items():
        fields = set(record.__struct_fields__)
        if record.__struct_config__.tag_field:
            fields.add(record.__struct_config__.tag_field)
        assert described()[start].keys() == fields, start


@pytest.mark.parametrize(("section", "field", "parts"), [
    ("`plan` holds", "classes", {"kind", "paths"}),
    ("`plan` holds", "together", {"id", "why", "first"}),
    ("The `point` record", "spread", set(Spread.__struct_fields__)),
    ("The `end` record", "contexts", set(ContextsTally.__struct_fields__)),
    ("The `round` record", "flows", {"src", "dst", "src_memory", "dst_memory", "bytes", "role", "samples_s"}),
])  # fmt: skip
def test_the_page_names_the_parts_of_a_field(section: str, field: str, parts: set[str]) -> None:
    assert parts <= set(re.findall(r"\w+", described()[section][field]))


def test_the_page_describes_every_field_of_real_runs() -> None:
    missing = {
        (section, field)
        for section, fields in found_in_runs().items()
        for field in fields
        if field not in described()[section]
    }
    assert not missing


def test_every_guard_of_the_page_is_in_a_run_or_in_the_code() -> None:
    writers = [*(ROOT / "src" / "linkscope" / "run").glob("*.py"), *(ROOT / "core" / "platform").rglob("*.cpp")]
    code = "".join(path.read_text(encoding="utf-8") for path in writers)
    for guard in described()[GUARDS]:
        assert guard in found_in_runs()[GUARDS] or re.search(f'"{guard}[" ]', code), guard


def test_real_runs_lack_an_interval_only_for_the_reasons_of_the_page() -> None:
    """A point with six or more rounds has no interval if a round was not positive."""
    for record in records():
        if record["record"] == "point" and record["status"] in ("ok", "missed_precision"):
            for flow in record["flows"]:
                if flow["median_s"] is not None and flow["ci95_s"] is None and len(flow["round_medians_s"]) >= 6:
                    assert min(flow["round_medians_s"]) <= 0, record["id"]


def test_rates_of_real_runs_count_the_bytes_of_their_flow() -> None:
    for record in records():
        for flow in record.get("flows", ()) if record["record"] == "point" else ():
            if flow["gbps"] is not None:
                assert flow["gbps"] == pytest.approx(flow["bytes"] / flow["median_s"] / 1e9), record["id"]


@functools.cache
def described() -> dict[str, dict[str, str]]:
    """By section, its table: fields and their rows."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    section = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        section = next(
            (start for start in (*SECTIONS, GUARDS) if line.lstrip("# ").startswith(start.lstrip("# "))), section
        )
        if line.startswith("#") and not any(line.lstrip("# ").startswith(s.lstrip("# ")) for s in (*SECTIONS, GUARDS)):
            section = ""
        if section and line.startswith("| `"):
            for field in re.findall(r"`([^`]+)`", line.split("|")[1]):
                found[section][field] = line
    return found


@functools.cache
def found_in_runs() -> dict[str, set[str]]:
    """By section, the fields in the records of real runs."""
    sections = {"run": "The `run` record", "round": "The `round` record", "point": "The `point` record",
                "resume": "The `resume` record", "end": "The `end` record"}  # fmt: skip
    found: dict[str, set[str]] = defaultdict(set)
    for record in records():
        found[sections[record["record"]]] |= record.keys()
        found[GUARDS] |= {_guard(name) for name in record.get("guards", ())}
        found["`plan` holds"] |= record.get("plan", {}).keys()
        if record["record"] == "point":
            found["Each entry of `flows`"] |= {field for flow in record["flows"] for field in flow}
    return found


def _guard(name: str) -> str:
    """`pages numa:0.pinned` is the guard `pages`, and `gpu:3` is `gpu:N`."""
    name = re.sub(r"^(page size|page cache|pages|route) .*", r"\1", name)
    return re.sub(r"^gpu:\d+$", "gpu:N", name)


def records() -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in (ROOT / "tests/golden/run-h200x1.jsonl").read_bytes().splitlines())
    for path in sorted((ROOT / "results").glob("*.jsonl.gz")):
        if path.stat().st_size <= LARGEST:
            yield from (msgspec.json.decode(line) for line in gzip.decompress(path.read_bytes()).splitlines())
