"""Fill the tables operator and task_operator from the launches and the operators' recorded arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TypeAlias

import duckdb
import pyarrow as pa

from traceconv.normalize.operators.arguments import described
from traceconv.normalize.operators.registry import names_with_formula, work_of
from traceconv.normalize.operators.work import Work
from traceconv.store.arrow_rows import execute_with
from traceconv.store.catalogue import define

#: Keys of the arguments in an event's args; older versions of PyTorch write the second.
_KEYS = """['$."Input Dims"', '$."Input dims"', '$."Input type"', '$."Concrete Inputs"']"""
#: Python stacks are less deep; deeper ones are not searched for an operator.
_MAX_LEVELS = 512
#: Levels after which slices are dropped that no operator encloses. Few traces have more, and all are read for each.
_FEW_LEVELS = 4
_MATRIX = ("gemm", "conv", "attention")

# A join of all rows would exceed the memory limit.
_RUNS = """
WITH with_shapes AS MATERIALIZED (
  SELECT DISTINCT run_id FROM "range"
  WHERE run_id IN ({runs}) AND kind = 'host_op'
    AND (contains(args, '"Input Dims"') OR contains(args, '"Input dims"'))
), with_tasks AS MATERIALIZED (
  SELECT DISTINCT run_id FROM task WHERE run_id IN ({runs})
)
SELECT run_id FROM with_shapes SEMI JOIN with_tasks USING (run_id) ORDER BY run_id
"""
# As in launching_range: torch_npu queues its work, and a flow leads from the operator to the task.
_LINKED = """
CREATE OR REPLACE TEMP TABLE linked AS
SELECT f.run_id, f.dst_id AS id, min(f.src_id) AS range_id
FROM flow AS f
JOIN task AS t ON t.run_id = f.run_id AND t.id = f.dst_id
JOIN "range" AS r ON r.run_id = f.run_id AND r.id = f.src_id
WHERE f.run_id IN ({runs}) AND t.kind IS DISTINCT FROM 'sync'
GROUP BY f.run_id, f.dst_id
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
# Only formulas need the values, of which some calls have a new one each.
_CALLS = f"""
SELECT run_id, id, track_id, start_ns, dur_ns, name, coalesce(given[1], given[2])::VARCHAR AS dims,
       given[3]::VARCHAR AS types,
       CASE WHEN name IN (FROM temp.formula_name) THEN given[4]::VARCHAR END AS "values", depth
FROM (
  SELECT r.run_id, r.id, r.track_id, r.start_ns, r.dur_ns, r.depth, r.name, json_extract(r.args, {_KEYS}) AS given
  FROM "range" AS r
  SEMI JOIN (FROM (SELECT run_id, range_id AS id FROM temp.found) WHERE {{part}}) AS f
    ON f.run_id = r.run_id AND f.id = r.id
  WHERE r.run_id IN ({{runs}}) AND r.{{part}}
)
"""  # noqa: S608 - our own words
_DISTINCT = """
CREATE OR REPLACE TEMP TABLE distinct_call AS
SELECT *, row_number() OVER (ORDER BY run_id, name, dims, types, "values") AS number
FROM (SELECT DISTINCT run_id, name, dims, types, "values" FROM temp.operator_call)
"""
_PART = """
SELECT number, run_id, name, dims, types, "values" FROM temp.distinct_call WHERE number > {done} AND number <= {last}
ORDER BY number
"""
# Of operators inside each other, the inner one does the work: the next product that starts does so before the end. A
# join of each operator with those inside takes time quadratic in their number.
_OUTER = """
CREATE OR REPLACE TEMP TABLE outer_call AS
SELECT run_id, id
FROM (
  SELECT run_id, id, is_composite, coalesce(TRY(start_ns + dur_ns), 9223372036854775807) AS end_ns,
         min(CASE WHEN is_matrix THEN start_ns END) OVER later AS next_ns
  FROM temp.known_call
  WHERE is_composite OR is_matrix
  WINDOW later AS (
    PARTITION BY run_id, track_id ORDER BY start_ns, depth, id ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
)
WHERE is_composite AND next_ns < end_ns
"""
_NUMBERED = """
SELECT c.run_id, c.id, c.track_id, c.start_ns, c.dur_ns, c.depth, n.number
FROM (FROM temp.operator_call WHERE {part}) AS c
JOIN (FROM temp.distinct_call WHERE {part}) AS n ON n.run_id = c.run_id AND n.name IS NOT DISTINCT FROM c.name
  AND n.dims IS NOT DISTINCT FROM c.dims AND n.types IS NOT DISTINCT FROM c.types
  AND n."values" IS NOT DISTINCT FROM c."values"
"""
_KNOWN = """
SELECT c.* EXCLUDE (number), d.operator_id, d.bare_id, d.is_composite, d.is_matrix
FROM (FROM temp.numbered_call WHERE {part}) AS c
JOIN (FROM temp.distinct_operator WHERE {part}) AS d ON d.number = c.number
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
INSERT INTO task_operator BY NAME
WITH called AS (
  SELECT p.run_id, p.task_id AS id, k.id AS range_id,
         CASE WHEN o.id IS NULL THEN k.operator_id ELSE k.bare_id END AS operator_id
  FROM (FROM (SELECT run_id, task_id, range_id AS id FROM temp.placed) WHERE {part}) AS p
  JOIN (FROM temp.known_call WHERE {part}) AS k ON k.run_id = p.run_id AND k.id = p.id
  LEFT JOIN (FROM temp.outer_call WHERE {part}) AS o ON o.run_id = p.run_id AND o.id = p.id
), kinds AS (
  SELECT c.run_id, c.id, c.operator_id, c.range_id, t.device_id, t.step_id, t.op_id, t.kind, t.start_ns, t.dur_ns,
         {rank} AS rank
  FROM called AS c
  JOIN task AS t ON t.run_id = c.run_id AND t.id = c.id
  WHERE t.run_id IN ({runs})
)
SELECT * EXCLUDE (rank), ['compute', 'collective', 'copy', 'transfer'][1 + min(rank) OVER of_call] AS call_kind,
       row_number() OVER (of_call ORDER BY start_ns, id) = 1 AS is_first, 'recorded' AS attribution
FROM kinds
WINDOW of_call AS (PARTITION BY run_id, range_id, device_id)
"""
_OPERATORS = """
INSERT INTO operator BY NAME
SELECT m.* REPLACE (coalesce(m.category, c.category) AS category)
FROM (FROM temp.made_operator WHERE {part}) AS m
LEFT JOIN (
  -- It takes longer than everything else here: once per name.
  SELECT name, kernel_category(name) AS category
  FROM (SELECT DISTINCT name FROM temp.made_operator WHERE category IS NULL AND {part})
) AS c ON c.name = m.name
SEMI JOIN (SELECT run_id, operator_id FROM task_operator WHERE run_id IN ({runs}) AND {part}) AS t
  ON t.run_id = m.run_id AND t.operator_id = m.operator_id
"""
#: Distinct calls whose work is computed at once.
_PART_ROWS = 1 << 14
#: Rows that are joined at once. A join of all may exceed the memory limit, although DuckDB spills.
_JOINED_ROWS = 1 << 18
#: Bits of an ID that don't matter for that.
_PLACE_BITS = 16
_DISTINCT_COLUMNS = {
    "number": pa.int64(), "operator_id": pa.int64(), "bare_id": pa.int64(), "is_composite": pa.bool_(),
    "is_matrix": pa.bool_(),
}  # fmt: skip
_OPERATOR_COLUMNS = {
    "operator_id": pa.int64(), "run_id": pa.int64(), "name": pa.string(), "category": pa.string(),
    "input_shapes": pa.string(), "input_dtypes": pa.string(), "compute_type": pa.string(), "flops": pa.int64(),
    "read_bytes": pa.int64(), "write_bytes": pa.int64(),
}  # fmt: skip
_TEMPORARY = (
    "formula_name", "launched", "frontier", "reached", "found", "reach", "enclosed", "operator_call", "distinct_call",
    "distinct_operator", "made_operator", "numbered_call", "known_call", "outer_call", "placed",
)  # fmt: skip

_UNKNOWN_WORK = Work(None)

_Row: TypeAlias = "tuple[object, ...]"


def link_tasks(connection: duckdb.DuckDBPyConnection, runs: Iterable[int]) -> None:
    """Create the temporary table linked: tasks to which flows lead, and the first range that is the source of one."""
    connection.execute(_LINKED.format(runs=", ".join(f"{run_id:d}" for run_id in runs) or "NULL"))


def fill_operators(
    connection: duckdb.DuckDBPyConnection, runs: Iterable[int], step_done: Callable[[], None] = lambda: None
) -> None:
    """Fill both tables for runs that have no rows in them, after link_tasks. `step_done`: as in derived_rows."""
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    with_shapes = connection.execute(_RUNS.format(runs=chosen)).fetchall() if chosen else []
    if not with_shapes:
        return
    within = {"runs": ", ".join(f"{run_id:d}" for (run_id,) in with_shapes), "rank": TASK_RANK}
    # DuckDB would compare the texts of a list with each name, one after another.
    formulas = pa.table({"name": pa.array(names_with_formula(), pa.string())})
    execute_with(connection, "CREATE OR REPLACE TEMP TABLE formula_name AS FROM formula_rows", "formula_rows", formulas)
    connection.execute(_LAUNCHED.format(**within))
    _find_calls(connection, within["runs"])
    step_done()
    calls = _CALLS.format(**within, part="{part}")
    _create_in_parts(connection, "operator_call", calls, _parts(connection, "range_id", "found"))
    _make_operators(connection)
    define(connection, "kernel_category")
    [(distinct_count,)] = connection.execute("SELECT count(*) FROM temp.distinct_call").fetchall()
    part_count = -(-distinct_count // _JOINED_ROWS) or 1
    by_hash = [f'hash(name, dims, types, "values") % {part_count} = {part}' for part in range(part_count)]
    _create_in_parts(connection, "numbered_call", _NUMBERED, by_hash)
    # The rest needs the memory.
    connection.execute("DROP TABLE temp.operator_call; DROP TABLE temp.distinct_call")
    step_done()
    by_number = _parts(connection, "number", "numbered_call", "number")
    _create_in_parts(connection, "known_call", _KNOWN, by_number)
    connection.execute("DROP TABLE temp.numbered_call; DROP TABLE temp.distinct_operator")
    step_done()
    connection.execute(_OUTER)
    _create_in_parts(connection, "placed", _BY_CALL, _parts(connection, "api_id", "launched"))
    connection.execute(_BY_FLOW)
    for part in _parts(connection, "range_id", "placed"):
        connection.execute(_TASKS.format(**within, part=part))
    connection.execute("DROP TABLE temp.known_call; DROP TABLE temp.placed")
    step_done()
    for part in _parts(connection, "operator_id", "made_operator", "operator_id"):
        connection.execute(_OPERATORS.format(**within, part=part))
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


def _make_operators(connection: duckdb.DuckDBPyConnection) -> None:
    """Make `distinct_operator`, with the ID of each operator and its arguments, and `made_operator`, with their work.

    bare_id  ID of the same operator without work, for calls whose work is done by an operator inside
    """
    connection.execute(_DISTINCT)
    for name, columns in (("distinct_operator", _DISTINCT_COLUMNS), ("made_operator", _OPERATOR_COLUMNS)):
        empty = pa.schema(list(columns.items())).empty_table()
        execute_with(connection, f"CREATE OR REPLACE TEMP TABLE {name} AS FROM made_rows", "made_rows", empty)
    ids: dict[_Row, int] = {}
    done = id_count = 0
    named: tuple[object, object] | None = None
    while calls := connection.execute(_PART.format(done=done, last=done + _PART_ROWS)).fetchall():
        found: list[_Row] = []
        made: list[_Row] = []

        def id_of(*row: object, made: list[_Row] = made) -> int:
            nonlocal id_count
            known = ids.get(row)
            if known is None:
                id_count += 1
                known = ids[row] = id_count
                made.append((known, *row))
            return known

        for number, run_id, name, dims, types, values in calls:
            if (run_id, name) != named:  # calls are sorted by these: earlier operators don't occur again
                named = (run_id, name)
                ids.clear()
            known = dims is not None and types is not None
            work = (work_of(name, dims, types, values) if known else None) or _UNKNOWN_WORK
            row = (run_id, name, work.category, *(described(dims, types) if known else (None, None)))
            operator_id = id_of(*row, work.compute_type, work.flops, work.read_bytes, work.write_bytes)
            bare_id = id_of(*row, work.compute_type, None, None, None) if work.is_composite else operator_id
            is_matrix = work.category in _MATRIX and work.flops is not None
            found.append((number, operator_id, bare_id, work.is_composite, is_matrix))
        done += len(calls)
        for name, columns, rows in (
            ("distinct_operator", _DISTINCT_COLUMNS, found),
            ("made_operator", _OPERATOR_COLUMNS, made),
        ):
            values_of = zip(*rows, strict=True) if rows else [()] * len(columns)
            arrays = [pa.array(of, kind) for of, kind in zip(values_of, columns.values(), strict=True)]
            rows_of = pa.Table.from_arrays(arrays, list(columns))
            execute_with(connection, f"INSERT INTO temp.{name} FROM made_rows", "made_rows", rows_of)
