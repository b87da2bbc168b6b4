-- title = "Synchronisation leaves the device idle"
-- doc = "Idle times of 10 µs or more before which the launching thread had waited for the device, so that nothing was queued (cause synchronisation of idle-gaps). Also idle times that began during a wait of another thread for the device, which ended before the next task, unless the launching thread did something else for half of the time. The subjects are the functions that the launching thread was in."
-- saving = "Idle times after waits for the device, each at most as long as the wait: without the wait, the host would launch the next tasks earlier by that time, and needs the rest of the idle time anyway. An upper bound, reached if no wait is needed."
-- basis = "upper bound"
-- suggestion = "Read results later or less often: avoid .item(), .cpu(), printing tensors and shapes that depend on values; copy without blocking from pinned memory."
-- reads = ["idle-gaps"]
-- evidence = "WITH $pauses, idle AS (FROM idle_gaps(run := $run, device := $device)), wait AS (SELECT track_id, start_ns, TRY(start_ns + dur_ns) AS end_ns, dur_ns FROM api WHERE run_id = $run AND regexp_matches(name, '(?i)synchroni[sz]e') AND TRY(start_ns + dur_ns) IS NOT NULL), gap AS (SELECT p.*, TRY(p.end_ns - p.start_ns) AS gap_ns, g.cause, g.host_id, g.host_name, g.thread_id FROM pause AS p LEFT JOIN idle AS g ON g.start_ns = p.start_ns) SELECT g.task_name, g.start_ns, g.end_ns, g.gap_ns, g.cause, g.host_name, CASE WHEN w.end_ns >= g.start_ns THEN least(g.gap_ns, w.dur_ns) ELSE g.gap_ns END AS saving_ns FROM gap AS g ASOF LEFT JOIN wait AS w ON w.track_id = g.thread_id AND w.start_ns <= g.start_ns WHERE g.cause = 'synchronisation' UNION ALL SELECT g.task_name, g.start_ns, g.end_ns, g.gap_ns, g.cause, g.host_name, max(least(g.gap_ns, w.dur_ns)) FROM gap AS g JOIN wait AS w ON w.start_ns <= g.start_ns AND w.end_ns BETWEEN g.start_ns AND g.end_ns WHERE coalesce(g.cause, 'host') = 'host' AND g.host_id IS NULL GROUP BY ALL ORDER BY saving_ns DESC"
WITH wait AS (
  SELECT track_id, start_ns, TRY(start_ns + dur_ns) AS end_ns, dur_ns
  FROM api
  WHERE run_id = $run AND (contains(lower(name), 'synchronise') OR contains(lower(name), 'synchronize'))
    AND TRY(start_ns + dur_ns) IS NOT NULL
), ended AS (
  SELECT p.device_id, p.start_ns, p.end_ns, max(w.dur_ns) AS wait_ns
  FROM wait AS w
  CROSS JOIN advice_device AS d
  ASOF JOIN advice_pause AS p ON d.device_id = p.device_id AND w.end_ns >= p.start_ns
  WHERE w.end_ns <= p.end_ns AND w.start_ns <= p.start_ns
  GROUP BY p.device_id, p.start_ns, p.end_ns
)
SELECT g.device_id, g.host_name AS subject,
       CASE WHEN w.end_ns >= g.start_ns THEN least(g.gap_ns, w.dur_ns) ELSE g.gap_ns END AS saving_ns, 1 AS count
FROM (FROM advice_gap WHERE cause = 'synchronisation') AS g
ASOF LEFT JOIN wait AS w ON w.track_id = g.thread_id AND w.start_ns <= g.start_ns
UNION ALL
SELECT e.device_id, NULL, least(e.end_ns - e.start_ns, e.wait_ns), 1
FROM ended AS e
WHERE NOT EXISTS (
  FROM advice_gap AS g
  WHERE g.device_id = e.device_id AND g.start_ns = e.start_ns AND (g.cause <> 'host' OR g.host_id IS NOT NULL)
)
