"""Rows put aside between the two passes: Arrow batches in a temporary file, packed, read back in order or by id.

Texts that many rows share (names, categories) are kept once a batch; each batch stands for itself in the file.
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
from numpy.typing import NDArray

from traceconv.base.prefetch import prefetch
from traceconv.normalize.sort.spool import give_up, put_aside_file, room_needed

Int64 = NDArray[np.int64]

#: Rows of a batch, or its bytes, at least: small ones are joined, so many at most.
_BATCH_ROWS, _BATCH_BYTES, _BATCH_PARTS = 40_000, 5 << 20, 512
#: Rows that wait may be cut out of columns with many more rows: so much of those is kept at most.
_KEPT_BYTES = 16 << 20
_CACHED = 4
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")
#: A text that many rows share.
SHARED = pa.dictionary(pa.int32(), pa.string())


#: row: how many slices stand before it in the source.
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
MARKER_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("track_id", pa.int64()),
        ("ts_ns", pa.int64()),
        ("scope", SHARED),
        ("category", SHARED),
        ("name", SHARED),
        ("args", pa.string()),
    ]
)
#: step: 0 start, 1 step, 2 end. bound: the slice that it stands on; −1: the one that encloses it.
FLOW_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("key", pa.int64()),
        ("ts_ns", pa.int64()),
        ("step", pa.int32()),
        ("bound", pa.int64()),
        ("category", SHARED),
        ("name", SHARED),
        ("external_id", pa.string()),
    ]
)
COUNTER_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("track_id", pa.int64()),
        ("series", SHARED),
        ("ts_ns", pa.int64()),
        ("value", pa.float64()),
        ("value_int", pa.int64()),
    ]
)


@dataclass(slots=True)
class _Waiting:
    """Rows of one group that are not written yet. The batches from `cut` on keep all that they were cut out of.

    bytes  what they take, about
    """

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    cut: int = 0
    kept_bytes: int = 0

    def add(self, batch: pa.RecordBatch, size_bytes: int) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += size_bytes
        self.kept_bytes += batch.get_total_buffer_size()

    @property
    def full(self) -> bool:
        return self.rows >= _BATCH_ROWS or self.bytes >= _BATCH_BYTES or len(self.batches) >= _BATCH_PARTS

    def let_go(self) -> None:
        """Copies the rows out of what they were cut from."""
        loose = self.batches[self.cut :]
        if len(loose) == 1:  # which joining would leave as it is
            loose = [loose[0].take(pa.array(np.arange(loose[0].num_rows)))]
        self.batches[self.cut :] = _joined(loose)
        self.cut = len(self.batches)
        self.kept_bytes = 0


class Lane:
    """Rows of one schema whose first column is a rising id.

    Rows may be put aside in groups: a batch has rows of one group only, and only they come in the order of their ids.
    When there are few rows, all of them do.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._texts = [number for number, field in enumerate(schema) if pa.types.is_string(field.type)]
        self.count = 0
        self._file: BinaryIO | None = None
        self._offsets: list[int] = [0]
        self._waiting: dict[int, _Waiting] = {}
        self._first_ids: list[int] = []
        self._first_rows: list[int] = []
        self._cache: dict[int, pa.RecordBatch] = {}

    def append(self, columns: Sequence[pa.Array], group: int = 0) -> None:
        """Adds rows, given column by column."""
        batch = pa.RecordBatch.from_arrays(list(columns), schema=self.schema)
        if not batch.num_rows:
            return
        waiting = self._waiting.setdefault(group, _Waiting())
        # Arrow's own count of all columns, shared texts too, takes several times as long.
        waiting.add(batch, 8 * batch.num_columns * batch.num_rows + sum(columns[text].nbytes for text in self._texts))
        if waiting.full:
            self._write(self._waiting.pop(group).batches)
        elif waiting.kept_bytes > _KEPT_BYTES:
            waiting.let_go()

    def _write(self, waiting: list[pa.RecordBatch]) -> None:
        with room_needed():
            if self._file is None:
                self._file = put_aside_file()
            for batch in _joined(waiting):
                with pa.ipc.new_stream(self._file, self.schema, options=_PACKED) as writer:
                    writer.write_batch(batch)
                self._file.flush()
                self._first_ids.append(batch.column(0)[0].as_py())
                self._first_rows.append(self.count)
                self._offsets.append(self._file.tell())
                self.count += batch.num_rows

    def end(self) -> None:
        """No more rows come: from now on they are read. When there are few, all are in the order of their ids."""
        waiting = [waiting.batches for waiting in self._waiting.values()]
        self._waiting = {}
        if not self.count and len(waiting) > 1:
            rows = pa.Table.from_batches(list(chain.from_iterable(waiting))).combine_chunks()
            order = np.argsort(rows.column(0).to_numpy(), kind="stable")
            waiting = [rows.take(pa.array(order)).to_batches()]
        for batches in waiting:
            self._write(batches)

    def batches(self, *columns: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All rows, in batches, each with the number of the rows before it. `columns`: only these (none: all)."""
        return prefetch((first, self._batch(number, *columns)) for number, first in enumerate(self._first_rows))

    def _batch(self, number: int, *columns: str) -> pa.RecordBatch:
        assert self._file is not None
        first, end = self._offsets[number : number + 2]
        packed = os.pread(self._file.fileno(), end - first, first)
        fields = sorted(self.schema.get_field_index(name) for name in columns) or None
        return pa.ipc.open_stream(packed, options=pa.ipc.IpcReadOptions(included_fields=fields)).read_next_batch()

    def parts(self) -> Iterator[tuple[int, int, Callable[..., pa.RecordBatch]]]:
        """The same, read only when asked for: rows before them, rows, what reads them (only columns that are named)."""
        for number, (first, end) in enumerate(pairwise((*self._first_rows, self.count))):
            yield first, end - first, partial(self._batch, number)

    def find(self, ids: Int64) -> list[tuple[Int64, pa.RecordBatch]]:
        """The rows with these ids (those that are there): places in `ids`, and the rows for them.

        Only for lanes without groups.
        """
        if not self._first_ids or not len(ids):
            return []
        numbers = np.searchsorted(np.array(self._first_ids, np.int64), ids, side="right") - 1
        found = []
        for number in np.unique(numbers[numbers >= 0]).tolist():
            batch = self._cached(number)
            own = batch.column(0).to_numpy()
            places = np.flatnonzero(numbers == number)
            at = np.searchsorted(own, ids[places])
            hit = (at < len(own)) & (own[np.minimum(at, len(own) - 1)] == ids[places])
            found.append((places[hit], batch.take(pa.array(at[hit]))))
        return found

    def _cached(self, number: int) -> pa.RecordBatch:
        batch = self._cache.pop(number, None)
        if batch is None:
            batch = self._batch(number)
            while len(self._cache) >= _CACHED:
                del self._cache[next(iter(self._cache))]
        self._cache[number] = batch
        return batch

    def close(self) -> None:
        """Frees the disk space."""
        self._cache.clear()
        if self._file is not None:
            give_up(self._file)
            self._file = None


def _joined(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows, in one batch (more when they are too large for one), which keeps nothing else."""
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined
