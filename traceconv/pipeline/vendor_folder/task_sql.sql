--- labels
CREATE OR REPLACE TEMP TABLE vendor_label AS
SELECT process_id, number::BIGINT AS device_id
FROM (
  SELECT k.process_id, min(regexp_extract(m.args->>'labels', '^NPU (\d{{1,9}})$', 1)) AS number
  FROM marker AS m
  JOIN track AS k USING (run_id, track_id)
  WHERE m.run_id = $run AND m.name = 'process_labels'
  GROUP BY k.process_id
  HAVING count(DISTINCT m.args->>'labels') = 1
)
WHERE number <> ''

--- labelled_devices
CREATE OR REPLACE TEMP TABLE vendor_device AS
SELECT k.track_id, l.device_id
FROM track AS k
JOIN temp.vendor_label AS l USING (process_id)
WHERE k.run_id = $run AND k.kind = 'stream' AND k.device_id IS NULL

--- labelled_steps
UPDATE step SET device_id = found.device_id
FROM (
  SELECT r.step_id, min(l.device_id) AS device_id
  FROM range AS r
  JOIN track AS k USING (run_id, track_id)
  JOIN temp.vendor_label AS l USING (process_id)
  WHERE r.run_id = $run AND r.step_id IS NOT NULL
  GROUP BY r.step_id
  HAVING count(DISTINCT l.device_id) = 1
) AS found
WHERE step.run_id = $run AND step.step_id = found.step_id AND step.device_id IS NULL AND step.step_source = 'slice'

--- devices_of_tracks
CREATE OR REPLACE TEMP TABLE vendor_device AS
SELECT track_id, min(device_id) AS device_id
FROM task
WHERE run_id = $run AND device_id IS NOT NULL
GROUP BY track_id
HAVING count(DISTINCT device_id) = 1

--- set_devices_of_tracks
UPDATE track SET device_id = d.device_id
FROM temp.vendor_device AS d
WHERE track.run_id = $run AND track.track_id = d.track_id AND track.device_id IS NULL

--- set_devices_of_tasks
UPDATE task SET device_id = d.device_id
FROM temp.vendor_device AS d
WHERE task.run_id = $run AND task.track_id = d.track_id AND task.device_id IS NULL

--- add_devices
INSERT INTO device (run_id, device_id, kind)
SELECT DISTINCT $run, device_id, 'NPU'
FROM temp.vendor_device AS d
WHERE NOT EXISTS (FROM device AS k WHERE k.run_id = $run AND k.device_id = d.device_id)

--- durations
UPDATE temp.vendor_task SET dur_ns = TRY(end_ns - start_ns) WHERE dur_ns IS NULL AND end_ns >= start_ns

--- names
UPDATE temp.vendor_task SET name = task_type WHERE name IS NULL

--- match
CREATE OR REPLACE TEMP TABLE vendor_match (vendor_id BIGINT, task_id BIGINT, apart_ns BIGINT)

--- unclear
CREATE OR REPLACE TEMP TABLE vendor_unclear (vendor_id BIGINT)

--- may_equal
CREATE OR REPLACE TEMP MACRO may_equal(one, other) AS one IS NULL OR other IS NULL OR one = other

--- kind
-- The kind of a task by its type and name in msprof. A task that is named after its type executes no op. A kernel that
-- executes a collective has no kind, as in timelines: the collective has a row of its own.
CREATE OR REPLACE TEMP MACRO vendor_kind(task_type, name) AS CASE
  WHEN regexp_matches(coalesce(name, ''), '(Aicpu|Aiv)Kernel$') THEN NULL
  WHEN regexp_matches(coalesce(task_type, ''), '^(HCCL|COMMUNICATION|HCCL_AI_CPU)', 'i')
    OR regexp_matches(coalesce(name, ''), '^hcom_', 'i') THEN 'collective'
  WHEN regexp_matches(coalesce(task_type, ''), '^(AI[_ ]|AI(C|V|CORE|CPU)(_SQE)?$|MIX_|DSA|KERNEL_|DVPP|VPC|JPEG)', 'i')
    THEN 'compute'
  WHEN regexp_matches(coalesce(task_type, '') || ' ' || coalesce(name, ''),
                      '(memcpy|sdma|pcie_dma|async_dma|ubdma|reduce_async|rdma_send)', 'i') THEN 'copy'
  WHEN name = task_type
    OR regexp_matches(coalesce(task_type, ''), '^(event|notify|profiling|place.holder|model|write|end.graph)', 'i')
    THEN 'sync'
  ELSE 'compute'
END

--- free
CREATE OR REPLACE TEMP VIEW vendor_free AS
FROM task AS t WHERE NOT EXISTS (FROM temp.vendor_match AS m WHERE m.task_id = t.id)

--- alone
-- Records without a match that are not unclear. The track of a new task: without streams it depends only on whether the
-- task is a collective.
CREATE OR REPLACE TEMP VIEW vendor_alone AS
SELECT *,
       CASE WHEN stream_id IS NOT NULL THEN 'Stream ' || stream_id WHEN kind = 'collective' THEN 'Communication'
            ELSE 'Stream not recorded' END AS track_name
FROM (
  SELECT *, vendor_kind(task_type, name) AS kind
  FROM temp.vendor_task AS v
  WHERE NOT EXISTS (FROM temp.vendor_match AS m WHERE m.vendor_id = v.id)
    AND NOT EXISTS (FROM temp.vendor_unclear AS u WHERE u.vendor_id = v.id)
)

--- many_alike
INSERT INTO temp.vendor_unclear
SELECT v.id
FROM temp.vendor_task AS v
WHERE EXISTS (
  FROM (
    SELECT name, bucket, count(*) FILTER (ours) AS tasks, count(*) FILTER (NOT ours) AS records
    FROM (
      SELECT name, start_ns // {near_ns} AS bucket, true AS ours FROM task WHERE run_id = $run
      UNION ALL SELECT name, start_ns // {near_ns}, false FROM temp.vendor_task
    )
    GROUP BY name, bucket
  ) AS many
  WHERE tasks > 0 AND records > 0 AND greatest(tasks, records) > {max_alike}
    AND many.name = v.name AND many.bucket = v.start_ns // {near_ns}
)

--- pairs
CREATE OR REPLACE TEMP TABLE vendor_pair AS
SELECT v.id AS vendor_id, t.id AS task_id, abs(TRY(t.start_ns - v.start_ns)) AS apart_ns,
       coalesce(t.device_id = v.device_id, false)::INTEGER + coalesce(t.stream_id = v.stream_id, false)::INTEGER
       + coalesce(t.source_task_id = v.source_task_id, false)::INTEGER AS equal,
       coalesce(abs(t.dur_ns - v.dur_ns) > 1, (t.dur_ns IS NULL) <> (v.dur_ns IS NULL)) AS differs
FROM {alike}
WHERE t.run_id = $run AND may_equal(t.device_id, v.device_id) AND may_equal(t.stream_id, v.stream_id)

--- exact
temp.vendor_alone AS v
JOIN temp.vendor_free AS t ON t.start_ns = v.start_ns AND t.name = v.name
  AND may_equal(t.source_task_id, v.source_task_id)

--- near
temp.vendor_alone AS v
CROSS JOIN (VALUES (-1), (0), (1)) AS step(around)
JOIN temp.vendor_free AS t ON t.start_ns // {near_ns} = v.start_ns // {near_ns} + step.around
  AND abs(TRY(t.start_ns - v.start_ns)) < {near_ns} AND t.name = v.name
  AND may_equal(t.source_task_id, v.source_task_id)

--- same_number
temp.vendor_alone AS v
JOIN temp.vendor_free AS t ON t.start_ns = v.start_ns AND t.source_task_id = v.source_task_id

--- other_number
temp.vendor_alone AS v
JOIN temp.vendor_free AS t ON t.start_ns = v.start_ns AND t.name = v.name AND t.dur_ns = v.dur_ns

--- best
CREATE OR REPLACE TEMP TABLE vendor_best AS
SELECT *, count(*) OVER of_record AS tasks, count(*) OVER of_task AS records,
       row_number() OVER (PARTITION BY vendor_id ORDER BY task_id) AS place,
       row_number() OVER (PARTITION BY task_id ORDER BY vendor_id) AS turn
FROM (
  FROM temp.vendor_pair
  QUALIFY rank() OVER (PARTITION BY vendor_id ORDER BY equal DESC, differs, apart_ns) = 1
    AND rank() OVER (PARTITION BY task_id ORDER BY equal DESC, differs, apart_ns) = 1
)
WINDOW of_record AS (PARTITION BY vendor_id), of_task AS (PARTITION BY task_id)

--- only_in_order
DELETE FROM temp.vendor_best WHERE place <> turn OR (differs AND (tasks > 1 OR records > 1))

--- best_counts
SELECT count(*), count(*) FILTER (tasks > 1 OR records > 1) FROM temp.vendor_best

--- take_best
INSERT INTO temp.vendor_match SELECT vendor_id, task_id, apart_ns FROM temp.vendor_best

--- leave_best
DELETE FROM temp.vendor_pair
WHERE vendor_id IN (SELECT vendor_id FROM temp.vendor_best) OR task_id IN (SELECT task_id FROM temp.vendor_best)

--- rest_is_unclear
INSERT INTO temp.vendor_unclear SELECT DISTINCT vendor_id FROM temp.vendor_pair

--- spanning
INSERT INTO temp.vendor_match
SELECT v.id, t.id, NULL
FROM (FROM temp.vendor_alone AS v WHERE {of_record}) AS v
ASOF JOIN (FROM temp.vendor_free AS t WHERE t.run_id = $run AND {of_task}) AS t
  ON t.name = v.name AND t.stream_id = v.stream_id AND t.source_task_id = v.source_task_id AND {more}
  AND t.start_ns >= v.start_ns
WHERE t.start_ns + t.dur_ns <= v.start_ns + v.dur_ns
QUALIFY row_number() OVER (PARTITION BY t.id ORDER BY v.start_ns DESC, v.id) = 1

--- matched_are_clear
DELETE FROM temp.vendor_unclear WHERE vendor_id IN (SELECT vendor_id FROM temp.vendor_match)

--- counts
SELECT coalesce((SELECT max(apart_ns) FROM temp.vendor_match), 0)::BIGINT,
       (SELECT count(DISTINCT vendor_id) FROM temp.vendor_unclear), (SELECT count(*) FROM temp.vendor_task)

--- attach
INSERT INTO temp.vendor_match
SELECT v.id, t.id, NULL
FROM temp.vendor_task AS v
JOIN task AS t ON t.name = v.name
  AND (t.source_task_id = v.source_task_id
       OR v.source_task_id IS NULL AND t.start_ns BETWEEN v.start_ns - {near_ns} AND v.start_ns + {near_ns})
  AND t.run_id = $run AND may_equal(t.device_id, v.device_id) AND may_equal(t.stream_id, v.stream_id)
QUALIFY count(*) OVER (PARTITION BY v.id) = 1 AND count(*) OVER (PARTITION BY t.id) = 1

--- tracks
-- The track of each stream that gets new tasks.
CREATE OR REPLACE TEMP TABLE vendor_track AS
SELECT w.device_id, w.stream_id, w.name, false AS made, (
  SELECT min(k.track_id)
  FROM track AS k
  WHERE k.run_id = $run AND k.kind = 'stream' AND k.stream_id IS NOT DISTINCT FROM w.stream_id
    AND (w.stream_id IS NOT NULL OR k.name = w.name) AND may_equal(k.device_id, w.device_id)
) AS track_id
FROM (SELECT DISTINCT device_id, stream_id, track_name AS name FROM temp.vendor_alone) AS w

--- number_tracks
UPDATE temp.vendor_track SET made = true, track_id = fresh.track_id
FROM (
  SELECT device_id, name, (SELECT coalesce(max(track_id), 0) FROM track WHERE run_id = $run)
         + row_number() OVER (ORDER BY device_id, stream_id, name) AS track_id
  FROM temp.vendor_track
  WHERE track_id IS NULL
) AS fresh
WHERE vendor_track.device_id IS NOT DISTINCT FROM fresh.device_id AND vendor_track.name = fresh.name

--- add_tracks
INSERT INTO track (run_id, track_id, kind, device_id, stream_id, name)
SELECT $run, track_id, 'stream', device_id, stream_id, name FROM temp.vendor_track WHERE made

--- add_tasks
INSERT INTO task (run_id, id, track_id, device_id, stream_id, source_task_id, name, task_type, core_type, kind,
                  kind_source, start_ns, dur_ns, depth, self_ns)
SELECT $run, v.id, k.track_id, v.device_id, v.stream_id, v.source_task_id, v.name, v.task_type,
       CASE WHEN coalesce(v.kind, 'compute') = 'compute' THEN v.task_type END, v.kind,
       CASE WHEN v.kind IS NULL THEN NULL WHEN v.task_type IS NULL THEN 'name' ELSE 'recorded' END, v.start_ns, v.dur_ns, 0, v.dur_ns
FROM temp.vendor_alone AS v
JOIN temp.vendor_track AS k ON k.stream_id IS NOT DISTINCT FROM v.stream_id
  AND k.device_id IS NOT DISTINCT FROM v.device_id AND k.name = v.track_name

--- match_added
INSERT INTO temp.vendor_match SELECT id, id, NULL FROM temp.vendor_alone

--- ops
CREATE OR REPLACE TEMP TABLE vendor_op AS
SELECT id AS vendor_id, (SELECT coalesce(max(op_id), 0) FROM op WHERE run_id = $run)
       + dense_rank() OVER (ORDER BY {facts}, op_type_source) AS op_id, {facts}, op_type_source
FROM (
  SELECT v.id, {known_facts}, CASE WHEN v.op_type IS NULL THEN o.op_type_source ELSE 'recorded' END AS op_type_source
  FROM temp.vendor_task AS v
  JOIN temp.vendor_match AS m ON m.vendor_id = v.id
  JOIN task AS t ON t.run_id = $run AND t.id = m.task_id
  LEFT JOIN op AS o ON o.run_id = $run AND o.op_id = t.op_id
  WHERE t.kind IS DISTINCT FROM 'collective' AND coalesce(vendor_kind(v.task_type, v.name), 'compute') = 'compute'
)

--- known_ops
-- Reuse ops of earlier files of the recording.
UPDATE temp.vendor_op AS v SET op_id = o.op_id
FROM op AS o
WHERE o.run_id = $run AND o.fusion_id IS NULL AND o.op_type_source IS NOT DISTINCT FROM v.op_type_source
  AND {same_facts}

--- add_ops
INSERT INTO op (run_id, op_id, {facts}, op_type_source)
SELECT DISTINCT $run, op_id, {facts}, op_type_source
FROM temp.vendor_op AS v
WHERE NOT EXISTS (FROM op AS o WHERE o.run_id = $run AND o.op_id = v.op_id)

--- ops_of_tasks
UPDATE task SET op_id = v.op_id
FROM temp.vendor_match AS m
JOIN temp.vendor_op AS v USING (vendor_id)
WHERE task.run_id = $run AND task.id = m.task_id

--- unused_ops
DELETE FROM op
WHERE run_id = $run AND fusion_id IS NULL
  AND NOT EXISTS (FROM task AS t WHERE t.run_id = $run AND t.op_id = op.op_id)
  AND NOT EXISTS (FROM api AS a WHERE a.run_id = $run AND a.op_id = op.op_id)
  AND NOT EXISTS (FROM range AS r WHERE r.run_id = $run AND r.op_id = op.op_id)
  AND NOT EXISTS (FROM memory AS b WHERE b.run_id = $run AND b.op_id = op.op_id)

--- fill
UPDATE task SET {kinds}{filled}, step_id = coalesce(v.step_id, task.step_id),
  args = CASE
    WHEN v.args IS NULL THEN task.args::VARCHAR
    WHEN coalesce(task.args::VARCHAR, '{{}}') = '{{}}' THEN '{{' || to_json($key)::VARCHAR || ':' || v.args || '}}'
    ELSE left(task.args::VARCHAR, length(task.args::VARCHAR) - 1) || ',' || to_json($key)::VARCHAR || ':' || v.args
      || '}}'
  END
FROM temp.vendor_match AS m
JOIN temp.vendor_task AS v ON v.id = m.vendor_id
WHERE task.run_id = $run AND task.id = m.task_id

--- kinds
-- A timeline may use AI_CORE for every core, and its rules recognise kernels by their names.
kind = CASE WHEN task.kind = 'collective' OR v.task_type IS NULL THEN task.kind
            ELSE vendor_kind(v.task_type, v.name) END,
kind_source = CASE WHEN task.kind = 'collective' OR v.task_type IS NULL THEN task.kind_source
                   WHEN vendor_kind(v.task_type, v.name) IS NOT NULL THEN 'recorded' END,
task_type = coalesce(v.task_type, task.task_type),
core_type = CASE WHEN task.kind IS DISTINCT FROM 'collective'
                   AND coalesce(vendor_kind(v.task_type, v.name), 'compute') = 'compute'
                 THEN coalesce(v.task_type, task.core_type) ELSE task.core_type END,

--- add_steps
INSERT INTO step (run_id, step_id, device_id, iteration, step_source, start_ns, end_ns)
SELECT $run, v.step_id, t.device_id, v.step_id, 'csv', min(t.start_ns), max(t.start_ns + coalesce(t.dur_ns, 0))
FROM temp.vendor_task AS v
JOIN temp.vendor_match AS m ON m.vendor_id = v.id
JOIN task AS t ON t.run_id = $run AND t.id = m.task_id
WHERE v.step_id IS NOT NULL
  AND NOT EXISTS (
    FROM step AS s WHERE s.run_id = $run AND s.step_id = v.step_id AND may_equal(s.device_id, t.device_id)
  )
GROUP BY v.step_id, t.device_id

--- add_counters
INSERT INTO task_pmu (run_id, id, metric_group, vendor_values, {counters})
SELECT $run, m.task_id, $grp, v.vendor_values, {record_counters}
FROM temp.vendor_match AS m
JOIN temp.vendor_task AS v ON v.id = m.vendor_id
WHERE (coalesce({record_counters}) IS NOT NULL OR v.vendor_values IS NOT NULL)
  AND NOT EXISTS (FROM task_pmu AS p WHERE p.run_id = $run AND p.id = m.task_id)
