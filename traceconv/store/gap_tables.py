"""Fill the table device_gap: the gaps between the tasks of devices, and what the host did meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64, Mask
from traceconv.base.integers import LARGEST
from traceconv.normalize.enclosing_slices import OpenSlices, Probes, Slices
from traceconv.normalize.sort.spool import Spool
from traceconv.store.arrow_rows import GroupedInserts, execute_with, fetch_with
from traceconv.store.sections import section
from traceconv.store.time_chunks import time_chunks

#: A gap of a device; `known`: whether the device is.
GAP = np.dtype([("run_id", "<i8"), ("device_id", "<i8"), ("start_ns", "<i8"), ("end_ns", "<i8"), ("known", "?")])
#: Slices and gaps of a range of time.
_CHUNK_ROWS = 100_000
#: Shorter ranges and calls are not looked at.
_SLICE_NS = 2500
_sql = partial(section, __name__, slice_ns=_SLICE_NS, loads="(?i)data_?loader|get_?next", syncs="(?i)synchroni[sz]e")

_GAP_TIMES = "SELECT start_ns AS ts_ns FROM temp.gap"
#: Sections for runs whose streams wait in tasks, and what replaces them in statements for others.
_WAITS = {"waits": "", "idle": "false"}
_TEMPORARY = ("gap", "gap_thread", "gap_name")


def fill_gaps(connection: duckdb.DuckDBPyConnection, runs: Iterable[int], gaps: Spool) -> None:
    """Insert the rows of these gaps of dtype GAP, which are those of runs that have none."""
    if not gaps.count:
        return
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    execute_with(connection, "CREATE OR REPLACE TEMP TABLE gap AS FROM gap_rows", "gap_rows", _gap_rows(gaps))
    connection.execute(_sql("threads", runs=chosen))
    has_threads = bool(connection.execute("FROM temp.gap_thread LIMIT 1").fetchall())
    threads = _Threads(connection, chosen) if has_threads else None
    waiting = ", ".join(f"{run_id:d}" for (run_id,) in connection.execute(_sql("waiting_runs", runs=chosen)).fetchall())
    times = (_sql("times", host=threads.host) + "\n" if threads else "") + _GAP_TIMES
    inserts = GroupedInserts(connection, _sql("insert"), "gap_rows")
    for start, end in time_chunks(connection, times, _CHUNK_ROWS):
        rows = _next_tasks(connection, start, end, waiting, has_threads=has_threads)
        inserts.add(threads.look(rows, start, end) if threads else _with_hosts(rows))
    inserts.end()
    if threads and threads.any_loads():
        connection.execute(_sql("loaded_elsewhere", runs=chosen))
    for name in _TEMPORARY:
        connection.execute(f"DROP TABLE IF EXISTS temp.{name}")


def _gap_rows(gaps: Spool) -> pa.RecordBatchReader:
    schema = pa.schema([(name, pa.int64()) for name in ("run_id", "device_id", "start_ns", "end_ns")])
    batches = (
        pa.RecordBatch.from_arrays(
            [pa.array(rows[name], mask=~rows["known"] if name == "device_id" else None) for name in schema.names],
            schema=schema,
        )
        for rows in gaps
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _next_tasks(
    connection: duckdb.DuckDBPyConnection, start: int, end: int, waiting: str, *, has_threads: bool
) -> pa.Table:
    """Return the gaps that begin in a range of time, each with its next task and the thread that launched it.

    waiting  runs whose streams wait in tasks
    """
    within = {"start": start, "last": end - 1}
    [(last_ns,)] = connection.execute(_sql("last_task", **within)).fetchall()
    within["last_ns"] = start if last_ns is None else last_ns
    thread, track, calls = "NULL::BIGINT", "NULL::BIGINT", ""
    if has_threads:
        [(first_id, last_id)] = connection.execute(_sql("call_bounds", **within)).fetchall()
        thread, track, calls = "a.track_id", "h.track", _sql("calls", first_id=first_id, last_id=last_id)
    waits, idle = (_sql(name, **within, waiting=waiting) if waiting else default for name, default in _WAITS.items())
    statement = _sql("next_tasks", **within, thread=thread, track=track, calls=calls, waits=waits, idle=idle)
    rows = connection.sql(statement).to_arrow_table()
    task_id, dur_ns, number = (rows.column(name).to_numpy() for name in ("task_id", "dur_ns", "number"))
    order = np.lexsort((task_id, -dur_ns, number))
    number = number[order]
    is_first = np.append(True, number[1:] != number[:-1])
    # Several tasks rarely start at once.
    return rows if is_first.all() else rows.take(pa.array(order[is_first]))


class _Threads:
    """Looks at the launching threads when gaps begin and halfway to their launches, one range of time after another.

    runs  for conditions of SQL
    host  the query for their ranges and calls
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, runs: str) -> None:
        self.host = _sql("host", runs=runs)
        self._connection = connection
        #: Creates the table of names; None: was executed.
        self._create_names: str | None = _sql("names", runs=runs)
        self._open = OpenSlices()
        #: Gaps that are halfway to their launches in a later range of time, and whether their threads synchronised when
        #: they began.
        self._waiting: list[pa.Table] = []
        self._syncs = np.zeros(0, np.bool_)

    def any_loads(self) -> bool:
        """Whether ranges or calls have names of data loaders."""
        names = "FROM temp.gap_name WHERE loads LIMIT 1"
        return self._create_names is None and bool(self._connection.execute(names).fetchall())

    def look(self, rows: pa.Table, start: int, end: int) -> pa.Table:
        """Take the gaps that begin in a range of time; return those that are complete, with what was seen."""
        before = len(self._syncs)
        rows = pa.concat_tables([*self._waiting, rows])
        syncs = np.append(self._syncs, np.zeros(rows.num_rows - before, np.bool_))
        probed = np.flatnonzero(_flags(rows, "is_late") & rows.column("track").is_valid().to_numpy())
        if not len(probed) and end > LARGEST:  # nothing is looked at any more
            return _with_hosts(rows)
        track, begin_ns, finish_ns = (_numbers(rows, name)[probed] for name in ("track", "start_ns", "submit_ns"))
        half_ns = begin_ns + ((finish_ns - begin_ns).view(np.uint64) // 2).view(np.int64)
        begins, is_half = probed >= before, half_ns <= end - 1
        pairs = (track, track), (begin_ns, half_ns), (begin_ns, begin_ns), (finish_ns, finish_ns)
        probes = Probes(*(np.concatenate((at_begin[begins], at_half[is_half])) for at_begin, at_half in pairs))
        found = self._open.look(self._slices(start, end), probes, min(end, LARGEST))
        begin_count = int(begins.sum())
        syncs[probed[begins]] = found.syncs[:begin_count]
        seen = probed[is_half]
        syncs[seen] |= found.half_syncs[begin_count:]
        loads = np.zeros(rows.num_rows, np.bool_)
        loads[seen] = found.loads[begin_count:]
        hosts = np.full(rows.num_rows, -1)
        hosts[seen] = found.ids[begin_count:]
        is_waiting = np.zeros(rows.num_rows, np.bool_)
        is_waiting[probed[~is_half]] = True
        self._waiting, self._syncs = [rows.filter(pa.array(is_waiting))], syncs[is_waiting]
        complete = ~is_waiting
        return _with_hosts(
            rows.filter(pa.array(complete)),
            pa.array(hosts[complete], mask=hosts[complete] < 0),
            self._names(_numbers(rows, "run_id")[complete], hosts[complete]),
            pa.array(loads[complete]),
            pa.array(syncs[complete]),
        )

    def _slices(self, start: int, end: int) -> Slices:
        if self._create_names is not None:
            self._connection.execute(self._create_names)
            self._create_names = None
        table = self._connection.sql(_sql("slices", host=self.host, start=start, last=end - 1)).to_arrow_table()
        track, start_ns, end_ns, ids = (_numbers(table, name) for name in ("track", "start_ns", "end_ns", "id"))
        return Slices(track, start_ns, end_ns, ids, _flags(table, "loads"), _flags(table, "syncs"))

    def _names(self, run_ids: Int64, hosts: Int64) -> pa.Array:
        """Return the names of slices, NULL for those with negative IDs."""
        numbers = np.flatnonzero(hosts >= 0)
        if not len(numbers):
            return pa.nulls(len(hosts), pa.string())
        known = hosts[numbers]
        query = _sql("host_names", first_id=known.min(), last_id=known.max())
        columns = {
            "number": pa.array(numbers),
            "run_id": pa.array(run_ids[numbers]),
            "host_id": pa.array(known),
        }
        found = fetch_with(self._connection, query, "host_rows", pa.table(columns))
        places = np.full(len(hosts), -1)
        places[_numbers(found, "number")] = np.arange(found.num_rows)
        return found.column("name").combine_chunks().take(pa.array(places, mask=places < 0))


def _with_hosts(rows: pa.Table, *columns: pa.Array) -> pa.Table:
    """Add what the host did in gaps: by default, nothing is known."""
    schema = {"host_id": pa.int64(), "host_name": pa.string(), "loads": pa.bool_(), "syncs": pa.bool_()}
    columns = columns or tuple(pa.nulls(rows.num_rows, kind) for kind in schema.values())
    for name, column in zip(schema, columns, strict=True):
        rows = rows.append_column(name, column)
    return rows


def _numbers(rows: pa.Table, name: str) -> Int64:
    numbers: Int64 = _values(rows, name, 0)
    return numbers


def _flags(rows: pa.Table, name: str) -> Mask:
    flags: Mask = _values(rows, name, False)
    return flags


def _values(rows: pa.Table, name: str, unknown: object) -> Any:
    """Return a column with `unknown` for NULL, as a view of it if possible."""
    column = rows.column(name).combine_chunks()
    return (column.fill_null(unknown) if column.null_count else column).to_numpy(zero_copy_only=False)
