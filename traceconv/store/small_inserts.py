"""Collect small batches of rows, because every INSERT has a fixed cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


def if_small(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch] | Iterator[pa.RecordBatch]:
    """Return small batches, which are worth collecting, in a list, and larger batches unchanged."""
    seen: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        seen.append(batch)
        rows += batch.num_rows
        size += batch.get_total_buffer_size()
        if rows > SMALL_ROWS or size > _MAX_BYTES:
            return chain(seen, batches)
    return seen


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

    def take(self, table: str, run_id: int | None, batches: Iterator[pa.RecordBatch]) -> int | Iterator[pa.RecordBatch]:
        """Collect small batches and return their number of rows; return larger batches unchanged.

        run_id  of all rows, if they don't have that column
        """
        found = if_small(batches)
        if not isinstance(found, list):
            return found
        for batch in found:
            if batch.num_rows:
                self.take_of_runs(table, [] if run_id is None else [run_id], [batch.num_rows], [batch])
        return sum(int(batch.num_rows) for batch in found)

    def take_of_runs(
        self, table: str, runs: Sequence[int], counts: Sequence[int], batches: Sequence[pa.RecordBatch]
    ) -> None:
        """Collect batches with the same schema; `runs` and `counts`: the run of the rows, and their number."""
        self._bytes += sum(batch.get_total_buffer_size() for batch in batches)
        waiting = self._waiting(table, batches[0].schema)
        waiting.batches += batches
        waiting.runs += runs
        waiting.counts += counts
        if len(waiting.batches) >= _JOINED:
            waiting.batches = _joined(waiting.batches).to_batches()

    def take_tuples(self, table: str, run_id: int, names: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> int:
        """Collect a few rows, given as values of the columns `names`, and return their number."""
        waiting = self._tuples.setdefault((table, names), [])
        before = len(waiting)
        waiting.extend((run_id, *row) for row in rows)
        count = len(waiting) - before
        self._bytes += _VALUE_BYTES * len(names) * count
        return count

    def give_batches(self) -> Iterator[tuple[str, list[int], list[int], pa.Table]]:
        """Remove and return all collected batches: table, runs and numbers of rows in stretches, and the rows."""
        batches, self._batches, self._bytes = self._batches, {}, 0
        for table, parts in batches.items():
            for part in parts:
                yield table, part.runs, part.counts, _joined(part.batches)

    def give(self) -> Iterator[tuple[str, pa.Table | pa.RecordBatch]]:
        """Remove and return all collected rows, by table."""
        tuples, self._tuples = self._tuples, {}
        for table, runs, counts, joined in self.give_batches():
            if runs:
                joined = joined.add_column(0, "run_id", pa.array(np.repeat(np.array(runs, np.int64), counts)))
            yield table, joined
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
