"""Launch flows to tasks that another process's call could have launched."""

from __future__ import annotations

from traceconv.pipeline.run_sql import RunSql


def drop_unclear_launches(target: RunSql) -> None:
    """Delete the launch flows to tasks whose correlation ID occurs in calls of several processes.

    A flow from the task's own process stays.
    """
    target.run_sql(
        "DELETE FROM flow WHERE run_id = $run AND kind = 'launch' AND (src_id, dst_id) IN ("
        "SELECT f.src_id, f.dst_id FROM flow AS f JOIN task AS t ON t.run_id = $run AND t.id = f.dst_id "
        "JOIN api AS a ON a.run_id = $run AND a.id = f.src_id AND a.correlation_id = t.correlation_id "
        "JOIN track AS c ON c.run_id = $run AND c.track_id = a.track_id "
        "JOIN track AS k ON k.run_id = $run AND k.track_id = t.track_id "
        "WHERE f.run_id = $run AND (t.submit_ns IS NULL OR c.process_id IS DISTINCT FROM k.process_id) "
        "AND t.correlation_id IN (SELECT b.correlation_id FROM api AS b "
        "JOIN track AS o ON o.run_id = $run AND o.track_id = b.track_id WHERE b.run_id = $run "
        "GROUP BY b.correlation_id HAVING count(DISTINCT coalesce(o.process_id, -1)) > 1))"
    )
