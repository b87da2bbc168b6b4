--- runs
SELECT DISTINCT a.run_id FROM api AS a
WHERE a.run_id IN ({runs}) AND {is_launch_a} ORDER BY a.run_id

--- has_nodes
SELECT 1 FROM api WHERE run_id = {run} AND category = 'cuda_graph' LIMIT 1

--- captured
-- The ranges in which the nodes of tasks were captured.
CREATE OR REPLACE TEMP TABLE captured AS
SELECT id, range_name FROM graph_node_range WHERE run_id = {run} AND range_name IS NOT NULL

--- none_captured
CREATE OR REPLACE TEMP TABLE captured (id BIGINT, range_name VARCHAR)

--- replayed
CREATE OR REPLACE TEMP TABLE replayed AS
SELECT t.id, t.api_id, t.device_id, t.stream_id, t.start_ns, t.name, {size} AS size
FROM task AS t
JOIN api AS a ON a.run_id = t.run_id AND a.id = t.api_id
WHERE t.run_id = {run} AND a.run_id = {run} AND {is_launch_a}
  AND t.kind IS DISTINCT FROM 'sync';
CREATE OR REPLACE TEMP TABLE replayed_name AS
SELECT name, (row_number() OVER (ORDER BY name))::BIGINT AS name_id
FROM (SELECT DISTINCT name FROM temp.replayed WHERE name IS NOT NULL);
CREATE OR REPLACE TEMP TABLE eligible AS
SELECT t.id, t.device_id, t.stream_id, t.start_ns, n.name_id, CASE WHEN n.name_id IS NOT NULL THEN {size} END AS size
FROM task AS t
ANTI JOIN (
  SELECT id FROM api WHERE run_id = {reference} AND {is_launch}
) AS a ON a.id = t.api_id
LEFT JOIN temp.replayed_name AS n ON n.name = t.name
WHERE t.run_id = {reference} AND t.kind IS DISTINCT FROM 'sync' AND t.start_ns IS NOT NULL
ORDER BY t.start_ns, t.id
LIMIT {most_references};
CREATE OR REPLACE TEMP TABLE replayed_kernel AS
SELECT name_id, size, (row_number() OVER (ORDER BY name_id, size))::BIGINT AS kernel_id
FROM (
  SELECT DISTINCT n.name_id, r.size
  FROM temp.replayed AS r
  JOIN temp.replayed_name AS n ON n.name = r.name
  WHERE r.size IS NOT NULL
);
CREATE OR REPLACE TEMP TABLE pair (
  sequence BIGINT, place BIGINT, reference BIGINT, reference_id BIGINT, is_same_size BOOLEAN
);
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT DISTINCT api_id AS slice_id, api_id AS at_id FROM temp.replayed

--- enclosing
CREATE OR REPLACE TEMP TABLE enclosing (slice_id BIGINT, level BIGINT, kind VARCHAR, name VARCHAR)

--- step_up
CREATE OR REPLACE TEMP TABLE reached AS
SELECT f.slice_id, n.parent_id, n.kind, n.name, n.is_range
FROM temp.frontier AS f
JOIN (
  SELECT id, parent_id, kind, name, true AS is_range FROM "range" WHERE run_id = {run}
  UNION ALL
  SELECT id, parent_id, NULL, NULL, false FROM api WHERE run_id = {run}
) AS n ON n.id = f.at_id;
INSERT INTO temp.enclosing
SELECT slice_id, {level}, kind, name
FROM temp.reached
WHERE is_range;
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT slice_id, parent_id AS at_id FROM temp.reached WHERE parent_id IS NOT NULL

--- launch_paths
-- The ranges around the launch of a graph, from the outermost one.
CREATE OR REPLACE TEMP TABLE launch_chain AS
SELECT slice_id, row_number() OVER (PARTITION BY slice_id ORDER BY level DESC) - 1 AS depth,
       {path_name} AS name
FROM temp.enclosing AS r;
CREATE OR REPLACE TEMP TABLE launch_path AS
SELECT DISTINCT api_id AS slice_id, NULL::BIGINT AS path_id FROM temp.replayed

--- step_down
CREATE OR REPLACE TEMP TABLE launch_path AS
SELECT l.slice_id, CASE WHEN c.slice_id IS NULL THEN l.path_id ELSE p.path_id END AS path_id
FROM temp.launch_path AS l
LEFT JOIN temp.launch_chain AS c ON c.slice_id = l.slice_id AND c.depth = {level}
LEFT JOIN range_path AS p ON p.run_id = {run} AND p.depth = {level} AND p.name = c.name
  AND p.parent_path_id IS NOT DISTINCT FROM l.path_id

--- sequences
-- In the order in which a stream runs them.
SELECT r.api_id, r.id, coalesce(n.name_id, {unnamed}) AS name_id, coalesce(k.kernel_id, {unnamed}) AS kernel_id,
       coalesce(lag(r.api_id) OVER in_order IS DISTINCT FROM r.api_id
                OR lag(r.device_id) OVER in_order IS DISTINCT FROM r.device_id
                OR lag(r.stream_id) OVER in_order IS DISTINCT FROM r.stream_id, true) AS begins
FROM temp.replayed AS r
LEFT JOIN temp.replayed_name AS n ON n.name = r.name
LEFT JOIN temp.replayed_kernel AS k ON k.name_id = n.name_id AND k.size = r.size
WINDOW in_order AS (ORDER BY r.api_id, r.device_id, r.stream_id, r.start_ns, r.id)
ORDER BY r.api_id, r.device_id, r.stream_id, r.start_ns, r.id

--- reference
SELECT e.id, coalesce(e.name_id, {nothing}) AS name_id, coalesce(k.kernel_id, {nothing}) AS kernel_id,
       coalesce(lag(e.device_id) OVER in_order IS DISTINCT FROM e.device_id
                OR lag(e.stream_id) OVER in_order IS DISTINCT FROM e.stream_id, true) AS begins
FROM temp.eligible AS e
LEFT JOIN temp.replayed_kernel AS k ON k.name_id = e.name_id AND k.size = e.size
WINDOW in_order AS (ORDER BY e.device_id, e.stream_id, e.start_ns, e.id)
ORDER BY e.device_id, e.stream_id, e.start_ns, e.id

--- launched
-- The launching call, and the source of a flow that leads to the task.
CREATE OR REPLACE TEMP TABLE launched AS
WITH matched AS (
  SELECT DISTINCT reference_id AS id FROM temp.pair
), linked AS (
  SELECT f.dst_id AS id, min(r.id) AS slice_id
  FROM flow AS f
  SEMI JOIN matched AS m ON m.id = f.dst_id
  JOIN "range" AS r ON r.run_id = f.run_id AND r.id = f.src_id
  WHERE f.run_id = {reference}
  GROUP BY f.dst_id
)
SELECT t.id, t.api_id, l.slice_id
FROM task AS t
SEMI JOIN matched AS m ON m.id = t.id
LEFT JOIN linked AS l ON l.id = t.id
WHERE t.run_id = {reference};
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT slice_id, slice_id AS at_id
FROM (SELECT api_id AS slice_id FROM temp.launched UNION SELECT slice_id FROM temp.launched)
WHERE slice_id IS NOT NULL

--- aligned
-- What the places of a sequence agree in. With a reference elsewhere, the operator's number is that of its run.
CREATE OR REPLACE TEMP TABLE agreed AS
WITH inner_most AS (
  SELECT slice_id, arg_min(name, level) FILTER (WHERE kind = 'host_op') AS operator_name,
         arg_min(name, level) FILTER (WHERE kind = 'module') AS module_name
  FROM temp.enclosing
  GROUP BY slice_id
), known AS (
  SELECT l.id, coalesce(c.operator_name, f.operator_name) AS operator_name,
         coalesce(c.module_name, f.module_name) AS module_name,
         coalesce(p.name, c.operator_name, f.operator_name) AS worker_name, o.operator_id, o.range_id
  FROM temp.launched AS l
  LEFT JOIN inner_most AS c ON c.slice_id = l.api_id
  LEFT JOIN inner_most AS f ON f.slice_id = l.slice_id
  LEFT JOIN task_operator AS o ON o.run_id = {reference} AND o.id = l.id
  LEFT JOIN operator AS p ON p.run_id = {reference} AND p.operator_id = o.operator_id
)
SELECT p.sequence, p.place, arg_min(p.reference_id, p.reference) AS reference_id,
       CASE WHEN count(DISTINCT coalesce(k.operator_name, '')) = 1 THEN any_value(k.operator_name) END AS operator_name,
       CASE WHEN count(DISTINCT coalesce(k.module_name, '')) = 1 THEN any_value(k.module_name) END AS module_name,
       -- The operator with a formula, as in task_operator.
       CASE WHEN count(DISTINCT coalesce(k.worker_name, '')) = 1 THEN any_value(k.worker_name) END AS worker_name,
       CASE WHEN count(DISTINCT coalesce(k.operator_id, -1)) = 1 THEN any_value(k.operator_id) END AS operator_id,
       arg_min_null(k.range_id, p.reference) AS range_id, bool_and(p.is_same_size) AS is_same_size
FROM temp.pair AS p
LEFT JOIN known AS k ON k.id = p.reference_id
GROUP BY p.sequence, p.place;
CREATE OR REPLACE TEMP TABLE aligned AS
WITH placed AS (
  SELECT r.id, r.api_id AS launch_id, a.operator_name, a.module_name, a.worker_name, a.operator_id, a.range_id,
         a.is_same_size,
         CASE WHEN coalesce(a.operator_name, a.module_name) IS NOT NULL THEN a.reference_id END AS reference_id
  FROM temp.replayed AS r
  LEFT JOIN temp.place_of AS p ON p.id = r.id
  LEFT JOIN temp.agreed AS a ON a.sequence = p.sequence AND a.place = p.place
)
SELECT * REPLACE (CASE WHEN reference_id IS NOT NULL THEN bool_and(is_same_size) OVER of_launch END AS is_same_size),
       count(reference_id) OVER of_launch AS matched_count, count(*) OVER of_launch AS task_count
FROM placed
WINDOW of_launch AS (PARTITION BY launch_id);
INSERT INTO graph_replay BY NAME
SELECT {run} AS run_id, id, launch_id, path_id,
       CASE WHEN {run} <> {reference} THEN (SELECT label FROM run WHERE run_id = {reference}) END AS reference_label,
       reference_id, CASE WHEN reference_id IS NULL THEN c.range_name ELSE operator_name END AS operator_name, module_name,
       is_same_size, matched_count, task_count
FROM temp.aligned
LEFT JOIN temp.captured AS c USING (id)
LEFT JOIN temp.launch_path ON slice_id = launch_id

--- has_operators
SELECT 1 FROM task_operator WHERE run_id = {reference} LIMIT 1

--- operators
-- Operators as in the reference; without shapes and work, if the sizes of kernels differ.
CREATE OR REPLACE TEMP TABLE replayed_operator AS
WITH wanted AS (
  SELECT DISTINCT operator_id AS reference_operator_id, worker_name AS name,
         operator_id IS NOT NULL AND is_same_size AS has_shapes
  FROM temp.aligned
  WHERE worker_name IS NOT NULL
), described AS (
  SELECT w.*, o.category, CASE WHEN has_shapes THEN o.input_shapes END AS input_shapes,
         CASE WHEN has_shapes THEN o.input_dtypes END AS input_dtypes,
         CASE WHEN has_shapes THEN o.compute_type END AS compute_type,
         CASE WHEN has_shapes THEN o.flops END AS flops,
         CASE WHEN has_shapes THEN o.read_bytes END AS read_bytes,
         CASE WHEN has_shapes THEN o.write_bytes END AS write_bytes
  FROM wanted AS w
  LEFT JOIN operator AS o ON o.run_id = {reference} AND o.operator_id = w.reference_operator_id
), identified AS (
  SELECT d.* REPLACE (coalesce(d.category, kernel_category(d.name)) AS category), o.operator_id AS known_id
  FROM described AS d
  LEFT JOIN operator AS o
    ON o.run_id = {run} AND {run} = {reference} AND d.has_shapes AND o.operator_id = d.reference_operator_id
)
SELECT *, coalesce(known_id, (SELECT coalesce(max(operator_id), 0) FROM operator WHERE run_id = {run})
         + dense_rank() OVER (
         ORDER BY known_id IS NOT NULL, name, category, input_shapes, input_dtypes, compute_type, flops, read_bytes,
                  write_bytes)) AS operator_id
FROM identified;
INSERT INTO operator BY NAME
SELECT DISTINCT {run} AS run_id, operator_id, name, category, input_shapes, input_dtypes, compute_type, flops,
       read_bytes, write_bytes
FROM temp.replayed_operator
WHERE known_id IS NULL;
-- An operator around the launch of the graph is not the one that the kernel belongs to.
DELETE FROM task_operator
WHERE run_id = {run} AND id IN (SELECT id FROM temp.aligned WHERE worker_name IS NOT NULL);
INSERT INTO task_operator BY NAME
WITH kinds AS (
  SELECT {run} AS run_id, a.id, o.operator_id, a.launch_id, a.range_id, a.reference_id, t.device_id, t.stream_id,
         t.step_id, t.op_id, t.kind, t.start_ns, t.dur_ns, {rank} AS rank
  FROM temp.aligned AS a
  JOIN temp.replayed_operator AS o ON o.name = a.worker_name
    AND o.reference_operator_id IS NOT DISTINCT FROM a.operator_id
    AND o.has_shapes = (a.operator_id IS NOT NULL AND a.is_same_size)
  JOIN task AS t ON t.run_id = {run} AND t.id = a.id
  WHERE t.run_id = {run}
)
SELECT * EXCLUDE (rank, launch_id, reference_id, stream_id)
         REPLACE (CASE WHEN {run} = {reference} THEN range_id END AS range_id),
       ['compute', 'collective', 'copy', 'transfer'][1 + min(rank) OVER of_call] AS call_kind,
       row_number() OVER (of_call ORDER BY start_ns, id) = 1 AS is_first, 'replay' AS attribution
FROM kinds
WINDOW of_call AS (PARTITION BY launch_id, device_id, stream_id, operator_id, coalesce(range_id, reference_id))
