"""Turn reduces that only a vendor's step trace has into collective tasks, so that communication is counted."""

from __future__ import annotations

from traceconv.pipeline.run_sql import RunSql


def settle_reduces(target: RunSql) -> bool:
    """Turn ranges of kind `reduce` into tasks of their step's device, unless it has collectives: the same work.

    Return whether the run had such ranges; if so, the waits of tasks must be recomputed.
    """
    if not target.fetch("SELECT 1 FROM range WHERE run_id = $run AND kind = 'reduce' LIMIT 1"):
        return False
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
    return True
