"""Columns → Arrow batches of a table: types, order and NULLs as the table's schema says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.schema.arrow import arrow_schema


class Nullable:
    """Numbers with a mask of those that are NULL (None: none is)."""

    __slots__ = ("null", "values")

    def __init__(self, values: NDArray[np.generic], null: NDArray[np.bool_] | None) -> None:
        self.values = values
        self.null = null


ColumnData: TypeAlias = "pa.Array | NDArray[np.generic] | Nullable"


def row_batch(table: str, columns: Mapping[str, ColumnData]) -> pa.RecordBatch:
    """A batch of `table` with the given columns, in the schema's order. Columns not given are NULL in the store.

    A text column may be plain where the schema has it coded: in all batches of a table, or in none.
    Raises KeyError for a column that the table does not have.
    """
    schema = arrow_schema(table)
    unknown = columns.keys() - set(schema.names)
    if unknown:
        raise KeyError(f"{table} has no {', '.join(sorted(unknown))}")
    fields = [field for field in schema if field.name in columns]
    arrays = [_array(columns[field.name], field.type) for field in fields]
    plain = [
        field.with_type(array.type) if array.type == pa.string() else field
        for field, array in zip(fields, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(plain))


def rows_from_tuples(table: str, names: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> pa.RecordBatch:
    """A batch from Python tuples, for tables of a few rows."""
    schema = arrow_schema(table)
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    by_name = dict(zip(names, values, strict=True))
    fields = [field for field in schema if field.name in by_name]
    arrays = []
    for field in fields:
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        array = pa.array(by_name[field.name], plain)
        arrays.append(array.dictionary_encode() if pa.types.is_dictionary(field.type) else array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _array(data: ColumnData, kind: pa.DataType) -> pa.Array:
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return data
    values, null = (data.values, data.null) if isinstance(data, Nullable) else (data, None)
    if null is not None and not null.any():
        null = None
    if kind == pa.int64() and values.dtype != np.int64:
        values = values.astype(np.int64)
    return pa.array(np.ascontiguousarray(values), kind, mask=null)
