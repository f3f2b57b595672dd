"""The table of `export` as Parquet. Needs pyarrow, which only this module imports."""

import pyarrow as pa
import pyarrow.parquet

from linkscope.report.export import COLUMNS, rows
from linkscope.runfile import Run

TABLE_SCHEMA = 2  # increases when a column is removed or changes its meaning
_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def to_parquet(run: Run) -> bytes:
    """A file with the columns and rows of the CSV. An empty cell of the CSV is null here."""
    schema = pa.schema([pa.field(name, _TYPES[kind]) for name, kind, _, _ in COLUMNS], metadata=_metadata(run))
    columns = [list(cells) for cells in zip(*rows(run), strict=True)] or [[] for _ in COLUMNS]
    arrays = [pa.array(cells, field.type) for cells, field in zip(columns, schema, strict=True)]
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), sink)
    return bytes(sink.getvalue().to_pybytes())


def _metadata(run: Run) -> dict[str, str]:
    return {
        "linkscope.schema": str(TABLE_SCHEMA),
        "linkscope.machine": str(run.header.machine.get("name", "")),
        "linkscope.modelled": str(run.modelled).lower(),
        "linkscope.started": run.header.started,
        "linkscope.version": str(run.header.tool.get("version", "")),
    }
