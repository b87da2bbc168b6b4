"""Rows of a table in time order from a single scan.

Ingest writes a table from a few threads, so that it consists of a few runs of rows that are sorted by time except for a
few rows. Each run is scanned once, and the scans are merged. That costs less than half of a query for each time window,
which DuckDB plans and whose rows are in row groups that other windows need too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64
from traceconv.schema.ddl import quote_identifier

#: Column of a source with the position of a row in its table.
ROW = "_row"
#: Larger tables are not copied for each run.
_MOST_COPIED_ROWS = 100_000
#: More runs, or more at the same time, need more memory and queries than time windows.
_MOST_RUNS = 64
_MOST_OPEN = 4
_NUMBERS_ROWS = 1 << 16
_NEVER = 2**63


@dataclass(frozen=True, slots=True)
class Run:
    """A run: the positions of its first and last row, and its first and last time.

    A row may be earlier than up to `late` rows before it, as given to `find_runs`.
    """

    first_row: int
    last_row: int
    first: int
    last: int

    def and_(self, after: Run) -> Run:
        """Return the run with rows that follow it."""
        return Run(self.first_row, after.last_row, min(self.first, after.first), max(self.last, after.last))


def find_runs(connection: duckdb.DuckDBPyConnection, source: str, time: str, late: int) -> list[Run] | None:
    """Return the runs of a source, by their first time; None if there are too many, or none.

    `source` is a FROM clause with the column ROW; rows without it or a time are left out. DuckDB must use one thread,
    here and in `merged`, so that rows are in the order stored.
    """
    runs: list[Run] = []
    previous = -1
    # The highest time up to each of the last rows of the current run.
    tops = np.zeros(0, np.int64)
    query = f"SELECT {ROW}, {time} FROM {source} WHERE {time} IS NOT NULL AND {ROW} IS NOT NULL"
    for batch in connection.sql(query).to_arrow_reader(_NUMBERS_ROWS):
        rows, times = (column.to_numpy() for column in batch.columns)
        at = 0
        while at < len(rows):
            joined = np.concatenate([tops, times[at:]])
            passed = _highest(joined)
            end = len(joined)
            if passed is not joined:
                is_late = joined[late:] < passed[:-late]
                end = late + int(is_late.argmax()) if is_late.any() else end
            count = end - len(tops)
            if count:
                if int(rows[at]) <= previous or bool((np.diff(rows[at : at + count]) <= 0).any()):
                    return None  # not in the order stored
                previous = int(rows[at + count - 1])
                own = Run(int(rows[at]), previous, int(joined[len(tops) : end].min()), int(passed[end - 1]))
                runs.append(runs.pop().and_(own) if len(tops) else own)
            tops = passed[max(end - late, 0) : end] if end == len(joined) else tops[:0]
            at += count
            if len(runs) > _MOST_RUNS:
                return None
    runs.sort(key=lambda run: run.first)
    return runs if runs and _most_open(runs) <= _MOST_OPEN else None


def _highest(times: Int64) -> Int64:
    """Return the highest time up to each row."""
    return np.maximum.accumulate(times) if bool((times[1:] < times[:-1]).any()) else times


def another(
    connection: duckdb.DuckDBPyConnection, tables: Mapping[str, pa.Table] | None = None
) -> duckdb.DuckDBPyConnection:
    """Return another connection to the same tables, except temporary ones, and to `tables`."""
    [names] = connection.execute("SELECT current_database(), current_schema()").fetchall()
    own = connection.cursor()
    own.execute(f"USE {'.'.join(map(quote_identifier, names))}")
    own.execute("SET python_enable_replacements = false")
    for name, table in (tables or {}).items():
        own.register(name, table)
    return own


def _most_open(runs: list[Run]) -> int:
    """Return how many runs overlap in time."""
    edges = sorted([(run.first, 1) for run in runs] + [(run.last + 1, -1) for run in runs])
    return int(np.cumsum([change for _, change in edges]).max(initial=0))


def copied_tables(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> dict[str, pa.Table] | None:
    """Return temporary tables for the connections of runs; None if one is too large."""
    found: dict[str, pa.Table] = {}
    for name in names:
        [(count,)] = connection.execute(f"SELECT count(*) FROM {name}").fetchall()
        if count > _MOST_COPIED_ROWS:
            return None
        found[name] = connection.sql(f"FROM {name}").to_arrow_table()
    return found


def merged(
    connection: duckdb.DuckDBPyConnection,
    runs: list[Run],
    time: str,
    query: Callable[[str], str],
    late: int,
    size: int,
    tables: Mapping[str, pa.Table],
) -> Iterator[pa.Table]:
    """Yield tables of about `size` rows, each with all rows from the last time of the one before on, in any order.

    `query` returns a SELECT for a condition on the source, which it calls `s`. `tables` are temporary tables that it
    refers to: each run is read with its own connection.
    """
    scans = [_Scan(connection, run, time, query, late, max(size // 4, late), tables) for run in runs]
    while scans:
        min(scans, key=lambda scan: scan.bound).read()
        limit = min(scan.bound for scan in scans)
        opened = [scan for scan in scans if scan.pending]
        if limit < _NEVER and sum(scan.count for scan in opened) < size + late * len(opened):
            continue
        found = [batch for scan in opened for batch in scan.take(limit)]
        scans = [scan for scan in scans if scan.bound < _NEVER or scan.pending]
        if found:
            found.sort(key=lambda batch: batch.column(time)[0].as_py())
            found = [pa.Table.from_batches(found).combine_chunks()]
            yield found.pop()  # not kept here while it is used


class _Scan:
    """The scan of a run.

    bound    no row that was not read is earlier
    pending  batches that were read but not taken
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        run: Run,
        time: str,
        query: Callable[[str], str],
        late: int,
        batch_rows: int,
        tables: Mapping[str, pa.Table],
    ) -> None:
        self.bound = run.first
        self.pending: list[pa.RecordBatch] = []
        self.count = 0
        self._connection = connection
        self._time = time
        self._query = query(f"s.{ROW} BETWEEN {run.first_row} AND {run.last_row} AND s.{time} IS NOT NULL")
        self._late = late
        self._batch_rows = batch_rows
        self._tables = tables
        self._reader: pa.RecordBatchReader | None = None
        self._tops = np.zeros(0, np.int64)

    def read(self) -> None:
        """Read the next batch. `bound` is _NEVER after the last one."""
        if self._reader is None:
            own = another(self._connection, self._tables)
            self._reader = own.sql(self._query).to_arrow_reader(self._batch_rows)
        try:
            batch = self._reader.read_next_batch()
        except StopIteration:
            self.bound = _NEVER
            return
        if not batch.num_rows:
            return
        self.pending.append(batch)
        self.count += batch.num_rows
        passed = _highest(np.concatenate([self._tops, batch.column(self._time).to_numpy()]))
        self._tops = passed[-self._late :]
        if len(self._tops) == self._late:
            self.bound = max(self.bound, int(self._tops[0]))

    def take(self, limit: int) -> Iterator[pa.RecordBatch]:
        """Remove and yield the rows before a time."""
        kept = []
        for batch in self.pending:
            is_before = batch.column(self._time).to_numpy() < limit if limit < _NEVER else np.ones(batch.num_rows, bool)
            count = int(np.count_nonzero(is_before))
            if count < batch.num_rows:
                is_split = bool(is_before[:count].all())
                kept.append(batch.slice(count) if is_split else batch.filter(pa.array(~is_before)))
                batch = batch.slice(0, count) if is_split else batch.filter(pa.array(is_before))
            if count:
                self.count -= count
                yield batch
        self.pending = [batch for batch in kept if batch.num_rows]


@contextmanager
def one_thread(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Let DuckDB use one thread: with more, the rows of a join are in another order each time."""
    [(threads,)] = connection.execute("SELECT current_setting('threads')").fetchall()
    connection.execute("SET threads = 1")
    try:
        yield
    finally:
        # If the output can't be written, a result of the connection is still open, during which it runs nothing else.
        connection.cursor().execute(f"SET threads = {threads}")
