"""Fill the table graph_replay, and the operators of its tasks, by aligning them with those that operators launched."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import numpy as np
import pyarrow as pa

from traceconv.base.int64 import Int64
from traceconv.normalize.sequence_alignment import NOTHING, Pairs, Reference
from traceconv.store.arrow_rows import execute_with
from traceconv.store.catalogue import define
from traceconv.store.operator_tables import TASK_RANK
from traceconv.store.path_tables import PATH_NAME

#: Whether a call of this name launches a graph. `contains` is faster and excludes most names.
IS_LAUNCH = "contains({name}, 'GraphLaunch') AND regexp_matches({name}, '^(cuda|cu|hip)GraphLaunch')"
_CALL, _OF_CALL = IS_LAUNCH.format(name="name"), IS_LAUNCH.format(name="a.name")
#: Kernels of a reference that are looked through: the first ones.
_MOST_REFERENCES = 2_000_000
#: Places of a sequence whose operators must agree, if it occurs more often.
_MOST_PLACES = 100
#: Enclosing slices; Python stacks are less deep.
_MAX_LEVELS = 512
_UNNAMED = -2

_RUNS = f"""
SELECT DISTINCT a.run_id FROM api AS a
WHERE a.run_id IN ({{runs}}) AND {_OF_CALL} ORDER BY a.run_id
"""  # noqa: S608 - our own words
# The keys of PyTorch, of nsys, of rocprofv3 and of rocpd.
_SIZE = """coalesce(nullif(array_to_string(json_extract(t.args, [
  '$.grid', '$.block', '$.gridX', '$.gridY', '$.gridZ', '$.blockX', '$.blockY', '$.blockZ',
  '$.dispatch_info.grid_size', '$.dispatch_info.workgroup_size',
  '$.grid_size_x', '$.grid_size_y', '$.grid_size_z', 
  '$.workgroup_size_x', '$.workgroup_size_y', '$.workgroup_size_z'])::VARCHAR[], ' '), ''),
  t.size_bytes::VARCHAR, t.block_count::VARCHAR)"""
_REPLAYED = f"""
CREATE OR REPLACE TEMP TABLE replayed AS
SELECT t.id, t.api_id, t.device_id, t.stream_id, t.start_ns, t.name, {_SIZE} AS size
FROM task AS t
JOIN api AS a ON a.run_id = t.run_id AND a.id = t.api_id
WHERE t.run_id = {{run}} AND a.run_id = {{run}} AND {_OF_CALL}
  AND t.kind IS DISTINCT FROM 'sync'
"""  # noqa: S608 - our own words
_NAMES = """
CREATE OR REPLACE TEMP TABLE replayed_name AS
SELECT name, (row_number() OVER (ORDER BY name))::BIGINT AS name_id
FROM (SELECT DISTINCT name FROM temp.replayed WHERE name IS NOT NULL)
"""
_ELIGIBLE = f"""
CREATE OR REPLACE TEMP TABLE eligible AS
SELECT t.id, t.device_id, t.stream_id, t.start_ns, n.name_id, CASE WHEN n.name_id IS NOT NULL THEN {_SIZE} END AS size
FROM task AS t
ANTI JOIN (
  SELECT id FROM api WHERE run_id = {{reference}} AND {_CALL}
) AS a ON a.id = t.api_id
LEFT JOIN temp.replayed_name AS n ON n.name = t.name
WHERE t.run_id = {{reference}} AND t.kind IS DISTINCT FROM 'sync' AND t.start_ns IS NOT NULL
ORDER BY t.start_ns, t.id
LIMIT {_MOST_REFERENCES}
"""  # noqa: S608 - our own words
_KERNELS = """
CREATE OR REPLACE TEMP TABLE replayed_kernel AS
SELECT name_id, size, (row_number() OVER (ORDER BY name_id, size))::BIGINT AS kernel_id
FROM (
  SELECT DISTINCT n.name_id, r.size
  FROM temp.replayed AS r
  JOIN temp.replayed_name AS n ON n.name = r.name
  WHERE r.size IS NOT NULL
)
"""
# In the order in which a stream runs them.
_SEQUENCES = f"""
SELECT r.api_id, r.id, coalesce(n.name_id, {_UNNAMED}) AS name_id, coalesce(k.kernel_id, {_UNNAMED}) AS kernel_id,
       coalesce(lag(r.api_id) OVER in_order IS DISTINCT FROM r.api_id
                OR lag(r.device_id) OVER in_order IS DISTINCT FROM r.device_id
                OR lag(r.stream_id) OVER in_order IS DISTINCT FROM r.stream_id, true) AS begins
FROM temp.replayed AS r
LEFT JOIN temp.replayed_name AS n ON n.name = r.name
LEFT JOIN temp.replayed_kernel AS k ON k.name_id = n.name_id AND k.size = r.size
WINDOW in_order AS (ORDER BY r.api_id, r.device_id, r.stream_id, r.start_ns, r.id)
ORDER BY r.api_id, r.device_id, r.stream_id, r.start_ns, r.id
"""  # noqa: S608
_REFERENCE = f"""
SELECT e.id, coalesce(e.name_id, {NOTHING}) AS name_id, coalesce(k.kernel_id, {NOTHING}) AS kernel_id,
       coalesce(lag(e.device_id) OVER in_order IS DISTINCT FROM e.device_id
                OR lag(e.stream_id) OVER in_order IS DISTINCT FROM e.stream_id, true) AS begins
FROM temp.eligible AS e
LEFT JOIN temp.replayed_kernel AS k ON k.name_id = e.name_id AND k.size = e.size
WINDOW in_order AS (ORDER BY e.device_id, e.stream_id, e.start_ns, e.id)
ORDER BY e.device_id, e.stream_id, e.start_ns, e.id
"""  # noqa: S608
# The launching call, and the source of a flow that leads to the task.
_LAUNCHED = """
CREATE OR REPLACE TEMP TABLE launched AS
WITH matched AS (
  SELECT DISTINCT reference_id AS id FROM temp.pair
), linked AS (
  SELECT f.dst_id AS id, min(r.id) AS slice_id
  FROM flow AS f
  SEMI JOIN matched AS m ON m.id = f.dst_id
  JOIN "range" AS r ON r.run_id = f.run_id AND r.id = f.src_id
  WHERE f.run_id = {reference}
  GROUP BY f.dst_id
)
SELECT t.id, t.api_id, l.slice_id
FROM task AS t
SEMI JOIN matched AS m ON m.id = t.id
LEFT JOIN linked AS l ON l.id = t.id
WHERE t.run_id = {reference}
"""
_FRONTIER = """
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT slice_id, slice_id AS at_id
FROM (SELECT api_id AS slice_id FROM temp.launched UNION SELECT slice_id FROM temp.launched)
WHERE slice_id IS NOT NULL
"""
_LAUNCHES = """
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT DISTINCT api_id AS slice_id, api_id AS at_id FROM temp.replayed
"""
_STEP_UP = """
CREATE OR REPLACE TEMP TABLE reached AS
SELECT f.slice_id, n.parent_id, n.kind, n.name, n.is_range
FROM temp.frontier AS f
JOIN (
  SELECT id, parent_id, kind, name, true AS is_range FROM "range" WHERE run_id = {within}
  UNION ALL
  SELECT id, parent_id, NULL, NULL, false FROM api WHERE run_id = {within}
) AS n ON n.id = f.at_id
"""
_FOUND = """
INSERT INTO temp.enclosing
SELECT slice_id, {level}, kind, name
FROM temp.reached
WHERE is_range
"""
_NEXT = """
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT slice_id, parent_id AS at_id FROM temp.reached WHERE parent_id IS NOT NULL
"""
# What the places of a sequence agree in. With a reference elsewhere, the operator's number is that of its run.
_AGREED = """
CREATE OR REPLACE TEMP TABLE agreed AS
WITH inner_most AS (
  SELECT slice_id, arg_min(name, level) FILTER (WHERE kind = 'host_op') AS operator_name,
         arg_min(name, level) FILTER (WHERE kind = 'module') AS module_name
  FROM temp.enclosing
  GROUP BY slice_id
), known AS (
  SELECT l.id, coalesce(c.operator_name, f.operator_name) AS operator_name,
         coalesce(c.module_name, f.module_name) AS module_name,
         coalesce(p.name, c.operator_name, f.operator_name) AS worker_name, o.operator_id, o.range_id
  FROM temp.launched AS l
  LEFT JOIN inner_most AS c ON c.slice_id = l.api_id
  LEFT JOIN inner_most AS f ON f.slice_id = l.slice_id
  LEFT JOIN task_operator AS o ON o.run_id = {reference} AND o.id = l.id
  LEFT JOIN operator AS p ON p.run_id = {reference} AND p.operator_id = o.operator_id
)
SELECT p.sequence, p.place, arg_min(p.reference_id, p.reference) AS reference_id,
       CASE WHEN count(DISTINCT coalesce(k.operator_name, '')) = 1 THEN any_value(k.operator_name) END AS operator_name,
       CASE WHEN count(DISTINCT coalesce(k.module_name, '')) = 1 THEN any_value(k.module_name) END AS module_name,
       -- The operator with a formula, as in task_operator.
       CASE WHEN count(DISTINCT coalesce(k.worker_name, '')) = 1 THEN any_value(k.worker_name) END AS worker_name,
       CASE WHEN count(DISTINCT coalesce(k.operator_id, -1)) = 1 THEN any_value(k.operator_id) END AS operator_id,
       arg_min_null(k.range_id, p.reference) AS range_id, bool_and(p.is_same_size) AS is_same_size
FROM temp.pair AS p
LEFT JOIN known AS k ON k.id = p.reference_id
GROUP BY p.sequence, p.place
"""
_ALIGNED = """
CREATE OR REPLACE TEMP TABLE aligned AS
WITH placed AS (
  SELECT r.id, r.api_id AS launch_id, a.operator_name, a.module_name, a.worker_name, a.operator_id, a.range_id,
         a.is_same_size,
         CASE WHEN coalesce(a.operator_name, a.module_name) IS NOT NULL THEN a.reference_id END AS reference_id
  FROM temp.replayed AS r
  LEFT JOIN temp.place_of AS p ON p.id = r.id
  LEFT JOIN temp.agreed AS a ON a.sequence = p.sequence AND a.place = p.place
)
SELECT * REPLACE (CASE WHEN reference_id IS NOT NULL THEN bool_and(is_same_size) OVER of_launch END AS is_same_size),
       count(reference_id) OVER of_launch AS matched_count, count(*) OVER of_launch AS task_count
FROM placed
WINDOW of_launch AS (PARTITION BY launch_id)
"""
_REPLAYS = """
INSERT INTO graph_replay BY NAME
SELECT {run} AS run_id, id, launch_id, path_id,
       CASE WHEN {run} <> {reference} THEN (SELECT label FROM run WHERE run_id = {reference}) END AS reference_label,
       reference_id, operator_name, module_name, is_same_size, matched_count, task_count
FROM temp.aligned
LEFT JOIN temp.launch_path ON slice_id = launch_id
"""
# Operators as in the reference; without shapes and work, if the sizes of kernels differ.
_MADE = """
CREATE OR REPLACE TEMP TABLE replayed_operator AS
WITH wanted AS (
  SELECT DISTINCT operator_id AS reference_operator_id, worker_name AS name,
         operator_id IS NOT NULL AND is_same_size AS has_shapes
  FROM temp.aligned
  WHERE worker_name IS NOT NULL
), described AS (
  SELECT w.*, o.category, CASE WHEN has_shapes THEN o.input_shapes END AS input_shapes,
         CASE WHEN has_shapes THEN o.input_dtypes END AS input_dtypes,
         CASE WHEN has_shapes THEN o.compute_type END AS compute_type,
         CASE WHEN has_shapes THEN o.flops END AS flops,
         CASE WHEN has_shapes THEN o.read_bytes END AS read_bytes,
         CASE WHEN has_shapes THEN o.write_bytes END AS write_bytes
  FROM wanted AS w
  LEFT JOIN operator AS o ON o.run_id = {reference} AND o.operator_id = w.reference_operator_id
), identified AS (
  SELECT d.* REPLACE (coalesce(d.category, kernel_category(d.name)) AS category), o.operator_id AS known_id
  FROM described AS d
  LEFT JOIN operator AS o
    ON o.run_id = {run} AND {run} = {reference} AND d.has_shapes AND o.operator_id = d.reference_operator_id
)
SELECT *, coalesce(known_id, (SELECT coalesce(max(operator_id), 0) FROM operator WHERE run_id = {run})
         + dense_rank() OVER (
         ORDER BY known_id IS NOT NULL, name, category, input_shapes, input_dtypes, compute_type, flops, read_bytes,
                  write_bytes)) AS operator_id
FROM identified
"""
_OPERATORS = """
INSERT INTO operator BY NAME
SELECT DISTINCT {run} AS run_id, operator_id, name, category, input_shapes, input_dtypes, compute_type, flops,
       read_bytes, write_bytes
FROM temp.replayed_operator
WHERE known_id IS NULL
"""
# An operator around the launch of the graph is not the one that the kernel belongs to.
_NOT_RECORDED = """
DELETE FROM task_operator
WHERE run_id = {run} AND id IN (SELECT id FROM temp.aligned WHERE worker_name IS NOT NULL)
"""
_TASKS = """
INSERT INTO task_operator BY NAME
WITH kinds AS (
  SELECT {run} AS run_id, a.id, o.operator_id, a.launch_id, a.range_id, a.reference_id, t.device_id, t.stream_id,
         t.step_id, t.op_id, t.kind, t.start_ns, t.dur_ns, {rank} AS rank
  FROM temp.aligned AS a
  JOIN temp.replayed_operator AS o ON o.name = a.worker_name
    AND o.reference_operator_id IS NOT DISTINCT FROM a.operator_id
    AND o.has_shapes = (a.operator_id IS NOT NULL AND a.is_same_size)
  JOIN task AS t ON t.run_id = {run} AND t.id = a.id
  WHERE t.run_id = {run}
)
SELECT * EXCLUDE (rank, launch_id, reference_id, stream_id)
         REPLACE (CASE WHEN {run} = {reference} THEN range_id END AS range_id),
       ['compute', 'collective', 'copy', 'transfer'][1 + min(rank) OVER of_call] AS call_kind,
       row_number() OVER (of_call ORDER BY start_ns, id) = 1 AS is_first, 'replay' AS attribution
FROM kinds
WINDOW of_call AS (PARTITION BY launch_id, device_id, stream_id, operator_id, coalesce(range_id, reference_id))
"""
_HAS_OPERATORS = "SELECT 1 FROM task_operator WHERE run_id = {reference} LIMIT 1"
_PAIRS = """
CREATE OR REPLACE TEMP TABLE pair (
  sequence BIGINT, place BIGINT, reference BIGINT, reference_id BIGINT, is_same_size BOOLEAN
)
"""
_ENCLOSING = "CREATE OR REPLACE TEMP TABLE enclosing (slice_id BIGINT, level BIGINT, kind VARCHAR, name VARCHAR)"
# The ranges around the launch of a graph, from the outermost one.
_CHAINS = f"""
CREATE OR REPLACE TEMP TABLE launch_chain AS
SELECT slice_id, row_number() OVER (PARTITION BY slice_id ORDER BY level DESC) - 1 AS depth,
       {PATH_NAME} AS name
FROM temp.enclosing AS r
"""  # noqa: S608 - our own words
_ROOTS = """
CREATE OR REPLACE TEMP TABLE launch_path AS
SELECT DISTINCT api_id AS slice_id, NULL::BIGINT AS path_id FROM temp.replayed
"""
_STEP_DOWN = """
CREATE OR REPLACE TEMP TABLE launch_path AS
SELECT l.slice_id, CASE WHEN c.slice_id IS NULL THEN l.path_id ELSE p.path_id END AS path_id
FROM temp.launch_path AS l
LEFT JOIN temp.launch_chain AS c ON c.slice_id = l.slice_id AND c.depth = {level}
LEFT JOIN range_path AS p ON p.run_id = {run} AND p.depth = {level} AND p.name = c.name
  AND p.parent_path_id IS NOT DISTINCT FROM l.path_id
"""
_TEMPORARY = (
    "replayed", "replayed_name", "replayed_kernel", "eligible", "pair", "place_of", "launched", "frontier", "reached",
    "enclosing", "launch_chain", "launch_path", "agreed", "aligned", "replayed_operator",
)  # fmt: skip


def fill_replays(connection: duckdb.DuckDBPyConnection, runs: Iterable[int], reference: int | None = None) -> None:
    """Fill the table for runs that have no rows in it, and add their operators to operator and task_operator.

    reference  run in which the operators were called; None: each run itself
    """
    chosen = ", ".join(f"{run_id:d}" for run_id in runs)
    with_graphs = connection.execute(_RUNS.format(runs=chosen)).fetchall() if chosen else []
    for (run_id,) in with_graphs:
        _fill(connection, {"run": run_id, "reference": run_id if reference is None else reference, "rank": TASK_RANK})
    for name in _TEMPORARY if with_graphs else ():
        connection.execute(f"DROP TABLE IF EXISTS temp.{name}")


def clear_replays(connection: duckdb.DuckDBPyConnection, run_id: int) -> None:
    """Delete what `fill_replays` added for a run. Operators that an enclosing range had before stay unknown."""
    for statement in (
        "DELETE FROM graph_replay WHERE run_id = ?",
        "DELETE FROM task_operator WHERE run_id = ? AND attribution = 'replay'",
        "DELETE FROM operator AS o WHERE run_id = ? AND operator_id NOT IN "
        "(SELECT operator_id FROM task_operator WHERE run_id = o.run_id)",
    ):
        connection.execute(statement, [run_id])


def _fill(connection: duckdb.DuckDBPyConnection, values: dict[str, object]) -> None:
    """Fill the table for one run."""
    for statement in (_REPLAYED, _NAMES, _ELIGIBLE, _KERNELS, _PAIRS):
        connection.execute(statement.format(**values))
    connection.execute(_LAUNCHES)
    _find_enclosing(connection, values["run"])
    for statement in (_CHAINS, _ROOTS):
        connection.execute(statement)
    [(depth,)] = connection.execute("SELECT max(depth) FROM temp.launch_chain").fetchall()
    for level in range(0 if depth is None else depth + 1):
        connection.execute(_STEP_DOWN.format(level=level, **values))
    _align(connection)
    for statement in (_LAUNCHED, _FRONTIER):
        connection.execute(statement.format(**values))
    _find_enclosing(connection, values["reference"])
    for statement in (_AGREED, _ALIGNED, _REPLAYS):
        connection.execute(statement.format(**values))
    if connection.execute(_HAS_OPERATORS.format(**values)).fetchall():
        define(connection, "kernel_category")
        for statement in (_MADE, _OPERATORS, _NOT_RECORDED, _TASKS):
            connection.execute(statement.format(**values))


def _find_enclosing(connection: duckdb.DuckDBPyConnection, run_id: object) -> None:
    """Fill `enclosing` with the ranges around the slices of `frontier`; the innermost has the lowest level."""
    connection.execute(_ENCLOSING)
    for level in range(_MAX_LEVELS):
        for statement in (_STEP_UP, _FOUND, _NEXT):
            connection.execute(statement.format(level=level, within=run_id))
        [(rest,)] = connection.execute("SELECT count(*) FROM temp.frontier").fetchall()
        if not rest:
            break


def _align(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill `pair` with the kernels of each distinct sequence and those of the reference that they may be.

    `place_of` has the sequence and the place of each replayed task.
    """
    replayed = connection.sql(_SEQUENCES).to_arrow_table()
    ids, names, kernels = (replayed.column(name).to_numpy() for name in ("id", "name_id", "kernel_id"))
    firsts = np.flatnonzero(replayed.column("begins").to_numpy())
    ends = np.append(firsts[1:], len(ids))
    numbers: dict[tuple[bytes, bytes], int] = {}
    sequence_of = np.zeros(len(ids), np.int64)
    distinct: list[tuple[Int64, Int64]] = []
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        key = names[first:end].tobytes(), kernels[first:end].tobytes()
        if key not in numbers:
            distinct.append((names[first:end], kernels[first:end]))
        sequence_of[first:end] = numbers.setdefault(key, len(numbers))
    places = np.arange(len(ids)) - np.repeat(firsts, ends - firsts)
    _make(connection, "CREATE OR REPLACE TEMP TABLE place_of AS", id=ids, sequence=sequence_of, place=places)
    reference = connection.sql(_REFERENCE).to_arrow_table()
    begins = np.flatnonzero(reference.column("begins").to_numpy())
    of_id, of_name, of_kernel = (
        np.insert(reference.column(name).to_numpy(), begins, NOTHING) for name in ("id", "name_id", "kernel_id")
    )
    by_kernel, by_name = Reference(of_kernel), Reference(of_name)
    for number, (own_names, own_kernels) in enumerate(distinct):
        pairs = _pairs(by_kernel, by_name, own_kernels, own_names)
        if pairs is not None:
            _make(
                connection,
                "INSERT INTO temp.pair BY NAME",
                sequence=np.full(len(pairs.places), number),
                place=pairs.places,
                reference=pairs.references,
                reference_id=of_id[pairs.references],
                is_same_size=own_kernels[pairs.places] == of_kernel[pairs.references],
            )


def _pairs(by_kernel: Reference, by_name: Reference, kernels: Int64, names: Int64) -> Pairs | None:
    """Return the kernels of the reference that those of a sequence may be; None if most don't occur there."""
    found = by_kernel.occurrences(kernels) or by_name.occurrences(names)
    if found is not None:
        return _fewer(found, len(names))
    similar, of_any_size = by_kernel.similar(kernels), by_name.similar(names)
    # If more kernels match without their sizes, the sizes differ because the shapes do.
    if similar is not None and of_any_size is not None and similar[0] >= of_any_size[0]:
        return similar[1]
    return None if of_any_size is None else of_any_size[1]


def _fewer(pairs: Pairs, length: int) -> Pairs:
    """Return the pairs of some of the places where a sequence occurs, if they are many."""
    count = len(pairs.places) // length
    if count <= _MOST_PLACES:
        return pairs
    kept = np.linspace(0, count - 1, _MOST_PLACES).astype(np.int64)
    return Pairs(*(column.reshape(count, length)[kept].ravel() for column in (pairs.places, pairs.references)))


def _make(connection: duckdb.DuckDBPyConnection, statement: str, **columns: Int64) -> None:
    """Make a table of columns, or add them to it."""
    rows = pa.table({name: pa.array(values) for name, values in columns.items()})
    execute_with(connection, f"{statement} SELECT * FROM made_rows", "made_rows", rows)  # noqa: S608 - our own words
