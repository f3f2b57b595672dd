"""docs/reference/machine-file.md names every key of a machine file and no other; its example is a valid machine
file.
"""

import json
import pathlib
import re
import types
import typing
from typing import Any

import msgspec
import pytest

from linkscope.machine import model
from linkscope.machine.model_types import Model, Quantity

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "reference" / "machine-file.md").read_text()


def table_of(kind: Any) -> Any:
    """The struct of a key's type, also inside a list, a dict or an optional; otherwise the type itself."""
    parts = [part for part in typing.get_args(kind) if part is not types.NoneType]
    origin = typing.get_origin(kind)
    return table_of(parts[-1]) if origin in (list, dict, typing.Union, types.UnionType) else kind


def tables() -> dict[str, Any]:
    """Every table of a machine file by its header, and the constants."""
    found: dict[str, Any] = {"Constants": Quantity}
    for field in msgspec.structs.fields(Model):
        kind, name = table_of(field.type), field.encode_name
        if name == "noise":
            found |= {f"[noise.{level.encode_name}]": table_of(level.type) for level in msgspec.structs.fields(kind)}
        else:
            found[f"[[{name}]]" if typing.get_origin(field.type) is list else f"[{name}]"] = kind
    return found


def sections() -> dict[str, dict[str, tuple[str, str]]]:
    """By header: every key with its type and its default. A row may describe several keys, and a section several
    tables, whose keys are written `table.key` or belong to each of them.
    """
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for part in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        title, _, text = part.partition("\n")
        headers = [header.strip("`") for header in title.split(", ")]
        found |= {header: {} for header in headers}
        for names, unit, default in re.findall(r"^\| (`[\w.`, ]+`) \| (.+?) \| (.+?) \| .+ \|$", text, flags=re.M):
            for name in re.findall(r"`([\w.]+)`", names):
                table, _, key = name.rpartition(".")
                for header in headers:
                    if table in ("", header.strip("[]")):
                        found[header][key] = (unit, default)
    return found


def test_cards_disks_and_switches_have_the_two_keys_that_the_page_names() -> None:
    for header in ("[[nic]]", "[[disk]]", "[[switch]]"):
        fields = msgspec.structs.fields(tables()[header])
        assert [(field.encode_name, field.required) for field in fields] == [("places", True), ("title", False)]


@pytest.mark.parametrize("header", [one for one in tables() if one not in ("[[nic]]", "[[disk]]", "[[switch]]")])
def test_the_page_has_every_key_with_its_default(header: str) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(tables()[header])}
    rows = sections()[header]
    assert set(rows) == set(fields)
    for name, (unit, default) in rows.items():
        if default != "as for a constant":
            assert (default == "required") == fields[name].required, name
        assert ("**C**" in unit) == (table_of(fields[name].type) is Quantity), name
        if default.startswith("`"):
            assert default.strip("`") == written(fields[name]), name


def written(field: msgspec.structs.FieldInfo) -> str:
    """A key's default in the form of the page."""
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def test_every_section_describes_a_table_of_the_file() -> None:
    assert set(sections()) - set(tables()) == {"Units", "Places", "Example"}


def sections_text(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_provenance_is_described() -> None:
    origin = next(field for field in msgspec.structs.fields(Quantity) if field.encode_name == "from")
    for choice in typing.get_args(origin.type):
        assert f"`{choice}`" in sections_text("Constants")


def test_the_example_is_a_valid_machine_file() -> None:
    example = PAGE.partition("```toml\n")[2].partition("```")[0]
    machine = model.parse(example, "docs/reference/machine-file.md")
    assert model.places(machine).gpus == ("gpu:0",)
    assert model.limits(machine)["numa:0", "gpu:0"].gbps == 31.5
