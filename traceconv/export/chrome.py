"""A run as a Chrome trace (Trace Event Format, JSON object form), which Perfetto's viewer and chrome://tracing open.

The text is built by SQL, window by window in the order of time, and its bytes go from DuckDB's buffers to the
file as they are: memory doesn't grow with the run. Times are microseconds since the run's first event, with
three decimals made by decimal arithmetic; that event's time is in `otherData.base_ns`. Every row of task, api,
range, step, counter, marker, flow and memory is in the file, and can be read back from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv._version import __version__
from traceconv.base.errors import InputError, StoreError, printable
from traceconv.base.int64 import is_time
from traceconv.export.arrow_rows import arrow_batches
from traceconv.export.chrome_events import (
    Clock,
    Events,
    counter_events,
    flow_end_query,
    flow_query,
    flow_source,
    marker_events,
    memory_counter_events,
    memory_events,
    op_query,
    row_events,
    slice_events,
    step_events,
    step_source,
)
from traceconv.export.chrome_layout import Layout, make_layout, metadata_events
from traceconv.export.json_sql import json_text
from traceconv.export.output import open_output
from traceconv.export.overlap import Slices, add_lanes, create_lanes
from traceconv.export.row_order import lies_neatly
from traceconv.export.windows import condition, time_windows
from traceconv.normalize.trace.own_columns import FORM, ROW_TABLES

#: Rows that are fetched at once: some MB of text.
_BATCH_ROWS = 16_384
#: Flows of a window: only ids and times of them are held, not texts.
FLOW_WINDOW_ROWS = 400_000
#: DuckDB's share of the memory; beyond it, it spills to disk.
_MEMORY_LIMIT = "200MB"
#: From here on (ns) times are computed with more than 64 bits.
_WIDE_NS = 10**15

#: Columns with times, of each exported table.
_TIMES = {
    "task": ("start_ns",),
    "api": ("start_ns",),
    "range": ("start_ns",),
    "step": ("start_ns", "fp_start_ns", "bp_end_ns", "end_ns"),
    "counter": ("ts_ns",),
    "marker": ("ts_ns",),
    "memory": ("alloc_ns", "free_ns"),
    "flow": ("src_ns", "dst_ns"),
}


@dataclass(frozen=True, slots=True)
class ChromeSummary:
    """What was written: rows of each table, and the bytes of the JSON text before compression."""

    rows: Mapping[str, int]
    size_bytes: int


def export_chrome(
    connection: duckdb.DuckDBPyConnection, run_id: int, output: Path | None, *, device_id: int | None = None
) -> ChromeSummary:
    """Writes the run as a Chrome trace to `output` (standard output when None; compressed when it ends in .gz).

    `device_id` leaves out what lies on other devices. The connection's memory limit is set, and it gets temporary
    tables. Raises OutputError when the file can't be written, StoreError when the store can't be read, InputError
    when the run has tasks without a start.
    """
    try:
        if connection.execute("SELECT 1 FROM task WHERE run_id = ? AND start_ns IS NULL LIMIT 1", [run_id]).fetchall():
            raise InputError(
                f"run {run_id} has tasks without a start, as a static profile has: there is no timeline of it"
            )
        connection.execute(f"SET memory_limit = '{_MEMORY_LIMIT}'")
        trace = _prepare(connection, run_id, device_id)
        with open_output(output) as file:
            return _write(connection, file, trace)
    except duckdb.Error as error:
        raise StoreError(f"can't export run {run_id}: {printable(str(error), 300)}") from error


@dataclass(frozen=True, slots=True)
class _Trace:
    """What is to be written: FROM clauses by table, and how."""

    run_id: int
    sources: Mapping[str, str]
    filtered: bool
    clock: Clock
    layout: Layout


def _prepare(connection: duckdb.DuckDBPyConnection, run_id: int, device_id: int | None) -> _Trace:
    sources = _sources(run_id, device_id)
    clock = _clock(connection, sources, run_id)
    create_lanes(connection)
    for name in ("task", "api", "range"):
        if lies_neatly(connection, sources[name]):
            continue
        add_lanes(
            connection,
            Slices(name, sources[name], "track_id", "id", "start_ns", "start_ns + dur_ns", "depth"),
        )
    steps = step_source(sources["step"], clock)
    add_lanes(connection, Slices("step", steps, "device_id", "step_id", "at_ns", "end_ns", "1"))
    layout = make_layout(connection, run_id, sources)
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE export_thread "
        "(source VARCHAR, track_id BIGINT, lane INTEGER, tid BIGINT, head VARCHAR, label VARCHAR)"
    )
    heads = [
        (t.source, t.track_id, t.lane, t.tid, f',\n{{"pid":{t.pid},"tid":{t.tid},"ph":"', json_text(t.name))
        for t in layout.threads
    ]
    connection.executemany("INSERT INTO export_thread VALUES (?, ?, ?, ?, ?, ?)", heads)
    connection.execute(f"CREATE OR REPLACE TEMP TABLE export_op AS {op_query(run_id)}")
    return _Trace(run_id, sources, device_id is not None, clock, layout)


def _sources(run_id: int, device_id: int | None) -> dict[str, str]:
    """A FROM clause for each table: the rows of the run, and of the device if one was asked for."""
    conditions = dict.fromkeys(_TIMES, f"run_id = {run_id}")
    if device_id is not None:
        other = f"(SELECT track_id FROM track WHERE run_id = {run_id} AND device_id <> {device_id})"
        for name in ("task", "step", "memory"):
            conditions[name] += f" AND device_id = {device_id}"
        for name in ("api", "range", "counter", "marker"):
            conditions[name] += f" AND track_id NOT IN {other}"
    return {name: f'(SELECT * FROM "{name}" WHERE {where})' for name, where in conditions.items()}


def _clock(connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str], run_id: int) -> Clock:
    found: list[int] = []
    longest = 0
    for name, columns in _TIMES.items():
        asked = [f"{function}({column})" for column in columns for function in ("min", "max")]
        if name in ("task", "api", "range"):
            asked += ["max(dur_ns)", "min(dur_ns)"]
        [row] = connection.execute(f"SELECT {', '.join(asked)} FROM {sources[name]}").fetchall()
        times = row[: 2 * len(columns)]
        found.extend(time for time in times if time is not None)
        longest = max(longest, *(abs(length or 0) for length in row[len(times) :]), 0)
    [(run_start,)] = connection.execute("SELECT min(start_ns) FROM run WHERE run_id = ?", [run_id]).fetchall()
    if run_start is not None:
        found.append(run_start)
    first_ns, last_ns = min(found, default=0), max(found, default=0)
    span_ns = last_ns - first_ns
    # From 0 all times can be counted, from the first one only where the last is near enough.
    return Clock(first_ns if is_time(span_ns) else 0, wide=max(span_ns, longest) >= _WIDE_NS)


def _write(connection: duckdb.DuckDBPyConnection, file: IO[bytes], trace: _Trace) -> ChromeSummary:
    text = _TextFile(file)
    about = {
        "writer": f"traceconv {__version__}",
        "base_ns": str(trace.clock.base_ns),
        "form": FORM,
        **{name: list(rows) for name, rows in trace.layout.tables.items()},
    }
    text.write(f'{{"displayTimeUnit":"ns","otherData":{json_text(about)},\n"traceEvents":[')
    # Rows begin with a comma; a trace that has any has a process and a thread for them.
    text.write(",".join(f"\n{event}" for event in metadata_events(trace.layout, unbound=False)))
    if trace.layout.processes:
        rows = {name: f'(SELECT * FROM "{name}" WHERE run_id = {trace.run_id})' for name in ROW_TABLES}
        # Metadata has no time: a viewer would show such markers all at one.
        rows["marker"] = f"(SELECT * FROM {trace.sources['marker']} WHERE ts_ns IS NULL)"
        for name, source in rows.items():
            query = row_events(connection, name, source)
            if query is not None:
                text.write_query(connection, query)
    counts = {events.table: _write_rows(connection, text, events) for events in _tables(connection, trace)}
    [(counts["marker"],)] = connection.execute(f"SELECT count(*) FROM {trace.sources['marker']}").fetchall()
    memory = memory_counter_events(connection, trace.run_id, trace.sources["memory"], trace.clock)
    text.write_query(connection, memory.query())
    [(counts["memory"],)] = connection.execute(f"SELECT count(*) FROM {trace.sources['memory']}").fetchall()
    counts["flow"] = _write_flows(connection, text, trace)
    text.write("\n]}\n")
    return ChromeSummary(counts, text.size_bytes)


def _tables(connection: duckdb.DuckDBPyConnection, trace: _Trace) -> Iterator[Events]:
    for name in ("range", "api", "task"):
        yield slice_events(connection, name, trace.sources[name], trace.clock)
    yield step_events(connection, trace.sources["step"], trace.clock)
    yield marker_events(connection, trace.sources["marker"], trace.clock)
    yield counter_events(connection, trace.sources["counter"], trace.clock)
    yield memory_events(connection, trace.sources["memory"], trace.clock)


def _write_rows(connection: duckdb.DuckDBPyConnection, text: _TextFile, events: Events) -> int:
    """Writes all events of one kind; returns how many. Raises StoreError when the store has more of them."""
    assert events.time is not None
    windows = time_windows(connection, events.source, events.time)
    conditions = [condition(f"s.{events.time}", window) for window in windows]
    written = sum(text.write_query(connection, events.query(where)) for where in conditions)
    [(expected,)] = connection.execute(f"SELECT count(*) FROM {events.source}").fetchall()
    if written != expected:
        raise StoreError(
            f"table {events.table}: {expected} events are to be exported, but {written} have a time and a "
            "place of their own; the store is damaged, ingest again"
        )
    return written


def _write_flows(connection: duckdb.DuckDBPyConnection, text: _TextFile, trace: _Trace) -> int:
    """Writes the flows after the slices that they bind to; returns how many."""
    source = flow_source(trace.sources["flow"], trace.clock)
    query = flow_query(connection, trace.sources["flow"], trace.clock)
    written, unbound = 0, False
    for window in time_windows(connection, source, "at_ns", FLOW_WINDOW_ROWS):
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE export_flow_window AS "
            f"SELECT * FROM {source} WHERE {condition('at_ns', window)}"
        )
        connection.execute(f"CREATE OR REPLACE TEMP TABLE export_flow_end AS {flow_end_query(trace.sources)}")
        foreign = _FOREIGN_FLOW if trace.filtered else "false"
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE export_flow AS {_FLOWS_WITH_ENDS} WHERE NOT ({foreign}) "
            "ORDER BY f.at_ns, f.flow_id"
        )
        for batch in arrow_batches(connection, query, _BATCH_ROWS):
            written += text.write_column(batch.column(0))
            unbound = unbound or pc.any(batch.column(1)).as_py() is True
    if unbound:
        text.write("".join(f",\n{event}" for event in metadata_events(trace.layout, unbound=True)))
    return written


_FLOWS_WITH_ENDS = """
SELECT f.*, CASE WHEN f.reversed THEN b.tid ELSE a.tid END AS start_tid,
       CASE WHEN f.reversed THEN a.tid ELSE b.tid END AS finish_tid,
       CASE WHEN f.reversed THEN f.src_ns ELSE f.dst_ns END AS finish_ns
FROM export_flow_window AS f
LEFT JOIN export_flow_end AS a ON a.id = f.src_id LEFT JOIN export_flow_end AS b ON b.id = f.dst_id
"""
#: With one device asked for, a flow to or from another has an end that is not in the trace.
_FOREIGN_FLOW = "(f.src_id IS NOT NULL AND a.id IS NULL) OR (f.dst_id IS NOT NULL AND b.id IS NULL)"


class _TextFile:
    """Counts and writes text, from strings and from the buffers of Arrow string columns."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size_bytes = 0

    def write(self, text: str) -> None:
        data = text.encode()
        self._file.write(data)
        self.size_bytes += len(data)

    def write_query(self, connection: duckdb.DuckDBPyConnection, query: str) -> int:
        """Writes the one text column of a query, row after row; returns the number of rows."""
        return sum(self.write_column(batch.column(0)) for batch in arrow_batches(connection, query, _BATCH_ROWS))

    def write_column(self, column: pa.StringArray) -> int:
        """Writes the texts of a column, one after another; returns how many."""
        _, offsets, data = column.buffers()
        if len(column) and data is not None:
            ends = np.frombuffer(offsets, np.int32)
            first, last = int(ends[column.offset]), int(ends[column.offset + len(column)])
            self._file.write(memoryview(data)[first:last])
            self.size_bytes += last - first
        return len(column)
