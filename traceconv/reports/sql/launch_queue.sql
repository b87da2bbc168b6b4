-- title = "Launch queues of streams"
-- doc = "How many tasks wait on each stream, launched but not started? One row per stream. The length changes at each launch and each start, except those of events and waits (kind sync); launches come first at equal times. An empty queue means that the device is ahead of the host."
-- needs = ["task"]
-- when_empty = "Record a model (traceconv record MODEL -o DIR) to log its tasks and the calls that launch them."
-- order = ["run_id", "device_id", "stream_id"]
-- measure = "max_length"
-- shown = ["device_id", "stream_id", "task_count", "time_avg_length", "p50_length", "max_length", "empty_percent"]
-- [parameters]
-- run = { type = "BIGINT", doc = "Only this run; NULL: all runs." }
-- device = { type = "BIGINT", doc = "Only this device; NULL: all devices." }
-- from_ns = { type = "BIGINT", doc = "Only tasks launched at this time or later; NULL: no limit." }
-- to_ns = { type = "BIGINT", doc = "Only tasks launched before this time; NULL: no limit." }
-- [columns]
-- run_id = { type = "BIGINT", unit = "id", doc = "Run of the row." }
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
WITH launched AS (
  SELECT t.run_id, t.device_id, t.stream_id, t.id, t.submit_ns, t.start_ns
  FROM task AS t
  WHERE t.submit_ns IS NOT NULL AND t.start_ns IS NOT NULL AND t.kind IS DISTINCT FROM 'sync'
    AND (run IS NULL OR t.run_id = run) AND (device IS NULL OR t.device_id = device)
    AND (from_ns IS NULL OR t.submit_ns >= from_ns) AND (to_ns IS NULL OR t.submit_ns < to_ns)
), change AS (
  SELECT run_id, device_id, stream_id, id, submit_ns AS ts_ns, 1 AS by_one FROM launched
  UNION ALL
  SELECT run_id, device_id, stream_id, id, start_ns, -1 FROM launched
), queue AS (
  SELECT run_id, device_id, stream_id, by_one,
         (sum(by_one) OVER (so_far ROWS UNBOUNDED PRECEDING))::BIGINT AS queued,
         lead(ts_ns) OVER so_far::HUGEINT - ts_ns AS lasts
  FROM change
  WINDOW so_far AS (PARTITION BY run_id, device_id, stream_id ORDER BY ts_ns, by_one DESC, id)
)
SELECT run_id, device_id, stream_id, count(*) // 2 AS task_count, avg(queued) AS avg_length,
       stddev_samp(queued) AS std_length, min(queued) AS min_length, quantile_cont(queued, 0.25) AS p25_length,
       quantile_cont(queued, 0.5) AS p50_length, quantile_cont(queued, 0.75) AS p75_length, max(queued) AS max_length,
       round(sum(queued * lasts)::DOUBLE / nullif(sum(lasts), 0), 3) AS time_avg_length,
       100 * coalesce(sum(lasts) FILTER (WHERE queued = 0), 0)::DOUBLE / nullif(sum(lasts), 0) AS empty_percent
FROM queue
GROUP BY run_id, device_id, stream_id
ORDER BY run_id, device_id, stream_id
