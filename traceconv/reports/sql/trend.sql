-- title = "Step time of run after run"
-- doc = "Did the program become slower or faster from run to run, when, and in what? One row per run, in the order of recording: the median step, and its change since the run before it in its series, i.e. with the same group label, rank, format and model, measured alike. For a run without steps, it is the time from its first to its last task. Give the runs of a program a group label of their own: ingest --group, runs label --group. To see which ops changed: compare."
-- needs = ["run"]
-- when_empty = "Ingest captures or traces: traceconv ingest PATH."
-- compares_runs = true
-- order = ["group_label", "rank", "source_format", "model_name", "measured", "place"]
-- measure = "time_ns"
-- shown = ["rank", "label", "recorded", "time_ns", "change_percent", "changed_in", "is_shifted", "since_first_percent", "group_label"]
-- selects = { run = true, device = true, steps = true, time = ["Only steps that start at this time or later; of runs without steps, the time from here on; NULL: no limit.", "Only steps that start before this time; of runs without steps, the time before this; NULL: no limit."] }
-- [columns]
-- group_label = { type = "VARCHAR", unit = "text", doc = "Label of the group of runs (run.group_label); NULL if none." }
-- rank = { type = "BIGINT", unit = "index", doc = "Rank of the run in its job; NULL if unknown." }
-- source_format = { type = "VARCHAR", unit = "text", doc = "Format of the source." }
-- model_name = { type = "VARCHAR", unit = "text", doc = "Model; NULL if there is none or more than one." }
-- label = { type = "VARCHAR", unit = "text", doc = "Label of the run." }
-- recorded = { type = "VARCHAR", unit = "text", doc = "When the run starts, in UTC; NULL if its times don't count from a known one. Such runs come last, in the order of their numbers." }
-- measured = { type = "VARCHAR", unit = "enum", doc = "What time_ns is: step, the median step; tasks, the time from the first to the last task, the median of devices; run, from the first to the last event of a run without tasks." }
-- step_count = { type = "BIGINT", unit = "count", doc = "Steps with a known duration." }
-- time_ns = { type = "BIGINT", unit = "ns", doc = "The time that is measured: the shortest duration that at least half of the steps don't exceed; NULL if none of the steps or tasks is selected." }
-- p25_ns = { type = "BIGINT", unit = "ns", doc = "The same for a quarter of the steps; NULL without steps." }
-- p75_ns = { type = "BIGINT", unit = "ns", doc = "The same for three quarters; NULL without steps." }
-- place = { type = "BIGINT", unit = "index", doc = "Place of the run in its series, from 1." }
-- previous_run_id = { type = "BIGINT", unit = "id", doc = "The run before it in its series; NULL for the first." }
-- change_percent = { type = "DOUBLE", unit = "percent", doc = "100 (time_ns / that of the run before − 1); NULL for the first run of a series." }
-- since_first_percent = { type = "DOUBLE", unit = "percent", doc = "The same against the first run of the series." }
-- is_shifted = { type = "BOOLEAN", unit = "flag", doc = "Whether the change exceeds how much steps vary, a heuristic: p25_ns to p75_ns of the two runs don't overlap. NULL for the first run and without steps. For intervals of confidence: compare." }
-- changed_in = { type = "VARCHAR", unit = "enum", doc = "Which of the five parts changed most in the direction of the change: compute, exposed_collective, exposed_copy, other or idle; NULL without a change, if is_shifted is false, and without tasks." }
-- compute_ns = { type = "BIGINT", unit = "ns", doc = "Time of a step in which at least one task of kind compute ran, the median over steps and devices, as of all five parts, so that they needn't add up; NULL without tasks." }
-- exposed_collective_ns = { type = "BIGINT", unit = "ns", doc = "Time during which a collective ran without any compute task." }
-- exposed_copy_ns = { type = "BIGINT", unit = "ns", doc = "Time during which a copy ran without any compute task or collective." }
-- other_ns = { type = "BIGINT", unit = "ns", doc = "Time during which only tasks of unknown kind ran." }
-- idle_ns = { type = "BIGINT", unit = "ns", doc = "Time during which no task ran." }
-- peak_used_bytes = { type = "BIGINT", unit = "byte", doc = "Peak of memory in blocks, of the whole run, on the device with the highest one; without the host's; NULL if unknown." }
WITH asked AS (
  SELECT r.run_id, r.group_label, r.rank, r.source_format, r.model_name, r.label,
         TRY(r.start_ns + r.epoch_offset_ns) AS recorded_ns,
         CASE WHEN r.start_ns <= r.end_ns AND coalesce(from_ns < r.end_ns, true) AND coalesce(to_ns > r.start_ns, true)
              THEN TRY(least(r.end_ns, to_ns) - greatest(r.start_ns, from_ns)) END AS span_ns
  FROM run AS r
  WHERE {{selected(r.run_id)}}
), step_time AS (
  -- A run of whose steps none is chosen is still one with steps.
  SELECT s.run_id, count(s.chosen_ns) AS steps, quantile_disc(s.chosen_ns, [0.25, 0.5, 0.75]) AS quarters
  FROM (
    SELECT run_id, TRY(end_ns - coalesce(start_ns, fp_start_ns)) AS dur_ns,
           CASE WHEN {{selected(step_id, coalesce(start_ns, fp_start_ns))}}
                THEN TRY(end_ns - coalesce(start_ns, fp_start_ns)) END AS chosen_ns
    FROM step
    WHERE {{selected(run_id)}} AND (device IS NULL OR device_id IS NULL OR device_id = device)
  ) AS s
  WHERE s.dur_ns IS NOT NULL
  GROUP BY s.run_id
), device_step AS (
{{step_breakdown}}
), device AS (
{{breakdown}}
), part AS (
  SELECT b.run_id, b.compute_ns, b.exposed_collective_ns, b.exposed_copy_ns, b.other_ns, b.idle_ns, NULL::BIGINT AS window_ns
  FROM device_step AS b
  JOIN step_time AS s ON s.run_id = b.run_id
  UNION ALL
  SELECT b.run_id, b.compute_ns, b.exposed_collective_ns, b.exposed_copy_ns, b.other_ns, b.idle_ns, b.window_ns
  FROM device AS b
  LEFT JOIN step_time AS s ON s.run_id = b.run_id
  WHERE s.run_id IS NULL
), middle AS (
  SELECT p.run_id, quantile_disc(p.compute_ns, 0.5) AS compute, quantile_disc(p.exposed_collective_ns, 0.5) AS collective,
         quantile_disc(p.exposed_copy_ns, 0.5) AS copies, quantile_disc(p.other_ns, 0.5) AS other,
         quantile_disc(p.idle_ns, 0.5) AS idle, quantile_disc(p.window_ns, 0.5) AS window_ns
  FROM part AS p
  GROUP BY p.run_id
), peak AS (
  SELECT i.run_id, max(greatest(i.peak_used_bytes, i.used_bytes)) AS used
  FROM memory_interval AS i
  WHERE i.level = 'device' AND coalesce(i.device_id >= 0, true) AND {{selected(i.run_id, i.device_id)}}
  GROUP BY i.run_id
), busy AS (
  SELECT DISTINCT t.run_id FROM device_total AS t WHERE {{selected(t.run_id)}}
), measured AS (
  SELECT a.*, CASE WHEN s.run_id IS NOT NULL THEN 'step' WHEN m.window_ns IS NOT NULL OR b.run_id IS NOT NULL THEN 'tasks'
                   ELSE 'run' END AS measured,
         coalesce(s.steps, 0) AS steps,
         CASE WHEN s.run_id IS NOT NULL THEN s.quarters[2] WHEN b.run_id IS NULL THEN coalesce(m.window_ns, a.span_ns)
              ELSE m.window_ns END AS time_ns,
         s.quarters[1] AS p25, s.quarters[3] AS p75,
         m.compute, m.collective, m.copies, m.other, m.idle, p.used
  FROM asked AS a
  LEFT JOIN step_time AS s ON s.run_id = a.run_id
  LEFT JOIN middle AS m ON m.run_id = a.run_id
  LEFT JOIN peak AS p ON p.run_id = a.run_id
  LEFT JOIN busy AS b ON b.run_id = a.run_id
), compared AS (
  SELECT *, lag(run_id) OVER series AS previous_id, lag(time_ns) OVER series AS previous,
         first_value(time_ns) OVER series AS first_time, row_number() OVER series AS place,
         (p25 > lag(p75) OVER series) OR (p75 < lag(p25) OVER series) AS is_shifted,
         CASE WHEN time_ns > lag(time_ns) OVER series THEN 1 WHEN time_ns < lag(time_ns) OVER series THEN -1 ELSE 0 END
           AS direction,
         compute - lag(compute) OVER series AS compute_change, collective - lag(collective) OVER series AS collective_change,
         copies - lag(copies) OVER series AS copy_change, other - lag(other) OVER series AS other_change,
         idle - lag(idle) OVER series AS idle_change
  FROM measured
  WINDOW series AS (
    PARTITION BY group_label, rank, source_format, model_name, measured
    ORDER BY recorded_ns IS NULL, recorded_ns, run_id
  )
), directed AS (
  SELECT *, greatest(direction * compute_change, direction * collective_change, direction * copy_change,
                     direction * other_change, direction * idle_change) AS most
  FROM compared
)
SELECT run_id, group_label, rank, source_format, model_name, label,
       strftime(make_timestamp((recorded_ns // 1000)::BIGINT), '%Y-%m-%d %H:%M') AS recorded, measured, steps AS step_count,
       time_ns, p25 AS p25_ns, p75 AS p75_ns, place, previous_id AS previous_run_id,
       100 * (time_ns::HUGEINT - previous)::DOUBLE / nullif(previous, 0) AS change_percent,
       CASE WHEN place > 1 THEN 100 * (time_ns::HUGEINT - first_time)::DOUBLE / nullif(first_time, 0) END
         AS since_first_percent,
       is_shifted,
       CASE WHEN direction = 0 OR most <= 0 OR NOT is_shifted THEN NULL
            WHEN direction * compute_change = most THEN 'compute'
            WHEN direction * collective_change = most THEN 'exposed_collective'
            WHEN direction * copy_change = most THEN 'exposed_copy'
            WHEN direction * idle_change = most THEN 'idle'
            WHEN direction * other_change = most THEN 'other' END AS changed_in,
       compute AS compute_ns, collective AS exposed_collective_ns, copies AS exposed_copy_ns, other AS other_ns,
       idle AS idle_ns, used AS peak_used_bytes
FROM directed
ORDER BY group_label, rank, source_format, model_name, measured, place
