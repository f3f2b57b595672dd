"""Reads the SQLite exports of Nsight Systems (`nsys export --type sqlite`).

Tables, columns and numbers are those of NVIDIA's "SQLite Export Schema Reference" (Nsight Systems 2021.5). Migrations
of managed memory (copyKind 11 to 13) are not read.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from linkscope.errors import UserError
from linkscope.explain.events import HOST, Copy, Kernel, Recorded, Step

_MAGIC = b"SQLite format 3\x00"
_KINDS = {1: ("host", "gpu"), 2: ("gpu", "host"), 8: ("gpu", "gpu"), 10: ("peer", "peer")}  # CUDA_MEMCPY_KIND
# CUDA_MEMOPR_MEMORY_KIND, for exports without the table ENUM_CUDA_MEM_KIND. CUPTI's own numbers are one higher.
_MEMORIES = {0: "pageable", 1: "pinned", 2: "device", 3: "device", 4: "managed", 5: "device", 6: "managed"}
_NS = 1e-9


def is_nsight(path: Path) -> bool:
    """Whether the file is an SQLite database."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_nsight(path: Path) -> Recorded:
    """The copies, kernels and steps (NVTX ranges whose text begins with `step`). Raises UserError for a database of
    another kind."""
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables & {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_KERNEL"}:
                raise UserError(
                    f"{path}: this database has no CUDA activities. Record with `nsys profile --trace=cuda,nvtx`, and "
                    "export with `nsys export --type sqlite`"
                )
            copies = tuple(_copies(database)) if "CUPTI_ACTIVITY_KIND_MEMCPY" in tables else ()
            kernels = tuple(_kernels(database, tables))
            steps = tuple(_steps(database)) if "NVTX_EVENTS" in tables else ()
            gpus = dict(_gpus(database)) if "TARGET_INFO_GPU" in tables else {}
    except sqlite3.Error as error:
        raise UserError(f"{path}: the database cannot be read: {error}. Export the report again") from None
    return Recorded(copies, kernels, steps, gpus)


def _copies(database: sqlite3.Connection) -> Iterator[Copy]:
    names = _memory_names(database)
    columns = {row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_MEMCPY)")}
    peers = "srcDeviceId, dstDeviceId" if {"srcDeviceId", "dstDeviceId"} <= columns else "deviceId, deviceId"
    query = f"SELECT start, end, deviceId, streamId, bytes, copyKind, srcKind, dstKind, {peers} FROM "
    for start, end, gpu, stream, size, kind, src_kind, dst_kind, src_gpu, dst_gpu in database.execute(
        query + "CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start"
    ):
        if kind not in _KINDS:
            continue
        of = {"host": (HOST, HOST), "gpu": (f"gpu:{gpu}",) * 2, "peer": (f"gpu:{src_gpu}", f"gpu:{dst_gpu}")}
        src, dst = of[_KINDS[kind][0]][0], of[_KINDS[kind][1]][1]
        src_memory, dst_memory = (
            names.get(number, "pinned" if place == HOST else "device")
            for number, place in ((src_kind, src), (dst_kind, dst))
        )
        yield Copy(src, dst, src_memory, dst_memory, size, start * _NS, end * _NS, f"gpu:{gpu} stream {stream}")


def _memory_names(database: sqlite3.Connection) -> dict[int, str]:
    """Names by number: newer exports have a table of their own."""
    try:
        labels = dict(database.execute("SELECT id, label FROM ENUM_CUDA_MEM_KIND"))
    except sqlite3.Error:
        return _MEMORIES
    words = {number: str(label).lower().split()[0] for number, label in labels.items() if label}
    return {number: "device" if word == "array" else word for number, word in words.items() if word != "unknown"}


def _kernels(database: sqlite3.Connection, tables: set[str]) -> Iterator[Kernel]:
    for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMSET"):
        if table in tables:
            for gpu, start, end in database.execute(f"SELECT deviceId, start, end FROM {table} ORDER BY start"):
                yield Kernel(f"gpu:{gpu}", start * _NS, end * _NS)


def _steps(database: sqlite3.Connection) -> Iterator[Step]:
    columns = {row[1] for row in database.execute("PRAGMA table_info(NVTX_EVENTS)")}
    # An export may write '' for a text that is in StringIds: older ones have no empty values.
    text = "coalesce(nullif(e.text, ''), s.value)" if "textId" in columns else "e.text"
    join = "LEFT JOIN StringIds s ON s.id = e.textId" if "textId" in columns else ""
    query = f"SELECT {text}, e.start, e.end FROM NVTX_EVENTS e {join} WHERE e.end IS NOT NULL ORDER BY e.start"
    for name, start, end in database.execute(query):
        if name and str(name).lower().startswith("step"):
            yield Step(str(name), start * _NS, end * _NS)


def _gpus(database: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for number, name in database.execute("SELECT id, name FROM TARGET_INFO_GPU"):
        yield f"gpu:{number}", str(name)
