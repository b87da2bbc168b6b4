"""Table schema → Arrow schema of the batches that are written to the store."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from traceconv.schema.load import table

_ARROW = {
    "i32": pa.int32(),
    "i64": pa.int64(),
    "u64": pa.uint64(),
    "f64": pa.float64(),
    "bool": pa.bool_(),
    "str": pa.dictionary(pa.int32(), pa.string()),
    "json": pa.string(),
}


@cache
def arrow_schema(table_name: str) -> pa.Schema:
    """Return the Arrow schema of a table. Text columns are dictionary-encoded, except `json`, which is plain."""
    return pa.schema([(column.name, _ARROW[column.type]) for column in table(table_name).columns])
