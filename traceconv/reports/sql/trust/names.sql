-- [finding.unknown_collectives]
-- doc = "Tasks of another kind that are named like collectives, or whose first one of the name has the args of a collective."
-- heuristic = true
-- count = "tasks"
-- total = "tasks"
-- affected = "sum of the durations"
-- reports = "breakdown"
-- [finding.cut_names]
-- doc = "Tasks whose names all have the longest length, if this is one that profilers cut at and several names have it that differ in more than numbers."
-- heuristic = true
-- count = "tasks"
-- total = "tasks"
-- reports = "kernels, op-statistic"
WITH by_name AS MATERIALIZED (
  SELECT w.run_id, w.name, count(*) AS tasks, min(w.id) FILTER (WHERE w.kind IS DISTINCT FROM 'collective') AS other_id
  FROM task AS w
  WHERE w.kind IS DISTINCT FROM 'sync' AND {{selected(w.run_id)}}
  GROUP BY w.run_id, w.name
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
)
SELECT u.run_id, 'unknown_collectives', NULL, u.tasks, t.tasks, u.total
FROM unknown_collective AS u
JOIN tested AS t ON t.run_id = u.run_id
UNION ALL
SELECT n.run_id, 'cut_names', NULL, n.tasks, t.tasks, NULL
FROM long_name AS n
JOIN tested AS t ON t.run_id = n.run_id
