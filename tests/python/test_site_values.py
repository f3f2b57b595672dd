"""The values that the site compares: one configuration each, with units, and a reason where a value is missing."""

import json
from pathlib import Path

from invented import point, run
from linkscope.runfile import Point
from linkscope.site.build import build
from site_runs import GPU, NODE, SIZE, text_of

GPUS = [GPU, GPU | {"index": 1}]


def chase(src: str, dst: str, seconds: float) -> Point:
    return point(f"latency/sm/{src}.device->{dst}.device/0?cache=cold&range=2MiB", seconds)


def copy(src: str, dst: str, gbps: float) -> Point:
    what = "h2d/ce/{}.pinned->{}.device" if dst.startswith("gpu") else "d2h/ce/{}.device->{}.pinned"
    mode = "bidirectional=false&mode=batched" if dst.startswith("gpu") else "mode=batched"
    return point(f"{what.format(src, dst)}/{SIZE}?{mode}", SIZE / gbps / 1e9, limit_gbps=100.0)


def site_of(tmp_path: Path, *texts: bytes) -> Path:
    (tmp_path / "runs").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / "runs" / f"{number}.jsonl").write_bytes(text)
    build([tmp_path / "runs"], tmp_path / "out")
    return tmp_path / "out"


def cells(site: Path) -> list[dict]:
    return [cell for file in site.rglob("summary.json") for cell in json.loads(file.read_text())["cells"]]


def test_own_memory_is_not_compared_with_memory_of_another_gpu_or_host(tmp_path: Path) -> None:
    own, other, remote = chase("gpu:0", "gpu:0", 3e-7), chase("gpu:0", "gpu:1", 9e-7), 5e-6
    one = run([own, other], modelled=False, name="one", gpus=GPUS, numa=[NODE])
    far = run([chase("host:0/gpu:0", "host:1/gpu:0", remote)], modelled=False, name="far", gpus=GPUS, numa=[NODE])
    found = {cell["label"]: cell["value"] for cell in cells(site_of(tmp_path, text_of(one), text_of(far)))}
    assert found == {
        "gpu.device → same gpu.device, cache=cold, range=2MiB": 3e-7,
        "gpu.device → other gpu.device, cache=cold, range=2MiB": 9e-7,
        "gpu.device → remote gpu.device, cache=cold, range=2MiB": remote,
    }


def test_the_range_over_the_paths_has_the_unit_of_its_value(tmp_path: Path) -> None:
    points = [chase("gpu:0", "gpu:0", 3.4e-7), chase("gpu:1", "gpu:1", 3.5e-7)]
    points += [copy("numa:0", "gpu:0", 50.0), copy("numa:0", "gpu:1", 55.0)]
    site = site_of(tmp_path, text_of(run(points, modelled=False, name="one", gpus=GPUS, numa=[NODE])))
    assert "2 paths, 340 ns to 350 ns" in (site / "p" / "latency-sm.html").read_text()
    assert "2 paths, 50 GB/s to 55 GB/s" in (site / "p" / "h2d-pinned.html").read_text()


def test_the_map_of_a_machine_is_that_of_the_run_with_rates_in_both_directions(tmp_path: Path) -> None:
    links = {"gpus": [GPU | {"pcie": {"generation": 5, "lanes": 16}}], "numa": [NODE], "name": "alpha", "title": None}
    both = run([copy("numa:0", "gpu:0", 50.0), copy("gpu:0", "numa:0", 51.0)], modelled=False, **links)
    back = run([copy("gpu:0", "numa:0", 52.0)], modelled=False, **links)
    older, newer = "2026-11-22T10:00:00+00:00", "2026-11-25T10:00:00+00:00"
    site = site_of(tmp_path, text_of(both, started=older), text_of(back, started=newer))
    runs = json.loads((site / "index.json").read_text())["machines"][0]["runs"]
    full = next(one["page"] for one in runs if one["started"] == older)
    assert full.replace("index.html", "map.svg") in (site / "index.html").read_text()


def test_a_path_that_only_older_methods_measured_says_so_in_the_list(tmp_path: Path) -> None:
    facts = {"modelled": False, "name": "alpha", "title": None, "gpus": GPUS, "numa": [NODE]}
    tool = {"name": "linkscope", "version": "0.1.0", "methods": {"latency": 0}}
    text = text_of(run([chase("gpu:0", "gpu:1", 9e-7)], **facts), tool=tool)
    page = (site_of(tmp_path, text) / "paths.html").read_text()
    assert 'href="p/latency-sm.html#older">older method' in page


def test_a_value_that_is_missing_and_one_without_an_interval_are_explained(tmp_path: Path) -> None:
    header = {"modelled": False, "title": None, "gpus": GPUS, "numa": [NODE]}
    few = copy("numa:0", "gpu:0", 50.0)
    few.ci95_s = few.flows[0].ci95_s = None
    other = run([copy("gpu:0", "numa:0", 50.0)], name="other", **header)
    site = site_of(tmp_path, text_of(run([few], name="few", **header)), text_of(other))
    table = (site / "table.html").read_text()
    assert "50 GB/s</a>" in table
    for page in (site / "table.html", site / "index.html", *(site / "p").iterdir()):
        text = page.read_text()
        assert "without an interval has fewer than six rounds, or noise as large as the value." in text, page
    assert '<td class="n"></td>' in table and "An empty cell: no run of the machine has a comparable value" in table


def test_the_best_rate_of_a_path_counts_although_only_a_smaller_size_reached_its_precision(tmp_path: Path) -> None:
    small, large = (
        point(f"demand/fault/numa:0.managed->gpu:0.managed/{size}?access=write", size / gbps / 1e9)
        for size, gbps in ((128, 0.001), (1 << 20, 11.0))
    )
    large.status = "missed_precision"
    one = run([small, large], modelled=False, name="one", gpus=GPUS, numa=[NODE])
    page = (site_of(tmp_path, text_of(one)) / "p" / "demand-fault.html").read_text()
    assert "~11.0 GB/s" in page and "1 MiB" in page and "128 B" not in page


def test_merged_runs_of_different_nodes_are_different_machines(tmp_path: Path) -> None:
    def merged(gbps: float, host: str, memory: int) -> bytes:
        nodes = [{"host": host, "machine": {"name": "1x-test", "gpus": [GPU | {"memory_bytes": memory}]}}]
        ids = f"get/mpi/host:0/gpu:0.device->host:1/gpu:0.device/{SIZE}?mode=batched"
        return text_of(
            run([point(ids, SIZE / gbps / 1e9)], modelled=False, name="2-nodes-of-several-kinds", hosts=nodes)
        )

    site = site_of(tmp_path, merged(10.0, "n1", 1 << 36), merged(11.0, "n2", 1 << 36), merged(12.0, "n3", 1 << 37))
    machines = json.loads((site / "index.json").read_text())["machines"]
    assert sorted(len(one["runs"]) for one in machines) == [1, 2], "names of hosts do not count, their hardware does"
