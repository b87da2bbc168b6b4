"""Check that every ID in a store refers to an existing row."""

from __future__ import annotations

import duckdb

from traceconv.schema import tables

#: Tables with a common sequence of IDs in a run.
EVENTS = ("task", "api", "range", "marker")
SLICES = ("task", "api", "range")

#: (table, column) → referenced columns of the same run; NULL refers to nothing.
REFERENCES: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {
    **{(table, "track_id"): (("track", "track_id"),) for table in (*EVENTS, "counter")},
    **{(table, "op_id"): (("op", "op_id"),) for table in (*SLICES, "memory", "fusion", "op_total")},
    **{(table, "step_id"): (("step", "step_id"),) for table in SLICES},
    **{(table, "device_id"): (("device", "device_id"),) for table in ("task", "memory", "step", "track")},
    **{(table, "parent_id"): tuple((other, "id") for other in SLICES) for table in SLICES},
    **{
        (table, "device_id"): (("device", "device_id"),)
        for table in (
            "device_busy",
            "device_gap",
            "device_total",
            "op_total",
            "stream_busy",
            "memory_interval",
            "task_memory",
            "critical_path",
            "collective",
            "task_operator",
            "stream_queue",
            "range_path_time",
        )
    },
    ("device_gap", "host_id"): (("range", "id"), ("api", "id")),
    ("device_gap", "task_id"): (("task", "id"),),
    ("device_gap", "thread_id"): (("track", "track_id"),),
    ("critical_path", "step_id"): (("step", "step_id"),),
    ("critical_path", "slice_id"): tuple((other, "id") for other in SLICES),
    ("task", "api_id"): (("api", "id"),),
    ("task_operator", "operator_id"): (("operator", "operator_id"),),
    ("task_operator", "range_id"): (("range", "id"),),
    ("task_operator", "step_id"): (("step", "step_id"),),
    ("task_operator", "op_id"): (("op", "op_id"),),
    ("graph_replay", "launch_id"): (("api", "id"),),
    ("graph_replay", "path_id"): (("range_path", "path_id"),),
    # Of the same run, unless another one was given as the reference.
    ("graph_replay", "reference_id"): (("task", "id"),),
    ("range_path", "path_id"): (("range", "id"),),
    ("range_path", "parent_path_id"): (("range_path", "path_id"),),
    ("range_path_time", "path_id"): (("range_path", "path_id"),),
    ("range_path_time", "step_id"): (("step", "step_id"),),
    ("task_memory", "id"): (("task", "id"),),
    **{
        (table, "id"): (("task", "id"),)
        for table in ("task_operator", "graph_replay", "task_queue", "reordered_task", "event_wait")
    },
    ("event_wait", "event_id"): (("task", "id"),),
    ("task_memory", "step_id"): (("step", "step_id"),),
    ("collective", "id"): (("task", "id"), ("range", "id")),
    ("collective", "step_id"): (("step", "step_id"),),
    ("track", "parent_track_id"): (("track", "track_id"),),
    ("task_pmu", "id"): (("task", "id"),),
    ("track", "process_id"): (("process", "process_id"),),
    ("op", "fusion_id"): (("fusion", "fusion_id"),),
    ("fusion", "fusion_id"): (("op", "fusion_id"),),
    ("flow", "src_id"): tuple((other, "id") for other in EVENTS),
    ("flow", "dst_id"): tuple((other, "id") for other in EVENTS),
    ("range", "parent_span_id"): (("range", "span_id"),),
    ("source_block", "source_id"): (("source", "source_id"),),
    ("import_log", "source_id"): (("source", "source_id"),),
}
#: Unique keys of a table in a run.
KEYS = {
    "run": "run_id", "device": "run_id, device_id", "process": "run_id, process_id", "track": "run_id, track_id",
    "op": "run_id, op_id", "source": "run_id, source_id", "step": "run_id, device_id, step_id",
    "task_pmu": "run_id, id, metric_group", "operator": "run_id, operator_id", "event_wait": "run_id, id",
}  # fmt: skip
#: IDs of the source without a table in the store, or that link rows to each other.
NO_REFERENCES = {
    *((table, "id") for table in EVENTS),
    *((table, column) for table in SLICES for column in ("correlation_id",)),
    ("flow", "flow_id"), ("flow", "external_id"), ("memory", "block_id"), ("op", "model_id"), ("step", "model_id"),
    ("range", "trace_id"), ("range", "span_id"), ("source_block", "first_id"), ("task", "stream_id"),
    ("task", "execution_id"), ("task", "source_task_id"), ("task", "context_id"), ("track", "stream_id"),
    ("stream_busy", "stream_id"), ("stream_queue", "stream_id"), ("device_gap", "stream_id"),
}  # fmt: skip


def unclassified() -> set[tuple[str, str]]:
    """ID columns without a documented target."""
    columns = {
        (table.name, column.name)
        for table in tables().values()
        for column in table.columns
        if column.name != "run_id" and (column.name == "id" or column.name.endswith("_id"))
    }
    own = {(table, key.rpartition(", ")[2]) for table, key in KEYS.items()}
    return columns - set(REFERENCES) - NO_REFERENCES - own


def dangling(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Errors, one per line: `run LABEL: TABLE.COLUMN: N rows lead to no TABLE.COLUMN, such as X`."""
    problems: list[str] = []
    # A statement for all tables finds those with rows: planning one for each of them takes longer than running it.
    found = " UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (FROM \"{table}\")" for table in tables())
    filled = {table for (table,) in connection.execute(found).fetchall()}
    for table in tables():
        if table in filled - {"run"}:
            problems += _without_run(connection, table)
    for (table, column), targets in REFERENCES.items():
        if table not in filled:
            continue
        there = " UNION ALL ".join(f'SELECT run_id, {key} AS key FROM "{other}"' for other, key in targets)
        rows = connection.execute(
            f'SELECT run_id, count(*), min({column}) FROM "{table}" AS t WHERE {column} IS NOT NULL AND NOT EXISTS '
            f"(FROM ({there}) AS o WHERE o.run_id = t.run_id AND o.key = t.{column}) GROUP BY run_id ORDER BY run_id"
        ).fetchall()
        names = " or ".join(f"{other}.{key}" for other, key in targets)
        problems += [
            f"run {run_id}: {table}.{column}: {count} rows lead to no {names}, such as {one}"
            for run_id, count, one in rows
        ]
    for table, key in KEYS.items():
        if table in filled:
            problems += _twice(connection, table, f'SELECT ({key}) AS "key" FROM "{table}"')
    every = " UNION ALL ".join(f'SELECT (run_id, id) AS "key" FROM "{table}"' for table in EVENTS)
    problems += _twice(connection, "task, api, range, marker", every)
    return problems


def _without_run(connection: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    [(count,)] = connection.execute(
        f'SELECT count(*) FROM "{table}" WHERE run_id IS NULL OR run_id NOT IN (SELECT run_id FROM run)'
    ).fetchall()
    return [f"{table}: {count} rows of no run"] if count else []


def _twice(connection: duckdb.DuckDBPyConnection, table: str, keys: str) -> list[str]:
    rows = connection.execute(f'SELECT "key", count(*) FROM ({keys}) GROUP BY 1 HAVING count(*) > 1 LIMIT 3').fetchall()
    return [f"{table}: key {key} is there {count} times" for key, count in rows]
