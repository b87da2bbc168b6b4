"""Fill the tables operator and task_operator from the launches and the operators' recorded arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
from traceconv.store.sections import section

#: Keys of the arguments in an event's args; older versions of PyTorch write the second.
_KEYS = """['$."Input Dims"', '$."Input dims"', '$."Input type"', '$."Concrete Inputs"']"""
#: Python stacks are less deep; deeper ones are not searched for an operator.
_MAX_LEVELS = 512
#: Levels after which slices are dropped that no operator encloses. Few traces have more, and all are read for each.
_FEW_LEVELS = 4

#: Place of the call_kind that a task `t` gives its call.
TASK_RANK = """
CASE WHEN coalesce(t.kind, 'compute') = 'compute' THEN 0 WHEN t.kind = 'collective' THEN 1
     WHEN regexp_matches(t.name, '(?i)DtoD|device.to.device|memset') THEN 2 ELSE 3 END
"""
_sql = partial(section, __name__, keys=_KEYS, rank=TASK_RANK)
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
    with_shapes = connection.execute(_sql("runs", runs=chosen, distinct=distinct, limit=limit)).fetchall()
    if not with_shapes:
        return
    if not linked:
        link_tasks(connection, runs)
    chosen = ", ".join(f"{run_id:d}" for (run_id,) in with_shapes)
    # DuckDB would compare the texts of a list with each name, one after another.
    formulas = pa.table({"name": pa.array(names_with_formula(), pa.string())})
    execute_with(connection, "CREATE OR REPLACE TEMP TABLE formula_name AS FROM formula_rows", "formula_rows", formulas)
    connection.execute(_sql("overloads", runs=chosen))
    _find_calls(connection, chosen)
    step_done()
    connection.execute(_sql("names", runs=chosen))
    calls = _sql("calls", runs=chosen, part="{part}")
    _create_in_parts(connection, "operator_call", calls, _parts(connection, "range_id", "found"))
    operators = SpilledRows(OPERATOR_SCHEMA)
    try:
        count = _number_calls(connection, operators)
        step_done()
        connection.execute(_sql("outer_calls", runs=chosen))
        _create_in_parts(connection, "placed", _sql("by_call", part="{part}"), _parts(connection, "api_id", "launched"))
        connection.execute(_sql("by_flow"))
        used = np.zeros(count + 1, np.bool_)
        inserts = GroupedInserts(connection, _sql("insert_tasks"), "task_rows")
        for part in _parts(connection, "range_id", "placed"):
            tasks = _tasks(connection, _sql("tasks", runs=chosen, part=part))
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
    connection.execute(_sql("launched", runs=runs))
    for level in range(_MAX_LEVELS):
        if level == _FEW_LEVELS:
            connection.execute(_sql("enclosed", runs=runs))
        connection.execute(_sql("step_up", runs=runs))
        [(rest,)] = connection.execute("SELECT count(*) FROM temp.frontier").fetchall()
        if not rest:
            break


def _number_calls(connection: duckdb.DuckDBPyConnection, operators: SpilledRows) -> int:
    """Make `known_call`, the calls with their operators, and add these to `operators`; return the last ID."""
    with_formula = connection.execute("SELECT number, name FROM temp.operator_name WHERE has_formula").fetchall()
    distinct = DistinctOperators(dict(with_formula))
    calls = Spool(CALL)
    try:
        for batch in connection.sql(_sql("sorted_calls")).to_arrow_reader(_PART_ROWS):
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
    """Return rows for the section insert_tasks, of which all tasks of a call are in one part."""
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
    execute_with(connection, _sql("categories"), "name_rows", name_rows)
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
    names = connection.sql(_sql("named", **bounds)).to_arrow_table().combine_chunks()
    places = pc.subtract(numbers, bounds["min"]).cast(pa.int32())
    texts = [
        pa.DictionaryArray.from_arrays(places, names.column(column).chunk(0)).cast(pa.string())
        for column in ("name", "category")
    ]
    rows = rows.set_column(2, "name", texts[0])
    return rows.set_column(5, "category", pc.coalesce(rows.column("category"), texts[1]))
