--- collision
-- Names with equal hashes, or with the hash of other_names.
SELECT 1
FROM (
  SELECT DISTINCT {path_name} AS name, {is_summary} AS is_summary
  FROM (SELECT DISTINCT name, kind FROM range WHERE run_id IN ({runs})) AS r
)
GROUP BY hash(name, is_summary)
HAVING count(*) > 1 OR hash(name, is_summary) = {other_names}
LIMIT 1

--- numbers_of_names
CREATE OR REPLACE TEMP TABLE path_name AS
SELECT name, is_summary, (row_number() OVER (ORDER BY name, is_summary) + {other_names})::UBIGINT AS number
FROM (
  SELECT DISTINCT {path_name} AS name, {is_summary} AS is_summary
  FROM (SELECT DISTINCT name, kind FROM range WHERE run_id IN ({runs})) AS r
)

--- kinds
SELECT DISTINCT kind FROM range WHERE run_id IN ({with_ranges}) AND kind IS NOT NULL ORDER BY kind

--- times
SELECT start_ns AS ts_ns FROM range WHERE run_id IN ({with_ranges}) AND start_ns IS NOT NULL
UNION ALL
SELECT start_ns FROM api WHERE run_id IN ({with_ranges}) AND start_ns IS NOT NULL
UNION ALL
SELECT start_ns FROM task WHERE run_id IN ({runs}) AND kind IS DISTINCT FROM 'sync' AND start_ns IS NOT NULL

--- slices
SELECT r.run_id, r.id, coalesce(r.parent_id, {null}) AS parent_id, {name} AS name,
       CASE r.kind {kinds} ELSE 0 END::BIGINT + CASE WHEN k.device_id IS NULL THEN {host} ELSE 0 END AS kind,
       coalesce(r.step_id, {null}) AS step_id, coalesce(r.start_ns, {null}) AS start_ns,
       coalesce(r.dur_ns, {null}) AS dur_ns, coalesce(r.self_ns, {null}) AS self_ns
FROM range AS r
LEFT JOIN track AS k ON k.run_id = r.run_id AND k.track_id = r.track_id
{join_names}
WHERE r.run_id IN ({with_ranges}) AND {started}
UNION ALL
SELECT r.run_id, r.id, coalesce(r.parent_id, {null}), 0::UBIGINT, {call}::BIGINT, {null}, coalesce(r.start_ns, {null}),
       coalesce(r.dur_ns, {null}), {null}
FROM api AS r
WHERE r.run_id IN ({with_ranges}) AND {started}

--- tasks
-- A call starts when its tasks are submitted.
SELECT r.run_id, r.id, CASE WHEN r.run_id IN ({with_ranges}) THEN r.api_id END AS api_id, r.device_id, r.step_id,
       r.dur_ns
FROM task AS r
WHERE r.run_id IN ({runs}) AND r.kind IS DISTINCT FROM 'sync' AND r.api_id IS NOT NULL AND {submitted}{if_alone}
UNION ALL
SELECT r.run_id, r.id, NULL, r.device_id, r.step_id, r.dur_ns
FROM task AS r
WHERE r.run_id IN ({runs}) AND r.kind IS DISTINCT FROM 'sync' AND r.api_id IS NULL AND {started}{if_alone}

--- task_numbers
SELECT r.run_id, coalesce(r.api_id, {null}) AS api_id, coalesce(r.device_id, {null}) AS device_id,
       coalesce(r.step_id, {null}) AS step_id, coalesce(r.dur_ns, {null}) AS dur_ns
FROM {tasks}

--- linked
-- As in launching_range: torch_npu queues its work, and a flow leads from the operator to the task. Most flows of other
-- traces begin at calls, so that no row is left for the join with tasks.
CREATE OR REPLACE TEMP TABLE linked AS
SELECT f.run_id, f.dst_id AS id, min(f.src_id) AS range_id
FROM (
  SELECT f.run_id, f.src_id, f.dst_id
  FROM flow AS f
  SEMI JOIN "range" AS r ON r.run_id = f.run_id AND r.id = f.src_id
  WHERE f.run_id IN ({runs})
) AS f
JOIN task AS t ON t.run_id = f.run_id AND t.id = f.dst_id
WHERE t.kind IS DISTINCT FROM 'sync'
GROUP BY f.run_id, f.dst_id

--- places
CREATE OR REPLACE TEMP TABLE range_place (run_id BIGINT, id BIGINT, path BIGINT, class BIGINT);
CREATE OR REPLACE TEMP TABLE call_place (run_id BIGINT, id BIGINT, path BIGINT, class BIGINT)

--- executions
-- As in launching_range: another thread launches the tasks of an inference.
CREATE OR REPLACE TEMP TABLE execution_range AS
SELECT e.run_id, e.correlation_id AS execution_id, min(i.id) AS range_id
FROM range AS e
JOIN range AS i ON i.run_id = e.run_id AND i.span_id = e.parent_span_id AND i.kind = 'inference'
WHERE e.run_id IN ({with_ranges}) AND e.kind = 'execution'
GROUP BY e.run_id, e.correlation_id

--- execution_ranges
SELECT r.run_id, r.id, r.id AS slice_id
FROM range AS r
WHERE r.run_id IN ({with_ranges}) AND r.kind = 'inference' AND {started}

--- execution_tasks
SELECT t.run_id, coalesce(t.device_id, {null}) AS device_id, coalesce(t.step_id, {null}) AS step_id,
       coalesce(t.dur_ns, {null}) AS dur_ns, coalesce(w.path, {null}) AS path
FROM task AS t
LEFT JOIN temp.execution_range AS e ON e.run_id = t.run_id AND e.execution_id = t.execution_id
LEFT JOIN temp.range_place AS w ON w.run_id = e.run_id AND w.id = e.range_id
WHERE t.run_id IN ({runs}) AND t.execution_id IS NOT NULL AND t.kind IS DISTINCT FROM 'sync'

--- linked_ranges
-- The table linked has few rows: those of torch_npu, which queues its work.
SELECT r.run_id, r.id, r.id AS slice_id
FROM range AS r
SEMI JOIN temp.linked AS l ON l.run_id = r.run_id AND l.range_id = r.id
WHERE {started}

--- linked_calls
SELECT r.run_id, r.id, r.api_id
FROM {tasks}
SEMI JOIN temp.linked AS l ON l.run_id = r.run_id AND l.id = r.id
WHERE api_id IS NOT NULL

--- linked_tasks
-- Operators before other ranges, and those around the call before those linked by a flow.
SELECT t.run_id, coalesce(t.device_id, {null}) AS device_id, coalesce(t.step_id, {null}) AS step_id,
       coalesce(t.dur_ns, {null}) AS dur_ns,
       CASE WHEN coalesce(c.class, 0) & {operator} = 0
              AND (w.class & {operator} > 0 OR (coalesce(c.class, 0) & {other_range} = 0 AND w.class & {other_range} > 0))
            THEN w.path
            ELSE coalesce(c.path, w.path, {null}) END AS path
FROM temp.linked AS l
JOIN task AS t ON t.run_id = l.run_id AND t.id = l.id
LEFT JOIN temp.range_place AS w ON w.run_id = l.run_id AND w.id = l.range_id
LEFT JOIN temp.call_place AS c ON c.run_id = l.run_id AND c.id = l.id

--- existing
SELECT 1
FROM missing_slices AS m
SEMI JOIN (SELECT run_id, id FROM range UNION ALL SELECT run_id, id FROM api) AS s ON s.run_id = m.run_id AND s.id = m.id
LIMIT 1

--- insert_paths
INSERT INTO range_path BY NAME
SELECT p.run_id, p.path_id, p.parent_path_id, p.depth, p.kind,
       CASE WHEN p.is_other THEN '(other names)' ELSE {path_name} END AS name
FROM new_paths AS p
JOIN range AS r ON r.run_id = p.run_id AND r.id = p.path_id

--- insert_times
INSERT INTO range_path_time BY NAME
SELECT run_id, nullif(path_id, {null}) AS path_id, nullif(device_id, {null}) AS device_id,
       nullif(step_id, {null}) AS step_id, range_count, ended_count, host_total_ns, host_self_ns, task_count, task_ns
FROM new_times
