"""Fill the tables that are computed from others, so that reports on large runs are fast."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from functools import partial
from threading import Lock
from typing import TypeAlias

import duckdb
import pyarrow as pa

from traceconv.normalize.sort.spool import Spool
from traceconv.schema import tables
from traceconv.store.arrow_rows import execute_with
from traceconv.store.path_tables import fill_paths, link_tasks
from traceconv.store.second_connection import in_thread

#: Whether the runs have rows of each kind: dozens of statements on no rows take longer than a small recording. And the
#: number of tasks with an op.
_FILLED = """
SELECT EXISTS (FROM task WHERE run_id IN ({runs})), EXISTS (FROM "range" WHERE run_id IN ({runs})),
       EXISTS (FROM memory WHERE run_id IN ({runs})), EXISTS (FROM flow WHERE run_id IN ({runs})),
       (SELECT count(op_id) FROM task WHERE run_id IN ({runs}))
"""
#: Filling totals takes 2.5 ms even without rows; op-statistic reads this many tasks in about 1 ms.
_FEWEST_TOTALLED = 20_000

_Rows: TypeAlias = "tuple[str, pa.RecordBatch]"


def derived_rows(
    connection: duckdb.DuckDBPyConnection,
    runs: Sequence[int],
    step_done: Callable[[], None] = lambda: None,
    make_room: Callable[[], None] = lambda: None,
    *,
    at_once: bool = False,
) -> Generator[_Rows, None, None]:
    """Yield the rows of all these tables for runs that have none, each batch with its table.

    step_done  called between steps: the transaction may be committed, which frees dropped temporary tables
    make_room  called before the tables of operators are filled, which need more memory than others
    at_once    compute gaps and busy times in a thread with a connection of its own, which commits what it inserts.
               Whichever thread is free first fills paths, and the other collectives and totals. The transaction has no
               changes so far, and nobody else sees the store

    Rows may be inserted in between. Some tables are inserted at the end.
    """
    # Modules are imported for the rows that need them, since a small trace takes less time than all imports.
    if not runs:
        return
    filled = _FILLED.format(runs=", ".join(f"{run_id:d}" for run_id in runs))
    [(has_tasks, has_ranges, has_memory, has_flows, with_op)] = connection.execute(filled).fetchall()
    paths, totals, linked = Lock(), Lock(), False  # whoever acquires one fills these tables
    has_totals = with_op >= _FEWEST_TOTALLED
    in_second = partial(_fill_in_thread, runs=runs, has_totals=has_totals, paths=paths, totals=totals)
    with in_thread(connection, in_second) if at_once and has_tasks else nullcontext() as found:
        if found is None and has_tasks:
            yield from _points(connection, runs)
            step_done()
        if has_memory:
            from traceconv.store.memory_tables import memory_rows

            yield from memory_rows(connection, runs)
            step_done()
        if has_tasks:
            from traceconv.store.queue_tables import queue_rows

            yield from queue_rows(connection, runs)
            step_done()
        if (has_ranges or has_tasks) and paths.acquire(blocking=False):
            link_tasks(connection, runs if has_tasks and has_ranges and has_flows else ())
            fill_paths(connection, runs)
            step_done()
            linked = True
        if has_ranges and has_tasks:
            from traceconv.store.operator_tables import fill_operators

            make_room()
            fill_operators(connection, runs, step_done, linked=linked)
        connection.execute("DROP TABLE IF EXISTS temp.linked")
        if (has_ranges or has_tasks) and totals.acquire(blocking=False):
            _fill_totals(connection, runs, has_totals=has_totals)
        if found is not None:
            yield from found.result()
        step_done()  # from here on, the transaction sees what the thread has inserted
    if has_tasks:
        from traceconv.store.replay_tables import fill_replays

        fill_replays(connection, runs)


def _fill_in_thread(
    connection: duckdb.DuckDBPyConnection, runs: Sequence[int], *, has_totals: bool, paths: Lock, totals: Lock
) -> list[_Rows]:
    """Insert gaps, and paths, collectives and totals unless their locks were acquired; return rows of busy times."""
    # A commit per statement would write the catalogue each time; one for all would keep dropped temporary tables.
    connection.execute("BEGIN TRANSACTION")
    rows = _points(connection, runs)
    connection.execute("COMMIT; BEGIN TRANSACTION")
    if paths.acquire(blocking=False):
        link_tasks(connection, runs)
        fill_paths(connection, runs)
    if totals.acquire(blocking=False):
        _fill_totals(connection, runs, has_totals=has_totals)
    connection.execute("COMMIT")
    return rows


def _fill_totals(connection: duckdb.DuckDBPyConnection, runs: Sequence[int], *, has_totals: bool) -> None:
    """Insert collectives and, if there are enough tasks, totals of ops."""
    from traceconv.store.collective_table import fill_collectives

    fill_collectives(connection, runs)
    if has_totals:
        from traceconv.store.op_totals import fill_op_totals

        fill_op_totals(connection, runs)


def _points(connection: duckdb.DuckDBPyConnection, runs: Sequence[int]) -> list[_Rows]:
    """Insert gaps, and return the rows of busy times, which are few."""
    from traceconv.store.busy_tables import busy_rows
    from traceconv.store.gap_tables import GAP, fill_gaps

    gaps = Spool(GAP)
    try:
        rows = list(busy_rows(connection, runs, gaps))
        fill_gaps(connection, runs, gaps)
    finally:
        gaps.close()
    return rows


def fill_derived_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill these tables again for all runs of a store."""
    for table in tables().values():
        if table.derived_from:
            connection.execute(f"DELETE FROM {table.name}")  # noqa: S608 - our names
    runs = [run_id for (run_id,) in connection.execute("SELECT run_id FROM run ORDER BY run_id").fetchall()]
    for name, batch in derived_rows(connection, runs):
        execute_with(connection, f"INSERT INTO {name} BY NAME FROM derived_rows", "derived_rows", batch)
