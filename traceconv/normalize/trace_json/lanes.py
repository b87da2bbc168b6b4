"""Rows put aside between the two passes: Arrow batches in a temporary file, packed, read back in order or by id."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traceconv.ahead import ahead
from traceconv.errors import OutputError

Int64 = NDArray[np.int64]

#: Rows of a batch, or its bytes, at least: small ones are joined.
_BATCH_ROWS, _BATCH_BYTES = 40_000, 5 << 20
_CACHED = 4


SLICE_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("track_id", pa.int32()),
        ("name", pa.string()),
        ("category", pa.string()),
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
        ("scope", pa.string()),
        ("category", pa.string()),
        ("name", pa.string()),
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
        ("category", pa.string()),
        ("name", pa.string()),
        ("external_id", pa.string()),
    ]
)
COUNTER_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("track_id", pa.int64()),
        ("series", pa.string()),
        ("ts_ns", pa.int64()),
        ("value", pa.float64()),
        ("value_int", pa.int64()),
    ]
)


class Lane:
    """Rows of one schema whose first column is a rising id."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.count = 0
        self._file: BinaryIO | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._first_ids: list[int] = []
        self._first_rows: list[int] = []
        self._cache: dict[int, pa.RecordBatch] = {}

    def append(self, columns: Sequence[pa.Array]) -> None:
        """Adds rows, given column by column."""
        batch = pa.RecordBatch.from_arrays(list(columns), schema=self.schema)
        if not batch.num_rows:
            return
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= _BATCH_ROWS or self._waiting_bytes >= _BATCH_BYTES:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        try:
            if self._writer is None:
                self._file = cast(BinaryIO, tempfile.TemporaryFile(prefix="traceconv-"))  # noqa: SIM115 - closed in close()
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                self._writer = pa.ipc.new_file(self._file, self.schema, options=options)
            table = pa.Table.from_batches(self._waiting).combine_chunks()
            for batch in table.to_batches():
                self._first_ids.append(batch.column(0)[0].as_py())
                self._first_rows.append(self.count)
                self.count += batch.num_rows
                self._writer.write_batch(batch)
        except OSError as error:
            raise OutputError(
                f"can't put rows aside in {tempfile.gettempdir()}: {error.strerror}; make room, or set TMPDIR"
            ) from error
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def end(self) -> None:
        """No more rows come: from now on they are read."""
        self._write()
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._writer = None
            self._file.seek(0)
            self._reader = pa.ipc.open_file(self._file)

    def batches(self, *columns: str) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All rows, in batches, each with the number of the rows before it. `columns`: only these (none: all)."""
        return ahead(self._read(columns))

    def _read(self, columns: tuple[str, ...]) -> Iterator[tuple[int, pa.RecordBatch]]:
        reader = self._reader
        if reader is None:
            return
        if columns:
            wanted = [self.schema.get_field_index(name) for name in columns]
            reader = pa.ipc.open_file(self._file, options=pa.ipc.IpcReadOptions(included_fields=wanted))
        for number, first in enumerate(self._first_rows):
            yield first, reader.get_batch(number)

    def parts(self) -> Iterator[tuple[int, int, Callable[[], pa.RecordBatch]]]:
        """The same, read only when asked for: rows before them, rows, what reads them."""
        for number, (first, end) in enumerate(pairwise((*self._first_rows, self.count))):
            yield first, end - first, partial(self._cached, number)

    def find(self, ids: Int64) -> list[tuple[Int64, pa.RecordBatch]]:
        """The rows with these ids (those that are there): places in `ids`, and the rows for them."""
        if self._reader is None or not len(ids):
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
            assert self._reader is not None
            batch = self._reader.get_batch(number)
            while len(self._cache) >= _CACHED:
                del self._cache[next(iter(self._cache))]
        self._cache[number] = batch
        return batch

    def close(self) -> None:
        """Frees the disk space."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._reader = None
        self._cache.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
