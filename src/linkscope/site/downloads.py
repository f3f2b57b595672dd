"""All points of the site in one table: CSV always, Parquet with pyarrow, DuckDB with duckdb. One run at a time."""

import contextlib
import gzip
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkscope.report.export import COLUMNS
from linkscope.site.entry import Entry
from linkscope.site.folder import Folder
from linkscope.site.make import ADDED

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP = 1 << 14  # rows of a group in the Parquet file
# DuckDB would take most of the memory of the command. What one transaction adds must fit into this limit, and so must
# the buffer for text, which is larger unless it is set.
_DUCKDB_LIMITS: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "memory_limit": "96MB"}
_DUCKDB_TEXT = "header = true, auto_detect = false, parallel = false, buffer_size = 8388608, max_line_size = 1048576"
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


def described() -> list[tuple[str, str]]:
    """The tables with their meanings."""
    return [(name, _MEANINGS[name]) for name in formats()]


def write_tables(folder: Folder, entries: Iterable[Entry]) -> None:
    """Writes the tables from the points.csv of each run."""
    tables = [folder.root / entry.folder / "points.csv" for entry in entries]
    _write_csv(folder, tables)
    if PARQUET in formats():
        _apart(_write_parquet, folder.begin(PARQUET), tables)
        folder.end(PARQUET)
    if DUCKDB in formats():
        _apart(_write_duckdb, folder.begin(DUCKDB), tables)
        folder.end(DUCKDB)


def _apart(write: Callable[[Path, Any], None], target: Path, source: Any) -> None:
    """Calls a function in a process of its own: the libraries keep their memory until their process ends."""
    with ProcessPoolExecutor(1) as pool:
        pool.submit(write, target, source).result()


def _write_csv(folder: Folder, tables: Iterable[Path]) -> None:
    with open(folder.begin(CSV), "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as out:
        out.write((",".join(name for name, _ in _TYPES) + "\n").encode())
        for table in tables:
            with open(table, "rb") as lines:
                next(lines)
                out.writelines(lines)
    folder.end(CSV)


def _write_parquet(target: Path, tables: Iterable[Path]) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([pa.field(name, kinds[kind]) for name, kind in _TYPES])
    with pyarrow.parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for group in _groups(tables, schema):
            writer.write_table(group)


def _groups(tables: Iterable[Path], schema: "pa.Schema") -> Iterator["pa.Table"]:
    """The rows of the tables, some thousands together: a group for each run would be slow to write and to read."""
    import pyarrow as pa
    import pyarrow.csv

    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(column_types=schema, null_values=[""], strings_can_be_null=True)
    waiting: list[pa.Table] = []
    for table in tables:
        read = pyarrow.csv.ReadOptions(use_threads=False, block_size=max(1, table.stat().st_size))
        waiting.append(pyarrow.csv.read_csv(table, read_options=read, parse_options=parse, convert_options=convert))
        if sum(rows.num_rows for rows in waiting) >= _GROUP:
            yield pa.concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)


def _write_duckdb(target: Path, tables: Iterable[Path]) -> None:
    import duckdb

    kinds = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
    meanings = [*ADDED_MEANINGS, *((name, meaning) for name, _, meaning, _ in COLUMNS)]
    columns = ", ".join(f'"{name}" {kinds[kind]}' for name, kind in _TYPES)
    types = ", ".join(f"'{name}': '{kinds[kind]}'" for name, kind in _TYPES)
    with tempfile.TemporaryDirectory() as temporary:  # DuckDB writes more than one file at a time
        base_file = Path(temporary) / DUCKDB
        limits = _DUCKDB_LIMITS | {"temp_directory": temporary}
        with contextlib.closing(duckdb.connect(str(base_file), config=limits)) as base:
            base.execute(f"CREATE TABLE points ({columns})")
            for some in _portions(tables):
                names = ", ".join("'" + str(table).replace("'", "''") + "'" for table in some)
                source = f"read_csv([{names}], columns = {{{types}}}, {_DUCKDB_TEXT})"
                base.execute(f"INSERT INTO points SELECT * FROM {source}")
            base.execute('CREATE TABLE columns ("column" VARCHAR, meaning VARCHAR)')
            base.executemany("INSERT INTO columns VALUES (?, ?)", [list(pair) for pair in meanings])
        shutil.copyfile(base_file, target)


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
