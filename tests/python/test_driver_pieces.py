"""The real worker on the fake driver: pitched copies and batched copies, call by call."""

from pathlib import Path

import pytest

from driver_cases import KIB, PACKED, ROWS, TOGETHER, case, h2d, opened, prepare, refusal, run, worker, works
from fake_driver import needs_fake, needs_worker

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]

# Footprints in which no slice is written twice, so that the last error stays visible. A cube is too large for this.
IN_ROWS = {
    name: wanted | {"footprint_bytes": 512 * wanted["bytes"]} for name, wanted in ROWS.items() if "halo" not in name
}
GAPS_BEHIND = [name for name, wanted in IN_ROWS.items() if wanted["params"].get("gaps") != "src"]


def lines(log: Path, what: str) -> list[int]:
    """The last number of each line of this kind."""
    return [int(line.split()[-1]) for line in log.read_text().splitlines() if line.split()[0] == what]


def test_a_batch_of_copies_is_one_call(worker, tmp_path):
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert works(pipe, TOGETHER["h2d by batch"])["timing"] == "gate"
    # One warm-up, one rehearsal of the largest batch, then two samples of each batch that is not empty.
    assert lines(log, "batch") == [1, 16, *2 * [1, 8, 16]]


def test_a_graph_is_made_with_its_first_batch(worker, tmp_path):
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert works(pipe, TOGETHER["h2d by graph"])["timing"] == "gate"
    assert lines(log, "graph") == [1, 16, 8]
    assert lines(log, "graph-launch") == [1, 16, *2 * [1, 8, 16]]


def test_each_piece_is_a_node_or_a_copy(worker, tmp_path):
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_LOG=log)
    for engine in ("batch", "graph"):
        works(pipe, TOGETHER[f"pieces by {engine}"])
    assert lines(log, "batch")[-1] == lines(log, "graph-launch")[-1] == 16 * 1600 // 64


def test_a_gather_is_one_kernel(worker, tmp_path):
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_LOG=log)
    works(pipe, ROWS["pieces by sm"])
    launches = [line.split()[2] for line in log.read_text().splitlines() if line.startswith("launch")]
    assert launches.count("linkscope_copy_rows") == 1 + 16 + 2 * (1 + 8 + 16) and "linkscope_copy" not in launches


def test_packing_and_unpacking_run_on_their_own_gpu(worker, tmp_path):
    log = tmp_path / "log"
    pipe, driver = opened(worker, CUDA_LOG=log)
    works(pipe, PACKED["halo in x, packed, to a peer"])
    launches = [line.split()[1:3] for line in log.read_text().splitlines() if line.startswith("launch")]
    buses = [bus for bus, kernel in launches if kernel == "linkscope_copy_rows"]
    pci = [gpu["pci"].split(".")[0] for gpu in driver["gpus"]]
    assert [bus.split(".")[0] for bus in buses[:2]] == pci[:2]
    assert buses.count(buses[0]) == buses.count(buses[1]) == len(buses) // 2


def test_each_of_two_gpus_waits_for_the_other_in_every_halo_exchange(worker, tmp_path):
    """Unpacking waits for the copy, and the end of the timed work for the unpacking."""
    calls = tmp_path / "calls"
    pipe, _ = opened(worker, CUDA_CALLS=calls)
    works(pipe, PACKED["halo in x, packed, to a peer"])
    waits = sum(line.startswith("cuStreamWaitEvent ") for line in calls.read_text().splitlines())
    assert waits == 2 * (1 + 16 + 2 * (1 + 8 + 16))


@pytest.mark.parametrize("fault", ["CUDA_CORRUPT", "CUDA_SKIP"])
@pytest.mark.parametrize("name", IN_ROWS)
def test_a_wrong_byte_within_rows_is_found(worker, name, fault):
    pipe, _ = opened(worker, **{fault: "40+"})
    verdict = run(pipe, IN_ROWS[name])["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] > 0 and " at byte " in verdict["first_wrong"]


@pytest.mark.parametrize("name", GAPS_BEHIND)
def test_a_wrong_byte_between_rows_is_found(worker, name):
    pipe, _ = opened(worker, CUDA_OVERRUN="40+")
    verdict = run(pipe, IN_ROWS[name])["verdict"]
    assert not verdict["ok"] and 0 < verdict["wrong_bytes"] <= 8 * 50 * 128  # words are compared


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("fault", ["CUDA_CORRUPT", "CUDA_SKIP"])
def test_a_wrong_copy_in_a_batch_is_found(worker, name, fault):
    pipe, _ = opened(worker, **{fault: "60+"})
    assert not run(pipe, TOGETHER[name] | {"footprint_bytes": 256 * TOGETHER[name]["bytes"]})["verdict"]["ok"]


@pytest.mark.parametrize("name", PACKED)
def test_a_lost_halo_is_found(worker, name):
    pipe, _ = opened(worker, CUDA_SKIP="150+")
    verdict = run(pipe, PACKED[name] | {"footprint_bytes": 64 * 64 * KIB})["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] < verdict["checked_bytes"]


def test_impossible_cases_are_refused(worker):
    pipe, _ = opened(worker)
    pageable = h2d() | {"engine": "batch", "src_memory": "pageable"}
    assert "pageable to device memory" in prepare(pipe, pageable)["error"]["message"]
    uneven = case("pieces", "numa:0", "gpu:0", "pinned", "device", size=1000)
    assert "1000 of them are 4096000 B" in prepare(pipe, uneven)["error"]["message"]
    nowhere = case("halo", "gpu:0", "gpu:7", "device", "device", size=4 * KIB, way="packed")
    assert "gpu:7 is not here" in refusal(pipe, nowhere)
