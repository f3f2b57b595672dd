"""The probe of machines: this one, recorded ones, invented ones, and machines whose NVML misbehaves."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import machine_fakes as fakes
from fake_driver import environment, needs_fake
from linkscope.errors import UserError
from linkscope.machine import nvml as nvml_door
from linkscope.machine.choose import Modelled, Probed, Saved, resolve
from linkscope.machine.host import pci_max_payload
from linkscope.machine.nvml_facts import NvmlReading, normal_pci, read_nvml
from linkscope.machine.pairs import pairs_of
from linkscope.machine.path_classes import classes_probed
from linkscope.machine.probe import probe
from linkscope.machine.saved import Reading, load_saved, read_machine, saved_text
from linkscope.machine.sketch import ranges
from linkscope.machine.sysfs import Files, chosen, parse_list

FIXTURES = Path(__file__).parent / "fixtures" / "machines"
NO_NVML = NvmlReading(why_not="there is no NVML here")


def replay(texts, driver=None, nvml=NO_NVML):
    return probe(driver, files=Files.replay(texts, fakes.lists_of(texts)), nvml=nvml)


def h200(monkeypatch, texts=None, driver=None, **settings):
    fakes.play(monkeypatch, fakes.FakeNvml(**settings))
    return replay(fakes.virtual_machine() if texts is None else texts, driver, read_nvml())


def why(machine, fact):
    return next((hidden.why for hidden in machine.hidden if hidden.fact == fact), None)


def test_this_machine_can_be_probed():
    machine = probe()
    assert machine.cpu.threads >= len(os.sched_getaffinity(0)) and machine.memory_bytes > 0
    assert [node.index for node in machine.numa] == list(range(len(machine.numa)))
    assert machine.places[0] == "numa:0" and machine.name
    json.dumps(machine.to_json())


def test_a_recorded_machine_can_be_replayed():
    machine = load_saved(FIXTURES / "epyc-vm.json")
    assert (machine.name, machine.cpu.vendor, machine.cpu.sockets, machine.cpu.cores) == (
        "amd-epyc-2cpu", "AuthenticAMD", 1, 2)  # fmt: skip
    assert "clflushopt" in machine.cpu.flags and machine.cache_bytes == {"numa:0": 32 << 20}
    assert machine.hypervisor is True and "virtual machine" in why(machine, "numa")
    assert machine.gpus == () and "libnvidia-ml" in machine.driver.nvml_why_not


def test_two_nodes_are_found_and_hidden_nodes_of_gpus_are_reported():
    machine = replay(fakes.two_nodes(), fakes.driver())
    first, second = machine.numa
    assert first.cpus == (0, 1, 2, 3, 8, 9, 10, 11) and first.distances == (10, 21) and second.distances == (21, 10)
    pages = [(page.page_bytes, page.total, page.free) for page in first.huge_pages]
    assert pages == [(2 << 20, 64, 32), (1 << 30, 0, 0)]
    assert (machine.cpu.sockets, machine.cpu.cores, machine.cpu.threads) == (2, 8, 16)
    assert (machine.cpu.cache_bytes, machine.cpu.caches) == (36 << 20, 2)
    assert [gpu.numa for gpu in machine.gpus] == [None] * 4 and "numa_node" in why(machine, "gpu:3.numa")
    assert machine.hypervisor is False and why(machine, "numa") is None
    assert machine.pci_gpus == tuple(fakes.H200_PCI)


def test_the_bus_shows_the_nodes_of_gpus():
    machine = replay(fakes.two_nodes(numa=(0, 0, 1, 1)), fakes.driver())
    assert [gpu.numa for gpu in machine.gpus] == [0, 0, 1, 1]


def test_with_one_node_all_gpus_are_near_it_except_in_a_virtual_machine():
    texts = {**fakes.two_nodes(), "/sys/devices/system/node/has_memory": "0", "/sys/devices/system/node/online": "0"}
    assert [gpu.numa for gpu in replay(texts, fakes.driver()).gpus] == [0] * 4
    assert [gpu.numa for gpu in replay(fakes.virtual_machine(), fakes.driver()).gpus] == [None] * 4


def test_node_numbers_with_gaps_become_dense_and_gpu_memory_is_no_node():
    driver = fakes.driver()
    for gpu, number in zip(driver["gpus"], (255, 254, 253, 252), strict=True):
        gpu["attributes"] = {**gpu["attributes"], "NUMA_ID": number}
    machine = replay(fakes.power9(), driver)
    nodes = [(node.index, node.os_index, node.distances) for node in machine.numa]
    assert nodes == [(0, 0, (10, 40)), (1, 8, (40, 10))]
    assert [gpu.numa for gpu in machine.gpus] == [0, 0, 1, 1]
    assert machine.cpu.vendor == "IBM" and machine.cpu.model.startswith("POWER9") and machine.hypervisor is None


def test_a_sandbox_without_nodes_is_one_hidden_node():
    machine = replay(fakes.gvisor())
    assert [(node.cpus, node.memory_bytes) for node in machine.numa] == [((0, 1, 2, 3), 16 << 30)]
    assert "no NUMA nodes" in why(machine, "numa") and "shows no cache" in why(machine, "cpu.cache_bytes")
    assert (machine.cpu.sockets, machine.cpu.cores) == (1, 4)


def test_an_empty_machine_has_one_node():
    machine = replay({})
    assert machine.cpu.threads == 1 and machine.memory_bytes is None and machine.places == ("numa:0",)
    assert {"numa", "cpu.model", "cpu.sockets", "cpu.cores"} <= {hidden.fact for hidden in machine.hidden}


@pytest.mark.parametrize("make", [fakes.two_nodes, fakes.virtual_machine, fakes.power9, fakes.gvisor])
def test_a_tree_on_disk_and_its_recording_describe_the_same_machine(make, tmp_path):
    files = Files(fakes.write_tree(tmp_path, make()))
    on_disk = probe(files=files, nvml=NO_NVML)
    record = files.record()
    assert on_disk == replay(make()) == probe(files=Files.replay(**record), nvml=NO_NVML)


def test_four_h200_are_probed(monkeypatch):
    machine = h200(monkeypatch, driver=fakes.driver())
    assert machine.name == "4x-nvidia-h200" and [gpu.pci for gpu in machine.gpus] == fakes.H200_PCI
    gpu = machine.gpus[2]
    assert (gpu.uuid, gpu.sms, gpu.l2_bytes, gpu.copy_engines) == ("GPU-2", 132, 60 << 20, 3)
    assert gpu.compute_capability == "9.0"
    assert (gpu.pcie.generation, gpu.pcie.max_width, gpu.bar1_bytes) == (5, 16, 256 << 30)
    assert len(gpu.nvlinks) == 18 and gpu.nvlinks[0].version == "4.0" and gpu.nvlinks[0].remote == "switch"
    assert gpu.nvlinks[0].gbps == 26.562 and "26562 MB/s" in gpu.nvlinks[0].gbps_source
    assert gpu.nvlink_gbps == pytest.approx(478.1, abs=0.1) and gpu.numa is None
    pair = machine.pair(0, 3)
    assert pair.peer and pair.native_atomics and pair.nvlinks == 18 and pair.level == "across NUMA nodes"
    assert pair.nvlink_gbps == gpu.nvlink_gbps and "NVSwitch" in pair.nvlink_source
    assert (machine.driver.version, machine.driver.cuda_version, machine.driver.nvml_version) == (
        "580.159.04", "13.0", "13.580.159.04")  # fmt: skip
    assert why(machine, "gpu:0.pcie.max_payload_bytes").startswith("a virtual machine")
    assert len(machine.pairs) == 12
    assert machine.numa[0].memory_bytes == machine.memory_bytes == 503 << 30  # the node's own file is not used


def test_without_cuda_nvml_shows_the_gpus(monkeypatch):
    machine = h200(monkeypatch)
    assert len(machine.gpus) == 4 and machine.gpus[0].sms is None and "not asked" in why(machine, "gpu:0.sms")
    assert machine.pair(0, 1).peer is None and machine.pair(0, 1).nvlinks == 18


def test_direct_links_between_gpus_are_found(monkeypatch):
    machine = h200(monkeypatch, remote="gpu")
    assert [machine.pair(0, dst).nvlinks for dst in (1, 2, 3)] == [6, 6, 6]
    assert machine.pair(0, 1).nvlink_gbps == pytest.approx(6 * 26.562)


def test_the_rate_of_a_pair_is_unknown_if_that_of_one_of_its_links_is(monkeypatch):
    gpus = list(h200(monkeypatch, remote="gpu").gpus)
    links = [replace(link, gbps=None) if link.index == 0 else link for link in gpus[0].nvlinks]
    (other,) = {link.remote_gpu for link in links if link.gbps is None}
    gpus[0] = replace(gpus[0], nvlinks=tuple(links))
    pairs = {pair.dst: pair for pair in pairs_of(gpus, [], None, []) if pair.src == 0}
    assert [pair.nvlinks for pair in pairs.values()] == [6, 6, 6]
    assert [dst for dst, pair in pairs.items() if pair.nvlink_gbps is None] == [other]


def test_a_gpu_that_has_fewer_lanes_than_it_can_have_is_in_a_class_of_its_own(monkeypatch):
    machine = h200(monkeypatch, answers={"nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: 8 if gpu == 2 else 16})
    kinds = classes_probed(machine)
    whole, other, narrow = (kinds["numa:0", f"gpu:{gpu}"] for gpu in (0, 1, 2))
    assert whole == other != narrow and narrow.endswith("PCIe 5.0 x16 at x8")


def test_links_with_hidden_remote_ends_give_an_upper_bound(monkeypatch):
    machine = h200(monkeypatch, remote="hidden")
    assert machine.pair(0, 1).nvlinks == 18 and "remote ends hidden" in machine.pair(0, 1).nvlink_source
    assert "unknown kind" in why(machine, "gpu:0.nvlink:0.remote")
    machine = h200(monkeypatch, remote="hidden", refuse={"nvmlDeviceGetP2PStatus": fakes.NOT_SUPPORTED})
    assert machine.pair(0, 1).nvlinks is None and machine.pair(0, 1).nvlink_gbps is None


def test_a_machine_without_nvlink_has_none(monkeypatch):
    machine = h200(monkeypatch, links=0, answers={"nvmlDeviceGetP2PStatus": 5})
    assert machine.gpus[0].nvlinks == () and machine.pair(0, 1).nvlinks == 0 and machine.gpus[0].nvlink_gbps is None


def test_links_that_are_down_do_not_count(monkeypatch):
    machine = h200(monkeypatch, answers={"nvmlDeviceGetNvLinkState": lambda gpu, link: int(link < 12)})
    assert machine.pair(0, 1).nvlinks == 12 and machine.gpus[0].nvlink_gbps == pytest.approx(12 * 26.562)


def test_the_speed_of_links_is_known_if_nvml_does_not_report_it(monkeypatch):
    refuse = {"field:164": fakes.NOT_SUPPORTED}
    assert "SPEED_MBPS_COMMON" in h200(monkeypatch, refuse=refuse).gpus[0].nvlinks[0].gbps_source
    link = h200(monkeypatch, refuse=refuse | {"field:90": fakes.NOT_SUPPORTED}).gpus[0].nvlinks[0]
    assert link.gbps == 26.56 and link.gbps_source == "nominal for NVLink 4.0"


def test_an_old_driver_counts_its_links_one_by_one(monkeypatch):
    assert len(h200(monkeypatch, refuse={"field:91": fakes.NOT_SUPPORTED}).gpus[0].nvlinks) == 18


def test_gpus_are_numbered_by_their_bus_id_and_not_by_cuda(monkeypatch):
    machine = h200(monkeypatch, driver=fakes.driver(order=[3, 1, 0, 2]))
    assert [gpu.uuid for gpu in machine.gpus] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert machine.pair(3, 1).performance_rank == 31


def test_gpus_that_cuda_hides_are_listed_as_unused(monkeypatch):
    machine = h200(monkeypatch, driver=fakes.driver(order=[1, 3]))
    assert [gpu.uuid for gpu in machine.gpus] == ["GPU-1", "GPU-3"] and machine.unused == ("GPU-0", "GPU-2")
    assert machine.pair(0, 1).performance_rank == 13


def test_a_broken_driver_is_reported(monkeypatch):
    machine = h200(monkeypatch, driver={"driver_present": False, "version": 11040, "why_not": "too old", "gpus": []})
    assert machine.gpus == () and len(machine.unused) == 4
    assert machine.driver.cuda_why_not == "too old" and machine.driver.cuda_version == "11.4"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (fakes.LIBRARY_NOT_FOUND, "libnvidia-ml.so.1 cannot be loaded"),
        (fakes.MISMATCH, "different versions"),
        (fakes.NOT_LOADED, "kernel module is not loaded"),
        (999, "NVML does not start"),
    ],
)
def test_nvml_that_does_not_start_gives_a_reason(code, words, monkeypatch):
    machine = h200(monkeypatch, driver=fakes.driver(), init=code)
    assert words in machine.driver.nvml_why_not and len(machine.gpus) == 4
    assert words in why(machine, "gpu:0.pcie.width") and machine.gpus[0].sms == 132


def test_a_missing_nvidia_ml_py_gives_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py is not installed" in read_nvml().why_not


def test_nvml_that_hangs_is_abandoned(monkeypatch):
    monkeypatch.setattr(nvml_door, "_PATIENCE_S", 0.05)
    let_go = threading.Event()
    fakes.play(monkeypatch, fakes.FakeNvml(answers={"nvmlDeviceGetCount": lambda: let_go.wait(300)}))
    why_not = read_nvml().why_not
    let_go.set()
    assert "did not answer" in why_not


def test_unexpected_answers_of_nvml_give_a_reason(monkeypatch):
    fakes.play(monkeypatch, fakes.FakeNvml(answers={"nvmlDeviceGetPciInfo": object()}))
    assert read_nvml().why_not.startswith("NVML failed") or read_nvml().gpus[0].pci is None


def test_nvml_is_shut_down_after_the_probe(monkeypatch):
    fake = fakes.play(monkeypatch, fakes.FakeNvml())
    assert len(read_nvml().gpus) == 4 and fake.open == 0


@pytest.mark.parametrize("code", [fakes.NOT_SUPPORTED, fakes.FUNCTION_NOT_FOUND])
@pytest.mark.parametrize("function", fakes.FUNCTIONS)
def test_other_facts_are_read_whatever_nvml_refuses(function, code, monkeypatch):
    machine = h200(monkeypatch, driver=fakes.driver(), refuse={function: code})
    assert len(machine.gpus) == 4 and machine.gpus[0].sms == 132


def test_facts_that_nvml_refuses_are_hidden_with_the_reason(monkeypatch):
    machine = h200(monkeypatch, refuse={"nvmlDeviceGetCurrPcieLinkWidth": fakes.NOT_SUPPORTED})
    assert machine.gpus[0].pcie.width is None and why(machine, "gpu:0.pcie.width") == "NVML: Not Supported"


def test_the_bus_provides_link_facts_that_nvml_lacks():
    texts = fakes.two_nodes()
    folder = f"/sys/bus/pci/devices/{fakes.H200_PCI[0]}"
    texts |= {f"{folder}/current_link_speed": "2.5 GT/s PCIe", f"{folder}/max_link_speed": "32.0 GT/s PCIe",
              f"{folder}/current_link_width": "8", f"{folder}/max_link_width": "16"}  # fmt: skip
    texts |= {f"/sys/bus/pci/devices/{fakes.H200_PCI[1]}/current_link_speed": "Unknown"}
    pcie, other = (gpu.pcie for gpu in replay(texts, fakes.driver()).gpus[:2])
    assert (pcie.generation, pcie.width, pcie.max_generation, pcie.max_width) == (1, 8, 5, 16)
    assert other.generation is None


@needs_fake
def test_the_bindings_of_the_library_read_the_same(tmp_path):
    code = f"from linkscope.machine.saved import *; open('{tmp_path}/node.json', 'w').write(saved_text(read_machine()))"
    subprocess.run(
        [sys.executable, "-c", code], env=environment(CUDA_GPUS=4, NVML_LINKS="direct"), check=True, timeout=300
    )
    machine = load_saved(tmp_path / "node.json")
    assert [gpu.pci for gpu in machine.gpus] == fakes.H200_PCI and machine.driver.nvml_why_not == ""
    assert [machine.pair(2, dst).nvlinks for dst in (0, 1, 3)] == [6, 6, 6]


def test_a_lost_gpu_is_reported(monkeypatch):
    machine = h200(monkeypatch, lost=(2,))
    assert len(machine.gpus) == 3 and len(machine.lost) == 1
    handles = {"nvmlDeviceGetHandleByIndex": lambda index: fakes.fail(fakes.LOST) if index == 1 else index}
    assert len(h200(monkeypatch, answers=handles).lost) == 1


def test_a_gpu_lost_during_the_probe_is_reported(monkeypatch):
    names = {"nvmlDeviceGetName": lambda gpu: fakes.fail(fakes.LOST) if gpu else "x"}
    machine = h200(monkeypatch, answers=names)
    assert len(machine.gpus) == 1 and machine.lost == tuple(fakes.H200_PCI[1:])


def config(control, *, at=0x60, following=0):
    space = bytearray(256)
    space[0x34], space[0x40:0x42] = 0x40, bytes([0x01, at])  # the power management capability, then PCI Express
    space[at : at + 2], space[at + 8] = bytes([0x10, following]), control
    return bytes(space)


@pytest.mark.parametrize(("control", "payload"), [(0x00, 128), (0x20, 256), (0x5F, 512)])
def test_the_payload_of_a_packet_is_read_from_the_configuration_space(control, payload, tmp_path):
    file = tmp_path / "sys/bus/pci/devices/0000:1b:00.0/config"
    file.parent.mkdir(parents=True)
    file.write_bytes(config(control))
    assert pci_max_payload(Files(tmp_path), "0000:1b:00.0") == payload
    file.write_bytes(config(control)[:64])  # all that a user without privileges can read
    assert pci_max_payload(Files(tmp_path), "0000:1b:00.0") is None
    circle = bytearray(config(control))
    circle[0x41] = 0x40
    file.write_bytes(bytes(circle))
    assert pci_max_payload(Files(tmp_path), "0000:1b:00.0") is None


@given(st.sets(st.integers(0, 300)))
def test_lists_of_cpus_survive_a_round_trip(numbers):
    assert parse_list(ranges(tuple(sorted(numbers)))) == tuple(sorted(numbers))


@given(st.text())
def test_no_kernel_text_breaks_the_parsers(text):
    parse_list(text), chosen(text), normal_pci(text)
    replay({path: text for path in fakes.two_nodes()})


def test_a_saved_probe_gives_the_same_machine(tmp_path, monkeypatch):
    fakes.play(monkeypatch, fakes.FakeNvml())
    reading = read_machine(fakes.driver())
    (tmp_path / "node.json").write_text(saved_text(reading))
    machine = load_saved(tmp_path / "node.json")
    assert machine == reading.machine() and len(machine.gpus) == 4
    assert json.loads((tmp_path / "node.json").read_text())["machine"] == json.loads(json.dumps(machine.to_json()))


def test_a_reading_has_the_kernel_files_of_gpus_that_only_the_driver_shows(tmp_path, monkeypatch):
    texts = fakes.two_nodes(numa=(0, 0, 1, 1))
    fakes.write_tree(tmp_path, texts)
    monkeypatch.setattr(Files.__init__, "__defaults__", (tmp_path,))
    monkeypatch.setattr("linkscope.machine.saved.read_nvml", lambda: NO_NVML)
    machine = read_machine(fakes.driver()).machine()
    assert [gpu.numa for gpu in machine.gpus] == [0, 0, 1, 1] and machine == replay(texts, fakes.driver())


def saved(tmp_path, **changes):
    path = tmp_path / "probe.json"
    path.write_text(saved_text(Reading({}, {}, NO_NVML, None)))
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not JSON"), ("{", "not JSON"), ("\x00\xff", "not JSON"),
        ("[]", "not a saved probe"), ("{}", "not a saved probe"),
        ('{"record":"run","schema":1}', "not a saved probe"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_saved_probe_gets_one_sentence(content, words, tmp_path):
    path = tmp_path / "probe.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UserError, match=words) as caught:
        load_saved(path)
    assert str(path) in str(caught.value) and "--save" in str(caught.value) and caught.value.exit_code == 2


def test_other_formats_and_schemas_are_refused(tmp_path):
    with pytest.raises(UserError, match="schema 7"):
        load_saved(saved(tmp_path, schema=7))
    with pytest.raises(UserError, match="'recipe'"):
        load_saved(saved(tmp_path, format="recipe"))
    broken = {"texts": {}, "lists": {}, "nvml": {}, "driver": {"gpus": [{"name": "x"}]}}
    with pytest.raises(UserError, match="damaged"):
        load_saved(saved(tmp_path, reading=broken))


def test_missing_files_and_folders_are_reported(tmp_path):
    with pytest.raises(UserError, match="no such file") as caught:
        load_saved(tmp_path / "nowhere.json")
    assert caught.value.exit_code == 2
    with pytest.raises(UserError, match="directory"):
        load_saved(tmp_path)


def test_a_machine_name_means_this_machine_a_file_or_a_model(tmp_path):
    assert isinstance(resolve("auto"), Probed) and isinstance(resolve(str(FIXTURES / "epyc-vm.json")), Saved)
    chosen_model = resolve("h200x4")
    assert isinstance(chosen_model, Modelled) and chosen_model.model.machine.name == "h200x4"
    with pytest.raises(UserError, match=r"h200x44.*did you mean h200x4.*auto.*ac922") as caught:
        resolve("h200x44")
    assert caught.value.exit_code == 2
    with pytest.raises(UserError, match=r"nowhere\.toml"):
        resolve("nowhere.toml")


def test_importing_is_quick_and_does_not_load_nvml():
    code = (
        "import sys, time; began = time.process_time(); import linkscope.machine.choose, linkscope.machine.doctor\n"
        "print(time.process_time() - began, 'pynvml' in sys.modules, 'numpy' in sys.modules)"
    )
    took, nvml, numpy = min(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    )
    assert (nvml, numpy) == ("False", "False") and float(took) < 0.25  # 0.05 s on an idle machine
