-- title = "Launch queues of streams"
-- doc = "How many tasks wait on each stream, launched but not started? One row per stream. The length changes at each launch and each start, except those of events and waits (kind sync); launches come first at equal times. An empty queue means that the device is ahead of the host."
-- needs = ["task"]
-- when_empty = "Launches are known from calls with the correlation IDs of tasks: in PyTorch with ProfilerActivity.CPU and CUDA; of a model with traceconv record MODEL -o DIR. The report trust counts launches that are unclear."
-- order = ["run_id", "device_id", "stream_id"]
-- measure = "max_length"
-- shown = ["device_id", "stream_id", "task_count", "time_avg_length", "p50_length", "max_length", "empty_percent"]
-- selects = { run = true, device = true, time = "tasks launched" }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the stream; NULL if unknown." }
-- stream_id = { type = "BIGINT", unit = "id", doc = "Stream; NULL if unknown." }
-- task_count = { type = "BIGINT", unit = "count", doc = "Tasks with a known launch; the queue changes twice for each." }
-- avg_length = { type = "DOUBLE", unit = "count", doc = "Mean of the lengths after each change (HTA's mean)." }
-- std_length = { type = "DOUBLE", unit = "count", doc = "Standard deviation of these lengths, of a sample; NULL for a single one." }
-- min_length = { type = "BIGINT", unit = "count", doc = "Smallest length; negative if a task started before its launch, by inexact clocks." }
-- p25_length = { type = "DOUBLE", unit = "count", doc = "25th percentile of the lengths, interpolated." }
-- p50_length = { type = "DOUBLE", unit = "count", doc = "Median of the lengths, interpolated." }
-- p75_length = { type = "DOUBLE", unit = "count", doc = "75th percentile of the lengths, interpolated." }
-- max_length = { type = "BIGINT", unit = "count", doc = "Largest length." }
-- time_avg_length = { type = "DOUBLE", unit = "count", doc = "Mean length over the time from the first to the last change, rounded to 0.001; NULL if that is no time." }
-- empty_percent = { type = "DOUBLE", unit = "percent", doc = "Share of that time with an empty queue; NULL if that is no time." }
WITH outside AS (
  -- Tasks that were launched before or after the window: their last change before it, and the first one after it.
  SELECT t.run_id, t.device_id, t.stream_id,
         max(CASE WHEN t.submit_ns < from_ns THEN greatest(t.submit_ns, t.start_ns) END) AS before_ns,
         min(CASE WHEN t.submit_ns >= to_ns THEN least(t.submit_ns, t.start_ns) END) AS after_ns
  FROM task AS t
  WHERE (t.submit_ns < from_ns OR t.submit_ns >= to_ns) AND t.start_ns IS NOT NULL AND t.kind IS DISTINCT FROM 'sync'
    AND {{selected(t.run_id, t.device_id)}}
  GROUP BY t.run_id, t.device_id, t.stream_id
), stretch AS MATERIALIZED (
  -- Stretches of time in which only tasks of the window change the queue, except the first one, so that others precede.
  SELECT q.run_id, q.device_id, q.stream_id, q.start_ns, q.end_ns
  FROM stream_queue AS q
  LEFT JOIN outside AS o ON o.run_id = q.run_id AND o.device_id IS NOT DISTINCT FROM q.device_id
    AND o.stream_id IS NOT DISTINCT FROM q.stream_id
  WHERE (from_ns IS NOT NULL OR to_ns IS NOT NULL) AND q.start_ns IS NOT NULL
    AND {{selected(q.run_id, q.device_id)}}
    AND q.start_ns >= coalesce(o.before_ns, q.start_ns) AND (o.after_ns IS NULL OR q.end_ns < o.after_ns)
  GROUP BY q.run_id, q.device_id, q.stream_id, q.start_ns, q.end_ns
  QUALIFY row_number() OVER (PARTITION BY q.run_id, q.device_id, q.stream_id ORDER BY q.start_ns) > 1
), middle AS MATERIALIZED (
  SELECT run_id, device_id, stream_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns
  FROM stretch
  GROUP BY run_id, device_id, stream_id
), launched AS MATERIALIZED (
  SELECT t.run_id, t.device_id, t.stream_id, t.submit_ns, t.start_ns, m.start_ns AS middle_ns, m.end_ns
  FROM task AS t
  LEFT JOIN middle AS m ON m.run_id = t.run_id AND m.device_id IS NOT DISTINCT FROM t.device_id
    AND m.stream_id IS NOT DISTINCT FROM t.stream_id
  WHERE (from_ns IS NOT NULL OR to_ns IS NOT NULL) AND t.submit_ns IS NOT NULL AND t.start_ns IS NOT NULL
    AND t.kind IS DISTINCT FROM 'sync' AND {{selected(t.run_id, t.device_id, t.submit_ns)}}
    AND (m.end_ns IS NULL OR t.submit_ns <= m.start_ns OR t.submit_ns > m.end_ns OR t.start_ns <= m.start_ns
         OR t.start_ns > m.end_ns)
), change AS (
  -- In this order: changes before the middle, its start and end, and changes after it.
  SELECT run_id, device_id, stream_id, CASE WHEN submit_ns > end_ns THEN 3 ELSE 0 END AS part, submit_ns AS ts_ns, 1 AS by_one
  FROM launched
  WHERE end_ns IS NULL OR submit_ns <= middle_ns OR submit_ns > end_ns
  UNION ALL
  SELECT run_id, device_id, stream_id, CASE WHEN start_ns > end_ns THEN 3 ELSE 0 END, start_ns, -1
  FROM launched
  WHERE end_ns IS NULL OR start_ns <= middle_ns OR start_ns > end_ns
  UNION ALL
  SELECT run_id, device_id, stream_id, 1, start_ns, 0 FROM middle
  UNION ALL
  SELECT run_id, device_id, stream_id, 2, end_ns, 0 FROM middle
), queue AS (
  -- All changes of the window add up to 0, so those in the middle to minus the sum of the others.
  SELECT run_id, device_id, stream_id, part, by_one,
         sum(by_one) OVER so_far
           - CASE WHEN part >= 2 THEN sum(by_one) OVER (PARTITION BY run_id, device_id, stream_id) ELSE 0 END AS queued,
         lead(ts_ns) OVER (PARTITION BY run_id, device_id, stream_id ORDER BY part, ts_ns, by_one DESC)::HUGEINT - ts_ns
           AS lasts
  FROM change
  WINDOW so_far AS (
    PARTITION BY run_id, device_id, stream_id ORDER BY part, ts_ns, by_one DESC ROWS UNBOUNDED PRECEDING
  )
), length AS (
  SELECT run_id, device_id, stream_id, queued::BIGINT AS queued, sum(abs(by_one)) AS changes,
         sum(CASE WHEN part <> 1 THEN lasts END) AS lasts
  FROM queue
  GROUP BY run_id, device_id, stream_id, queued
  UNION ALL
  SELECT q.run_id, q.device_id, q.stream_id, q.queue_length, sum(q.change_count), sum(q.dur_ns)
  FROM stream_queue AS q
  LEFT JOIN middle AS m ON m.run_id = q.run_id AND m.device_id IS NOT DISTINCT FROM q.device_id
    AND m.stream_id IS NOT DISTINCT FROM q.stream_id
  WHERE {{selected(q.run_id, q.device_id)}}
    AND ((from_ns IS NULL AND to_ns IS NULL) OR (q.start_ns >= m.start_ns AND q.end_ns <= m.end_ns))
  GROUP BY q.run_id, q.device_id, q.stream_id, q.queue_length
), counted AS (
  SELECT *, sum(changes) OVER of_stream AS until,
         sum(changes) OVER (PARTITION BY run_id, device_id, stream_id) AS total
  FROM length
  WINDOW of_stream AS (PARTITION BY run_id, device_id, stream_id ORDER BY queued ROWS UNBOUNDED PRECEDING)
), ranked AS (
  -- A percentile p is at rank (total - 1) p from 0, interpolated between the two nearest.
  SELECT *, unnest([1, 2, 3]) AS quarter
  FROM counted
), percentile AS (
  SELECT run_id, device_id, stream_id, quarter,
         min(queued) FILTER (WHERE until > (total - 1) * quarter // 4)
         + (min(queued) FILTER (WHERE until > ((total - 1) * quarter + 3) // 4)
            - min(queued) FILTER (WHERE until > (total - 1) * quarter // 4))
           * (((max(total) - 1) * quarter % 4)::DOUBLE / 4) AS value
  FROM ranked
  GROUP BY run_id, device_id, stream_id, quarter
), summed AS (
  SELECT run_id, device_id, stream_id, max(total) AS total, sum(queued * changes) AS sum_1,
         sum(queued::HUGEINT * queued * changes) AS sum_2, min(queued) FILTER (WHERE changes > 0) AS low,
         max(queued) FILTER (WHERE changes > 0) AS high, sum(queued * lasts) AS area, sum(lasts) AS lasts,
         coalesce(sum(lasts) FILTER (WHERE queued = 0), 0) AS empty
  FROM counted
  GROUP BY run_id, device_id, stream_id
)
SELECT s.run_id, s.device_id, s.stream_id, (s.total // 2)::BIGINT AS task_count,
       s.sum_1::DOUBLE / s.total::DOUBLE AS avg_length,
       sqrt((s.total * s.sum_2 - s.sum_1 * s.sum_1)::DOUBLE / (s.total * (s.total - 1))::DOUBLE) AS std_length,
       s.low AS min_length, p.value[1] AS p25_length, p.value[2] AS p50_length, p.value[3] AS p75_length,
       s.high AS max_length, round(s.area::DOUBLE / nullif(s.lasts, 0)::DOUBLE, 3) AS time_avg_length,
       100 * s.empty::DOUBLE / nullif(s.lasts, 0)::DOUBLE AS empty_percent
FROM summed AS s
JOIN (
  SELECT run_id, device_id, stream_id, list(value ORDER BY quarter) AS value
  FROM percentile
  GROUP BY run_id, device_id, stream_id
) AS p ON p.run_id = s.run_id AND p.device_id IS NOT DISTINCT FROM s.device_id
  AND p.stream_id IS NOT DISTINCT FROM s.stream_id
ORDER BY s.run_id, s.device_id, s.stream_id
