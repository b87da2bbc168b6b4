"""Find the launches of stored tasks that correlation IDs alone don't tell."""

from __future__ import annotations

from traceconv.pipeline.run_sql import RunSql


def find_repeated_launches(target: RunSql) -> int:
    """Set the launches of tasks whose correlation ID several calls of a process have; return their number.

    A task belongs to the last call before it, if tasks with the ID follow each of these calls before the next one.
    Calls inside another one with the ID, or overlapping it, belong to that.
    """
    return target.number("""
WITH launch AS (
  SELECT a.correlation_id AS key, a.id, a.start_ns, a.dur_ns, a.step_id, k.process_id,
         max(TRY(a.start_ns + coalesce(a.dur_ns, 0))) OVER (
           PARTITION BY a.correlation_id ORDER BY a.start_ns, a.dur_ns DESC, a.id
           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until_ns
  FROM api AS a JOIN track AS k ON k.run_id = a.run_id AND k.track_id = a.track_id
  WHERE a.run_id = $run AND a.correlation_id IS NOT NULL
  QUALIFY until_ns IS NULL OR a.start_ns >= until_ns
), repeated AS (
  SELECT key FROM launch GROUP BY key HAVING count(*) > 1 AND count(DISTINCT coalesce(process_id, -1)) = 1
), placed AS (
  SELECT *, count(dur_ns) OVER (PARTITION BY key ORDER BY start_ns, is_task, id) AS place
  FROM (
    SELECT key, id, start_ns, coalesce(dur_ns, -1) AS dur_ns, step_id, false AS is_task
    FROM launch SEMI JOIN repeated USING (key)
    UNION ALL
    SELECT correlation_id, id, start_ns, NULL, NULL, true FROM task
    WHERE run_id = $run AND submit_ns IS NULL AND correlation_id IN (FROM repeated)
  )
), alternating AS (
  SELECT key
  FROM (SELECT key, place, count(*) FILTER (WHERE is_task) AS tasks FROM placed GROUP BY key, place)
  GROUP BY key
  HAVING min(place) = 1 AND min(tasks) > 0
)
UPDATE task SET submit_ns = c.start_ns, api_id = c.id, call_ns = nullif(c.dur_ns, -1), step_id = c.step_id
FROM placed AS c SEMI JOIN alternating USING (key) JOIN placed AS t USING (key, place)
WHERE NOT c.is_task AND t.is_task AND task.run_id = $run AND task.id = t.id
""")


def drop_unclear_launch_flows(target: RunSql) -> None:
    """Delete the launch flows to tasks with a correlation ID of calls, none of which is known to be theirs.

    If calls of several processes have it, only a flow from the task's own process stays.
    """
    target.run_sql(
        "DELETE FROM flow WHERE run_id = $run AND kind = 'launch' AND (src_id, dst_id) IN ("
        "SELECT f.src_id, f.dst_id FROM flow AS f JOIN task AS t ON t.run_id = $run AND t.id = f.dst_id "
        "JOIN api AS a ON a.run_id = $run AND a.id = f.src_id "
        "JOIN track AS c ON c.run_id = $run AND c.track_id = a.track_id "
        "JOIN track AS k ON k.run_id = $run AND k.track_id = t.track_id "
        "JOIN (SELECT b.correlation_id, count(DISTINCT coalesce(o.process_id, -1)) AS processes FROM api AS b "
        "JOIN track AS o ON o.run_id = $run AND o.track_id = b.track_id WHERE b.run_id = $run "
        "GROUP BY b.correlation_id) AS n ON n.correlation_id = t.correlation_id "
        "WHERE f.run_id = $run AND (t.submit_ns IS NULL "
        "OR (n.processes > 1 AND c.process_id IS DISTINCT FROM k.process_id)))"
    )


def find_launches_by_arg(target: RunSql, arg: str) -> int:
    """Set the launches of tasks in a run whose calls have no correlation IDs, by an arg of both.

    Several tasks may have the same value, such as those of an operator. They are in the order of the launching calls
    with this value, if there are as many, of one process. Return the number of those whose launches are unclear.
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
        "AND k.track_id = call.track_id GROUP BY key HAVING count(DISTINCT coalesce(k.process_id, -1)) = 1) "
        "UPDATE task SET submit_ns = c.start_ns, api_id = c.id, call_ns = c.dur_ns, step_id = c.step_id "
        f"FROM call AS c SEMI JOIN of_one USING (key) JOIN ({tasks}) AS t USING (key, place, number) "
        "WHERE task.run_id = $run AND task.id = t.id",
        arg=arg,
    )
    unclear = "SELECT count(*) FROM task WHERE run_id = $run AND submit_ns IS NULL AND args->>$arg IS NOT NULL"
    return target.number(f"{unclear} AND EXISTS (FROM api WHERE run_id = $run AND args->>$arg IS NOT NULL)", arg=arg)
