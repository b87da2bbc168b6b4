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

#: A table, its columns and their kinds of types; the strings of a column may be dictionary-encoded in one batch and
#: plain in the next, which can't be combined.
_Key: TypeAlias = "tuple[str | type, ...]"
#: Rows, and the run of each row, in stretches.
_Waiting: TypeAlias = "tuple[list[pa.Table], list[int], list[int]]"


class SmallInserts:
    """Collected batches by table and columns, each with its run."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, _Waiting] = {}
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
            schema = batch.schema
            key = (table, *schema.names, *map(type, schema.types))
            parts, runs, counts = self._waiting.setdefault(key, ([], [], []))
            parts.append(pa.Table.from_batches([batch]))
            runs.append(run_id)
            counts.append(batch.num_rows)
            if len(parts) == _JOINED:
                parts[:] = [_joined(parts)]
        self._bytes += size
        return rows

    def give(self) -> Iterator[tuple[str, pa.Table]]:
        """Remove and return all collected batches, by table."""
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for (table, *_), (parts, runs, counts) in waiting.items():
            assert isinstance(table, str)
            yield table, _joined(parts).add_column(0, "run_id", pa.array(np.repeat(np.array(runs, np.int64), counts)))


def _joined(tables: list[pa.Table]) -> pa.Table:
    """Return all rows in one piece, because DuckDB stores every piece apart until the commit."""
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
