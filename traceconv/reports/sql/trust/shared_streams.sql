-- [finding.shared_streams]
-- doc = "Tasks of streams that several processes of one trace have with equal numbers, as in traces of several ranks merged into one file: they count as one stream and one device."
-- count = "tasks"
-- total = "tasks"
-- affected = "sum of the durations"
-- reports = "breakdown, stream-utilisation, idle-gaps, step-breakdown"
WITH shared AS (
  SELECT k.run_id, k.device_id, k.stream_id
  FROM track AS k
  WHERE k.kind = 'stream' AND k.device_id IS NOT NULL AND k.stream_id IS NOT NULL AND {{selected(k.run_id)}}
  GROUP BY k.run_id, k.device_id, k.stream_id
  HAVING count(DISTINCT k.process_id) > 1
), of_process AS (
  -- Waits may have a process of their own.
  SELECT w.run_id, w.device_id, w.stream_id, k.process_id, count(*) AS tasks, sum(w.dur_ns) AS total
  FROM task AS w
  JOIN shared AS s ON s.run_id = w.run_id AND s.device_id = w.device_id AND s.stream_id = w.stream_id
  JOIN track AS k ON k.run_id = w.run_id AND k.track_id = w.track_id
  WHERE w.kind IS DISTINCT FROM 'sync'
  GROUP BY w.run_id, w.device_id, w.stream_id, k.process_id
)
SELECT o.run_id, 'shared_streams', NULL, sum(o.tasks), any_value(t.tasks), sum(o.total)
FROM (SELECT *, count(process_id) OVER (PARTITION BY run_id, device_id, stream_id) AS processes FROM of_process) AS o
JOIN tested AS t ON t.run_id = o.run_id
WHERE o.processes > 1
GROUP BY o.run_id
