"""Resolves `--machine`: this machine, a model, or a saved machine."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linkscope.errors import UserError, suggestion
from linkscope.machine import model as models
from linkscope.machine.facts import Machine
from linkscope.machine.probe import probe
from linkscope.machine.saved import load_saved


@dataclass(frozen=True)
class Probed:
    """This machine, which can be measured."""

    machine: Machine


@dataclass(frozen=True)
class Saved:
    """A machine that was detected elsewhere or earlier. It can be shown but not measured."""

    machine: Machine
    path: Path


@dataclass(frozen=True)
class Modelled:
    """A machine file, which `sim` can run."""

    model: models.Model


Choice = Probed | Saved | Modelled


def resolve(name_or_path: str, driver: Mapping[str, Any] | None = None) -> Choice:
    """The machine for 'auto', the name of a bundled machine, or a .toml or .json file. Raises UserError that lists the
    possibilities."""
    if name_or_path == "auto":
        return Probed(probe(driver))
    if name_or_path.endswith(".json"):
        return Saved(load_saved(name_or_path), Path(name_or_path))
    if name_or_path.endswith(".toml") or "/" in name_or_path or name_or_path in models.bundled():
        return Modelled(models.load(name_or_path))
    if Path(name_or_path).is_file():  # `load` says what the file is instead
        return Modelled(models.load(os.path.join(".", name_or_path)))
    names = sorted(models.bundled())
    meant = suggestion(name_or_path, names)
    raise UserError(
        f"there is no machine {name_or_path!r}{meant}; there are auto (this one), {', '.join(names)}, "
        "a model's .toml file and a saved probe's .json file",
    )


def model_named(option: str, name: str, cure: str) -> models.Model:
    """The model that an option names. Raises UserError, with the cure, for this machine and for a saved one."""
    choice = resolve(name) if name != "auto" else None
    if not isinstance(choice, Modelled):
        raise UserError(f"{option} {name}: {cure}")
    return choice.model


def bundled_for(gpus: Mapping[str, str]) -> models.Model | None:
    """The first bundled model that has these places and whose GPUs have these names; None if there is none.

    `gpus`: name by place; '' for a GPU without a known name.
    """
    if not any(gpus.values()):
        return None
    for name in sorted(models.bundled()):
        model = models.load(name)
        products = [kind.title.removeprefix("NVIDIA ").split()[0] for kind in model.gpu]
        known = all(any(product in gpu for product in products) for gpu in gpus.values() if gpu)
        if known and gpus.keys() <= set(models.places(model).gpus):
            return model
    return None
