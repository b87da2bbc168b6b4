"""Columns → Arrow batches of a table, with the types and the order of the table's schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Mask
from traceconv.schema.arrow import arrow_schema


class Nullable(NamedTuple):
    """Numbers with a mask of those that are NULL (None: none is)."""

    values: NDArray[np.generic]
    null: Mask | None

    @property
    def mask(self) -> Mask:
        """The mask as an array."""
        return np.zeros(len(self.values), np.bool_) if self.null is None else self.null


_TEXT = pa.string()

ColumnData: TypeAlias = "pa.Array | NDArray[np.generic] | Nullable"


def row_batch(table: str, columns: Mapping[str, ColumnData]) -> pa.RecordBatch:
    """Return a batch of `table` with the given columns, in the schema's order. Other columns are NULL in the store.

    A text column may be plain instead of dictionary-encoded: in all batches of a table, or in none.
    Raises KeyError for unknown columns.
    """
    kinds = _kinds(table)
    unknown = columns.keys() - kinds.keys()
    if unknown:
        raise KeyError(f"{table} has no {', '.join(sorted(unknown))}")
    names = tuple(name for name in kinds if name in columns)
    arrays = [_array(columns[name], kinds[name]) for name in names]
    plain = tuple(array.type == _TEXT for array in arrays)
    return pa.RecordBatch.from_arrays(arrays, schema=_schema(table, names, plain))


@cache  # as are the other properties of tables: pyarrow makes new objects for each field that is asked for
def _kinds(table: str) -> dict[str, pa.DataType]:
    """Return the types of all columns, in the table's order."""
    return {field.name: field.type for field in arrow_schema(table)}


@cache
def _schema(table: str, names: tuple[str, ...], plain: tuple[bool, ...]) -> pa.Schema:
    """Return the schema of these columns; `plain`: which are text without dictionary."""
    kinds = _kinds(table)
    return pa.schema([(name, _TEXT if is_plain else kinds[name]) for name, is_plain in zip(names, plain, strict=True)])


def rows_from_tuples(table: str, names: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> pa.RecordBatch:
    """Return a batch from Python tuples, for tables with few rows. Text is plain: a dictionary would take longer."""
    places, kinds, schema = _layout(table, names)
    values = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = []
    for place, kind in zip(places, kinds, strict=True):
        column = values[place]
        is_null = column.count(None) == len(column)  # as many columns of a track or an op
        arrays.append(pa.nulls(len(column), kind) if is_null else pa.array(column, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def plain_batch(table: str, names: tuple[str, ...], columns: Mapping[str, ColumnData], count: int) -> pa.RecordBatch:
    """Return a batch of `count` rows with the columns `names`, as `rows_from_tuples` does; NULL if not given."""
    _, kinds, schema = _layout(table, names)
    arrays = []
    for name, kind in zip(schema.names, kinds, strict=True):
        array = _array(columns[name], kind) if name in columns else pa.nulls(count, kind)
        arrays.append(array.dictionary_decode() if pa.types.is_dictionary(array.type) else array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@cache
def _layout(table: str, names: tuple[str, ...]) -> tuple[list[int], list[pa.DataType], pa.Schema]:
    """Return the place in `names` of each column in the table's order, its type without dictionary, and the schema."""
    by_name = {name: place for place, name in enumerate(names)}
    plain = {
        name: kind.value_type if pa.types.is_dictionary(kind) else kind
        for name, kind in _kinds(table).items()
        if name in by_name
    }
    return [by_name[name] for name in plain], list(plain.values()), pa.schema(list(plain.items()))


def _array(data: ColumnData, kind: pa.DataType) -> pa.Array:
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return data
    values, null = (data.values, data.null) if isinstance(data, Nullable) else (data, None)
    if null is not None and not null.any():
        null = None
    if kind == pa.int64() and values.dtype != np.int64:
        values = values.astype(np.int64)
    return pa.array(np.ascontiguousarray(values), kind, mask=null)
