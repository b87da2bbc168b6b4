"""A file of records: a thread fills templates and writes, while the next rows are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64
from traceconv.base.workers import Result, Workers
from traceconv.export.fill import fill_some
from traceconv.export.output import CountedFile
from traceconv.export.templates import Bound, Template

#: Rows that are fetched at once, and that are written at once: some MB. With fewer, threads wait for the interpreter.
_ROWS = 16_384
#: Size of the batches that are being written or wait for it, and what each takes beyond its own size.
_MOST_WAITING_BYTES, _CALL_BYTES = 12 << 20, 1 << 13
_BUFFER_BYTES = 1 << 20


class RecordFile:
    """Writes records to a file, in order: a thread fills the templates and writes.

    at_once  for the functions given to `later`: writes to the same file, in the thread that calls
    """

    def __init__(self, file: CountedFile, writer: Workers | None) -> None:
        """`writer`: None writes at once."""
        self._file = file
        self._writer = writer
        self._waiting: deque[tuple[Future[None], int]] = deque()
        self._waiting_bytes = 0
        self._buffer = bytearray(_BUFFER_BYTES)
        self.at_once = self if writer is None else RecordFile(file, None)

    def later(self, write: Callable[[], None], size_bytes: int = 0) -> None:
        """Let the thread call a function, after the records; wait while much waits for it. Raises what one raised.

        write  writes to `at_once`, and keeps `size_bytes` until then
        """
        if self._writer is None:
            write()
            return
        size_bytes += _CALL_BYTES
        while self._waiting and (self._waiting[0][0].done() or self._waiting_bytes + size_bytes > _MOST_WAITING_BYTES):
            self._await_first()
        self._waiting.append((self._writer.submit(write), size_bytes))
        self._waiting_bytes += size_bytes

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Let the thread call a function, which doesn't write, after the records; return its future result."""
        assert self._writer is not None
        return self._writer.submit(function)

    def write(self, data: bytes) -> None:
        """Write bytes after the records."""
        self.later(lambda: self._file.write(data), len(data))

    def write_later(self, function: Callable[[], bytes], size_bytes: int = 0) -> None:
        """Write the result of a function, which a thread calls, and which keeps `size_bytes`."""
        self.later(lambda: self._file.write(function()), size_bytes)

    def rows(self, template: Template, batch: pa.RecordBatch, order: Int64 | None = None) -> int:
        """Write a record for each row of a batch, or for those in `order`; return their number."""
        bound = template.bind(batch)
        rows = np.arange(batch.num_rows, dtype=np.int64) if order is None else order
        size_bytes = batch.nbytes
        for at in range(0, len(rows), _ROWS):
            piece = rows[at : at + _ROWS]
            self.later(partial(self._fill, bound, piece), size_bytes * len(piece) // len(rows))
        return len(rows)

    def query(
        self, connection: duckdb.DuckDBPyConnection, template: Template, query: str, most_rows: int = _ROWS
    ) -> Iterator[int]:
        """Write a record for each row of a query, in order; yield their numbers. `most_rows` are fetched at once."""
        batches = connection.sql(query).to_arrow_reader(min(most_rows, _ROWS))
        return (self.rows(template, batch) for batch in batches)

    def flush(self) -> None:
        """Write all records."""
        while self._waiting:
            self._await_first()

    def _await_first(self) -> None:
        future, size_bytes = self._waiting.popleft()
        self._waiting_bytes -= size_bytes
        future.result()

    def _fill(self, bound: Bound, order: Int64) -> None:
        """Write records. Runs in the thread."""
        at, buffer = 0, self._buffer
        while at < len(order):
            next_at, size = fill_some(bound, order, at, buffer)
            if next_at == at:
                buffer = bytearray(2 * len(buffer))
                continue
            with memoryview(buffer) as data:
                self._file.write(data[:size])
            at, buffer = next_at, self._buffer


@contextmanager
def record_file(file: CountedFile) -> Iterator[RecordFile]:
    """Write records to a file, all of them by the end of the `with` block."""
    with Workers(1) as writer:
        records = RecordFile(file, writer)
        try:
            yield records
            records.flush()
        finally:
            writer.shutdown(cancel_futures=True)


def in_turn(*writers: Iterator[int]) -> None:
    """Exhaust iterators that write rows and yield their number: always the one that has written the fewest.

    One that computes much and one that writes much keep both threads busy.
    """
    written = dict.fromkeys(writers, 0)
    while written:
        one = min(written, key=written.__getitem__)
        rows = next(one, None)
        if rows is None:
            del written[one]
        else:
            written[one] += rows
