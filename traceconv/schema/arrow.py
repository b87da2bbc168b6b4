"""Table schema → Arrow schema: what the batches of a table look like on the way into the store."""

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
}
_TEXT = pa.dictionary(pa.int32(), pa.string())


@cache
def arrow_schema(table_name: str) -> pa.Schema:
    """The Arrow schema of a table. Text columns are dictionary-encoded, except `json`, which is plain."""
    fields = []
    for column in table(table_name).columns:
        if column.type == "str":
            fields.append(pa.field(column.name, _TEXT))
        elif column.type == "json":
            fields.append(pa.field(column.name, pa.string()))
        else:
            fields.append(pa.field(column.name, _ARROW[column.type]))
    return pa.schema(fields)
