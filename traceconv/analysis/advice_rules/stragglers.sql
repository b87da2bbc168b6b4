-- title = "A rank is late, and the others wait for it"
-- doc = "Ranks of one group whose steps have the same numbers, as in the report stragglers: the slowest rank's work in a step, without exposed collectives, against the median of the ranks. The subjects are the slowest ranks and what they are late in."
-- saving = "Sum over the steps of the slowest rank's work minus the median of the ranks: an upper bound for the job, reached if no rank is later than the median."
-- basis = "upper bound"
-- suggestion = "Compare the late rank with another one (compare): data of unequal length, a slow disk or host, thermal limits, other processes."
-- reads = ["step-breakdown", "breakdown"]
-- only_if = "SELECT count(DISTINCT r.rank) >= 2 FROM run AS r JOIN run AS s ON s.run_id = $run AND s.rank IS NOT NULL AND r.group_label IS NOT DISTINCT FROM s.group_label"
-- evidence = "SELECT iteration, rank, late_ns, late_in FROM stragglers ORDER BY late_ns DESC"
WITH numbered AS (
  SELECT s.*, row_number() OVER (PARTITION BY s.run_id, s.device_id, s.iteration ORDER BY s.step_id) AS place
  FROM stragglers() AS s
  JOIN run AS r ON r.run_id = $run AND r.group_label IS NOT DISTINCT FROM s.group_label
), late AS (
  SELECT max(work_ns) - quantile_disc(work_ns, 0.5) AS lost_ns, arg_max(rank, work_ns) AS rank,
         arg_max(late_in, work_ns) AS late_in
  FROM numbered
  GROUP BY iteration, place
)
SELECT d.device_id, 'rank ' || l.rank || coalesce(' in ' || l.late_in, '') AS subject, l.lost_ns AS saving_ns, 1 AS count
FROM late AS l
CROSS JOIN (SELECT min(device_id) AS device_id FROM advice_device) AS d
