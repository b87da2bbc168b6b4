-- title = "Traffic and waits between ranks"
-- doc = "How much data does a rank exchange with each other one, how fast, over which type of link, and how long does it wait for it? One row per rank, peer and type of link, from the parts of collectives that HCCL records (threads Plane N of torch_npu and msprof). Times of parts over RDMA are unknown: they only post the transfer. Otherwise, the sums are those of torch_npu's communication_matrix.json, which is not read."
-- needs = ["range"]
-- when_empty = "Only traces of torch_npu, MindSpore and msprof have the parts of collectives, if recorded at profiler level 1 or higher."
-- order = ["run_id", "rank", "transfer_ns DESC", "peer_rank", "link_type"]
-- measure = "transfer_ns"
-- shown = ["rank", "peer_rank", "link_type", "count", "transfer_bytes", "transfer_ns", "bytes_per_s", "wait_count", "wait_ns", "max_wait_ns"]
-- selects = { run = true, steps = true }
-- [columns]
-- rank = { type = "BIGINT", unit = "index", doc = "Rank in the group of the collectives (src rank); NULL if unknown." }
-- peer_rank = { type = "BIGINT", unit = "index", doc = "The rank it exchanges data with or waits for (dst rank); its own for copies on the device and waits without a peer." }
-- link_type = { type = "VARCHAR", unit = "text", doc = "Type of the link, as recorded: HCCS, PCIE, ROCE, SIO …, ON_CHIP on the device; of several types between two ranks, waits are with the one of most data; NULL for a peer without transfers." }
-- count = { type = "BIGINT", unit = "count", doc = "Transfers." }
-- transfer_bytes = { type = "BIGINT", unit = "byte", doc = "Sum of their sizes." }
-- transfer_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations; NULL if one is over RDMA, and without transfers." }
-- bytes_per_s = { type = "BIGINT", unit = "byte/s", doc = "transfer_bytes / transfer_ns, rounded down." }
-- wait_count = { type = "BIGINT", unit = "count", doc = "Waits for a notification of the peer." }
-- wait_ns = { type = "BIGINT", unit = "ns", doc = "Sum of their durations." }
-- max_wait_ns = { type = "BIGINT", unit = "ns", doc = "The longest." }
WITH read_part AS (
  SELECT r.run_id, r.name, r.dur_ns,
         json_extract_string(r.args, ['$."src rank"', '$."dst rank"', '$."link type"', '$."transport type"', '$."size(Byte)"']) AS facts
  FROM track AS t
  JOIN "range" AS r ON r.run_id = t.run_id AND r.track_id = t.track_id AND r.kind = 'summary'
  WHERE t.name LIKE 'Plane %' AND {{selected(t.run_id, r.step_id)}}
), part AS (
  SELECT run_id, TRY_CAST(facts[1] AS BIGINT) AS rank,
         -- 4294967295: no other rank
         CASE WHEN facts[2] = '4294967295' THEN TRY_CAST(facts[1] AS BIGINT) ELSE TRY_CAST(facts[2] AS BIGINT) END AS peer_rank,
         nullif(facts[3], 'INVALID_TYPE') AS link_type, facts[4] = 'RDMA' AS is_rdma, name = 'Notify_Wait' AS is_wait,
         TRY_CAST(facts[5] AS BIGINT) AS bytes, dur_ns
  FROM read_part
  WHERE facts[4] IS NOT NULL
), transfer AS (
  SELECT run_id, rank, peer_rank, link_type, count(*) AS transfers, sum(bytes) AS bytes,
         CASE WHEN bool_or(is_rdma) THEN NULL ELSE sum(dur_ns) END AS total
  FROM part
  WHERE NOT is_wait AND bytes > 0
  GROUP BY run_id, rank, peer_rank, link_type
), placed AS (
  SELECT *, row_number() OVER (PARTITION BY run_id, rank, peer_rank ORDER BY bytes DESC, link_type) AS place
  FROM transfer
), waiting AS (
  SELECT run_id, rank, peer_rank, 1 AS place, count(*) AS waits, sum(dur_ns) AS total, max(dur_ns) AS longest
  FROM part
  WHERE is_wait
  GROUP BY run_id, rank, peer_rank
)
SELECT coalesce(p.run_id, w.run_id) AS run_id, coalesce(p.rank, w.rank) AS rank,
       coalesce(p.peer_rank, w.peer_rank) AS peer_rank, p.link_type, coalesce(p.transfers, 0) AS count,
       coalesce(TRY_CAST(p.bytes AS BIGINT), 0) AS transfer_bytes, TRY_CAST(p.total AS BIGINT) AS transfer_ns,
       TRY_CAST(TRY(p.bytes * 1000000000) // nullif(p.total, 0) AS BIGINT) AS bytes_per_s,
       coalesce(w.waits, 0) AS wait_count, coalesce(TRY_CAST(w.total AS BIGINT), 0) AS wait_ns, w.longest AS max_wait_ns
FROM placed AS p
FULL JOIN waiting AS w
  ON w.run_id = p.run_id AND w.rank IS NOT DISTINCT FROM p.rank AND w.peer_rank IS NOT DISTINCT FROM p.peer_rank
     AND w.place = p.place
ORDER BY run_id, rank, transfer_ns DESC, peer_rank, link_type
