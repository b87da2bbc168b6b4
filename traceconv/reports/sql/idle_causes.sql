-- title = "Idle time of devices by cause"
-- doc = "What keeps a device idle? The rows of idle-gaps, summed by cause; idle-gaps has the rules. The rest of a device's idle time (breakdown) is in gaps below 10 µs."
-- needs = ["task"]
-- when_empty = "Gaps are idle times of 10 µs or more between the tasks of a device."
-- order = ["run_id", "device_id", "idle_ns DESC", "cause"]
-- measure = "idle_ns"
-- shown = ["device_id", "cause", "gap_count", "idle_ns", "percent", "max_gap_ns", "host_wait_ns"]
-- selects = { run = true, device = true, steps = "gaps before tasks", time = "gaps that start" }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device; NULL if unknown." }
-- cause = { type = "VARCHAR", unit = "enum", doc = "dependency, launch, data_loading, synchronisation or host; NULL if the launch of the next task is unknown." }
-- gap_count = { type = "BIGINT", unit = "count", doc = "Gaps of 10 µs or more." }
-- idle_ns = { type = "BIGINT", unit = "ns", doc = "Sum of these gaps." }
-- percent = { type = "DOUBLE", unit = "percent", doc = "Share of the sum over all causes of the device." }
-- max_gap_ns = { type = "BIGINT", unit = "ns", doc = "Longest of these gaps." }
-- host_wait_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the times from the start of the gap to the launch of the next task; NULL if unknown." }
-- launch_delay_ns = { type = "BIGINT", unit = "ns", doc = "The rest of idle_ns: the next task was launched, but had not started; NULL if unknown." }
WITH gap AS (
{{idle_gaps}}
), summed AS (
  SELECT run_id, device_id, cause, count(*) AS gaps, sum(gap_ns) AS idle, max(gap_ns) AS longest,
         sum(host_wait_ns) AS host_wait
  FROM gap
  GROUP BY run_id, device_id, cause
)
SELECT s.run_id, s.device_id, s.cause, s.gaps AS gap_count, TRY_CAST(s.idle AS BIGINT) AS idle_ns,
       100 * s.idle::DOUBLE / nullif(sum(s.idle) OVER (PARTITION BY s.run_id, s.device_id), 0) AS percent,
       s.longest AS max_gap_ns, TRY_CAST(s.host_wait AS BIGINT) AS host_wait_ns,
       TRY_CAST(s.idle - s.host_wait AS BIGINT) AS launch_delay_ns
FROM summed AS s
ORDER BY s.run_id, s.device_id, idle_ns DESC, s.cause
