"""Fill the table device_gap: the gaps between the tasks of devices, and what the host did meanwhile."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64, Mask
from traceconv.base.integers import LARGEST
from traceconv.normalize.enclosing_slices import OpenSlices, Probes, Slices
from traceconv.normalize.sort.spool import Spool
from traceconv.store.arrow_rows import GroupedInserts, execute_with, fetch_with
from traceconv.store.time_chunks import time_chunks

#: A gap of a device; `known`: whether the device is.
GAP = np.dtype([("run_id", "<i8"), ("device_id", "<i8"), ("start_ns", "<i8"), ("end_ns", "<i8"), ("known", "?")])
#: Slices and gaps of a range of time.
_CHUNK_ROWS = 100_000
#: Shorter ranges and calls are not looked at.
_SLICE_NS = 2500
_LOADS, _SYNCS = "(?i)data_?loader|get_?next", "(?i)synchroni[sz]e"

# The next task is the first in the source of those that start when the gap ends. Its call's thread is looked at if the
# gap is launched late.
_NEXT = """
SELECT g.rowid AS number, g.run_id, g.device_id, g.start_ns, g.end_ns, t.id AS task_id, t.name AS task_name,
       t.stream_id, t.submit_ns, t.stream_wait_ns, {thread} AS thread_id, {track} AS track,
       t.submit_ns::HUGEINT - g.start_ns >= g.end_ns::HUGEINT - t.submit_ns AS is_late
FROM temp.gap AS g
JOIN task AS t ON t.run_id = g.run_id AND t.start_ns = g.end_ns AND t.device_id IS NOT DISTINCT FROM g.device_id
{calls}
WHERE g.start_ns BETWEEN {start} AND {last} AND t.start_ns BETWEEN {start} AND {last_ns}
  AND t.kind IS DISTINCT FROM 'sync' AND t.dur_ns IS NOT NULL
"""
# DuckDB reads only the row groups of a table that these bounds allow.
_LAST_TASK = "SELECT max(end_ns) FROM temp.gap WHERE start_ns BETWEEN {start} AND {last}"
_CALL_BOUNDS = """
SELECT coalesce(min(api_id), 0), coalesce(max(api_id), 0) FROM task WHERE start_ns BETWEEN {start} AND {last_ns}
"""
_CALLS = """
LEFT JOIN (FROM api WHERE id BETWEEN {first_id} AND {last_id}) AS a ON a.run_id = t.run_id AND a.id = t.api_id
LEFT JOIN temp.gap_thread AS h ON h.run_id = a.run_id AND h.track_id = a.track_id
"""
_THREADS = """
CREATE OR REPLACE TEMP TABLE gap_thread AS
SELECT run_id, track_id, row_number() OVER (ORDER BY run_id, track_id) AS track
FROM (SELECT DISTINCT run_id, track_id FROM api WHERE run_id IN ({runs}) AND track_id IS NOT NULL)
WHERE EXISTS (FROM task WHERE run_id IN ({runs}) AND api_id IS NOT NULL)
"""
# A pattern takes longer than everything else here: once per name. In a CTE, DuckDB would move the
# condition to where the names are not distinct yet.
_NAMES = f"""
CREATE OR REPLACE TEMP TABLE gap_name AS
SELECT name, regexp_matches(name, '{_LOADS}') AS loads, regexp_matches(name, '{_SYNCS}') AS syncs
FROM (
  SELECT DISTINCT name
  FROM (
    SELECT DISTINCT name FROM "range" WHERE run_id IN ({{runs}})
    UNION ALL SELECT DISTINCT name FROM api WHERE run_id IN ({{runs}})
  )
)
WHERE loads OR syncs
"""  # noqa: S608 - our own words
_HOST = f"""
SELECT r.run_id, r.track_id, r.id, r.name, r.start_ns, r.start_ns + r.dur_ns AS end_ns
FROM (SELECT run_id, track_id, id, name, start_ns, dur_ns FROM "range"
      UNION ALL SELECT run_id, track_id, id, name, start_ns, dur_ns FROM api) AS r
WHERE r.run_id IN ({{runs}}) AND r.dur_ns >= {_SLICE_NS} AND TRY(r.start_ns + r.dur_ns) IS NOT NULL
"""  # noqa: S608 - our own words
_TIMES = """
SELECT h.start_ns AS ts_ns
FROM ({host}) AS h
SEMI JOIN temp.gap_thread AS t ON t.run_id = h.run_id AND t.track_id = h.track_id
UNION ALL
"""
_GAP_TIMES = "SELECT start_ns AS ts_ns FROM temp.gap"
_SLICES = """
SELECT t.track, h.start_ns, h.end_ns, h.id, coalesce(n.loads, false) AS loads, coalesce(n.syncs, false) AS syncs
FROM ({host}) AS h
JOIN temp.gap_thread AS t ON t.run_id = h.run_id AND t.track_id = h.track_id
LEFT JOIN temp.gap_name AS n ON n.name = h.name
WHERE h.start_ns BETWEEN {start} AND {last}
"""
_HOST_NAMES = """
SELECT h.number, r.name
FROM host_rows AS h
JOIN (SELECT run_id, id, name FROM "range" UNION ALL SELECT run_id, id, name FROM api) AS r
  ON r.run_id = h.run_id AND r.id = h.host_id
WHERE r.id BETWEEN {first_id} AND {last_id}
"""
_INSERT = """
INSERT INTO device_gap BY NAME
SELECT run_id, device_id, start_ns, end_ns,
       CASE WHEN submit_ns IS NULL THEN NULL
            WHEN submit_ns <= start_ns AND stream_wait_ns <> TRY(end_ns - start_ns) THEN 'dependency'
            WHEN NOT is_late THEN 'launch'
            WHEN loads THEN 'data_loading'
            WHEN syncs THEN 'synchronisation'
            ELSE 'host' END AS cause,
       CASE WHEN submit_ns IS NOT NULL
            THEN TRY_CAST(greatest(0, least(submit_ns, end_ns)::HUGEINT - start_ns) AS BIGINT)
       END AS host_wait_ns,
       TRY_CAST(end_ns::HUGEINT - submit_ns AS BIGINT) AS launch_delay_ns,
       host_id, host_name, task_id, task_name, stream_id, thread_id
FROM gap_rows
"""
_TEMPORARY = ("gap", "gap_thread", "gap_name")


def fill_gaps(connection: duckdb.DuckDBPyConnection, runs: Iterable[int], gaps: Spool) -> None:
    """Insert the rows of these gaps of dtype GAP, which are those of runs that have none."""
    if not gaps.count:
        return
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    execute_with(connection, "CREATE OR REPLACE TEMP TABLE gap AS FROM gap_rows", "gap_rows", _gap_rows(gaps))
    connection.execute(_THREADS.format(runs=chosen))
    has_threads = bool(connection.execute("FROM temp.gap_thread LIMIT 1").fetchall())
    threads = _Threads(connection, chosen) if has_threads else None
    times = (_TIMES.format(host=threads.host) if threads else "") + _GAP_TIMES
    inserts = GroupedInserts(connection, _INSERT, "gap_rows")
    for start, end in time_chunks(connection, times, _CHUNK_ROWS):
        rows = _next_tasks(connection, start, end, has_threads=has_threads)
        inserts.add(threads.look(rows, start, end) if threads else _with_hosts(rows))
    inserts.end()
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


def _next_tasks(connection: duckdb.DuckDBPyConnection, start: int, end: int, *, has_threads: bool) -> pa.Table:
    """Return the gaps that begin in a range of time, each with its next task and the thread that launched it."""
    within = {"start": start, "last": end - 1}
    [(last_ns,)] = connection.execute(_LAST_TASK.format(**within)).fetchall()
    within["last_ns"] = start if last_ns is None else last_ns
    thread, track, calls = "NULL::BIGINT", "NULL::BIGINT", ""
    if has_threads:
        [(first_id, last_id)] = connection.execute(_CALL_BOUNDS.format(**within)).fetchall()
        thread, track, calls = "a.track_id", "h.track", _CALLS.format(first_id=first_id, last_id=last_id)
    statement = _NEXT.format(**within, thread=thread, track=track, calls=calls)
    rows = connection.sql(statement).to_arrow_table()
    number = rows.column("number").to_numpy()
    order = np.lexsort((rows.column("task_id").to_numpy(), number))
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
        self.host = _HOST.format(runs=runs)
        self._connection = connection
        #: Creates the table of names; None: was executed.
        self._create_names: str | None = _NAMES.format(runs=runs)
        self._open = OpenSlices()
        #: Gaps that are halfway to their launches in a later range of time, and whether their threads synchronised when
        #: they began.
        self._waiting: list[pa.Table] = []
        self._syncs = np.zeros(0, np.bool_)

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
        table = self._connection.sql(_SLICES.format(host=self.host, start=start, last=end - 1)).to_arrow_table()
        track, start_ns, end_ns, ids = (_numbers(table, name) for name in ("track", "start_ns", "end_ns", "id"))
        return Slices(track, start_ns, end_ns, ids, _flags(table, "loads"), _flags(table, "syncs"))

    def _names(self, run_ids: Int64, hosts: Int64) -> pa.Array:
        """Return the names of slices, NULL for those with negative IDs."""
        numbers = np.flatnonzero(hosts >= 0)
        if not len(numbers):
            return pa.nulls(len(hosts), pa.string())
        known = hosts[numbers]
        query = _HOST_NAMES.format(first_id=known.min(), last_id=known.max())
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
    numbers: Int64 = rows.column(name).fill_null(0).to_numpy()
    return numbers


def _flags(rows: pa.Table, name: str) -> Mask:
    flags: Mask = rows.column(name).fill_null(False).to_numpy()
    return flags
