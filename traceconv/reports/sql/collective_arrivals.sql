-- title = "Arrival of ranks at each collective"
-- doc = "When did each rank arrive at each collective, and for whom did it wait? One row per collective and rank (run and device). The same collective of several ranks is found by its group and sequence number, else (a heuristic) by its place among the collectives of its kind and group in the iteration, if all ranks have as many. The clocks of one host are taken as equal. Other clocks are aligned by the ends of all-reduces, all-gathers, reduce-scatters and barriers, which are nearly simultaneous (a heuristic); these must also overlap. collectives has the sums."
-- needs = ["collective"]
-- when_empty = "Collectives are tasks of kind collective, or ranges of Gloo."
-- order = ["run_id", "device_id", "start_ns", "id"]
-- measure = "wait_ns"
-- shown = ["rank", "device_id", "iteration", "collective", "comm_group", "message_bytes", "start_ns", "dur_ns", "wait_ns", "transfer_ns", "launch_skew_ns", "is_last", "match"]
-- selects = { run = "Only this run (compared with the others of its group); NULL: all runs.", device = true, steps = true, time = "collectives that start" }
-- [columns]
-- id = { type = "BIGINT", unit = "id", doc = "Task (task.id), or range of Gloo (range.id)." }
-- rank = { type = "BIGINT", unit = "index", doc = "Rank of the run (run.rank); NULL if unknown." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device; NULL for Gloo, which runs on the host, and if unknown." }
-- step_id = { type = "BIGINT", unit = "id", doc = "Step (step.step_id); NULL outside steps." }
-- iteration = { type = "BIGINT", unit = "index", doc = "Iteration number of the step in the source." }
-- collective = { type = "VARCHAR", unit = "enum", doc = "Kind of collective (collective.collective); NULL if unknown." }
-- comm_group = { type = "VARCHAR", unit = "text", doc = "Group of devices; NULL if unknown." }
-- group_ranks = { type = "VARCHAR", unit = "text", doc = "Ranks of the group, as in the source; NULL if unknown." }
-- group_size = { type = "BIGINT", unit = "count", doc = "Number of ranks in the group; NULL if unknown." }
-- dtype = { type = "VARCHAR", unit = "text", doc = "Data type; NULL if unknown." }
-- message_bytes = { type = "BIGINT", unit = "byte", doc = "Size as nccl-tests defines it (collective.message_bytes); NULL if unknown." }
-- start_ns = { type = "BIGINT", unit = "ns", timestamp = true, doc = "Start, on the clock of the run." }
-- dur_ns = { type = "BIGINT", unit = "ns", doc = "Duration; NULL if its end is not in the source." }
-- rank_count = { type = "BIGINT", unit = "count", doc = "Ranks whose part of this collective was found, with this one." }
-- wait_ns = { type = "BIGINT", unit = "ns", doc = "Arrival skew: time from its start until the last of these ranks started, up to dur_ns; NULL if no other was found." }
-- transfer_ns = { type = "BIGINT", unit = "ns", doc = "dur_ns − wait_ns. Too long by what ranks without a trace arrived later." }
-- launch_skew_ns = { type = "BIGINT", unit = "ns", doc = "Time from its launch until the last of these ranks launched it; NULL if a launch is unknown." }
-- late_ns = { type = "BIGINT", unit = "ns", doc = "For the last rank, its start minus that of the last but one; 0 for others." }
-- is_last = { type = "BOOLEAN", unit = "flag", doc = "Whether no rank started later, and one earlier." }
-- clock_offset_ns = { type = "BIGINT", unit = "ns", doc = "Offset that was added to the run's clock (after run.epoch_offset_ns) to compare it with that of the lowest rank of the group: the median difference of the ends, within what overlapping kernels allow; 0 on one host, unless kernels that must overlap then don't." }
-- clock_error_ns = { type = "BIGINT", unit = "ns", doc = "Error of that: of equal clocks, that of the devices' sync records (device.clock_error_ns), 0 without any; of aligned clocks, what 90 % of the ends differ by (a heuristic), or with fewer than 3 the largest offset with which kernels still overlap. The sum for this rank and the least certain other one; NULL if unknown." }
-- clock_off_ns = { type = "BIGINT", unit = "ns", doc = "What the clocks are at least apart, because kernels that must overlap don't; 0 if they overlap." }
-- match = { type = "VARCHAR", unit = "enum", doc = "How the other ranks were found: sequence, position (a heuristic), or why not: single_rank (no other run or device of the group), counts_differ (the ranks have different numbers of them in the iteration), same_rank (several runs of the group have a rank), sizes_differ, point_to_point, unknown_kind, unknown_group (Gloo in a job with several groups, which its ranges don't name), no_times." }
-- vendor_transit_ns = { type = "BIGINT", unit = "ns", doc = "Time of its transfers according to torch_npu (communication.json); NULL for other sources." }
-- vendor_wait_ns = { type = "BIGINT", unit = "ns", doc = "Waiting time according to torch_npu." }
-- vendor_idle_ns = { type = "BIGINT", unit = "ns", doc = "Rest of the duration according to torch_npu." }
WITH of_job AS (
  SELECT r.run_id, r.rank, r.host, coalesce(r.epoch_offset_ns, 0)::HUGEINT AS epoch,
         dense_rank() OVER (ORDER BY r.group_label, CASE WHEN r.rank IS NULL THEN r.run_id END) AS job
  FROM run AS r
  WHERE run IS NULL OR r.run_id = run OR (r.rank IS NOT NULL AND EXISTS (
    SELECT 1 FROM run AS c
    WHERE c.run_id = run AND c.rank IS NOT NULL AND c.group_label IS NOT DISTINCT FROM r.group_label))
), member AS (
  -- Each device of each run, by group and kind of collective.
  SELECT c.run_id, c.device_id, c.comm_group, c.group_ranks, c.collective, j.rank, j.host, j.epoch, d.clock_error_ns,
         dense_rank() OVER (ORDER BY j.job, c.comm_group, c.group_ranks, c.collective) AS comm,
         dense_rank() OVER (ORDER BY j.job, j.rank, c.device_id) AS place,
         row_number() OVER (ORDER BY j.job, c.comm_group, c.group_ranks, c.collective, j.rank, c.run_id, c.device_id)
           AS member
  FROM (SELECT DISTINCT run_id, device_id, comm_group, group_ranks, collective FROM collective) AS c
  JOIN of_job AS j ON j.run_id = c.run_id
  LEFT JOIN device AS d ON d.run_id = c.run_id AND d.device_id = c.device_id
), compared AS (
  -- Clocks are compared with that of the first member.
  SELECT m.*, o.members, o.members > o.places AS has_twins, f.member = m.member AS is_first,
         CASE WHEN m.epoch - f.epoch BETWEEN -1152921504606846976 AND 1152921504606846976
              THEN (m.epoch - f.epoch)::BIGINT ELSE 0 END AS epoch_shift,
         m.run_id = f.run_id AND m.device_id IS NOT DISTINCT FROM f.device_id AS is_reference,
         m.run_id = f.run_id OR coalesce(m.host = f.host, false) AS one_clock,
         CASE WHEN m.run_id = f.run_id THEN m.clock_error_ns::HUGEINT + f.clock_error_ns END AS sync_error,
         dense_rank() OVER (ORDER BY m.run_id, m.device_id, f.run_id, f.device_id) AS pair
  FROM member AS m
  JOIN (SELECT comm, min(member) AS first, count(*) AS members, count(DISTINCT place) AS places
        FROM member GROUP BY comm) AS o ON o.comm = m.comm
  JOIN member AS f ON f.member = o.first
), part AS MATERIALIZED (
  -- A line has the collectives whose places, or sequence numbers, are compared.
  SELECT c.id, c.run_id, c.device_id, c.step_id, c.iteration, c.collective, c.comm_group, c.group_ranks, c.group_size,
         c.dtype, c.message_bytes, c.start_ns, c.dur_ns, c.vendor_transit_ns, c.vendor_wait_ns, c.vendor_idle_ns,
         c.position, m.rank, m.member, m.place, m.pair, m.is_first, m.is_reference, m.has_twins, c.sequence IS NOT NULL AS numbered,
         2 * m.comm + (c.sequence IS NOT NULL)::BIGINT AS line, coalesce(c.sequence, c.iteration, -1) AS number,
         CASE WHEN c.position IS NOT NULL AND m.members > 1 AND c.collective NOT IN ('send', 'recv', 'send_recv')
              THEN c.start_ns + m.epoch_shift END AS begin_ns,
         CASE WHEN c.submit_ns BETWEEN -1152921504606846976 AND 2305843009213693952
              THEN c.submit_ns + m.epoch_shift END AS launch_ns
  FROM collective AS c
  JOIN compared AS m ON m.run_id = c.run_id AND m.device_id IS NOT DISTINCT FROM c.device_id
    AND m.comm_group IS NOT DISTINCT FROM c.comm_group AND m.group_ranks IS NOT DISTINCT FROM c.group_ranks
    AND m.collective IS NOT DISTINCT FROM c.collective
), block AS (
  -- Places are compared only if all ranks have as many, and none has two of a place.
  SELECT line, number, min(count) <> max(count) OR bool_or(count <> last_position) AS differ
  FROM (SELECT line, number, member, count(*) AS count, max(position) AS last_position
        FROM part WHERE begin_ns IS NOT NULL AND NOT numbered GROUP BY line, number, member)
  GROUP BY line, number
), twin AS (
  SELECT line, number, position, true AS is_twin
  FROM part
  WHERE begin_ns IS NOT NULL AND has_twins
  GROUP BY line, number, position
  HAVING count(*) > count(DISTINCT place)
), instance AS (
  SELECT line, number, position, count(*) AS ranks, min(begin_ns) FILTER (WHERE is_first) AS first_begin_ns,
         min(begin_ns + dur_ns) FILTER (WHERE is_first) AS first_end_ns,
         min(message_bytes) <> max(message_bytes) AND min(collective) NOT IN ('all_to_all', 'gather', 'scatter')
           AS other_sizes
  FROM part
  WHERE begin_ns IS NOT NULL
  GROUP BY line, number, position
), matched AS (
  SELECT i.*, coalesce(b.differ, false) AS differ, coalesce(t.is_twin, false) AS is_twin,
         i.ranks > 1 AND NOT coalesce(t.is_twin, false) AND NOT coalesce(i.other_sizes, false)
           AND NOT coalesce(b.differ, false) AS is_matched
  FROM instance AS i
  LEFT JOIN block AS b ON b.line = i.line AND b.number = i.number
  LEFT JOIN twin AS t ON t.line = i.line AND t.number = i.number AND t.position = i.position
), bound AS (
  -- What can be added to a clock, so that each kernel ends after the start of the others, and so that both end together.
  SELECT p.pair, count(*) AS count, max(i.first_begin_ns - p.begin_ns - p.dur_ns) AS low,
         min(i.first_end_ns - p.begin_ns) AS high,
         quantile_disc(i.first_end_ns - p.begin_ns - p.dur_ns, [0.05, 0.5, 0.95]) AS ends
  FROM part AS p
  JOIN matched AS i ON i.line = p.line AND i.number = p.number AND i.position = p.position
  WHERE NOT p.is_reference AND i.is_matched AND i.first_begin_ns IS NOT NULL
    AND p.collective IN ('all_reduce', 'all_gather', 'reduce_scatter', 'barrier')
  GROUP BY p.pair
), clock AS (
  SELECT c.member, c.comm, b.low, b.high, b.ends, b.count, c.is_reference, c.sync_error,
         c.is_reference OR (c.one_clock AND coalesce(b.low <= 0 AND b.high >= 0, true)) AS is_equal
  FROM compared AS c
  LEFT JOIN bound AS b ON b.pair = c.pair
), shifted AS (
  SELECT *, CASE WHEN is_equal OR ends IS NULL THEN 0 ELSE least(greatest(ends[2], low), greatest(high, low)) END AS added
  FROM clock
), error AS (
  SELECT member, comm, low, high, added,
         CASE WHEN is_reference THEN 0 WHEN is_equal THEN coalesce(sync_error, 0)
              ELSE least(greatest(abs(high - added), abs(added - low)),
                         CASE WHEN count >= 3 THEN greatest(ends[3] - added, added - ends[1]) END) END AS error
  FROM shifted
), worst AS (
  SELECT comm, max(error, 2) AS errors FROM error GROUP BY comm
), uncertain AS (
  SELECT e.member, e.added, greatest(e.low, -e.high, 0) AS off_ns,
         CASE WHEN e.error IS NOT NULL THEN
           e.error + CASE WHEN e.error = g.errors[1] THEN coalesce(g.errors[2], 0) ELSE g.errors[1] END END AS error
  FROM error AS e
  JOIN worst AS g ON g.comm = e.comm
), arrival AS (
  SELECT p.line, p.number, p.position, max(p.begin_ns + u.added, 2) AS latest, min(p.begin_ns + u.added) AS earliest,
         CASE WHEN count(p.launch_ns) = count(*) THEN max(p.launch_ns + u.added) END AS last_launch_ns
  FROM part AS p
  JOIN uncertain AS u ON u.member = p.member
  WHERE p.begin_ns IS NOT NULL
  GROUP BY p.line, p.number, p.position
), together AS (
  SELECT i.*, a.latest[1] AS last_begin_ns, a.latest[1] - a.latest[2] AS lateness, a.earliest, a.last_launch_ns
  FROM matched AS i
  JOIN arrival AS a ON a.line = i.line AND a.number = i.number AND a.position = i.position
), waited AS (
  SELECT p.*, u.added, u.error, u.off_ns, i.ranks, i.differ, i.is_twin, i.is_matched, i.lateness,
         CASE WHEN i.is_matched THEN least(p.dur_ns, i.last_begin_ns - p.begin_ns - u.added) END AS waits,
         CASE WHEN i.is_matched THEN i.last_launch_ns - p.launch_ns - u.added END AS launches,
         i.is_matched AND i.last_begin_ns = p.begin_ns + u.added AND i.earliest < i.last_begin_ns AS is_late
  FROM part AS p
  JOIN uncertain AS u ON u.member = p.member
  LEFT JOIN together AS i ON i.line = p.line AND i.number = p.number AND i.position = p.position
  WHERE {{selected(p.run_id, p.device_id, p.step_id, p.start_ns)}}
)
SELECT run_id, id, rank, device_id, step_id, iteration, collective, comm_group, group_ranks, group_size, dtype,
       message_bytes, start_ns, dur_ns, CASE WHEN is_matched THEN ranks ELSE 1 END AS rank_count, waits AS wait_ns,
       dur_ns - waits AS transfer_ns, launches AS launch_skew_ns,
       CASE WHEN is_late THEN lateness WHEN is_matched THEN 0 END AS late_ns,
       CASE WHEN is_matched THEN is_late END AS is_last,
       CASE WHEN is_matched THEN added END AS clock_offset_ns,
       CASE WHEN is_matched THEN TRY_CAST(error AS BIGINT) END AS clock_error_ns,
       CASE WHEN is_matched THEN off_ns END AS clock_off_ns,
       CASE WHEN collective IS NULL THEN 'unknown_kind'
            WHEN collective IN ('send', 'recv', 'send_recv') THEN 'point_to_point'
            WHEN position IS NULL AND start_ns BETWEEN -1152921504606846976 AND 2305843009213693952
              AND dur_ns BETWEEN 0 AND 1152921504606846976 THEN 'unknown_group'
            WHEN position IS NULL THEN 'no_times'
            WHEN is_matched AND numbered THEN 'sequence'
            WHEN is_matched THEN 'position'
            WHEN is_twin THEN 'same_rank'
            WHEN differ THEN 'counts_differ'
            WHEN ranks > 1 THEN 'sizes_differ'
            ELSE 'single_rank' END AS match,
       vendor_transit_ns, vendor_wait_ns, vendor_idle_ns
FROM waited
ORDER BY run_id, device_id, start_ns, id
