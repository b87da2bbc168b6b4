"""Shared by exporters of timelines: the rows to export by table, and lanes for slices that overlap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import duckdb

from traceconv.base.errors import InputError, StoreError, printable
from traceconv.export.overlap import add_lanes, create_lanes, overlapping, with_endless
from traceconv.export.row_order import has_no_overlaps
from traceconv.export.sorted_runs import ROW, one_thread
from traceconv.normalize.trace.own_columns import PATH_FLOW
from traceconv.store.load_memory import bytes_for_texts
from traceconv.store.text_sizes import sizes_in_tables

#: Tables of slices on tracks.
SLICE_TABLES = ("range", "api", "task")
#: How many times what texts need when they are stored: those of several tables and statements.
_TIMES_TEXTS = 2
#: Columns with times, of each exported table.
TIMES = {
    "task": ("start_ns",),
    "api": ("start_ns",),
    "range": ("start_ns",),
    "step": ("start_ns", "fp_start_ns", "bp_end_ns", "end_ns"),
    "counter": ("ts_ns",),
    "marker": ("ts_ns",),
    "memory": ("alloc_ns", "free_ns"),
    "flow": ("src_ns", "dst_ns"),
}


@contextmanager
def exporting(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    memory_bytes: int,
    *,
    estimates: bool = True,
    ordered: bool = False,
) -> Iterator[None]:
    """Limit DuckDB's memory during an export, above what large texts take; beyond the limit it spills to disk.

    `estimates`: whether static profiles can be exported. `ordered`: DuckDB uses one thread, so that rows are in the
    same order each time. Raises InputError if the run has tasks without a start, StoreError if the store can't be read.
    """
    try:
        if has_no_timeline(connection, run_id, estimates=estimates):
            raise InputError(
                f"run {run_id} has no timeline to export: its tasks have no start times, as in a static profile"
            )
        limit_memory(connection, memory_bytes)
        with one_thread(connection) if ordered else nullcontext():
            yield
    except duckdb.Error as error:
        raise StoreError(f"can't export run {run_id}: {printable(str(error), 300)}") from error


def has_no_timeline(connection: duckdb.DuckDBPyConnection, run_id: int, *, estimates: bool = True) -> bool:
    """Whether a run has tasks without a start, and is no static profile that can be exported (`estimates`)."""
    query = "SELECT 1 FROM task WHERE run_id = ? AND start_ns IS NULL LIMIT 1"
    has_no_starts = bool(connection.execute(query, [run_id]).fetchall())
    return has_no_starts and not (estimates and has_format(connection, run_id, "static"))


def limit_memory(connection: duckdb.DuckDBPyConnection, memory_bytes: int) -> None:
    """Limit DuckDB's memory, above what the texts that it reads at once take. Raises duckdb.Error."""
    texts = _TIMES_TEXTS * bytes_for_texts(sizes_in_tables(connection))
    connection.execute(f"SET memory_limit = '{memory_bytes + texts}B'")


def has_format(connection: duckdb.DuckDBPyConnection, run_id: int, name: str) -> bool:
    """Whether the source of a run has this format."""
    query = "SELECT 1 FROM run WHERE run_id = ? AND source_format = ?"
    return bool(connection.execute(query, [run_id, name]).fetchall())


def row_sources(connection: duckdb.DuckDBPyConnection, run_id: int, device: int | None) -> dict[str, str]:
    """Return a FROM clause for each table: the rows of the run, of one device if `device` is given, and the column ROW.

    The tasks of a static profile, which have no start, follow one another from 0 in the order of their ops.
    """
    conditions = dict.fromkeys(TIMES, f"run_id = {run_id}")
    if device is not None:
        other = f"(SELECT track_id FROM track WHERE run_id = {run_id} AND device_id <> {device})"
        for name in ("task", "step", "memory"):
            conditions[name] += f" AND device_id = {device}"
        for name in ("api", "range", "counter", "marker"):
            conditions[name] += f" AND track_id NOT IN {other}"
    # The tables of a lake are views, without positions.
    stored = "SELECT 1 FROM duckdb_tables() WHERE database_name = current_database() AND table_name = 'task'"
    row = "rowid" if connection.execute(stored).fetchall() else "NULL::BIGINT"
    sources = {name: f'(SELECT {row} AS {ROW}, * FROM "{name}" WHERE {where})' for name, where in conditions.items()}
    if has_format(connection, run_id, "static"):
        before = "sum(dur_ns) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        sources["task"] = f"(SELECT * REPLACE (coalesce({before}, 0)::BIGINT AS start_ns) FROM {sources['task']})"
    return sources


def with_path_flows(connection: duckdb.DuckDBPyConnection, run_id: int, source: str) -> str:
    """Return a FROM clause for the flows in `source`, and flows along the run's critical paths, from slice to slice.

    A flow leads from the end of a part of the path to the start of the next one, of those in which a slice runs. Raises
    InputError if the table critical_path has no rows of the run.
    """
    parts = f"critical_path WHERE run_id = {run_id} AND slice_id IS NOT NULL"
    if not connection.execute(f"SELECT 1 FROM {parts} LIMIT 1").fetchall():
        raise InputError(f"run {run_id} has no critical path; find it first with: traceconv analyze critical-path")
    running = "kind NOT IN ('gap', 'launch', 'stream', 'event', 'host_wait', 'thread')"
    [(last,)] = connection.execute(f"SELECT coalesce(max(flow_id), 0) FROM {source}").fetchall()
    return f"""(
        SELECT * FROM {source}
        UNION ALL BY NAME
        SELECT run_id, {last} + row_number() OVER (ORDER BY src_ns, src_id, dst_ns) AS flow_id, '{PATH_FLOW}' AS kind,
               'critical path' AS name, src_id, src_ns, dst_id, dst_ns
        FROM (
          SELECT run_id, slice_id AS src_id, start_ns + greatest(dur_ns - 1, 0) AS src_ns,
                 lead(slice_id) OVER path AS dst_id, lead(start_ns) OVER path AS dst_ns
          FROM {parts} AND {running}
          WINDOW path AS (PARTITION BY step_id, device_id ORDER BY path_index)
        )
        WHERE dst_id <> src_id
    )"""


def device_memory(run_id: int, source: str) -> str:
    """Return a FROM clause for the blocks and segments in `source`, except of devices with recorded counters."""
    counted = f"SELECT device_id FROM track WHERE run_id = {run_id} AND kind = 'counter' AND name = 'Memory used'"
    return (
        f"(SELECT * FROM {source} WHERE kind IN ('block', 'segment') AND (device_id IS NULL OR "
        f"device_id NOT IN ({counted} AND device_id IS NOT NULL)))"
    )


def find_lanes(connection: duckdb.DuckDBPyConnection, run_id: int, sources: dict[str, str]) -> None:
    """Assign lanes to slices that overlap. `sources["step"]` has a column `at_ns`, where a step starts."""
    create_lanes(connection)
    columns = "track_id, id, parent_id, start_ns, dur_ns, start_ns + dur_ns AS end_ns, depth"
    tables = {name: f"(SELECT {columns} FROM {sources[name]})" for name in SLICE_TABLES}
    # The depth of a slice counts those around it in all tables, but in raw logs only those in its own.
    is_raw = has_format(connection, run_id, "npulog")
    for names in [[name] for name in tables] if is_raw else [[*tables]]:
        slices = f"({' UNION ALL '.join(f'FROM {tables[name]}' for name in names)})"
        tracks = {*with_endless(connection, slices)}
        if not has_no_overlaps(connection, slices):
            tracks |= {*overlapping(connection, slices)}
        for name in names:
            add_lanes(connection, name, tables[name], tracks)
    columns = "device_id AS track_id, step_id AS id, at_ns AS start_ns, end_ns, 1 AS depth"
    steps = f"(SELECT {columns} FROM {sources['step']})"
    add_lanes(connection, "step", steps, overlapping(connection, steps))
