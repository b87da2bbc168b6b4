--- with_gloo
SELECT run_id FROM run
WHERE run_id IN ({runs})
  -- To parse options of 50 MB takes 256 MB.
  AND CASE WHEN contains(options, 'gloo')
           THEN contains(TRY(json_extract_string(options, '$.distributedInfo')), 'gloo') END

--- with_payloads
SELECT run_id FROM run WHERE run_id IN ({runs}) AND source_format = 'nsys'

--- no_payload
SELECT NULL::BIGINT AS run_id, NULL::BIGINT AS id, NULL AS comm, NULL::BIGINT AS bytes, NULL::BIGINT AS ranks
WHERE false

--- payload
-- NCCL's calls are NVTX ranges, with the bytes of one message. What is launched in one is of it; a group of calls is
-- launched when the group ends, in no call. A communicator has the same ID on all ranks.
SELECT t.run_id, t.id, m.comm, m.bytes, c.ranks
FROM task AS t
JOIN api AS a ON a.run_id = t.run_id AND a.id = t.api_id
ASOF JOIN (
  SELECT run_id, track_id, start_ns, TRY(start_ns + dur_ns) AS end_ns,
         args ->> '$.payload."NCCL communicator ID"' AS comm,
         TRY_CAST(args ->> '$.payload."Message size [bytes]"' AS BIGINT) AS bytes
  FROM range
  WHERE run_id IN ({with_payloads}) AND contains(args, '"Message size [bytes]"')
) AS m ON m.run_id = a.run_id AND m.track_id = a.track_id AND a.start_ns >= m.start_ns
LEFT JOIN (
  SELECT run_id, comm, CASE WHEN min(ranks) = max(ranks) THEN min(ranks) END AS ranks
  FROM (SELECT run_id, args ->> '$.payload."NCCL communicator ID"' AS comm,
               TRY_CAST(args ->> '$.payload."No. of ranks"' AS BIGINT) AS ranks
        FROM range
        WHERE run_id IN ({with_payloads}) AND contains(args, '"No. of ranks"'))
  GROUP BY run_id, comm
) AS c ON c.run_id = m.run_id AND c.comm = m.comm
WHERE t.run_id IN ({with_payloads}) AND t.kind = 'collective' AND a.start_ns < m.end_ns

--- gloo
-- Gloo's collectives are ranges of the threads of a process group, which they don't name: it is known in runs of which
-- one group uses Gloo. Sizes are those of the range's inputs.
UNION ALL
SELECT r.run_id, r.id, NULL, r.step_id, CASE WHEN g.is_known THEN 'gloo:' || g.name END, r.name, NULL, r.start_ns,
       r.dur_ns, NULL,
       [NULL, CASE WHEN len(list_distinct(r.types)) = 1 THEN r.types[1] END,
        CASE WHEN r.name <> 'gloo:scatter' THEN r.elements::VARCHAR END,
        CASE WHEN r.name = 'gloo:scatter' AND len(r.types) > 1 THEN (r.elements // len(r.types))::VARCHAR END,
        g.size, g.ranks, NULL, NULL, NULL, NULL, NULL, NULL, NULL], false, NOT g.is_known, NULL, NULL
FROM (
  SELECT run_id, id, step_id, name, start_ns, dur_ns, TRY_CAST(TRY(args -> '$."Input type"') AS VARCHAR[]) AS types,
         TRY(list_sum([list_reduce(one, lambda a, b: a * b, 1::HUGEINT)
                       FOR one IN TRY_CAST(args -> '$."Input Dims"' AS HUGEINT[][])])::HUGEINT) AS elements
  FROM range
  WHERE run_id IN ({with_gloo}) AND starts_with(name, 'gloo:') AND category = 'user_annotation'
) AS r
JOIN (
  SELECT run_id, coalesce(len(groups)::VARCHAR = pg_count AND len(used) = 1, false) AS is_known,
         used[1] ->> '$.pg_name' AS name, CASE WHEN is_known THEN used[1] ->> '$.pg_size' END AS size,
         CASE WHEN is_known THEN used[1] ->> '$.ranks' END AS ranks
  FROM (
    SELECT run_id, pg_count, groups,
           [one FOR one IN groups IF coalesce(contains(one ->> '$.backend_config', 'gloo'), true)] AS used
    FROM (
      SELECT run_id, json_extract_string(options, '$.distributedInfo.pg_count') AS pg_count,
             json_extract(options, '$.distributedInfo.pg_config[*]') AS groups
      FROM run
      WHERE run_id IN ({with_gloo})
    )
  )
) AS g ON g.run_id = r.run_id

--- rows
INSERT INTO collective BY NAME
WITH payload AS (
  {payload}
), found AS (
  SELECT t.run_id, t.id, t.device_id, t.step_id, coalesce(t.comm_group, p.comm) AS comm_group, t.name, t.submit_ns,
         t.start_ns, t.dur_ns, t.size_bytes, TRY(json_extract_string(t.args, [{paths}])) AS arg,
         r.source_format = 'npulog' AS is_ours, false AS is_ambiguous, p.bytes, p.ranks
  FROM task AS t
  LEFT JOIN run AS r ON r.run_id = t.run_id
  LEFT JOIN payload AS p ON p.run_id = t.run_id AND p.id = t.id
  WHERE t.run_id IN ({runs}) AND t.kind = 'collective'
  {gloo}
), name AS (
  SELECT name, {named} AS collective
  -- Arguments and template arguments name other things.
  FROM (SELECT name, regexp_replace(lower(regexp_extract(
                 regexp_replace(name, '\(anonymous namespace\)|<unnamed>', '', 'g'), '^[^<(]*')),
                 '[^a-z0-9]', '', 'g') AS word
        FROM (SELECT DISTINCT name FROM found))
), word AS (
  SELECT name, {named} AS collective
  FROM (SELECT name, regexp_replace(lower(name), '[^a-z0-9]', '', 'g') AS word
        FROM (SELECT DISTINCT arg[1] AS name FROM found))
), member AS (
  -- The reference NPU has one group, of all devices; an excerpt may have collectives of some.
  SELECT run_id, count(*) AS group_size FROM device WHERE run_id IN ({runs}) GROUP BY run_id
), iteration AS (
  SELECT run_id, step_id, any_value(iteration) AS iteration FROM step WHERE run_id IN ({runs}) GROUP BY run_id, step_id
), counted AS (
  SELECT *, [TRY_CAST(arg[3] AS BIGINT), TRY_CAST(arg[4] AS BIGINT),
             coalesce(ranks, TRY_CAST(coalesce(arg[5], arg[10]) AS BIGINT)), TRY_CAST(arg[7] AS BIGINT),
             coalesce(bytes, TRY_CAST(arg[9] AS BIGINT))] AS number
  FROM found
), known AS (
  SELECT f.run_id, f.id, f.device_id, f.step_id, i.iteration, coalesce(w.collective, n.collective) AS collective,
         f.comm_group, f.arg[6] AS group_ranks,
         CASE WHEN f.is_ours THEN m.group_size
              WHEN f.number[3] BETWEEN 1 AND {most_ranks} THEN f.number[3] END AS group_size,
         coalesce(f.arg[2], f.arg[8]) AS dtype, f.number[4] AS sequence, f.submit_ns, f.start_ns, f.dur_ns,
         f.size_bytes, {vendor},
         CASE WHEN f.number[1] BETWEEN 0 AND {most} THEN f.number[1]::HUGEINT END AS ins,
         CASE WHEN f.number[2] BETWEEN 0 AND {most} THEN f.number[2]::HUGEINT END AS outs,
         CASE WHEN f.number[5] BETWEEN 0 AND {most} THEN f.number[5]::HUGEINT END AS counted,
         CASE WHEN f.bytes IS NULL THEN e.width ELSE 1 END AS width,
         NOT f.is_ambiguous AND f.start_ns BETWEEN {first} AND {last} AND f.dur_ns BETWEEN 0 AND {longest} AS is_placed
  FROM counted AS f
  LEFT JOIN name AS n ON n.name = f.name
  LEFT JOIN word AS w ON w.name = f.arg[1]
  LEFT JOIN member AS m ON m.run_id = f.run_id
  LEFT JOIN iteration AS i ON i.run_id = f.run_id AND i.step_id = f.step_id
  LEFT JOIN (VALUES {widths}) AS e(type, width) ON e.type = lower(coalesce(f.arg[2], f.arg[8]))
), sized AS (
  -- ins and outs are of one rank. HCCL counts the elements that a rank sends to or receives from each other.
  SELECT *, CASE
    WHEN collective = 'barrier' OR collective IS NULL THEN NULL
    WHEN ins IS NULL AND outs IS NULL AND counted IS NULL THEN
      CASE WHEN collective IN ('all_reduce', 'broadcast', 'reduce') THEN size_bytes END
    WHEN collective = 'all_gather' THEN coalesce(nullif(outs, 0), ins * group_size, counted * group_size) * width
    WHEN collective = 'reduce_scatter' THEN coalesce(nullif(ins, 0), outs * group_size, counted * group_size) * width
    WHEN collective = 'all_to_all' THEN coalesce(ins, outs) * width
    WHEN collective = 'gather' THEN coalesce(ins, counted) * group_size * width
    WHEN collective = 'scatter' THEN coalesce(outs, counted) * group_size * width
    ELSE coalesce(greatest(ins, outs), counted) * width END AS message
  FROM known
)
SELECT run_id, id, device_id, step_id, iteration, collective, comm_group, group_ranks, group_size, dtype,
       CASE WHEN message >= 0 THEN TRY_CAST(message AS BIGINT) END AS message_bytes, sequence,
       CASE WHEN is_placed THEN row_number() OVER (
         PARTITION BY run_id, device_id, comm_group, group_ranks, collective, sequence,
                      CASE WHEN sequence IS NULL THEN step_id END, is_placed ORDER BY start_ns, id) END AS position,
       submit_ns, start_ns, dur_ns, {vendor_names}
FROM sized
ORDER BY run_id, start_ns, id
