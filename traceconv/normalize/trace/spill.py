"""Rows that are spilled between the two passes: compressed Arrow batches in a temporary file, read in order or by ID.

Texts that many rows share (names, categories) are stored once per batch; each batch can be read on its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64
from traceconv.base.prefetch import prefetch
from traceconv.base.workers import WorkBehind, Workers
from traceconv.normalize.sort.spool import close_quietly, spill_file, spilling
from traceconv.schema.arrow import arrow_schema

#: Small batches are joined until they have this many rows, bytes or parts.
_BATCH_ROWS, _BATCH_BYTES, _BATCH_PARTS = 40_000, 5 << 20, 512
#: Limit for the columns that buffered slices keep alive: they may have many more rows than the slices.
_RETAINED_BYTES = 16 << 20
#: Batches that `find` keeps in memory.
_CACHED = 4
#: Rows that stay in memory if there are no others, with the columns that they keep alive.
_KEPT_BYTES = 1 << 20
# The thread that writes a batch does all of it: to hand its columns to Arrow's threads takes more CPU time.
_WRITTEN = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
#: A text that many rows share.
SHARED = pa.dictionary(pa.int32(), pa.string())


#: row: the number of slices before it in the source.
SLICE_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("row", pa.int64()),
        ("track_id", pa.int32()),
        ("name", SHARED),
        ("category", SHARED),
        ("start_ns", pa.int64()),
        ("dur_ns", pa.int64()),
        ("thread_start_ns", pa.int64()),
        ("thread_dur_ns", pa.int64()),
        ("args", pa.string()),
    ]
)
END_SCHEMA = pa.schema([("id", pa.int64()), ("thread_end_ns", pa.int64()), ("args", pa.string())])
#: step: 0 start, 1 step, 2 end. bound: the slice that it belongs to; −1: the one that encloses it. track_id: of a flow
#: event, negative for a device's; else 0.
FLOW_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("key", pa.int64()),
        ("ts_ns", pa.int64()),
        ("step", pa.int32()),
        ("bound", pa.int64()),
        ("track_id", pa.int32()),
        ("category", SHARED),
        ("name", SHARED),
        ("external_id", pa.string()),
    ]
)
#: The columns of the tables, without run_id.
MARKER_SCHEMA, COUNTER_SCHEMA = (arrow_schema(table).remove(0) for table in ("marker", "counter"))


@dataclass(slots=True)
class _Buffer:
    """Rows of one group that are not written yet. Batches from `sliced` on keep the larger columns they are cut from.

    size_bytes      approximate size of the rows
    retained_bytes  size of the columns that the slices keep alive
    """

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0
    sliced: int = 0
    retained_bytes: int = 0

    def add(self, batch: pa.RecordBatch, size_bytes: int) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.size_bytes += size_bytes
        self.retained_bytes += batch.get_total_buffer_size()

    @property
    def full(self) -> bool:
        return self.rows >= _BATCH_ROWS or self.size_bytes >= _BATCH_BYTES or len(self.batches) >= _BATCH_PARTS

    def release(self) -> None:
        """Copy the rows, so that the columns they were cut from can be freed."""
        slices = self.batches[self.sliced :]
        if len(slices) == 1:  # joining would return it unchanged
            slices = [slices[0].take(pa.array(np.arange(slices[0].num_rows)))]
        self.batches[self.sliced :] = _joined(slices)
        self.sliced = len(self.batches)
        self.retained_bytes = 0


class SpilledRows:
    """Rows of one schema. For groups and `find`, its first column must be a rising ID.

    Rows may be added in groups: a batch has rows of one group, and only within a group are IDs in order.
    If there are few rows, one batch has all of them, group by group.
    """

    def __init__(self, schema: pa.Schema, workers: Workers | None = None) -> None:
        """`workers`: write full buffers; without them, `append` does."""
        self.schema = schema
        self._behind = WorkBehind(workers)
        self._texts = [number for number, field in enumerate(schema) if pa.types.is_string(field.type)]
        self._shared = [number for number, field in enumerate(schema) if field.type == SHARED]
        self.count = 0
        #: Columns with a value in any row, after `end`.
        self.valued: set[str] = set()
        self._file: BinaryIO | None = None
        #: All rows, if there are so few that no file was written.
        self._kept: list[pa.RecordBatch] = []
        self._offsets: list[int] = [0]
        self._buffers: dict[int, _Buffer] = {}
        self._first_ids: list[int] = []
        self._first_rows: list[int] = []
        #: The batches that `find` read last, by number. Not functools.lru_cache: it would keep this object alive.
        self._recent: dict[int, pa.RecordBatch] = {}

    def append(self, columns: Sequence[pa.Array], group: int = 0) -> None:
        """Add rows, given column by column."""
        batch = pa.RecordBatch.from_arrays(list(columns), schema=self.schema)
        if not batch.num_rows:
            return
        buffer = self._buffers.setdefault(group, _Buffer())
        # Arrow's own size of all columns takes several times as long to compute.
        texts = [*(columns[text] for text in self._texts), *(columns[shared].dictionary for shared in self._shared)]
        buffer.add(batch, 8 * batch.num_columns * batch.num_rows + sum(column.nbytes for column in texts))
        if buffer.full:
            self._behind.submit(self._write, self._buffers.pop(group).batches)
        elif buffer.retained_bytes > _RETAINED_BYTES:
            buffer.release()

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        with spilling():
            if self._file is None:
                self._file = spill_file()
            for batch in _joined(batches):
                self._note(batch)
                with pa.ipc.new_stream(self._file, self.schema, options=_WRITTEN) as writer:
                    writer.write_batch(batch)
                self._file.flush()
                self._offsets.append(self._file.tell())

    def _note(self, batch: pa.RecordBatch) -> None:
        self._first_ids.append(batch.column(0)[0].as_py())
        self._first_rows.append(self.count)
        self.count += batch.num_rows
        for number, name in enumerate(self.schema.names):
            if name not in self.valued and batch.column(number).null_count < batch.num_rows:
                self.valued.add(name)

    def end(self) -> None:
        """Finish writing. If there are few rows, they are all put into one batch."""
        self._behind.wait()
        buffered = [buffer.batches for buffer in self._buffers.values()]
        kept_bytes = sum(buffer.size_bytes + buffer.retained_bytes for buffer in self._buffers.values())
        is_small = not self.count and kept_bytes < _KEPT_BYTES
        self._buffers = {}
        if not self.count and len(buffered) > 1:
            buffered = [list(chain.from_iterable(buffered))]
        if is_small:
            self._kept = list(chain.from_iterable(map(_joined, buffered)))
            for batch in self._kept:
                self._note(batch)
            return
        for batches in buffered:
            self._write(batches)

    def batches(self, *columns: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all rows in batches, each with the number of rows before it. `columns`: only these (none: all)."""
        return prefetch((first, self._batch(number, *columns)) for number, first in enumerate(self._first_rows))

    def _batch(self, number: int, *columns: str) -> pa.RecordBatch:
        fields = sorted(self.schema.get_field_index(name) for name in columns) or None
        if self._kept:
            return self._kept[number] if fields is None else self._kept[number].select(fields)
        assert self._file is not None
        first, end = self._offsets[number : number + 2]
        compressed = os.pread(self._file.fileno(), end - first, first)
        # Arrow's threads decompress: if only this thread did, its heap would keep 30 MB more.
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        return pa.ipc.open_stream(compressed, options=options).read_next_batch()

    def parts(self) -> Iterator[tuple[int, int, Callable[..., pa.RecordBatch]]]:
        """Yield each batch as (rows before it, rows, function that reads it or only the named columns of it)."""
        for number, (first, end) in enumerate(pairwise((*self._first_rows, self.count))):
            yield first, end - first, partial(self._batch, number)

    def find(self, ids: Int64) -> list[tuple[Int64, pa.RecordBatch]]:
        """Return the rows with these IDs, as far as they exist: their places in `ids`, and the rows. No groups."""
        if not self._first_ids or not len(ids):
            return []
        numbers = np.searchsorted(np.array(self._first_ids, np.int64), ids, side="right") - 1
        found = []
        for number in np.unique(numbers[numbers >= 0]).tolist():
            batch = self._recent[number] = self._recent.pop(number, None) or self._batch(number)
            if len(self._recent) > _CACHED:
                del self._recent[next(iter(self._recent))]
            own = batch.column(0).to_numpy()
            places = np.flatnonzero(numbers == number)
            at = np.searchsorted(own, ids[places])
            hit = (at < len(own)) & (own[np.minimum(at, len(own) - 1)] == ids[places])
            found.append((places[hit], batch.take(pa.array(at[hit]))))
        return found

    def close(self) -> None:
        """Free the disk space."""
        self._recent = {}
        self._kept = []
        if self._file is not None:
            close_quietly(self._file)
            self._file = None


def _joined(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Copy the rows into one batch (more only if they are too large for one)."""
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
