-- [finding.lost_flows]
-- doc = "Tasks with a launch to which no flow leads, in PyTorch traces with such flows."
-- count = "tasks"
-- total = "tasks with a launch"
-- reports = "exports (arrows)"
-- [finding.broken_flows]
-- doc = "Flows from or to no event, and, in another row, without a start or end (except those of PyTorch's profiler, which writes ends alone)."
-- count = "flows"
-- total = "flows; unknown of those without a start or end"
-- reports = "op-tree, exports (arrows)"
SELECT f.run_id, 'lost_flows', NULL, t.launched - f.launches, t.launched, NULL
FROM run_flow AS f
JOIN tested AS t ON t.run_id = f.run_id
JOIN run AS r ON r.run_id = f.run_id
WHERE r.writer LIKE 'PyTorch%' AND f.launches BETWEEN 1 AND t.launched - 1
UNION ALL
SELECT run_id, 'broken_flows', NULL, broken, flows, NULL FROM run_flow
UNION ALL
SELECT l.run_id, 'broken_flows', NULL, sum(l.event_count), NULL, NULL
FROM import_log AS l
JOIN run AS r ON r.run_id = l.run_id AND r.writer NOT LIKE 'PyTorch%' AND r.source_format = 'chrome_json'
WHERE l.code = 'loose_flow' AND l.run_id IN (SELECT run_id FROM tested)
GROUP BY l.run_id
