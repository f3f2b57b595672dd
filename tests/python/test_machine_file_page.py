"""The tables of docs/reference/machine-file.md come from the types of a machine file; its example is a valid one."""

import pathlib
import re
import typing
from typing import Annotated

import machine_file_page as tool
import msgspec
import pytest

from linkscope.machine import model
from linkscope.machine.model_schema import Key, Quantity, Table, content, keys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = tool.PAGE.read_text()


def test_the_tables_of_the_page_are_those_of_the_types() -> None:
    assert tool.page(PAGE) == PAGE, "run .venv/bin/python tools/machine_file_page.py"


def test_disks_and_switches_have_the_two_keys_that_the_page_names() -> None:
    for header in ("[[disk]]", "[[switch]]"):
        fields = msgspec.structs.fields(tool.tables()[header])
        assert [(field.encode_name, field.required) for field in fields] == [("places", True), ("title", False)]


@pytest.mark.parametrize("header", [one for one in tool.tables() if one not in ("[[disk]]", "[[switch]]")])
def test_every_key_is_in_a_row_of_its_section(header: str) -> None:
    table = tool.tables()[header]
    (section,) = [part for part in re.split(r"^## ", PAGE, flags=re.M) if header in part.partition("\n")[0]]
    names = [name for row in re.findall(r"^\| (`[\w.`, ]+`) \|.+\|$", section, flags=re.M) for name in row.split(", ")]
    prefix = "" if f"`{next(iter(keys(table)))}`" in names else f"{header.strip('[]')}."
    assert {f"`{prefix}{name}`" for name in keys(table)} <= set(names)


def test_every_section_describes_a_table_of_the_file() -> None:
    titles = re.findall(r"^## (.+)$", PAGE, flags=re.M)
    headers = {header.strip("`") for title in titles for header in title.split(", ")}
    assert headers - set(tool.tables()) == {"Units", "Places", "Example"}


def test_a_row_holds_the_keys_that_share_its_meaning() -> None:
    class Sample(Table, frozen=True):
        first_us: Annotated[Quantity, Key("time")]
        second_us: Quantity
        share: Annotated[float | None, Key("part", kind="fraction", default="all")] = None
        third_us: Annotated[Quantity | None, Key(row="first_us")] = None
        slots: Annotated[Quantity | None, Key("chunks", whole=True, needs="share")] = None

    assert tool.rows(Sample, "sample.") == [
        "| `sample.first_us`, `sample.second_us`, `sample.third_us` | **C** | required | time |",
        "| `sample.share` | fraction | all | part |",
        "| `sample.slots` | **C** count | required with `share` | chunks |",
    ]


def test_the_simulation_reads_every_key_except_those_for_readers() -> None:
    reader = "".join(file.read_text() for file in (ROOT / "core" / "platform" / "sim").glob("*.[hc]pp"))
    unread = {name for table in tool.tables().values() for name in keys(table) if f'"{name}"' not in reader}
    origins, errors = {"ref", "why", "fitted_to", "low", "high"}, {"points", "median", "ninety", "held_out"}
    assert unread == {"title", "notes", "measured", "lanes"} | origins | errors


def test_every_provenance_is_described() -> None:
    origin = next(field for field in msgspec.structs.fields(Quantity) if field.encode_name == "from")
    for choice in typing.get_args(content(origin.type)):
        assert f"`{choice}`" in keys(Quantity)["from"].meaning


def test_the_example_is_a_valid_machine_file() -> None:
    example = PAGE.partition("```toml\n")[2].partition("```")[0]
    machine = model.parse(example, "docs/reference/machine-file.md")
    assert model.places(machine).gpus == ("gpu:0",)
    assert model.limits(machine)["numa:0", "gpu:0"].gbps == 31.5
