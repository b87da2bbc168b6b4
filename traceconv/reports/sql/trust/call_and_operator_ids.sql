-- [finding.lost_calls]
-- doc = "Holes in the correlation IDs of the calls, or of the tasks of rocprofv3 without calls, in runs of one process: of any width if there is at most one hole per 16 IDs, otherwise at least 64 times as wide as their mean distance, from 1,024 calls on. In the row with the place start, IDs before the first one of rocprofv3, which counts from 1."
-- heuristic = true
-- count = "holes; IDs at the start"
-- total = "IDs"
-- affected = "time between the calls around the holes"
-- reports = "all"
-- [finding.lost_operators]
-- doc = "IDs missing between operators of one thread in PyTorch traces of up to 200,000 operators, if there is at most one hole per 16 IDs."
-- heuristic = true
-- count = "IDs"
-- total = "operators"
-- affected = "time between the operators around the holes"
-- reports = "op-tree, idle-causes, roofline, step-breakdown"
-- [finding.orphan_tasks]
-- doc = "Tasks whose operator, by their External id, is missing, in PyTorch traces of up to 200,000 operators, if most tasks have theirs."
-- heuristic = true
-- count = "tasks"
-- total = "tasks with an External id"
-- affected = "sum of the durations"
-- reports = "op-tree, roofline, step-breakdown"
WITH with_operators AS (
  -- Args take time to read: those of a million operators half a second.
  SELECT o.run_id
  FROM "range" AS o
  WHERE o.kind = 'host_op' AND {{selected(o.run_id)}}
    AND o.run_id IN (SELECT run_id FROM run WHERE writer LIKE 'PyTorch%')
  GROUP BY o.run_id
  HAVING count(*) <= 200000
), operator_id AS MATERIALIZED (
  SELECT r.run_id, r.track_id, r.start_ns, TRY_CAST(regexp_extract(r.args, '"External id" *: *"?([0-9]+)', 1) AS BIGINT) AS id
  FROM "range" AS r
  JOIN with_operators AS u ON u.run_id = r.run_id
  WHERE r.kind IN ('host_op', 'annotation') AND r.category IS DISTINCT FROM 'gpu_user_annotation'
), id_word AS MATERIALIZED (
  SELECT run_id, word, bit_or(bits) AS bits
  FROM called_word
  GROUP BY run_id, word
  UNION ALL
  SELECT run_id, word, bits FROM with_task
  WHERE run_id NOT IN (SELECT run_id FROM called_word) AND run_id IN (SELECT run_id FROM run WHERE source_format = 'rocprofv3')
), numbered AS MATERIALIZED (
  SELECT *, CASE WHEN holes * 16 <= used THEN 1
                 WHEN used >= 1024 THEN 64 * span // used END AS width
  FROM (
    SELECT run_id, sum(bit_count(bits)) AS used, (max(word)::HUGEINT - min(word) + 1) * 64 AS span,
           min(word) * 64 + arg_min(bit_count(~bits & (bits - 1)), word) AS first_id,
           -- IDs without the one before them.
           sum(bit_count(bits & ~((bits & 9223372036854775807) << 1))
               - coalesce(previous > 9223372036854775807 AND bits & 1 = 1, false)::BIGINT) - 1 AS holes
    FROM (
      -- A window over the words takes three times as long.
      SELECT w.*, p.bits AS previous
      FROM id_word AS w
      LEFT JOIN id_word AS p ON p.run_id = w.run_id AND p.word = w.word - 1
    )
    GROUP BY run_id
  )
), hole AS MATERIALIZED (
  SELECT 'lost_calls' AS finding, run_id, used, span, id, lag(id) OVER w AS previous
  FROM (
    SELECT w.run_id, n.used, n.span, n.width,
           w.word * 64 + unnest(CASE WHEN n.width = 1 THEN list_filter(range(64), lambda i: (w.bits >> i::UBIGINT) & 1 = 1)
                                     ELSE [bit_count(~w.bits & (w.bits - 1)), length(bin(w.bits)) - 1] END) AS id
    FROM id_word AS w
    JOIN numbered AS n ON n.run_id = w.run_id AND n.width IS NOT NULL AND n.holes > 0
  )
  WINDOW w AS (PARTITION BY run_id ORDER BY id)
  QUALIFY id - previous > width
  UNION ALL
  -- Threads number their operators from other IDs on, so only holes between two of one thread count.
  SELECT 'lost_operators', run_id, used, last_id::HUGEINT - first_id + 1, id, previous
  FROM (
    SELECT *, count(CASE WHEN id - previous > 1 THEN 1 END) OVER (PARTITION BY run_id) AS holes
    FROM (
      SELECT *, lag(id) OVER w AS previous, lag(track_id) OVER w = track_id AS is_same,
             count(*) OVER (PARTITION BY run_id) AS used, min(id) OVER (PARTITION BY run_id) AS first_id,
             max(id) OVER (PARTITION BY run_id) AS last_id
      FROM operator_id
      WHERE id IS NOT NULL
      WINDOW w AS (PARTITION BY run_id ORDER BY id)
    )
  )
  WHERE id - previous > 1 AND is_same AND holes * 16 <= used
), around_hole AS (
  -- Calls and operators are read again for the few runs with holes only.
  SELECT 'lost_calls' AS finding, a.run_id, a.correlation_id AS id, a.start_ns FROM api AS a
  UNION ALL
  SELECT 'lost_calls', t.run_id, t.correlation_id, t.start_ns
  FROM task AS t
  WHERE t.run_id IN (SELECT run_id FROM hole WHERE run_id NOT IN (SELECT run_id FROM called_word))
  UNION ALL
  SELECT 'lost_operators', run_id, id, start_ns FROM operator_id
), hole_side AS (
  SELECT a.finding, a.run_id, a.id, min(a.start_ns) AS first_ns, max(a.start_ns) AS last_ns
  FROM around_hole AS a
  SEMI JOIN (SELECT finding, run_id, unnest([previous, id]) AS id FROM hole) AS h
    ON h.finding = a.finding AND h.run_id = a.run_id AND h.id = a.id
  GROUP BY a.finding, a.run_id, a.id
), lost_id AS (
  SELECT h.finding, h.run_id, any_value(h.used) AS used, sum(greatest(n.first_ns::HUGEINT - p.last_ns, 0)) AS lasts,
         CASE WHEN h.finding = 'lost_calls' THEN count(*) ELSE sum(h.id - h.previous - 1) END AS count
  FROM hole AS h
  JOIN hole_side AS p ON p.finding = h.finding AND p.run_id = h.run_id AND p.id = h.previous
  JOIN hole_side AS n ON n.finding = h.finding AND n.run_id = h.run_id AND n.id = h.id
  -- Each process has its own IDs.
  WHERE h.finding = 'lost_operators' OR h.run_id NOT IN (
    SELECT k.run_id
    FROM (SELECT DISTINCT a.run_id, a.track_id FROM api AS a SEMI JOIN hole AS o ON o.run_id = a.run_id) AS u
    JOIN track AS k ON k.run_id = u.run_id AND k.track_id = u.track_id
    GROUP BY k.run_id
    HAVING count(DISTINCT coalesce(k.process_id, -1)) > 1
  )
  GROUP BY h.finding, h.run_id
  -- IDs that leave out more than they use are not consecutive.
  HAVING sum(h.id - h.previous - 1) * 2 <= any_value(h.span)
), operator AS (
  SELECT DISTINCT run_id, id FROM operator_id WHERE id IS NOT NULL
), operator_task AS (
  SELECT t.run_id, t.dur_ns, TRY_CAST(regexp_extract(t.args, '"[Ee]xternal id" *: *"?([0-9]+)', 1) AS BIGINT) AS id
  FROM task AS t
  JOIN with_operators AS u ON u.run_id = t.run_id
  WHERE t.kind IS DISTINCT FROM 'sync'
)
SELECT run_id, finding, NULL, count, used, lasts FROM lost_id
UNION ALL
SELECT n.run_id, 'lost_calls', 'start', n.first_id - 1, n.used, NULL
FROM numbered AS n
WHERE n.width = 1 AND n.run_id NOT IN (SELECT run_id FROM called_word)
UNION ALL
SELECT t.run_id, 'orphan_tasks', NULL, count(*) - count(o.id), count(*), sum(CASE WHEN o.id IS NULL THEN t.dur_ns END)
FROM operator_task AS t
LEFT JOIN operator AS o ON o.run_id = t.run_id AND o.id = t.id
WHERE t.id > 0
GROUP BY t.run_id
HAVING count(o.id) * 2 >= count(*)
