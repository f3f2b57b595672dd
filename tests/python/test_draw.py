"""The drawing of a probed machine, of one that hides much, and of a machine file."""

import pytest

import machine_fakes as fakes
from linkscope.machine import model as models
from linkscope.machine.draw import draw
from linkscope.machine.nvml_facts import NvmlReading, read_nvml
from linkscope.machine.probe import probe
from linkscope.machine.sysfs import Files

H200 = """\
2x-nvidia-h200, driver 580.159.04, CUDA 13.0
  Intel(R) Xeon(R) Platinum 8480C @ 2.00GHz, 1 socket, 32 cores, 64 threads, 1 x 105 MiB last-level cache, 503 GiB

numa:0  CPUs 0-63, 503 GiB
NUMA node hidden
├─ gpu:0  NVIDIA H200, 140 GiB, 132 SMs, 60 MiB L2, 3 copy engines, 0000:1b:00.0
│     PCIe 5.0 x16: 58.45 GB/s in, 57.61 GB/s out
└─ gpu:1  NVIDIA H200, 140 GiB, 132 SMs, 60 MiB L2, 3 copy engines, 0000:43:00.0
      PCIe 5.0 x16: 58.45 GB/s in, 57.61 GB/s out

GPU to GPU, GB/s at most, from row to column:
              gpu:0       gpu:1
gpu:0    2458 local  478.1 NV18
gpu:1    478.1 NV18  2458 local
  NVn: over n NVLinks; local: read and written in one memory

hidden here:
  numa: a virtual machine with one node: the host's nodes are not visible
  gpu:0.numa, gpu:1.numa: the PCI bus shows no NUMA node (numa_node is -1 or missing)
  gpu:0.pcie.max_payload_bytes, gpu:1.pcie.max_payload_bytes: a virtual machine does not see the host's"""


def replay(texts, driver=None, nvml=None):
    return probe(driver, files=Files.replay(texts, fakes.lists_of(texts)), nvml=nvml or NvmlReading(why_not="no NVML"))


def test_two_h200_in_a_virtual_machine_are_drawn(monkeypatch):
    fakes.play(monkeypatch, fakes.FakeNvml(gpus=2))
    assert draw(replay(fakes.virtual_machine(), fakes.driver(2), read_nvml())) == H200


def test_gpus_are_drawn_below_their_nodes():
    lines = draw(replay(fakes.two_nodes(numa=(0, 0, 1, 1)), fakes.driver())).splitlines()
    at = {line[:6]: number for number, line in enumerate(lines) if line.startswith("numa:")}
    gpus = [number for number, line in enumerate(lines) if "─ gpu:" in line]
    assert at["numa:0"] < gpus[0] < gpus[1] < at["numa:1"] < gpus[2] < gpus[3]
    assert "64 pages of 2 MiB, distances 10 21" in lines[at["numa:0"]]
    assert any("host link hidden" in line for line in lines)


@pytest.mark.parametrize("make", [fakes.gvisor, fakes.power9, dict])
def test_hidden_facts_are_listed(make):
    assert "hidden here:" in draw(replay(make()))


def test_a_drawing_of_a_machine_file_is_marked_as_modelled():
    text = draw(models.load("ac922"))
    assert text.startswith("MODELLED ac922") and "nvlink x3: 75 GB/s in, 75 GB/s out" in text
    assert "64 nvlink x3+smp" in text and "450 local" in text


@pytest.mark.parametrize("name", sorted(models.bundled()))
def test_every_bundled_machine_can_be_drawn(name):
    model = models.load(name)
    text = draw(model)
    assert all(place in text for place in (*models.places(model).numa, *models.places(model).gpus))
