"""Creates .venv with the packages that pyproject.toml requires. Needs python3 with venv or pip.

Usage: python3 tools/bootstrap.py GROUP...   (dependency groups, on top of dependencies and build requirements)
Returns within milliseconds when .venv already holds them.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "linkscope-requirements"


def requirements(groups: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    for group in groups:
        wanted = wanted + project["dependency-groups"][group]
    return sorted(set(wanted))


def made_by_this_python() -> bool:
    """Whether .venv holds a working interpreter of the version that runs this file."""
    if not PYTHON.exists():
        return False
    found = subprocess.run([PYTHON, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
    return found.returncode == 0 and found.stdout.strip() == sys.version


def make_environment() -> list[str]:
    """Creates .venv; returns the command that installs into it. Debian without python3-venv lacks only ensurepip."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # A linkscope command may be running from .venv, so a usable environment is completed in place and never emptied.
    clear = [] if made_by_this_python() else ["--clear"]
    if subprocess.run([sys.executable, "-m", "venv", *clear, VENV], **quiet).returncode == 0:
        return [str(PYTHON), "-m", "pip"]
    if subprocess.run([sys.executable, "-m", "venv", *clear, "--without-pip", VENV], **quiet).returncode == 0:
        return [sys.executable, "-m", "pip", "--python", str(PYTHON)]
    sys.exit("python3 can make no virtual environment here: install Python's venv module (Debian: python3-venv) or pip")


def installed() -> set[str]:
    if not STAMP.is_file() or not PYTHON.exists():
        return set()
    return set(STAMP.read_text().splitlines())


def use_tree() -> None:
    """Puts src/ on the environment's path, and a `linkscope` command beside its Python."""
    site = subprocess.run(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    pathlib.Path(site, "linkscope-tree.pth").write_text(f"{ROOT / 'src'}\n")
    command = VENV / "bin" / "linkscope"
    command.write_text(f"#!{PYTHON}\nimport sys\nfrom linkscope.cli.main import main\nsys.exit(main())\n")
    command.chmod(0o755)


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (whatever `python3` is here runs this file)
        sys.exit(f"linkscope needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    wanted = requirements(sys.argv[1:])
    # The interpreter is part of the mark: another Python needs a new environment.
    mark = hashlib.sha256(f"{sys.version}{ROOT}".encode()).hexdigest()
    have = installed()
    if mark in have and have.issuperset(wanted):
        return
    if mark not in have and VENV.is_symlink():  # its target belongs to another tree and would be emptied
        sys.exit(f".venv is a link to {VENV.resolve()}, which was not made for this folder: remove the link (rm .venv)")
    print("linkscope: preparing .venv (once; downloads about 150 MB)", flush=True)
    if mark in have:
        own = (VENV / "bin" / "pip").exists()
        pip = [str(PYTHON), "-m", "pip"] if own else [sys.executable, "-m", "pip", "--python", str(PYTHON)]
        wanted = sorted(set(wanted) | (have - {mark}))
    else:
        pip = make_environment()
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    # Python compiles the few modules that are imported; pip would compile all.
    if subprocess.run([*pip, "install", "--quiet", "--no-compile", *wanted], env=environment).returncode != 0:
        sys.exit(
            "linkscope: the packages above could not be installed; "
            "is there a network, or a wheel folder (PIP_FIND_LINKS)?"
        )
    use_tree()
    STAMP.write_text("\n".join([mark, *wanted]) + "\n")


if __name__ == "__main__":
    main()
