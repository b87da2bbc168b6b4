"""Collect small batches of rows, because every INSERT has a fixed cost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

import numpy as np
import pyarrow as pa

#: Maximum rows of a collected insert, and maximum bytes of all of them.
SMALL_ROWS = 8192
_MAX_BYTES = 8 << 20
#: Collected batches are joined when there are this many: each column of a batch takes about a kilobyte.
_JOINED = 64

#: A table and its columns; the strings of a column may be dictionary-encoded in one batch and plain in the next, which
#: can't be combined.
_Key: TypeAlias = "tuple[str, tuple[tuple[str, bool], ...]]"


class SmallInserts:
    """Collected batches by table and columns, each with its run."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, list[pa.Table]] = {}
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether the collected batches should be stored."""
        return self._bytes > _MAX_BYTES

    def take(self, table: str, run_id: int, batches: Iterator[pa.RecordBatch]) -> int | Iterator[pa.RecordBatch]:
        """Collect small batches and return their number of rows; return larger batches unchanged."""
        seen: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            seen.append(batch)
            rows += batch.num_rows
            size += batch.get_total_buffer_size()
            if rows > SMALL_ROWS or size > _MAX_BYTES:
                return chain(seen, batches)
        for batch in seen:
            if not batch.num_rows:
                continue
            run_ids = pa.Array.from_buffers(
                pa.int64(), batch.num_rows, [None, pa.py_buffer(np.full(batch.num_rows, run_id, np.int64))]
            )
            with_run = pa.Table.from_arrays([run_ids, *batch.columns], names=["run_id", *batch.schema.names])
            columns = tuple((field.name, pa.types.is_dictionary(field.type)) for field in with_run.schema)
            waiting = self._waiting.setdefault((table, columns), [])
            waiting.append(with_run)
            if len(waiting) % _JOINED == 0:
                waiting[-_JOINED:] = [_joined(waiting[-_JOINED:])]
        self._bytes += size
        return rows

    def give(self) -> Iterator[tuple[str, pa.Table]]:
        """Remove and return all collected batches, by table."""
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for (table, _), tables in waiting.items():
            yield table, _joined(tables)


def _joined(tables: list[pa.Table]) -> pa.Table:
    """Return all rows in one piece, because DuckDB stores every piece apart until the commit."""
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
