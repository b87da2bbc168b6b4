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
from traceconv.store.arrow_rows import execute_with
from traceconv.store.time_chunks import time_chunks

#: A gap of a device; `known`: whether the device is.
GAP = np.dtype([("run_id", "<i8"), ("device_id", "<i8"), ("start_ns", "<i8"), ("end_ns", "<i8"), ("known", "?")])
#: Slices and probes that are sorted at once.
_CHUNK_ROWS = 200_000
#: Shorter ranges and calls are not looked at.
_SLICE_NS = 2500
_LOADS, _SYNCS = "(?i)data_?loader|get_?next", "(?i)synchroni[sz]e"

# The next task is the first in the source of those that start when the gap ends. A join of all gaps would exceed the
# memory limit.
_NEXT = """
SELECT g.number, g.run_id, CASE WHEN g.known THEN g.device_id END AS device_id, g.start_ns, g.end_ns, t.id AS task_id,
       t.name AS task_name, t.stream_id, t.submit_ns, t.stream_wait_ns, t.api_id,
       t.submit_ns::HUGEINT - g.start_ns >= g.end_ns::HUGEINT - t.submit_ns AS is_late
FROM gap_rows AS g
JOIN task AS t ON t.run_id = g.run_id AND t.start_ns = g.end_ns
  AND t.device_id IS NOT DISTINCT FROM CASE WHEN g.known THEN g.device_id END
WHERE t.start_ns BETWEEN {first_ns} AND {last_ns} AND t.run_id BETWEEN {first_run} AND {last_run}
  AND t.kind IS DISTINCT FROM 'sync' AND t.dur_ns IS NOT NULL
"""
_FIRST = "QUALIFY row_number() OVER (PARTITION BY g.number ORDER BY t.id) = 1"
_LAUNCHED = """
SELECT g.* EXCLUDE (api_id), a.track_id AS thread_id
FROM temp.next_task AS g
LEFT JOIN api AS a ON a.run_id = g.run_id AND a.id = g.api_id
"""
# The launching thread is looked at when the gap begins, for which is_half is false, and halfway to the launch.
_PROBES = """
CREATE OR REPLACE TEMP TABLE probe AS
SELECT number, run_id, thread_id, start_ns AS begin_ns, submit_ns AS finish_ns, unnest([false, true]) AS is_half,
       unnest([start_ns, (start_ns + (submit_ns::HUGEINT - start_ns) // 2)::BIGINT]) AS at_ns
FROM temp.gap
WHERE is_late AND thread_id IS NOT NULL
"""
_THREADS = """
CREATE OR REPLACE TEMP TABLE gap_thread AS
SELECT run_id, track_id, row_number() OVER (ORDER BY run_id, track_id) AS track
FROM (SELECT DISTINCT run_id, thread_id AS track_id FROM temp.probe)
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
UNION ALL SELECT at_ns FROM temp.probe
"""
_SLICES = """
SELECT t.track, h.start_ns, h.end_ns, h.id, coalesce(n.loads, false) AS loads, coalesce(n.syncs, false) AS syncs
FROM ({host}) AS h
JOIN temp.gap_thread AS t ON t.run_id = h.run_id AND t.track_id = h.track_id
LEFT JOIN temp.gap_name AS n ON n.name = h.name
WHERE h.start_ns BETWEEN {start} AND {last}
"""
_LOOKED_AT = """
SELECT p.number, t.track, p.at_ns, p.begin_ns, p.finish_ns, p.is_half
FROM temp.probe AS p
JOIN temp.gap_thread AS t ON t.run_id = p.run_id AND t.track_id = p.thread_id
WHERE p.at_ns BETWEEN {start} AND {last}
"""
_SEEN = """
CREATE OR REPLACE TEMP TABLE seen (number BIGINT, host_id BIGINT, loads BOOLEAN, syncs BOOLEAN);
CREATE OR REPLACE TEMP TABLE seen_first (number BIGINT)
"""
_INSERT = """
INSERT INTO device_gap BY NAME
WITH named AS (
  SELECT h.number, r.name
  FROM (
    SELECT g.number, g.run_id, s.host_id
    FROM (FROM temp.gap WHERE {part}) AS g
    JOIN (FROM temp.seen WHERE {part}) AS s ON s.number = g.number
  ) AS h
  JOIN (SELECT run_id, id, name FROM "range" UNION ALL SELECT run_id, id, name FROM api) AS r
    ON r.run_id = h.run_id AND r.id = h.host_id
)
SELECT g.run_id, g.device_id, g.start_ns, g.end_ns,
       CASE WHEN g.submit_ns IS NULL THEN NULL
            WHEN g.submit_ns <= g.start_ns AND g.stream_wait_ns <> TRY(g.end_ns - g.start_ns) THEN 'dependency'
            WHEN NOT g.is_late THEN 'launch'
            WHEN s.loads THEN 'data_loading'
            WHEN s.syncs OR f.number IS NOT NULL THEN 'synchronisation'
            ELSE 'host' END AS cause,
       CASE WHEN g.submit_ns IS NOT NULL
            THEN TRY_CAST(greatest(0, least(g.submit_ns, g.end_ns)::HUGEINT - g.start_ns) AS BIGINT)
       END AS host_wait_ns,
       TRY_CAST(g.end_ns::HUGEINT - g.submit_ns AS BIGINT) AS launch_delay_ns,
       s.host_id, n.name AS host_name, g.task_id, g.task_name, g.stream_id, g.thread_id
FROM (FROM temp.gap WHERE {part}) AS g
LEFT JOIN (FROM temp.seen WHERE {part}) AS s ON s.number = g.number
LEFT JOIN (FROM temp.seen_first WHERE {part}) AS f ON f.number = g.number
LEFT JOIN named AS n ON n.number = g.number
"""
_TEMPORARY = ("next_task", "gap", "probe", "gap_thread", "gap_name", "seen", "seen_first")


def fill_gaps(connection: duckdb.DuckDBPyConnection, runs: Iterable[int], gaps: Spool) -> None:
    """Insert the rows of these gaps of dtype GAP, which are those of runs that have none."""
    if not gaps.count:
        return
    host = _HOST.format(runs=", ".join(f"{run_id:d}" for run_id in runs))
    parts = _find_launches(connection, gaps)
    for statement in (_PROBES, _THREADS, _NAMES.format(runs=", ".join(f"{run_id:d}" for run_id in runs)), _SEEN):
        connection.execute(statement)
    threads = OpenSlices()
    for start, end in time_chunks(connection, _TIMES.format(host=host), _CHUNK_ROWS):
        _look(connection, threads, host, start, end)
    for part in parts:
        connection.execute(_INSERT.format(part=part))
    for name in _TEMPORARY:
        connection.execute(f"DROP TABLE temp.{name}")


def _find_launches(connection: duckdb.DuckDBPyConnection, gaps: Spool) -> list[str]:
    """Create the temporary table gap: each gap, its next task, and the thread that launched it.

    Returns conditions on its column number, for parts of it.
    """
    parts: list[str] = []
    done = 0
    for rows in gaps:
        columns = {name: pa.array(rows[name]) for name in GAP.names or ()}
        columns["number"] = pa.array(np.arange(done, done + len(rows)))
        table = pa.table(columns)
        of = {"first_ns": rows["end_ns"].min(), "last_ns": rows["end_ns"].max()}
        of |= {"first_run": rows["run_id"].min(), "last_run": rows["run_id"].max()}
        statement = f"CREATE OR REPLACE TEMP TABLE next_task AS {_NEXT.format(**of)}"
        execute_with(connection, statement, "gap_rows", table)
        [(count,)] = connection.execute("SELECT count(*) FROM temp.next_task").fetchall()
        if count > len(rows):
            execute_with(connection, statement + _FIRST, "gap_rows", table)
        create = "INSERT INTO temp.gap" if parts else "CREATE OR REPLACE TEMP TABLE gap AS"
        connection.execute(f"{create} {_LAUNCHED}")
        parts.append(f"number BETWEEN {done} AND {done + len(rows) - 1}")
        done += len(rows)
    return parts


def _look(connection: duckdb.DuckDBPyConnection, threads: OpenSlices, host: str, start: int, end: int) -> None:
    """Look at the threads at the probes of a range of time; keep what was seen."""
    within = {"start": start, "last": end - 1}
    rows = connection.sql(_LOOKED_AT.format(**within)).to_arrow_table()
    probes = Probes(*(_numbers(rows, name) for name in ("track", "at_ns", "begin_ns", "finish_ns")))
    table = connection.sql(_SLICES.format(host=host, **within)).to_arrow_table()
    track, start_ns, end_ns, ids = (_numbers(table, name) for name in ("track", "start_ns", "end_ns", "id"))
    slices = Slices(track, start_ns, end_ns, ids, _flags(table, "loads"), _flags(table, "syncs"))
    found = threads.look(slices, probes, min(end, LARGEST))
    numbers, is_half = _numbers(rows, "number"), _flags(rows, "is_half")
    seen = is_half & ((found.ids >= 0) | found.loads | found.half_syncs)
    columns = {
        "number": pa.array(numbers[seen]),
        "host_id": pa.array(found.ids[seen], mask=found.ids[seen] < 0),
        "loads": pa.array(found.loads[seen]),
        "syncs": pa.array(found.half_syncs[seen]),
    }
    execute_with(connection, "INSERT INTO temp.seen FROM seen_rows", "seen_rows", pa.table(columns))
    first = pa.table({"number": pa.array(numbers[~is_half & found.syncs])})
    execute_with(connection, "INSERT INTO temp.seen_first FROM seen_rows", "seen_rows", first)


def _numbers(rows: pa.Table, name: str) -> Int64:
    numbers: Int64 = rows.column(name).to_numpy()
    return numbers


def _flags(rows: pa.Table, name: str) -> Mask:
    flags: Mask = rows.column(name).to_numpy()
    return flags
