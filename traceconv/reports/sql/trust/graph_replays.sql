-- [finding.unmatched_replays]
-- doc = "Tasks of graph replays whose operator and module are unknown."
-- count = "tasks"
-- total = "tasks of graph replays"
-- affected = "sum of the durations"
-- reports = "op-tree, roofline, kernels (by shape)"
-- [finding.aligned_replays]
-- doc = "Tasks of graph replays whose operator and module are known by aligning the replay with a reference (graph_replay)."
-- heuristic = true
-- count = "tasks"
-- total = "tasks of graph replays"
-- affected = "sum of the durations"
-- reports = "op-tree, roofline, kernels (by shape)"
SELECT g.run_id, CASE WHEN g.reference_id IS NULL THEN 'unmatched_replays' ELSE 'aligned_replays' END, NULL, count(*),
       any_value(n.tasks), sum(t.dur_ns)
FROM graph_replay AS g
JOIN task AS t ON t.run_id = g.run_id AND t.id = g.id
JOIN (SELECT run_id, count(*) AS tasks FROM graph_replay GROUP BY run_id) AS n ON n.run_id = g.run_id
WHERE {{selected(g.run_id)}} AND (g.reference_id IS NOT NULL OR g.operator_name IS NULL)
GROUP BY g.run_id, g.reference_id IS NULL
