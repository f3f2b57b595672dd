"""The schema of a machine file: what the types of its tables say about each key besides its type and default.

The checks and the reference page (tools/machine_file_page.py) read it.
"""

import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

From = Literal["published", "derived", "fitted", "measured", "assumed"]
FRACTIONS = ("efficiency", "overlap")  # the last words of keys that hold a fraction


@dataclass(frozen=True)
class Key:
    """One key. On the page, keys without a description share the row of the key above them.

    `kind` and `default`: texts of the page, where type and default of the field do not give them. `row`: the key whose
    row this one shares. `needs`: the key without which this one is an error, and that needs this one. `whole`: a whole
    number.
    """

    meaning: str = ""
    kind: str = ""
    default: str = ""
    row: str = ""
    needs: str = ""
    whole: bool = False


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a machine file. Unknown keys are errors."""


class Quantity(Table, frozen=True):
    """A constant and its provenance."""

    v: Annotated[float, Key("the value")]
    origin: Annotated[
        From,
        Key(
            "`published` (datasheet, standard, paper), `measured`, `derived` (from other values), `fitted` (to "
            "the results in `fitted_to`) or `assumed`"
        ),
    ] = msgspec.field(name="from")
    ref: Annotated[str, Key("the source; required for `published` and `measured`")] = ""
    fitted_to: Annotated[list[str], Key("required for `fitted`, refused elsewhere")] = msgspec.field(
        default_factory=list
    )
    why: Annotated[str, Key("arithmetic or reason; required for `derived` and `assumed`")] = ""
    low: Annotated[float | None, Key("the least value that `ref` or `why` allows; with `high`")] = None
    high: Annotated[float | None, Key("the largest value that `ref` or `why` allows; with `low`")] = None

    def source(self) -> str:
        """'published: CS-24'."""
        return f"{self.origin}: {self.ref or self.why or ', '.join(self.fitted_to)}"


def keys(table: type[msgspec.Struct]) -> dict[str, Key]:
    """What the schema says about each key of a table."""
    found = {field.encode_name: typing.get_args(field.type)[1:] for field in msgspec.structs.fields(table)}
    return {name: next((one for one in said if isinstance(one, Key)), Key()) for name, said in found.items()}


def bare(kind: Any) -> Any:
    """A type without its description and None."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return bare(parts[0])
    if origin in (typing.Union, types.UnionType):
        return bare(next(part for part in parts if part is not types.NoneType))
    return kind


def content(kind: Any) -> Any:
    """The bare type, or that of each value of a list."""
    found = bare(kind)
    return content(typing.get_args(found)[0]) if typing.get_origin(found) is list else found
