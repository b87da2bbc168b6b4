--- unfinished_steps
INSERT INTO step (run_id, step_id, device_id)
WITH named AS (
  SELECT step_id, device_id FROM task WHERE run_id = $run AND step_id IS NOT NULL
  UNION SELECT step_id, NULL FROM api WHERE run_id = $run AND step_id IS NOT NULL
  UNION SELECT step_id, NULL FROM "range" WHERE run_id = $run AND step_id IS NOT NULL
), missing AS (
  SELECT step_id, device_id, max(device_id) OVER (PARTITION BY step_id) AS any_device
  FROM named WHERE step_id NOT IN (SELECT step_id FROM step WHERE run_id = $run)
)
SELECT $run, step_id, device_id FROM missing WHERE device_id IS NOT NULL OR any_device IS NULL ORDER BY ALL

--- reduces
CREATE OR REPLACE TEMP TABLE step_reduce AS
SELECT r.*, (
  SELECT min(s.device_id) FROM step AS s WHERE s.run_id = $run AND s.step_id = r.step_id
  HAVING count(DISTINCT s.device_id) = 1
) AS device_id
FROM range AS r
WHERE r.run_id = $run AND r.kind = 'reduce'

--- recorded_twice
DELETE FROM temp.step_reduce AS r
WHERE EXISTS (
  FROM task AS t
  WHERE t.run_id = $run AND t.kind = 'collective'
    AND (t.device_id IS NULL OR r.device_id IS NULL OR t.device_id = r.device_id)
)

--- add_tasks
INSERT INTO task (run_id, id, track_id, parent_id, depth, step_id, category, name, start_ns, dur_ns, self_ns, args,
                  device_id, kind, kind_source, task_type)
SELECT run_id, id, track_id, parent_id, depth, step_id, category, name, start_ns, dur_ns, self_ns, args,
       device_id, 'collective', 'recorded', 'REDUCE'
FROM temp.step_reduce

--- remove_ranges
DELETE FROM range WHERE run_id = $run AND id IN (SELECT id FROM temp.step_reduce)

--- collective_sizes
UPDATE task SET size_bytes = found.size_bytes
FROM (
  SELECT run_id, id, elements * width AS size_bytes
  FROM (
    SELECT run_id, id, lower(args->>'{kind}') AS type, TRY_CAST(args->>'{count}' AS BIGINT) AS elements
    FROM task
    WHERE run_id IN ({runs}) AND kind = 'collective' AND size_bytes IS NULL
  ) AS c
  JOIN (VALUES {widths}) AS w(type, width) USING (type)
  WHERE elements BETWEEN 0 AND 288230376151711744  -- 2^58, whose bytes fit into 64 bits in every type
) AS found
WHERE task.run_id IN ({runs}) AND task.run_id = found.run_id AND task.id = found.id
