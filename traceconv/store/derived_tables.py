"""Fill the tables that are computed from others, so that reports on large runs are fast."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TypeAlias

import duckdb
import pyarrow as pa

from traceconv.normalize.sort.spool import Spool
from traceconv.schema import tables
from traceconv.store.arrow_rows import execute_with
from traceconv.store.busy_tables import busy_rows
from traceconv.store.collective_table import fill_collectives
from traceconv.store.gap_tables import GAP, fill_gaps
from traceconv.store.memory_tables import memory_rows
from traceconv.store.operator_tables import fill_operators
from traceconv.store.path_tables import fill_paths
from traceconv.store.queue_tables import queue_rows
from traceconv.store.replay_tables import fill_replays
from traceconv.store.store_thread import StoreThread

_Rows: TypeAlias = "tuple[str, int, pa.RecordBatch]"


def derived_rows(
    connection: duckdb.DuckDBPyConnection,
    runs: Sequence[int],
    step_done: Callable[[], None] = lambda: None,
    *,
    at_once: bool = False,
) -> Generator[_Rows, None, None]:
    """Yield the rows of all these tables for runs that have none, as (table, run, rows without the run).

    step_done  called between steps: the transaction may be committed, which frees dropped temporary tables
    at_once    compute some tables in a thread with a connection of its own, which commits what it inserts: the
               transaction has no changes so far, and nobody else sees the store

    Rows may be inserted in between. Some tables are inserted at the end.
    """
    with ExitStack() as stack:
        of_thread: Future[list[_Rows]] | None = None
        if at_once:
            of_thread = stack.enter_context(StoreThread(connection)).submit(_points_and_paths, runs)
        else:
            yield from _points_and_paths(connection, runs, step_done)
        for rows in (memory_rows, queue_rows):
            yield from rows(connection, runs)
            if not at_once:
                step_done()
        if of_thread is not None:
            yield from of_thread.result()
    step_done()
    fill_operators(connection, runs, step_done)
    fill_replays(connection, runs)
    fill_collectives(connection, runs)


def _points_and_paths(
    connection: duckdb.DuckDBPyConnection, runs: Sequence[int], step_done: Callable[[], None] = lambda: None
) -> list[_Rows]:
    """Insert gaps and paths, and return the rows of busy times, which are few."""
    gaps = Spool(GAP)
    try:
        rows = list(busy_rows(connection, runs, gaps))
        fill_gaps(connection, runs, gaps)
    finally:
        gaps.close()
    step_done()
    fill_paths(connection, runs)
    step_done()
    return rows


def fill_derived_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill these tables again for all runs of a store."""
    for table in tables().values():
        if table.derived_from:
            connection.execute(f"DELETE FROM {table.name}")  # noqa: S608 - our names
    runs = [run_id for (run_id,) in connection.execute("SELECT run_id FROM run ORDER BY run_id").fetchall()]
    for name, run_id, batch in derived_rows(connection, runs):
        statement = f"INSERT INTO {name} BY NAME SELECT {run_id:d}::BIGINT AS run_id, * FROM derived_rows"  # noqa: S608 - our names
        execute_with(connection, statement, "derived_rows", batch)
