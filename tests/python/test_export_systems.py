"""`linkscope export` for NCCL, UCX and hwloc: the values are those of the run, and the programs read the files."""

import os
import re
import shutil
import subprocess
import sysconfig
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import nccl_xml
from linkscope.cli.main import main
from linkscope.errors import NOT_HERE, UserError
from linkscope.report.export_hwloc import to_hwloc
from linkscope.report.export_nccl import to_nccl_environment, to_nccl_topology
from linkscope.report.export_ucx import to_ucx
from linkscope.runfile import Point, Run, read_run

RESULTS = Path(__file__).resolve().parents[2] / "results"
MODELLED = Path(__file__).resolve().parents[1] / "golden" / "run-h200x1.jsonl"
LANES = {"32.0 GT/s PCIe": 3.0, "16.0 GT/s PCIe": 1.5}  # GB/s of a lane (NCCL, src/graph/topo.cc)


@pytest.fixture(scope="module")
def four() -> Run:
    return read_run(RESULTS / "h200x4-standard-a.jsonl.gz", rounds=False)


@pytest.fixture(scope="module")
def two() -> Run:
    return read_run(RESULTS / "h200x2-full.jsonl.gz", rounds=False)


def with_points(run: Run, change: Callable[[Point], Point | None]) -> Run:
    return replace(run, points=[new for point in run.points if (new := change(point))])


def with_machine(run: Run, **facts: object) -> Run:
    return replace(run, header=msgspec.structs.replace(run.header, machine=run.header.machine | facts))


def slower(share: float, benchmark: str) -> Callable[[Point], Point]:
    def change(point: Point) -> Point:
        if point.benchmark != benchmark or point.gbps is None:
            return point
        return msgspec.structs.replace(point, gbps=point.gbps * share)

    return change


# --- NCCL -----------------------------------------------------------------------------------------------------------


def test_every_gpu_of_an_nccl_topology_has_what_its_loader_asks_for(four: Run) -> None:
    """ncclTopoAddPci and ncclTopoAddGpu fail without these attributes; the others are filled in on the machine."""
    system = ET.fromstring(to_nccl_topology(four))
    assert system.tag == "system" and system.get("version") == "1"
    for cpu in system:
        assert cpu.tag == "cpu" and int(cpu.get("numaid", "")) >= 0
    devices = system.findall("cpu/pci")
    assert [device.get("busid") for device in devices] == [gpu["pci"] for gpu in four.header.machine["gpus"]]
    for number, device in enumerate(devices):
        gpu = device.find("gpu")
        assert device.get("class") == "0x030200" and device.get("link_speed") in LANES and gpu is not None
        assert {name: gpu.get(name) for name in ("dev", "rank", "sm", "gdr")} == {
            "dev": str(number), "rank": str(number), "sm": "90", "gdr": "1",
        }  # fmt: skip
        (nvlink,) = gpu
        assert (nvlink.get("tclass"), nvlink.get("count")) == ("0x068000", "18")


def same(ours: nccl_xml.Element, theirs: ET.Element) -> bool:
    """Whether NCCL's reader finds what an XML parser finds."""
    return (ours.name, ours.attributes, len(ours.parts)) == (theirs.tag, theirs.attrib, len(theirs)) and all(
        same(one, other) for one, other in zip(ours.parts, theirs, strict=True)
    )


def test_the_rules_of_nccls_reader_lead_to_every_element_and_attribute(four: Run, two: Run) -> None:
    for run in (four, two):
        text = to_nccl_topology(run)
        assert same(nccl_xml.read(text), ET.fromstring(text))
    text = to_nccl_topology(with_machine(two, name='a "<machine>" --> & its name' + 300 * "x"))
    assert same(nccl_xml.read(text), ET.fromstring(text))


@pytest.mark.parametrize(
    "change, told",
    [
        (("<gpu ", "<gpu\t"), "Unexpected value with name gpu"),
        (('version="1"', 'version="2"'), "wrong version"),
        (("</cpu>", ""), "XML Mismatch"),
        (('numaid="0"', "numaid=0"), "quote"),
        (('numaid="0"', f'numaid="{300 * "0"}"'), "too long"),
        (("</system>", ""), "unterminated system"),
    ],
)
def test_what_nccls_reader_refuses_is_refused(four: Run, change: tuple[str, str], told: str) -> None:
    with pytest.raises(nccl_xml.Refused, match=re.escape(told)):
        nccl_xml.read(to_nccl_topology(four).replace(*change))


def test_nccl_finds_gpus_by_lower_case_addresses(two: Run) -> None:
    gpus = [gpu | {"pci": f"0000:A{gpu['index']}:00.0"} for gpu in two.header.machine["gpus"]]
    devices = ET.fromstring(to_nccl_topology(with_machine(two, gpus=gpus))).findall("cpu/pci")
    assert [device.get("busid") for device in devices] == ["0000:a0:00.0", "0000:a1:00.0"]


def test_a_node_whose_mask_of_cpus_is_too_long_for_nccl_leaves_the_mask_to_it(two: Run) -> None:
    nodes = [node | {"cpus": [*node["cpus"], 1023]} for node in two.header.machine["numa"]]
    (cpu,) = nccl_xml.read(to_nccl_topology(with_machine(two, numa=nodes))).parts
    assert "affinity" not in cpu.attributes and "numaid" in cpu.attributes


@pytest.mark.parametrize("share, width", [(1, 16), (0.5, 9), (0.25, 5), (0.001, 1)])
def test_nccls_rate_of_a_pcie_link_follows_the_measured_rate(four: Run, share: float, width: int) -> None:
    system = ET.fromstring(to_nccl_topology(with_points(four, slower(share, "h2d"))))
    for device in system.findall("cpu/pci"):
        assert device.get("link_width") == str(width)
        measured = min(share * 55.4, 48)
        assert LANES["32.0 GT/s PCIe"] * width == pytest.approx(measured, abs=LANES["32.0 GT/s PCIe"])


def test_nccls_number_of_nvlinks_follows_the_measured_rate(four: Run) -> None:
    system = ET.fromstring(to_nccl_topology(with_points(four, slower(0.5, "d2d"))))
    assert {link.get("count") for link in system.iter("nvlink")} == {"10"}  # 197.6 GB/s over 20.6 GB/s a link


def test_gpus_joined_by_nvlink_without_a_switch_name_each_other(two: Run) -> None:
    def direct(gpu: dict, other: dict) -> dict:
        links = [link | {"remote": "gpu", "remote_gpu": other["index"]} for link in gpu["nvlinks"]]
        return gpu | {"nvlinks": links}

    one, other = two.header.machine["gpus"]
    system = ET.fromstring(to_nccl_topology(with_machine(two, gpus=[direct(one, other), direct(other, one)])))
    links = {(link.get("target"), link.get("count"), link.get("tclass")) for link in system.iter("nvlink")}
    assert links == {(one["pci"], "18", "0x030200"), (other["pci"], "18", "0x030200")}


def test_an_nccl_topology_names_what_a_partial_run_lacks_and_how_to_measure_it(four: Run) -> None:
    partial = with_points(four, lambda point: None if (point.benchmark, point.src) == ("d2h", "gpu:2") else point)
    with pytest.raises(UserError, match=r"lacks gpu:2 -> numa:0\. Measure it: linkscope run h2d d2h d2d") as error:
        to_nccl_topology(partial)
    assert error.value.exit_code == NOT_HERE


def test_a_gpu_whose_numa_node_is_hidden_among_several_is_refused(four: Run) -> None:
    nodes = four.header.machine["numa"] * 2
    with pytest.raises(UserError, match="the NUMA node of gpu:0 is hidden, and there are 2"):
        to_nccl_topology(with_machine(four, numa=nodes))


def test_nccl_uses_peer_access_where_it_was_measured_to_be_faster(four: Run) -> None:
    assert "export NCCL_P2P_LEVEL=SYS" in to_nccl_environment(four)
    off = with_points(four, lambda p: slower(0.01, "d2d")(p) if p.params.get("peer") == "on" else p)
    text = to_nccl_environment(off)
    assert "Peer copies are slower" in text and "export NCCL_P2P_DISABLE=1" in text and "LEVEL" not in text
    without = with_points(four, lambda p: None if p.params.get("peer") == "on" and p.benchmark == "d2d" else p)
    assert "No pair of GPUs has peer access" in to_nccl_environment(without)
    subprocess.run(["sh", "-eu"], input=to_nccl_environment(four), text=True, check=True)


# --- UCX ------------------------------------------------------------------------------------------------------------


def test_ucx_gets_the_slowest_of_the_best_rates_with_its_point(four: Run) -> None:
    lines = to_ucx(four).splitlines()
    values = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    assert values["UCX_CUDA_COPY_BW"].startswith("10000MBps,h2d:529")  # 55.4 GB/s in units of 2**20 B/s
    assert values["UCX_CUDA_IPC_BW"] == "376624.2MBps"
    at = lines.index(f"UCX_CUDA_IPC_BW={values['UCX_CUDA_IPC_BW']}")
    point = next(point for point in four.points if f"# {point.id}" == lines[at - 1])
    assert point.benchmark == "d2d" and point.gbps == pytest.approx(376624.2 * 2**20 / 1e9, rel=1e-6)


def test_a_run_without_any_copy_for_ucx_says_what_to_run(four: Run) -> None:
    with pytest.raises(UserError, match="Measure it: linkscope run h2d d2h h2h local d2d"):
        to_ucx(with_points(four, lambda point: None))


def ucx_info() -> Path | None:
    site = Path(sysconfig.get_path("purelib")) / "libucx" / "bin" / "ucx_info"
    found = shutil.which("ucx_info")
    return Path(found) if found else site if site.exists() else None


@pytest.mark.skipif(ucx_info() is None or not shutil.which("nm"), reason="ucx_info of UCX is not here")
def test_ucx_reads_every_value_of_its_configuration(four: Run, tmp_path: Path) -> None:
    """Modules of UCX need a driver to load; a library with all its names is enough for them to read settings."""
    program = ucx_info()
    assert program is not None
    (tmp_path / "ucx.conf").write_text(to_ucx(four))
    library = program.parents[1] / "lib"
    make_drivers(sorted((library / "ucx").glob("libuc*_cuda.so.0")), tmp_path)
    found = subprocess.run(
        [program, "-c"], capture_output=True, text=True, check=True, cwd=tmp_path,
        env=os.environ | {"UCX_CONFIG_DIR": str(tmp_path), "LD_LIBRARY_PATH": f"{library}:{tmp_path}"},
    )  # fmt: skip
    assert "UCX  ERROR" not in found.stdout + found.stderr
    read = dict(line.split("=", 1) for line in found.stdout.splitlines() if line.startswith("UCX_") and "=" in line)
    assert read["UCX_BCOPY_BW"] == read["UCX_POSIX_BW"] == read["UCX_SYSV_BW"] == "12475.00MBps"
    if "UCX_CUDA_COPY_BW" in read:  # the module is a part of this UCX
        assert read["UCX_CUDA_COPY_BW"].startswith("h2d:51.75GBps,d2h:51.62GBps,d2d:1946.46GBps")
        assert (read["UCX_CUDA_IPC_BW"], read["UCX_CUDA_IPC_LAT"]) == ("367.80GBps", "2.35us")


def make_drivers(modules: list[Path], folder: Path) -> None:
    """Libraries with the functions of CUDA and NVML that the modules name; each function fails."""
    listed = subprocess.run(["nm", "-D", "--undefined-only", *modules], capture_output=True, text=True, check=True)
    names = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines() if " U " in line}
    for library, prefix in (("libcuda.so.1", "cu"), ("libnvidia-ml.so.1", "nvml")):
        source = folder / f"{prefix}.c"
        functions = [name for name in sorted(names) if name.startswith(prefix)]
        source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in functions))
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", folder / library, source]
        subprocess.run(command, check=True)


# --- hwloc ----------------------------------------------------------------------------------------------------------


def lstopo() -> str | None:
    beside = Path(sysconfig.get_path("scripts")) / "lstopo-no-graphics"
    return shutil.which("lstopo-no-graphics") or (str(beside) if beside.exists() else None)


def shown(file: Path, *options: str) -> str:
    program = lstopo()
    assert program is not None
    return subprocess.run([program, "-i", file, *options], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(lstopo() is None, reason="lstopo of hwloc is not here")
def test_hwloc_reads_its_topology_with_all_values(two: Run, tmp_path: Path) -> None:
    file = tmp_path / "node.xml"
    file.write_text(to_hwloc(two))
    attributes = shown(file, "--memattrs")
    assert "name `Bandwidth' flags 5\n  NUMANode L#0 = 10690 from cpuset 0xffffffff" in attributes
    assert "name `Latency' flags 6\n  NUMANode L#0 = 137 from cpuset 0xffffffff" in attributes
    for name in ("GPU copy from", "GPU copy to"):
        rows = attributes.partition(f"name `{name}'")[2].splitlines()[1:3]
        assert [row.partition(" from ")[2] for row in rows] == ['CoProc L#0 "cuda0"', 'CoProc L#1 "cuda1"']
    matrix = [line.split() for line in shown(file, "--distances").splitlines() if line.strip().startswith("cuda")]
    rates = {(point.src, point.dst) for point in two.points if point.benchmark == "d2d" and point.gbps}
    assert len(rates) == 2 and [len(row) for row in matrix] == [3, 3]
    assert float(matrix[0][2]) == pytest.approx(397_335, abs=1)


@pytest.mark.skipif(lstopo() is None, reason="lstopo of hwloc is not here")
def test_hwloc_reads_several_nodes_of_a_machine_with_hostile_names(two: Run, tmp_path: Path) -> None:
    """Readers without entities, such as hwloc's own, take any text between quotes."""
    gpus = [gpu | {"name": '<script>alert("1")</script>--> & so on'} for gpu in two.header.machine["gpus"]]
    first = two.header.machine["numa"][0]
    nodes = [first | {"cpus": [0, 40]}, first | {"index": 1, "os_index": 8, "cpus": [1, 2]}]
    gpus = [gpu | {"numa": number} for number, gpu in enumerate(gpus)]
    named = with_machine(two, name="a<script>--\n<b>\"'&", gpus=gpus, numa=nodes)
    file = tmp_path / "node.xml"
    file.write_text(to_hwloc(named))
    text = shown(file, "--of", "console", "-v")
    assert "NUMANode L#1 (P#8" in text and '"cuda1"' in text and "<script>" not in file.read_text()
    topology = to_nccl_topology(with_machine(two, name="a<script>--\n<b>"))
    assert "<script>" not in topology and ET.fromstring(topology).tag == "system"
    for text in (to_ucx(named), to_nccl_environment(named)):
        assert text.startswith("# measured by") and "\n<b>" not in text


# --- all ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("convert", [to_nccl_topology, to_hwloc])
def test_a_model_has_no_pci_addresses_to_export(convert: Callable[[Run], str]) -> None:
    with pytest.raises(UserError, match="this run is MODELLED, and a model has no PCI addresses"):
        convert(read_run(MODELLED))


@pytest.mark.parametrize("convert", [to_nccl_environment, to_ucx])
def test_values_of_a_model_are_marked(convert: Callable[[Run], str]) -> None:
    text = convert(read_run(MODELLED))
    assert text.startswith("# MODELLED by linkscope") and "measured" not in text.partition("\n")[0]


def test_a_machine_without_a_gpu_has_no_topology_for_nccl(four: Run) -> None:
    with pytest.raises(UserError, match="its machine has no GPU"):
        to_nccl_topology(with_machine(four, gpus=[]))
    gpus = [gpu | {"pci": None} for gpu in four.header.machine["gpus"]]
    with pytest.raises(UserError, match="gpu:0 has no PCI address"):
        to_nccl_topology(with_machine(four, gpus=gpus))


def test_the_command_writes_each_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(RESULTS / "h200x2-full.jsonl.gz")
    starts = {"nccl-topo": "<!-- measured by", "nccl-env": "# measured by", "ucx": "# measured by", "hwloc": "<?xml"}
    for kind, start in starts.items():
        assert main(["export", run, "--format", kind]) == 0
        assert capsys.readouterr().out.startswith(start)
    assert main(["export", run, "-o", str(tmp_path / "ucx.conf")]) == 0
    assert "UCX_CUDA_COPY_BW=" in (tmp_path / "ucx.conf").read_text()
    assert main(["export", run, "-o", str(tmp_path / "a.xml")]) == 2
    assert "Add --format nccl-topo or --format hwloc" in capsys.readouterr().err
