-- title = "What the profiler lost or distorted"
-- doc = "How far can the numbers of other reports be off? One row per finding; none if nothing was found. Rows of place start, middle and end are parts of the run in which launches or tasks are missing: before the first complete one, after the last, and between."
-- needs = ["task"]
-- when_empty = "Without findings, no launches or tasks are missing and no times contradict each other."
-- order = ["run_id", "finding", "place"]
-- measure = "count"
-- shown = ["finding", "place", "count", "total_count", "affected_ns", "affected_percent", "reports"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; NULL: all runs." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run of the row." }
-- finding = { type = "VARCHAR", unit = "enum", doc = "lost_tasks: calls that launch kernels without a task (of names of which others have one); lost_copies: the same for copies; lost_launches: tasks whose launching call is missing, in runs that have such calls, or flows from them; unclear_launches: tasks whose launching call is unknown, because several calls of a process, or calls of several processes in one trace, have the same correlation IDs, or without those another number of calls has the External id; unlinked_launches: tasks to which several flows lead from calls, and whose launch is unknown, because one of the two has no correlation ID or they have different ones; shared_streams: tasks of streams that several processes of one trace have with equal numbers, as in traces of several ranks merged into one file: they count as one stream and one device; lost_calls: holes in the correlation IDs of the calls, or of the tasks of rocprofv3 without calls, in runs of one process: of any width if there is at most one hole per 16 IDs, otherwise at least 64 times as wide as their mean distance, from 1,024 calls on (a heuristic); lost_operators: IDs missing between operators of one thread in PyTorch traces of up to 200,000 operators, if there is at most one hole per 16 IDs (a heuristic); lost_functions: operators in parts of a thread's time without Python functions that have a tenth of its operators or more, if it has such functions (a heuristic); lost_flows: tasks with a launch to which no flow leads, in PyTorch traces with such flows; broken_flows: flows from or to no event, or without a start or end (except those of PyTorch's profiler, which writes ends alone); unpaired_events: begins without an end and ends without a begin; cut_file: PyTorch traces without the events that the profiler writes last; overlapping_tasks: tasks that start before the end of the previous one on their stream, and are not part of it as tasks inside it that weren't launched are; duplicate_tasks: copies of a task with its stream, start, duration and name; unfinished_tasks: tasks without an end; early_tasks: tasks that start before their launch; late_tasks: tasks that end after the last synchronisation of the device, which waited for them, in runs with launches on one device; reordered_tasks: tasks that start after one that was launched later on their stream; uncertain_delays: launch delays up to the clock error; unknown_collectives: tasks of another kind that are named like collectives, or whose first one of the name has the args of a collective (a heuristic); cut_names: tasks whose names all have the longest length, if this is one that profilers cut at and several names have it that differ in more than numbers (a heuristic); cut_steps: steps without a start or end, and, with a place, steps with less than 90 % of the usual number of tasks and ranges, parts of steps before the first or after the last one, and missing numbers of steps between which something ran, in runs in which at least half of the steps have the same number (a heuristic); unmatched_replays: tasks of graph replays whose operator and module are unknown; aligned_replays: those for which they are known by aligning the replay with a reference (a heuristic, graph_replay); silent_steps: steps in whose first (start) or last quarter (end), or more, nothing starts and no task runs, but not in most steps, in runs with few or unequal steps (a heuristic); silent_end: no event starts and no task runs in the last tenth of the run or more (a heuristic); import_losses: events that ingest could not keep." }
-- place = { type = "VARCHAR", unit = "enum", doc = "start, middle or end, by the times of complete launches, functions or steps; NULL for other findings, and if all launches are lost." }
-- count = { type = "BIGINT", unit = "count", doc = "Calls, tasks, steps, holes, IDs, flows or events concerned." }
-- total_count = { type = "BIGINT", unit = "count", doc = "Those examined; NULL if unknown." }
-- affected_ns = { type = "BIGINT", unit = "ns", doc = "lost_tasks, lost_copies, lost_launches: time from the first to the last of consecutive ones; overlapping_tasks: sum of the overlaps; duplicate_tasks, shared_streams, unknown_collectives, unmatched_replays, aligned_replays: sum of the durations; early_tasks, late_tasks: sum of the times by which they are early or late; lost_calls, lost_operators: time between those around the holes; lost_functions, silent_steps, silent_end: time of these parts; uncertain_delays: sum of the delays; NULL for others." }
-- affected_percent = { type = "DOUBLE", unit = "percent", doc = "affected_ns in percent of the run's duration; may exceed 100 with several streams; NULL if unknown." }
-- reports = { type = "VARCHAR", unit = "text", doc = "Reports whose numbers it affects." }
WITH called_word AS MATERIALIZED (
  -- A bit for each of 64 consecutive IDs: joining single IDs takes twenty times as long.
  SELECT a.run_id, a.name, a.correlation_id >> 6 AS word, bit_or(1::UBIGINT << (a.correlation_id & 63)::UBIGINT) AS bits,
         max(a.start_ns) AS last_ns
  FROM api AS a
  WHERE a.correlation_id IS NOT NULL AND a.start_ns IS NOT NULL AND (run IS NULL OR a.run_id = run)
  GROUP BY ALL
), with_task AS MATERIALIZED (
  SELECT t.run_id, t.correlation_id >> 6 AS word, bit_or(1::UBIGINT << (t.correlation_id & 63)::UBIGINT) AS bits
  FROM task AS t
  WHERE t.correlation_id IS NOT NULL AND (run IS NULL OR t.run_id = run)
  GROUP BY ALL
), call_name AS (
  -- any_value, because conditions on the name itself would be tested for each word.
  SELECT name, CASE WHEN regexp_matches(any_value(name), '(?i)hostfunc') THEN NULL
                    WHEN regexp_matches(any_value(name), '(?i)memcpy') THEN 'lost_copies'
                    WHEN regexp_matches(any_value(name), '(?i)launch') THEN 'lost_tasks' END AS finding,
         regexp_matches(any_value(name), '(?i)device_?synchronize|synchronize_?device|ctxsynchronize') AS waits
  FROM called_word
  GROUP BY name
), called AS MATERIALIZED (
  SELECT c.run_id, m.finding, c.name, c.word, c.bits & ~coalesce(t.bits, 0::UBIGINT) AS lost,
         c.bits & coalesce(t.bits, 0::UBIGINT) AS complete
  FROM called_word AS c
  JOIN call_name AS m ON m.name = c.name AND m.finding IS NOT NULL
  LEFT JOIN with_task AS t ON t.run_id = c.run_id AND t.word = c.word
), launcher AS MATERIALIZED (
  -- Calls of other layers have the names of launches too, but no tasks.
  SELECT run_id, finding, name, bool_or(bool_or(lost > 0)) OVER (PARTITION BY run_id, finding) AS is_lost
  FROM called
  GROUP BY run_id, finding, name
  HAVING bool_or(complete > 0)
), run_flow AS MATERIALIZED (
  SELECT f.run_id, count(*) AS flows, count(CASE WHEN f.kind = 'launch' THEN f.dst_id END) AS launches,
         count(CASE WHEN f.src_id IS NULL OR f.dst_id IS NULL THEN 1 END) AS broken
  FROM flow AS f
  WHERE run IS NULL OR f.run_id = run
  GROUP BY f.run_id
), unlaunched AS MATERIALIZED (
  SELECT t.run_id, t.start_ns, coalesce(TRY(t.start_ns + t.dur_ns), t.start_ns) AS end_ns
  FROM task AS t
  WHERE t.correlation_id IS NOT NULL AND t.api_id IS NULL AND t.start_ns IS NOT NULL
    AND t.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR t.run_id = run)
    -- Tasks with several calls are unclear, as are those of runs whose calls have no IDs.
    AND NOT EXISTS (
      FROM called_word AS c
      WHERE c.run_id = t.run_id AND c.word = t.correlation_id >> 6
        AND c.bits & (1::UBIGINT << (t.correlation_id & 63)::UBIGINT) > 0
    )
    AND (t.run_id IN (SELECT run_id FROM called_word)
         OR t.run_id NOT IN (SELECT run_id FROM import_log WHERE code = 'unclear_launch'))
), item AS (
  -- Complete launches matter in runs with others only.
  SELECT a.run_id, l.finding, a.start_ns, coalesce(TRY(a.start_ns + a.dur_ns), a.start_ns) AS end_ns,
         n.complete & (1::UBIGINT << (a.correlation_id & 63)::UBIGINT) > 0 AS complete
  FROM api AS a
  JOIN launcher AS l ON l.run_id = a.run_id AND l.name = a.name AND l.is_lost
  JOIN called AS n ON n.run_id = a.run_id AND n.name = a.name AND n.word = a.correlation_id >> 6
  WHERE a.start_ns IS NOT NULL
  UNION ALL
  SELECT run_id, 'lost_launches', start_ns, end_ns, false FROM unlaunched
  UNION ALL
  SELECT w.run_id, 'lost_launches', w.start_ns, w.start_ns, true
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run)
    AND w.api_id IS NOT NULL AND w.start_ns IS NOT NULL AND w.run_id IN (SELECT u.run_id FROM unlaunched AS u)
), placed AS (
  SELECT run_id, finding, start_ns, end_ns, complete,
         -- With FILTER instead of CASE, the windows would take quadratic time.
         count(CASE WHEN complete THEN 1 END) OVER (PARTITION BY run_id, finding ORDER BY start_ns) AS before,
         count(CASE WHEN complete THEN 1 END) OVER (PARTITION BY run_id, finding) AS completes,
         count(*) OVER (PARTITION BY run_id, finding) AS items
  FROM item
), unlinked AS (
  SELECT w.run_id, count(DISTINCT w.id) AS tasks
  FROM task AS w
  JOIN flow AS f ON f.run_id = w.run_id AND f.dst_id = w.id AND f.kind = 'launch'
  JOIN api AS a ON a.run_id = f.run_id AND a.id = f.src_id
  WHERE w.submit_ns IS NULL AND w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run)
    AND (w.correlation_id = a.correlation_id) IS NOT TRUE
  GROUP BY w.run_id
), gap AS (
  SELECT run_id, finding, before, any_value(items) AS items, count(*) AS count,
         CASE WHEN any_value(completes) = 0 THEN NULL WHEN before = 0 THEN 'start'
              WHEN before = any_value(completes) THEN 'end' ELSE 'middle' END AS place,
         max(end_ns)::HUGEINT - min(start_ns)::HUGEINT AS affected
  FROM placed
  -- A run without complete launches that has flows from calls lost all calls.
  WHERE NOT complete AND (completes > 0 OR run_id IN (
    SELECT run_id FROM run_flow WHERE launches > 0 AND run_id NOT IN (SELECT run_id FROM unlinked)
  ))
  GROUP BY run_id, finding, before
), tested AS MATERIALIZED (
  SELECT w.run_id, count(*) AS tasks, count(*) - count(w.dur_ns) AS unfinished, count(w.submit_ns) AS delays,
         count(w.api_id) AS launched,
         max(w.start_ns + coalesce(w.dur_ns, 0)) AS until_ns
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run)
  GROUP BY w.run_id
), shared AS (
  SELECT k.run_id, k.device_id, k.stream_id
  FROM track AS k
  WHERE k.kind = 'stream' AND k.device_id IS NOT NULL AND k.stream_id IS NOT NULL AND (run IS NULL OR k.run_id = run)
  GROUP BY k.run_id, k.device_id, k.stream_id
  HAVING count(DISTINCT k.process_id) > 1
), early AS (
  SELECT w.run_id, count(*) AS tasks, sum(w.submit_ns::HUGEINT - w.start_ns) AS earlier
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run) AND w.start_ns < w.submit_ns
  GROUP BY w.run_id
), by_name AS MATERIALIZED (
  SELECT w.run_id, w.name, count(*) AS tasks, min(CASE WHEN w.kind IS DISTINCT FROM 'collective' THEN w.id END) AS other_id
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run)
  GROUP BY w.run_id, w.name
), delay AS (
  -- Those up to the largest error of a device, before the join with each one's own.
  SELECT w.run_id, w.device_id, w.start_ns - w.submit_ns AS delay_ns
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run)
    AND w.start_ns >= w.submit_ns AND TRY(w.start_ns - w.submit_ns) <= (SELECT max(clock_error_ns) FROM device)
), uncertain AS (
  SELECT w.run_id, count(*) AS tasks, sum(w.delay_ns) AS delay
  FROM delay AS w
  JOIN device AS d ON d.run_id = w.run_id AND d.device_id = w.device_id AND w.delay_ns <= d.clock_error_ns
  GROUP BY w.run_id
), like_collective AS (
  SELECT n.run_id, n.name
  FROM by_name AS n
  JOIN task AS t ON t.run_id = n.run_id AND t.id = n.other_id
  WHERE regexp_matches(n.name, '(?i)(nccl|rccl|hccl|hcom_|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)')
     OR regexp_matches(t.args, '"(Collective name|Process Group Name)" *:')
), unknown_collective AS (
  SELECT w.run_id, count(*) AS tasks, sum(w.dur_ns) AS total
  FROM task AS w
  JOIN like_collective AS n ON n.run_id = w.run_id AND n.name IS NOT DISTINCT FROM w.name
  WHERE w.kind IS DISTINCT FROM 'sync' AND w.kind IS DISTINCT FROM 'collective'
  GROUP BY w.run_id
), long_name AS (
  -- Profilers cut names at powers of 2, with or without the terminating NUL. The names of equal layers have equal lengths.
  SELECT n.run_id, sum(n.tasks) AS tasks
  FROM (
    SELECT run_id, name, length(name) AS size, tasks, max(length(name)) OVER (PARTITION BY run_id) AS longest
    FROM by_name
    WHERE name IS NOT NULL
  ) AS n
  WHERE n.size = n.longest AND n.longest IN (31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 1023, 1024, 2047, 2048, 4095, 4096)
  GROUP BY n.run_id
  HAVING count(DISTINCT regexp_replace(n.name, '[0-9]+', '', 'g')) > 1
), crossing AS MATERIALIZED (
  SELECT w.run_id, w.track_id, w.id, w.parent_id, w.api_id, w.name, w.start_ns, w.dur_ns, w.stream_wait_ns
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run) AND w.stream_wait_ns < 0
), inner_task AS (
  -- A task inside another one is a part of it, as the copies of a collective are, unless both were launched.
  SELECT c.run_id, c.id
  FROM task AS p
  JOIN crossing AS c ON c.run_id = p.run_id AND c.parent_id = p.id
  WHERE p.kind = 'sync' OR p.api_id IS NULL OR c.api_id IS NULL OR p.api_id = c.api_id
), overlapping AS (
  SELECT c.run_id, count(*) AS tasks, sum(least(-c.stream_wait_ns::HUGEINT, c.dur_ns)) AS overlap
  FROM crossing AS c
  ANTI JOIN inner_task AS i ON i.run_id = c.run_id AND i.id = c.id
  GROUP BY c.run_id
), copy AS (
  -- A copy begins before the end of its original, so it overlaps it.
  SELECT w.run_id, w.dur_ns, count(*) - 1 AS extra
  FROM task AS w
  SEMI JOIN crossing AS c ON c.run_id = w.run_id AND c.track_id = w.track_id AND c.start_ns = w.start_ns
    AND c.dur_ns = w.dur_ns AND c.name IS NOT DISTINCT FROM w.name
  WHERE w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run) AND w.dur_ns > 0
  GROUP BY w.run_id, w.track_id, w.start_ns, w.dur_ns, w.name
  HAVING count(*) > 1
), waited AS (
  -- A synchronisation of the device ends after all tasks that were launched before it.
  SELECT a.run_id, a.start_ns, max(TRY(a.start_ns + a.dur_ns)) AS end_ns
  FROM (
    SELECT c.run_id, c.name, max(c.last_ns) AS start_ns
    FROM called_word AS c
    JOIN call_name AS m ON m.name = c.name AND m.waits
    GROUP BY c.run_id, c.name
  ) AS l
  JOIN api AS a ON a.run_id = l.run_id AND a.name = l.name AND a.start_ns = l.start_ns
  WHERE a.run_id IN (SELECT run_id FROM stream_queue GROUP BY run_id HAVING min(device_id) = max(device_id))
  GROUP BY a.run_id, a.start_ns
  QUALIFY row_number() OVER (PARTITION BY a.run_id ORDER BY a.start_ns DESC) = 1
), late AS (
  SELECT w.run_id, count(*) AS tasks, sum(w.start_ns::HUGEINT + w.dur_ns - s.end_ns) AS later
  FROM task AS w
  JOIN waited AS s ON s.run_id = w.run_id AND s.start_ns >= w.submit_ns
  LEFT JOIN device AS d ON d.run_id = w.run_id AND d.device_id = w.device_id
  WHERE w.kind IS DISTINCT FROM 'sync' AND w.start_ns::HUGEINT + w.dur_ns > s.end_ns::HUGEINT + coalesce(d.clock_error_ns, 0)
  GROUP BY w.run_id
), operator_id AS (
  SELECT r.run_id, r.track_id, r.start_ns, TRY_CAST(regexp_extract(r.args, '"External id" *: *"?([0-9]+)', 1) AS BIGINT) AS id
  FROM "range" AS r
  JOIN (
    -- Args take time to read: those of a million operators half a second.
    SELECT o.run_id FROM "range" AS o
    WHERE o.kind = 'host_op' AND (run IS NULL OR o.run_id = run)
      AND o.run_id IN (SELECT run_id FROM run WHERE writer LIKE 'PyTorch%')
    GROUP BY o.run_id
    HAVING count(*) <= 200000
  ) AS u ON u.run_id = r.run_id
  WHERE r.kind IN ('host_op', 'annotation') AND r.category IS DISTINCT FROM 'gpu_user_annotation'
), id_word AS MATERIALIZED (
  SELECT run_id, word, bit_or(bits) AS bits
  FROM called_word
  GROUP BY run_id, word
  UNION ALL
  SELECT run_id, word, bits FROM with_task
  WHERE run_id NOT IN (SELECT run_id FROM called_word) AND run_id IN (SELECT run_id FROM run WHERE source_format = 'rocprofv3')
), numbered AS (
  SELECT *, CASE WHEN holes * 16 <= used THEN 1
                 WHEN used >= 1024 THEN 64 * span // used END AS width
  FROM (
    SELECT run_id, sum(bit_count(bits)) AS used, (max(word)::HUGEINT - min(word) + 1) * 64 AS span,
           -- IDs without the one before them.
           sum(bit_count(bits & ~((bits & 9223372036854775807) << 1))
               - coalesce(continues AND bits & 1 = 1, false)::BIGINT) - 1 AS holes
    FROM (
      SELECT *, lag(word) OVER w = word - 1 AND lag(bits) OVER w > 9223372036854775807 AS continues
      FROM id_word
      WINDOW w AS (PARTITION BY run_id ORDER BY word)
    )
    GROUP BY run_id
  )
  WHERE holes > 0
), hole AS MATERIALIZED (
  SELECT 'lost_calls' AS finding, run_id, used, span, id, lag(id) OVER w AS previous
  FROM (
    SELECT w.run_id, n.used, n.span, n.width,
           w.word * 64 + unnest(CASE WHEN n.width = 1 THEN list_filter(range(64), lambda i: (w.bits >> i::UBIGINT) & 1 = 1)
                                     ELSE [bit_count(~w.bits & (w.bits - 1)), length(bin(w.bits)) - 1] END) AS id
    FROM id_word AS w
    JOIN numbered AS n ON n.run_id = w.run_id AND n.width IS NOT NULL
  )
  WINDOW w AS (PARTITION BY run_id ORDER BY id)
  QUALIFY id - previous > width
  UNION ALL
  -- Threads number their operators from other IDs on, so only holes between two of one thread count.
  SELECT 'lost_operators', run_id, used, last_id::HUGEINT - first_id + 1, id, previous
  FROM (
    SELECT *, count(CASE WHEN id - previous > 1 THEN 1 END) OVER (PARTITION BY run_id) AS holes
    FROM (
      SELECT *, lag(id) OVER w AS previous, lag(track_id) OVER w = track_id AS is_same,
             count(*) OVER (PARTITION BY run_id) AS used, min(id) OVER (PARTITION BY run_id) AS first_id,
             max(id) OVER (PARTITION BY run_id) AS last_id
      FROM operator_id
      WHERE id IS NOT NULL
      WINDOW w AS (PARTITION BY run_id ORDER BY id)
    )
  )
  WHERE id - previous > 1 AND is_same AND holes * 16 <= used
), around_hole AS (
  -- Calls and operators are read again for the few runs with holes only.
  SELECT 'lost_calls' AS finding, a.run_id, a.correlation_id AS id, a.start_ns FROM api AS a
  UNION ALL
  SELECT 'lost_calls', t.run_id, t.correlation_id, t.start_ns
  FROM task AS t
  WHERE t.run_id NOT IN (SELECT run_id FROM called_word)
  UNION ALL
  SELECT 'lost_operators', run_id, id, start_ns FROM operator_id
), hole_side AS (
  SELECT a.finding, a.run_id, a.id, min(a.start_ns) AS first_ns, max(a.start_ns) AS last_ns
  FROM around_hole AS a
  SEMI JOIN (SELECT finding, run_id, unnest([previous, id]) AS id FROM hole) AS h
    ON h.finding = a.finding AND h.run_id = a.run_id AND h.id = a.id
  GROUP BY a.finding, a.run_id, a.id
), lost_id AS (
  SELECT h.finding, h.run_id, any_value(h.used) AS used, sum(greatest(n.first_ns::HUGEINT - p.last_ns, 0)) AS lasts,
         CASE WHEN h.finding = 'lost_calls' THEN count(*) ELSE sum(h.id - h.previous - 1) END AS count
  FROM hole AS h
  JOIN hole_side AS p ON p.finding = h.finding AND p.run_id = h.run_id AND p.id = h.previous
  JOIN hole_side AS n ON n.finding = h.finding AND n.run_id = h.run_id AND n.id = h.id
  -- Each process has its own IDs.
  WHERE h.finding = 'lost_operators' OR h.run_id NOT IN (
    SELECT k.run_id
    FROM (SELECT DISTINCT a.run_id, a.track_id FROM api AS a SEMI JOIN hole AS o ON o.run_id = a.run_id) AS u
    JOIN track AS k ON k.run_id = u.run_id AND k.track_id = u.track_id
    GROUP BY k.run_id
    HAVING count(DISTINCT coalesce(k.process_id, -1)) > 1
  )
  GROUP BY h.finding, h.run_id
  -- IDs that leave out more than they use are not consecutive.
  HAVING sum(h.id - h.previous - 1) * 2 <= any_value(h.span)
), framed AS (
  -- Threads with Python functions, whose time is divided into 50 parts.
  SELECT run_id, track_id, operators, first_ns, ((last_ns::HUGEINT - first_ns) // 50 + 1)::BIGINT AS part_ns
  FROM (
    SELECT r.run_id, r.track_id, count(CASE WHEN r.kind = 'host_op' THEN 1 END) AS operators,
           min(CASE WHEN r.kind = 'host_op' THEN r.start_ns END) AS first_ns,
           max(CASE WHEN r.kind = 'host_op' THEN r.start_ns END) AS last_ns
    FROM "range" AS r
    WHERE r.kind IN ('frame', 'module', 'host_op') AND (run IS NULL OR r.run_id = run)
    GROUP BY r.run_id, r.track_id
    HAVING bool_or(r.kind = 'frame')
  )
  WHERE operators >= 50
), unframed AS (
  SELECT run_id, track_id, framed_parts, any_value(all_framed) AS all_framed, any_value(operators) AS operators,
         sum(part_operators) AS lost, count(*)::HUGEINT * any_value(part_ns) AS lasts
  FROM (
    SELECT *, count(CASE WHEN frames > 0 THEN 1 END) OVER (PARTITION BY run_id, track_id ORDER BY part) AS framed_parts,
           count(CASE WHEN frames > 0 THEN 1 END) OVER (PARTITION BY run_id, track_id) AS all_framed
    FROM (
      SELECT f.run_id, f.track_id, TRY(r.start_ns - f.first_ns) // f.part_ns AS part,
             any_value(f.operators) AS operators, any_value(f.part_ns) AS part_ns,
             count(CASE WHEN r.kind = 'host_op' THEN 1 END) AS part_operators,
             count(CASE WHEN r.kind <> 'host_op' THEN 1 END) AS frames
      FROM framed AS f
      JOIN "range" AS r ON r.run_id = f.run_id AND r.track_id = f.track_id AND r.kind IN ('frame', 'module', 'host_op')
      GROUP BY f.run_id, f.track_id, part
    )
    WHERE part_operators > 0
  )
  WHERE frames = 0
  GROUP BY run_id, track_id, framed_parts
  HAVING sum(part_operators) * 10 >= any_value(operators)
), bound AS (
  SELECT run_id, step_id, min(coalesce(start_ns, fp_start_ns)) AS start_ns, max(end_ns) AS end_ns,
         bool_or(end_ns IS NULL OR coalesce(start_ns, fp_start_ns) IS NULL) AS is_cut, count(*) AS rows,
         count(*) FILTER (WHERE end_ns IS NULL OR coalesce(start_ns, fp_start_ns) IS NULL) AS cut_rows
  FROM step
  WHERE run IS NULL OR run_id = run
  GROUP BY run_id, step_id
), of_step AS (
  SELECT run_id, step_id, sum(events) AS events
  FROM (
    SELECT w.run_id, w.step_id, count(*) AS events FROM task AS w
    WHERE w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run) AND w.step_id IS NOT NULL
    GROUP BY w.run_id, w.step_id
    UNION ALL
    SELECT r.run_id, r.step_id, count(*) FROM "range" AS r
    WHERE (run IS NULL OR r.run_id = run) AND r.step_id IS NOT NULL
    GROUP BY r.run_id, r.step_id
  )
  GROUP BY run_id, step_id
), outside AS (
  SELECT w.run_id, coalesce(w.submit_ns, w.start_ns) AS ts_ns FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND (run IS NULL OR w.run_id = run) AND w.step_id IS NULL
  UNION ALL
  SELECT r.run_id, r.start_ns FROM "range" AS r WHERE (run IS NULL OR r.run_id = run) AND r.step_id IS NULL
), sized AS (
  SELECT b.*, coalesce(o.events, 0) AS events, row_number() OVER (PARTITION BY b.run_id ORDER BY b.start_ns) AS number,
         count(*) OVER (PARTITION BY b.run_id) AS steps,
         lead(b.step_id) OVER (PARTITION BY b.run_id ORDER BY b.start_ns) AS next_id,
         lead(b.start_ns) OVER (PARTITION BY b.run_id ORDER BY b.start_ns) AS next_ns,
         quantile_disc(coalesce(o.events, 0), 0.5) OVER (PARTITION BY b.run_id) AS usual
  FROM bound AS b
  LEFT JOIN of_step AS o ON o.run_id = b.run_id AND o.step_id = b.step_id
), regular AS (
  -- Runs in which at least half of the steps have the same number of events, within 1 %.
  SELECT run_id, any_value(usual) AS usual, min(step_id) AS first_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns
  FROM sized
  GROUP BY run_id
  HAVING any_value(usual) > 0 AND 2 * count(*) FILTER (WHERE abs(events - usual) * 100 <= usual) >= greatest(count(*), 4)
), cut_step AS (
  SELECT run_id, NULL AS place, sum(cut_rows) AS count FROM bound GROUP BY run_id
  UNION ALL
  SELECT s.run_id, CASE s.number WHEN 1 THEN 'start' WHEN s.steps THEN 'end' ELSE 'middle' END, 1
  FROM sized AS s
  SEMI JOIN regular AS g ON g.run_id = s.run_id
  WHERE NOT s.is_cut AND s.events * 10 < s.usual * 9
  UNION ALL
  -- What is left of a step whose own event is lost. Warm-ups are as much as a step, before the first number.
  SELECT g.run_id, CASE WHEN e.ts_ns < g.start_ns THEN 'start' ELSE 'end' END AS place, 1
  FROM outside AS e
  JOIN regular AS g ON g.run_id = e.run_id
  WHERE e.ts_ns < g.start_ns OR e.ts_ns >= g.end_ns
  GROUP BY g.run_id, g.usual, place
  HAVING count(*) * 10 >= g.usual AND (place = 'end' OR any_value(g.first_id) > 1 OR count(*) * 10 < g.usual * 9)
  UNION ALL
  SELECT s.run_id, 'middle', s.next_id - s.step_id - 1
  FROM sized AS s
  JOIN regular AS g ON g.run_id = s.run_id
  JOIN outside AS e ON e.run_id = s.run_id AND e.ts_ns >= s.end_ns AND e.ts_ns < s.next_ns
  WHERE s.next_id > s.step_id + 1
  GROUP BY s.run_id, s.step_id, s.next_id, g.usual
  HAVING count(*) * 2 >= g.usual
), few AS (
  -- Of few or unequal steps, the numbers of events don't show which are incomplete.
  SELECT b.run_id, b.step_id, b.start_ns, b.end_ns
  FROM bound AS b
  WHERE NOT b.is_cut AND b.end_ns > b.start_ns AND b.run_id NOT IN (SELECT run_id FROM regular)
), in_step AS (
  SELECT f.run_id, f.step_id, f.end_ns::HUGEINT - f.start_ns AS step_ns,
         min(e.start_ns)::HUGEINT - f.start_ns AS before, f.end_ns::HUGEINT - max(e.end_ns) AS after
  FROM few AS f
  JOIN (
    SELECT run_id, step_id, start_ns, TRY(start_ns + coalesce(dur_ns, 0)) AS end_ns FROM task
    UNION ALL
    SELECT run_id, step_id, start_ns, start_ns FROM api
    UNION ALL
    SELECT run_id, step_id, start_ns, start_ns FROM "range"
  ) AS e ON e.run_id = f.run_id AND e.step_id = f.step_id AND e.start_ns > f.start_ns
  GROUP BY f.run_id, f.step_id, f.start_ns, f.end_ns
), silent_step AS (
  SELECT run_id, 'start' AS place, before AS silent FROM in_step WHERE before * 4 >= step_ns
  UNION ALL
  SELECT run_id, 'end', after FROM in_step WHERE after * 4 >= step_ns
), last_call AS (
  SELECT run_id, max(last_ns) AS start_ns FROM called_word GROUP BY run_id
), quiet AS (
  -- Runs in which tasks and calls with IDs end early. Only these can end in silence, so only their other events are read.
  SELECT r.run_id, t.until_ns
  FROM run AS r
  JOIN tested AS t ON t.run_id = r.run_id
  LEFT JOIN last_call AS c ON c.run_id = r.run_id
  WHERE ((r.end_ns::HUGEINT - greatest(t.until_ns, c.start_ns)) * 10 > r.end_ns::HUGEINT - r.start_ns) IS NOT FALSE
), last_event AS (
  SELECT run_id, max(until_ns) AS until_ns, max(end_ns) AS end_ns
  FROM (
    SELECT run_id, until_ns, NULL AS end_ns FROM quiet
    UNION ALL
    SELECT a.run_id, max(a.start_ns), max(TRY(a.start_ns + a.dur_ns))
    FROM api AS a SEMI JOIN quiet AS q ON q.run_id = a.run_id GROUP BY a.run_id
    UNION ALL
    SELECT r.run_id, max(r.start_ns), max(TRY(r.start_ns + r.dur_ns))
    FROM "range" AS r SEMI JOIN quiet AS q ON q.run_id = r.run_id GROUP BY r.run_id
  )
  GROUP BY run_id
), found AS (
  SELECT run_id, finding, place, sum(count) AS count, any_value(items) AS total, sum(affected) AS affected
  FROM gap
  GROUP BY run_id, finding, place
  UNION ALL
  SELECT o.run_id, 'overlapping_tasks', NULL, o.tasks, t.tasks, o.overlap
  FROM overlapping AS o
  JOIN tested AS t ON t.run_id = o.run_id
  UNION ALL
  SELECT run_id, 'unfinished_tasks', NULL, unfinished, tasks, NULL FROM tested
  UNION ALL
  SELECT e.run_id, 'early_tasks', NULL, e.tasks, t.delays, e.earlier
  FROM early AS e
  JOIN tested AS t ON t.run_id = e.run_id
  UNION ALL
  SELECT u.run_id, 'uncertain_delays', NULL, u.tasks, t.delays, u.delay
  FROM uncertain AS u
  JOIN tested AS t ON t.run_id = u.run_id
  UNION ALL
  SELECT l.run_id, 'late_tasks', NULL, l.tasks, t.delays, l.later
  FROM late AS l
  JOIN tested AS t ON t.run_id = l.run_id
  UNION ALL
  SELECT q.run_id, 'reordered_tasks', NULL, count(*), any_value(t.delays), NULL
  FROM reordered_task AS q
  JOIN tested AS t ON t.run_id = q.run_id
  GROUP BY q.run_id
  UNION ALL
  SELECT u.run_id, 'unknown_collectives', NULL, u.tasks, t.tasks, u.total
  FROM unknown_collective AS u
  JOIN tested AS t ON t.run_id = u.run_id
  UNION ALL
  SELECT c.run_id, 'duplicate_tasks', NULL, sum(c.extra), any_value(t.tasks), sum(c.extra * c.dur_ns::HUGEINT)
  FROM copy AS c
  JOIN tested AS t ON t.run_id = c.run_id
  GROUP BY c.run_id
  UNION ALL
  SELECT n.run_id, 'cut_names', NULL, n.tasks, t.tasks, NULL
  FROM long_name AS n
  JOIN tested AS t ON t.run_id = n.run_id
  UNION ALL
  SELECT g.run_id, CASE WHEN g.reference_id IS NULL THEN 'unmatched_replays' ELSE 'aligned_replays' END, NULL, count(*),
         any_value(n.tasks), sum(t.dur_ns)
  FROM graph_replay AS g
  JOIN task AS t ON t.run_id = g.run_id AND t.id = g.id
  JOIN (SELECT run_id, count(*) AS tasks FROM graph_replay GROUP BY run_id) AS n ON n.run_id = g.run_id
  WHERE run IS NULL OR g.run_id = run
  GROUP BY g.run_id, g.reference_id IS NULL
  UNION ALL
  SELECT run_id, finding, NULL, count, used, lasts FROM lost_id
  UNION ALL
  SELECT run_id, 'lost_functions', CASE framed_parts WHEN 0 THEN 'start' WHEN all_framed THEN 'end' ELSE 'middle' END,
         sum(lost), sum(operators), sum(lasts)
  FROM unframed
  GROUP BY ALL
  UNION ALL
  SELECT s.run_id, 'silent_steps', s.place, count(*), any_value(f.steps), sum(s.silent)
  FROM silent_step AS s
  JOIN (SELECT run_id, count(*) AS steps FROM few GROUP BY run_id) AS f ON f.run_id = s.run_id
  GROUP BY s.run_id, s.place
  HAVING count(*) * 2 <= any_value(f.steps) OR any_value(f.steps) = 1
  UNION ALL
  SELECT f.run_id, 'lost_flows', NULL, t.launched - f.launches, t.launched, NULL
  FROM run_flow AS f
  JOIN tested AS t ON t.run_id = f.run_id
  JOIN run AS r ON r.run_id = f.run_id
  WHERE r.writer LIKE 'PyTorch%' AND f.launches BETWEEN 1 AND t.launched - 1
  UNION ALL
  SELECT run_id, 'broken_flows', NULL, broken, flows, NULL FROM run_flow
  UNION ALL
  SELECT l.run_id, CASE l.code WHEN 'loose_flow' THEN 'broken_flows' ELSE 'unpaired_events' END AS finding, NULL,
         sum(l.event_count), NULL, NULL
  FROM import_log AS l
  JOIN run AS r ON r.run_id = l.run_id
  WHERE (run IS NULL OR l.run_id = run) AND (
    l.code IN ('end_without_begin', 'unfinished')
    OR l.code = 'loose_flow' AND r.writer NOT LIKE 'PyTorch%' AND r.source_format = 'chrome_json'
  ) AND l.run_id IN (SELECT run_id FROM tested)
  GROUP BY l.run_id, finding
  UNION ALL
  SELECT r.run_id, 'cut_file', NULL, 1, NULL, NULL
  FROM run AS r
  WHERE r.writer LIKE 'PyTorch%' AND r.source_format = 'chrome_json' AND (run IS NULL OR r.run_id = run)
    AND r.run_id NOT IN (SELECT run_id FROM "range" WHERE kind = 'summary')
  UNION ALL
  SELECT c.run_id, 'cut_steps', c.place, sum(c.count), any_value(b.rows), NULL
  FROM cut_step AS c
  JOIN (SELECT run_id, sum(rows) AS rows FROM bound GROUP BY run_id) AS b ON b.run_id = c.run_id
  GROUP BY c.run_id, c.place
  UNION ALL
  SELECT l.run_id, 'silent_end', NULL, 1, NULL, l.end_ns::HUGEINT - l.until_ns
  FROM last_event AS l
  JOIN run AS r ON r.run_id = l.run_id
  WHERE (l.end_ns::HUGEINT - l.until_ns) * 10 > l.end_ns::HUGEINT - r.start_ns
  UNION ALL
  SELECT l.run_id, 'unclear_launches', NULL, l.events, count(*), NULL
  FROM (SELECT run_id, sum(event_count) AS events FROM import_log WHERE code = 'unclear_launch' GROUP BY run_id) AS l
  JOIN task AS w ON w.run_id = l.run_id
  WHERE run IS NULL OR w.run_id = run
  GROUP BY l.run_id, l.events
  UNION ALL
  SELECT w.run_id, 'shared_streams', NULL, count(*), any_value(t.tasks), sum(w.dur_ns)
  FROM task AS w
  JOIN shared AS s ON s.run_id = w.run_id AND s.device_id = w.device_id AND s.stream_id = w.stream_id
  JOIN tested AS t ON t.run_id = w.run_id
  WHERE w.kind IS DISTINCT FROM 'sync'
  GROUP BY w.run_id
  UNION ALL
  SELECT u.run_id, 'unlinked_launches', NULL, u.tasks, t.tasks, NULL
  FROM unlinked AS u
  JOIN tested AS t ON t.run_id = u.run_id
  UNION ALL
  SELECT run_id, 'import_losses', NULL, sum(coalesce(event_count, 1)), NULL, NULL
  FROM import_log
  WHERE severity = 'data_loss' AND (run IS NULL OR run_id = run)
  GROUP BY run_id
)
SELECT f.run_id, f.finding, f.place, f.count::BIGINT AS count, f.total::BIGINT AS total_count,
       TRY_CAST(f.affected AS BIGINT) AS affected_ns,
       100 * f.affected::DOUBLE / nullif(r.end_ns::HUGEINT - r.start_ns, 0)::DOUBLE AS affected_percent,
       CASE f.finding
         WHEN 'lost_tasks' THEN 'breakdown, kernels, op-statistic, op-tree, idle-gaps, compare'
         WHEN 'lost_copies' THEN 'breakdown, kernels, idle-gaps, compare'
         WHEN 'lost_launches' THEN 'launch, op-tree, idle-causes, stream-utilisation'
         WHEN 'unclear_launches' THEN 'launch, op-tree, idle-causes, stream-utilisation, step-breakdown'
         WHEN 'unlinked_launches' THEN 'launch, op-tree, idle-causes, stream-utilisation'
         WHEN 'shared_streams' THEN 'breakdown, stream-utilisation, idle-gaps, step-breakdown'
         WHEN 'overlapping_tasks' THEN 'op-statistic, kernels (sums exceed busy time)'
         WHEN 'duplicate_tasks' THEN 'op-statistic, kernels'
         WHEN 'unfinished_tasks' THEN 'breakdown, op-statistic, kernels'
         WHEN 'early_tasks' THEN 'launch, idle-causes'
         WHEN 'uncertain_delays' THEN 'launch'
         WHEN 'cut_names' THEN 'kernels, op-statistic'
         WHEN 'unknown_collectives' THEN 'breakdown'
         WHEN 'lost_operators' THEN 'op-tree, idle-causes, roofline, step-breakdown'
         WHEN 'lost_functions' THEN 'op-tree, idle-causes'
         WHEN 'lost_flows' THEN 'exports (arrows)'
         WHEN 'broken_flows' THEN 'op-tree, exports (arrows)'
         WHEN 'silent_steps' THEN 'step-trace, step-breakdown, compare'
         WHEN 'unmatched_replays' THEN 'op-tree, roofline, kernels (by shape)'
         WHEN 'aligned_replays' THEN 'op-tree, roofline, kernels (by shape)'
         WHEN 'cut_steps' THEN 'step-trace, step-breakdown, compare'
         WHEN 'late_tasks' THEN 'breakdown, launch, idle-gaps, step-breakdown'
         WHEN 'reordered_tasks' THEN 'breakdown, launch, idle-gaps, step-breakdown'
         ELSE 'all' END AS reports
FROM found AS f
LEFT JOIN run AS r ON r.run_id = f.run_id
WHERE f.count > 0
ORDER BY f.run_id, f.finding, f.place
