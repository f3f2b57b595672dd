"""The fake NVML as nvidia-ml-py reads it: it shows the fake driver's GPUs and obeys its settings."""

import json
import subprocess
import sys

import pytest

from fake_driver import environment, needs_fake

pytestmark = needs_fake

READ = """
import json
from pynvml import *
def tried(call, *arguments):
    try:
        return call(*arguments)
    except NVMLError as error:
        return str(error)
def gpu(i):
    h = nvmlDeviceGetHandleByIndex(i)
    field = lambda *what: (lambda v: [v.nvmlReturn, v.value.uiVal])(nvmlDeviceGetFieldValues(h, [what])[0])
    return {
        "name": tried(nvmlDeviceGetName, h), "uuid": tried(nvmlDeviceGetUUID, h),
        "bus": tried(lambda: nvmlDeviceGetPciInfo(h).busId), "memory": tried(lambda: nvmlDeviceGetMemoryInfo(h).total),
        "pcie": [tried(nvmlDeviceGetCurrPcieLinkGeneration, h), tried(nvmlDeviceGetCurrPcieLinkWidth, h)],
        "reasons": tried(nvmlDeviceGetCurrentClocksEventReasons, h), "mode": tried(nvmlDeviceGetComputeMode, h),
        "numa": tried(nvmlDeviceGetNumaNodeId, h), "serial": tried(nvmlDeviceGetSerial, h),
        "link": tried(lambda: field(NVML_FI_DEV_NVLINK_GET_SPEED, 0)),
        "remote": [tried(lambda: nvmlDeviceGetNvLinkRemotePciInfo(h, i).busId) for i in (0, 1, 17)],
    }
try:
    nvmlInit()
    print(json.dumps({"driver": nvmlSystemGetDriverVersion(), "cuda": nvmlSystemGetCudaDriverVersion_v2(),
                      "gpus": [gpu(i) for i in range(nvmlDeviceGetCount())]}))
except NVMLError as error:
    print(json.dumps(str(error)))
"""


def read(library="driver", **settings):
    command = [sys.executable, "-c", READ]
    done = subprocess.run(command, env=environment(library, **settings), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_gpus_are_those_of_the_fake_driver_in_bus_order():
    found = read(CUDA_GPUS=4)
    assert [gpu["bus"] for gpu in found["gpus"]] == [f"00000000:{bus}:00.0" for bus in ("1B", "43", "9B", "DB")]
    assert [gpu["uuid"][-2:] for gpu in found["gpus"]] == ["1b", "43", "9b", "db"]
    assert found["cuda"] == 13000 and found["driver"].startswith("580.")


def test_facts_that_an_h200_lacks_are_not_supported_and_unimplemented_ones_not_found():
    gpu = read()["gpus"][0]
    assert gpu["numa"] == "Not Supported" and gpu["serial"] == "Function Not Found"


def test_settings_change_the_reported_values():
    gpu = read(NVML_THROTTLE="0x8", NVML_PCIE="4x8", CUDA_MEMORY=1 << 30, CUDA_MODE="prohibited")["gpus"][0]
    assert (gpu["reasons"], gpu["pcie"], gpu["memory"], gpu["mode"]) == (8, [4, 8], 1 << 30, 2)


def test_a_mode_can_be_set_for_one_gpu():
    assert [gpu["mode"] for gpu in read(CUDA_MODE="exclusive:0")["gpus"]] == [0, 3]  # ordinal 0 is second on the bus


@pytest.mark.parametrize(
    ("links", "remotes"),
    [
        ("switch", ["00000000:05:00.0", "00000000:06:00.0", "00000000:06:00.0"]),
        ("direct", ["00000000:43:00.0", "00000000:9B:00.0", "00000000:DB:00.0"]),
        ("none", ["Not Supported"] * 3),
    ],
)
def test_links_lead_to_the_configured_devices(links, remotes):
    gpu = read(CUDA_GPUS=4, NVML_LINKS=links)["gpus"][0]
    assert gpu["remote"] == remotes
    assert gpu["link"][0] == (3 if links == "none" else 0)


def test_configured_faults_are_reported():
    assert "mismatch" in read(NVML_ERROR=18)
    assert read(NVML_NOT_SUPPORTED="nvmlDeviceGetName,field:164")["gpus"][0]["name"] == "Not Supported"
    assert read(NVML_NOT_SUPPORTED="field:164")["gpus"][0]["link"][0] == 3
    assert read(NVML_NOT_SUPPORTED="nvmlDeviceGetUUID:13")["gpus"][0]["uuid"] == "Function Not Found"
    lost = read(NVML_LOST=1)["gpus"]
    assert lost[0]["name"] == "Fake H200" and lost[1]["name"] == "GPU is lost"


def test_a_library_that_does_not_load_means_no_driver():
    assert "Shared Library Not Found" in read("broken")
