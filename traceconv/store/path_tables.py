"""Fill the tables range_path and range_path_time from the ranges, calls and tasks of stored runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import duckdb
import numpy as np
import pyarrow as pa

from traceconv import native
from traceconv.base.int64 import Int64
from traceconv.base.integers import LARGEST
from traceconv.normalize.sort.spool import Spool
from traceconv.schema.ddl import quote_text
from traceconv.store.arrow_rows import execute_with
from traceconv.store.catalogue import define
from traceconv.store.memory_limit import limit_changed
from traceconv.store.time_chunks import time_chunks

#: Slices and tasks that are read at once.
_CHUNK_ROWS, _BATCH_ROWS = 240_000, 1 << 15
#: Sums that are kept in memory, and slices that are open at once or whose parent is not found.
_MOST_SUMS, _MOST_OPEN, _MOST_MISSING = 1 << 18, 1 << 20, 1 << 18
#: Chains of names of a run, from which on new names inside the same chain are summed as one.
_MOST_PATHS = 1 << 16
#: Ranges of the runs that a pass reads, if there are several.
_PASS_RANGES = 1 << 20
#: Numbers of runs are positive.
_NO_RUN = "0"
_NULL = np.iinfo(np.int64).min
_NULL_SQL = "(-9223372036854775807 - 1)"
#: Bits of a kind, as in paths.c: an operator, another range except functions, on a track of the host; then its number.
_OPERATOR, _OTHER, _HOST, _KIND_SHIFT = 1, 2, 4, 3
_CALL = -1
# OTHER in paths.c, and what the table calls it.
_OTHER_HASH, _OTHER_NAME = 1, "(other names)"

_PATH_DTYPE = np.dtype([(name, "<i8") for name in ("parent", "name", "run_id", "depth", "first_id", "kind")])
_SUM_NAMES = (
    "path", "device_id", "step_id", "range_count", "ended_count", "host_total_ns", "host_self_ns", "task_count",
    "task_ns",
)  # fmt: skip
_SUM_DTYPE = np.dtype([(name, "<i8") for name in _SUM_NAMES])

#: Name of a range in a chain.
PATH_NAME = (
    "CASE WHEN starts_with({name}, 'ProfilerStep#') "
    "THEN regexp_replace({name}, '^ProfilerStep#[0-9]+$', 'ProfilerStep*') ELSE coalesce({name}, '') END"
)
# Names with equal hashes, or with the hash of OTHER.
_COLLISION = f"""
SELECT 1
FROM (
  SELECT DISTINCT {PATH_NAME.format(name="name")} AS name
  FROM (SELECT DISTINCT name FROM range WHERE run_id IN ({{runs}}))
)
GROUP BY hash(name)
HAVING count(*) > 1 OR hash(name) = {_OTHER_HASH}
LIMIT 1
"""  # noqa: S608 - our own words
_TASK = "kind IS DISTINCT FROM 'sync'"
_TIMES = f"""
SELECT start_ns AS ts_ns FROM range WHERE run_id IN ({{with_ranges}}) AND start_ns IS NOT NULL
UNION ALL
SELECT start_ns FROM api WHERE run_id IN ({{with_ranges}}) AND start_ns IS NOT NULL
UNION ALL
SELECT start_ns FROM task WHERE run_id IN ({{runs}}) AND {_TASK} AND start_ns IS NOT NULL
"""  # noqa: S608 - our own words
_SLICES = f"""
SELECT r.run_id, r.id, coalesce(r.parent_id, {_NULL_SQL}) AS parent_id, hash({PATH_NAME.format(name="r.name")}) AS name,
       CASE r.kind {{kinds}} ELSE 0 END::BIGINT + CASE WHEN k.device_id IS NULL THEN {_HOST} ELSE 0 END AS kind,
       coalesce(r.step_id, {_NULL_SQL}) AS step_id, coalesce(r.start_ns, {_NULL_SQL}) AS start_ns,
       coalesce(r.dur_ns, {_NULL_SQL}) AS dur_ns, coalesce(r.self_ns, {_NULL_SQL}) AS self_ns
FROM range AS r
LEFT JOIN track AS k ON k.run_id = r.run_id AND k.track_id = r.track_id
WHERE r.run_id IN ({{with_ranges}}) AND {{started}}
UNION ALL
SELECT r.run_id, r.id, coalesce(r.parent_id, {_NULL_SQL}), 0::UBIGINT, {_CALL}::BIGINT, {_NULL_SQL},
       coalesce(r.start_ns, {_NULL_SQL}), coalesce(r.dur_ns, {_NULL_SQL}), {_NULL_SQL}
FROM api AS r
WHERE r.run_id IN ({{with_ranges}}) AND {{started}}
"""  # noqa: S608 - our own words
# A call starts when its tasks are submitted.
_TASKS = f"""
SELECT r.run_id, r.id, CASE WHEN r.run_id IN ({{with_ranges}}) THEN r.api_id END AS api_id, r.device_id, r.step_id,
       r.dur_ns
FROM task AS r
WHERE r.run_id IN ({{runs}}) AND r.{_TASK} AND r.api_id IS NOT NULL AND {{submitted}}
UNION ALL
SELECT r.run_id, r.id, NULL, r.device_id, r.step_id, r.dur_ns
FROM task AS r
WHERE r.run_id IN ({{runs}}) AND r.{_TASK} AND r.api_id IS NULL AND {{started}}
"""  # noqa: S608 - our own words
_NUMBERS = ", ".join(f"coalesce({name}, {_NULL_SQL}) AS {name}" for name in ("device_id", "step_id", "dur_ns"))
# The table linked has few rows: those of torch_npu, which queues its work.
_LINKED_RANGES = """
SELECT r.run_id, r.id, r.id AS slice_id
FROM range AS r
SEMI JOIN temp.linked AS l ON l.run_id = r.run_id AND l.range_id = r.id
WHERE {started}
"""
# Operators before other ranges, and those around the call before those linked by a flow.
_LINKED_TASKS = f"""
SELECT t.run_id, {_NUMBERS},
       CASE WHEN coalesce(c.class, 0) & {_OPERATOR} = 0
              AND (w.class & {_OPERATOR} > 0 OR (coalesce(c.class, 0) & {_OTHER} = 0 AND w.class & {_OTHER} > 0))
            THEN w.path
            ELSE coalesce(c.path, w.path, {_NULL_SQL}) END AS path
FROM temp.linked AS l
JOIN task AS t ON t.run_id = l.run_id AND t.id = l.id
LEFT JOIN temp.range_place AS w ON w.run_id = l.run_id AND w.id = l.range_id
LEFT JOIN temp.call_place AS c ON c.run_id = l.run_id AND c.id = l.id
"""  # noqa: S608 - our own words
_EXISTING = """
SELECT 1 FROM missing_slices AS m
SEMI JOIN (SELECT run_id, id FROM range UNION ALL SELECT run_id, id FROM api) AS s
  ON s.run_id = m.run_id AND s.id = m.id
LIMIT 1
"""
_KINDS = "SELECT DISTINCT kind FROM range WHERE run_id IN ({with_ranges}) AND kind IS NOT NULL ORDER BY kind"
_INSERT_PATHS = f"""
INSERT INTO range_path BY NAME
SELECT p.run_id, p.path_id, p.parent_path_id, p.depth, p.kind,
       CASE WHEN p.is_other THEN '{_OTHER_NAME}' ELSE {PATH_NAME.format(name="r.name")} END AS name
FROM new_paths AS p
JOIN range AS r ON r.run_id = p.run_id AND r.id = p.path_id
"""  # noqa: S608 - our own words
_INSERT_TIMES = f"""
INSERT INTO range_path_time BY NAME
SELECT run_id, nullif(path_id, {_NULL_SQL}) AS path_id, nullif(device_id, {_NULL_SQL}) AS device_id,
       nullif(step_id, {_NULL_SQL}) AS step_id, range_count, ended_count, host_total_ns, host_self_ns, task_count,
       task_ns
FROM new_times
"""  # noqa: S608 - our own words
# In SQL, for installations without the C extension, and for what it doesn't do: names with equal hashes, slices that
# start after the end of those around them, and very many chains of names. Longer durations are not summed, so that sums
# fit 64 bits.
_LONG_NS = 1 << 36
#: What DuckDB's limit of memory rises by for them. Measured: in all, 740,000 slices need 160 to 200 MB, 12.5 million
#: 1.7 GB.
_BYTES_PER_SLICE = 200
_SLICE_COUNT = """
SELECT (SELECT count(*) FROM range WHERE run_id IN ({runs})) + (SELECT count(*) FROM api WHERE run_id IN ({runs}))
"""
_SLOW_SLICES = f"""
CREATE OR REPLACE TEMP TABLE slow_slice AS
SELECT p.run_id, p.id, p.parent_range_id, p.path_depth, p.op_id, p.other_id, r.id IS NOT NULL AS is_range,
       r.id IS NOT NULL AND k.device_id IS NULL AS is_host, {PATH_NAME.format(name="r.name")} AS name, r.kind,
       r.step_id, r.dur_ns, r.self_ns
FROM enclosing_range AS p
LEFT JOIN range AS r ON r.run_id = p.run_id AND r.id = p.id
LEFT JOIN track AS k ON k.run_id = r.run_id AND k.track_id = r.track_id
WHERE p.run_id IN ({{runs}})
"""  # noqa: S608 - our own words
# All ranges of a chain have the same depth, so that each round of the recursion finds complete chains.
_SLOW_CHAINS = """
CREATE OR REPLACE TEMP TABLE slow_chain AS
WITH RECURSIVE down AS (
  SELECT run_id, id, min(id) OVER (PARTITION BY run_id, name) AS chain_id, NULL::BIGINT AS parent_chain_id
  FROM temp.slow_slice
  WHERE is_range AND parent_range_id IS NULL
  UNION ALL
  SELECT s.run_id, s.id, min(s.id) OVER (PARTITION BY s.run_id, d.chain_id, s.name), d.chain_id
  FROM down AS d
  JOIN temp.slow_slice AS s ON s.run_id = d.run_id AND s.parent_range_id = d.id AND s.is_range
)
FROM down
"""
_SLOW_PLACES = """
CREATE OR REPLACE TEMP TABLE slow_place AS
SELECT s.*, c.parent_chain_id, c.chain_id,
       min(CASE WHEN s.is_host THEN s.id END) OVER (PARTITION BY s.run_id, c.chain_id) AS path_id
FROM temp.slow_slice AS s
LEFT JOIN temp.slow_chain AS c
  ON c.run_id = s.run_id AND c.id = CASE WHEN s.is_range THEN s.id ELSE s.parent_range_id END
"""
_SLOW_PATHS = """
CREATE OR REPLACE TEMP TABLE new_paths AS
WITH node AS (
  SELECT run_id, path_id, min(parent_chain_id) AS parent_chain_id, min(chain_id) AS chain_id, min(path_depth) AS depth,
         min(kind) AS kind
  FROM temp.slow_place
  WHERE is_host
  GROUP BY run_id, path_id
)
SELECT n.run_id, n.path_id, o.path_id AS parent_path_id, n.depth, n.kind, false AS is_other
FROM node AS n
LEFT JOIN node AS o ON o.run_id = n.run_id AND o.chain_id = n.parent_chain_id
"""
_SLOW_TIMES = f"""
INSERT INTO range_path_time BY NAME
SELECT run_id, path_id, NULL::BIGINT AS device_id, step_id, count(*) AS range_count, count(dur_ns) AS ended_count,
       coalesce(sum(dur_ns), 0) AS host_total_ns, coalesce(sum(self_ns), 0) AS host_self_ns, 0 AS task_count,
       0 AS task_ns
FROM temp.slow_place
WHERE is_host
GROUP BY run_id, path_id, step_id, CASE WHEN dur_ns >= {_LONG_NS} OR self_ns <= -{_LONG_NS} THEN id END
UNION ALL
SELECT t.run_id, t.path_id, t.device_id, t.step_id, 0, 0, 0, 0, count(*), coalesce(sum(t.dur_ns), 0)
FROM (
  SELECT t.run_id, t.id, t.device_id, t.step_id, t.dur_ns,
         CASE WHEN c.op_id IS NULL AND (w.op_id IS NOT NULL OR (c.other_id IS NULL AND w.other_id IS NOT NULL))
              THEN w.path_id ELSE coalesce(c.path_id, w.path_id) END AS path_id
  FROM task AS t
  LEFT JOIN temp.slow_place AS c ON c.run_id = t.run_id AND c.id = t.api_id
  LEFT JOIN temp.linked AS l ON l.run_id = t.run_id AND l.id = t.id
  LEFT JOIN temp.slow_place AS w ON w.run_id = l.run_id AND w.id = l.range_id
  WHERE t.run_id IN ({{runs}}) AND t.{_TASK}
) AS t
GROUP BY t.run_id, t.path_id, t.device_id, t.step_id, CASE WHEN t.dur_ns >= {_LONG_NS} THEN t.id END
"""  # noqa: S608 - our own words
# As in launching_range: torch_npu queues its work, and a flow leads from the operator to the task. Most flows of other
# traces begin at calls, so that no row is left for the join with tasks.
_LINKED = """
CREATE OR REPLACE TEMP TABLE linked AS
SELECT f.run_id, f.dst_id AS id, min(f.src_id) AS range_id
FROM (
  SELECT f.run_id, f.src_id, f.dst_id
  FROM flow AS f
  SEMI JOIN "range" AS r ON r.run_id = f.run_id AND r.id = f.src_id
  WHERE f.run_id IN ({runs})
) AS f
JOIN task AS t ON t.run_id = f.run_id AND t.id = f.dst_id
WHERE t.kind IS DISTINCT FROM 'sync'
GROUP BY f.run_id, f.dst_id
"""
_NONE_LINKED = "CREATE OR REPLACE TEMP TABLE linked (run_id BIGINT, id BIGINT, range_id BIGINT)"
_PLACE_NAMES = ["run_id", "id", "path", "class"]
_TEMPORARY = ("range_place", "call_place", "slow_slice", "slow_chain", "slow_place", "new_paths")


def link_tasks(connection: duckdb.DuckDBPyConnection, runs: Collection[int]) -> None:
    """Create the temporary table linked: tasks to which flows lead, and the first range that is the source of one.

    runs  those that may have tasks with flows from ranges
    """
    connection.execute(_LINKED.format(runs=", ".join(f"{run_id:d}" for run_id in runs)) if runs else _NONE_LINKED)


def fill_paths(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> None:
    """Insert the rows of runs that have none, after link_tasks."""
    for group in _groups(connection, sorted(runs)):
        chosen = ", ".join(f"{run_id:d}" for run_id, _ in group)
        within = {
            "runs": chosen,
            "with_ranges": ", ".join(f"{run_id:d}" for run_id, count in group if count) or _NO_RUN,
        }
        if not native.AVAILABLE or not _Pass(connection, within).insert():
            _fill_in_sql(connection, within)
        for name in _TEMPORARY:
            connection.execute(f"DROP TABLE IF EXISTS temp.{name}")


def _fill_in_sql(connection: duckdb.DuckDBPyConnection, within: dict[str, str]) -> None:
    """Insert the rows by statements, whose recursion needs memory for all slices."""
    [(count,)] = connection.execute(_SLICE_COUNT.format(**within)).fetchall()
    with limit_changed(connection, lambda limit: f"{limit + _BYTES_PER_SLICE * count}B"):
        define(connection, "enclosing_range")
        for statement in (_SLOW_SLICES, _SLOW_CHAINS, _SLOW_PLACES, _SLOW_PATHS, _INSERT_PATHS, _SLOW_TIMES):
            connection.execute(statement.format(**within))


def _groups(connection: duckdb.DuckDBPyConnection, runs: list[int]) -> Iterator[list[tuple[int, int]]]:
    """Yield the runs, each with its number of ranges, in groups for one pass each, so that its memory is bounded."""
    counts = dict(connection.execute("SELECT run_id, count(*) FROM range GROUP BY run_id").fetchall())
    group: list[tuple[int, int]] = []
    ranges = 0
    for run_id in runs:
        group.append((run_id, counts.get(run_id, 0)))
        ranges += group[-1][1]
        if ranges >= _PASS_RANGES:
            yield group
            group, ranges = [], 0
    if group:
        yield group


class _Pass:
    """One pass over slices and tasks, range of time by range of time.

    within  the runs, and those with ranges, for conditions of SQL
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, within: dict[str, str]) -> None:
        self._connection = connection
        # Statements without rows take longer than a small run.
        self._has_ranges = within["with_ranges"] != _NO_RUN
        kinds = connection.execute(_KINDS.format(**within)).fetchall() if self._has_ranges else []
        self._kinds = [kind for (kind,) in kinds]
        cases = " ".join(f"WHEN {quote_text(kind)} THEN {_bits(kind, n)}" for n, kind in enumerate(self._kinds, 1))
        self._within = within | {"kinds": cases or "WHEN '' THEN 0"}
        self._has_linked = bool(connection.execute("FROM temp.linked LIMIT 1").fetchall())
        self._paths = native.Paths()
        self._paths.limit(_MOST_PATHS)
        self._sums = Spool(_SUM_DTYPE)

    def insert(self) -> bool:
        """Insert the rows of both tables; return False, without having inserted any, for what the pass can't do."""
        try:
            if self._has_ranges and self._connection.execute(_COLLISION.format(**self._within)).fetchall():
                return False
            if not self._read():
                return False
            self._insert()
        finally:
            self._sums.close()
        return True

    def _read(self) -> bool:
        """Read all rows; return whether the places of all slices are found."""
        if self._has_linked:
            for name in ("range_place", "call_place"):
                self._connection.execute(
                    f"CREATE OR REPLACE TEMP TABLE {name} (run_id BIGINT, id BIGINT, path BIGINT, class BIGINT)"
                )
        chunks = time_chunks(self._connection, _TIMES.format(**self._within), _CHUNK_ROWS)
        for number, (start, end) in enumerate(chunks or [(-LARGEST, LARGEST + 1)]):
            within = {
                name: f"{column} BETWEEN {start} AND {end - 1}"
                if number
                else f"(coalesce({column}, {-LARGEST}) < {end}::HUGEINT)"
                for name, column in (("started", "r.start_ns"), ("submitted", "r.submit_ns"))
            }
            self._take(max(start, -LARGEST), self._within | within)
            slices, _, sums, missing = self._paths.counts
            if slices > _MOST_OPEN + 2 * _CHUNK_ROWS or missing > _MOST_MISSING:
                return False
            if sums > _MOST_SUMS:
                self._spill()
        if self._has_linked:
            self._take_linked()
        self._spill()
        return not self._has_missing()

    def _take(self, start: int, within: dict[str, str]) -> None:
        """Take the slices and tasks of a range of time."""
        if self._has_ranges:
            for columns in self._batches(_SLICES.format(**within)):
                self._paths.feed(*columns)
        self._paths.place(start)
        tasks = f"({_TASKS.format(**within)}) AS r"
        if self._has_linked:
            linked = "JOIN temp.linked AS l ON l.run_id = r.run_id AND l.id = r.id"
            self._keep("range_place", _LINKED_RANGES.format(**within))
            calls = f"SELECT r.run_id, r.id, r.api_id FROM {tasks} SEMI {linked} WHERE api_id IS NOT NULL"  # noqa: S608
            self._keep("call_place", calls)
            tasks += f" ANTI {linked}"
        rows = f"SELECT r.run_id, coalesce(r.api_id, {_NULL_SQL}) AS api_id, {_NUMBERS} FROM {tasks}"  # noqa: S608 - ours
        for run_ids, ids, *numbers in self._batches(rows):
            self._paths.add(self._look_up(run_ids, ids)[0], *numbers)

    def _keep(self, table: str, sql: str) -> None:
        """Keep the places of slices, given as run, ID to keep them by, and ID of the slice."""
        places = []
        for run_ids, ids, slices in self._batches(sql):
            paths, classes = self._look_up(run_ids, slices)
            known = classes >= 0
            arrays = [pa.array(column[known]) for column in (run_ids, ids, paths, classes)]
            places.append(pa.RecordBatch.from_arrays(arrays, _PLACE_NAMES))
        if places:
            of_all = pa.Table.from_batches(places)
            execute_with(self._connection, f"INSERT INTO temp.{table} FROM places", "places", of_all)

    def _take_linked(self) -> None:
        for run_ids, *numbers, paths in self._batches(_LINKED_TASKS):
            roots, _ = self._look_up(run_ids, np.full(len(run_ids), _NULL))
            self._paths.add(np.where(paths == _NULL, roots, paths), *numbers)

    def _has_missing(self) -> bool:
        """Whether one of the slices that were not found exists."""
        missing = np.frombuffer(self._paths.missing(), np.int64).reshape(-1, 2)
        if not len(missing):
            return False
        self._connection.register("missing_slices", pa.table({"run_id": missing[:, 0], "id": missing[:, 1]}))
        found = self._connection.execute(_EXISTING).fetchall()
        self._connection.unregister("missing_slices")
        return bool(found)

    def _insert(self) -> None:
        paths = np.frombuffer(self._paths.paths(), _PATH_DTYPE)
        ids = paths["first_id"]
        # Chains on tracks of devices have no ID.
        of_host = paths[(ids != _NULL) & (paths["depth"] >= 0)]
        kinds = pa.array([*self._kinds, None], pa.string())
        numbers = np.where(of_host["kind"] == _NULL, len(self._kinds), of_host["kind"] - 1)
        columns = {name: pa.array(of_host[name]) for name in ("run_id", "depth")}
        columns["path_id"] = pa.array(of_host["first_id"])
        columns["parent_path_id"] = pa.array(ids[of_host["parent"]], mask=of_host["depth"] == 0)
        columns["kind"] = kinds.take(pa.array(numbers))
        columns["is_other"] = pa.array(of_host["name"] == _OTHER_HASH)
        if len(of_host):
            execute_with(self._connection, _INSERT_PATHS, "new_paths", pa.table(columns))
        for sums in self._sums:
            columns = {name: pa.array(sums[name]) for name in _SUM_NAMES[1:]}
            columns |= {"run_id": pa.array(paths["run_id"][sums["path"]]), "path_id": pa.array(ids[sums["path"]])}
            execute_with(self._connection, _INSERT_TIMES, "new_times", pa.table(columns))

    def _spill(self) -> None:
        self._sums.append(np.frombuffer(self._paths.sums(), _SUM_DTYPE))

    def _look_up(self, run_ids: Int64, ids: Int64) -> tuple[Int64, Int64]:
        """Return the path and class of each slice; without a range, the root of the run and -1."""
        found = np.frombuffer(self._paths.look_up(run_ids, ids), np.int64)
        return found[: len(ids)], found[len(ids) :]

    def _batches(self, sql: str) -> Iterator[list[Int64]]:
        """Yield the columns of batches of rows without NULL."""
        for batch in self._connection.sql(sql).to_arrow_reader(_BATCH_ROWS):
            yield [column.to_numpy().view(np.int64) for column in batch.columns]


def _bits(kind: str, number: int) -> int:
    """A kind as paths.c gets it."""
    bits = _OPERATOR if kind == "host_op" else 0 if kind == "frame" else _OTHER
    return bits | number << _KIND_SHIFT
