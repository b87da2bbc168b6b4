"""A run as a Chrome trace (Trace Event Format, JSON object form), for Perfetto's viewer and chrome://tracing.

Events are written from the columns of one time window after another, so memory doesn't grow with the run. Timestamps
are microseconds since the first event of the run (`otherData.base_ns`), with three decimals computed from integers.
Every row of the exported tables can be read back from the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from traceconv._version import __version__
from traceconv.base.errors import StoreError
from traceconv.base.integers import is_time
from traceconv.export.chrome_events import (
    FINISH_TID,
    START_TID,
    EndThreads,
    Events,
    Shared,
    counter_events,
    flow_events,
    load_counter_event,
    make_shared,
    marker_events,
    memory_counter_events,
    memory_events,
    slice_events,
    step_events,
    step_source,
    table_sources,
    with_ends,
)
from traceconv.export.chrome_layout import Layout, make_layout, metadata_events
from traceconv.export.excerpt import Excerpt, find_excerpt
from traceconv.export.json_sql import double, json_text
from traceconv.export.load_counters import load_counters
from traceconv.export.output import CountedFile, open_output
from traceconv.export.record_file import RecordFile, in_turn, record_file
from traceconv.export.registry import Written
from traceconv.export.row_arrays import row_arrays
from traceconv.export.row_order import (
    BATCH_ROWS,
    rows_of_window,
    slice_order,
    small_batches,
    time_ordered,
)
from traceconv.export.sorted_runs import another, copied_tables
from traceconv.export.timeline import SLICE_TABLES, TIMES, exporting, find_lanes, row_sources, with_path_flows
from traceconv.export.windows import WINDOW_ROWS, condition, time_windows
from traceconv.normalize.trace.own_columns import FORM, TASK_TABLES, TIMELESS
from traceconv.store.memory_limit import shrink_cache

_MEMORY_BYTES = 100_000_000
#: Rows of a metadata event, and their bytes in memory: damage to the file loses them all.
_EVENT_ROWS = 1024
_EVENT_BYTES = 8 << 20
#: Flows whose ends are looked up at once, while other rows are read.
_FLOW_WINDOW_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class _Trace:
    """What to write.

    sources   the FROM clause of each table; `counted`: those that determine the counters of memory and load
    end_ns    when the excerpt ends; None: with the run
    filtered  whether an excerpt or one device was selected
    shared    what events share
    args      whether events have args
    """

    run_id: int
    sources: Mapping[str, str]
    counted: Mapping[str, str]
    end_ns: int | None
    filtered: bool
    shared: Shared
    layout: Layout
    args: bool


def export_chrome(
    connection: duckdb.DuckDBPyConnection,
    run_id: int,
    output: Path | None,
    *,
    device: int | None = None,
    args: bool = True,
    critical_path: bool = False,
    **part: str | None,
) -> Written:
    """Write a run as a Chrome trace to `output` (None: standard output; compressed if it ends in .gz).

    `device` omits rows of other devices, and `part`, the arguments of `find_excerpt`, those outside of some steps or a
    window of time. Without `args` events only have a name and a category, and the run can't be ingested from the file.
    With `critical_path`, flows show the paths in the table of that name. The connection's memory limit is set, and it
    gets temporary tables. Raises OutputError if the file can't be written, StoreError if the store can't be read,
    UsageError for a part that doesn't exist, InputError if the run has tasks without a start and is no static profile,
    or has no critical path to show.
    """
    with exporting(connection, run_id, _MEMORY_BYTES, ordered=True):
        excerpt = find_excerpt(connection, run_id, **part)
        trace = _prepare(connection, run_id, device, excerpt, args)
        if critical_path:
            flows = with_path_flows(connection, run_id, trace.sources["flow"])
            trace = replace(trace, sources={**trace.sources, "flow": flows})
        with open_output(output) as file:
            counted = CountedFile(file)
            with record_file(counted) as records:
                rows = _write(connection, records, trace)
            return Written(rows, counted.size_bytes)


def _prepare(
    connection: duckdb.DuckDBPyConnection, run_id: int, device: int | None, excerpt: Excerpt, args: bool
) -> _Trace:
    whole = row_sources(connection, run_id, device)
    sources = excerpt.of(whole)
    base_ns = _base_ns(connection, sources, run_id)
    find_lanes(connection, run_id, {**sources, "step": step_source(sources["step"], base_ns)})
    layout = make_layout(connection, run_id, sources)
    return _Trace(
        run_id, sources, excerpt.counted(whole), excerpt.end_ns, device is not None or excerpt != Excerpt(),
        make_shared(connection, run_id, layout, base_ns), layout, args,
    )  # fmt: skip


def _base_ns(connection: duckdb.DuckDBPyConnection, sources: Mapping[str, str], run_id: int) -> int:
    """Return what timestamps are relative to."""
    queries = [f"SELECT start_ns AS first, start_ns AS last FROM run WHERE run_id = {run_id}"]
    for name, columns in TIMES.items():
        firsts, lasts = (", ".join(f"{function}({column})" for column in columns) for function in ("min", "max"))
        queries.append(f"SELECT least({firsts}), greatest({lasts}) FROM {sources[name]}")
    [(first, last)] = connection.execute(
        f"SELECT min(first), max(last) FROM ({' UNION ALL '.join(queries)})"
    ).fetchall()
    # Times relative to 0 always fit; relative to the first event only if the last one is near enough.
    return first if first is not None and is_time(last - first) else 0


def _write(connection: duckdb.DuckDBPyConnection, file: RecordFile, trace: _Trace) -> dict[str, int]:
    """Write the trace; return the number of rows of each table."""
    shared, sources = trace.shared, trace.sources
    about: dict[str, object] = {"writer": f"traceconv {__version__}", "base_ns": str(shared.base_ns)}
    if trace.args:
        about |= {"form": FORM, **{name: list(rows) for name, rows in trace.layout.tables.items()}}
    file.write(f'{{"displayTimeUnit":"ns","otherData":{json_text(about)},\n"traceEvents":['.encode())
    # Rows begin with a comma, so that a process and a thread have to come before them.
    is_bare = trace.layout.has_flows_only
    flows_first = is_bare and bool(connection.execute(f"SELECT 1 FROM {sources['flow']} LIMIT 1").fetchall())
    metadata = metadata_events(trace.layout, unbound=flows_first)
    file.write(",".join(f"\n{event}" for event in metadata).encode())
    rows = table_sources(trace.run_id, sources, filtered=trace.filtered)
    # Metadata events have no timestamp; as instants, viewers would show these markers all at the same time.
    rows["marker"] = f"(SELECT * FROM {sources['marker']} WHERE ts_ns IS NULL)"
    if not trace.args or (is_bare and not flows_first):
        rows.clear()
    large = {name: rows.pop(name) for name in TASK_TABLES if name in rows}
    for name, source in rows.items():
        in_turn(_write_table(connection, file, name, source))
    counts: dict[str, int] = {}
    for events in _ordered(connection, trace):
        in_turn(_write_rows(connection, file, events, counts))
    stored = (
        counter_events(connection, sources["counter"], shared),
        memory_events(connection, sources["memory"], shared, args=trace.args),
    )
    counts |= dict.fromkeys(("counter", "memory", "flow"), 0)
    # The first are quickly read and slowly written, the others the other way round.
    own = another(connection, {"export_thread": connection.sql("FROM export_thread").to_arrow_table()})
    in_turn(_write_stored(own, file, large, stored, counts), _write_computed(connection, file, trace, counts))
    [(counts["marker"],)] = connection.execute(f"SELECT count(*) FROM {sources['marker']}").fetchall()
    file.write(b"\n]}\n")
    return counts


def _write_table(connection: duckdb.DuckDBPyConnection, file: RecordFile, name: str, source: str) -> Iterator[int]:
    """Write the rows of a table that viewers don't show, in metadata events; yield their numbers."""
    rows = row_arrays(connection, name, source)
    for batch in small_batches(connection, rows.query, 1 if name == TIMELESS else _EVENT_ROWS, _EVENT_BYTES):
        file.write_later(partial(rows.event, batch), batch.nbytes)
        yield batch.num_rows


def _ordered(connection: duckdb.DuckDBPyConnection, trace: _Trace) -> Iterator[Events]:
    for name in SLICE_TABLES:
        yield slice_events(connection, name, trace.sources[name], trace.shared, args=trace.args)
    yield step_events(connection, trace.sources["step"], trace.shared, args=trace.args)
    yield marker_events(connection, trace.sources["marker"], trace.shared, args=trace.args)


def _write_rows(
    connection: duckdb.DuckDBPyConnection, file: RecordFile, events: Events, counts: dict[str, int]
) -> Iterator[int]:
    """Write all events of one kind; yield their numbers and count them. Raises StoreError if the store has more."""
    counts[events.table] = 0
    has_args = events.table in (*SLICE_TABLES, "marker")
    size = rows_of_window(connection, events.source) if has_args else WINDOW_ROWS
    written: Iterator[int]
    if events.order:
        written = (
            file.rows(events.template, batch, places)
            for batch, places in time_ordered(
                connection, events.source, events.time, events.query,
                lambda rows: slice_order(*map(rows.column, events.order)), size,
                copied_tables(connection, ("export_thread", "export_lane", "export_op")),
            )
        )  # fmt: skip
    else:
        written = file.query(connection, events.template, events.query(f"s.{events.time} IS NOT NULL"), size)
    for rows in written:
        counts[events.table] += rows
        yield rows
    check_written(connection, events.table, events.source, counts[events.table])


def _write_stored(
    connection: duckdb.DuckDBPyConnection,
    file: RecordFile,
    tables: Mapping[str, str],
    shown: Iterable[Events],
    counts: dict[str, int],
) -> Iterator[int]:
    """Write the rows of tables that viewers don't show, and events in the order of their rows; yield their numbers."""
    for name, source in tables.items():
        yield from _write_table(connection, file, name, source)
    for events in shown:
        yield from _write_rows(connection, file, events, counts)


def _write_computed(
    connection: duckdb.DuckDBPyConnection, file: RecordFile, trace: _Trace, counts: dict[str, int]
) -> Iterator[int]:
    """Write the flows and the counters of memory and load; yield their numbers."""
    shared, sources = trace.shared, trace.sources
    shrink_cache(connection)  # flows read few of the rows in it, and need memory of their own
    events = flow_events(shared, sources["flow"], args=trace.args)
    # Only the ends of flows need temporary tables; the file's thread looks them up meanwhile.
    ends, connection = _FlowEnds(connection, file, trace, events), another(connection)
    yield from _write_flows(connection, file, events, ends)
    counted, first = trace.counted, str(shared.base_ns)
    for event, batch in memory_counter_events(connection, trace.run_id, counted["memory"], shared, trace.layout):
        yield file.rows(event, batch)
    for counter, thread in load_counters(connection, trace.run_id, counted, trace.layout, first, trace.end_ns):
        event = load_counter_event(counter, thread, shared)
        for batch in counter.samples(connection, double("value")):
            yield file.rows(event, batch)
    file.flush()
    counts["flow"] = ends.count


def check_written(connection: duckdb.DuckDBPyConnection, table: str, source: str, written: int) -> None:
    """Raise StoreError unless `source`, a FROM clause of rows of a table, has as many rows as were written."""
    [(expected,)] = connection.execute(f"SELECT count(*) FROM {source}").fetchall()
    if written != expected:
        raise StoreError(
            f"table {table}: only {written} of {expected} rows have a time and a unique track; "
            "the store is damaged, ingest its sources again"
        )


class _FlowEnds:
    """Writes flows with the threads of their ends: in the file's thread, which looks them up over `connection`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, file: RecordFile, trace: _Trace, events: Events) -> None:
        self._connection = connection
        self._file = file.at_once
        self._trace = trace
        self._events = events
        [self._loose] = [thread.tid for thread in trace.layout.threads if thread.source == "flow"]
        self._unbound = False
        self.count = 0

    def look_up(self, where: str) -> None:
        """Look up the ends of the flows that match a condition, before they are written."""
        query = f"SELECT src_id, dst_id FROM {self._events.source} AS s WHERE {where}"
        source, target = self._connection.sql(query).to_arrow_table().columns
        self._source = EndThreads(self._connection, self._trace.sources, source)
        self._target = EndThreads(self._connection, self._trace.sources, target)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some of the flows."""
        source_tid, has_source = self._source.of(batch.column("_src_id"))
        target_tid, has_target = self._target.of(batch.column("_dst_id"))
        places = np.arange(batch.num_rows)
        if self._trace.filtered:
            # A flow to or from a device or time that was not selected has an end that is not in the trace.
            places = places[~((has_source & (source_tid == 0)) | (has_target & (target_tid == 0)))]
        found = with_ends(batch, source_tid, target_tid, self._loose)
        self.count += self._file.rows(self._events.template, found, places)
        starts, finishes = (found.column(name).to_numpy()[places] for name in (START_TID, FINISH_TID))
        is_finished = found.column("dst_ns").is_valid().to_numpy(zero_copy_only=False)[places]
        self._unbound |= bool(((starts == self._loose) | (is_finished & (finishes == self._loose))).any())

    def end(self) -> None:
        """Write the metadata of the thread of unknown ends, if it has flows."""
        if self._unbound and not self._trace.layout.has_flows_only:
            metadata = metadata_events(self._trace.layout, unbound=True)
            self._file.write("".join(f",\n{event}" for event in metadata).encode())


def _write_flows(
    connection: duckdb.DuckDBPyConnection, file: RecordFile, events: Events, ends: _FlowEnds
) -> Iterator[int]:
    """Write the flows, after the slices that they bind to; yield the numbers of those that were read."""
    for window in time_windows(connection, events.source, events.time, _FLOW_WINDOW_ROWS):
        where = condition(f"s.{events.time}", window)
        file.later(partial(ends.look_up, where), 0)
        for batch in connection.sql(events.query(where)).to_arrow_reader(BATCH_ROWS):
            file.later(partial(ends.write, batch), batch.nbytes)
            yield batch.num_rows
    file.later(ends.end, 0)
