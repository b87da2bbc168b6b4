-- title = "Time, bandwidth and waits of collectives"
-- doc = "Which collectives take the time, how fast are they, and do they transfer or wait? One row per device, group, kind, data type and size. Bandwidths are those of nccl-tests: algorithm bandwidth is size / time, bus bandwidth is that times 2 (n − 1) / n for all_reduce and (n − 1) / n for all_gather, reduce_scatter, all_to_all, gather and scatter, with n ranks. Over whole durations they are lower bounds, because kernels also wait for late ranks; transfer_bus_bytes_per_s is without the waits. Waits need the traces of several ranks in one store; collective-arrivals has the rules, and each collective."
-- needs = ["collective"]
-- when_empty = "Collectives are tasks of kind collective, or ranges of Gloo."
-- order = ["run_id", "total_ns DESC", "device_id", "comm_group", "group_ranks", "collective", "dtype", "message_bytes"]
-- measure = "total_ns"
-- shown = ["rank", "device_id", "comm_group", "collective", "message_bytes", "count", "total_ns", "wait_ns", "transfer_ns", "conclusion", "bus_bytes_per_s", "transfer_bus_bytes_per_s", "last_count", "late_ns"]
-- selects = { run = "Only this run (compared with the others of its group); NULL: all runs.", device = true, steps = true, time = "collectives that start" }
-- [columns]
-- rank = { type = "BIGINT", unit = "index", doc = "Rank of the run (run.rank); NULL if unknown." }
-- device_id = { type = "BIGINT", unit = "id", doc = "Device; NULL for Gloo, which runs on the host, and if unknown." }
-- comm_group = { type = "VARCHAR", unit = "text", doc = "Group of devices; NULL if unknown." }
-- group_ranks = { type = "VARCHAR", unit = "text", doc = "Ranks of the group, as in the source; NULL if unknown." }
-- group_size = { type = "BIGINT", unit = "count", doc = "Number of ranks in the group; NULL if unknown." }
-- collective = { type = "VARCHAR", unit = "enum", doc = "Kind of collective (collective.collective); NULL if unknown." }
-- dtype = { type = "VARCHAR", unit = "text", doc = "Data type; NULL if unknown." }
-- message_bytes = { type = "BIGINT", unit = "byte", doc = "Size as nccl-tests defines it (collective.message_bytes); NULL if unknown." }
-- count = { type = "BIGINT", unit = "count", doc = "Collectives that ended; the times refer to these." }
-- unfinished_count = { type = "BIGINT", unit = "count", doc = "Those without an end in the source; not counted in other columns." }
-- total_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the durations." }
-- min_ns = { type = "BIGINT", unit = "ns", doc = "Shortest duration." }
-- mean_ns = { type = "BIGINT", unit = "ns", doc = "Mean duration, rounded down." }
-- max_ns = { type = "BIGINT", unit = "ns", doc = "Longest duration." }
-- algorithm_bytes_per_s = { type = "BIGINT", unit = "byte/s", doc = "Algorithm bandwidth over the whole durations: size · count / total_ns, rounded down; NULL without a size." }
-- bus_bytes_per_s = { type = "BIGINT", unit = "byte/s", doc = "Bus bandwidth over the whole durations; NULL if the size, the kind or the number of ranks is unknown." }
-- matched_count = { type = "BIGINT", unit = "count", doc = "Collectives of which other ranks' parts were found; the columns from here on refer to these." }
-- rank_count = { type = "BIGINT", unit = "count", doc = "Least number of ranks found for one of them, with this one; NULL without any." }
-- wait_ns = { type = "BIGINT", unit = "ns", doc = "Arrival skew: sum of the times from the rank's start until the last rank started." }
-- transfer_ns = { type = "BIGINT", unit = "ns", doc = "Rest of their durations." }
-- transfer_bus_bytes_per_s = { type = "BIGINT", unit = "byte/s", doc = "Bus bandwidth over transfer_ns." }
-- launch_skew_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the times from the rank's launch until the last rank launched, where launches are known: near wait_ns if late launches cause the waits, near 0 if the devices are late." }
-- last_count = { type = "BIGINT", unit = "count", doc = "Collectives to which this rank came last." }
-- last_step_count = { type = "BIGINT", unit = "count", doc = "Iterations with such a collective." }
-- step_count = { type = "BIGINT", unit = "count", doc = "Iterations with a matched collective." }
-- late_ns = { type = "BIGINT", unit = "ns", doc = "Sum of the times by which it came after the last but one: what the others would gain." }
-- clock_offset_ns = { type = "BIGINT", unit = "ns", doc = "Offset that was added to the run's clock to compare it with the other ranks; collective-arrivals has the rules." }
-- clock_error_ns = { type = "BIGINT", unit = "ns", doc = "Error of wait_ns and transfer_ns of each collective, from the clocks (collective-arrivals); NULL if unknown." }
-- clock_off_ns = { type = "BIGINT", unit = "ns", doc = "What the clocks are at least apart, because kernels that must overlap don't; 0 if they overlap." }
-- conclusion = { type = "VARCHAR", unit = "enum", doc = "late: the rank comes last to more than half of the matched collectives, by more than the clock error; wait or transfer: the larger part, whatever the clock error; inconclusive: the clock error is too large to tell; or why no other ranks were found (collective-arrivals, column match)." }
-- vendor_transit_ns = { type = "BIGINT", unit = "ns", doc = "Time of the transfers according to torch_npu (communication.json); NULL for other sources." }
-- vendor_wait_ns = { type = "BIGINT", unit = "ns", doc = "Waiting time according to torch_npu." }
-- vendor_idle_ns = { type = "BIGINT", unit = "ns", doc = "Rest of the durations according to torch_npu." }
WITH arrival AS (
{{collective_arrivals}}
), summed AS (
  SELECT run_id, min(rank) AS rank, device_id, comm_group, group_ranks, group_size, collective, dtype,
         message_bytes, count(*) AS started, count(dur_ns) AS finished, sum(dur_ns) AS total, min(dur_ns) AS shortest,
         max(dur_ns) AS longest, count(wait_ns) AS matched, min(rank_count) FILTER (WHERE wait_ns IS NOT NULL) AS ranks,
         sum(wait_ns) AS waits, sum(transfer_ns) AS transfers, sum(launch_skew_ns) AS launches,
         count(*) FILTER (WHERE is_last) AS lasts,
         count(DISTINCT iteration) FILTER (WHERE is_last) AS last_steps,
         count(DISTINCT iteration) FILTER (WHERE wait_ns IS NOT NULL) AS steps, sum(late_ns) AS late,
         min(clock_offset_ns) AS clock_offset, min(clock_error_ns) AS clock_error,
         sum(vendor_transit_ns) AS transit, sum(vendor_wait_ns) AS vendor_wait, sum(vendor_idle_ns) AS vendor_idle,
         min(clock_off_ns) AS clock_off, min(match) FILTER (WHERE wait_ns IS NULL) AS reason
  FROM arrival
  GROUP BY run_id, device_id, comm_group, group_ranks, group_size, collective, dtype, message_bytes
), rated AS (
  SELECT *,
         CASE WHEN collective = 'all_reduce' THEN 2 * (group_size - 1)::HUGEINT
              WHEN collective IN ('all_gather', 'reduce_scatter', 'all_to_all', 'gather', 'scatter') THEN group_size - 1
              WHEN collective IN ('broadcast', 'reduce', 'send', 'recv', 'send_recv') THEN group_size END AS bus_parts,
         TRY(message_bytes::HUGEINT * finished * 1000000000) AS moved,
         TRY(message_bytes::HUGEINT * matched * 1000000000) AS matched_moved
  FROM summed
)
SELECT run_id, rank, device_id, comm_group, group_ranks, group_size, collective, dtype, message_bytes, finished AS count,
       started - finished AS unfinished_count, TRY_CAST(total AS BIGINT) AS total_ns, shortest AS min_ns,
       TRY_CAST(total // nullif(finished, 0) AS BIGINT) AS mean_ns, longest AS max_ns,
       TRY_CAST(moved // nullif(total, 0) AS BIGINT) AS algorithm_bytes_per_s,
       TRY_CAST(TRY(moved * bus_parts) // nullif(TRY(total * group_size), 0) AS BIGINT) AS bus_bytes_per_s,
       matched AS matched_count, ranks AS rank_count, TRY_CAST(waits AS BIGINT) AS wait_ns,
       TRY_CAST(transfers AS BIGINT) AS transfer_ns,
       TRY_CAST(TRY(matched_moved * bus_parts) // nullif(TRY(transfers * group_size), 0) AS BIGINT)
         AS transfer_bus_bytes_per_s,
       TRY_CAST(launches AS BIGINT) AS launch_skew_ns, CASE WHEN matched > 0 THEN lasts END AS last_count,
       CASE WHEN matched > 0 THEN last_steps END AS last_step_count, CASE WHEN matched > 0 THEN steps END AS step_count,
       TRY_CAST(late AS BIGINT) AS late_ns, clock_offset AS clock_offset_ns, clock_error AS clock_error_ns,
       clock_off AS clock_off_ns,
       CASE WHEN matched = 0 THEN reason
            WHEN 2 * lasts > matched AND late > lasts::HUGEINT * clock_error THEN 'late'
            WHEN waits - transfers > 2 * matched::HUGEINT * clock_error THEN 'wait'
            WHEN transfers - waits >= 2 * matched::HUGEINT * clock_error THEN 'transfer'
            ELSE 'inconclusive' END AS conclusion,
       TRY_CAST(transit AS BIGINT) AS vendor_transit_ns, TRY_CAST(vendor_wait AS BIGINT) AS vendor_wait_ns,
       TRY_CAST(vendor_idle AS BIGINT) AS vendor_idle_ns
FROM rated
ORDER BY run_id, total_ns DESC, device_id, comm_group, group_ranks, collective, dtype, message_bytes
