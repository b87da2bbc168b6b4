"""Columns → Arrow batches of a table, with the types and the order of the table's schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.base.int64 import Mask
from traceconv.schema.arrow import arrow_schema


@dataclass(frozen=True, slots=True)
class Nullable:
    """Numbers with a mask of those that are NULL (None: none is)."""

    values: NDArray[np.generic]
    null: Mask | None

    @property
    def mask(self) -> Mask:
        """The mask as an array."""
        return np.zeros(len(self.values), np.bool_) if self.null is None else self.null


ColumnData: TypeAlias = "pa.Array | NDArray[np.generic] | Nullable"


def row_batch(table: str, columns: Mapping[str, ColumnData]) -> pa.RecordBatch:
    """Return a batch of `table` with the given columns, in the schema's order. Other columns are NULL in the store.

    A text column may be plain instead of dictionary-encoded: in all batches of a table, or in none.
    Raises KeyError for unknown columns.
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
    """Return a batch from Python tuples, for tables with few rows."""
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
