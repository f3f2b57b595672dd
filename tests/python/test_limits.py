"""Peaks of paths against arithmetic written here, and never below a rate measured on such machines."""

import re

import pytest

import machine_fakes as fakes
from linkscope.errors import UserError
from linkscope.machine import model as models
from linkscope.machine.facts import Machine
from linkscope.machine.limits import Transfer, limit
from linkscope.machine.model_types import Model
from linkscope.machine.nvml_facts import NvmlReading, read_nvml
from linkscope.machine.probe import probe
from linkscope.machine.sysfs import Files


@pytest.fixture
def h200(monkeypatch):
    def make(texts=None, driver=None, **settings) -> Machine:
        texts = fakes.virtual_machine() if texts is None else texts
        fakes.play(monkeypatch, fakes.FakeNvml(**settings))
        return probe(driver or fakes.driver(), files=Files.replay(texts, fakes.lists_of(texts)), nvml=read_nvml())

    return make


def into(machine, **changes):
    return limit(machine, Transfer("numa:0", "gpu:0", "pinned", "device", "ce", **changes))


def out(machine, **changes):
    return limit(machine, Transfer("gpu:0", "numa:0", "device", "pinned", "ce", **changes))


def peer(machine, **changes):
    return limit(machine, Transfer("gpu:0", "gpu:1", "device", "device", "ce", **changes))


def test_pcie_5_assumes_a_payload_of_256_bytes(h200):
    found = into(h200())
    assert found.gbps == pytest.approx(32 * 16 / 8 * 128 / 130 * 256 / 276, abs=0.01)  # 58.45
    assert "PCIe 5.0 x16" in found.source and "63.02" in found.source and "256 B (assumed" in found.source
    assert out(h200()).gbps == pytest.approx(63.015 * 256 / 280, abs=0.01)  # 57.61


@pytest.mark.parametrize(
    ("generation", "raw"),
    [(1, 4.0), (2, 8.0), (3, 15.754), (4, 31.508), (5, 63.015), (6, 118.0)],
)
def test_pcie_generations_have_their_raw_rates(generation, raw, h200):
    machine = h200(answers={f"nvmlDeviceGet{which}PcieLinkGeneration": generation for which in ("Curr", "Max")})
    header = 12 if generation == 6 else 20
    assert into(machine).gbps == pytest.approx(raw * 256 / (256 + header), abs=0.01)


def test_the_peak_is_that_of_a_healthy_link(h200):
    machine = h200(answers={"nvmlDeviceGetCurrPcieLinkGeneration": 1, "nvmlDeviceGetCurrPcieLinkWidth": 8})
    assert into(machine).gbps == into(h200()).gbps and "x16, now x8" in into(machine).source


def test_a_visible_payload_size_is_used(h200, tmp_path):
    space = bytearray(256)
    space[0x34], space[0x40], space[0x48] = 0x40, 0x10, 0x40  # 512 B
    texts = {**fakes.two_nodes(), "/sys/bus/pci/devices/0000:1b:00.0/config": bytes(space).hex()}
    found = into(h200(texts))
    assert found.gbps == pytest.approx(63.015 * 512 / 532, abs=0.01) and "assumed" not in found.source


def test_a_hidden_link_has_no_peak(h200):
    names = ("nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetMaxPcieLinkGeneration")
    machine = h200(refuse=dict.fromkeys(names, fakes.NOT_SUPPORTED))
    assert into(machine).gbps is None and "not visible" in into(machine).source


def test_nvlink_has_the_sum_of_its_links(h200):
    found = peer(h200())
    assert found.gbps == pytest.approx(18 * 26.562, abs=0.01)  # 478.1
    assert "NVLink 4.0, 18 links x 26.56 GB/s" in found.source and "through NVSwitch" in found.source
    assert peer(h200(remote="gpu")).gbps == pytest.approx(6 * 26.562, abs=0.01)


def test_copies_without_peer_access_have_the_peak_of_the_host_link(h200):
    machine = h200()
    assert peer(machine, peer=False).gbps == out(machine).gbps and "staged" in peer(machine, peer=False).source
    assert peer(h200(driver=fakes.driver(peer=False))).gbps == out(machine).gbps


def test_managed_pages_use_nvlink_without_peer_access(h200):
    def pages(machine):
        return limit(machine, Transfer("gpu:0", "gpu:1", "managed", "managed", "prefetch", peer=False))

    assert pages(h200()) == peer(h200())
    assert (
        "staged" in pages(h200(links=0, answers={"nvmlDeviceGetP2PStatus": 5})).source
    )  # over PCIe through the host, as any copy
    hidden = pages(h200(remote="hidden", refuse={"nvmlDeviceGetP2PStatus": fakes.NOT_SUPPORTED}))
    assert hidden.gbps is None and "not visible" in hidden.source  # the destinations of the links are unknown
    assert pages(h200(driver=fakes.driver(peer=False))).gbps == out(h200()).gbps


def test_with_unknown_peer_access_the_peak_is_that_of_the_faster_path(h200):
    """A peak must never be below a rate that can be measured."""
    assert peer(h200(driver={**fakes.driver(), "peers": []})).gbps == peer(h200()).gbps


def test_between_two_gpus_the_slower_link_decides_in_its_direction(h200):
    """gpu:0 has PCIe 4.0: packets out of it are smaller than packets into it."""
    names = [f"nvmlDeviceGet{which}PcieLinkGeneration" for which in ("Curr", "Max")]
    machine = h200(answers=dict.fromkeys(names, lambda handle: 4 if handle == 0 else 5))
    assert peer(machine, peer=False).gbps == pytest.approx(31.508 * 256 / 280, abs=0.01)
    back = limit(machine, Transfer("gpu:1", "gpu:0", "device", "device", "ce", peer=False))
    assert back.gbps == pytest.approx(31.508 * 256 / 276, abs=0.01)


def test_peers_over_pcie_have_the_peak_of_pcie(h200):
    machine = h200(links=0, answers={"nvmlDeviceGetP2PStatus": 5})
    assert peer(machine).gbps == out(machine).gbps and "directly over PCIe" in peer(machine).source


def test_links_of_unknown_destination_give_no_peak(h200):
    machine = h200(remote="hidden", refuse={"nvmlDeviceGetP2PStatus": fakes.NOT_SUPPORTED})
    assert peer(machine).gbps is None and "not visible" in peer(machine).source


def test_copies_within_a_device_have_half_the_memory_rate(h200):
    found = limit(h200(), Transfer("gpu:0", "gpu:0", "device", "device", "ce"))
    assert found.gbps == pytest.approx(3201e6 * 2 * 6144 / 8 / 2 / 1e9, abs=0.01)  # 2458
    both = limit(h200(), Transfer("gpu:0", "gpu:0", "device", "device", "ce", bidirectional=True))
    assert both.gbps == pytest.approx(found.gbps / 2, abs=0.01) and "both flows" in both.source
    driver = fakes.driver()
    for gpu in driver["gpus"]:
        gpu["attributes"] = {}
    refuse = dict.fromkeys(("nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetMemoryBusWidth"), fakes.NOT_SUPPORTED)
    assert limit(h200(driver=driver, refuse=refuse), Transfer("gpu:0", "gpu:0", "device", "device", "ce")).gbps is None


def test_bidirectional_traffic_has_the_same_peak_per_direction(h200):
    assert into(h200(), bidirectional=True) == into(h200())


def test_host_memory_has_no_known_peak(h200):
    found = limit(h200(), Transfer("numa:0", "numa:0", "pageable", "pinned", "cpu"))
    assert found.gbps is None and found.source == "DRAM bandwidth is not visible here"


def test_nvlink_to_the_cpu_has_its_peak(h200):
    machine = h200(remote="npu", links=3, answers={"nvmlDeviceGetNvLinkVersion": 2})
    assert into(machine).gbps == pytest.approx(3 * 26.562, abs=0.01) and "to the CPU" in into(machine).source
    texts = fakes.virtual_machine()
    reading = read_nvml()
    gpus = tuple(type(gpu)(pci=gpu.pci, c2c_links=10, c2c_mbps=45000.0) for gpu in reading.gpus)
    grace = probe(None, files=Files.replay(texts, fakes.lists_of(texts)), nvml=NvmlReading(gpus=gpus))
    assert into(grace).gbps == 450 and "chip-to-chip" in into(grace).source


def test_a_link_to_the_cpu_that_is_down_has_no_peak(h200):
    states = {"nvmlDeviceGetNvLinkState": lambda handle, link: (1, 0, 1)[link] if link < 3 else fakes.fail(2)}
    found = into(h200(remote="npu", links=3, answers=states))
    assert found.gbps == pytest.approx(2 * 26.562, abs=0.01) and "2 links x 26.56 GB/s" in found.source


def test_disks_and_cards_have_no_peak(h200):
    assert limit(h200(), Transfer("disk:/data", "gpu:0", "file", "device", "file")).gbps is None
    assert limit(h200(), Transfer("nic:0", "gpu:0", "pinned", "device", "ce")).gbps is None


@pytest.mark.parametrize("ends", [("numa:1", "gpu:0"), ("gpu:0", "gpu:4"), ("gpu:9", "gpu:9")])
def test_unknown_places_have_no_peak(ends, h200):
    with pytest.raises(UserError, match=r"is not here: 4x-nvidia-h200 has numa:0, gpu:0") as caught:
        limit(h200(), Transfer(*ends, "pinned", "device", "ce"))
    assert caught.value.exit_code == 3


# Rates of peer copies on four H200s.
@pytest.mark.parametrize(
    ("src", "dst", "changes", "measured"),
    [
        ("numa:0", "gpu:0", {}, 55.5),
        ("gpu:0", "numa:0", {}, 55.4),
        ("numa:0", "gpu:0", {"bidirectional": True}, 51.3),
        ("gpu:0", "gpu:1", {}, 396.0),
        ("gpu:0", "gpu:1", {"bidirectional": True}, 392.0),
        ("gpu:0", "gpu:1", {"peer": False}, 38.0),
        ("gpu:0", "gpu:0", {}, 2093.0),
    ],
)
def test_no_peak_is_below_a_measured_rate(src, dst, changes, measured, h200):
    assert limit(h200(), Transfer(src, dst, "pinned", "device", "ce", **changes)).gbps > measured
    assert modelled_peak(models.load("h200x4"), src, dst, peer=changes.get("peer", True)) > measured


def modelled_peak(model: Model, src: str, dst: str, *, peer: bool = True, managed: bool = False) -> float:
    return models.limit_finder(model)(src, dst, peer, managed).gbps


def test_peaks_of_a_simulated_machine_come_from_its_file():
    ac922, h200x4 = models.load("ac922"), models.load("h200x4")
    assert modelled_peak(ac922, "numa:0", "gpu:0") == 75
    assert modelled_peak(ac922, "numa:0", "gpu:2") == 64
    assert modelled_peak(h200x4, "gpu:0", "gpu:1") == 478
    assert modelled_peak(h200x4, "gpu:0", "gpu:1", peer=False) == 58.45
    for model, dst, gbps in ((h200x4, "gpu:1", 478), (ac922, "gpu:1", 75), (ac922, "gpu:2", 64)):
        assert modelled_peak(model, "gpu:0", dst, peer=False, managed=True) == gbps
    dl160 = models.load("dl160")  # managed pages go through the host over PCIe, as any copy
    through_host = modelled_peak(dl160, "gpu:0", "gpu:1", peer=False)
    assert modelled_peak(dl160, "gpu:0", "gpu:1", peer=False, managed=True) == through_host


@pytest.mark.parametrize("name", ["h200x4", "ac922"])
def test_a_copy_within_one_memory_has_half_its_rate_because_it_reads_and_writes_there(name):
    model = models.load(name)
    memories = {"gpu:0": model.gpu[0].memory_gbps.v, "numa:0": model.numa[0].dram_gbps.v}
    for place, gbps in memories.items():
        assert modelled_peak(model, place, place) == gbps / 2, place


def test_a_copy_out_of_a_memory_only_reads_there():
    """Links wider than the memory leave the memory as the peak."""
    text = models.bundled()["h200x2"].read_text()
    slow = re.sub(r"memory_gbps = \{ v = [0-9.]+", "memory_gbps = { v = 7", text)
    assert slow != text
    model = models.parse(slow, "slow.toml")
    assert modelled_peak(model, "gpu:0", "gpu:1") == 7
    assert modelled_peak(model, "gpu:0", "gpu:0") == 3.5
