-- title = "Kernels and their measurements"
-- doc = "Which kernels of a program take the time, and what limits each, as Nsight Compute measured it in another run of the store? One row per kernel, grid and block. A kernel that was measured in several runs has the measurements of the latest one."
-- needs = ["task"]
-- when_empty = "Ingest a trace of the program and the output of ncu --csv --page raw into one store."
-- order = ["run_id", "device_id", "total_ns DESC", "kernel", "grid", "block", "metrics_kernel"]
-- measure = "total_ns"
-- shown = ["kernel", "grid", "count", "total_ns", "ratio_percent", "bound", "sm_percent", "memory_percent", "occupancy_percent", "headroom_ns"]
-- selects = { run = true, device = true, steps = "tasks", time = "tasks that start, with their full duration" }
-- [columns]
-- device_id = { type = "BIGINT", unit = "id", doc = "Device of the tasks." }
-- kernel = { type = "VARCHAR", unit = "text", doc = "Name of the kernel; NULL if unknown." }
-- grid = { type = "VARCHAR", unit = "text", doc = "Blocks of a launch by dimension, joined by ','; NULL if unknown, and for kernels whose function was not measured, which are one row each." }
-- block = { type = "VARCHAR", unit = "text", doc = "Threads of a block by dimension, joined by ','; NULL as grid." }
-- count = { type = "BIGINT", unit = "count", doc = "Launches that ended." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Launches without an end in the source; not counted in other columns." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations." }
-- ratio_percent = { type = "DOUBLE", unit = "percent", doc = "100 total_ns / the sum of total_ns over all rows of the run and device; NULL if that is 0." }
-- avg_ns = { type = "DECIMAL(22,3)", unit = "ns", doc = "total_ns / count, rounded half up to 0.001 ns; NULL if none ended." }
-- metrics_run_id = { type = "BIGINT", unit = "id", doc = "Run of the measurements: of those that have the kernel with this grid and block, the run itself, else the latest; NULL if none has." }
-- metrics_kernel = { type = "VARCHAR", unit = "text", doc = "Name of the kernel there." }
-- matched_by = { type = "VARCHAR", unit = "enum", doc = "How the two were matched, besides grid and block: name (the same name, without arguments and differences in notation) or function (the same function, and the only kernel of it with this grid and block in both runs: a heuristic)." }
-- metrics_count = { type = "BIGINT", unit = "count", doc = "Launches that were measured; the following columns are means over those that have the metric, NULL if none has." }
-- metrics_avg_ns = { type = "DECIMAL(22,3)", unit = "ns", doc = "Duration of the measured launches. Nsight Compute fixes the clocks by default and empties caches, so it can differ from avg_ns." }
-- sm_percent = { type = "DOUBLE", unit = "percent", doc = "Throughput of the multiprocessors, in percent of their peak (sm__throughput)." }
-- memory_percent = { type = "DOUBLE", unit = "percent", doc = "Throughput of caches and memory, in percent of the peak of the busiest part (gpu__compute_memory_throughput)." }
-- dram_percent = { type = "DOUBLE", unit = "percent", doc = "Throughput of the device's memory, in percent of its peak (gpu__dram_throughput)." }
-- occupancy_percent = { type = "DOUBLE", unit = "percent", doc = "Active warps, in percent of the most that fit (sm__warps_active)." }
-- bound = { type = "VARCHAR", unit = "enum", doc = "What limits it, by Nsight Compute's rule: compute or memory, whichever has the higher throughput, if that is at least 60 %; else latency; NULL if one of them is unknown." }
-- headroom_ns = { type = "BIGINT", unit = "ns", doc = "total_ns · (100 − the higher throughput) / 100, rounded down: what the kernel could win at most at the peak that limits it; NULL if bound is." }
WITH named AS (
  SELECT run_id, op_id, name, short_name(name) AS function, kernel_signature(name) AS signature
  FROM op
  WHERE EXISTS (FROM run WHERE source_format = 'ncu_csv')
), launch AS MATERIALIZED (
  -- Launches of Nsight Compute are few, and have all metrics in args. Not materialized, the conditions on sizes would be
  -- evaluated for all tasks of the store, before the join.
  SELECT t.run_id, n.name, n.function, n.signature, launch_size(t.args, 'grid') AS grid,
         launch_size(t.args, 'block') AS block, t.dur_ns,
         TRY_CAST(coalesce(t.args->>'sm__throughput.avg.pct_of_peak_sustained_elapsed',
           t.args->>'GPU Speed Of Light Throughput: Compute (SM) Throughput',
           t.args->>'GPU Speed Of Light Throughput: Compute (SM) [%]', t.args->>'GPU Speed Of Light: SM [%]',
           t.args->>'GPU Speed Of Light: SOL SM') AS DOUBLE) AS sm,
         TRY_CAST(coalesce(t.args->>'gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed',
           t.args->>'GPU Speed Of Light Throughput: Memory Throughput',
           t.args->>'GPU Speed Of Light Throughput: Memory [%]', t.args->>'GPU Speed Of Light: Memory [%]',
           t.args->>'GPU Speed Of Light: SOL Memory') AS DOUBLE) AS memory,
         TRY_CAST(coalesce(t.args->>'gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed',
           t.args->>'dram__throughput.avg.pct_of_peak_sustained_elapsed',
           t.args->>'GPU Speed Of Light Throughput: DRAM Throughput') AS DOUBLE) AS dram,
         TRY_CAST(coalesce(t.args->>'sm__warps_active.avg.pct_of_peak_sustained_active',
           t.args->>'Occupancy: Achieved Occupancy') AS DOUBLE) AS occupancy
  FROM run AS r
  JOIN task AS t ON t.run_id = r.run_id
  JOIN named AS n ON n.run_id = t.run_id AND n.op_id = t.op_id
  WHERE r.source_format = 'ncu_csv'
), measured AS (
  SELECT run_id AS metrics_run_id, function, signature, grid, block, min(name) AS metrics_kernel,
         count(*) AS metrics_count, count(dur_ns) AS timed, sum(dur_ns) AS metrics_total,
         avg(sm) AS sm_percent, avg(memory) AS memory_percent, avg(dram) AS dram_percent,
         avg(occupancy) AS occupancy_percent, count(*) OVER (PARTITION BY run_id, function, grid, block) AS alike
  FROM launch
  WHERE grid IS NOT NULL AND block IS NOT NULL
  GROUP BY run_id, function, signature, grid, block
), chosen AS (
  SELECT t.run_id, t.device_id, t.op_id, CASE WHEN t.op_id IS NULL THEN t.name END AS task_name, t.dur_ns,
         -- Only of these the sizes of launches matter, which take time to find.
         CASE WHEN n.function IN (SELECT function FROM measured) THEN launch_size(t.args, 'grid') END AS grid,
         CASE WHEN n.function IN (SELECT function FROM measured) THEN launch_size(t.args, 'block') END AS block
  FROM task AS t
  LEFT JOIN named AS n ON n.run_id = t.run_id AND n.op_id = t.op_id
  WHERE t.kind = 'compute' AND EXISTS (FROM measured) AND {{selected(t.run_id, t.device_id, t.step_id, t.start_ns)}}
), by_op AS (
  SELECT run_id, device_id, op_id, task_name, grid, block, count(*) AS started, count(dur_ns) AS ended, sum(dur_ns) AS total
  FROM chosen
  GROUP BY run_id, device_id, op_id, task_name, grid, block
), by_kernel AS (
  SELECT b.run_id, b.device_id, coalesce(n.name, b.task_name) AS kernel, n.function, n.signature, b.grid, b.block,
         sum(b.started) AS started, sum(b.ended) AS ended, coalesce(sum(b.total), 0) AS total
  FROM by_op AS b
  LEFT JOIN named AS n ON n.run_id = b.run_id AND n.op_id = b.op_id
  GROUP BY ALL
), counted AS (
  SELECT *, row_number() OVER (ORDER BY run_id, device_id, kernel, grid, block) AS number,
         count(DISTINCT signature) OVER (PARTITION BY run_id, device_id, function, grid, block) AS alike,
         sum(total) OVER (PARTITION BY run_id, device_id) AS device_total
  FROM by_kernel
), matched AS (
  SELECT c.number, m.*, CASE WHEN m.signature = c.signature THEN 'name' ELSE 'function' END AS matched_by,
         row_number() OVER (PARTITION BY c.number ORDER BY m.metrics_run_id = c.run_id DESC, m.signature = c.signature DESC,
                            m.metrics_run_id DESC) AS place
  FROM counted AS c
  JOIN measured AS m ON m.function = c.function AND m.grid = c.grid AND m.block = c.block
  WHERE m.signature = c.signature OR (m.alike = 1 AND c.alike = 1)
), joined AS (
  SELECT c.run_id, c.device_id, c.kernel, c.grid, c.block, c.started, c.ended, c.total, c.device_total, m.metrics_run_id,
         m.metrics_kernel, m.matched_by, m.metrics_count, m.timed, m.metrics_total, m.sm_percent, m.memory_percent,
         m.dram_percent, m.occupancy_percent,
         CASE WHEN m.sm_percent >= m.memory_percent THEN m.sm_percent
              WHEN m.sm_percent < m.memory_percent THEN m.memory_percent END AS higher
  FROM counted AS c
  LEFT JOIN matched AS m ON m.number = c.number AND m.place = 1
)
SELECT run_id, device_id, kernel, grid, block,
       ended::BIGINT AS count,
       (started - ended)::BIGINT AS unfinished_count,
       TRY_CAST(total AS BIGINT) AS total_ns,
       (100 * total)::DOUBLE / nullif(device_total, 0)::DOUBLE AS ratio_percent,
       average_ns(total, ended) AS avg_ns,
       metrics_run_id, metrics_kernel, matched_by, metrics_count,
       average_ns(metrics_total, timed) AS metrics_avg_ns,
       sm_percent, memory_percent, dram_percent, occupancy_percent,
       CASE WHEN higher < 60 THEN 'latency' WHEN sm_percent >= memory_percent THEN 'compute'
            WHEN sm_percent < memory_percent THEN 'memory' END AS bound,
       CASE WHEN higher IS NOT NULL THEN TRY_CAST(floor(total * greatest(0, 100 - higher) / 100) AS BIGINT) END AS headroom_ns
FROM joined
ORDER BY run_id, device_id, total_ns DESC, kernel, grid, block
