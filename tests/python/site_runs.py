"""Run files for the tests of the site: two machines of one name, a model, and every kind of bad input."""

import gzip
from pathlib import Path
from typing import Any

import msgspec

from invented import point, run, small_run
from linkscope.runfile import Point, Run

EVIL = "<script>document.title='taken'</script>"
SIZE = 64 << 20
GPU = {"index": 0, "name": "Test GPU", "uuid": "GPU-ef120a50-6554-c7b9-0015-f87835f33ddd", "memory_bytes": 1 << 36}
NODE = {"index": 0, "os_index": 0, "cpus": [0]}


def text_of(one: Run, **header: Any) -> bytes:
    """The lines of a run file. `header`: changed fields of its first line."""
    first = msgspec.json.decode(msgspec.json.encode(one.header)) | header
    records = [first, *one.points, one.end]
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)


def copies(gbps: float, *, pinned: str = "pinned") -> list[Point]:
    """One copy from host to GPU at 64 MiB, and one between GPUs."""
    host = f"h2d/ce/numa:0.{pinned}->gpu:0.device/{SIZE}?bidirectional=false&mode=batched"
    peer = f"d2d/ce/gpu:0.device->gpu:1.device/{SIZE}?bidirectional=false&initiator=src&mode=batched&peer=on"
    return [point(host, SIZE / gbps / 1e9, limit_gbps=100.0), point(peer, SIZE / 300e9, limit_gbps=400.0)]


def machine(gbps: float, started: str = "2026-11-25T10:00:00+00:00", **facts: Any) -> bytes:
    """A measured run of machine `alpha`: its method of copies between GPUs is current."""
    described = {"name": "alpha", "title": None, "gpus": [GPU], "numa": [NODE], **facts}
    return text_of(run(copies(gbps), modelled=False, **described), started=started)


def write_all(folder: Path) -> None:
    """Writes all files. New ones of `alpha`: 50 GB/s; old: 40; the other machine of that name: 60."""
    folder.mkdir()
    (folder / "a-new.jsonl").write_bytes(machine(50.0))
    (folder / "a-old.jsonl").write_bytes(machine(40.0, "2026-11-22T10:00:00+00:00"))
    (folder / "copy-of-new.jsonl.gz").write_bytes(gzip.compress(machine(50.0)))
    (folder / "below").mkdir()
    (folder / "below" / "other.jsonl.gz").write_bytes(gzip.compress(machine(60.0, gpus=[GPU | {"memory_bytes": 7}])))
    (folder / "model.jsonl").write_bytes(text_of(small_run()))
    evil = run(copies(30.0), modelled=False, name=EVIL, title=EVIL, gpus=[GPU], numa=[NODE])
    (folder / f"{EVIL.replace('/', '')}.jsonl").write_bytes(text_of(evil))
    no_value = point(
        f"h2d/ce/numa:0.pinned->gpu:0.device/{SIZE}?mode=batched", status="failed", reason=f"{EVIL} failed"
    )
    (folder / "empty.jsonl").write_bytes(text_of(run([no_value], modelled=False, name="no map", title=None)))
    rule = {"suite": "nvbandwidth", "rule": "nvbandwidth"}
    (folder / "rule.jsonl").write_bytes(
        text_of(run(copies(70.0), modelled=False, name="ruled", gpus=[GPU], numa=[NODE], title=None), plan=rule)
    )
    (folder / "schema.jsonl").write_bytes(text_of(small_run(), schema=9))
    (folder / "words.jsonl").write_text("hello\n")
    (folder / "README.md").write_text("not a run file")
