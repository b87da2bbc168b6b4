"""Records and tables as data: loaded from `schemas/`, turned into dtypes, Arrow schemas, DDL and docs."""

from traceconv.schema.load import record, record_by_tag, records, table, tables
from traceconv.schema.model import Column, Field, RecordSchema, TableSchema

__all__ = [
    "Column",
    "Field",
    "RecordSchema",
    "TableSchema",
    "record",
    "record_by_tag",
    "records",
    "table",
    "tables",
]
