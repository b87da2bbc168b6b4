"""What SQL derives from the rows of a run once they are stored: steps, reduces, sizes of collectives, launch flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traceconv.pipeline.run_sql import RunSql
from traceconv.store.collective_table import element_widths

if TYPE_CHECKING:
    from traceconv.store.writer import StoreWriter

#: Steps whose events are missing in a truncated recording, though other rows have their numbers.
_STEPS = """
WITH named AS (
  SELECT step_id, device_id FROM task WHERE run_id = $run AND step_id IS NOT NULL
  UNION SELECT step_id, NULL FROM api WHERE run_id = $run AND step_id IS NOT NULL
  UNION SELECT step_id, NULL FROM "range" WHERE run_id = $run AND step_id IS NOT NULL
), missing AS (
  SELECT step_id, device_id, max(device_id) OVER (PARTITION BY step_id) AS any_device
  FROM named WHERE step_id NOT IN (SELECT step_id FROM step WHERE run_id = $run)
)
SELECT $run, step_id, device_id FROM missing WHERE device_id IS NOT NULL OR any_device IS NULL ORDER BY ALL
"""


def add_unfinished_steps(target: RunSql) -> int:
    """Add a step for each device whose tasks name it; return the number of steps."""
    return target.number(f"INSERT INTO step (run_id, step_id, device_id) {_STEPS}")


def settle_reduces(target: RunSql) -> None:
    """Turn ranges of kind `reduce` into tasks of their step's device, unless it has collectives: the same work.

    The waits of tasks must then be recomputed.
    """
    target.run_sql(
        "CREATE OR REPLACE TEMP TABLE step_reduce AS "
        "SELECT r.*, (SELECT min(s.device_id) FROM step AS s WHERE s.run_id = $run AND s.step_id = r.step_id "
        "HAVING count(DISTINCT s.device_id) = 1) AS device_id "
        "FROM range AS r WHERE r.run_id = $run AND r.kind = 'reduce'"
    )
    target.run_sql(
        "DELETE FROM temp.step_reduce AS r WHERE EXISTS (FROM task AS t WHERE t.run_id = $run "
        "AND t.kind = 'collective' AND (t.device_id IS NULL OR r.device_id IS NULL OR t.device_id = r.device_id))"
    )
    columns = "run_id, id, track_id, parent_id, depth, step_id, category, name, start_ns, dur_ns, self_ns, args"
    target.run_sql(
        f"INSERT INTO task ({columns}, device_id, kind, kind_source, task_type) "  # noqa: S608 - our own words
        f"SELECT {columns}, device_id, 'collective', 'recorded', 'REDUCE' FROM temp.step_reduce"
    )
    target.run_sql("DELETE FROM range WHERE run_id = $run AND id IN (SELECT id FROM temp.step_reduce)")


#: Keys in args: elements, their type. Ascend (HCCL), and PyTorch (NCCL).
_KEYS = (("count", "data_type"), ("In msg nelems", "dtype"))


def size_collectives(writer: StoreWriter, runs: str) -> None:
    """Set task.size_bytes of collectives from their args; NULL for unknown types. `runs`: their IDs, as SQL."""
    for count, kind in _KEYS:
        writer.run_sql(
            "UPDATE task SET size_bytes = found.size_bytes FROM ("  # noqa: S608 - our own words
            "SELECT run_id, id, elements * width AS size_bytes FROM ("
            f"SELECT run_id, id, lower(args->>'{kind}') AS type, TRY_CAST(args->>'{count}' AS BIGINT) AS elements "
            f"FROM task WHERE run_id IN ({runs}) AND kind = 'collective' AND size_bytes IS NULL) AS c "
            f"JOIN (VALUES {element_widths()}) AS w(type, width) USING (type) WHERE elements BETWEEN 0 AND {2**58}"
            f") AS found WHERE task.run_id IN ({runs}) AND task.run_id = found.run_id AND task.id = found.id"
        )


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


def drop_unclear_launches(target: RunSql) -> None:
    """Delete the launch flows to tasks whose correlation ID occurs in several calls, or calls of several processes.

    A flow from the task's own process stays, if that has one call with the ID.
    """
    target.run_sql(
        "DELETE FROM flow WHERE run_id = $run AND kind = 'launch' AND (src_id, dst_id) IN ("
        "SELECT f.src_id, f.dst_id FROM flow AS f JOIN task AS t ON t.run_id = $run AND t.id = f.dst_id "
        "JOIN api AS a ON a.run_id = $run AND a.id = f.src_id AND a.correlation_id = t.correlation_id "
        "JOIN track AS c ON c.run_id = $run AND c.track_id = a.track_id "
        "JOIN track AS k ON k.run_id = $run AND k.track_id = t.track_id "
        "JOIN (SELECT b.correlation_id, count(DISTINCT coalesce(o.process_id, -1)) AS processes FROM api AS b "
        "JOIN track AS o ON o.run_id = $run AND o.track_id = b.track_id WHERE b.run_id = $run "
        "GROUP BY b.correlation_id HAVING count(*) > 1) AS n ON n.correlation_id = t.correlation_id "
        "WHERE f.run_id = $run AND (t.submit_ns IS NULL "
        "OR (n.processes > 1 AND c.process_id IS DISTINCT FROM k.process_id)))"
    )


def find_launches(target: RunSql, arg: str) -> int:
    """Set the launches of tasks in a run whose calls have no correlation IDs, by an arg of both.

    Several tasks may have the same value, such as those of an operator. They are in the order of the launching calls
    with this value, if there are as many. Return the number of those whose launches are unclear.
    """
    numbered = (
        "SELECT *, row_number() OVER (PARTITION BY key ORDER BY start_ns, id) AS place, "
        "count(*) OVER (PARTITION BY key) AS number FROM (SELECT id, start_ns, dur_ns, step_id, args->>$arg AS key "
        "FROM {rows} AND run_id = $run) WHERE key IS NOT NULL"
    )
    calls = numbered.format(rows="api WHERE regexp_matches(name, '(?i)launch|memcpy|memset')")
    tasks = numbered.format(rows="task WHERE true")
    target.run_sql(
        "UPDATE task SET submit_ns = c.start_ns, api_id = c.id, call_ns = c.dur_ns, step_id = c.step_id "  # noqa: S608 - our own words
        f"FROM ({calls}) AS c JOIN ({tasks}) AS t USING (key, place, number) "
        "WHERE task.run_id = $run AND task.id = t.id",
        arg=arg,
    )
    unclear = "SELECT count(*) FROM task WHERE run_id = $run AND submit_ns IS NULL AND args->>$arg IS NOT NULL"
    return target.number(f"{unclear} AND EXISTS (FROM api WHERE run_id = $run AND args->>$arg IS NOT NULL)", arg=arg)
