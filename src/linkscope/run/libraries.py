"""Which libraries that linkscope loads at run time this machine has, for the doctor."""

import json
import subprocess
import sys

from linkscope.run import launcher, nccl, nixl, ucx

_BY_LOADER = {
    "cuBLAS": ("libcublas.so.13", "libcublas.so.12"),
    "cuDNN": ("libcudnn.so.9",),
}
# Loading a library runs its code, so a child does it.
_TRY = """
import ctypes, json, sys
answers = {}
for name, files in json.loads(sys.argv[1]).items():
    answers[name] = "none of its files can be loaded"
    for file in files:
        try:
            ctypes.CDLL(file)
        except OSError:
            continue
        answers[name] = ""
        break
print(json.dumps(answers))
"""


def why_not(driver_version: int = 0) -> dict[str, str]:
    """By name of a library: why it cannot be loaded; "" if it can. `driver_version` as in linkscope.run.nccl."""
    files = {
        "NCCL": [library["name"] for library in nccl.libraries(driver_version)],
        "MPI": [library.name for library in launcher.libraries()],
        "UCX": [library["name"] for library in ucx.libraries()],
        "NIXL": [library["name"] for library in nixl.libraries()],
        **_BY_LOADER,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY, json.dumps(files)], capture_output=True, text=True, timeout=30, check=True
        )
        answers: dict[str, str] = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError):
        return dict.fromkeys(files, "loading it ended the program that tried")
    return answers
