-- [finding.lost_flows]
-- doc = "Tasks with a launch to which no flow leads, in PyTorch traces."
-- count = "tasks"
-- total = "tasks with a launch"
-- reports = "exports (arrows)"
-- [finding.broken_flows]
-- doc = "Flows from or to no event; in another row, flows without a start or end, in PyTorch traces only those beyond one per call without a task (the profiler writes them); in a third row, flows of torch_npu's queue that don't lead from an enqueue to a dequeue."
-- count = "flows"
-- total = "flows; unknown of those without a start or end"
-- reports = "op-tree, exports (arrows)"
WITH led AS (
  SELECT f.run_id, count(DISTINCT t.id) AS tasks
  FROM flow AS f
  JOIN task AS t ON t.run_id = f.run_id AND t.id = f.dst_id AND t.api_id IS NOT NULL AND t.kind IS DISTINCT FROM 'sync'
  -- Also from other tasks: to a node of a graph that waits for others, the profiler writes no flow from a call.
  WHERE f.run_id IN (SELECT run_id FROM run WHERE writer LIKE 'PyTorch%') AND {{selected(f.run_id)}}
  GROUP BY f.run_id
), loose AS (
  SELECT l.run_id, r.writer LIKE 'PyTorch%' AS is_pytorch, sum(l.event_count) AS flows
  FROM import_log AS l
  JOIN run AS r ON r.run_id = l.run_id AND r.source_format = 'chrome_json'
  WHERE l.code = 'loose_flow' AND {{selected(l.run_id)}}
  GROUP BY ALL
), single AS (
  -- PyTorch's profiler writes a start or end for each call and task, even without a partner. Those of waits have no start.
  SELECT run_id, sum(flows) AS flows
  FROM (
    SELECT c.run_id, bit_count(c.bits & ~coalesce(t.bits, 0::UBIGINT)) AS flows
    FROM called_word AS c
    LEFT JOIN with_task AS t ON t.run_id = c.run_id AND t.word = c.word
    WHERE c.run_id IN (SELECT run_id FROM loose WHERE is_pytorch)
    UNION ALL
    SELECT t.run_id, sum(CASE WHEN t.kind = 'sync' THEN 2 ELSE 1 END)
    FROM task AS t
    WHERE (t.kind = 'sync' OR t.api_id IS NULL) AND t.run_id IN (SELECT run_id FROM loose WHERE is_pytorch)
    GROUP BY t.run_id
  )
  GROUP BY run_id
)
SELECT t.run_id, 'lost_flows', NULL, t.launched - coalesce(l.tasks, 0), t.launched, NULL
FROM tested AS t
JOIN run AS r ON r.run_id = t.run_id AND r.writer LIKE 'PyTorch%'
LEFT JOIN led AS l ON l.run_id = t.run_id
UNION ALL
SELECT run_id, 'broken_flows', NULL, broken, flows, NULL FROM run_flow
UNION ALL
SELECT l.run_id, 'broken_flows', NULL, l.flows - coalesce(s.flows, 0), NULL, NULL
FROM loose AS l
LEFT JOIN single AS s ON s.run_id = l.run_id
WHERE l.is_pytorch OR NOT l.is_pytorch AND l.run_id IN (SELECT run_id FROM tested)
UNION ALL
SELECT f.run_id, 'broken_flows', NULL, count(CASE WHEN s.category = 'enqueue' AND d.category = 'dequeue' THEN NULL ELSE 1 END),
       count(*), NULL
FROM flow AS f
LEFT JOIN "range" AS s ON s.run_id = f.run_id AND s.id = f.src_id
LEFT JOIN "range" AS d ON d.run_id = f.run_id AND d.id = f.dst_id
WHERE f.category = 'async_task_queue' AND {{selected(f.run_id)}}
GROUP BY f.run_id
