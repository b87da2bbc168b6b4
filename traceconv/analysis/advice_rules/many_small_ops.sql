-- title = "Many small tasks"
-- doc = "100 or more compute tasks of at most 10 µs, of which each has a fixed cost on the device. It is taken as the duration of the shortest compute tasks (the first percentile of the device), plus the idle time before tasks that were launched in time. Launch costs on the host: launch-bound."
-- saving = "Number of small compute tasks times the fixed cost, plus idle times below 10 µs before tasks that were launched in time: an upper bound, reached if all of them become one task."
-- basis = "upper bound"
-- suggestion = "Join small operators: fuse or compile, batch matrix products, use grouped or for-each optimizers, or larger batches."
-- reads = ["op-statistic", "kernels"]
-- least_percent = 10
-- evidence = "WITH $pauses, part AS (SELECT name, 1 AS task, dur_ns, least(cost_ns, 10000) AS fixed_ns, 0 AS idle_ns FROM (SELECT name, dur_ns, quantile_disc(dur_ns, 0.01) OVER () AS cost_ns FROM task WHERE run_id = $run AND device_id IS NOT DISTINCT FROM $device AND kind = 'compute' AND dur_ns IS NOT NULL) WHERE dur_ns <= 10000 UNION ALL SELECT task_name, 0, 0, 0, least(gap_ns, greatest(0, delay_ns - latency_ns)) FROM (SELECT *, TRY(end_ns - start_ns) AS gap_ns, quantile_disc(delay_ns, 0.01) OVER () AS latency_ns FROM pause) WHERE gap_ns < 10000 AND delay_ns IS NOT NULL) SELECT name, sum(task) AS tasks, sum(dur_ns) AS total_ns, sum(fixed_ns) AS fixed_ns, sum(idle_ns) AS idle_ns, sum(fixed_ns + idle_ns) AS saving_ns FROM part GROUP BY name HAVING saving_ns > 0 ORDER BY saving_ns DESC"
WITH fixed AS (
  SELECT device_id, quantile_disc(dur_ns, 0.01) AS cost_ns, count(*) FILTER (WHERE dur_ns <= 10000) AS tasks
  FROM task
  WHERE run_id = $run AND kind = 'compute' AND dur_ns IS NOT NULL
  GROUP BY device_id
  HAVING tasks >= 100
)
SELECT device_id, NULL AS subject, tasks * least(cost_ns, 10000) AS saving_ns, tasks AS count
FROM fixed
UNION ALL
SELECT i.device_id, NULL, i.dispatch_ns, 0
FROM advice_idle AS i
JOIN fixed AS f ON f.device_id IS NOT DISTINCT FROM i.device_id
