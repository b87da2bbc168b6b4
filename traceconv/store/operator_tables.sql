--- runs
-- A join of all rows would exceed the memory limit. Of one run, the first row is enough. Most args have no inputs, for
-- which one search takes half as long as two.
WITH with_shapes AS MATERIALIZED (
  SELECT {distinct} run_id FROM "range"
  WHERE run_id IN ({runs}) AND kind = 'host_op'
    AND contains(args, '"Input ') AND (contains(args, '"Input Dims"') OR contains(args, '"Input dims"'))
  {limit}
), with_tasks AS MATERIALIZED (
  SELECT DISTINCT run_id FROM task WHERE run_id IN ({runs})
)
SELECT run_id FROM with_shapes SEMI JOIN with_tasks USING (run_id) ORDER BY run_id

--- overloads
-- With capture_overload_names, PyTorch's profiler adds the overload: aten::add.Tensor.
INSERT INTO temp.formula_name
SELECT name
FROM (SELECT DISTINCT name FROM "range" WHERE run_id IN ({runs}) AND kind = 'host_op' AND contains(name, '.'))
WHERE split_part(name, '.', 1) IN (FROM temp.formula_name)

--- launched
CREATE OR REPLACE TEMP TABLE launched AS
SELECT t.run_id, t.id, t.api_id, f.range_id AS slice_id
FROM task AS t
LEFT JOIN temp.linked AS f ON f.run_id = t.run_id AND f.id = t.id
WHERE t.run_id IN ({runs}) AND t.kind IS DISTINCT FROM 'sync' AND coalesce(t.api_id, f.range_id) IS NOT NULL;
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT run_id, slice_id, slice_id AS at_id, NULL::BIGINT AS first_id, true AS by_formula
FROM (SELECT run_id, api_id AS slice_id FROM temp.launched UNION SELECT run_id, slice_id FROM temp.launched)
WHERE slice_id IS NOT NULL;
CREATE OR REPLACE TEMP TABLE found (run_id BIGINT, slice_id BIGINT, range_id BIGINT)

--- step_up
-- first_id: the innermost operator, which counts if none around it has a formula. by_formula: whether one may have.
CREATE OR REPLACE TEMP TABLE reached AS
SELECT f.run_id, f.slice_id, f.by_formula, n.id, n.parent_id, n.has_formula,
       coalesce(f.first_id, CASE WHEN n.is_op THEN n.id END) AS first_id
FROM temp.frontier AS f
JOIN (
  SELECT run_id, id, parent_id, kind = 'host_op' AS is_op,
         kind = 'host_op' AND name IN (FROM temp.formula_name) AS has_formula
  FROM "range" WHERE run_id IN ({runs})
  UNION ALL
  SELECT run_id, id, parent_id, false, false FROM api WHERE run_id IN ({runs})
) AS n ON n.run_id = f.run_id AND n.id = f.at_id;
INSERT INTO temp.found
SELECT run_id, slice_id, CASE WHEN has_formula THEN id ELSE first_id END
FROM temp.reached
WHERE has_formula OR (first_id IS NOT NULL AND (parent_id IS NULL OR NOT by_formula));
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT run_id, slice_id, parent_id AS at_id, first_id, by_formula
FROM temp.reached
WHERE NOT has_formula AND parent_id IS NOT NULL AND (first_id IS NULL OR by_formula)

--- enclosed
-- How far the operators reach that started until then: one encloses a slice if it reaches the slice's end.
CREATE OR REPLACE TEMP TABLE reach AS
SELECT run_id, track_id, start_ns, max(end_ns) OVER until AS op_end_ns,
       max(CASE WHEN has_formula THEN end_ns END) OVER until AS formula_end_ns
FROM (
  SELECT run_id, track_id, start_ns, coalesce(TRY(start_ns + dur_ns), 9223372036854775807) AS end_ns,
         name IN (FROM temp.formula_name) AS has_formula
  FROM "range" WHERE run_id IN ({runs}) AND kind = 'host_op'
)
WINDOW until AS (PARTITION BY run_id, track_id ORDER BY start_ns);
CREATE OR REPLACE TEMP TABLE enclosed AS
SELECT f.* EXCLUDE (by_formula), coalesce(r.op_end_ns >= s.end_ns, false) AS by_op,
       coalesce(r.formula_end_ns >= s.end_ns, false) AS by_formula
FROM temp.frontier AS f
JOIN (
  SELECT n.run_id, n.id, n.track_id, n.start_ns, coalesce(TRY(n.start_ns + n.dur_ns), n.start_ns) AS end_ns
  FROM (
    SELECT run_id, id, track_id, start_ns, dur_ns FROM "range" WHERE run_id IN ({runs})
    UNION ALL
    SELECT run_id, id, track_id, start_ns, dur_ns FROM api WHERE run_id IN ({runs})
  ) AS n
  SEMI JOIN temp.frontier AS f ON f.run_id = n.run_id AND f.slice_id = n.id
) AS s ON s.run_id = f.run_id AND s.id = f.slice_id
ASOF LEFT JOIN temp.reach AS r ON r.run_id = s.run_id AND r.track_id = s.track_id AND r.start_ns <= s.start_ns;
INSERT INTO temp.found
SELECT run_id, slice_id, first_id FROM temp.enclosed WHERE first_id IS NOT NULL AND NOT by_formula;
CREATE OR REPLACE TEMP TABLE frontier AS
SELECT run_id, slice_id, at_id, first_id, by_formula FROM temp.enclosed
WHERE CASE WHEN first_id IS NULL THEN by_op ELSE by_formula END

--- names
-- In the order of names.
CREATE OR REPLACE TEMP TABLE operator_name AS
SELECT name, row_number() OVER (ORDER BY name) AS number, name IN (FROM temp.formula_name) AS has_formula
FROM (SELECT DISTINCT name FROM "range" WHERE run_id IN ({runs}) AND kind = 'host_op')

--- calls
-- Only formulas need the values, of which some calls have a new one each.
SELECT run_id, id, number AS name, coalesce(given[1], given[2])::VARCHAR AS dims, given[3]::VARCHAR AS types,
       CASE WHEN has_formula THEN given[4]::VARCHAR END AS "values"
FROM (
  SELECT r.run_id, r.id, n.number, n.has_formula, json_extract(r.args, {keys}) AS given
  FROM "range" AS r
  SEMI JOIN (FROM (SELECT run_id, range_id AS id FROM temp.found) WHERE {part}) AS f
    ON f.run_id = r.run_id AND f.id = r.id
  JOIN temp.operator_name AS n ON n.name IS NOT DISTINCT FROM r.name
  WHERE r.run_id IN ({runs}) AND r.{part}
)

--- sorted_calls
SELECT run_id, id, name, dims, types, "values" FROM temp.operator_call
ORDER BY run_id, name, dims, types, "values"

--- outer_calls
-- Of operators inside each other, the inner one does the work: the next product that starts does so before the end. A
-- join of each operator with those inside takes time quadratic in their number.
CREATE OR REPLACE TEMP TABLE outer_call AS
SELECT run_id, id
FROM (
  SELECT r.run_id, r.id, k.is_composite, coalesce(TRY(r.start_ns + r.dur_ns), 9223372036854775807) AS end_ns,
         min(CASE WHEN k.is_matrix THEN r.start_ns END) OVER later AS next_ns
  FROM (FROM temp.known_call WHERE is_composite OR is_matrix) AS k
  JOIN "range" AS r ON r.run_id = k.run_id AND r.id = k.id
  WHERE r.run_id IN ({runs})
  WINDOW later AS (
    PARTITION BY r.run_id, r.track_id ORDER BY r.start_ns, r.depth, r.id
    ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
)
WHERE is_composite AND next_ns < end_ns

--- by_call
-- Operators around the call before those that a flow links.
SELECT l.run_id, l.task_id, f.range_id
FROM (FROM (SELECT run_id, id AS task_id, api_id AS id FROM temp.launched) WHERE {part}) AS l
JOIN (FROM (SELECT run_id, slice_id AS id, range_id FROM temp.found) WHERE {part}) AS f
  ON f.run_id = l.run_id AND f.id = l.id

--- by_flow
INSERT INTO temp.placed
SELECT l.run_id, l.id, f.range_id
FROM (FROM temp.launched WHERE slice_id IS NOT NULL) AS l
JOIN temp.found AS f ON f.run_id = l.run_id AND f.slice_id = l.slice_id
ANTI JOIN temp.placed AS p ON p.run_id = l.run_id AND p.task_id = l.id

--- tasks
SELECT c.run_id, c.id, c.operator_id, c.range_id, t.device_id, t.step_id, t.op_id, t.kind, t.start_ns, t.dur_ns,
       {rank} AS rank
FROM (
  SELECT p.run_id, p.task_id AS id, k.id AS range_id,
         CASE WHEN o.id IS NULL THEN k.operator_id ELSE k.bare_id END AS operator_id
  FROM (FROM (SELECT run_id, task_id, range_id AS id FROM temp.placed) WHERE {part}) AS p
  JOIN (FROM temp.known_call WHERE {part}) AS k ON k.run_id = p.run_id AND k.id = p.id
  LEFT JOIN (FROM temp.outer_call WHERE {part}) AS o ON o.run_id = p.run_id AND o.id = p.id
) AS c
JOIN task AS t ON t.run_id = c.run_id AND t.id = c.id
WHERE t.run_id IN ({runs})

--- insert_tasks
INSERT INTO task_operator BY NAME
SELECT * EXCLUDE (rank), ['compute', 'collective', 'copy', 'transfer'][1 + rank] AS call_kind,
       'recorded' AS attribution
FROM task_rows

--- categories
-- It takes longer than everything else here: once per name, and only where no formula has one.
CREATE OR REPLACE TEMP TABLE operator_category AS
SELECT n.number, kernel_category(n.name) AS category
FROM temp.operator_name AS n
SEMI JOIN name_rows AS r ON r.name = n.number

--- named
-- Numbers of names are consecutive.
SELECT n.name, c.category
FROM temp.operator_name AS n
LEFT JOIN temp.operator_category AS c USING (number)
WHERE n.number BETWEEN {min} AND {max}
ORDER BY n.number
