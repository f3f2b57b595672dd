"""All points of the site in one table: CSV always, Parquet with pyarrow, DuckDB with duckdb. One run at a time."""

import contextlib
import csv
import gzip
import importlib.util
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from linkscope.report.export import COLUMNS
from linkscope.site.entry import Entry
from linkscope.site.folder import Folder
from linkscope.site.make import ADDED

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
        _write_parquet(folder, tables)
    if DUCKDB in formats():
        _write_duckdb(folder)


def _write_csv(folder: Folder, tables: Iterable[Path]) -> None:
    with open(folder.begin(CSV), "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as out:
        out.write((",".join(name for name, _ in _TYPES) + "\n").encode())
        for table in tables:
            with open(table, "rb") as lines:
                next(lines)
                out.writelines(lines)
    folder.end(CSV)


def _write_parquet(folder: Folder, tables: Iterable[Path]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([pa.field(name, kinds[kind]) for name, kind in _TYPES])
    with pyarrow.parquet.ParquetWriter(folder.begin(PARQUET), schema, compression="zstd") as writer:
        for table in tables:
            columns = [list(cells) for cells in zip(*_typed_rows(table), strict=True)] or [[] for _ in _TYPES]
            writer.write_table(pa.Table.from_arrays([
                pa.array(cells, field.type) for cells, field in zip(columns, schema, strict=True)
            ], schema=schema))  # fmt: skip
    folder.end(PARQUET)


def _typed_rows(table: Path) -> Iterator[list[Any]]:
    with open(table, encoding="utf-8", newline="") as lines:
        rows = csv.reader(lines)
        next(rows)
        for row in rows:
            yield [_typed(text, kind) for text, (_, kind) in zip(row, _TYPES, strict=True)]


def _typed(text: str, kind: type) -> Any:
    if text == "":
        return None
    return text == "true" if kind is bool else kind(text)


def _write_duckdb(folder: Folder) -> None:
    import duckdb

    kinds = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
    meanings = [*ADDED_MEANINGS, *((name, meaning) for name, _, meaning, _ in COLUMNS)]
    columns = ", ".join(f'"{name}" {kinds[kind]}' for name, kind in _TYPES)
    source = str(folder.root / CSV).replace("'", "''")
    with tempfile.TemporaryDirectory() as temporary:  # DuckDB writes more than one file at a time
        target = Path(temporary) / DUCKDB
        with contextlib.closing(duckdb.connect(str(target))) as base:
            base.execute(f"CREATE TABLE points ({columns})")
            base.execute(f"COPY points FROM '{source}' (FORMAT csv, HEADER, COMPRESSION gzip)")
            base.execute('CREATE TABLE columns ("column" VARCHAR, meaning VARCHAR)')
            base.executemany("INSERT INTO columns VALUES (?, ?)", [list(pair) for pair in meanings])
        shutil.copyfile(target, folder.begin(DUCKDB))
    folder.end(DUCKDB)
