"""Fill the tables operator and task_operator from the launches and the operators' recorded arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from traceconv.base.arrays import NDArray
from traceconv.base.int64 import Int64, Mask
from traceconv.normalize.operators.distinct import CALL, OPERATOR_SCHEMA, DistinctOperators
from traceconv.normalize.operators.registry import names_with_formula
from traceconv.normalize.sort.spool import Spool
from traceconv.normalize.trace.spill import SpilledRows
from traceconv.store.arrow_rows import GroupedInserts, execute_with
from traceconv.store.catalogue import define
from traceconv.store.path_tables import link_tasks

#: Keys of the arguments in an event's args; older versions of PyTorch write the second.
_KEYS = """['$."Input Dims"', '$."Input dims"', '$."Input type"', '$."Concrete Inputs"']"""
#: Python stacks are less deep; deeper ones are not searched for an operator.
_MAX_LEVELS = 512
#: Levels after which slices are dropped that no operator encloses. Few traces have more, and all are read for each.
_FEW_LEVELS = 4

# A join of all rows would exceed the memory limit. Of one run, the first row is enough. Most args have no inputs, for
# which one search takes half as long as two.
_RUNS = """
WITH with_shapes AS MATERIALIZED (
  SELECT {distinct} run_id FROM "range"
  WHERE run_id IN ({runs}) AND kind = 'host_op'
    AND contains(args, '"Input ') AND (contains(args, '"Input Dims"') OR contains(args, '"Input dims"'))
  {limit}
), with_tasks AS MATERIALIZED (
  SELECT DISTINCT run_id FROM task WHERE run_id IN ({runs})
)
SELECT run_id FROM with_shapes SEMI JOIN with_tasks USING (run_id) ORDER BY run_id
"""
# With capture_overload_names, PyTorch's profiler adds the overload: aten::add.Tensor.
_OVERLOADS = """
INSERT INTO temp.formula_name
SELECT name
FROM (SELECT DISTINCT name FROM "range" WHERE run_id IN ({runs}) AND kind = 'host_op' AND contains(name, '.'))
WHERE split_part(name, '.', 1) IN (FROM temp.formula_name)
"""
_LAUNCHED = """
CREATE OR REPLACE TEMP TABLE launched AS
SELECT t.run_id, t.id, t.api_id, f.range_id AS slice_id
FROM task AS t
LEFT JOIN temp.linked AS f ON f.run_id = t.run_id AND f.id = t.id
WHERE t.run_id IN ({runs}) AND t.kind IS DISTINCT FROM 'sync' AND coalesce(t.api_id, f.range_id) IS NOT NULL
"""
_FRONTIER = """
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT run_id, slice_id, slice_id AS at_id, NULL::BIGINT AS first_id, true AS by_formula
FROM (SELECT run_id, api_id AS slice_id FROM temp.launched UNION SELECT run_id, slice_id FROM temp.launched)
WHERE slice_id IS NOT NULL
"""
# first_id: the innermost operator, which counts if none around it has a formula. by_formula: whether one may have.
_STEP_UP = """
CREATE OR REPLACE TEMP TABLE reached AS
SELECT f.run_id, f.slice_id, f.by_formula, n.id, n.parent_id, n.has_formula,
       coalesce(f.first_id, CASE WHEN n.is_op THEN n.id END) AS first_id
FROM temp.frontier AS f
JOIN (
  SELECT run_id, id, parent_id, kind = 'host_op' AS is_op,
         kind = 'host_op' AND name IN (FROM temp.formula_name) AS has_formula
  FROM "range" WHERE run_id IN ({runs})
  UNION ALL
  SELECT run_id, id, parent_id, false, false FROM api WHERE run_id IN ({runs})
) AS n ON n.run_id = f.run_id AND n.id = f.at_id
"""
_FOUND = """
INSERT INTO temp.found
SELECT run_id, slice_id, CASE WHEN has_formula THEN id ELSE first_id END
FROM temp.reached
WHERE has_formula OR (first_id IS NOT NULL AND (parent_id IS NULL OR NOT by_formula))
"""
_NEXT = """
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT run_id, slice_id, parent_id AS at_id, first_id, by_formula
FROM temp.reached
WHERE NOT has_formula AND parent_id IS NOT NULL AND (first_id IS NULL OR by_formula)
"""
# How far the operators reach that started until then: one encloses a slice if it reaches the slice's end.
_REACH = """
CREATE OR REPLACE TEMP TABLE reach AS
SELECT run_id, track_id, start_ns, max(end_ns) OVER until AS op_end_ns,
       max(CASE WHEN has_formula THEN end_ns END) OVER until AS formula_end_ns
FROM (
  SELECT run_id, track_id, start_ns, coalesce(TRY(start_ns + dur_ns), 9223372036854775807) AS end_ns,
         name IN (FROM temp.formula_name) AS has_formula
  FROM "range" WHERE run_id IN ({runs}) AND kind = 'host_op'
)
WINDOW until AS (PARTITION BY run_id, track_id ORDER BY start_ns)
"""
_ENCLOSED = """
CREATE OR REPLACE TEMP TABLE enclosed AS
SELECT f.* EXCLUDE (by_formula), coalesce(r.op_end_ns >= s.end_ns, false) AS by_op,
       coalesce(r.formula_end_ns >= s.end_ns, false) AS by_formula
FROM temp.frontier AS f
JOIN (
  SELECT n.run_id, n.id, n.track_id, n.start_ns, coalesce(TRY(n.start_ns + n.dur_ns), n.start_ns) AS end_ns
  FROM (
    SELECT run_id, id, track_id, start_ns, dur_ns FROM "range" WHERE run_id IN ({runs})
    UNION ALL
    SELECT run_id, id, track_id, start_ns, dur_ns FROM api WHERE run_id IN ({runs})
  ) AS n
  SEMI JOIN temp.frontier AS f ON f.run_id = n.run_id AND f.slice_id = n.id
) AS s ON s.run_id = f.run_id AND s.id = f.slice_id
ASOF LEFT JOIN temp.reach AS r ON r.run_id = s.run_id AND r.track_id = s.track_id AND r.start_ns <= s.start_ns
"""
_ALONE = """
INSERT INTO temp.found
SELECT run_id, slice_id, first_id FROM temp.enclosed WHERE first_id IS NOT NULL AND NOT by_formula
"""
_ENCLOSED_NEXT = """
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT run_id, slice_id, at_id, first_id, by_formula FROM temp.enclosed
WHERE CASE WHEN first_id IS NULL THEN by_op ELSE by_formula END
"""
# In the order of names.
_NAMES = """
CREATE OR REPLACE TEMP TABLE operator_name AS
SELECT name, row_number() OVER (ORDER BY name) AS number, name IN (FROM temp.formula_name) AS has_formula
FROM (SELECT DISTINCT name FROM "range" WHERE run_id IN ({runs}) AND kind = 'host_op')
"""
# Only formulas need the values, of which some calls have a new one each.
_CALLS = f"""
SELECT run_id, id, number AS name, coalesce(given[1], given[2])::VARCHAR AS dims, given[3]::VARCHAR AS types,
       CASE WHEN has_formula THEN given[4]::VARCHAR END AS "values"
FROM (
  SELECT r.run_id, r.id, n.number, n.has_formula, json_extract(r.args, {_KEYS}) AS given
  FROM "range" AS r
  SEMI JOIN (FROM (SELECT run_id, range_id AS id FROM temp.found) WHERE {{part}}) AS f
    ON f.run_id = r.run_id AND f.id = r.id
  JOIN temp.operator_name AS n ON n.name IS NOT DISTINCT FROM r.name
  WHERE r.run_id IN ({{runs}}) AND r.{{part}}
)
"""  # noqa: S608 - our own words
_SORTED = """
SELECT run_id, id, name, dims, types, "values" FROM temp.operator_call
ORDER BY run_id, name, dims, types, "values"
"""
# Of operators inside each other, the inner one does the work: the next product that starts does so before the end. A
# join of each operator with those inside takes time quadratic in their number.
_OUTER = """
CREATE OR REPLACE TEMP TABLE outer_call AS
SELECT run_id, id
FROM (
  SELECT r.run_id, r.id, k.is_composite, coalesce(TRY(r.start_ns + r.dur_ns), 9223372036854775807) AS end_ns,
         min(CASE WHEN k.is_matrix THEN r.start_ns END) OVER later AS next_ns
  FROM (FROM temp.known_call WHERE is_composite OR is_matrix) AS k
  JOIN "range" AS r ON r.run_id = k.run_id AND r.id = k.id
  WHERE r.run_id IN ({runs})
  WINDOW later AS (
    PARTITION BY r.run_id, r.track_id ORDER BY r.start_ns, r.depth, r.id
    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
)
WHERE is_composite AND next_ns < end_ns
"""
#: Place of the call_kind that a task `t` gives its call.
TASK_RANK = """
CASE WHEN coalesce(t.kind, 'compute') = 'compute' THEN 0 WHEN t.kind = 'collective' THEN 1
     WHEN regexp_matches(t.name, '(?i)DtoD|device.to.device|memset') THEN 2 ELSE 3 END
"""
# Operators around the call before those that a flow links.
_BY_CALL = """
SELECT l.run_id, l.task_id, f.range_id
FROM (FROM (SELECT run_id, id AS task_id, api_id AS id FROM temp.launched) WHERE {part}) AS l
JOIN (FROM (SELECT run_id, slice_id AS id, range_id FROM temp.found) WHERE {part}) AS f
  ON f.run_id = l.run_id AND f.id = l.id
"""
_BY_FLOW = """
INSERT INTO temp.placed
SELECT l.run_id, l.id, f.range_id
FROM (FROM temp.launched WHERE slice_id IS NOT NULL) AS l
JOIN temp.found AS f ON f.run_id = l.run_id AND f.slice_id = l.slice_id
ANTI JOIN temp.placed AS p ON p.run_id = l.run_id AND p.task_id = l.id
"""
_TASKS = """
SELECT c.run_id, c.id, c.operator_id, c.range_id, t.device_id, t.step_id, t.op_id, t.kind, t.start_ns, t.dur_ns,
       {rank} AS rank
FROM (
  SELECT p.run_id, p.task_id AS id, k.id AS range_id,
         CASE WHEN o.id IS NULL THEN k.operator_id ELSE k.bare_id END AS operator_id
  FROM (FROM (SELECT run_id, task_id, range_id AS id FROM temp.placed) WHERE {part}) AS p
  JOIN (FROM temp.known_call WHERE {part}) AS k ON k.run_id = p.run_id AND k.id = p.id
  LEFT JOIN (FROM temp.outer_call WHERE {part}) AS o ON o.run_id = p.run_id AND o.id = p.id
) AS c
JOIN task AS t ON t.run_id = c.run_id AND t.id = c.id
WHERE t.run_id IN ({runs})
"""
_INSERT_TASKS = """
INSERT INTO task_operator BY NAME
SELECT * EXCLUDE (rank), ['compute', 'collective', 'copy', 'transfer'][1 + rank] AS call_kind,
       'recorded' AS attribution
FROM task_rows
"""
# It takes longer than everything else here: once per name, and only where no formula has one.
_CATEGORIES = """
CREATE OR REPLACE TEMP TABLE operator_category AS
SELECT n.number, kernel_category(n.name) AS category
FROM temp.operator_name AS n
SEMI JOIN name_rows AS r ON r.name = n.number
"""
# Numbers of names are consecutive.
_NAMED = """
SELECT n.name, c.category
FROM temp.operator_name AS n
LEFT JOIN temp.operator_category AS c USING (number)
WHERE n.number BETWEEN {min} AND {max}
ORDER BY n.number
"""
#: Calls whose work is computed at once.
_PART_ROWS = 1 << 14
#: Rows that are joined at once. A join of all may exceed the memory limit, although DuckDB spills.
_JOINED_ROWS = 1 << 17
#: Bits of an ID that don't matter for that.
_PLACE_BITS = 16
_TEMPORARY = (
    "formula_name", "launched", "frontier", "reached", "found", "reach", "enclosed", "operator_name", "operator_call",
    "known_call", "outer_call", "placed", "operator_category",
)  # fmt: skip


def fill_operators(
    connection: duckdb.DuckDBPyConnection,
    runs: Sequence[int],
    step_done: Callable[[], None] = lambda: None,
    *,
    linked: bool,
) -> None:
    """Fill both tables for runs that have no rows in them.

    step_done  as in derived_rows
    linked     whether link_tasks was called for these runs
    """
    if not runs:
        return
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    distinct, limit = ("", "LIMIT 1") if len(runs) == 1 else ("DISTINCT", "")
    with_shapes = connection.execute(_RUNS.format(runs=chosen, distinct=distinct, limit=limit)).fetchall()
    if not with_shapes:
        return
    if not linked:
        link_tasks(connection, runs)
    within = {"runs": ", ".join(f"{run_id:d}" for (run_id,) in with_shapes), "rank": TASK_RANK}
    # DuckDB would compare the texts of a list with each name, one after another.
    formulas = pa.table({"name": pa.array(names_with_formula(), pa.string())})
    execute_with(connection, "CREATE OR REPLACE TEMP TABLE formula_name AS FROM formula_rows", "formula_rows", formulas)
    connection.execute(_OVERLOADS.format(**within))
    connection.execute(_LAUNCHED.format(**within))
    _find_calls(connection, within["runs"])
    step_done()
    connection.execute(_NAMES.format(**within))
    calls = _CALLS.format(**within, part="{part}")
    _create_in_parts(connection, "operator_call", calls, _parts(connection, "range_id", "found"))
    operators = SpilledRows(OPERATOR_SCHEMA)
    try:
        count = _number_calls(connection, operators)
        step_done()
        connection.execute(_OUTER.format(**within))
        _create_in_parts(connection, "placed", _BY_CALL, _parts(connection, "api_id", "launched"))
        connection.execute(_BY_FLOW)
        used = np.zeros(count + 1, np.bool_)
        inserts = GroupedInserts(connection, _INSERT_TASKS, "task_rows")
        for part in _parts(connection, "range_id", "placed"):
            tasks = _tasks(connection, _TASKS.format(**within, part=part))
            used[tasks.column("operator_id").to_numpy()] = True
            inserts.add(tasks)
        inserts.end()
        connection.execute("DROP TABLE temp.known_call; DROP TABLE temp.placed")
        step_done()
        _insert_operators(connection, operators, used)
    finally:
        operators.close()
    for name in _TEMPORARY:
        connection.execute(f"DROP TABLE IF EXISTS temp.{name}")
    step_done()


def _parts(connection: duckdb.DuckDBPyConnection, column: str, table: str, name: str = "id") -> list[str]:
    """Return conditions on `name`, the column in statements, for parts of a table with some _JOINED_ROWS rows each."""
    counts = connection.execute(
        f"SELECT {column} >> {_PLACE_BITS}, count(*) FROM temp.{table} WHERE {column} IS NOT NULL GROUP BY 1 ORDER BY 1"  # noqa: S608 - our own words
    ).fetchall()
    bounds, size = [-1 << 63], 0
    for place, count in counts:
        if size and size + count > _JOINED_ROWS:
            bounds.append(place << _PLACE_BITS)
            size = 0
        size += count
    return [f"{name} BETWEEN {low} AND {high - 1}" for low, high in pairwise([*bounds, 1 << 63])]


def _create_in_parts(connection: duckdb.DuckDBPyConnection, table: str, query: str, parts: Iterable[str]) -> None:
    """Create a temporary table from the rows of a query, one part after another."""
    statement = f"CREATE OR REPLACE TEMP TABLE {table} AS "
    for part in parts:
        connection.execute(statement + query.replace("{part}", part))
        statement = f"INSERT INTO temp.{table} "


def _find_calls(connection: duckdb.DuckDBPyConnection, runs: str) -> None:
    """Fill `found` with the operator of each slice that launches tasks: the slice itself or one around it."""
    connection.execute(_FRONTIER)
    connection.execute("CREATE OR REPLACE TEMP TABLE found (run_id BIGINT, slice_id BIGINT, range_id BIGINT)")
    for level in range(_MAX_LEVELS):
        if level == _FEW_LEVELS:
            for statement in (_REACH, _ENCLOSED, _ALONE, _ENCLOSED_NEXT):
                connection.execute(statement.format(runs=runs))
        for statement in (_STEP_UP, _FOUND, _NEXT):
            connection.execute(statement.format(runs=runs))
        [(rest,)] = connection.execute("SELECT count(*) FROM temp.frontier").fetchall()
        if not rest:
            break


def _number_calls(connection: duckdb.DuckDBPyConnection, operators: SpilledRows) -> int:
    """Make `known_call`, the calls with their operators, and add these to `operators`; return the last ID."""
    with_formula = connection.execute("SELECT number, name FROM temp.operator_name WHERE has_formula").fetchall()
    distinct = DistinctOperators(dict(with_formula))
    calls = Spool(CALL)
    try:
        for batch in connection.sql(_SORTED).to_arrow_reader(_PART_ROWS):
            for first in range(0, batch.num_rows, _PART_ROWS):
                rows, added = distinct.take(batch.slice(first, _PART_ROWS))
                calls.append(rows)
                operators.append(added)
        operators.end()
        connection.execute("DROP TABLE temp.operator_call")
        schema = pa.schema([(name, pa.from_numpy_dtype(CALL[name])) for name in CALL.names or ()])
        batches = (
            pa.RecordBatch.from_arrays([pa.array(rows[name]) for name in schema.names], schema=schema) for rows in calls
        )
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        execute_with(connection, "CREATE OR REPLACE TEMP TABLE known_call AS FROM call_rows", "call_rows", reader)
    finally:
        calls.close()
    return distinct.count


def _tasks(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    """Return rows for _INSERT_TASKS, of which all tasks of a call are in one part."""
    rows = connection.sql(query).to_arrow_table()
    ranks, is_first = _within_calls(rows)
    return (
        rows.drop_columns("rank").append_column("rank", pa.array(ranks)).append_column("is_first", pa.array(is_first))
    )


def _within_calls(tasks: pa.Table) -> tuple[Int64, Mask]:
    """Return the least rank of the tasks of a call on a device, and whether a task is the first of them."""
    if not tasks.num_rows:
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    ranks: Int64 = tasks.column("rank").to_numpy().copy()
    is_first = np.ones(len(ranks), np.bool_)
    devices = tasks.column("device_id").combine_chunks().dictionary_encode(null_encoding="encode").indices
    call = [devices.to_numpy(), tasks.column("range_id").to_numpy(), tasks.column("run_id").to_numpy()]
    order = np.lexsort(call)
    begins = _begins([keys[order] for keys in call])
    # Most calls have one task.
    several = order[~(begins & np.append(begins[1:], True))]
    if len(several):
        start_ns = tasks.column("start_ns")
        keys = [tasks.column("id").to_numpy(), start_ns.fill_null(0).to_numpy(), start_ns.is_null().to_numpy(), *call]
        order = several[np.lexsort([key[several] for key in keys])]
        begins = _begins([key[order] for key in call])
        is_first[order] = begins
        starts = np.flatnonzero(begins)
        ranks[order] = np.repeat(np.minimum.reduceat(ranks[order], starts), np.diff(np.append(starts, len(order))))
    return ranks, is_first


def _begins(columns: Iterable[NDArray[np.generic]]) -> Mask:
    """Return which rows differ from the one before, of at least one row."""
    begins: Mask = np.logical_or.reduce([np.append(True, keys[1:] != keys[:-1]) for keys in columns])
    return begins


def _insert_operators(connection: duckdb.DuckDBPyConnection, operators: SpilledRows, used: Mask) -> None:
    """Insert the rows of operators that are used, by ID."""
    define(connection, "kernel_category")
    names = [np.zeros(0, np.int64)]
    for _, batch in operators.batches("operator_id", "name", "category"):
        wanted = used[batch.column("operator_id").to_numpy()] & batch.column("category").is_null().to_numpy(False)
        names.append(np.unique(batch.column("name").to_numpy()[wanted]))
    name_rows = pa.table({"name": pa.array(np.unique(np.concatenate(names)))})
    execute_with(connection, _CATEGORIES, "name_rows", name_rows)
    inserts = GroupedInserts(connection, "INSERT INTO operator BY NAME FROM operator_rows", "operator_rows")
    for _, batch in operators.batches():
        batch = batch.filter(pa.array(used[batch.column("operator_id").to_numpy()]))
        if batch.num_rows:
            inserts.add(pa.Table.from_batches([_named(connection, batch)]))
    inserts.end()


def _named(connection: duckdb.DuckDBPyConnection, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return operators with their names and categories; so far, names are numbers."""
    numbers = rows.column("name")
    bounds = pc.min_max(numbers).as_py()
    names = connection.sql(_NAMED.format(**bounds)).to_arrow_table().combine_chunks()
    places = pc.subtract(numbers, bounds["min"]).cast(pa.int32())
    texts = [
        pa.DictionaryArray.from_arrays(places, names.column(column).chunk(0)).cast(pa.string())
        for column in ("name", "category")
    ]
    rows = rows.set_column(2, "name", texts[0])
    return rows.set_column(5, "category", pc.coalesce(rows.column("category"), texts[1]))
