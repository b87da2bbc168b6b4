-- [finding.lost_functions]
-- doc = "Operators in parts of a thread's time without Python functions, and outside of backward passes, that have a tenth of its operators or more, if it has such functions."
-- heuristic = true
-- count = "operators"
-- total = "operators of these threads"
-- affected = "time of these parts"
-- reports = "op-tree, idle-causes"
WITH framed AS (
  -- Threads with Python functions, whose time is divided into 50 parts.
  SELECT run_id, track_id, operators, first_ns, ((last_ns::HUGEINT - first_ns) // 50 + 1)::BIGINT AS part_ns
  FROM (
    SELECT r.run_id, r.track_id, count(CASE WHEN r.kind = 'host_op' THEN 1 END) AS operators,
           min(CASE WHEN r.kind = 'host_op' THEN r.start_ns END) AS first_ns,
           max(CASE WHEN r.kind = 'host_op' THEN r.start_ns END) AS last_ns
    FROM "range" AS r
    WHERE r.kind IN ('frame', 'module', 'host_op') AND {{selected(r.run_id)}}
    GROUP BY r.run_id, r.track_id
    HAVING bool_or(r.kind = 'frame')
  )
  WHERE operators >= 50
), unframed AS (
  SELECT run_id, track_id, framed_parts, any_value(all_framed) AS all_framed, any_value(operators) AS operators,
         sum(part_operators) AS lost, count(*)::HUGEINT * any_value(part_ns) AS lasts
  FROM (
    SELECT *, count(CASE WHEN frames > 0 THEN 1 END) OVER (PARTITION BY run_id, track_id ORDER BY part) AS framed_parts,
           count(CASE WHEN frames > 0 THEN 1 END) OVER (PARTITION BY run_id, track_id) AS all_framed
    FROM (
      SELECT f.run_id, f.track_id, TRY(r.start_ns - f.first_ns) // f.part_ns AS part,
             any_value(f.operators) AS operators, any_value(f.part_ns) AS part_ns,
             min(r.start_ns) AS first_start_ns, max(r.start_ns) AS last_start_ns,
             count(CASE WHEN r.kind = 'host_op' THEN 1 END) AS part_operators,
             count(CASE WHEN r.kind <> 'host_op' THEN 1 END) AS frames
      FROM framed AS f
      JOIN "range" AS r ON r.run_id = f.run_id AND r.track_id = f.track_id AND r.kind IN ('frame', 'module', 'host_op')
      GROUP BY f.run_id, f.track_id, part
    )
    WHERE part_operators > 0
  ) AS p
  -- PyTorch's backward pass, which runs in the calling thread on a CPU, needs no functions in Python.
  ANTI JOIN "range" AS b
    ON b.run_id = p.run_id AND b.track_id = p.track_id AND b.kind = 'frame' AND starts_with(b.name, '<built-in method run_backward ')
    AND b.start_ns <= p.first_start_ns AND b.dur_ns >= TRY(p.last_start_ns - b.start_ns)
  WHERE frames = 0
  GROUP BY run_id, track_id, framed_parts
  HAVING sum(part_operators) * 10 >= any_value(operators)
)
SELECT run_id, 'lost_functions', CASE framed_parts WHEN 0 THEN 'start' WHEN all_framed THEN 'end' ELSE 'middle' END,
       sum(lost), sum(operators), sum(lasts)
FROM unframed
GROUP BY ALL
