"""All points of the site in one table: CSV always, Parquet with pyarrow, DuckDB with duckdb.

One run at a time is in memory. A later build copies the rows of unchanged runs from the present tables.
"""

import contextlib
import gzip
import importlib.util
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from linkscope.report.export import COLUMNS
from linkscope.site.entry import Entry
from linkscope.site.folder import Folder
from linkscope.site.make import ADDED, KILLED
from linkscope.site.processes import processes

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_GROUP = 1 << 14  # rows of a group in the Parquet file
# DuckDB would take most of the memory of the command. What one transaction adds must fit into this limit, and so must
# the buffer for text, which is larger unless it is set.
_DUCKDB_LIMITS: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "memory_limit": "96MB"}
_DUCKDB_TEXT = "header = true, auto_detect = false, parallel = false, buffer_size = 8388608, max_line_size = 1048576"
_DUCKDB_KINDS = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
_TRANSACTION = 8 << 20  # bytes of tables
CSV, PARQUET, DUCKDB = "points.csv.gz", "points.parquet", "points.duckdb"
ADDED_MEANINGS = (
    ("machine", "machine on the site: its name and the fingerprint of its hardware"),
    ("run", "run on the site: date, suite and hash of the run file"),
    ("started", "start of the run, ISO 8601, UTC"),
    ("suite", "suite of the run"),
    ("rule", "measurement rule of the run"),
    ("address", "permanent address of the point in the site: p- and ten digits of the SHA-256 of its id"),
)
_MEANINGS = {
    CSV: "all points of all runs, compressed CSV",
    PARQUET: "the same table with types",
    DUCKDB: "the same table, `points`, as a DuckDB database, with a table `columns` that explains it",
}
_TYPES: list[tuple[str, type]] = [*((name, str) for name in ADDED), *((name, kind) for name, kind, _, _ in COLUMNS)]


def formats() -> list[str]:
    """The tables that this installation can write."""
    found = [CSV]
    if importlib.util.find_spec("pyarrow") is not None:
        found.append(PARQUET)
    if importlib.util.find_spec("duckdb") is not None:
        found.append(DUCKDB)
    return found


def described(names: Iterable[str]) -> list[tuple[str, str]]:
    """Tables with their meanings."""
    return [(name, _MEANINGS[name]) for name in names]


class Part(msgspec.Struct, array_like=True):
    """A run in the tables, and the length of its part of the compressed CSV, which is gzip data of its own."""

    content: str
    run: str
    length: int


@dataclass(frozen=True)
class Tables:
    """The parts of the tables, and why a table is missing, by its name."""

    parts: list[Part]
    missing: dict[str, str]


def write_tables(folder: Folder, entries: Sequence[Entry], before: Sequence[Part]) -> Tables:
    """Writes the tables from the points.csv of each run.

    `before`: the parts of the present tables, if all are there. Rows of runs that stay are copied from them, which is
    faster; rows of new runs stand after them. A table whose library fails, or whose process is killed, is missing.
    """
    if not all(folder.has(name) for name in formats()):
        before = []
    now = {entry.content for entry in entries}
    old = {part.content for part in before}
    gone = [part.run for part in before if part.content not in now]
    added = [entry for entry in entries if entry.content not in old]
    tables = [folder.root / entry.folder / "points.csv" for entry in added]

    def paths(name: str) -> tuple[Path | None, Path]:
        return folder.root / name if before else None, folder.begin(name)

    missing: dict[str, str] = {}
    if PARQUET in formats():
        with _apart(missing, PARQUET, _write_parquet, *paths(PARQUET), gone, tables):
            pass
    with contextlib.ExitStack() as meanwhile:
        if DUCKDB in formats():
            meanwhile.enter_context(_apart(missing, DUCKDB, _write_duckdb, *paths(DUCKDB), gone, tables))
        parts = _write_csv(*paths(CSV), [(part, part.content in now) for part in before], added, tables)
    for name in formats():
        (folder.cancel if name in missing else folder.end)(name)
    return Tables(parts, missing)


@contextlib.contextmanager
def _apart(missing: dict[str, str], name: str, write: Callable[..., None], *words: Any) -> Iterator[None]:
    """Calls a function in a process of its own meanwhile: the libraries keep their memory until their process ends.

    `missing` gets the reason if the function fails. Errors of the disk are raised: other files would have them too.
    """
    with processes(1) as pool:
        future = pool.submit(write, *words)
        yield
        try:
            future.result()
        except OSError:
            raise
        except BrokenProcessPool:
            missing[name] = KILLED
        except Exception as error:  # pyarrow and duckdb have errors of their own
            missing[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _write_csv(
    old: Path | None, target: Path, parts: Sequence[tuple[Part, bool]], added: Sequence[Entry], tables: Sequence[Path]
) -> list[Part]:
    """`parts`: those of the old file, and whether they stay. A gzip file may consist of several, one after another."""
    head = gzip.compress((",".join(name for name, _ in _TYPES) + "\n").encode(), mtime=0)
    written: list[Part] = []
    with open(target, "wb") as out:
        out.write(head)
        if old is not None:
            with open(old, "rb") as present:
                present.seek(len(head))
                for part, stays in parts:
                    data = present.read(part.length)
                    if stays:
                        out.write(data)
                        written.append(part)
        for entry, table in zip(added, tables, strict=True):
            data = gzip.compress(table.read_bytes().partition(b"\n")[2], 6, mtime=0)
            out.write(data)
            written.append(Part(entry.content, entry.slug, len(data)))
    return written


def _write_parquet(old: Path | None, target: Path, gone: Sequence[str], tables: Iterable[Path]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([pa.field(name, kinds[kind]) for name, kind in _TYPES])
    with pyarrow.parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for group in _groups(itertools.chain(_old_rows(old, gone), _new_rows(tables, schema))):
            writer.write_table(group)


def _old_rows(old: Path | None, gone: Sequence[str]) -> "Iterator[pa.Table]":
    """The rows of a Parquet file without those of some runs."""
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet

    if old is None:
        return
    left_out = pa.array(gone, pa.string())
    with pyarrow.parquet.ParquetFile(old) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number, use_threads=False)
            yield rows.filter(pyarrow.compute.invert(pyarrow.compute.is_in(rows["run"], left_out)))


def _new_rows(tables: Iterable[Path], schema: "pa.Schema") -> "Iterator[pa.Table]":
    import pyarrow.csv

    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(column_types=schema, null_values=[""], strings_can_be_null=True)
    for table in tables:
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=max(1, table.stat().st_size))
        yield pyarrow.csv.read_csv(table, read_options=read, parse_options=parse, convert_options=convert)


def _groups(tables: "Iterable[pa.Table]") -> "Iterator[pa.Table]":
    """The rows of the tables, some thousands together: a group for each run would be slow to write and to read."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(rows.num_rows for rows in waiting) >= _GROUP:
            yield pa.concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)


def _write_duckdb(old: Path | None, target: Path, gone: Sequence[str], tables: Iterable[Path]) -> None:
    import duckdb

    with tempfile.TemporaryDirectory() as temporary:  # DuckDB writes more than one file at a time
        base_file = Path(temporary) / DUCKDB
        if old is not None:
            shutil.copyfile(old, base_file)
        limits = _DUCKDB_LIMITS | {"temp_directory": temporary}
        with contextlib.closing(duckdb.connect(str(base_file), config=limits)) as base:
            if old is None:
                _make_tables(base)
            else:
                base.execute("DELETE FROM points WHERE run IN (SELECT unnest(?))", [list(gone)])
            types = ", ".join(f"'{name}': '{_DUCKDB_KINDS[kind]}'" for name, kind in _TYPES)
            for some in _portions(tables):
                names = ", ".join("'" + str(table).replace("'", "''") + "'" for table in some)
                source = f"read_csv([{names}], columns = {{{types}}}, {_DUCKDB_TEXT})"
                base.execute(f"INSERT INTO points SELECT * FROM {source}")
        shutil.copyfile(base_file, target)


def _make_tables(base: "duckdb.DuckDBPyConnection") -> None:
    meanings = [*ADDED_MEANINGS, *((name, meaning) for name, _, meaning, _ in COLUMNS)]
    columns = ", ".join(f'"{name}" {_DUCKDB_KINDS[kind]}' for name, kind in _TYPES)
    base.execute(f"CREATE TABLE points ({columns})")
    base.execute('CREATE TABLE columns ("column" VARCHAR, meaning VARCHAR)')
    base.executemany("INSERT INTO columns VALUES (?, ?)", [list(pair) for pair in meanings])


def _portions(tables: Iterable[Path]) -> Iterator[list[Path]]:
    """The tables in portions for one transaction each."""
    some: list[Path] = []
    size = 0
    for table in tables:
        some.append(table)
        size += table.stat().st_size
        if size >= _TRANSACTION:
            yield some
            some, size = [], 0
    if some:
        yield some
