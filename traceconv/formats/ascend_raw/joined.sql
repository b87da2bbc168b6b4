-- Records of the host and of devices → the tables of msprof's databases. What belongs together is described in msprof's
-- tree_builder.cpp, tree_analyzer.cpp, batch_id.cpp, ascend_task_association.cpp and hccl_calculator.cpp.

-- section: calls
-- The first half of a call with the second one, the third with the fourth, and so on.
INSERT INTO raw.api (thread, level, type, request, item, start_ns, end_ns)
SELECT thread, level, type, request, item, ns, next_ns
FROM (
  SELECT *, row_number() OVER same AS number, lead(ns) OVER same AS next_ns
  FROM raw.half
  WINDOW same AS (PARTITION BY thread, level, type, request, item ORDER BY id))
WHERE number % 2 = 1;
-- The innermost of calls that begin at once is the last one. `open_until`: when all calls up to this one have ended.
CREATE TABLE raw.call (
  thread INTEGER, level INTEGER, start_ns INTEGER, end_ns INTEGER, id INTEGER, open_until INTEGER,
  PRIMARY KEY (thread, level, start_ns, end_ns DESC, id)) WITHOUT ROWID;
INSERT INTO raw.call
SELECT thread, level, start_ns, end_ns, id, max(end_ns) OVER (
  PARTITION BY thread, level ORDER BY start_ns, end_ns DESC, id ROWS UNBOUNDED PRECEDING)
FROM raw.api
WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL;

-- section: batches
-- A stream's IDs of tasks begin again at a flip, from the first task that no task with a higher ID than the flip's
-- follows: threads may use the first new IDs before the flip.
CREATE INDEX raw.track_at ON track (device, stream, ns, task);
CREATE TABLE raw.turn (side INTEGER, device INTEGER, stream INTEGER, ns INTEGER, batch INTEGER);
INSERT INTO raw.turn
SELECT side, device, stream, ns, row_number() OVER (PARTITION BY side, device, stream ORDER BY ns) AS batch
FROM (
  SELECT side, device, stream, CASE
      WHEN task IN (0, 65535) THEN ns
      WHEN side = 0 THEN coalesce(
        (SELECT t.ns FROM raw.track AS t
          WHERE t.device = f.device AND t.stream = f.stream AND t.ns <= f.ns AND t.task > f.task
          ORDER BY t.ns DESC LIMIT 1), ns)
      ELSE coalesce(
        (SELECT t.start_ns FROM raw.done AS t
          WHERE t.device = f.device AND t.stream = f.stream AND t.start_ns <= f.ns AND t.task > f.task
          ORDER BY t.start_ns DESC LIMIT 1), ns) END AS ns
  FROM raw.flip AS f
  WHERE ns IS NOT NULL);
CREATE INDEX raw.turn_at ON turn (side, device, stream, ns, batch);
UPDATE raw.track SET batch = coalesce(
  (SELECT t.batch FROM raw.turn AS t
    WHERE t.side = 0 AND t.device = track.device AND t.stream = track.stream AND t.ns < track.ns
    ORDER BY t.ns DESC LIMIT 1), 0)
WHERE EXISTS (SELECT 1 FROM raw.turn WHERE side = 0);
UPDATE raw.done SET batch = coalesce(
  (SELECT t.batch FROM raw.turn AS t
    WHERE t.side = 1 AND t.device = done.device AND t.stream = done.stream AND t.ns < done.start_ns
    ORDER BY t.ns DESC LIMIT 1), 0)
WHERE EXISTS (SELECT 1 FROM raw.turn WHERE side = 1);
-- Old drivers record no flips, but count them in the numbers of the host's tasks. On devices, IDs begin again where the
-- next one is far smaller.
CREATE TABLE raw.wrapped AS
SELECT id, sum(is_smaller) OVER (PARTITION BY device, stream ORDER BY start_ns, id ROWS UNBOUNDED PRECEDING) AS batch
FROM (
  SELECT *, coalesce(lag(task) OVER (PARTITION BY device, stream ORDER BY start_ns, id) - task > 32768, 0) AS is_smaller
  FROM raw.done
  WHERE NOT EXISTS (SELECT 1 FROM raw.turn) AND EXISTS (SELECT 1 FROM raw.track WHERE batch > 0));
CREATE UNIQUE INDEX raw.wrapped_of ON wrapped (id, batch);
UPDATE raw.done SET batch = (SELECT w.batch FROM raw.wrapped AS w WHERE w.id = done.id)
WHERE EXISTS (SELECT 1 FROM raw.wrapped);

-- section: operators
-- What describes the operators of each call of a node.
CREATE TABLE raw.op AS
SELECT node, op, max(task_type) AS task_type, max(op_type) AS op_type, max(blocks) AS blocks,
       max(mix_blocks) AS mix_blocks, max(has_hf32) AS has_hf32, max(is_dynamic) AS is_dynamic, max(attr) AS attr
FROM (
  SELECT node, op, task_type, op_type, blocks, mix_blocks, has_hf32, is_dynamic, NULL AS attr FROM raw.basic_in
  WHERE task_type <> $ffts_plus
  UNION ALL
  SELECT node, op, NULL, NULL, NULL, NULL, NULL, NULL, attr FROM raw.attr_in
  UNION ALL
  SELECT DISTINCT node, op, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM raw.tensor_in
  UNION ALL
  SELECT DISTINCT node, op, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM raw.context_in WHERE level = $node)
WHERE node IS NOT NULL
GROUP BY node, op;
CREATE UNIQUE INDEX raw.op_of ON op (node, op);
CREATE TABLE raw.op_of_node (node INTEGER PRIMARY KEY, task_type INTEGER, op_type INTEGER);
INSERT INTO raw.op_of_node SELECT node, max(task_type), max(op_type) FROM raw.op GROUP BY node;
CREATE TABLE raw.shape (node INTEGER, op INTEGER, tensors TEXT, PRIMARY KEY (node, op)) WITHOUT ROWID;
INSERT INTO raw.shape
SELECT node, op, group_concat(tensors, ' ')
FROM (SELECT node, op, tensors FROM raw.tensor_in WHERE node IS NOT NULL ORDER BY node, op, rowid)
GROUP BY node, op;
CREATE INDEX raw.context_of ON context_in (node, op) WHERE level = $node;
CREATE INDEX raw.context_of_hccl ON context_in (hccl) WHERE level = $hccl;

-- section: launches
-- The tasks of the host: what they are, and which context and operator each has. A task whose parts have contexts is
-- itself without an operator.
CREATE TABLE raw.kind AS
SELECT t.id, t.device, t.stream, t.task, t.batch, t.node, t.hccl, t.model, t.kernel, t.blocks, t.mix_blocks, t.grid,
       t.block, t.type,
       h.text AS name, coalesce(t.hccl, t.node, t.model, t.acl) AS inner,
       t.hccl IS NOT NULL AND t.node IS NOT NULL AS is_hccl,
       t.node IS NOT NULL AND coalesce(s.text, '') <> 'step_info' AND coalesce(i.text, '') NOT LIKE 'Lccl%'
         AND (h.text LIKE 'KERNEL%' OR h.text = 'STARS_COMMON' OR (h.text = 'FFTS_PLUS' AND t.hccl IS NULL))
         AS is_compute
FROM raw.track_in AS t
LEFT JOIN raw.type AS y ON y.level = $runtime AND y.type = t.type
LEFT JOIN raw.hash AS h ON h.id = y.text
LEFT JOIN raw.api AS n ON n.id = t.node
LEFT JOIN raw.type AS z ON z.level = n.level AND z.type = n.type
LEFT JOIN raw.hash AS s ON s.id = z.text
LEFT JOIN raw.hash AS i ON i.id = n.item;
CREATE TABLE raw.launch (
  track INTEGER, device INTEGER, stream INTEGER, task INTEGER, batch INTEGER, context INTEGER, op INTEGER,
  is_compute INTEGER, hccl_info INTEGER, ops INTEGER);
-- Operators of a node, with the contexts of their tasks if these have some: one, and how many there are.
CREATE TABLE raw.part_op (
  node INTEGER, has_contexts INTEGER, context INTEGER, op INTEGER, ops INTEGER,
  PRIMARY KEY (node, has_contexts, context)) WITHOUT ROWID;
INSERT INTO raw.part_op
SELECT node, 0, $none, min(rowid), count(*) FROM raw.op GROUP BY node
UNION ALL
SELECT o.node, 1, coalesce(c.context, $none) AS context, min(o.rowid), count(*)
FROM raw.op AS o
LEFT JOIN raw.context_in AS c ON c.level = $node AND c.node = o.node AND c.op = o.op
GROUP BY o.node, 3;
INSERT INTO raw.launch
SELECT k.id, k.device, k.stream, k.task, k.batch, p.context, p.op, 1, NULL, p.ops
FROM raw.kind AS k
JOIN raw.part_op AS p ON p.node = k.node AND p.has_contexts = (
  $has_contexts AND k.name IN ('KERNEL_AICORE', 'KERNEL_AIVEC', 'KERNEL_SIMT', 'FFTS_PLUS', 'KERNEL_MIX_AIC', 'KERNEL_MIX_AIV'))
WHERE k.is_compute AND NOT k.is_hccl;
-- Of nodes that no record describes, and of the whole of a task whose parts have contexts.
INSERT INTO raw.launch
SELECT k.id, k.device, k.stream, k.task, k.batch, $none, NULL, NOT EXISTS (SELECT 1 FROM raw.op AS o WHERE o.node = k.node),
       NULL, 1
FROM raw.kind AS k
WHERE k.is_compute AND NOT k.is_hccl AND k.id NOT IN (SELECT track FROM raw.launch WHERE context = $none);
-- Parts of collectives: one for each context of the call, or of its records.
CREATE TABLE raw.part_hccl (
  hccl INTEGER, context INTEGER, info INTEGER, PRIMARY KEY (hccl, context)) WITHOUT ROWID;
INSERT INTO raw.part_hccl
SELECT hccl, context, min(rowid) FROM raw.hccl_in WHERE hccl IS NOT NULL GROUP BY hccl, context;
INSERT INTO raw.launch
SELECT k.id, k.device, k.stream, k.task, k.batch, c.context, NULL, 0, r.info, 1
FROM raw.kind AS k
JOIN (SELECT DISTINCT hccl, context FROM raw.context_in WHERE level = $hccl) AS c ON c.hccl = k.hccl
LEFT JOIN raw.part_hccl AS r ON r.hccl = k.hccl AND r.context = c.context
WHERE k.is_hccl;
INSERT INTO raw.launch
SELECT k.id, k.device, k.stream, k.task, k.batch, coalesce(r.context, $none), NULL, k.is_compute, r.info, 1
FROM raw.kind AS k
LEFT JOIN raw.part_hccl AS r ON r.hccl = k.hccl
WHERE k.is_hccl AND NOT EXISTS (SELECT 1 FROM raw.context_in AS c WHERE c.level = $hccl AND c.hccl = k.hccl);
-- All others; a kernel outside of a node is an operator with its own name.
INSERT INTO raw.launch
SELECT id, device, stream, task, batch,
       CASE WHEN $has_contexts AND name IN ('KERNEL_MIX_AIC', 'KERNEL_MIX_AIV') THEN 0 ELSE $none END, NULL,
       name IN ('KERNEL_AICORE', 'KERNEL_AIVEC', 'KERNEL_AICPU', 'KERNEL_SIMT', 'KERNEL_MIX_AIC', 'KERNEL_MIX_AIV')
         AND node IS NULL,
       NULL, 1
FROM raw.kind
WHERE NOT is_compute AND NOT is_hccl;
-- An ID that several launches have, as far as is known, belongs to none of them.
CREATE TABLE raw.known (
  device INTEGER, stream INTEGER, task INTEGER, batch INTEGER, context INTEGER, launch INTEGER, count INTEGER,
  PRIMARY KEY (device, stream, task, batch, context)) WITHOUT ROWID;
INSERT INTO raw.known
SELECT device, stream, task, batch, context, min(rowid), sum(ops)
FROM raw.launch
GROUP BY device, stream, task, batch, context;
UPDATE raw.done SET launch = (
  SELECT CASE WHEN k.count = 1 THEN k.launch END FROM raw.known AS k
  WHERE k.device = done.device AND k.stream = done.stream AND k.task = done.task AND k.batch = done.batch
    AND k.context = done.context);

CREATE INDEX raw.launch_of ON launch (track);
CREATE INDEX raw.done_of_launch ON done (launch);

-- section: tables
INSERT INTO CANN_API
SELECT a.start_ns, a.end_ns, a.level, ($pid << 32) | a.thread, a.id, CASE WHEN a.level = $hccl THEN a.item ELSE t.text END
FROM raw.api AS a
LEFT JOIN raw.type AS t ON t.level = a.level AND t.type = a.type
ORDER BY a.thread, a.start_ns, a.level DESC;
INSERT INTO TASK
SELECT d.start_ns, d.end_ns, d.device, coalesce(CASE WHEN l.is_compute OR k.is_hccl THEN k.node ELSE k.inner END, $none),
       d.id, $pid, CASE WHEN k.name IS NULL OR k.name = 'FFTS_PLUS' THEN d.type ELSE y.text END, d.context, d.stream,
       d.task, coalesce(m.item, $none)
FROM raw.done AS d
LEFT JOIN raw.launch AS l ON l.rowid = d.launch
LEFT JOIN raw.kind AS k ON k.id = l.track
LEFT JOIN raw.type AS y ON y.level = $runtime AND y.type = k.type
LEFT JOIN raw.api AS m ON m.id = k.model
ORDER BY d.device, d.stream, d.start_ns;
INSERT INTO COMPUTE_TASK_INFO
SELECT CASE WHEN k.is_hccl THEN c.item WHEN o.op IS NOT NULL THEN o.op WHEN k.node IS NOT NULL THEN n.item ELSE nullif(k.kernel, 0) END,
       d.id, CASE WHEN k.blocks >= 0 THEN k.blocks ELSE o.blocks END,
       CASE WHEN k.blocks >= 0 THEN k.mix_blocks ELSE o.mix_blocks END,
       coalesce(t.text, y.text),
       CASE WHEN k.is_hccl THEN e.op_type WHEN k.node IS NULL THEN nullif(k.kernel, 0) ELSE o.op_type END,
       s.input_formats, s.input_types, s.input_shapes, s.output_formats, s.output_types, s.output_shapes,
       o.attr, CASE o.is_dynamic WHEN 0 THEN $static WHEN 1 THEN $dynamic END,
       CASE o.has_hf32 WHEN 0 THEN $NO WHEN 1 THEN $YES END, k.grid, k.block
FROM raw.done AS d
JOIN raw.launch AS l ON l.rowid = d.launch
JOIN raw.kind AS k ON k.id = l.track
LEFT JOIN raw.op AS o ON o.rowid = l.op
LEFT JOIN raw.api AS n ON n.id = k.node
LEFT JOIN raw.api AS c ON c.id = k.hccl
LEFT JOIN raw.type AS y ON y.level = $runtime AND y.type = k.type
LEFT JOIN raw.op_of_node AS e ON k.is_hccl AND e.node = k.node
-- Kernels of collectives are named after what runs them, and one that HCCL runs on AI CPUs outside of its calls, too.
-- What no record describes has the core of the type of its task.
LEFT JOIN raw.op_name AS t ON t.number = CASE
    WHEN k.is_hccl AND k.name = 'KERNEL_AICPU' THEN 256
    WHEN k.is_hccl AND k.name = 'KERNEL_AICORE' THEN 9
    WHEN o.task_type = 9 AND k.name = 'KERNEL_AICPU' THEN 1
    ELSE coalesce(o.task_type, e.task_type, CASE k.name
      WHEN 'KERNEL_AICORE' THEN 0 WHEN 'KERNEL_AICPU' THEN 1 WHEN 'KERNEL_AIVEC' THEN 2 WHEN 'KERNEL_SIMT' THEN 2
      WHEN 'KERNEL_MIX_AIC' THEN 4 WHEN 'KERNEL_MIX_AIV' THEN 5 END) END
LEFT JOIN raw.shape AS p ON p.node = o.node AND p.op = o.op
LEFT JOIN raw.described AS s ON s.tensors = p.tensors
WHERE l.is_compute;

-- section: jobs
-- IDs of tasks with several names tell nothing.
INSERT INTO COMPUTE_TASK_INFO (name, globalTaskId, blockNum, taskType)
SELECT t.name, d.id, t.blocks, d.type
FROM raw.done AS d
JOIN (
  SELECT device, stream, task, min(name) AS name, max(blocks) AS blocks
  FROM raw.job_task
  GROUP BY device, stream, task
  HAVING min(name) = max(name)) AS t ON t.device = d.device AND t.stream = d.stream AND t.task = d.task;

-- section: copies
-- The records of a call belong to its copies in their order.
INSERT INTO MEMCPY_INFO
SELECT d.id, c.bytes, c.direction
FROM (
  SELECT id, inner, row_number() OVER (PARTITION BY inner ORDER BY id) AS number
  FROM raw.kind WHERE name = 'MEMCPY_ASYNC' AND inner IS NOT NULL) AS k
JOIN (
  SELECT bytes, direction, inner, row_number() OVER (PARTITION BY inner ORDER BY rowid) AS number
  FROM (SELECT rowid, bytes, direction, coalesce(hccl, node, model, acl) AS inner FROM raw.copy_in)
  WHERE inner IS NOT NULL) AS c USING (inner, number)
JOIN raw.launch AS l ON l.track = k.id
JOIN raw.done AS d ON d.launch = l.rowid;

-- section: collectives
-- The tasks of a collective: each of its executions has each task once.
CREATE TABLE raw.part AS
SELECT d.id, d.device, d.start_ns, d.end_ns, k.node, k.hccl, l.hccl_info, row_number() OVER (PARTITION BY d.launch ORDER BY d.start_ns) AS turn
FROM raw.done AS d
JOIN raw.launch AS l ON l.rowid = d.launch
JOIN raw.kind AS k ON k.id = l.track
WHERE k.is_hccl;
CREATE TABLE raw.collective AS
SELECT row_number() OVER (ORDER BY start_ns, end_ns) AS id, *,
       row_number() OVER (PARTITION BY grp ORDER BY start_ns, end_ns) - 1 AS place
FROM (
  SELECT p.node, p.turn, p.device, o.relay, o.retry, o.data_type, o.alg, o.count, n.item,
         coalesce(max(o.grp), max(r.grp)) AS grp, max(r.rank_size) AS rank_size, b.op_type,
         coalesce(min(p.start_ns) FILTER (WHERE c.type = $master), min(p.start_ns)) AS start_ns,
         coalesce(max(p.end_ns) FILTER (WHERE c.type = $master), max(p.end_ns)) AS end_ns
  FROM raw.part AS p
  JOIN raw.api AS n ON n.id = p.node
  JOIN raw.api AS c ON c.id = p.hccl
  LEFT JOIN raw.hccl_in AS r ON r.rowid = p.hccl_info
  LEFT JOIN (SELECT * FROM raw.hccl_op_in GROUP BY node) AS o ON o.node = p.node
  LEFT JOIN raw.op_of_node AS b ON b.node = p.node
  GROUP BY p.node, p.turn, p.device);
CREATE INDEX raw.collective_of ON collective (node, turn, device);

-- section: parts
INSERT INTO COMMUNICATION_TASK_INFO
SELECT n.name, p.id, c.item, r.plane, r.grp, r.notify, r.rdma, r.src_rank, r.dst_rank, r.transport, r.bytes,
       r.data_type, r.link, o.id, c.type = $master
FROM raw.part AS p
JOIN raw.api AS c ON c.id = p.hccl
JOIN raw.collective AS o ON o.node = p.node AND o.turn = p.turn AND o.device = p.device
JOIN raw.named AS n ON n.id = o.id
LEFT JOIN raw.hccl_in AS r ON r.rowid = p.hccl_info;
CREATE INDEX CommunicationTaskIndex ON COMMUNICATION_TASK_INFO (globalTaskId);

-- section: others
INSERT INTO AICORE_FREQ SELECT device, ns, mhz FROM raw.frequency WHERE ns IS NOT NULL ORDER BY device, ns;
INSERT INTO NPU_MODULE_MEM SELECT module, ns, bytes, device FROM raw.module_memory WHERE ns IS NOT NULL;
-- A change with a negative size frees what the one before it at the same address allocated.
INSERT INTO OP_MEMORY
SELECT op, bytes, ns, CASE WHEN next_bytes < 0 THEN next_ns END, allocated, reserved, NULL, NULL, device
FROM (
  SELECT *, lead(bytes) OVER same AS next_bytes, lead(ns) OVER same AS next_ns
  FROM raw.memory
  WINDOW same AS (PARTITION BY device, addr ORDER BY ns, rowid))
WHERE bytes > 0;

-- section: marks
CREATE TABLE raw.tx_whole AS
SELECT thread, start_ns, end_ns, kind, category, domain, group_concat(message, '') AS message
FROM (SELECT * FROM raw.tx WHERE start_ns IS NOT NULL ORDER BY thread, start_ns, mark, segment)
GROUP BY thread, start_ns, end_ns, kind, category, domain, mark;

-- section: program
INSERT INTO MSTX_EVENTS
SELECT t.start_ns, t.end_ns, t.kind, t.category, m.id, ($pid << 32) | t.thread, t.domain
FROM raw.tx_whole AS t
JOIN raw.tx_message AS m ON m.message = t.message
ORDER BY t.start_ns;

-- section: framework
-- Where an operator of the framework begins or ends, and which one is the innermost from there on: the last one that
-- began at this depth. Those without a duration have nothing inside.
CREATE TABLE raw.fwk_edge AS
SELECT thread, ns, op, is_begin, place,
       sum(is_begin * 2 - 1) OVER (PARTITION BY thread ORDER BY place ROWS UNBOUNDED PRECEDING) AS depth
FROM (
  SELECT *, row_number() OVER (PARTITION BY thread ORDER BY ns, is_begin, end_ns DESC) AS place
  FROM (
    SELECT thread, start_ns AS ns, id AS op, 1 AS is_begin, end_ns FROM raw.fwk_op WHERE end_ns > start_ns
    UNION ALL
    SELECT thread, end_ns, id, 0, end_ns FROM raw.fwk_op WHERE end_ns > start_ns));
CREATE TABLE raw.fwk_inner (
  thread INTEGER, ns INTEGER, place INTEGER, op INTEGER, PRIMARY KEY (thread, ns, place)) WITHOUT ROWID;
INSERT INTO raw.fwk_inner
SELECT e.thread, e.ns, e.place, b.op
FROM (
  SELECT thread, ns, place, CASE WHEN depth > 0 THEN
      max(CASE WHEN is_begin THEN place END) OVER (PARTITION BY thread, depth ORDER BY place ROWS UNBOUNDED PRECEDING)
    END AS owner
  FROM raw.fwk_edge) AS e
LEFT JOIN raw.fwk_edge AS b ON b.thread = e.thread AND b.place = e.owner;
-- An entry of the queue ends at the first end after its start, on its thread.
-- Columns of expressions have no type, and an index of such a column is not used for its order.
CREATE TABLE raw.fwk_queue (
  thread INTEGER, is_dequeue INTEGER, correlation INTEGER, name INTEGER, start_ns INTEGER, end_ns INTEGER);
INSERT INTO raw.fwk_queue
SELECT thread, is_dequeue, correlation, name, start_ns, end_ns
FROM (
  SELECT thread, is_dequeue, is_end, correlation, name, ns AS end_ns, lag(ns) OVER same AS start_ns,
         lag(is_end) OVER same AS after_end
  FROM raw.fwk_mark
  WHERE ns IS NOT NULL
  WINDOW same AS (PARTITION BY thread, is_dequeue, name ORDER BY ns, is_end))
WHERE is_end AND after_end = 0;
CREATE INDEX raw.fwk_queue_at ON fwk_queue (is_dequeue, thread, start_ns);
CREATE INDEX raw.fwk_queue_of ON fwk_queue (is_dequeue, correlation);
-- Which operator launched what a node launched: the innermost one around the entry of the queue that the node ran in,
-- or around the node itself.
CREATE TABLE raw.fwk_node AS
SELECT a.id, a.thread, a.start_ns,
  (SELECT correlation FROM (
    SELECT d.correlation, d.end_ns FROM raw.fwk_queue AS d
    WHERE d.is_dequeue = 1 AND d.thread = a.thread AND d.start_ns < a.start_ns ORDER BY d.start_ns DESC LIMIT 1)
  WHERE end_ns > a.end_ns) AS correlation
FROM raw.api AS a
WHERE a.level = $node AND a.type = 5 AND EXISTS (SELECT 1 FROM raw.fwk_inner);
UPDATE raw.fwk_node SET (thread, start_ns) = (
  SELECT e.thread, e.start_ns FROM raw.fwk_queue AS e WHERE e.is_dequeue = 0 AND e.correlation = fwk_node.correlation)
WHERE EXISTS (SELECT 1 FROM raw.fwk_queue AS e WHERE e.is_dequeue = 0 AND e.correlation = fwk_node.correlation);
CREATE TABLE raw.fwk_launch AS
SELECT n.id AS node,
  (SELECT i.op FROM raw.fwk_inner AS i WHERE i.thread = n.thread AND i.ns < n.start_ns
    ORDER BY i.ns DESC, i.place DESC LIMIT 1) AS op
FROM raw.fwk_node AS n;
-- Connections: of operators to nodes; those of the queue, and of forward and backward operators, follow the nodes'.
CREATE TABLE raw.fwk_base AS SELECT coalesce(max(id), 0) + 1 AS base FROM raw.api;
CREATE TABLE raw.fwk_pair AS
SELECT f.id AS forward, b.id AS backward,
       row_number() OVER (ORDER BY f.start_ns) + (SELECT coalesce(max(correlation), 0) FROM raw.fwk_queue) AS number
FROM (SELECT sequence, id, max(start_ns) AS start_ns FROM raw.fwk_op
      WHERE sequence >= 0 AND forward_thread = 0 GROUP BY sequence) AS f
JOIN (SELECT sequence, id, max(start_ns) FROM raw.fwk_op
      WHERE sequence >= 0 AND forward_thread <> 0 GROUP BY sequence) AS b USING (sequence);
INSERT INTO CONNECTION_IDS
SELECT op, node FROM raw.fwk_launch WHERE op IS NOT NULL
UNION ALL SELECT forward, number + base FROM raw.fwk_pair, raw.fwk_base
UNION ALL SELECT backward, number + base FROM raw.fwk_pair, raw.fwk_base
UNION ALL
SELECT (SELECT coalesce(max(id), 0) FROM raw.fwk_op) + q.rowid, q.correlation + base FROM raw.fwk_queue AS q, raw.fwk_base
ORDER BY 1;
INSERT INTO PYTORCH_CALLCHAINS SELECT DISTINCT stack, stack, 0 FROM raw.fwk_op WHERE stack IS NOT NULL;
INSERT INTO PYTORCH_API
SELECT start_ns, end_ns, ($pid << 32) | thread, id, name, sequence, forward_thread, types, shapes, stack, 50001
FROM raw.fwk_op WHERE start_ns IS NOT NULL ORDER BY start_ns;
INSERT INTO PYTORCH_API
SELECT q.start_ns, q.end_ns, ($pid << 32) | q.thread, (SELECT coalesce(max(id), 0) FROM raw.fwk_op) + q.rowid, s.shown,
       NULL, NULL, NULL, NULL, NULL, 50002
FROM raw.fwk_queue AS q
LEFT JOIN raw.fwk_shown AS s ON s.is_dequeue = q.is_dequeue AND s.name IS q.name
ORDER BY q.start_ns;
INSERT INTO OP_MEMORY
SELECT (SELECT name FROM raw.fwk_op WHERE id = (
         SELECT i.op FROM raw.fwk_inner AS i WHERE i.thread = m.thread AND i.ns < m.ns
         ORDER BY i.ns DESC, i.place DESC LIMIT 1)),
       bytes, ns, CASE WHEN next_bytes < 0 THEN next_ns END, allocated, reserved, active, stream, device
FROM (
  SELECT *, lead(bytes) OVER same AS next_bytes, lead(ns) OVER same AS next_ns
  FROM raw.fwk_memory
  WHERE ns IS NOT NULL
  WINDOW same AS (PARTITION BY device, address ORDER BY ns, rowid)) AS m
WHERE bytes > 0;
INSERT INTO GC_RECORD SELECT start_ns, end_ns, (pid << 32) | pid FROM raw.fwk_collection WHERE start_ns IS NOT NULL;

-- section: functions
-- A function returns at the next return of its depth. Returns from functions that were called before the recording
-- have no depth. One that has not returned ends at the last event of its thread, as torch_npu has it: what it called is
-- inside.
CREATE TABLE raw.fwk_frame AS
SELECT thread, key, start_ns, coalesce(end_ns, last_ns) AS end_ns, end_ns IS NULL AS is_open
FROM (
  SELECT thread, key, is_return, ns AS start_ns, lead(ns) OVER same AS end_ns, max(ns) OVER (PARTITION BY thread) AS last_ns
  FROM (
    SELECT *, sum - min(0, min(sum) OVER (PARTITION BY thread ORDER BY place ROWS UNBOUNDED PRECEDING)) + is_return AS depth
    FROM (
      SELECT *, sum(1 - 2 * is_return) OVER (PARTITION BY thread ORDER BY place ROWS UNBOUNDED PRECEDING) AS sum
      FROM (
        SELECT *, row_number() OVER (PARTITION BY thread ORDER BY ns, rowid) AS place
        FROM raw.fwk_call WHERE ns IS NOT NULL)))
  WINDOW same AS (PARTITION BY thread, depth ORDER BY place))
WHERE NOT is_return;

-- section: frames
INSERT INTO PYTORCH_API
SELECT f.start_ns, f.end_ns, ($pid << 32) | f.thread, NULL, n.name, NULL, NULL, NULL, NULL, NULL, 50003
FROM raw.fwk_frame AS f
LEFT JOIN raw.fwk_frame_name AS n ON n.thread = f.thread AND n.key = f.key
ORDER BY f.start_ns;
