"""Collect small batches of rows, because every INSERT has a fixed cost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

#: Maximum rows of a collected insert, and maximum bytes of all of them.
SMALL_ROWS = 8192
_MAX_BYTES = 8 << 20


class SmallInserts:
    """Collected batches by table and columns, each with its run."""

    def __init__(self) -> None:
        #: Strings of a column may be dictionary-encoded in one batch and plain in the next; these can't be combined.
        self._waiting: dict[tuple[str, tuple[tuple[str, bool], ...]], list[pa.RecordBatch]] = {}
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
            run_ids = pa.array([run_id] * batch.num_rows, pa.int64())
            with_run = pa.RecordBatch.from_arrays([run_ids, *batch.columns], names=["run_id", *batch.schema.names])
            columns = tuple((field.name, pa.types.is_dictionary(field.type)) for field in with_run.schema)
            self._waiting.setdefault((table, columns), []).append(with_run)
        self._bytes += size
        return rows

    def give(self) -> Iterator[tuple[str, pa.Table]]:
        """Remove and return all collected batches, by table."""
        waiting, self._waiting, self._bytes = self._waiting, {}, 0
        for (table, _), batches in waiting.items():
            yield (
                table,
                pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="permissive"),
            )
