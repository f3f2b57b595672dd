"""Loads the machine files that `sim` runs: bundled ones by name, others by path."""

import pathlib
import tomllib

import msgspec

from linkscope.errors import UserError
from linkscope.machine.model_checks import check
from linkscope.machine.model_mistakes import Mistake, explain, line_of
from linkscope.machine.model_paths import PathLimit, limit_finder, limit_through_host, limits
from linkscope.machine.model_places import Places, places
from linkscope.machine.model_types import Model

__all__ = [
    "Model",
    "PathLimit",
    "Places",
    "bundled",
    "limit_finder",
    "limit_through_host",
    "limits",
    "load",
    "parse",
    "places",
]

_CURE = "docs/reference/machine-file.md says what one holds"


def load(name_or_path: str) -> Model:
    """A bundled machine by name, or a file by its path (with a slash or ending in .toml). Raises UserError."""
    path = pathlib.Path(name_or_path)
    if path.suffix != ".toml" and path.name == name_or_path:
        found = bundled()
        if name_or_path not in found:
            raise UserError(
                f"there is no machine {name_or_path!r}; bundled models: {', '.join(sorted(found))}, "
                "or give the path of a .toml file"
            )
        path = found[name_or_path]
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        cure = f"make one of it: `linkscope model {path} -o mine.toml`"
        raise UserError(f"{path}: this is a run file, but a machine file is needed; {cure}")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        cure = "check the path, or take one of `linkscope list machines`"
        raise UserError(f"{path}: there is no such machine file; {cure}") from None
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise UserError(f"{path}: cannot be read as a machine file: {reason}; name a .toml file") from None
    return parse(text, str(path))


def bundled() -> dict[str, pathlib.Path]:
    """The bundled machine files by name."""
    package = pathlib.Path(__file__).parents[1]
    installed = package / "_native" / "machines"  # in a wheel; in the source tree they are beside src/
    folder = installed if installed.is_dir() else package.parents[1] / "machines"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def parse(text: str, name: str) -> Model:
    """Parses the text of a machine file; `name` appears in messages. Raises UserError with line, key and cure."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise UserError(f"{name}: not TOML: {problem}; {_CURE}") from None
    if "machine" not in content:
        raise UserError(f"{name}: this is not a machine file: it has no table [machine]; {_CURE}")
    try:
        try:
            model = msgspec.convert(content, Model)
        except msgspec.ValidationError as problem:
            raise explain(problem) from None
        check(model)
    except Mistake as mistake:
        line = line_of(text, mistake.key)
        where = f"{name}:{line}" if line else name
        raise UserError(f"{where}: {mistake.key}: {mistake.what}; {mistake.cure}") from None
    return model
