"""Find the launches of stored tasks that correlation IDs alone don't tell."""

from __future__ import annotations

from traceconv.pipeline.run_sql import RunSql

#: End of the name of a track with waits for a stream, in PyTorch traces. Their flows lead to the stream's own track.
_WAITS = " (sync)"


def drop_unclear_launch_flows(target: RunSql) -> None:
    """Delete the launch flows to tasks with a correlation ID of calls, unless from the process that launched them."""
    target.run_sql(
        "DELETE FROM flow WHERE run_id = $run AND kind = 'launch' AND (src_id, dst_id) IN ("
        "SELECT f.src_id, f.dst_id FROM flow AS f JOIN task AS t ON t.run_id = $run AND t.id = f.dst_id "
        "JOIN api AS a ON a.run_id = $run AND a.id = f.src_id "
        "JOIN track AS c ON c.run_id = $run AND c.track_id = a.track_id "
        "LEFT JOIN api AS o ON o.run_id = $run AND o.id = t.api_id "
        "LEFT JOIN track AS k ON k.run_id = $run AND k.track_id = o.track_id "
        "WHERE f.run_id = $run AND t.correlation_id IN (SELECT correlation_id FROM api WHERE run_id = $run) "
        "AND (t.submit_ns IS NULL OR (t.api_id IS NOT NULL AND c.process_id IS DISTINCT FROM k.process_id)))"
    )


def is_track_of_waits(name: str) -> bool:
    """Whether a track has this name because it has waits for a stream."""
    return name.endswith(_WAITS)


def bind_flows_to_waits(target: RunSql) -> None:
    """Let the launch flows of waits for a stream lead to these, which are on a track of their own."""
    target.run_sql(
        "UPDATE flow SET dst_id = t.id FROM task AS t JOIN track AS k ON k.run_id = $run AND k.track_id = t.track_id "
        "WHERE flow.run_id = $run AND flow.kind = 'launch' AND flow.src_id = t.api_id AND flow.dst_ns = t.start_ns "
        "AND t.run_id = $run AND t.kind = 'sync' AND ends_with(k.name, $waits)",
        waits=_WAITS,
    )


def unmark_flows_between_tasks(target: RunSql) -> None:
    """Set the kind of flows from tasks, which don't launch others."""
    target.run_sql(
        "UPDATE flow SET kind = 'other' WHERE run_id = $run AND kind = 'launch' "
        "AND src_id IN (SELECT id FROM task WHERE run_id = $run)"
    )


def find_launches_by_arg(target: RunSql, arg: str) -> int:
    """Set the launches of tasks in a run whose calls have no correlation IDs, by an arg of both.

    Several tasks may have the same value, such as those of an operator. They are in the order of the launching calls
    with this value, if there are as many. None are known if several processes use the same values. Return the number of
    those whose launches are unclear.
    """
    numbered = (
        "SELECT *, row_number() OVER (PARTITION BY key ORDER BY start_ns, id) AS place, "
        "count(*) OVER (PARTITION BY key) AS number FROM (SELECT id, track_id, start_ns, dur_ns, step_id, "
        "args->>$arg AS key FROM {rows} AND run_id = $run) WHERE key IS NOT NULL"
    )
    calls = numbered.format(rows="api WHERE regexp_matches(name, '(?i)launch|memcpy|memset')")
    tasks = numbered.format(rows="task WHERE true")
    target.run_sql(
        f"WITH call AS ({calls}), of_one AS (SELECT key FROM call JOIN track AS k ON k.run_id = $run "  # noqa: S608 - our own words
        "AND k.track_id = call.track_id GROUP BY key "
        "QUALIFY max(count(DISTINCT coalesce(k.process_id, -1))) OVER () = 1) "
        "UPDATE task SET submit_ns = c.start_ns, api_id = c.id, call_ns = c.dur_ns, step_id = c.step_id "
        f"FROM call AS c SEMI JOIN of_one USING (key) JOIN ({tasks}) AS t USING (key, place, number) "
        "WHERE task.run_id = $run AND task.id = t.id",
        arg=arg,
    )
    # In DuckDB 1, ->> binds less than AND.
    unclear = "SELECT count(*) FROM task WHERE run_id = $run AND submit_ns IS NULL AND (args->>$arg) IS NOT NULL"
    return target.number(f"{unclear} AND EXISTS (FROM api WHERE run_id = $run AND (args->>$arg) IS NOT NULL)", arg=arg)
