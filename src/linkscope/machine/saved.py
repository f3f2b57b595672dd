"""Saved machines: all that detection read, so that any computer can derive the same machine later."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from linkscope.errors import UserError
from linkscope.machine.facts import Machine
from linkscope.machine.nvml_facts import NvmlReading, read_nvml
from linkscope.machine.probe import probe
from linkscope.machine.sysfs import Files

_FORMAT = "linkscope probe"
_SCHEMA = 1


class Reading(msgspec.Struct, frozen=True):
    """Everything that was read: kernel files, NVML, the worker's answer about the CUDA driver."""

    texts: dict[str, str]
    lists: dict[str, list[str]]
    nvml: NvmlReading
    driver: dict[str, Any] | None

    def machine(self) -> Machine:
        """The machine that this reading shows."""
        return probe(self.driver, files=Files.replay(self.texts, self.lists), nvml=self.nvml)


class SavedProbe(msgspec.Struct, frozen=True, kw_only=True):
    """The file. `machine` is for readers without linkscope; linkscope uses the reading."""

    format: str
    schema: int
    reading: Reading
    machine: dict[str, Any]


def read_machine(driver: Mapping[str, Any] | None = None) -> Reading:
    """Detects this machine and keeps all that was read."""
    files, nvml = Files(), read_nvml()
    probe(driver, files=files, nvml=nvml)
    record = files.record()
    return msgspec.convert(
        {**record, "nvml": msgspec.to_builtins(nvml), "driver": None if driver is None else dict(driver)}, Reading
    )


def saved_text(reading: Reading) -> str:
    """The content of the file of a saved machine, JSON."""
    saved = SavedProbe(format=_FORMAT, schema=_SCHEMA, reading=reading, machine=reading.machine().to_json())
    return json.dumps(msgspec.to_builtins(saved), indent=1, sort_keys=True) + "\n"


def load_saved(path: str | Path) -> Machine:
    """The machine of a saved file. Raises UserError for anything else."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; `linkscope machine --save {path}` writes one") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read as a saved probe: {error.strerror}") from None
    try:
        saved = msgspec.json.decode(content, type=SavedProbe)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: this is JSON, but not a saved probe ({error}); {_CURE}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UserError(f"{path}: this is not JSON, so not a saved probe; {_CURE}") from None
    if saved.format != _FORMAT:
        raise UserError(f"{path}: this is a {saved.format!r} file, not a saved probe; {_CURE}")
    if saved.schema != _SCHEMA:
        raise UserError(f"{path}: a saved probe of schema {saved.schema}, this linkscope reads {_SCHEMA}; {_CURE}")
    try:
        return saved.reading.machine()
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: what the driver said is damaged in this probe ({error!r}); {_CURE}") from None


_CURE = "write one with `linkscope machine --save FILE` on the machine that you mean"
