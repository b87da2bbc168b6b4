"""Write runs into a store in one transaction.

A new store is written under a temporary name and renamed when it is complete; runs are appended to an existing one.
A store has one writer at a time, including its creation; others wait.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from traceconv.base.errors import StoreError, printable, reason_of
from traceconv.base.malloc_tuning import trim_heap
from traceconv.schema import tables
from traceconv.schema.ddl import quote_identifier
from traceconv.store.arrow_rows import execute_with
from traceconv.store.database import (
    OlderStoreError,
    attach_store,
    new_cursor,
    open_store,
    raise_interrupt,
)
from traceconv.store.derived_tables import derived_rows
from traceconv.store.empty_columns import EmptyColumns
from traceconv.store.file_lock import FileLock
from traceconv.store.files import is_empty, remove_database, remove_temporary, rename_new, sync
from traceconv.store.load_memory import (
    AT_ONCE_OPERATORS,
    DERIVE_BYTES,
    LOAD_THREADS,
    bytes_for_texts,
    bytes_to_derive,
    bytes_to_load,
    compress_texts,
    has_long_texts,
    launching_operators,
    prepare_to_load,
    threads_to_load,
)
from traceconv.store.partial_store import create_partial, partial_store, remove_orphan
from traceconv.store.run_index import RunIndex
from traceconv.store.small_inserts import SmallInserts
from traceconv.store.text_sizes import NO_TEXTS, RecentRows, TextSizes
from traceconv.store.valid_files import remember_valid

#: Rows of a new store from which on each step of filling derived tables is committed: what earlier steps used takes
#: memory until then.
_COMMITTED_ROWS = 200_000
#: The same for temporary tables of runs: some 200 per MB, of which a part can't be spilled.
_MOST_HELD_BYTES = 32_000_000
#: DuckDB's words for a failed commit, which precede the cause.
_BEFORE_CAUSE = re.compile(r"^.*(?:Failed to commit|Original error): ")


class StoreWriter:
    """A store open for writing. Use as a context manager: leaving it without `commit` discards the changes.

    Raises StoreError if the file can't be written or another program has it open.
    """

    def __init__(
        self, path: Path, report_statements: Callable[[], Sequence[str]], on_wait: Callable[[], None] = lambda: None
    ) -> None:
        """Wait for other writers of the store.

        report_statements  create the reports in a new store
        on_wait            called once if another writer has to finish first
        """
        self._path = path
        self._target = Path(os.path.realpath(path))
        self._partial: Path | None = None
        self._lock = FileLock(self._target, on_wait)
        try:
            self._open(report_statements)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, report_statements: Callable[[], Sequence[str]]) -> None:
        path = self._path
        self._small = SmallInserts()
        self._texts, self._held_bytes = NO_TEXTS, 0
        self._ran_sql = False  # since the last run: there may be more temporary tables
        self._limit_bytes = self._load_bytes
        self._recent: dict[str, RecentRows] = {}
        self._row_count = 0
        #: Whether `insert`, `stage` or `run_sql` was called since it was last reset.
        self.changed = False
        #: New runs, for which derived tables have to be filled.
        self._new_runs: set[int] = set()
        #: What to do before the commit, and with which runs.
        self._at_commit: dict[Callable[[StoreWriter, str], None], set[int]] = {}
        self._run_index: RunIndex | None = None  # not read yet
        has_tables = True
        if os.path.exists(path) and not is_empty(path):
            try:
                self._connection = open_store(path, read_only=False)
            except OlderStoreError:
                from traceconv.store.migrate import migrate

                migrate(self._target, report_statements())
                self._connection = open_store(path, read_only=False)
            remove_temporary(path)
            remove_orphan(partial_store(self._target))
        else:
            self._partial = partial_store(self._target)
            remove_orphan(self._partial)
            try:
                self._connection, has_tables = create_partial(self._partial, report_statements)
            except (KeyboardInterrupt, RuntimeError) as error:
                remove_database(self._partial)
                raise_interrupt(error)
                raise
        try:
            prepare_to_load(self._connection)
            if self._partial is not None:
                # The commit checkpoints instead of writing its rows to a log first, and the complete file is flushed.
                self._connection.execute("SET wal_autocheckpoint = '0B'")
                with contextlib.suppress(duckdb.CatalogException):  # unknown to DuckDB 1
                    self._connection.execute("SET fsync_mode = 'NONE'")
            self._connection.execute("BEGIN TRANSACTION")
            self._empty = EmptyColumns(self._connection, self._fetch_at_once, is_new=self._partial is not None)
            if not has_tables:
                from traceconv.store.statements import store_statements

                self._connection.execute(";\n".join([*store_statements(), *report_statements()]))
        except BaseException as error:
            self._undo()
            if isinstance(error, duckdb.Error):
                raise self._refused(error) from error
            raise_interrupt(error)
            raise

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo()

    @property
    def _runs(self) -> RunIndex:
        if self._run_index is None:
            rows = self._fetch("SELECT run_id, label, source_digest FROM run ORDER BY run_id", [])
            self._run_index = RunIndex([(int(run_id), str(label), digest) for run_id, label, digest in rows])
        return self._run_index

    def known_runs(self) -> list[tuple[int, str, str | None]]:
        """Return (run_id, label, digest) of all runs, in order."""
        return self._runs.runs

    def run_of(self, digest: str | None) -> tuple[int, str] | None:
        """Return (run_id, label) of the run with this source digest; None if there is none, or it is unknown."""
        return self._runs.of(digest)

    def lossy(self, run_id: int) -> bool:
        """Whether the import of a run had losses."""
        lost = "SELECT count(*) FROM import_log WHERE run_id = ? AND severity <> 'info'"
        return bool(self._fetch(lost, [run_id])[0][0])

    def next_run_id(self) -> int:
        """Return the ID of the next run."""
        return self._runs.next_id()

    def derive(self, runs: Iterable[int]) -> None:
        """Fill the tables that are computed from others for these runs before the commit, as for runs of `insert`."""
        self._new_runs.update(runs)

    def run_count(self) -> int:
        """Return the number of runs."""
        return len(self.known_runs())

    def delete_run(self, run_id: int) -> None:
        """Delete a run from all tables; its space is reused."""
        self._execute_at_once("RESET max_vacuum_tasks", [])
        for name in tables():
            self._execute(f"DELETE FROM {quote_identifier(name)} WHERE run_id = ?", [run_id])  # noqa: S608 - our names
        self._new_runs.discard(run_id)
        for runs in self._at_commit.values():
            runs.discard(run_id)
        self._run_index = RunIndex([run for run in self.known_runs() if run[0] != run_id])

    def reserve_run(self, label: str, digest: str | None, run_id: int | None = None) -> int:
        """Return the ID of a new run, `run_id` or the next one; its rows are stored by `run_sql`."""
        run_id = self.next_run_id() if run_id is None else run_id
        self._runs.add(run_id, label, digest)
        return run_id

    def attach(self, path: Path, name: str) -> None:
        """Attach another store for `run_sql`, as the database `name`. Raises StoreError if it is not a valid store."""
        attach_store(self._connection, path, name)

    @contextlib.contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a connection to the store with transactions of its own, which can also attach databases."""
        with self._refusing(), new_cursor(self._connection) as cursor:
            yield cursor

    def end_run(self) -> None:
        """Free what dropped temporary tables of runs take until a commit, or make room for it if others see that."""
        if not self._ran_sql:  # a millisecond, an eighth of a small trace
            return
        self._ran_sql = False
        held = "SELECT memory_usage_bytes + temporary_storage_bytes FROM duckdb_memory() WHERE tag = 'IN_MEMORY_TABLE'"
        with self._refusing():
            held_bytes = sum(number for (number,) in self._connection.execute(held).fetchall())
            if held_bytes > _MOST_HELD_BYTES:
                if self._partial is not None:
                    self._connection.execute("COMMIT; BEGIN TRANSACTION")
                else:
                    self._held_bytes = held_bytes // 2
                    self._limit(self._load_bytes)

    @property
    def _load_bytes(self) -> int:
        return bytes_to_load(self._texts) + self._held_bytes

    def make_room(self, text_bytes: int) -> None:
        """Prepare for texts of up to `text_bytes`, which DuckDB holds in contiguous memory."""
        self.prepare_for(TextSizes(text_bytes))

    def prepare_for(self, texts: TextSizes) -> None:
        """Prepare for texts of these sizes, from now on."""
        if not self._lacks_room(texts):
            return
        before, self._texts = self._texts, self._texts.over(texts)
        self._limit(self._limit_bytes + bytes_for_texts(self._texts) - bytes_for_texts(before))
        with self._refusing():
            compress_texts(self._connection, self._texts)

    def _recent_rows(self, table: str) -> RecentRows:
        return self._recent.setdefault(table, RecentRows(table))

    def _lacks_room(self, texts: TextSizes) -> bool:
        known, more = self._texts, self._texts.over(texts)
        return bytes_for_texts(more) > bytes_for_texts(known) or has_long_texts(more) != has_long_texts(known)

    def _limit(self, memory_bytes: int) -> None:
        """Limit DuckDB's memory."""
        self._limit_bytes = memory_bytes
        self._execute_at_once(f"SET memory_limit = '{memory_bytes}B'", [])

    def insert(self, table: str, run_id: int | None, batches: Iterator[pa.RecordBatch]) -> int:
        """Load batches, which all have the same columns, into a table; returns the number of rows.

        run_id  the value of the column of that name, if the rows don't have it

        Missing columns are NULL. Exceptions raised by `batches` propagate.
        """
        self.changed = True
        if table == "run" and run_id is not None:
            batches = self._noted_runs(run_id, batches)
        taken = self._small.take(table, run_id, batches)
        if isinstance(taken, int):
            self._row_count += taken
            if self._small.full:
                self._insert_small()
            return taken
        count, first = 0, next(taken)
        self._empty.prepare(table, first.schema.names)
        while first is not None:
            inserted, first = self._insert_some(table, run_id, first, taken)
            count += inserted
        self._row_count += count
        return count

    def _insert_some(
        self, table: str, run_id: int | None, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]
    ) -> tuple[int, pa.RecordBatch | None]:
        """Insert batches up to one whose texts need more room; return the number of rows, and that batch."""
        recent = self._recent_rows(table)
        self.prepare_for(recent.sizes_with(first))
        count = 0
        left: pa.RecordBatch | None = None
        failure: list[BaseException] = []

        def fitting() -> Iterator[pa.RecordBatch]:
            # DuckDB would replace an exception from here: it is kept and raised below.
            nonlocal count, left
            try:
                for batch in chain([first], others):
                    if self._lacks_room(recent.sizes_with(batch)):
                        left = batch
                        return
                    recent.add(batch)
                    count += batch.num_rows
                    yield batch
            except BaseException as error:
                failure.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(first.schema, fitting())
        threads = threads_to_load(table, first, self._texts)
        try:
            if threads != LOAD_THREADS:
                self._execute_at_once(f"SET threads = {threads}", [])
            self._insert_into(quote_identifier(table), reader, run_id)
            if threads != LOAD_THREADS:
                self._execute_at_once(f"SET threads = {LOAD_THREADS}", [])
        except (StoreError, KeyboardInterrupt):
            if failure:
                raise failure[0] from None
            raise
        return count, left

    def insert_of_runs(
        self, table: str, run_ids: Sequence[int], counts: Sequence[int], batches: Sequence[pa.RecordBatch]
    ) -> None:
        """Load small batches with the rows of several runs into a table, as `insert` does those of each run.

        run_ids, counts  the run of the rows, and their number, in stretches
        """
        self.changed = True
        self._small.take_of_runs(table, run_ids, counts, batches)
        self._row_count += sum(counts)
        if self._small.full:
            self._insert_small()

    def insert_tuples(
        self, table: str, run_id: int, names: tuple[str, ...], rows: Sequence[tuple[object, ...]]
    ) -> None:
        """Load a few rows, given as values of the columns `names`, into a table. Other columns are NULL."""
        self.changed = True
        if table == "run":
            for row in rows:
                self._note_run(run_id, dict(zip(names, row, strict=True)))
        self._row_count += self._small.take_tuples(table, run_id, names, rows)
        if self._small.full:
            self._insert_small()

    def _insert_into(
        self, table: str, rows: pa.RecordBatchReader | pa.RecordBatch | pa.Table, run_id: int | None = None
    ) -> None:
        """Insert rows; `run_id`: the value of the column of that name, if the rows don't have it."""
        names = ", ".join(quote_identifier(name) for name in rows.schema.names)
        run_column, run_value = ("", "") if run_id is None else ("run_id, ", f"{run_id}::BIGINT, ")
        statement = f"INSERT INTO {table} ({run_column}{names}) SELECT {run_value}{names} FROM incoming_rows"  # noqa: S608 - our own schemas
        with self._refusing():
            execute_with(self._connection, statement, "incoming_rows", rows)

    def stage(self, table: str, batches: Iterator[pa.RecordBatch], columns: dict[str, str]) -> int:
        """Load batches into a new temporary table with these columns (name → SQL type); return the number of rows.

        Missing columns are NULL. The table is visible to `run_sql` and `fetch`.
        """
        self.changed = self._ran_sql = True
        name = quote_identifier(table)
        definitions = ", ".join(f"{quote_identifier(column)} {kind}" for column, kind in columns.items())
        self._execute(f"CREATE OR REPLACE TEMP TABLE {name} ({definitions})", [])
        count = 0
        for batch in batches:
            self._insert_into(f"temp.{name}", batch)
            count += batch.num_rows
        return count

    def run_sql(self, statement: str, parameters: Mapping[str, object] | None = None) -> None:
        """Execute a statement with named parameters in the transaction."""
        self.changed = self._ran_sql = True
        self._insert_small()
        self._empty.before(statement, self._row_count)
        self._execute_at_once(statement, dict(parameters or {}))

    def work_on(self, work: Callable[[duckdb.DuckDBPyConnection], None]) -> None:
        """Call `work` with the connection, in the transaction."""
        self.changed = self._ran_sql = True
        self._insert_small()
        with self._refusing():
            work(self._connection)

    def fetch(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Any]:
        """Return the rows of a statement; there must be few."""
        return self._fetch(statement, dict(parameters or {}))

    def at_commit(self, work: Callable[[StoreWriter, str], None], run_id: int) -> None:
        """Call `work` before the commit, once for all runs for which it was requested: with their IDs as SQL.

        A statement for each of many small runs would take longer than their events.
        """
        self._at_commit.setdefault(work, set()).add(run_id)

    def commit(self, *, derive: bool = True) -> None:
        """Commit all changes and merge the write-ahead log into the file.

        derive  whether to fill the tables that are computed from others for new runs

        Ctrl-C is ignored from here on, because it would suggest that nothing was stored.
        """
        for work, runs in self._at_commit.items():
            if runs:
                work(self, ", ".join(f"{run_id:d}" for run_id in sorted(runs)))
        if derive:
            self._fill_derived_tables()
        self._insert_small()
        with _undisturbed():
            self._commit()

    def _commit(self) -> None:
        # The commit compresses the rest of each table on the threads that DuckDB adds to the one that executes it.
        self._execute(f"SET threads = {LOAD_THREADS + 1}", [])
        self._execute("COMMIT", [])
        try:
            self._execute("CHECKPOINT", [])
        except StoreError as error:
            if self._partial is None:  # the rows are in the write-ahead log, which must stay next to the file
                shown = printable(str(self._path))
                message = (
                    f"{shown} has all rows, but its log {shown}.wal could not be merged; free disk space, then open it"
                )
                raise StoreError(message) from error
            raise
        self._connection.close()
        if self._partial is not None:
            try:
                sync(self._partial)
                rename_new(self._partial, self._target)
                self._partial = None
                sync(self._target.parent)
            except FileExistsError:
                shown = printable(str(self._path))
                raise StoreError(f"{shown} was created by another program in the meantime; ingest again") from None
            except OSError as error:
                raise StoreError(f"can't write {printable(str(self._path))}: {reason_of(error)}") from error
        remember_valid(self._target)
        self._lock.release()

    def _noted_runs(self, run_id: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                self._note_run(run_id, row)
            yield batch

    def _note_run(self, run_id: int, row: Mapping[str, object]) -> None:
        # A static profile has no source and no digest.
        digest = row.get("source_digest")
        self._new_runs.add(run_id)
        self._runs.add(run_id, str(row.get("label")), None if digest is None else str(digest))

    def _fill_derived_tables(self) -> None:
        if not self._new_runs:
            return
        self._insert_small()
        with self._refusing():
            launching = launching_operators(self._connection, self._new_runs)
        derive_bytes = bytes_to_derive(launching, appended=self._partial is None)
        at_once = self._commits_steps and launching <= AT_ONCE_OPERATORS

        def make_room() -> None:
            if launching or not at_once:
                self._limit(derive_bytes + bytes_for_texts(self._texts) + self._held_bytes)

        if not at_once:  # else the second thread has taken some of what only tables of operators need
            make_room()
        with self._refusing():
            self._end_step()
            rows = derived_rows(self._connection, sorted(self._new_runs), self._end_step, make_room, at_once=at_once)
            with contextlib.closing(rows):
                for table, batch in rows:
                    self.insert(table, None, iter([batch]))
        if derive_bytes <= DERIVE_BYTES:  # else what waits for the commit may exceed the lower limit
            self._limit(self._load_bytes)
        self._new_runs.clear()

    @property
    def _commits_steps(self) -> bool:
        """Whether the store is new, so that nobody sees it yet, and has many rows."""
        return self._partial is not None and self._row_count > _COMMITTED_ROWS

    def _end_step(self) -> None:
        """Commit if nobody sees it: dropped temporary tables take memory until then."""
        if self._commits_steps:
            self._connection.execute("COMMIT; BEGIN TRANSACTION")
            trim_heap()

    def _insert_small(self) -> None:
        """Store the collected batches."""
        stored = list(self._small.give())
        if not stored:
            return
        # Without preserved order, DuckDB 1.5 keeps a block in memory per column and insert until the commit.
        self._execute_at_once("SET preserve_insertion_order = true", [])
        for name, rows in stored:
            for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
                recent = self._recent_rows(name)
                self.prepare_for(recent.sizes_with(batch))
                recent.add(batch)
            self._insert_into(quote_identifier(name), self._empty.fit(name, rows))
        self._execute_at_once("SET preserve_insertion_order = false", [])

    def _fetch(self, statement: str, parameters: list[object] | dict[str, object]) -> list[Any]:
        self._execute(statement, parameters)
        return self._connection.fetchall()

    def _execute(self, statement: str, parameters: list[object] | dict[str, object]) -> None:
        """Execute a statement, after storing the collected batches."""
        self._insert_small()
        self._execute_at_once(statement, parameters)

    def _execute_at_once(self, statement: str, parameters: list[object] | dict[str, object]) -> None:
        with self._refusing():
            self._connection.execute(statement, parameters)

    def _fetch_at_once(self, statement: str) -> list[Any]:
        with self._refusing():
            return self._connection.execute(statement).fetchall()

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        """Turn DuckDB's errors into StoreErrors, and its interrupt into KeyboardInterrupt."""
        try:
            yield
        except duckdb.Error as error:
            raise self._refused(error) from error
        except RuntimeError as error:
            raise_interrupt(error)
            raise

    def _undo(self) -> None:
        """Roll back; does nothing after a commit."""
        with contextlib.suppress(duckdb.Error):
            self._connection.execute("ROLLBACK")
        self._connection.close()
        if self._partial is not None:
            remove_database(self._partial)
            self._partial = None
        self._lock.release()

    def _refused(self, error: duckdb.Error) -> StoreError:
        shown = printable(str(self._path))
        cause = StoreError(_BEFORE_CAUSE.sub("", str(error)))
        return StoreError(f"can't write {shown}: {reason_of(cause)}; the store is as it was before")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C (which affects only the main thread)."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
