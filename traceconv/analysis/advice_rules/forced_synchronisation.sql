-- title = "Synchronisation leaves the device idle"
-- doc = "Idle times of 10 µs or more before which the launching thread had waited for the device, so that nothing was queued (cause synchronisation of idle-gaps). Also idle times that began during a wait of another thread for the device, which ended before the next task, unless the launching thread did something else for half of the time. The subjects are the functions that the launching thread was in."
-- saving = "Sum of these idle times: an upper bound, reached if no wait is needed, so that the next tasks are queued in time."
-- basis = "upper bound"
-- suggestion = "Read results later or less often: avoid .item(), .cpu(), printing tensors and shapes that depend on values; copy without blocking from pinned memory."
-- reads = ["idle-gaps"]
-- evidence = "WITH $pauses SELECT p.task_name, p.start_ns, p.end_ns, TRY(p.end_ns - p.start_ns) AS gap_ns, g.cause, g.host_name FROM pause AS p LEFT JOIN idle_gaps(run := $run, device := $device) AS g ON g.start_ns = p.start_ns WHERE g.cause = 'synchronisation' OR (coalesce(g.cause, 'host') = 'host' AND g.host_id IS NULL AND EXISTS (FROM api AS a WHERE a.run_id = $run AND regexp_matches(a.name, '(?i)synchroni[sz]e') AND a.start_ns <= p.start_ns AND TRY(a.start_ns + a.dur_ns) BETWEEN p.start_ns AND p.end_ns)) ORDER BY gap_ns DESC"
WITH wait AS (
  SELECT DISTINCT start_ns, TRY(start_ns + dur_ns) AS end_ns
  FROM api
  WHERE run_id = $run AND (contains(lower(name), 'synchronise') OR contains(lower(name), 'synchronize'))
    AND TRY(start_ns + dur_ns) IS NOT NULL
), ended AS (
  SELECT DISTINCT p.device_id, p.start_ns, p.end_ns
  FROM wait AS w
  CROSS JOIN advice_device AS d
  ASOF JOIN advice_pause AS p ON d.device_id = p.device_id AND w.end_ns >= p.start_ns
  WHERE w.end_ns <= p.end_ns AND w.start_ns <= p.start_ns
)
SELECT device_id, host_name AS subject, gap_ns AS saving_ns, 1 AS count
FROM advice_gap
WHERE cause = 'synchronisation'
UNION ALL
SELECT e.device_id, NULL, e.end_ns - e.start_ns, 1
FROM ended AS e
WHERE NOT EXISTS (
  FROM advice_gap AS g
  WHERE g.device_id = e.device_id AND g.start_ns = e.start_ns AND (g.cause <> 'host' OR g.host_id IS NOT NULL)
)
