"""Where libraries of other software may be: as the user, a Python package or the loader names them."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata


def candidates(
    files: Sequence[str],
    choice: str,
    packages: Iterable[str],
    environment: Mapping[str, str],
    more: Iterable[tuple[str, str]] = (),
) -> list[dict[str, str]]:
    """Returns the libraries that the worker tries, in order: `name`, and how each was `found`.

    If the variable `choice` names a library, it is the only one. Otherwise the first of `files` comes first as these
    Python packages have it, then `more` of (name, found), and at last each of `files` by its name alone.
    """
    if chosen := environment.get(choice):
        return [{"name": chosen, "found": f"{choice} names it"}]
    brought = [(path, f"the Python package {name} has it") for name in packages for path in _paths(name, files[0])]
    by_name = [(file, "the loader knows its name") for file in files]
    return [{"name": name, "found": found} for name, found in (*brought, *more, *by_name)]


def _paths(package: str, file: str) -> list[str]:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return [str(one.locate()) for one in metadata.files(package) or [] if one.name == file]
    return []
