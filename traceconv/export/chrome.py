"""A run as a Chrome trace (Trace Event Format, JSON object form), for Perfetto's viewer and chrome://tracing.

SQL builds the text, one time window after another, and its bytes are written from DuckDB's buffers unchanged, so
memory doesn't grow with the run. Timestamps are microseconds since the first event of the run (`otherData.base_ns`),
with three decimals computed in decimal arithmetic. Every row of the exported tables can be read back from the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from traceconv._version import __version__
from traceconv.base.errors import StoreError
from traceconv.base.int64 import is_time
from traceconv.export.chrome_events import (
    Clock,
    Events,
    counter_events,
    flow_end_query,
    flow_query,
    flow_source,
    load_counter_query,
    marker_events,
    memory_counter_events,
    memory_events,
    op_query,
    row_events,
    slice_events,
    step_events,
    step_source,
    table_sources,
)
from traceconv.export.chrome_layout import Layout, make_layout, metadata_events
from traceconv.export.json_sql import json_text
from traceconv.export.load_counters import load_counters
from traceconv.export.output import CountedFile, open_output, text_bytes
from traceconv.export.registry import Written
from traceconv.export.timeline import SLICE_TABLES, TIMES, exporting, find_lanes, row_sources
from traceconv.export.windows import condition, time_windows
from traceconv.normalize.trace.own_columns import FORM

#: Rows fetched at once: some MB of text.
_BATCH_ROWS = 16_384
#: Flows of a window. Only their ids and times are in memory, no texts.
FLOW_WINDOW_ROWS = 400_000
_MEMORY_LIMIT = "200MB"
#: From here on (ns) times are computed with more than 64 bits.
_WIDE_NS = 10**15


@dataclass(frozen=True, slots=True)
class _Trace:
    """What to write: the FROM clause of each table, whether one device was selected, the clock, the layout and whether
    events have args.
    """

    run_id: int
    sources: Mapping[str, str]
    filtered: bool
    clock: Clock
    layout: Layout
    args: bool


def export_chrome(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    output: Path | None,
    *,
    device: int | None = None,
    args: bool = True,
) -> Written:
    """Write a run as a Chrome trace to `output` (None: standard output; compressed if it ends in .gz).

    `device` omits rows of other devices. Without `args` events only have a name and a category, and the run can't be
    ingested from the file. The connection's memory limit is set, and it gets temporary tables. Raises OutputError if
    the file can't be written, StoreError if the store can't be read, InputError if the run has tasks without a start
    and is no static profile.
    """
    with exporting(connection, run_id, _MEMORY_LIMIT):
        trace = _prepare(connection, run_id, device, args)
        with open_output(output) as file:
            return _write(connection, CountedFile(file), trace)


def _prepare(connection: duckdb.DuckDBPyConnection, run_id: int, device: int | None, args: bool) -> _Trace:
    sources = row_sources(connection, run_id, device)
    clock = _clock(connection, sources, run_id)
    find_lanes(connection, {**sources, "step": step_source(sources["step"], clock)})
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
    return _Trace(run_id, sources, device is not None, clock, layout, args)


def _clock(connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str], run_id: int) -> Clock:
    queries = [f"SELECT start_ns AS first, start_ns AS last, 0 AS longest FROM run WHERE run_id = {run_id}"]
    for name, columns in TIMES.items():
        firsts, lasts = (", ".join(f"{function}({column})" for column in columns) for function in ("min", "max"))
        longest = "greatest(max(dur_ns), -min(dur_ns)::HUGEINT)" if name in SLICE_TABLES else "0"
        queries.append(f"SELECT least({firsts}), greatest({lasts}), {longest} FROM {sources[name]}")
    [(first, last, longest_ns)] = connection.execute(
        f"SELECT min(first), max(last), max(longest) FROM ({' UNION ALL '.join(queries)})"
    ).fetchall()
    first_ns, span_ns = first or 0, (last or 0) - (first or 0)
    # Times relative to 0 always fit; relative to the first event only if the last one is near enough.
    return Clock(first_ns if is_time(span_ns) else 0, wide=max(span_ns, longest_ns or 0) >= _WIDE_NS)


def _write(connection: duckdb.DuckDBPyConnection, file: CountedFile, trace: _Trace) -> Written:
    about: dict[str, object] = {
        "writer": f"traceconv {__version__}",
        "base_ns": str(trace.clock.base_ns),
    }
    if trace.args:
        about |= {"form": FORM, **{name: list(rows) for name, rows in trace.layout.tables.items()}}
    file.write(f'{{"displayTimeUnit":"ns","otherData":{json_text(about)},\n"traceEvents":['.encode())
    # Rows begin with a comma; a trace that has any has a process and a thread for them.
    file.write(",".join(f"\n{event}" for event in metadata_events(trace.layout, unbound=False)).encode())
    if trace.layout.processes and trace.args:
        rows = table_sources(trace.run_id, trace.sources)
        # Metadata events have no timestamp; as instants, viewers would show these markers all at the same time.
        rows["marker"] = f"(SELECT * FROM {trace.sources['marker']} WHERE ts_ns IS NULL)"
        for name, source in rows.items():
            query = row_events(connection, name, source)
            if query is not None:
                write_query(connection, file, query)
    counts = {events.table: _write_rows(connection, file, events) for events in _tables(connection, trace)}
    memory = memory_counter_events(connection, trace.run_id, trace.sources["memory"], trace.clock)
    write_query(connection, file, memory.query())
    first = str(trace.clock.base_ns)
    for counter, thread in load_counters(connection, trace.run_id, trace.sources, trace.layout, first):
        write_query(connection, file, load_counter_query(counter, thread, trace.clock))
    for name in ("marker", "memory"):
        [(counts[name],)] = connection.execute(f"SELECT count(*) FROM {trace.sources[name]}").fetchall()
    counts["flow"] = _write_flows(connection, file, trace)
    file.write(b"\n]}\n")
    return Written(counts, file.size_bytes)


def _tables(connection: duckdb.DuckDBPyConnection, trace: _Trace) -> Iterator[Events]:
    for name in SLICE_TABLES:
        yield slice_events(connection, name, trace.sources[name], trace.clock, args=trace.args)
    yield step_events(connection, trace.sources["step"], trace.clock, args=trace.args)
    yield marker_events(connection, trace.sources["marker"], trace.clock, args=trace.args)
    yield counter_events(connection, trace.sources["counter"], trace.clock)
    yield memory_events(connection, trace.sources["memory"], trace.clock, args=trace.args)


def _write_rows(connection: duckdb.DuckDBPyConnection, file: CountedFile, events: Events) -> int:
    """Write all events of one kind; return their number. Raises StoreError if the store has more of them."""
    assert events.time is not None
    windows = time_windows(connection, events.source, events.time)
    conditions = [condition(f"s.{events.time}", window) for window in windows]
    written = sum(write_query(connection, file, events.query(where)) for where in conditions)
    check_written(connection, events.table, events.source, written)
    return written


def check_written(connection: duckdb.DuckDBPyConnection, table: str, source: str, written: int) -> None:
    """Raise StoreError unless `source`, a FROM clause of rows of a table, has as many rows as were written."""
    [(expected,)] = connection.execute(f"SELECT count(*) FROM {source}").fetchall()
    if written != expected:
        raise StoreError(
            f"table {table}: only {written} of {expected} rows have a time and a unique track; "
            "the store is damaged, ingest its sources again"
        )


def _write_flows(connection: duckdb.DuckDBPyConnection, file: CountedFile, trace: _Trace) -> int:
    """Write the flows, after the slices that they bind to; return their number."""
    source = flow_source(trace.sources["flow"], trace.clock)
    query = flow_query(connection, trace.sources["flow"], trace.clock, args=trace.args)
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
        for batch in connection.sql(query).to_arrow_reader(_BATCH_ROWS):
            written += _write_column(file, batch.column(0))
            unbound = unbound or pc.any(batch.column(1)).as_py() is True
    if unbound:
        file.write("".join(f",\n{event}" for event in metadata_events(trace.layout, unbound=True)).encode())
    return written


_FLOWS_WITH_ENDS = """
SELECT f.*, CASE WHEN f.reversed THEN b.tid ELSE a.tid END AS start_tid,
       CASE WHEN f.reversed THEN a.tid ELSE b.tid END AS finish_tid,
       CASE WHEN f.reversed THEN f.src_ns ELSE f.dst_ns END AS finish_ns
FROM export_flow_window AS f
LEFT JOIN export_flow_end AS a ON a.id = f.src_id LEFT JOIN export_flow_end AS b ON b.id = f.dst_id
"""
#: If one device was selected, a flow to or from another device has an end that is not in the trace.
_FOREIGN_FLOW = "(f.src_id IS NOT NULL AND a.id IS NULL) OR (f.dst_id IS NOT NULL AND b.id IS NULL)"


def write_query(connection: duckdb.DuckDBPyConnection, file: CountedFile, query: str) -> int:
    """Write the single text column of a query; return the number of rows."""
    return sum(_write_column(file, batch.column(0)) for batch in connection.sql(query).to_arrow_reader(_BATCH_ROWS))


def _write_column(file: CountedFile, column: pa.StringArray) -> int:
    """Write the texts of a column from its buffer; return their number."""
    file.write(text_bytes(column))
    return len(column)
