-- title = "Summary of a run"
-- doc = "What happened in a run, on one page? Its span and steps, where the time of each device goes, why it is idle, the kernels and operators that take most of it, the peaks of memory, and what the import lost. For a run without tasks, it has ranges instead of operators."
-- needs = ["run"]
-- when_empty = "Ingest a capture or trace: traceconv ingest PATH."
-- order = ["run_id", "position"]
-- measure = "time_ns"
-- shown = ["section", "item", "time_ns", "percent", "count", "size_bytes"]
-- selects = { run = true }
-- [columns]
-- position = { type = "BIGINT", unit = "index", doc = "Place of the row in the summary, from 1." }
-- section = { type = "VARCHAR", unit = "text", doc = "run, steps, device and its number, idle (causes of gaps of 10 µs or more), gap (the longest three), phase (of a training: device time of what was launched in it), category (of kernels), kernel, host op (an operator's own time on the host), range (of a run without tasks: also time outside of operators), memory or losses." }
-- item = { type = "VARCHAR", unit = "text", doc = "What the row is about; names are those of idle_causes.cause, idle_gaps.host_name, kernels.label without a number, range.name and import_log.code." }
-- time_ns = { type = "BIGINT", unit = "ns", doc = "Time: of causes, kernels and categories their total, of operators and ranges their self time; of a peak of memory, the time since the start of the run; NULL if not applicable or unknown." }
-- percent = { type = "DOUBLE", unit = "percent", doc = "Share of time_ns: of the window of the device, or of all its gaps, or of all kernels, operators or ranges of the run; NULL if not applicable." }
-- count = { type = "BIGINT", unit = "count", doc = "Number of devices, tasks, steps, gaps, executions, calls, ranges or lost events; NULL if not applicable or unknown." }
-- size_bytes = { type = "BIGINT", unit = "byte", doc = "Peak of memory, or bytes lost; NULL if not applicable or unknown." }
-- note = { type = "VARCHAR", unit = "text", doc = "Label of the run, device of a gap, category of a kernel, op at the peak, or severity of a loss; NULL if none." }
WITH RECURSIVE asked AS (
  SELECT r.run_id, r.label, r.start_ns, TRY(r.end_ns - r.start_ns) AS span_ns, r.complete
  FROM run AS r
  WHERE {{selected(r.run_id)}}
), task_count AS (
  SELECT t.run_id, count(*) AS tasks, count(DISTINCT t.device_id) AS devices
  FROM task AS t
  WHERE {{selected(t.run_id)}} AND t.kind IS DISTINCT FROM 'sync'
  GROUP BY t.run_id
), step_time AS (
  SELECT s.run_id, s.step_id, TRY(s.end_ns - coalesce(s.start_ns, s.fp_start_ns)) AS dur_ns
  FROM step AS s
  WHERE {{selected(s.run_id)}}
), step_sum AS (
  SELECT run_id, count(DISTINCT step_id) AS steps, sum(dur_ns) AS total, count(dur_ns) AS ended,
         quantile_disc(dur_ns, [0.5, 0.95]) AS percentiles, max(dur_ns) AS longest,
         max_by(step_id, { 'dur_ns': dur_ns, 'order': -step_id }) FILTER (WHERE dur_ns IS NOT NULL) AS longest_id
  FROM step_time
  GROUP BY run_id
), kernel AS (
  -- Kernels with the same label are one row.
  SELECT run_id, coalesce(unnumbered(label), '-') AS label, coalesce(category, 'unknown') AS category, sum(total_ns) AS total, sum(count) AS executions
  FROM kernels(run := run)
  GROUP BY ALL
), kernel_share AS (
  SELECT *, sum(total) OVER (PARTITION BY run_id) AS run_total,
         row_number() OVER (PARTITION BY run_id ORDER BY total DESC, label, category) AS rank
  FROM kernel
), category AS (
  SELECT run_id, category, sum(total) AS total, sum(executions) AS executions, max(run_total) AS run_total,
         row_number() OVER (PARTITION BY run_id ORDER BY sum(total) DESC, category) AS rank
  FROM kernel_share
  GROUP BY run_id, category
), path AS (
  SELECT p.run_id, p.path_id, range_phase(p.name, p.kind) AS phase
  FROM range_path AS p
  WHERE p.parent_path_id IS NULL AND {{selected(p.run_id)}}
  UNION ALL
  SELECT p.run_id, p.path_id, coalesce(range_phase(p.name, p.kind), u.phase)
  FROM path AS u
  JOIN range_path AS p ON p.run_id = u.run_id AND p.parent_path_id = u.path_id
), phase AS (
  SELECT t.run_id, coalesce(p.phase, CASE WHEN p.path_id IS NOT NULL THEN 'forward' END) AS phase, sum(t.task_ns) AS total,
         sum(t.task_count) AS tasks, sum(sum(t.task_ns)) OVER (PARTITION BY t.run_id) AS run_total
  FROM range_path_time AS t
  LEFT JOIN path AS p ON p.run_id = t.run_id AND p.path_id = t.path_id
  WHERE {{selected(t.run_id)}}
  GROUP BY t.run_id, 2
), host_only AS (
  SELECT run_id FROM asked
  EXCEPT SELECT run_id FROM task_count
), host AS (
  SELECT 'host op' AS section, o.run_id, o.name, sum(o.self_ns) AS total, sum(o.count) AS calls
  FROM range_statistic(run := run) AS o
  WHERE o.kind = 'host_op' AND o.run_id NOT IN (FROM host_only)
  GROUP BY o.run_id, o.name
  UNION ALL
  SELECT 'range', r.run_id, coalesce(r.name, '-'), sum(r.self_ns), sum(r.count)
  FROM range_statistic(run := run) AS r
  WHERE r.run_id IN (FROM host_only)
  GROUP BY r.run_id, r.name
), host_share AS (
  SELECT *, sum(total) OVER (PARTITION BY run_id) AS run_total,
         row_number() OVER (PARTITION BY run_id ORDER BY total DESC, name) AS rank
  FROM host
), peak AS (
  SELECT p.*, c.start_ns
  FROM memory_peak(run := run) AS p
  JOIN asked AS c ON c.run_id = p.run_id
  WHERE p.level = 'device'
), loss AS (
  SELECT l.run_id, l.code, l.severity, sum(l.event_count) AS events, sum(l.byte_count) AS bytes
  FROM import_log AS l
  WHERE {{selected(l.run_id)}} AND l.severity <> 'info'
  GROUP BY l.run_id, l.code, l.severity
), share AS MATERIALIZED (
  FROM breakdown(run := run)
), gap AS MATERIALIZED (
  SELECT *, row_number() OVER (PARTITION BY run_id ORDER BY gap_ns DESC, device_id, start_ns) AS rank
  FROM idle_gaps(run := run)
), cause AS (
  -- As in idle_causes.
  SELECT run_id, device_id, cause, count(*) AS gap_count, sum(gap_ns) AS idle_ns,
         100 * sum(gap_ns)::DOUBLE / nullif(sum(sum(gap_ns)) OVER (PARTITION BY run_id, device_id), 0) AS percent
  FROM gap
  GROUP BY run_id, device_id, cause
), line AS (
  SELECT run_id, 1 AS part, 'run' AS section, 1 AS place, NULL::BIGINT AS device_id, 'span' AS item, span_ns::HUGEINT AS time_ns, NULL::DOUBLE AS percent, NULL::HUGEINT AS count,
         NULL::HUGEINT AS size_bytes, label AS note
  FROM asked
  UNION ALL
  SELECT run_id, 1, 'run', 2, NULL, 'devices', NULL, NULL, devices, NULL, NULL
  FROM task_count
  UNION ALL
  SELECT run_id, 1, 'run', 3, NULL, 'tasks', NULL, NULL, tasks, NULL, NULL
  FROM task_count
  UNION ALL
  SELECT run_id, 1, 'run', 4, NULL, 'tasks without a start', NULL, NULL, sum(event_count), NULL, 'durations only: without timestamps'
  FROM import_log
  WHERE code = 'no_start' AND {{selected(run_id)}}
  GROUP BY run_id
  UNION ALL
  SELECT s.run_id, 2, 'steps', v.place, NULL, v.item, v.time_ns, NULL, CASE WHEN v.place = 1 THEN s.steps END, NULL, NULL
  FROM step_sum AS s,
       LATERAL (VALUES (1, 'mean', (2 * s.total + s.ended) // nullif(2 * s.ended, 0)), (2, 'p50', s.percentiles[1]::HUGEINT),
                       (3, 'p95', s.percentiles[2]::HUGEINT), (4, coalesce('longest: step ' || s.longest_id, 'longest'), s.longest::HUGEINT)) AS v(place, item, time_ns)
  UNION ALL
  SELECT b.run_id, 3, coalesce('device ' || b.device_id, 'device -'), v.place, b.device_id, v.item, v.time_ns, 100 * v.time_ns::DOUBLE / nullif(b.window_ns, 0), NULL, NULL, NULL
  FROM share AS b,
       LATERAL (VALUES (1, 'compute', b.compute_ns), (2, 'exposed communication', b.exposed_collective_ns),
                       (3, 'exposed copies', b.exposed_copy_ns), (4, 'other', b.other_ns), (5, 'idle', b.idle_ns)) AS v(place, item, time_ns)
  WHERE v.item <> 'other' OR v.time_ns > 0
  UNION ALL
  SELECT g.run_id, 4, 'idle', row_number() OVER (PARTITION BY g.run_id, g.device_id ORDER BY g.idle_ns DESC, g.cause), g.device_id,
         coalesce(g.cause, 'unknown') || coalesce(' on device ' || g.device_id, ''), g.idle_ns, g.percent, g.gap_count, NULL, NULL
  FROM cause AS g
  UNION ALL
  SELECT run_id, 5, 'gap', rank, NULL, coalesce(cause, 'unknown') || coalesce(': ' || host_name, ''), gap_ns, NULL, NULL, NULL, 'device ' || device_id
  FROM gap
  WHERE rank <= 3
  UNION ALL
  SELECT p.run_id, 6, 'phase', CASE p.phase WHEN 'forward' THEN 1 WHEN 'backward' THEN 2 ELSE 3 END, NULL, p.phase, p.total,
         100 * p.total::DOUBLE / nullif(p.run_total, 0), p.tasks, NULL, NULL
  FROM phase AS p
  WHERE p.tasks > 0 AND p.phase IS NOT NULL AND p.run_id IN (SELECT b.run_id FROM phase AS b WHERE b.phase = 'backward' AND b.tasks > 0)
  UNION ALL
  SELECT run_id, 7, 'category', rank, NULL, category, total, 100 * total::DOUBLE / nullif(run_total, 0), executions, NULL, NULL
  FROM category
  WHERE rank <= 5
  UNION ALL
  SELECT run_id, 8, 'kernel', rank, NULL, label, total, 100 * total::DOUBLE / nullif(run_total, 0), executions, NULL, category
  FROM kernel_share
  WHERE rank <= 5
  UNION ALL
  SELECT run_id, 9, section, rank, NULL, name, total, 100 * total::DOUBLE / nullif(run_total, 0), calls, NULL, NULL
  FROM host_share
  WHERE rank <= 5
  UNION ALL
  SELECT p.run_id, 10, 'memory', v.place, p.device_id, v.item || CASE WHEN p.device_id >= 0 THEN ' on device ' || p.device_id WHEN p.device_id < 0 THEN ' on the host' ELSE '' END, TRY(v.peak_ns - p.start_ns), NULL, NULL, v.bytes,
         CASE WHEN v.place = 1 THEN p.peak_op END
  FROM peak AS p,
       LATERAL (VALUES (1, 'peak used', p.peak_used_bytes, p.peak_ns), (2, 'peak reserved', p.peak_reserved_bytes, p.peak_reserved_ns))
         AS v(place, item, bytes, peak_ns)
  WHERE v.bytes IS NOT NULL
  UNION ALL
  SELECT run_id, 11, 'losses', 1, NULL, code, NULL, NULL, events, bytes, severity
  FROM loss
  UNION ALL
  SELECT run_id, 11, 'losses', 2, NULL, 'incomplete', NULL, NULL, NULL, NULL, 'the recording did not finish, or was not read completely'
  FROM asked
  WHERE NOT complete
  UNION ALL
  SELECT c.run_id, 11, 'losses', 3, NULL, 'none', NULL, NULL, 0, NULL, NULL
  FROM asked AS c
  WHERE c.complete IS DISTINCT FROM false AND c.run_id NOT IN (SELECT run_id FROM loss)
)
SELECT run_id, row_number() OVER (PARTITION BY run_id ORDER BY part, device_id, place, item, note) AS position, section, item,
       TRY_CAST(time_ns AS BIGINT) AS time_ns, percent, TRY_CAST(count AS BIGINT) AS count,
       TRY_CAST(size_bytes AS BIGINT) AS size_bytes, note
FROM line
ORDER BY run_id, position
