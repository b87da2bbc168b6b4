"""Collect small batches of rows, because every INSERT has a fixed cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from traceconv.normalize.rows import rows_from_tuples

#: Maximum rows of a collected insert, and maximum bytes of all of them.
SMALL_ROWS = 8192
_MAX_BYTES = 8 << 20
#: Collected batches are joined when there are this many: each column of a batch takes about a kilobyte.
_JOINED = 64
#: About the memory of a value in a tuple.
_VALUE_BYTES = 64

_Tuples: TypeAlias = "list[tuple[object, ...]]"


@dataclass(slots=True)
class _Waiting:
    """Batches of a table with the same schema, and the run of each row, in stretches."""

    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)


class SmallInserts:
    """Collected batches by table and schema, each with its run; and tuples by table and columns."""

    def __init__(self) -> None:
        self._batches: dict[str, list[_Waiting]] = {}
        self._tuples: dict[tuple[str, tuple[str, ...]], _Tuples] = {}
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether the collected rows should be stored."""
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
            waiting = self._waiting(table, batch.schema)
            waiting.batches.append(batch)
            waiting.runs.append(run_id)
            waiting.counts.append(batch.num_rows)
            if len(waiting.batches) == _JOINED:
                waiting.batches = _joined(waiting.batches).to_batches()
        self._bytes += size
        return rows

    def take_tuples(self, table: str, run_id: int, names: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> int:
        """Collect a few rows, given as values of the columns `names`, and return their number."""
        waiting = self._tuples.setdefault((table, names), [])
        before = len(waiting)
        waiting.extend((run_id, *row) for row in rows)
        count = len(waiting) - before
        self._bytes += _VALUE_BYTES * len(names) * count
        return count

    def give(self) -> Iterator[tuple[str, pa.Table | pa.RecordBatch]]:
        """Remove and return all collected rows, by table."""
        batches, self._batches, self._bytes = self._batches, {}, 0
        tuples, self._tuples = self._tuples, {}
        for table, parts in batches.items():
            for part in parts:
                runs = np.repeat(np.array(part.runs, np.int64), part.counts)
                yield table, _joined(part.batches).add_column(0, "run_id", pa.array(runs))
        for (table, names), rows in tuples.items():
            if rows:
                yield table, rows_from_tuples(table, ("run_id", *names), rows)

    def _waiting(self, table: str, schema: pa.Schema) -> _Waiting:
        """Return what waits with this schema. A comparison takes less time than a key of names and types."""
        parts = self._batches.setdefault(table, [])
        for part in parts:
            if part.schema.equals(schema):
                return part
        parts.append(_Waiting(schema))
        return parts[-1]


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    """Return all rows in one piece, because DuckDB stores every piece apart until the commit."""
    return pa.Table.from_batches(batches).combine_chunks()
