"""The YAML file that names figures of run files (`linkscope report --plots`), as the microbench slides ask (MB-5)."""

from pathlib import Path
from typing import Literal

import msgspec

from linkscope.errors import UserError

SPECS = Path(__file__).parent / "specifications"


class Figure(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One figure; sizes in mm.

    `points`: globs on ids of points. `x`: bytes, a field or a parameter. `curves`: fields or parameters that tell
    curves apart; without it, those in which the points differ. `defaults`: values of parameters that an id leaves out.
    `optional`: the figure is left out of runs without its points.
    """

    name: str
    points: list[str]
    title: str = ""
    x: str = "bytes"
    y: Literal["gbps", "total_gbps", "seconds", "of_peak"] = "gbps"
    curves: list[str] | None = None
    defaults: dict[str, str] = {}
    optional: bool = False
    x_scale: Literal["log2", "log", "linear"] | None = None
    y_scale: Literal["log", "linear"] = "linear"
    x_label: str = ""
    y_label: str = ""
    peak: bool = False
    inherited: bool = False
    width_mm: float = 120
    height_mm: float = 80


class Specification(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    figures: list[Figure]
    formats: tuple[Literal["svg", "png", "pdf"], ...] = ("svg",)
    font_size: float = 8


def ready() -> list[str]:
    """The names of the specifications that come with linkscope: the figures of the five papers."""
    return sorted(path.stem for path in SPECS.glob("*.yaml"))


def read_specification(text: str) -> Specification:
    """Reads a file, or a ready specification by its name. Raises UserError with the place of the mistake."""
    try:
        import yaml
    except ModuleNotFoundError:
        raise UserError("--plots needs PyYAML and matplotlib: pip install 'linkscope[plots]'") from None
    path = SPECS / f"{text}.yaml" if text in ready() else Path(text)
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as problem:
        raise UserError(f"--plots {text}: {problem.strerror}; ready ones are {', '.join(ready())}") from None
    except yaml.YAMLError as problem:
        raise UserError(f"{path}: {' '.join(str(problem).split())}") from None
    try:
        specification = msgspec.convert(content, Specification)
    except msgspec.ValidationError as problem:
        raise UserError(f"{path}: {problem}") from None
    names = [figure.name for figure in specification.figures]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path}: two figures are called {name}")
        if not name or name != Path(name).name or name.startswith("."):
            raise UserError(f"{path}: '{name}' is not the name of a file")
    return specification
