--- op_summary
UPDATE task SET wait_ns = found.wait
FROM (
  SELECT run_id AS of_run, id AS of_id,
         CASE WHEN NOT is_row THEN NULL WHEN is_first OR start_ns < before_ns THEN 0
              ELSE TRY(start_ns - before_ns) END AS wait
  FROM (
    SELECT run_id, id, start_ns, is_row, lag(id) OVER before IS NULL AS is_first,
           lag(start_ns + dur_ns) OVER before AS before_ns
    FROM (
      SELECT *, start_ns IS NOT NULL AND (op_id IS NOT NULL OR coalesce(kind = 'collective', false)) AS is_row
      FROM task
      WHERE {where}
    )
    WINDOW before AS (PARTITION BY run_id, device_id, is_row ORDER BY start_ns, id)
  )
) AS found
WHERE run_id = of_run AND id = of_id AND wait_ns IS DISTINCT FROM found.wait

--- stream
UPDATE task SET stream_wait_ns = found.wait_ns
FROM (
  SELECT id, CASE WHEN is_first THEN 0 ELSE TRY(start_ns - before_ns) END AS wait_ns
  FROM (
    SELECT id, start_ns, lag(id) OVER before IS NULL AS is_first, lag(start_ns + dur_ns) OVER before AS before_ns
    FROM task
    WHERE {where}
    WINDOW before AS (PARTITION BY {partition} ORDER BY start_ns, id)
  )
) AS found
WHERE task.run_id = $run AND task.id = found.id
